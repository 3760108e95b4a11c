"""The solver by hand: what comes into a list, what goes, and what it refuses to write.

Right spellings are those of the engine facts (section 6, "recommended pattern spelling"), which were executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from checkpoints import (
    ABSENT,
    Model,
    build,
    deepseek_v3,
    glm4_moe,
    glm5_next,
    qwen3_5,
    qwen3_next,
    rewritten,
    right_list,
)

from mtpfix.analysis import analyse, wanted_releases
from mtpfix.decisions import judges, tables
from mtpfix.engines.registry import ENGINES
from mtpfix.formats.base import ExclusionList, at
from mtpfix.frozen import replace
from mtpfix.model import Checkpoint
from mtpfix.planning import solutions
from mtpfix.solving.leaves import Leaf, holder, summarised
from mtpfix.solving.seats import compact
from mtpfix.solving.solution import Solution
from mtpfix.solving.solution import rewritten as changed
from mtpfix.world import world_of

NEXT, Q35, DENSE, GLM, DS, GLM5 = (
    qwen3_next(), qwen3_5(), qwen3_5(dense=True), glm4_moe(), deepseek_v3(), glm5_next(),
)  # fmt: skip


def solve(checkpoint: Checkpoint, *specs: str) -> tuple[Solution, ...]:
    wanted = wanted_releases(specs, analyse(checkpoint).format)
    return solutions(world_of(checkpoint), [ENGINES[name] for name in wanted], wanted)


def entries(checkpoint: Checkpoint, *specs: str) -> list[str]:
    """What comes into config.json's list."""
    return [item.entry for item in solve(checkpoint, *specs)[0].added]


def target_only(made: Model, fmt: str, **rest: Any) -> Checkpoint:
    return build(made, fmt, right_list(made, fmt, draft=False), **rest)


# --- what comes -------------------------------------------------------------------------------------------------------


SPELLINGS = [
    (Q35, "nvfp4", {"mtp.fc", "mtp.layers.0.*"}),
    (Q35, "mixed", set()),  # what quantized_layers does not name is plain already
    (Q35, "ct-w4a16", {r"re:^mtp\..*"}),
    (GLM, "nvfp4", {"model.layers.2.*"}),  # SGLang builds this draft plain by itself
    (GLM, "modelopt-fp8", {"model.layers.2.*", "model.decoder.*"}),
    (GLM, "ct-fp8", {r"re:^model\.layers\.2\..*", r"re:^model\.decoder\..*"}),
    (GLM5, "nvfp4", {"model.language_model.layers.2.*", "model.layers.2.*"}),
]


@pytest.mark.parametrize(
    ("made", "fmt", "wanted"), SPELLINGS, ids=[f"{row[0].config['model_type']} {row[1]}" for row in SPELLINGS]
)
def test_an_unlisted_draft_gets_the_recommended_spelling(made: Model, fmt: str, wanted: set[str]) -> None:
    found = solve(target_only(made, fmt))
    assert {item.entry for item in found[0].added if item.part == "draft"} == wanted
    assert not found[0].removed


def test_fp8_lists_hold_the_names_of_linears_and_of_the_experts() -> None:
    """Exact names for vLLM, the fused projection of latent attention for SGLang's drafter (7.1)."""
    found = entries(target_only(DS, "fp8-block"))
    layer = "model.layers.2"
    assert {f"{layer}.mlp.experts", f"{layer}.self_attn.q_a_proj", f"{layer}.mlp.shared_experts.gate_proj"} <= set(
        found
    )
    assert f"{layer}" not in found
    assert not any("*" in entry for entry in found)
    aliases = [entry for entry in found if not entry.startswith(layer)]
    assert aliases
    assert all(entry.startswith("model.decoder") or entry == "model.shared_head.head" for entry in aliases)


def test_gptq_rules_come_first() -> None:
    """The first rule that matches wins."""
    checkpoint = build(Q35, "gptq", {r"-:.*linear_attn.*": {}, r"+:.*": {"bits": 4}})
    value = solve(checkpoint)[0].value()
    keys = list(value["dynamic"])
    assert keys[0] == r"-:^mtp\..*"
    assert keys[-2:] == [r"-:.*linear_attn.*", r"+:.*"]


