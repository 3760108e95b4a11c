"""Experts that the config counts and no file holds, and experts beyond the count.

Recorded in loads of both engines (tests/engines/asks/y-*-experts-lost.json, y-*-experts-extra.json).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from checkpoints import MODELS, Model, build, right_list

from mtpfix.analysis import analyse
from mtpfix.model import Finding, Report
from mtpfix.storage.expert_counts import few_experts

MADE = MODELS["glm4_moe"]()
DOWN = "mlp.experts.1.down_proj"
Kept = Callable[[str], bool]


def stored(kept: Kept, made: Model = MADE, more: Mapping[str, tuple[int, int]] | None = None) -> Report:
    """The report on a model of which some modules are stored."""

    def some(shapes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape for name, shape in shapes.items() if kept(name)}

    body = {**some(made.body), **(more or {})}
    cut = replace(made, body=body, kept=some(made.kept), draft=some(made.draft), bare=some(made.bare))
    return analyse(build(cut, "nvfp4", right_list(cut, "nvfp4")))


def counted(report: Report) -> list[Finding]:
    return [found for found in report.findings if found.rule == "MTP013"]


def verdicts(report: Report, part: str) -> set[tuple[str, str]]:
    newest = (row for row in report.engines if row.latest and row.part == part)
    return {(row.engine, row.verdict) for row in newest if row.engine in ("vllm", "sglang")}


def test_an_expert_that_no_layer_stores_is_told_of_both_parts() -> None:
    report = stored(lambda name: ".experts.1." not in name)
    for part in ("target", "draft"):
        assert verdicts(report, part) == {("vllm", "degrades"), ("sglang", "degrades")}
    assert {(found.part, found.fix, found.modules) for found in counted(report)} == {
        ("target", "none", (f"model.layers.1.{DOWN}",)),
        ("draft", "none", (f"model.layers.2.{DOWN}",)),
    }
    assert {found.locations[0].pointer for found in counted(report)} == {"/n_routed_experts"}
    assert all("1 of the 2 experts that n_routed_experts counts" in found.message for found in counted(report))
    assert not report.plan.edits


def test_one_projection_of_one_layer_is_enough() -> None:
    report = stored(lambda name: name != f"model.layers.1.{DOWN}")
    assert [(found.part, found.modules) for found in counted(report)] == [("target", (f"model.layers.1.{DOWN}",))]
    assert verdicts(report, "target") == {("vllm", "degrades"), ("sglang", "degrades")}
    assert verdicts(report, "draft") == {("vllm", "loads"), ("sglang", "loads")}


def test_what_the_draft_alone_lacks_is_told_once() -> None:
    """MTP006 knows it by the target's layers already."""
    report = stored(lambda name: not name.startswith("model.layers.2.mlp.experts.1."))
    assert [found.rule for found in report.findings] == ["MTP006"]


def extra(shapes: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """One more expert of each layer."""
    found = {
        name.replace(".experts.1.", ".experts.2."): shape for name, shape in shapes.items() if ".experts.1." in name
    }
    assert found
    return found


def test_experts_beyond_the_count_are_passed_over_by_the_target_of_glm_4() -> None:
    """Seen in y-glm-ctf8-draft-fp8-experts-extra."""
    report = stored(lambda name: True, more=extra(MADE.body))
    assert not counted(report)
    assert verdicts(report, "target") == {("vllm", "loads"), ("sglang", "loads")}


def test_experts_beyond_the_count_stop_the_draft_of_glm_4_in_vllm() -> None:
    """Seen in y-glm-ctf8-draft-fp8-experts-extra."""
    report = stored(lambda name: True, replace(MADE, bare={**MADE.bare, **extra(MADE.draft)}))
    assert verdicts(report, "draft") == {("vllm", "fails"), ("sglang", "loads")}
    assert verdicts(report, "target") == {("vllm", "loads"), ("sglang", "loads")}
    assert [(found.part, found.fix, found.engines, found.modules) for found in counted(report)] == [
        ("draft", "none", ("vllm",), ("model.layers.2.mlp.experts.2.down_proj",))
    ]
    assert not report.plan.edits


def test_a_dense_draft_lacks_none() -> None:
    report = stored(lambda name: "layers.2.mlp" not in name)
    assert not counted(report)


def test_a_count_that_contradicts_the_routers_is_told_once() -> None:
    made = replace(MADE, config={**MADE.config, "n_routed_experts": 4})
    report = stored(lambda name: True, made)
    assert sorted(found.part for found in counted(report)) == ["draft", "target"]
    assert all("routers" in found.message for found in counted(report))


@pytest.mark.parametrize(
    ("held", "count", "name"),
    [
        ({0, 1, 2, 3}, 4, ""),
        ({0, 1, 3}, 4, "a.0.mlp.experts.2.up_proj"),
        ({0, 1, 2, 3, 4}, 4, ""),
        ({0, 1, 4, 5}, 4, "a.0.mlp.experts.2.up_proj"),
        ({1}, 1 << 62, "a.0.mlp.experts.0.up_proj"),
        (set(), 4, ""),
    ],
)
def test_the_first_number_below_the_count_that_is_missing(held: set[int], count: int, name: str) -> None:
    found = few_experts(
        {"a.0": {"mlp.experts.up_proj": frozenset(held), "mlp.gate": frozenset()}}, count, "num_experts"
    )
    assert (found.name if found else "") == name
    if found:
        assert found.stored == len([number for number in held if number < count])
