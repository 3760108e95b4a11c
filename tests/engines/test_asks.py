"""The family files ask what the real engines asked: recorded questions of vLLM 0.33.0 and SGLang 0.5.23."""

from __future__ import annotations

import re

import pytest
from conformance import Case, asked, bypassed, case_of, predicted, stored_in_part, tolerated, unnamed
from records import ASKS, load_all

CASES = [
    case
    for record in load_all()
    for run in record.runs
    if run.asked and (case := case_of(record, run)) is not None and stored_in_part(case)
]
VLLM = [case for case in CASES if case.run.engine == "vllm"]
# Built as torch modules of their own, which have no quantization method to list.
NOT_LINEAR = re.compile(r"(^|\.)(eh_proj|conv1d|patch_embed\.proj|pos_embed|embed_tokens|centroids)$")


# Wrappers whose language model brings a packed mapping of its own, which is in force when the rest is built.
REPLACED = ("GlmOcrForConditionalGeneration", "KimiK3ForConditionalGeneration")
# Drafts that map a deep copy of the target's object themselves.
COPIES = ("HYV4MTP", "Step5MTP")


def name_of(case: Case) -> str:
    return f"{case.record.name}-{case.run.engine}-{case.run.part}"


def complete(case: Case) -> bool:
    """Whether the engine built the whole part."""
    return not (case.run.verdict == "fails" and case.run.stage == "build")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_stored_module_has_a_row(case: Case) -> None:
    assert unnamed(case) == []


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_view_asks_what_the_engine_asks(case: Case) -> None:
    expected, real = predicted(case), asked(case.run)
    if complete(case):
        assert sorted(expected - real) == []
    assert sorted(question for question in real - expected if question[0] not in tolerated(case)) == []


@pytest.mark.parametrize("case", VLLM, ids=name_of)
def test_what_vllm_builds_without_asking_is_unasked(case: Case) -> None:
    real = {prefix for prefix, _ in case.run.unasked}
    assert sorted(real & {runtime for runtime, _ in predicted(case)}) == []
    if complete(case):
        built = real | {prefix for prefix, _, _, _ in case.run.asked}
        assert sorted(runtime for runtime in bypassed(case) - built if not NOT_LINEAR.search(runtime)) == []


@pytest.mark.parametrize("case", VLLM, ids=name_of)
def test_packed_mapping_and_mapper_are_the_class_s(case: Case) -> None:
    run = case.run
    if case.view.model_class in REPLACED:
        return
    assert {name: list(shards) for name, shards in (case.view.packed or {}).items()} == (run.packed or {})
    own = case.view.quant != "shared" or case.view.model_class in COPIES
    if run.part == "draft" and own:  # not mapped by the loader
        return
    assert (case.view.mapper is None) == (run.mapper is None)
    rules = dict(case.view.mapper.prefix) if case.view.mapper else {}
    assert {old: new for old, new in rules.items() if new is not None} == (run.mapper or {}).get("prefix", {})


def test_records_hold_no_local_paths() -> None:
    for path in ASKS.glob("*.json"):
        assert not re.search(r"/(work|tmp|home|root)/", path.read_text("utf-8")), path.name