def test_a_rule_that_comes_too_late_is_put_first() -> None:
    late = r"-:^mtp\..*"
    checkpoint = build(Q35, "gptq", {r"-:.*linear_attn.*": {}, r"+:.*mtp.*": {"bits": 4}, late: {}})
    report = analyse(checkpoint)
    assert report.status == "fixable"
    assert [(edit.op, edit.first) for edit in report.plan.edits] == [("remove", False), ("add", True)]
    after = rewritten(checkpoint, report.plan.after)
    assert next(iter(after.files["config.json"].value["quantization_config"]["dynamic"])) == late
    assert analyse(after).status == "clean"


def test_the_exporters_style_is_kept() -> None:
    kept = [*right_list(GLM, "nvfp4", draft=False), "model.embed_tokens*"]
    assert entries(build(GLM, "nvfp4", kept)) == ["model.layers.2*"]


def test_an_entry_for_layer_4_is_none_for_layer_45() -> None:
    """A bare number is a substring in vLLM (P1): no entry may end in one."""
    made = glm4_moe(layers=4)
    for entry in entries(target_only(made, "nvfp4")):
        assert not entry.rstrip("*")[-1:].isdecimal()


def test_several_draft_layers_get_one_entry_each() -> None:
    assert entries(target_only(qwen3_5(drafts=2), "nvfp4")) == ["mtp.fc", "mtp.layers.0.*", "mtp.layers.1.*"]


def test_quantized_modules_of_a_draft_are_never_covered() -> None:
    stored = {name: "nvfp4" for name in Q35.draft if ".experts." in name}
    found = entries(target_only(Q35, "nvfp4", stored=stored))
    assert "mtp.layers.0.self_attn.*" in found
    assert "mtp.layers.0.*" not in found
    assert not any("experts" in entry.replace("shared_expert", "") for entry in found)


def test_a_part_of_a_draft_that_is_listed_already_is_not_listed_again() -> None:
    kept = [*right_list(Q35, "nvfp4", draft=False), "mtp.fc", "mtp.layers.0.self_attn.*", "mtp.layers.0.mlp.gate"]
    assert "mtp.fc" not in entries(build(Q35, "nvfp4", kept))


# --- what goes --------------------------------------------------------------------------------------------------------


def removed(solution: Solution) -> set[str]:
    named = dict(zip(solution.where.places, solution.where.entries, strict=True))
    return {named[place] for place in solution.removed if place in named}


def test_a_broad_entry_makes_way_for_narrow_ones() -> None:
    found = solve(build(Q35, "nvfp4", [*right_list(Q35, "nvfp4", draft=False), "*"]))[0]
    assert removed(found) == {"*"}
    assert {item.entry for item in found.added} == {"mtp.fc", "mtp.layers.0.*"}


def test_leaves_of_latent_attention_make_way_for_their_layer() -> None:
    """SGLang takes such a leaf for that of every layer (P5), in NVFP4 and in FP8."""
    kept = right_list(DS, "nvfp4", draft=False)
    leaves = [name for name in right_list(DS, "fp8-block") if name.startswith("model.layers.2.")]
    found = solve(build(DS, "nvfp4", [*kept, *leaves]))[0]
    assert {"model.layers.2.self_attn.q_b_proj", "model.layers.2.self_attn.kv_b_proj"} <= removed(found)
    assert {item.entry for item in found.added} == {"model.layers.2.self_attn.*", "model.layers.2.head"}


def test_what_breaks_an_engine_goes() -> None:
    found = solve(build(Q35, "nvfp4", [*right_list(Q35, "nvfp4"), None, 3]))[0]
    assert found.removed == tuple(range(len(right_list(Q35, "nvfp4")), len(right_list(Q35, "nvfp4")) + 2))
    assert not found.added


def test_a_list_without_fault_stays_as_it_is() -> None:
    for fmt in ("nvfp4", "modelopt-fp8", "ct-w4a16", "fp8-block"):
        for item in solve(build(NEXT, fmt, right_list(NEXT, fmt))):
            assert item.empty


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["nvfp4", "modelopt-fp8", "ct-fp8", "fp8-block", "mxfp8"])
@pytest.mark.parametrize("draft", [True, False])
def test_a_drafts_entry_never_switches_off_the_targets_layer(fmt: str, draft: bool) -> None:
    """SGLang's Qwen3-Next drafter asks as model.layers.0, a name that the target has (7.16)."""
    checkpoint = build(NEXT, fmt, right_list(NEXT, fmt, draft=draft))
    for found in solve(checkpoint):
        assert not any("layers.0.mlp" in item.entry and "mtp" not in item.entry for item in found.added)
        assert not any(item.entry.startswith(("model.layers.0", "*", "re:.*")) for item in found.added)


