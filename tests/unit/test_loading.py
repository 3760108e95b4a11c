"""Decisions set against storage: the general outcomes of loading, and each kind of mismatch.

The outcomes are those of section 3.4 of the engine facts, with the corrections of section 7 and the real loads that
the corpus cites; families' own faults are tested where the engines are.
"""

from __future__ import annotations

from typing import Any

import pytest
from checkpoints import SCHEMES, build, deepseek_v3, glm4_moe, llama, qwen3_5, right_list

from mtpfix.decisions import Table, judges, tables
from mtpfix.engines.registry import ENGINES
from mtpfix.forced import forced
from mtpfix.model import Checkpoint, EngineRow
from mtpfix.verdicts import LAYOUTS, Mismatch, engine_row, mismatches, outcome, unwritten, worst
from mtpfix.world import world_of

# engine, allocated, stored -> verdict
OUTCOMES = [
    ("vllm", "nvfp4", "plain", "fails"),  # shape assertion
    ("sglang", "nvfp4", "plain", "fails"),
    ("vllm", "fp8", "plain", "degrades"),  # silently cast, scales never written
    ("vllm", "fp8-block", "plain", "degrades"),
    ("vllm", "fp8-channel", "plain", "degrades"),
    ("vllm", "mxfp8", "plain", "degrades"),  # load-e-next-mxfp8-noentry
    ("sglang", "fp8-block", "plain", "degrades"),  # 7.7: Qwen and GLM-4 drafts load silently wrong
    ("vllm", "gptq4", "plain", "fails"),  # no parameter called weight
    ("vllm", "ct-w4a16", "plain", "fails"),
    ("vllm", "ct-nvfp4", "plain", "fails"),
    ("vllm", "plain", "nvfp4", "fails"),
    ("vllm", "plain", "fp8", "fails"),  # names that no parameter has
    ("vllm", "plain", "fp8-block", "fails"),
    ("sglang", "plain", "fp8-block", "degrades"),  # 7.8: no error, scales dropped
    ("sglang", "plain", "nvfp4", "fails"),
    ("vllm", "plain", "gptq4", "fails"),
    ("vllm", "fp8-block", "fp8-block-ct", "fails"),  # l-deepseek-v3-fp8-block-scale-renamed
    ("vllm", "nvfp4", "nvfp4-w4a16", "degrades"),  # l-qwen3-5-nvfp4-head-no-input-scale
    ("vllm", "nvfp4", "mxfp4", "degrades"),  # 7.11: scale_2 and input_scale never written
    ("vllm", "mxfp4", "nvfp4", "fails"),
    ("vllm", "nvfp4", "fp8", "fails"),
    ("vllm", "gptq4", "awq4", "loads"),  # the same names; shapes are the loader's to compare
    ("vllm", "plain", "plain", "loads"),
    ("vllm", "nvfp4", "nvfp4", "loads"),
    ("vllm", "nowhere", "nvfp4", "fails"),
]


@pytest.mark.parametrize(("engine", "allocated", "stored", "verdict"), OUTCOMES)
def test_what_loading_comes_to(engine: str, allocated: str, stored: str, verdict: str) -> None:
    found = outcome(engine, allocated, stored)
    assert found.verdict == verdict
    assert bool(found.why) is (verdict != "loads")


def test_scales_that_stay_unwritten_are_named() -> None:
    assert unwritten("nvfp4", "mxfp4") == ("weight_scale_2", "input_scale")
    assert unwritten("fp8-block", "plain") == ("weight_scale_inv",)
    assert unwritten("nvfp4", "nvfp4") == unwritten("", "nvfp4") == ()
    assert "weight_scale_2 and input_scale never written" in outcome("vllm", "nvfp4", "mxfp4").why


def test_every_scheme_of_the_builder_has_a_layout_that_loads_into_itself() -> None:
    for scheme in SCHEMES.keys() - {"hqq", "torchao", "mlx4", "stacked"}:  # what no loader here tells by a layout
        assert scheme in LAYOUTS
        assert outcome("vllm", scheme, scheme).verdict == outcome("sglang", scheme, scheme).verdict == "loads"


