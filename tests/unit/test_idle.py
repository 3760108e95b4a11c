"""Entries of long lists that fall on nothing: of those that read alike the first one stays."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from checkpoints import build, glm4_moe, right_list
from recorded import recorded

from mtpfix import idle
from mtpfix.analysis import analyse
from mtpfix.decisions import judges, tables
from mtpfix.engines.base import MatchQuery, Sparse, places_of
from mtpfix.engines.listing import Remembered
from mtpfix.engines.registry import ENGINES
from mtpfix.engines.vllm.answers import SafeMatcher
from mtpfix.idle import MANY, Numbers, apart, doubles, numbers_in, runs_of
from mtpfix.solving.quiet import Verdicts
from mtpfix.solving.trials import Trials
from mtpfix.world import world_of

KNOWN = Numbers(runs_of(["0", "1", "2", "45"]), runs_of(map(str, range(300))))


def gone(*entries: str, names: Sequence[str] = (), values: Sequence[object] = ()) -> list[str]:
    """The entries that have another one stand for them; enough others stand before them."""
    others = tuple(f"a{'b' * number}" for number in range(MANY))
    held = (*({"": number} for number in range(MANY)), *values) if values else ()
    found = apart(doubles((*others, *entries), KNOWN, held), names)
    return [entries[at - MANY] for at in sorted(found)]


@pytest.mark.parametrize(
    "kind",
    ["visual.blocks.{}.qkv", "visual.blocks.{}", "*.blocks.{}.*",
     "re:visual\\.blocks\\.{}\\..*", "-:x.{}.y", "j_{}", "b{}.c"],
)  # fmt: skip
def test_the_first_of_a_kind_stands_for_the_others(kind: str) -> None:
    assert gone(*(kind.format(number) for number in (700, 701, 999))) == [kind.format(701), kind.format(999)]


@pytest.mark.parametrize(
    "kind",
    ["re:x.{}+", "x.{}?", "[{}]", "re:x.(3|{}).y", "x\\{}", "a b.{}", "x#.{}"],
)
def test_digits_that_may_be_others_are_left_alone(kind: str) -> None:
    assert gone(*(kind.format(number) for number in (700, 701))) == []


def test_a_digit_before_a_star_may_be_missing() -> None:
    """Where an engine reads a regular expression, `x.17*` is met by `x.1`."""
    assert gone("x.17*", "x.18*", "x.27*", "x.28*", "x.10*") == ["x.18*", "x.28*", "x.10*"]
    assert gone("x.1*", "x.2*", "x.3*", "x.6*") == ["x.6*"]
    assert gone("x.7000*", "x.7111*") == ["x.7111*"]


def test_a_number_that_names_have_is_never_alike() -> None:
    assert gone("layers.0.q", "layers.1.q", "layers.45.q", "layers.4.q", "layers.5.q") == []


def test_numbers_of_experts_count_behind_experts_and_where_no_word_stands_before() -> None:
    assert gone("mlp.experts.100.up", "mlp.experts.101.up") == []
    assert gone("*.100.up", "*.101.up") == []
    assert gone("*ts.100.up", "*ts.101.up") == []
    assert gone("blocks.100.up", "blocks.101.up") == ["blocks.101.up"]
    assert numbers_in(["model.layers.3.mlp.experts.77.up_proj"]) == {"3"}


def test_entries_of_which_the_last_part_counts_are_left_alone() -> None:
    """(sglang-0.5.23 srt/layers/quantization/modelopt_quant.py is_layer_excluded)"""
    assert gone("x.700.kv_b_proj", "x.701.kv_b_proj", "*.700.q_a_proj", "*.701.q_a_proj") == []
    assert gone("x.700.kv_b_proj.y", "x.701.kv_b_proj.y") == ["x.701.kv_b_proj.y"]


def test_longer_numbers_are_of_another_kind() -> None:
    """A class mapper may count digits."""
    assert gone("x.700.y", "x.7000.y") == []


def test_what_a_table_holds_has_to_be_the_same() -> None:
    assert gone("x.700.y", "x.701.y", "x.702.y", values=({"bits": 4}, {"bits": 16}, {"bits": 4})) == ["x.702.y"]


def test_an_entry_that_a_name_is_part_of_is_looked_at() -> None:
    """vLLM skips experts that are part of an entry (vllm-0.33.0 Q/utils/quant_utils.py:596-693)."""
    entries = ["model.layers.0.mlp.experts.700.up", "model.layers.0.mlp.experts.701.up"]
    assert gone(*entries, names=["model.layers.0.mlp.experts"]) == []
    assert gone(*entries, names=["x.model.layers.0.mlp.experts"]) == entries[1:]
    assert gone("fc.17", "fc.18") == ["fc.18"]
    assert gone("fc.70", "fc.80", names=["fc.7"]) == []


def test_a_short_list_is_left_alone() -> None:
    assert doubles(("x.700.y", "x.701.y"), KNOWN) == {}


def test_a_list_without_some_entries_keeps_the_places_of_the_others() -> None:
    config = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    for name in ("vllm", "sglang"):
        engine = ENGINES[name]
        for value in (Sparse(["x.q", "lm.o_proj"], [3, 7]), ["x.q", *["y"] * 6, "lm.o_proj"]):
            query = MatchQuery(engine.releases[-1], "awq", {**config, "modules_to_not_convert": value})
            assert engine.matcher(query).decide("lm.o_proj", "linear").cause.pointer == "/modules_to_not_convert/7"
    assert [*places_of(["a", "b"])] == [0, 1]


@pytest.mark.parametrize("fmt", ["nvfp4", "ct-w4a16", "fp8-block", "awq", "gptq", "auto-round", "quark"])
def test_engines_read_a_short_list(fmt: str) -> None:
    """The blocks of a vision tower that is not there are one entry to each engine, and change nothing."""
    made = glm4_moe()
    right = right_list(made, fmt)
    word = "-:visual\\.blocks\\.{}\\.attn" if fmt == "gptq" else "visual.blocks.{}.attn"
    long = build(made, fmt, [*right, *(word.format(1000 + number) for number in range(3 * MANY))])
    short = build(made, fmt, [*right, word.format(1000)])
    world = world_of(long)
    read: list[int] = []
    for engine in ("vllm", "sglang"):
        for judge in judges(world, [ENGINES[engine]]):
            query = judge.query
            object.__setattr__(judge, "query", lambda world, value, *more, query=query: (
                read.append(_longest(value)), query(world, value, *more))[1])  # fmt: skip
            tables(world, [judge])
    assert read
    assert max(read) == len(right) + 1
    one, other = analyse(long), analyse(short)
    assert (one.engines, one.plan.edits, [found.rule for found in one.findings]) == (
        other.engines, other.plan.edits, [found.rule for found in other.findings])  # fmt: skip


@pytest.mark.parametrize("many", [1, MANY])
def test_what_comes_covers_names_in_a_long_list_too(many: int) -> None:
    """The checkpoint's own names stand before engines' words for them: of a fused linear of which one shard is listed
    the other two come with the subtree, which covers all else, not as an alias for SGLang once they are still missing
    (whole names: vllm-0.33.0 Q/utils/quant_utils.py:664-683)."""
    made = recorded("nemotron_h")
    away = [f"visual.blocks.{1000 + number}.attn" for number in range(many)]
    listed = [*made.kept, "mtp.layers.0.mixer.v_proj", *away]
    added = [edit.value for edit in analyse(build(made, "mxfp8", listed)).plan.edits]
    assert added[:4] == ["mtp.layers.0.*", "mtp.layers.1.*", "mtp.layers.0.mixer.k_proj", "mtp.layers.0.mixer.q_proj"]


@pytest.mark.parametrize("leaf", ["kv_a_proj_with_mqa", "kv_b_proj"])
def test_an_entry_whose_last_part_alone_is_read_stands_for_no_other(leaf: str) -> None:
    """SGLang's ModelOpt takes a leaf of latent attention in any entry for that of every layer (sglang-0.5.23
    srt/layers/quantization/modelopt_quant.py is_layer_excluded): all such entries have to go, or none is mended."""
    made = recorded("glm4_moe_lite")
    assert any(name.endswith(leaf) for name in made.shapes)
    listed = [f"model.layers.{number}.self_attn.{leaf}" for number in (1000, 1001, 1002)]
    away = [f"visual.blocks.{1000 + number}.attn" for number in range(MANY)]
    report = analyse(build(made, "modelopt-fp8", [*made.kept, *listed, *away]))
    gone = {edit.pointer for edit in report.plan.edits if (edit.op, edit.file) == ("remove", "config.json")}
    assert report.status == "fixable"
    assert gone == {f"/quantization_config/ignore/{len(made.kept) + number}" for number in range(3)}


def test_an_entry_that_goes_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should an engine read entries of a kind without their numbers, one that goes lets the next one come to light."""
    monkeypatch.setattr(idle, "ANY_LAYER", ())
    made = recorded("glm4_moe_lite")
    listed = [f"model.layers.{number}.self_attn.kv_b_proj" for number in (1000, 1001, 1002)]
    away = [f"visual.blocks.{1000 + number}.attn" for number in range(MANY)]
    report = analyse(build(made, "modelopt-fp8", [*made.kept, *listed, *away]))
    gone = {edit.pointer for edit in report.plan.edits if (edit.op, edit.file) == ("remove", "config.json")}
    assert gone == {f"/quantization_config/ignore/{len(made.kept) + number}" for number in range(3)}
    assert report.status == "fixable"


