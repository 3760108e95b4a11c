"""vLLM-Ascend: every decision that its own code made, and a checkpoint whose description leaves the draft out.

The rows of vectors/ were made by AscendModelSlimConfig of each tag with its imports stubbed: `__init__`,
`apply_vllm_mapper` with vLLM's WeightsMapper, `get_quant_method`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Model, deepseek_v3, dumped, glm4_moe, header, llama, qwen3_5, tensors_of
from vector_rows import disagreements

import mtpfix
from mtpfix.analysis import analyse
from mtpfix.checkpoint.local import read_local
from mtpfix.engines import vllm_ascend
from mtpfix.engines.base import MatchQuery
from mtpfix.families import load
from mtpfix.families.plugins import with_plugin
from mtpfix.model import Answer
from mtpfix.releases import key, modelled
from mtpfix.storage.modules import stored_modules

NEWEST = "0.25.1rc1"
DESCRIPTION = "quant_model_description.json"
ROWS = Path(__file__).parent / "vectors" / "vllm-ascend-ascend.jsonl"


def test_every_recorded_decision() -> None:
    assert disagreements(vllm_ascend.ENGINE, ROWS) == []


def answer(
    config: Mapping[str, Any], runtime: str, layer: Any = "linear", release: str = NEWEST, kind: str = ""
) -> Answer:
    packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
    query = MatchQuery(release, "ascend", config, packed=packed, options={"model_type": kind})
    return vllm_ascend.ENGINE.matcher(query).decide(runtime, layer)


ASKED = [
    # 0.25.1rc1 modelslim_config.py:736: shards one by one, any other name by how its FLOAT weights begin
    ({"a.b.weight": "FLOAT"}, "a.b", "linear", NEWEST, ("plain", "", "")),
    ({"a.bc.weight": "FLOAT", "a.b.weight": "W8A8"}, "a.b", "linear", NEWEST, ("plain", "", "")),
    ({"a.b.weight": "W8A8_DYNAMIC"}, "a.b", "linear", NEWEST, ("quantized", "modelslim-w8a8", "")),
    ({"a.b.weight": "W4A8_DYNAMIC"}, "a.b", "linear", NEWEST, ("quantized", "", "")),
    ({"a.b.bias": "FLOAT"}, "a.b", "linear", NEWEST, ("error", "", "KeyError")),
    ({}, "a.b", "linear", NEWEST, ("error", "", "KeyError")),
    ({"a.b.weight": "W3A3"}, "a.b", "linear", NEWEST, ("error", "", "NotImplementedError")),
    ({"a.b.weight": "W8A8FP8_DYNAMIC"}, "a.b", "linear", "0.21.0rc1", ("error", "", "NotImplementedError")),
    ({"a.b.weight": "W8A8FP8_DYNAMIC"}, "a.b", "linear", "0.22.1rc1", ("quantized", "", "")),
    ({"a.b.weight": "W4A16"}, "a.b", "linear", NEWEST, ("error", "", "NotImplementedError")),  # for experts alone
    ({f"a.{x}_proj.weight": "FLOAT" for x in "qkv"}, "a.qkv_proj", "linear", NEWEST, ("plain", "", "")),
    ({f"a.{x}_proj.weight": "FLOAT" for x in "qv"}, "a.qkv_proj", "linear", NEWEST, ("error", "", "KeyError")),
    ({f"a.{x}_proj.weight": "FLOAT" for x in "qk"}, "a.qkv_proj", "linear", NEWEST, ("plain", "", "")),
    ({f"a.{x}_proj.weight": "FLOAT" for x in "qk"}, "a.qkv_proj", "linear", "0.23.0", ("error", "", "KeyError")),
    ({"a.q_proj.weight": "FLOAT", "a.k_proj.weight": "W8A8", "a.v_proj.weight": "W8A8"}, "a.qkv_proj", "linear", NEWEST,
     ("error", "", "ValueError")),
    # :630: a head under the wrapper's name; 0.23 alone leaves a head that is not described
    ({"language_model.lm_head.weight": "FLOAT"}, "lm_head", "lm_head", NEWEST, ("plain", "", "")),
    ({"language_model.lm_head.weight": "FLOAT"}, "lm_head", "lm_head", "0.20.2rc1", ("error", "", "KeyError")),
    ({}, "lm_head", "lm_head", "0.22.1rc1", ("error", "", "KeyError")),
    ({}, "lm_head", "lm_head", "0.23.0", ("plain", "", "")),
    ({}, "lm_head", "lm_head", "0.24.0rc1", ("error", "", "KeyError")),
    # :920: shared_head is left out of names
    ({"a.shared_head.head.weight": "FLOAT"}, "a.head", "lm_head", NEWEST, ("plain", "", "")),
]  # fmt: skip


@pytest.mark.parametrize(("config", "runtime", "layer", "release", "expected"), ASKED)
def test_what_it_looks_up(config: Any, runtime: str, layer: Any, release: str, expected: tuple[str, str, str]) -> None:
    found = answer(config, runtime, layer, release)
    assert (found.decision, found.scheme, found.error) == expected


def test_experts_are_told_by_the_first_one_where_the_model_type_is_named() -> None:
    first = {f"m.experts.0.{name}_proj.weight": "W8A8_DYNAMIC" for name in ("gate", "up", "down")}
    assert answer(first, "m.experts", "moe", kind="deepseek_v3").scheme == "modelslim-w8a8"
    assert answer(first, "m.experts", "moe", kind="llama").error == "KeyError"


def test_its_releases_and_changes_ascend() -> None:
    points = vllm_ascend.ENGINE.change_points("ascend")
    assert list(points) == sorted(points, key=key)
    assert set(points) <= set(vllm_ascend.ENGINE.releases)
    assert list(vllm_ascend.ENGINE.releases) == sorted(vllm_ascend.ENGINE.releases, key=key)


@pytest.mark.parametrize(("kind", "layer"), [("W4A4_MXFP4_FLATQUANT", "linear"), ("W4A16_MXFP4", "moe")])
def test_a_type_begins_at_a_change(kind: str, layer: Any) -> None:
    """Releases between two changes are judged as one: each answer is that of the change before it."""
    points = vllm_ascend.ENGINE.change_points("ascend")
    config = {f"m.experts.0.{name}_proj.weight": kind for name in ("gate", "up", "down")} | {"a.weight": kind}
    asked = "a" if layer == "linear" else "m.experts"
    for release in vllm_ascend.ENGINE.releases:
        last = max((point for point in points if key(point) <= key(release)), key=key)
        found, first = (answer(config, asked, layer, at, kind="deepseek_v3") for at in (release, last))
        assert (found.decision, found.error) == (first.decision, first.error)


def test_a_config_that_names_another_method_is_not_guessed_at() -> None:
    assert vllm_ascend.ENGINE.method({}, NEWEST).name == "ascend"
    assert vllm_ascend.ENGINE.method({"quant_method": "compressed-tensors"}, NEWEST).name == "compressed-tensors"
    query = MatchQuery(NEWEST, "compressed-tensors", {})
    assert vllm_ascend.ENGINE.matcher(query).decide("a.b", "linear").decision == "unknown"


def test_it_builds_the_classes_of_the_vllm_that_it_needs() -> None:
    """Qwen3-Next's drafter lost its wrong packed mapping in vLLM 0.25.0, so in vLLM-Ascend 0.25.1rc1."""
    views = [view for view in with_plugin(load("qwen3_next")).views if view.engine == "vllm-ascend"]
    spans = [(view.span.since, view.span.until) for view in views if view.part == "draft"]
    assert spans == [("", "0.24.0rc1"), ("0.25.1rc1", "")]
    assert with_plugin(load("llama")) is load("llama")