def test_no_half_repair_in_an_engines_own_words() -> None:
    """SGLang never honours `dynamic` for experts (7.10): its names for the linears would mend nothing."""
    found = entries(target_only(GLM, "gptq"))
    assert found
    assert not any("decoder" in entry for entry in found)


def test_narrowed_engines_get_no_aliases_of_others() -> None:
    assert "model.decoder.*" not in entries(target_only(GLM, "modelopt-fp8"), "vllm")
    assert "model.decoder.*" in entries(target_only(GLM, "modelopt-fp8"), "sglang")


# --- both files -------------------------------------------------------------------------------------------------------


def test_both_files_get_the_same_entries_each_under_its_own_key() -> None:
    kept = right_list(GLM, "nvfp4", draft=False)
    one, other = solve(build(GLM, "nvfp4", kept, sidecar=kept))
    assert [item.entry for item in one.added] == [item.entry for item in other.added]
    assert (one.where.pointer, other.where.pointer) == ("/ignore", "/quantization/exclude_modules")


def test_a_file_that_is_right_stays() -> None:
    kept, whole = right_list(GLM, "nvfp4", draft=False), right_list(GLM, "nvfp4")
    one, other = solve(build(GLM, "nvfp4", kept, sidecar=whole))
    assert not one.empty
    assert other.empty


# --- its parts --------------------------------------------------------------------------------------------------------


def test_lists_are_rewritten_where_they_stand() -> None:
    value = {"a": 1, "quantization": {"exclude_modules": ["x", None, "y"], "b": 2}}
    where = at(value["quantization"], "exclude_modules", "/quantization")
    assert (where.entries, where.places, where.broken) == (("x", "y"), (0, 2), (1,))
    assert changed(value, where, (1, 2), ["z"]) == {"a": 1, "quantization": {"exclude_modules": ["x", "z"], "b": 2}}
    assert changed(value, where, (), ()) is value
    assert value["quantization"]["exclude_modules"] == ["x", None, "y"]


ODD_LISTS: list[tuple[Any, Sequence[str], bool]] = [
    (None, (), False),
    ([], (), True),
    ("lm_head", ("lm_head",), False),
    ({"lm_head": 1}, ("lm_head",), False),
    (7, (), False),
    (True, (), False),
    ([[]], (), True),
]


@pytest.mark.parametrize(("held", "read", "present"), ODD_LISTS)
def test_what_is_no_list_becomes_one(held: Any, read: Sequence[str], present: bool) -> None:
    where = at({"ignore": held}, "ignore")
    assert (where.entries, where.present) == (tuple(read), present)
    assert changed({"ignore": held}, where, where.broken, ["mtp.fc"]) == {"ignore": [*read, "mtp.fc"]}


def test_dictionaries_keep_the_values_of_what_stays() -> None:
    rules = {"-:a": {}, "+:b": {"bits": 8}}
    where = at({"dynamic": rules}, "dynamic", keyed=True)
    got = changed({"dynamic": rules}, where, (0,), ["-:c"])
    assert got == {"dynamic": {"-:c": {}, "+:b": {"bits": 8}}}
    assert list(got["dynamic"]) == ["-:c", "+:b"]
    none = ExclusionList("/dynamic", (), (), False, True)
    assert changed({}, none, (), ["-:c"]) == {"dynamic": {"-:c": {}}}


def leaf(name: str, *, wanted: bool = True, impure: bool = False, covered: bool = False) -> Leaf:
    return Leaf(name, "leaf", "draft", impure, covered, wanted)


def nodes(*leaves: Leaf) -> list[str]:
    return [node.name for node in summarised(leaves, lambda prefix, below: bool(prefix))]


def test_subtrees_are_summarised_as_high_as_they_are_pure() -> None:
    assert nodes(leaf("a.b.c"), leaf("a.b.d"), leaf("a.e")) == ["a"]
    assert nodes(leaf("a.b.c"), leaf("a.b.d"), leaf("a.e", wanted=False, impure=True)) == ["a.b"]
    assert nodes(leaf("a.b.c"), leaf("a.b.d", wanted=False, impure=True)) == ["a.b.c"]
    assert nodes(leaf("a.b.c", wanted=False)) == []
    assert nodes(leaf("a")) == ["a"]


