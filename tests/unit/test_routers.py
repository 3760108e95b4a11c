"""A count of experts that the stored routers contradict: no engine loads such a part, and no list mends it.

Recorded in loads of both engines (tests/engines/asks/y-*-experts-*.json): all loaders compare the shape of a router.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoints import MODELS, build, right_list
from recorded import recorded

from mtpfix.analysis import analyse
from mtpfix.families import identify
from mtpfix.families.base import router_rows
from mtpfix.model import Finding, Report


def checked(family: str, fmt: str, **changed: Any) -> Report:
    made = recorded(family) if family not in MODELS else MODELS[family]()
    return analyse(build(replace(made, config={**made.config, **changed}), fmt, right_list(made, fmt)))


def counted(report: Report) -> list[Finding]:
    return [found for found in report.findings if found.rule == "MTP013"]


@pytest.mark.parametrize("experts", [1, 4])
def test_a_router_of_another_height_loads_nowhere(experts: int) -> None:
    report = checked("qwen3_next", "nvfp4", num_experts=experts)
    assert {row.verdict for row in report.engines if row.engine in ("vllm", "sglang")} == {"fails"}
    assert {found.part: (found.fix, found.severity) for found in counted(report)} == dict.fromkeys(
        ("target", "draft"), ("none", "error")
    )
    assert counted(report)[0].locations[0].pointer == "/num_experts"
    assert f"has 2 rows, and engines build {experts} by num_experts" in counted(report)[0].message
    assert report.status == "not-fixable"


def test_where_they_agree_nothing_is_found() -> None:
    report = checked("qwen3_next", "nvfp4", num_experts=2)
    assert not counted(report)
    assert {row.verdict for row in report.engines if row.latest and row.engine == "vllm"} == {"loads"}


def test_a_draft_that_was_not_pruned_is_told_of_alone() -> None:
    """The target's routers are as high as the config says; the draft's are the base model's."""
    made = MODELS["glm4_moe"]()
    bare = {name: (8, shape[1]) if name.endswith(".gate") else shape for name, shape in made.bare.items()}
    assert bare != made.bare
    report = analyse(build(replace(made, bare=bare), "nvfp4", right_list(made, "nvfp4")))
    assert [found.part for found in counted(report)] == ["draft"]
    verdicts = {(row.part, row.verdict) for row in report.engines if row.engine == "vllm" and row.latest}
    assert verdicts == {("target", "loads"), ("draft", "fails")}


@pytest.mark.parametrize(("zero", "odd"), [(2, False), (0, True)])
def test_experts_without_weights_have_rows_too(zero: int, odd: bool) -> None:
    """LongCat's router chooses from `zero_expert_num` experts more than are stored (longcat_flash.py:157)."""
    assert bool(counted(checked("longcat_flash", "fp8-block", zero_expert_num=zero))) is odd


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ({"num_experts": 8}, 8),
        ({"text_config": {"num_experts": 8}}, 8),
        ({"num_experts": 8, "num_local_experts": 4}, None),
        ({"num_experts": 8, "text_config": {"num_experts": 4}}, None),
        ({"num_local_experts": 8}, None),
        ({"num_experts": "8"}, None),
        ({"num_experts": True}, None),
        ({}, None),
    ],
)
def test_keys_that_contradict_each_other_count_nothing(config: dict[str, Any], rows: int | None) -> None:
    family, _ = identify({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"})
    assert family is not None
    assert family.experts is not None
    assert router_rows(config, family.experts) == rows