# --- whole checkpoints ------------------------------------------------------------------------------------------------


def slim(rows: int, columns: int) -> Any:
    return {
        "weight": ("I8", (rows, columns)),
        "weight_scale": ("BF16", (rows, 1)),
        "weight_offset": ("BF16", (rows, 1)),
    }


def forged(folder: Path, made: Model, described: set[str] | None = None) -> Path:
    """A W8A8 checkpoint with a draft in BF16. `described`: what the description names; None: the target."""
    folder.mkdir()
    named = {*made.listless, *made.kept, *made.body} if described is None else described
    kinds = {
        f"{name}.weight": "W8A8_DYNAMIC" if name in made.body else "FLOAT" for name in made.shapes if name in named
    }
    (folder / "config.json").write_bytes(dumped(made.config))
    (folder / DESCRIPTION).write_bytes(dumped({"model_quant_type": "W8A8_DYNAMIC", **kinds}))
    _, raw, size = header("m", tensors_of(made, "bf16", {name: slim(*made.shapes[name]) for name in made.body}))
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size - 8 - len(raw)))
    return folder


@pytest.mark.parametrize("made", [deepseek_v3(), glm4_moe(), qwen3_5()], ids=["deepseek", "glm", "qwen"])
def test_a_draft_that_the_description_leaves_out_is_put_in(tmp_path: Path, made: Model) -> None:
    """modelslim_config.py: "Please manually add it and set the value to FLOAT"."""
    folder = forged(tmp_path / "a", made)
    report = mtpfix.check(folder)
    assert (report.format, report.status) == ("modelslim", "fixable")
    assert {(row.verdict, row.part) for row in report.engines if row.engine == "vllm-ascend"} == {
        ("loads", "target"), ("fails", "draft")
    }  # fmt: skip
    mine = {one.rule for one in report.findings if any(text.startswith("vllm-ascend") for text in one.engines)}
    assert mine == {"MTP001"}
    assert mtpfix.apply(mtpfix.plan(report)) == (DESCRIPTION,)
    after = mtpfix.check(folder)
    assert after.status == "clean"
    assert {row.verdict for row in after.engines if row.engine == "vllm-ascend"} == {"loads"}
    assert not after.plan.edits
    stored = {unit.name: unit.scheme.kind for unit in stored_modules(read_local(str(folder)))}
    said = json.loads((folder / DESCRIPTION).read_text("utf-8"))
    assert all(stored[key.removesuffix(".weight")] == "plain" for key, kind in said.items() if kind == "FLOAT")