def table_of(checkpoint: Checkpoint, engine: str, part: str) -> Table:
    """What an engine's newest release decides about a part."""
    world = world_of(checkpoint)
    found = tables(world, judges(world, [ENGINES[engine]]))
    return next(table for table in found if table.judge.profile.latest and table.judge.part == part)


def wrong(checkpoint: Checkpoint, engine: str, part: str = "draft") -> dict[str, Mismatch]:
    found = mismatches(world_of(checkpoint), table_of(checkpoint, engine, part))
    return {item.row.unit.name: item for item in found}


def row_of(checkpoint: Checkpoint, engine: str, part: str = "draft") -> EngineRow:
    world, table = world_of(checkpoint), table_of(checkpoint, engine, part)
    return engine_row(table, list(mismatches(world, table)), forced(world, table))


Q35, GLM, DS = qwen3_5(), glm4_moe(), deepseek_v3()
TARGET = right_list(Q35, "nvfp4", draft=False)
Q = "mtp.layers.0.self_attn.q_proj"
GATE = "mtp.layers.0.mlp.shared_expert.gate_proj"
O_PROJ = "mtp.layers.0.self_attn.o_proj"
NVFP4 = SCHEMES["nvfp4"](128, 128)
DRAFT_NVFP4 = dict.fromkeys(Q35.draft, "nvfp4")


# list, stored, module -> kind, verdict
KINDS = [
    ([*TARGET], {}, Q, "unlisted", "fails"),
    ([*TARGET], {}, O_PROJ, "unlisted", "degrades"),  # cut to the parameter's width, as row-parallel weights are
    ([*TARGET, "mtp.*"], {O_PROJ: "nvfp4"}, O_PROJ, "unexpected", "fails"),
    ([*TARGET, "mtp.layers.0.self_attn.v_proj"], {}, Q, "error", "fails"),
    ([*TARGET], {**DRAFT_NVFP4, O_PROJ: "mxfp4"}, O_PROJ, "scheme", "degrades"),
    ([*TARGET], {**DRAFT_NVFP4, O_PROJ: "nvfp4-w4a16"}, O_PROJ, "scales", "degrades"),
    ([*TARGET], {**DRAFT_NVFP4, O_PROJ: {**NVFP4, "weight": ("BF16", (128, 128))}}, O_PROJ, "odd", "fails"),
]


@pytest.mark.parametrize(
    ("entries", "stored", "module", "kind", "verdict"), KINDS, ids=[f"{row[3]} {row[4]}" for row in KINDS]
)
def test_each_kind_of_mismatch(entries: Any, stored: Any, module: str, kind: str, verdict: str) -> None:
    found = wrong(build(Q35, "nvfp4", entries, stored=stored), "vllm")[module]
    assert (found.kind, found.verdict) == (kind, verdict)
    assert found.why


def test_what_is_stored_as_decided_is_no_mismatch() -> None:
    listed = build(Q35, "nvfp4", right_list(Q35, "nvfp4"))
    quantized = build(Q35, "nvfp4", [*TARGET, "mtp.fc"], stored=DRAFT_NVFP4)
    for checkpoint in (listed, quantized):
        assert not wrong(checkpoint, "vllm")
        assert row_of(checkpoint, "vllm").verdict == "loads"


def test_a_familys_fault_takes_the_place_of_the_general_outcome() -> None:
    """7.7: SGLang's DeepSeek-V3 draft refuses BF16 for FP8, where GLM-4's loads silently wrong."""
    deepseek = row_of(build(DS, "fp8-block", right_list(DS, "fp8-block", draft=False)), "sglang")
    glm = row_of(build(GLM, "fp8-block", right_list(GLM, "fp8-block", draft=False)), "sglang")
    assert (deepseek.verdict, glm.verdict) == ("fails", "degrades")
    assert "Downcasting not allowed" in deepseek.error


def test_a_fault_can_be_that_it_loads() -> None:
    """7.21: a head that SGLang builds quantized does no harm; vLLM fails on it (7.18)."""
    head = "model.layers.2.shared_head.head"
    bare = [name for name in GLM.bare if name != head]
    listed = [*right_list(GLM, "nvfp4", draft=False), *bare, "model.layers.2.mlp*",
              "model.layers.2.self_attn*"]  # fmt: skip
    checkpoint = build(GLM, "nvfp4", listed)
    assert head not in wrong(checkpoint, "sglang")
    assert wrong(checkpoint, "vllm")[head].verdict == "fails"


