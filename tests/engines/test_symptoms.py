"""`mtpfix rule --error`: what engines really said, and what mtpfix predicts that they say, leads to the rule."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import report_of
from records import Record, Run, load_all

from mtpfix.analysis import wanted_releases
from mtpfix.engines.words import full_into_nvfp4
from mtpfix.model import Finding
from mtpfix.rules import BY_CODE
from mtpfix.symptoms import diagnose, symptom_of, symptoms

FAMILIES = Path(__file__).parents[2] / "mtpfix/families"
# What the machine of the recording lacked, and assertions without words.
ELSEWHERE = re.compile(
    r"AssertionError: $|not compiled with CUDA|is not supported for quantization method awq"
    r"|not supported for the current device|Unknown quantization method"
)
# The target's class reads the draft's wo_a too, which the verdict on the target leaves out.
NOT_PREDICTED = {("v4-native-draft-bf16-listed", "target"), ("v4-native-draft-bf16-mtplisted", "target")}


def signature(run: Run) -> tuple[str, str]:
    return run.engine, re.sub(r"\d+|'[^']*'", "_", run.error)[:90]


def said() -> Iterator[object]:
    """One recorded failure for each engine and wording, and for each part of the wording that decides."""
    seen = set()
    for record in load_all():
        for run in record.runs:
            match = symptom_of(run.error)
            key = (signature(run), match)
            plain = run.error and not ELSEWHERE.search(run.error) and (record.name, run.part) not in NOT_PREDICTED
            if run.verdict == "fails" and plain and key not in seen:
                seen.add(key)
                yield pytest.param(record, run, id=f"{run.engine}-{record.name}-{run.part}")


def concerns(finding: Finding, run: Run) -> bool:
    """Whether a finding is about a part in the release that was recorded."""
    ranges = [wanted_releases([span], "").get(run.engine, frozenset()) for span in finding.engines]
    return finding.part == run.part and (not ranges or any(run.version in releases for releases in ranges))


@pytest.mark.parametrize(("record", "run"), [*said()])
def test_what_an_engine_said_leads_to_a_rule_that_is_found(record: Record, run: Run) -> None:
    report = report_of(record.name)
    found = {finding.rule for finding in report.findings if concerns(finding, run)}
    found |= {finding.rule for finding in report.findings if finding.rule == "MTP011"}  # of the whole checkpoint
    rules = {rule for match in diagnose(run.error) for rule in match.symptom.rules}
    assert rules & found, (run.error, sorted(found))


def predicted() -> Iterator[str]:
    """Every wording in the family files that is more than the name of an exception."""
    for path in sorted(FAMILIES.glob("*.toml")):
        for text in re.findall(r'error = ("(?:[^"\\]|\\.)*")', path.read_text("utf-8")):
            error = tomllib.loads(f"error = {text}")["error"]
            if ": " in error:
                yield error


@pytest.mark.parametrize("error", sorted(set(predicted())))
def test_what_is_predicted_leads_to_a_rule(error: str) -> None:
    assert symptom_of(error.replace("...", "model.layers.4.")), error


@pytest.mark.parametrize(
    "error",
    [
        "ZeroDivisionError: integer modulo by zero",
        "Following weights were not initialized from checkpoint",
        "ValueError: Cannot find the config file for modelopt_mixed",
        "NotImplementedError: Mxfp4 attention layer is not implemented",
        full_into_nvfp4("vllm", "linear", "mtp.fc", "mtp.fc", (64, 128)),
        full_into_nvfp4("vllm", "linear", "a.qkv_proj", "a.q_proj", (64, 128)),
        full_into_nvfp4("sglang", "moe", "a.experts", "a.experts.0.up_proj", (64, 128)),
    ],
)
def test_what_the_verdicts_say_leads_to_a_rule(error: str) -> None:
    assert symptom_of(error)


def test_every_rule_that_is_named_exists_and_every_symptom_shows_itself() -> None:
    for symptom in symptoms():
        assert set(symptom.rules) <= set(BY_CODE)
        assert symptom_of(symptom.example) is symptom


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("RuntimeError: The size of tensor a (64) must match the size of tensor b (128) at dimension 1", "MTP001"),
        ("RuntimeError: The size of tensor a (128) must match the size of tensor b (64) at dimension 1", "MTP005"),
        ("(EngineCore pid=7) ERROR 10-01 KeyError: 'model.layers.0.mlp.experts.w2_weight'", "MTP001"),
        ("KeyError: 'layers.4.mlp.experts.routed_experts.w2_input_scale'", "MTP005"),
    ],
)
def test_the_direction_of_a_mismatch_decides(line: str, first: str) -> None:
    (match,) = diagnose(line)
    assert match.symptom.rules[0] == first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeyError: 'HOME'",
        "KeyError: 'weight'",
        "RuntimeError: The size of tensor a (7) must match the size of tensor b (7)",
        "torch.OutOfMemoryError: CUDA out of memory",
        "AssertionError",
    ],
)
def test_other_words_mean_nothing(text: str) -> None:
    assert diagnose(text) == ()


def test_of_a_log_the_last_line_comes_first_and_the_same_cause_once() -> None:
    log = "\n".join(
        [
            "Parameter model.fc.weight not found in params_dict",
            "Parameter model.fc2.weight not found in params_dict",
            "Traceback (most recent call last):",
            "ValueError: Detected some but not all shards of mtp.layers.0.self_attn.qkv_proj are quantized.",
            "INFO: shutting down",
        ]
    )
    first, second = diagnose(log)
    assert first.symptom.rules[0] == "MTP010"
    assert second.line == "Parameter model.fc2.weight not found in params_dict"


def test_a_long_line_takes_no_time() -> None:
    assert diagnose("KeyError: '" + "a." * 1_000_000) == ()