def test_experts_stand_for_their_layer() -> None:
    assert holder("mtp.layers.0.mlp.experts.7.up_proj") == ("mtp.layers.0.mlp.experts", "experts")
    assert holder("mtp.layers.0.mlp.shared_expert.up_proj") == ("mtp.layers.0.mlp.shared_expert.up_proj", "leaf")


def test_shards_and_experts_are_judged_once() -> None:
    world = world_of(target_only(Q35, "nvfp4"))
    judge = next(judge for judge in judges(world, [ENGINES["vllm"]]) if judge.profile.latest and judge.part == "draft")
    rows, members = compact(judge.rows)
    small = replace(judge, rows=rows)
    asked = [row.ask.runtime for row in rows if row.ask]
    assert len(asked) == len(set(asked))
    of_experts = members[asked.index("mtp.layers.0.mlp.experts")]
    assert len(of_experts) == 3  # gate, up and down; the experts of each are one unit
    everyone = {name for names in members for name in names}
    assert everyone == {row.unit.name for row in judge.rows if row.ask}
    full = {row.unit.name: answer for row, answer in tables(world, [judge])[0].decided}
    value: Mapping[str, Any] = world.config["quantization_config"]
    for row, answer, names in zip(small.rows, small.answers(world, value), members, strict=True):
        assert {full[name].decision for name in names} == {answer.decision}, row


def test_an_absent_list_is_made() -> None:
    plan = analyse(build(qwen3_5(dense=True), "ct-fp8", ABSENT)).plan
    assert [(edit.op, edit.pointer) for edit in plan.edits] == [("add", "/quantization_config/ignore")]


# --- long lists -------------------------------------------------------------------------------------------------------


LONG = [
    (Q35, "nvfp4", ["*", "mtp.layers.0.*", "mtp.layers.0.self_attn.q_proj"]),
    (Q35, "mixed", ["mtp.fc", "mtp.layers.0.mlp.experts.0.up_proj", "*.mlp.*"]),
    (DENSE, "fp8-block", ["mtp.layers.0.mlp.gate_proj", "mtp.*", "mtp.fc", "mtp.fc"]),
    (DS, "modelopt-fp8", ["model.layers.2.self_attn.q_a_proj", "model.layers.2.self_attn.kv_b_proj"]),
    (GLM, "ct-fp8", [r"re:^model\.layers\.2\..*", "model.layers.2.self_attn.v_proj", "re:.*0.*", None, 3]),
    (GLM5, "nvfp4", ["model.layers.2.*", "model.language_model.layers.1*"]),  # one that a class looks up by itself
    (Q35, "gptq", {r"+:.*mtp.*": {"bits": 4}, r"-:^mtp\..*": {}, r"-:.*linear_attn.*": {}, "-:nothing": {}}),
]


@pytest.mark.parametrize(
    ("made", "fmt", "listed"), LONG, ids=[f"{row[0].config['model_type']} {row[1]}" for row in LONG]
)
def test_entries_without_effect_are_set_aside_without_effect(
    made: Model, fmt: str, listed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials leave out what decides nothing: the outcome is the same as with it."""
    idle = ["nowhere", "model.layers.777.mlp.up_proj", "re:^nowhere$"]
    whole = listed if isinstance(listed, dict) else [*right_list(made, fmt, draft=False), *idle, *listed, *idle]
    checkpoint = build(made, fmt, whole, sidecar=whole)
    plain = [(item.removed, item.added) for item in solve(checkpoint)]
    monkeypatch.setattr("mtpfix.solving.trials.MANY", 0)
    assert [(item.removed, item.added) for item in solve(checkpoint)] == plain


def test_lists_in_another_order_are_mended_alike() -> None:
    """Two files with one list are mended as one; where that is not to be had, each by itself, as unlike lists are."""
    stored = {"model.layers.2.self_attn.kv_b_proj": "nvfp4-w4a16"}
    listed = [*right_list(DS, "nvfp4", draft=False), "model.layers.2.mlp.shared_experts.up_proj",
              "model.layers.2.self_attn.kv_a_proj_with_mqa"]  # fmt: skip
    found = []
    for beside in (listed, listed[::-1]):
        report = analyse(build(DS, "w4a16-nvfp4", listed, sidecar=beside, stored=stored))
        found.append((report.status, {(item.rule, item.severity, item.fix) for item in report.findings}))
    assert found[0] == found[1]