def test_a_description_of_everything_is_clean(tmp_path: Path) -> None:
    made = deepseek_v3()
    assert mtpfix.check(forged(tmp_path / "a", made, set(made.shapes))).status == "clean"


def test_other_formats_and_families_hear_nothing_of_it(tmp_path: Path) -> None:
    from checkpoints import build

    assert "vllm-ascend" not in {row.engine for row in analyse(build(deepseek_v3(), "fp8-block")).engines}
    asked = analyse(build(deepseek_v3(), "fp8-block"), engines=["vllm-ascend"])
    assert {row.verdict for row in asked.engines} == {"unknown"}
    rows = mtpfix.check(forged(tmp_path / "a", llama())).engines
    assert {(row.verdict, row.reason) for row in rows if row.engine == "vllm-ascend"} == {
        ("unknown", "no facts about Llama in vllm-ascend")
    }
    assert {release for row in rows if row.engine == "vllm-ascend" for release in row.releases} == set(
        modelled("vllm-ascend")
    )


def test_w4a8_experts_are_no_fault(tmp_path: Path) -> None:
    """sglang 0.5.23 modelslim.py:345 has a class for W4A8_DYNAMIC; how its tensors look is not known here."""
    made = deepseek_v3()
    folder = forged(tmp_path / "a", made, set(made.shapes))
    said = json.loads((folder / DESCRIPTION).read_text("utf-8"))
    experts = {key: "W4A8_DYNAMIC" for key, kind in said.items() if ".experts." in key and kind != "FLOAT"}
    (folder / DESCRIPTION).write_bytes(dumped({**said, **experts}))
    report = mtpfix.check(folder)
    newest = {row.engine: row.verdict for row in report.engines if row.latest and row.part == "target"}
    assert (report.status, newest["sglang"], newest["vllm-ascend"]) == ("clean", "loads", "loads")
