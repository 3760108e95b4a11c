"""A graft from the Python API on small checkpoints: what is taken, what is refused, what comes out, and back."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoints import INDEX, deepseek_v3, gemma4_assistant, glm4_moe, glm5_next, on_disk, qwen3_5, qwen3_next
from safetensors import safe_open

import mtpfix
from mtpfix import api
from mtpfix.errors import ConflictError, RefusedError, UnreadableError, UsageError, WriteError
from mtpfix.grafting.plan import GraftPlan

NEXT = ("lm_head", "model.layers.0.linear_attn*", "*.mlp.gate", "*.mlp.shared_expert_gate")
GLM = ("lm_head", "model.layers.1.mlp.gate")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def data_of(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Every tensor of a folder as the library and the index see it."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX
    wanted = json.loads(index.read_bytes())["weight_map"] if index.exists() else None
    found: dict[str, tuple[str, list[int], bytes]] = {}
    for path in files:
        with safe_open(path, "numpy"):  # the library takes it
            pass
        rows = raw_tensors(path)
        found |= {name: value for name, value in rows if wanted is None or wanted.get(name) == path.name}
    if wanted is not None:
        assert found.keys() == wanted.keys()
    return found


def raw_tensors(path: Path) -> Iterator[tuple[str, tuple[str, list[int], bytes]]]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    for name, row in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = row["data_offsets"]
            yield name, (row["dtype"], row["shape"], raw[8 + length + start : 8 + length + end])


def by_layer(name: str) -> str:
    return "first.safetensors" if "layers.0" in name else "second.safetensors"


def graft(here: Path, base: Path, **more: Any) -> GraftPlan:
    """Grafts; everything that must hold after any graft is held against the two folders."""
    before, theirs, old = data_of(here), data_of(base), content(here)
    done = mtpfix.graft(here, base, **more)
    after = data_of(here)
    for row in done.origins:
        if not row.widening:
            assert after[row.row.name] == theirs[row.row.name]
    gone = {copy.tensor.name for copy in done.old}
    assert after.keys() == (before.keys() - gone) | {row.row.name for row in done.origins}
    assert all(after[name] == before[name] for name in before.keys() - gone)
    report = mtpfix.check(here)
    assert done.report is not None
    assert (report.status, report.findings) == (done.report.status, done.report.findings)
    assert not mtpfix.check(here).plan.edits
    if done.layout is not None:
        mtpfix.undo(here)
        assert content(here) == old
        mtpfix.graft(here, base, **more)
        assert data_of(here) == after
    again = mtpfix.graft(here, base, **more)
    assert again.layout is None
    return done


# What is missing.


@pytest.mark.parametrize(
    ("made", "ignore", "front"),
    [
        (qwen3_next(), NEXT, "mtp."),
        (qwen3_5(), [name.replace("model.", "model.language_model.") for name in NEXT], "mtp."),
        (glm4_moe(), GLM, "model.layers.2."),
        (deepseek_v3(), GLM, "model.layers.2."),
        (glm5_next(), ("lm_head", "*self_attn*", "*.mlp.gate"), "model.language_model.layers.2."),
    ],
    ids=["qwen3_next", "qwen3_5", "glm4_moe", "deepseek_v3", "glm5_next"],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_draft_that_is_missing(tmp_path: Path, made: Any, ignore: Any, front: str, shards: int) -> None:
    split = {"shard_of": by_layer} if shards == 2 else {}
    here = on_disk(tmp_path / "here", made.without_draft(), "nvfp4", ignore, sidecar=ignore, seed=1, **split)
    base = on_disk(tmp_path / "base", made, seed=2, shard_of=by_layer)
    if made.without_draft().config != made.config:
        pytest.fail("the config still declares the draft")
    found = graft(here, base)
    assert found.report is not None
    assert "error" not in {finding.severity for finding in found.report.findings}
    drafts = {name for name in data_of(base) if name.startswith(front)}
    assert {row.row.name for row in found.origins} == drafts
    assert {name for name, shard in json.loads((here / INDEX).read_bytes())["weight_map"].items()
            if shard == found.shard} == drafts  # fmt: skip
    assert "mtp.fc" not in (here / "config.json").read_text() or front == "mtp."


def test_a_draft_that_is_missing_in_part(tmp_path: Path) -> None:
    made = glm4_moe()
    lost = ["model.layers.2.eh_proj.weight", "model.layers.2.self_attn.q_proj.weight",
            "model.layers.2.mlp.experts.1.up_proj.weight"]  # fmt: skip
    here = on_disk(tmp_path / "here", made, "nvfp4", (*GLM, "model.layers.2*"), drop=lost, seed=1)
    base = on_disk(tmp_path / "base", made, seed=2)
    found = graft(here, base)
    assert sorted(row.row.name for row in found.origins) == sorted(lost)
    assert {choice.why for choice in found.chosen} == {"missing"}


def test_only_some_modules(tmp_path: Path) -> None:
    made = glm4_moe()
    lost = ["model.layers.2.eh_proj.weight", "model.layers.2.self_attn.q_proj.weight"]
    here = on_disk(tmp_path / "here", made, "nvfp4", (*GLM, "model.layers.2*"), drop=lost)
    base = on_disk(tmp_path / "base", made)
    found = mtpfix.graft(here, base, modules=["**.eh_proj"], dry_run=True)
    assert [row.row.name for row in found.origins] == lost[:1]
    with pytest.raises(UsageError, match="no module of the draft matches"):
        mtpfix.graft(here, base, modules=["nothing.**"])


def test_a_shard_that_the_index_names_and_that_is_missing(tmp_path: Path) -> None:
    made = glm4_moe()
    whole = on_disk(tmp_path / "whole", made)
    index = {name: "lost.safetensors" if ".layers.2." in name else "model.safetensors" for name in data_of(whole)}
    index["model.layers.2.old_name.weight"] = "lost.safetensors"
    ignore = (*GLM, "model.layers.2*")
    here = on_disk(tmp_path / "here", made.without_draft(), "nvfp4", ignore, index=index)
    weight_map = json.loads((here / INDEX).read_bytes())
    stored = {name for name, _ in raw_tensors(here / "model.safetensors")}
    weight_map["weight_map"] = {n: s for n, s in index.items() if n in stored or s == "lost.safetensors"}
    weight_map["weight_map"] |= dict.fromkeys(stored, "model.safetensors")
    (here / INDEX).write_text(json.dumps(weight_map))
    old = content(here)
    done = mtpfix.graft(here, whole)
    assert done.report is not None
    assert done.report.status == "clean"
    found = json.loads((here / INDEX).read_bytes())
    assert set(found["weight_map"].values()) == {"model.safetensors", "model_mtp.safetensors"}
    assert found["weight_map"].keys() == data_of(here).keys()
    mtpfix.undo(here)
    assert content(here) == old


def test_more_layers_are_declared_than_stored(tmp_path: Path) -> None:
    two = deepseek_v3(drafts=2)
    lost = [name for name in two.shapes if ".layers.3." in name]
    drop = [f"{name}.weight" for name in lost]
    drop += [f"model.layers.3.{norm}.weight" for norm in ("input_layernorm", "post_attention_layernorm")]
    here = on_disk(tmp_path / "here", two, "nvfp4", (*GLM, "model.layers.2*", "model.layers.3*"), drop=drop)
    found = graft(here, on_disk(tmp_path / "base", two))
    assert sorted(row.row.name for row in found.origins) == sorted(drop)


def test_no_more_layers_than_are_declared(tmp_path: Path) -> None:
    one = deepseek_v3(drafts=1)
    here = on_disk(tmp_path / "here", one.without_draft(), "nvfp4", GLM)
    found = mtpfix.graft(here, on_disk(tmp_path / "base", deepseek_v3(drafts=2)), dry_run=True)
    assert {row.row.name.split(".")[2] for row in found.origins} == {"2"}


def test_a_draft_that_was_given_up(tmp_path: Path) -> None:
    made = glm4_moe()
    here = on_disk(tmp_path / "here", made.without_draft(), "nvfp4", GLM, changes={"num_nextn_predict_layers": 0})
    base = on_disk(tmp_path / "base", made)
    found = mtpfix.graft(here, base)
    assert found.layout is None
    assert "declares no draft" in found.reason
    found = graft(here, base, modules=["**"])
    assert found.report is not None
    assert found.report.status == "clean"
    assert json.loads((here / "config.json").read_bytes())["num_nextn_predict_layers"] == 1


# What is stored wrongly.


def packed(tmp_path: Path, **more: Any) -> tuple[Path, Path]:
    made = qwen3_5()
    ignore = [name.replace("model.", "model.language_model.") for name in NEXT]
    stored = {"mtp.fc": "nvfp4", **dict.fromkeys(made.draft, "nvfp4")}
    here = on_disk(tmp_path / "here", made, "nvfp4", ignore, sidecar=ignore, stored=stored, seed=1, **more)
    return here, on_disk(tmp_path / "base", made, seed=2)


def test_a_packed_projection_beside_what_is_needed(tmp_path: Path) -> None:
    here, base = packed(tmp_path)
    old = content(here)
    with pytest.raises(RefusedError, match=r"4 old tensors, e\.g\. mtp\.fc\.weight") as caught:
        mtpfix.graft(here, base)
    assert "--rewrite" in caught.value.hint
    assert content(here) == old
    found = graft(here, base, rewrite=True)
    assert [choice.name for choice in found.chosen] == ["mtp.fc"]
    assert list(found.rewrites) == ["model.safetensors"]
    assert found.report is not None
    assert found.report.status == "clean"


def test_what_is_refused_is_shown_all_the_same(tmp_path: Path) -> None:
    """A dry run has the whole plan, and why it is not written: what each engine would do with the old copies."""
    here, base = packed(tmp_path)
    found = mtpfix.graft(here, base, dry_run=True)
    assert [row.row.name for row in found.origins] == ["mtp.fc.weight"]
    assert len(found.old) == 4
    assert all(copy.read for copy in found.old)
    assert found.refusal is not None
    assert found.refusal.subject == "model.safetensors"
    said = found.refusal.message
    assert "4 old tensors, e.g. mtp.fc.weight (U8 [" in said
    assert all(engine in said for engine in ("vLLM", "SGLang", "TensorRT-LLM", "transformers"))
    assert found.refusal.hint == "add --rewrite: it writes model.safetensors again without them"
    assert mtpfix.graft(here, base, dry_run=True, rewrite=True).refusal is None


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_packed_projection_in_a_file_of_its_own(tmp_path: Path, sidecar: bool) -> None:
    """The index names the file no longer, so that vLLM and SGLang do not open it: nothing is written again.

    TensorRT-LLM reads every file of the folder, and serves ModelOpt's checkpoints: there it is an error still.
    """
    shards = {"shard_of": lambda name: "fc.safetensors" if "mtp.fc" in name else "rest.safetensors"}
    if sidecar:
        here, base = packed(tmp_path, **shards)
    else:
        made = qwen3_5()
        stored = {"mtp.fc": "fp8-block", **dict.fromkeys(made.draft, "fp8-block")}
        lists = [name.replace("model.", "model.language_model.") for name in NEXT]
        here = on_disk(tmp_path / "here", made, "fp8-block", lists, stored=stored, seed=1, **shards)
        base = on_disk(tmp_path / "base", made, seed=2)
    old = content(here)
    found = mtpfix.graft(here, base)
    assert found.refusal is None
    assert not found.removed
    assert not any(copy.read for copy in found.old)
    assert any("fc.safetensors: no longer named by the index" in note for note in found.notes)
    assert (here / "fc.safetensors").read_bytes() == old["fc.safetensors"]
    assert set(json.loads((here / INDEX).read_bytes())["weight_map"].values()) == {"rest.safetensors", found.shard}
    assert found.report is not None
    assert found.report.status == ("not-fixable" if sidecar else "clean")
    told = [(row.rule, row.severity) for row in found.report.findings if row.rule == "MTP011"]
    assert told == [("MTP011", "error" if sidecar else "warning")]
    mtpfix.undo(here)
    assert content(here) == old
    found = graft(here, base, rewrite=True)
    assert found.removed == ("fc.safetensors",)
    assert not found.rewrites


def test_a_separate_draft(tmp_path: Path) -> None:
    made = gemma4_assistant()
    stored = {"pre_projection": "nvfp4", "post_projection": "nvfp4"}
    stored |= dict.fromkeys(made.draft, "nvfp4")
    here = on_disk(tmp_path / "here", made, "nvfp4", ("model.embed_tokens",), stored=stored, seed=1)
    found = graft(here, on_disk(tmp_path / "base", made, seed=2), rewrite=True)
    assert [choice.name for choice in found.chosen] == ["post_projection", "pre_projection"]


def test_leaked_quantizer_state(tmp_path: Path) -> None:
    made = glm4_moe()
    name = "model.layers.2.self_attn.o_proj"
    leak = {f"{name}.weight_quantizer._double_scale": ("F32", ()), f"{name}.weight_quantizer._amax": ("F32", (1,))}
    stored = dict.fromkeys(made.draft, "nvfp4")
    ignore = (*GLM, "model.layers.2.eh_proj", "model.layers.2.mlp.gate", "*shared_head*", "*.head")
    here = on_disk(tmp_path / "here", made, "nvfp4", ignore, stored=stored, extra=leak, seed=1)
    found = graft(here, on_disk(tmp_path / "base", made, seed=2), rewrite=True)
    assert [choice.name for choice in found.chosen] == [name]
    assert {copy.tensor.name for copy in found.old} >= set(leak)
    assert not set(leak) & data_of(here).keys()


def test_leaked_state_of_a_stack_that_the_base_has_one_by_one(tmp_path: Path) -> None:
    made = glm4_moe()
    name = "model.layers.2.mlp.experts"
    leak = {f"{name}.w13_weight_quantizer._double_scale": ("F32", ())}
    stored = dict.fromkeys(made.draft, "nvfp4")
    ignore = (*GLM, "model.layers.2.eh_proj", "model.layers.2.mlp.gate", "*shared_head*", "*.head")
    here = on_disk(tmp_path / "here", made, "nvfp4", ignore, stored=stored, extra=leak, seed=1)
    found = graft(here, on_disk(tmp_path / "base", made, seed=2), rewrite=True)
    assert {choice.name.rpartition(".")[0] for choice in found.chosen} == {f"{name}.0", f"{name}.1"}
    modules = [f"{name}.{expert}.{leaf}_proj" for expert in (0, 1) for leaf in ("gate", "up", "down")]
    suffixes = ("weight", "weight_scale", "weight_scale_2", "input_scale")
    wanted = {f"{module}.{suffix}" for module in modules for suffix in suffixes} | leak.keys()
    assert {copy.tensor.name for copy in found.old} == wanted


def test_sglang_reads_mtp_safetensors_unasked(tmp_path: Path) -> None:
    made = glm4_moe()
    stored = {"model.layers.2.eh_proj": "nvfp4"}
    shards = {"shard_of": lambda name: "mtp.safetensors" if "eh_proj" in name else "rest.safetensors"}
    here = on_disk(tmp_path / "here", made, "nvfp4", (*GLM, "model.layers.2*"), stored=stored, **shards)
    base = on_disk(tmp_path / "base", made)
    with pytest.raises(RefusedError, match="SGLang loads this file last for this model"):
        mtpfix.graft(here, base)
    assert graft(here, base, rewrite=True).removed == ("mtp.safetensors",)


def test_a_draft_that_is_quantized_on_purpose_stays(tmp_path: Path) -> None:
    made = glm4_moe()
    stored = dict.fromkeys(made.draft, "nvfp4")
    ignore = (*GLM, "model.layers.2.eh_proj", "model.layers.2.mlp.gate", "*shared_head*", "*.head")
    here = on_disk(tmp_path / "here", made, "nvfp4", ignore, stored=stored)
    found = mtpfix.graft(here, on_disk(tmp_path / "base", made))
    assert found.layout is None
    assert "lacks no tensor" in found.reason


# What does not fit.


@pytest.mark.parametrize(
    ("here", "base", "said"),
    [
        (glm4_moe(), glm4_moe(layers=3), "number of layers (num_hidden_layers): 2 here, 3 there"),
        (glm4_moe(experts=2), glm4_moe(experts=4), "number of experts (n_routed_experts): 2 here, 4 there"),
        (glm4_moe(), deepseek_v3(), "architecture: GLM-4.5 / 4.6 / 4.7 (MoE) here, DeepSeek"),
    ],
)
def test_another_base(tmp_path: Path, here: Any, base: Any, said: str) -> None:
    place = on_disk(tmp_path / "here", here.without_draft(), "nvfp4", GLM)
    old = content(place)
    with pytest.raises(RefusedError) as caught:
        mtpfix.graft(place, on_disk(tmp_path / "base", base))
    assert said in str(caught.value)
    assert content(place) == old


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 64}, "hidden size (hidden_size): 128 here, 64 there"),
        ({"vocab_size": 1000}, "vocabulary (vocab_size): 2000 here, 1000 there"),
        ({"moe_intermediate_size": 64}, "width of an expert (moe_intermediate_size): 32 here, 64 there"),
    ],
)
def test_another_number_in_the_config(tmp_path: Path, changes: dict[str, int], said: str) -> None:
    mine = {"vocab_size": 2000, "moe_intermediate_size": 32}
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM, changes=mine)
    base = on_disk(tmp_path / "base", glm4_moe(), changes=mine | changes)
    with pytest.raises(RefusedError) as caught:
        mtpfix.graft(here, base)
    assert said in str(caught.value)


def test_weights_that_the_config_does_not_tell_of(tmp_path: Path) -> None:
    """A pruned vocabulary, pruned experts, of which config.json says nothing."""
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    base = on_disk(tmp_path / "base", glm4_moe(), stored={"model.embed_tokens": {"weight": ("BF16", (256, 128))}})
    with pytest.raises(RefusedError, match=r"shape of model.embed_tokens.*\[128, 128\] here, \[256, 128\] there"):
        mtpfix.graft(here, base)
    more = on_disk(tmp_path / "more", glm4_moe(experts=3), changes={"n_routed_experts": 2})
    with pytest.raises(RefusedError, match="2 are stored here, 3 there"):
        mtpfix.graft(here, more)


def test_a_draft_that_does_not_fit_its_own_config(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    norm = {"model.layers.2.input_layernorm.weight": ("BF16", (64,))}
    with pytest.raises(RefusedError, match=r"input_layernorm: \[128\] in the layers here, \[64\] there"):
        mtpfix.graft(here, on_disk(tmp_path / "base", glm4_moe(), extra=norm))
    lost = [f"model.layers.2.mlp.experts.1.{name}_proj.weight" for name in ("gate", "up", "down")]
    with pytest.raises(RefusedError, match="2 in the layers here, 1 there"):
        mtpfix.graft(here, on_disk(tmp_path / "pruned", glm4_moe(), drop=lost))


def test_a_family_that_is_not_known(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    base = on_disk(tmp_path / "base", glm4_moe(), changes={"model_type": "new", "architectures": ["New"]})
    with pytest.raises(RefusedError, match=r"family of .*base is not known"):
        mtpfix.graft(here, base)


def stripped(made: Any) -> Any:
    """The model without the wrapper in its names."""
    parts = {
        part: {name.replace("language_model.", ""): shape for name, shape in getattr(made, part).items()}
        for part in ("body", "kept", "draft", "bare", "listless")
    }
    return dataclasses.replace(made, **parts)


def test_names_of_another_convention(tmp_path: Path) -> None:
    """Draft layers in a wrapper do not belong into a text model; under a name of their own they do."""
    here = on_disk(tmp_path / "here", stripped(glm5_next()).without_draft(), "nvfp4", ("lm_head", "*self_attn*"))
    with pytest.raises(RefusedError, match=r"model\.layers here, model\.language_model\.layers there"):
        mtpfix.graft(here, on_disk(tmp_path / "base", glm5_next()))
    text = on_disk(tmp_path / "text", qwen3_5(text=True).without_draft(), "nvfp4", NEXT)
    assert graft(text, on_disk(tmp_path / "whole", qwen3_5())).layout is not None


def test_consolidated_files(tmp_path: Path) -> None:
    shard = {"shard_of": lambda _: "consolidated.safetensors"}
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM, **shard)
    with pytest.raises(RefusedError, match=r"consolidated\*\.safetensors"):
        mtpfix.graft(here, on_disk(tmp_path / "base", glm4_moe()))


def test_a_base_without_a_draft(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    base = on_disk(tmp_path / "base", glm4_moe().without_draft())
    found = mtpfix.graft(here, base)
    assert found.layout is None
    assert "holds no draft either" in found.reason


def test_what_no_engine_could_load(tmp_path: Path) -> None:
    """MXFP4 has no list: a draft in BF16 cannot be told to the engines."""
    made = qwen3_next()
    quant = {"quant_method": "mxfp4"}
    here = on_disk(
        tmp_path / "here", made.without_draft(), changes={"quantization_config": quant},
        stored=dict.fromkeys(made.body, "mxfp4"),
    )  # fmt: skip
    old = content(here)
    with pytest.raises(RefusedError, match="no engine could load"):
        mtpfix.graft(here, on_disk(tmp_path / "base", made))
    assert content(here) == old


# FP8.


def fp8_base(tmp_path: Path) -> Path:
    made = deepseek_v3()
    stored = dict.fromkeys(made.draft, "fp8-block")
    return on_disk(tmp_path / "base", made, "fp8-block", (), stored=stored, seed=2)


def test_fp8_stays_fp8_where_that_loads(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", deepseek_v3().without_draft(), "fp8-block", (), seed=1)
    found = graft(here, fp8_base(tmp_path))
    assert any("fp8-block in the base: grafted as the base stores them" in note for note in found.notes)
    assert data_of(here)["model.layers.2.mlp.experts.0.up_proj.weight"][0] == "F8_E4M3"


def test_fp8_in_blocks_of_another_size(tmp_path: Path) -> None:
    here = on_disk(
        tmp_path / "here", deepseek_v3().without_draft(), "fp8-block", (), quant={"weight_block_size": [64, 64]}
    )
    with pytest.raises(RefusedError, match="blocks of another size") as caught:
        mtpfix.graft(here, fp8_base(tmp_path))
    assert "--dequantize" in caught.value.hint


def test_fp8_is_never_dequantized_silently(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", deepseek_v3().without_draft(), "nvfp4", GLM, seed=1)
    base = fp8_base(tmp_path)
    old = content(here)
    with pytest.raises(RefusedError, match="stores its draft as fp8-block") as caught:
        mtpfix.graft(here, base)
    assert "--dequantize" in caught.value.hint
    assert content(here) == old
    found = graft(here, base, dequantize=True)
    assert found.report is not None
    assert found.report.status == "clean"
    assert any("dequantized to BF16" in note for note in found.notes)
    assert not [name for name in data_of(here) if name.startswith("model.layers.2.") and "scale" in name]


def test_what_is_no_fp8_is_not_dequantized(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    made = glm4_moe()
    base = on_disk(tmp_path / "base", made, "nvfp4", GLM, stored=dict.fromkeys(made.draft, "nvfp4"))
    with pytest.raises(RefusedError, match="as nvfp4, which cannot be dequantized"):
        mtpfix.graft(here, base, dequantize=True)


def test_fp8_becomes_the_numbers_of_the_reference(tmp_path: Path) -> None:
    import ml_dtypes
    import numpy as np

    here = on_disk(tmp_path / "here", deepseek_v3().without_draft(), "nvfp4", GLM, seed=1)
    base = fp8_base(tmp_path)
    mtpfix.graft(here, base, dequantize=True)
    theirs, mine = data_of(base), data_of(here)
    count = 0
    for name, (dtype, shape, data) in mine.items():
        if name.startswith("model.layers.2.") and theirs[name][0] == "F8_E4M3":
            count += 1
            scale = np.frombuffer(theirs[f"{name}_scale_inv"][2], np.float32).reshape(theirs[f"{name}_scale_inv"][1])
            wide = np.repeat(np.repeat(scale, 128, 0), 128, 1)[: shape[0], : shape[1]]
            weight = np.frombuffer(theirs[name][2], ml_dtypes.float8_e4m3fn).reshape(shape).astype(np.float32)
            with np.errstate(all="ignore"):
                wanted = (weight * wide).astype(ml_dtypes.bfloat16)
            found = np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape)
            assert dtype == "BF16"
            assert np.array_equal(found.astype(np.float32), wanted.astype(np.float32), equal_nan=True)
    assert count > 5


@pytest.mark.parametrize("grid", [{"gate_up": (2, 2, 1), "down": (2, 1, 1)}, {"gate_up": (2,), "down": (2, 1, 1)}])
def test_stacks_of_fp8_experts_become_the_numbers_of_the_reference(tmp_path: Path, grid: dict[str, Any]) -> None:
    """As Qwen3.5 has its experts: two tensors for all of them, with a scale a block, or one an expert."""
    import ml_dtypes
    import numpy as np

    made, owner = qwen3_5(), "mtp.layers.0.mlp.experts"
    ignore = [name.replace("model.", "model.language_model.") for name in NEXT]
    here = on_disk(tmp_path / "here", made.without_draft(), "nvfp4", ignore, sidecar=ignore, seed=1)
    single = [f"{name}.{end}" for name in made.draft if ".experts." in name for end in ("weight", "weight_scale_inv")]
    stacks: dict[str, Any] = {
        f"{owner}.gate_up_proj": ("F8_E4M3", (2, 256, 128)),
        f"{owner}.gate_up_proj_scale_inv": ("F32", grid["gate_up"]),
        f"{owner}.down_proj": ("F8_E4M3", (2, 128, 128)),
        f"{owner}.down_proj_scale_inv": ("F32", grid["down"]),
    }
    stored = dict.fromkeys(made.draft, "fp8-block")
    base = on_disk(tmp_path / "base", made, "fp8-block", (), stored=stored, drop=single, extra=stacks, seed=2)
    found = graft(here, base, dequantize=True)
    assert found.report is not None
    assert found.report.status == "clean"
    theirs, mine = data_of(base), data_of(here)
    assert not [name for name in mine if name.startswith("mtp.") and "scale" in name]
    for name, blocks in (("gate_up_proj", (2, 2, 1)), ("down_proj", (2, 1, 1))):
        _, shape, raw = theirs[f"{owner}.{name}"]
        scale = np.frombuffer(theirs[f"{owner}.{name}_scale_inv"][2], np.float32)
        wide = scale.reshape(blocks) if scale.size == blocks[0] * blocks[1] else scale.reshape(-1, 1, 1)
        wide = np.repeat(wide, shape[1] // wide.shape[1], 1)
        with np.errstate(all="ignore"):
            weight = np.frombuffer(raw, ml_dtypes.float8_e4m3fn).reshape(shape).astype(np.float32)
            wanted = (weight * wide).astype(ml_dtypes.bfloat16)
        dtype, _, data = mine[f"{owner}.{name}"]
        assert dtype == "BF16"
        values = np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape)
        assert np.array_equal(values.astype(np.float32), wanted.astype(np.float32), equal_nan=True)


def test_an_engine_that_no_plan_has_to_satisfy_is_not_harmed(tmp_path: Path) -> None:
    """transformers leaves the head alone as long as a config has no list: the list that is made names it, too."""
    made = deepseek_v3()
    here = on_disk(tmp_path / "here", made.without_draft(), "fp8-block", None, seed=1)
    found = graft(here, on_disk(tmp_path / "base", made, seed=2))
    assert found.report is not None
    rows = {(row.engine, row.part): row.verdict for row in found.report.engines if row.latest}
    assert rows["transformers", "target"] == "loads"
    assert rows["vllm", "draft"] == "loads"
    quant = json.loads((here / "config.json").read_bytes())["quantization_config"]
    assert "lm_head" in quant["modules_to_not_convert"]


def test_an_old_copy_of_the_same_shape(tmp_path: Path) -> None:
    """A scale is lost, and the base has weight and scale in FP8: the old weight is loaded first and written over."""
    made = deepseek_v3()
    stored = dict.fromkeys(made.draft, "fp8-block")
    name = "model.layers.2.self_attn.o_proj"
    lost = [f"{name}.weight_scale_inv"]
    here = on_disk(tmp_path / "here", made, "fp8-block", (), stored=stored, drop=lost, seed=1)
    base = on_disk(tmp_path / "base", made, "fp8-block", (), stored=stored, seed=2)
    old = content(here)
    found = mtpfix.graft(here, base)
    assert [row.row.name for row in found.origins] == [f"{name}.weight_scale_inv", f"{name}.weight"]
    assert [(copy.tensor.name, copy.read) for copy in found.old] == [(f"{name}.weight", True)]
    assert any(
        "1 old copy of the same shape" in note and "vLLM since 0.16.0 and SGLang since 0.5.13" in note
        for note in found.notes
    )
    assert found.report is not None
    assert found.report.status == "clean"
    assert {finding.rule for finding in found.report.findings if finding.severity == "warning"} == {"MTP011"}
    mtpfix.undo(here)
    assert content(here) == old
    found = graft(here, base, rewrite=True)
    assert found.report is not None
    assert found.report.status == "clean"


# Around it.


def test_wrong_use(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    with pytest.raises(UsageError, match="the checkpoint itself"):
        mtpfix.graft(here, tmp_path / "here" / ".." / "here")
    with pytest.raises(UsageError, match="only a directory"):
        mtpfix.graft("org/name", here)
    with pytest.raises(UnreadableError, match="no such folder"):
        mtpfix.graft(here, tmp_path / "nowhere")
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(api.snapshot(here))
    with pytest.raises(UsageError, match="no weights"):
        mtpfix.graft(here, bundle)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM)
    old = content(here)
    found = mtpfix.graft(here, on_disk(tmp_path / "base", glm4_moe()), dry_run=True)
    assert found.layout is not None
    assert found.repair.edits
    assert content(here) == old
    assert not (tmp_path / "state").exists()


def ready(tmp_path: Path) -> tuple[Path, Path]:
    here = on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)
    return here, on_disk(tmp_path / "base", glm4_moe(), seed=2)


@pytest.mark.parametrize("what", ["header", "data", "shorter"])
def test_a_base_that_changes(tmp_path: Path, what: str) -> None:
    here, base = ready(tmp_path)
    old, path = content(here), base / "model.safetensors"
    told: list[int] = []

    def meddle(count: int) -> None:
        told.append(count)
        if what == "data" and len(told) == 3:
            with path.open("r+b") as file:
                file.seek(-1, 2)
                file.write(b"x")
        if what == "shorter" and len(told) == 3:
            os.truncate(path, 100_000)

    with api.grafting(here, base) as graft:
        if what == "header":
            raw = path.read_bytes()
            path.write_bytes(raw[:9] + b"x" + raw[10:])
        with pytest.raises(ConflictError, match=r"changed while it was read|became shorter"):
            graft.write(meddle)
    assert content(here) == old


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_checkpoint_that_changes(tmp_path: Path, name: str) -> None:
    here, base = packed(tmp_path)
    with api.grafting(here, base, rewrite=True) as graft:
        raw = (here / name).read_bytes()
        (here / name).write_bytes(raw[:8] + b" " + raw[9:] if name != "config.json" else raw + b"\n")
        old = content(here)
        with pytest.raises(ConflictError, match="changed"):
            graft.write()
    assert content(here) == old


def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, base = ready(tmp_path)
    old, real = content(here), os.statvfs

    def small(path: Any) -> Any:
        found = list(real(path))
        found[4] = 10  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(WriteError, match="bytes are needed and") as caught:
        mtpfix.graft(here, base)
    assert "Free some space" in caught.value.hint
    assert content(here) == old


def test_bytes_that_come_back_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that loses a bit: what is read back is compared with what was written."""
    here, base = ready(tmp_path)
    old, real = content(here), os.pwrite

    def lossy(descriptor: int, data: Any, at: int) -> int:
        return real(descriptor, bytes([data[0] ^ 1]) + bytes(data[1:]) if at > 50_000 else data, at)

    monkeypatch.setattr(os, "pwrite", lossy)
    with pytest.raises(WriteError, match="other bytes come back"):
        mtpfix.graft(here, base)
    assert content(here) == old


def test_the_name_of_the_new_shard_comes_last() -> None:
    from mtpfix.grafting.loaders import last_name

    for read in (
        ["model.safetensors"],
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ["a.safetensors", "zebra-10.safetensors", "zebra-9.safetensors"],
        ["model_mtp.safetensors"],
        ["zz_mtp.safetensors", "~.safetensors"],
        ["10.safetensors", "9.safetensors"],
    ):
        name = last_name(read, read)
        assert max([*read, name]) == name
        assert name not in read
