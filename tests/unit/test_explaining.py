"""The names that a user may ask `explain` about: the checkpoint's, an engine's, mistyped ones.

What vLLM and SGLang look these modules up by is in their sources: vLLM's fused experts are `model.layers.N.mlp.experts`
and hold `w13_weight`; SGLang's Qwen3-Next draft is built under `model`, its projection as `fc`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from checkpoints import build, glm4_moe, qwen3_next, right_list
from hypothesis import given
from hypothesis import strategies as st

from mtpfix import api
from mtpfix.errors import UsageError
from mtpfix.explaining import explain
from mtpfix.model import Checkpoint, DecisionRows, Explanation
from mtpfix.names import nearest
from mtpfix.output import json_v1, listing
from mtpfix.output.base import Page

GLM, NEXT = glm4_moe(), qwen3_next()
EXPERTS = tuple(
    f"mtp.layers.0.mlp.experts.{expert}.{leaf}_proj" for leaf in ("down", "gate", "up") for expert in (0, 1)
)
NEW = "vllm==0.33.0", "sglang==0.5.23"


def next_one() -> Checkpoint:
    return build(NEXT, "nvfp4", ["lm_head", "mtp.layers.0*"], sidecar=["lm_head", "mtp.layers.0*"])


def asked(*names: str, checkpoint: Checkpoint | None = None) -> Explanation:
    return explain(checkpoint or next_one(), names, engines=NEW)


def modules(found: Explanation) -> set[str]:
    return {row.module for row in found.rows}


def test_a_pattern_means_modules() -> None:
    listed = right_list(GLM, "nvfp4")
    found = explain(
        build(GLM, "nvfp4", listed, sidecar=listed), ["model.layers.2.mlp.experts.1.*"], engines=["vllm==0.33.0"]
    )
    assert modules(found) == {f"model.layers.2.mlp.experts.1.{leaf}_proj" for leaf in ("gate", "up", "down")}
    assert {(row.runtime_name, row.decision, row.entry) for row in found.rows} == {
        ("model.layers.2.mlp.experts", "plain", "model.layers.2.*")
    }
    assert [reading.kind for reading in found.readings] == ["module"]


@pytest.mark.parametrize(
    ("name", "kind", "meant"),
    [
        ("mtp.fc", "module", {"mtp.fc"}),
        ("mtp.fc.weight", "tensor", {"mtp.fc"}),
        ("mtp.layers.0.mlp.experts.1.up_proj.weight", "tensor", {"mtp.layers.0.mlp.experts.1.up_proj"}),
        ("mtp.layers.0.mlp.experts.*.*.weight", "tensor", set(EXPERTS)),
        ("fc", "runtime-name", {"mtp.fc"}),
        ("fc.weight", "parameter", {"mtp.fc"}),
        ("mtp.fc.weight_scale_2", "parameter", {"mtp.fc"}),
        ("mtp.layers.0.mlp.experts", "runtime-name", set(EXPERTS)),
        ("mtp.layers.0.mlp.experts.w13_weight", "parameter", set(EXPERTS)),
        ("mtp.layers.0.mlp.experts.1", "holder", {name for name in EXPERTS if ".1." in name}),
    ],
)
def test_a_name_is_understood(name: str, kind: str, meant: set[str]) -> None:
    found = asked(name)
    assert [reading.kind for reading in found.readings if reading.kind != "namesake"] == [kind]
    assert modules(found) == meant == set(found.readings[0].modules)


def test_a_name_of_two_parts_means_both() -> None:
    """SGLang builds this draft under the name of the target's first layer."""
    found = asked("model.layers.0.mlp.experts")
    assert {row.part for row in found.rows} == {"target", "draft"}
    assert found.readings[0].engines == ("vllm", "sglang")
    assert set(EXPERTS) < modules(found)


def test_a_name_of_its_own_is_that_and_the_namesake_is_told() -> None:
    found = asked("model.layers.0.mlp.gate")
    assert modules(found) == {"model.layers.0.mlp.gate"}
    assert [(one.kind, one.modules, one.engines) for one in found.readings[1:]] == [
        ("namesake", ("mtp.layers.0.mlp.gate",), ("sglang",))
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mtp.fcc", "did you mean mtp.fc?"),
        ("MTP.FC", "did you mean mtp.fc?"),
        ("mtp.layers.0.mlp.expert.1.up_proj", "did you mean mtp.layers.0.mlp.experts.1.up_proj?"),
        ("model.layers.1.mlp.gates", "did you mean model.layers.1.mlp.gate?"),
        ("mlp.shared_expert.up_proj", "did you mean '**.mlp.shared_expert.up_proj'?"),
        ("nowhere.**", "mtpfix list shows the draft's tensors; '**' is every module"),
    ],
)
def test_a_near_miss_is_told_what_is_there(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="no module, tensor or runtime name") as caught:
        asked("lm_head", name)
    assert caught.value.hint == hint


NORMS = ["mtp.layers.0.input_layernorm", "mtp.layers.0.input_layernorm.weight", "mtp.layers.*.*norm.weight"]


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_there_but_nothing_decides_about_it(name: str) -> None:
    with pytest.raises(UsageError, match="nothing that an engine could quantize"):
        asked(name)


NAMES = st.text("abz.019", max_size=12)


@given(NAMES, st.lists(NAMES, max_size=8))
def test_the_nearest_is_one_of_the_known_and_a_known_name_is_its_own(name: str, known: list[str]) -> None:
    assert nearest(name, known) in {None, *known}
    if name and name in known:
        assert nearest(name, known) == name


def test_a_tensor_of_a_million_parts_is_looked_at_once(tmp_path: Path) -> None:
    place = tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*")
    tiny.write_safetensors(place / "more.safetensors", {"mtp." + "." * 1_000_000 + "weight": ("BF16", (2, 2))})
    before = time.process_time()
    assert api.explain(place, ["mtp.**"]).readings
    assert time.process_time() - before < 5


def test_what_is_told_at_once_reads_as_row_by_row() -> None:
    """Modules that are decided alike share their rows, a stack's holder has those of several units: no output shows."""
    stack = "mtp.layers.0.mlp.experts"
    rest = {name: shape for name, shape in NEXT.draft.items() if ".experts." not in name}
    stacked = replace(NEXT, draft={**rest, stack: (128, 129)})
    for checkpoint in (
        build(GLM, "nvfp4", ["lm_head"]),
        build(stacked, "nvfp4", ["mtp.fc"], stored={stack: "stacked"}),
    ):
        found = explain(checkpoint, ["**"])
        rows = tuple(found.rows)
        assert isinstance(found.rows, DecisionRows)
        assert len(rows) == len(found.rows)
        assert len({id(held) for _, held in found.rows.told}) < len(found.rows.told)
        assert found.rows[-1] == rows[-1]
        alone = replace(found, rows=rows)
        assert (found, hash(found), repr(found)) == (alone, hash(alone), repr(alone))
        assert json_v1.FORMAT.explain(found, Page()) == json_v1.line(json_v1.explanation(alone))
        assert json_v1.FORMAT.explain(alone, Page()) == json_v1.line(json_v1.explanation(alone))
        assert listing.explain_text(found, Page()) == listing.explain_text(alone, Page())