def test_a_file_that_is_the_list_itself_is_read_as_it_is() -> None:
    """ModelSlim's description names every tensor."""
    made = glm4_moe()
    right = right_list(made, "modelslim")
    more = [f"visual.blocks.{1000 + number}.attn.weight" for number in range(3 * MANY)]
    one, other = (analyse(build(made, "modelslim", entries)) for entries in ([*right, *more], right))
    assert one.engines == other.engines


def _longest(value: object) -> int:
    """The length of the longest list or table of a config."""
    parts = value.values() if isinstance(value, dict) else ()
    return max((len(part) for part in parts if isinstance(part, (list, dict))), default=0)


def test_a_trial_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher holds what it shares with others, and that holds it: without a collector a list stays for each trial
    (a description of 27,000 rows that misses 1,500 took 21 GB)."""
    trials: list[int] = []
    decided = Trials._decided

    def counted(self: Trials, *asked: Any) -> Verdicts:
        found = decided(self, *asked)
        trials.append(sum(isinstance(held, (Remembered, SafeMatcher)) for held in gc.get_objects()))
        return found

    monkeypatch.setattr(Trials, "_decided", counted)
    gc.collect()
    gc.disable()
    try:
        made = glm4_moe()
        analyse(build(made, "modelslim", right_list(made, "modelslim", draft=False)))
    finally:
        gc.enable()
    assert len(trials) > 5
    assert trials[-1] == trials[2]
