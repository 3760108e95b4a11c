"""`--engine` narrows all that is said, and no plan that was asked for by name harms anybody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from checkpoints import ABSENT, build, deepseek_v3, glm4_moe, qwen3_next, rewritten, right_list
from drawn import Case, cases
from hypothesis import given
from hypothesis import strategies as st
from lengths import many
from test_laws import State

from mtpfix import analysis
from mtpfix.analysis import analyse
from mtpfix.asked import wanted_releases
from mtpfix.engines.registry import ENGINES
from mtpfix.explaining import explain
from mtpfix.model import Checkpoint, EngineRow, Report
from mtpfix.releases import key, modelled
from mtpfix.verdicts import rank_of

ALL = {name: frozenset(modelled(name)) for name in ENGINES}


@st.composite
def specs(draw: Any) -> list[str]:
    """One or two ranges, each of some engine."""
    found = []
    for name in draw(
        st.lists(st.sampled_from(["vllm", "sglang", "tensorrt-llm"]), min_size=1, max_size=2, unique=True)
    ):
        every = modelled(name)
        low = draw(st.integers(0, len(every) - 1))
        high = draw(st.integers(low, len(every) - 1))
        found.append(f"{name}>={every[low]},<={every[high]}")
    return found


def each(rows: tuple[EngineRow, ...]) -> dict[tuple[str, str, str], EngineRow]:
    return {(row.engine, release, row.part): row for row in rows for release in row.releases}


def spoken_of(report: Report) -> set[tuple[str, str]]:
    """Every engine release that a report speaks of."""
    ranges = [text for found in report.findings for text in found.engines]
    ranges += [text for found in report.findings for one in found.contrasts for text in one.engines]
    named = {(name, one) for text in ranges for name, some in wanted_releases([text], "").items() for one in some}
    named |= {(engine, release) for engine, release, _ in (*each(report.engines), *each(report.after))}
    checked = (text.split(" ") for text in report.plan.certificate.decisions)
    return named | {(engine, release) for engine, release in checked}


@many(12)
@given(cases(), specs())
def test_nothing_else_is_spoken_of_and_what_is_said_stays(case: Case, asked: list[str]) -> None:
    checkpoint = case.build()
    wanted = {(name, release) for name, some in wanted_releases(asked, "").items() for release in some}
    narrow, wide = analyse(checkpoint, engines=asked), each(analyse(checkpoint).engines)
    assert spoken_of(narrow) <= wanted
    for at, row in each(narrow.engines).items():
        assert (row.verdict, row.reason) == (wide[at].verdict, wide[at].reason)
    assert {at for at in wide if at[:2] in wanted} == set(each(narrow.engines))
    newest = {name: max((one for engine, one in wanted if engine == name), key=key) for name, _ in wanted}
    assert all(row.latest == (newest[row.engine] in row.releases) for row in narrow.engines)


@many(12)
@given(cases(), specs())
def test_no_engine_gets_worse_by_a_plan_for_others(case: Case, asked: list[str]) -> None:
    checkpoint = case.build()
    harmless(checkpoint, analyse(checkpoint, engines=asked))


def harmless(checkpoint: Checkpoint, report: Report) -> None:
    """No release of any engine loads a part worse, and nothing that is not stored plain is newly built plain."""
    repaired = rewritten(checkpoint, report.plan.after)
    old, new = each(analyse(checkpoint).engines), each(analyse(repaired).engines)
    for at in old:
        assert rank_of(new[at].verdict) <= rank_of(old[at].verdict), at
    before, after = State(checkpoint, ALL), State(repaired, ALL)
    kinds: Mapping[str, str] = {unit.name: unit.stored.scheme.kind for unit in before.world.units}
    for where, decision in before.decisions.items():
        if decision == "quantized" and kinds[where[3]] != "plain":
            assert after.decisions[where] != "plain", where


@pytest.mark.parametrize("asked", [[], ["vllm"], ["sglang"], ["vllm>=0.20,<0.26"], ["sglang==0.5.23"]])
def test_a_first_list_of_fp8_keeps_the_head_of_transformers(asked: list[str]) -> None:
    """Without a list transformers leaves the head alone, with one it goes by the list (5.24 quantizers/base.py:289)."""
    checkpoint = build(deepseek_v3(), "fp8-block", ABSENT)
    report = analyse(checkpoint, engines=asked)
    assert report.status == "fixable"
    harmless(checkpoint, report)
    assert b'"lm_head"' in report.plan.after["config.json"]


def test_an_engine_that_would_be_harmed_joins_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """GLM-4.7 FP8: `model*` stands in for a draft that vLLM's own entries would cover; SGLang asks model.decoder."""
    checkpoint = build(glm4_moe(), "modelopt-fp8", ["model*"])
    report = analyse(checkpoint, engines=["vllm"])
    assert report.status == "fixable"
    harmless(checkpoint, report)
    monkeypatch.setattr(analysis._Study, "_harmed_by", lambda *_, **__: set())
    with pytest.raises(AssertionError, match="sglang"):
        harmless(checkpoint, analyse(checkpoint, engines=["vllm"]))


def test_explanations_are_cut_to_what_was_asked() -> None:
    checkpoint = build(qwen3_next(), "nvfp4", right_list(qwen3_next(), "nvfp4"))
    rows = explain(checkpoint, ["mtp.**"], engines=["vllm>=0.20,<0.26"]).rows
    assert {row.engine for row in rows} == {"vllm"}
    assert {release for row in rows for release in row.releases} == wanted_releases(["vllm>=0.20,<0.26"], "")["vllm"]
    assert all(row.version == row.releases[0] for row in rows)