def test_differences_in_input_scale_alone_that_do_no_harm() -> None:
    """vLLM drops it for W4A16, SGLang presets it (l-qwen3-5-nvfp4-head-no-input-scale loads there)."""
    model = llama()
    weights_only = build(model, "w4a16-nvfp4", ["lm_head"], stored=dict.fromkeys(model.body, "nvfp4"))
    assert not wrong(weights_only, "vllm", "target")
    without = build(model, "nvfp4", ["lm_head"], stored=dict.fromkeys(model.body, "nvfp4-w4a16"))
    assert not wrong(without, "sglang", "target")
    assert wrong(without, "vllm", "target")


def test_the_worst_mismatch_settles_the_verdict_and_all_are_named() -> None:
    checkpoint = build(Q35, "nvfp4", TARGET, stored={**DRAFT_NVFP4, GATE: "bf16", O_PROJ: "nvfp4-w4a16"})
    found = list(wrong(checkpoint, "vllm").values())
    assert {item.verdict for item in found} == {"fails", "degrades"}
    row = row_of(checkpoint, "vllm")
    assert (row.verdict, row.modules) == ("fails", (GATE, O_PROJ))
    assert worst([]) is None


MISSING = [
    ("vllm", "", "fails"),  # the completeness check is on for unquantized models (7.20)
    ("vllm", "nvfp4", "degrades"),
    ("sglang", "", "degrades"),
    ("sglang", "nvfp4", "degrades"),
]


@pytest.mark.parametrize(("engine", "fmt", "verdict"), MISSING)
def test_a_draft_that_is_declared_and_not_stored(engine: str, fmt: str, verdict: str) -> None:
    made = Q35.without_draft()
    assert row_of(build(made, fmt, right_list(made, fmt) if fmt else ()), engine).verdict == verdict


def test_where_a_draft_is_that_does_not_load() -> None:
    listed = right_list(GLM, "nvfp4")
    short = row_of(build(GLM, "nvfp4", listed, changes={"num_nextn_predict_layers": 2}), "tensorrt-llm")
    assert short.reason == "the files hold 1 of the draft's 2 declared layers, and its parameters stay unwritten"
    absent = row_of(build(GLM.without_draft(), "nvfp4", listed), "sglang")
    assert absent.reason == "the draft's tensors are not stored, and its parameters stay unwritten"
    shards = ("model.safetensors", "draft.safetensors")
    named = {"lm_head.weight": "model.safetensors"}
    unopened = row_of(
        build(GLM, "nvfp4", listed, index=named, shard_of=lambda name: shards["layers.2." in name]), "sglang"
    )
    assert unopened.reason.startswith("the draft's tensors are in files that it does not open")


def test_a_missing_shard_stops_every_part() -> None:
    made = llama()
    whole = build(made, "nvfp4", ["lm_head"])
    names = {f"{module.name}.{cell.suffix}": "model.safetensors" for module in whole.modules.values()
             for cell in module.cells}  # fmt: skip
    names["model.layers.9.mlp.up_proj.weight"] = "gone.safetensors"
    row = row_of(build(made, "nvfp4", ["lm_head"], index=names), "vllm", "target")
    assert row.verdict == "fails"
    assert "gone.safetensors" in row.reason


def test_names_without_facts_leave_the_verdict_unknown() -> None:
    checkpoint = build(Q35, "nvfp4", right_list(Q35, "nvfp4"), extra={"mtp.layers.0.riddle.weight": ("BF16", (64, 64))})
    row = row_of(checkpoint, "vllm")
    assert row.verdict == "unknown"
    assert "mtp.layers.0.riddle" in row.reason


def test_a_release_that_knows_neither_family_nor_format_is_unsupported() -> None:
    world = world_of(build(Q35, "nvfp4", right_list(Q35, "nvfp4")))
    first = next(table for table in tables(world, judges(world, [ENGINES["vllm"]])) if table.judge.part == "draft")
    row = engine_row(first, [], None)
    assert first.judge.profile.first == "0.12.0"  # Qwen3.5 came with 0.17.0
    assert (row.verdict, row.modules) == ("unsupported", ())
