"""The laws of the design over generated checkpoints. MTPFIX_LONG=1 tries thousands of them.

What an engine decides is taken from its model, one release at a time; what a plan does is taken from its bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jsonpatch
import pytest
from checkpoints import FORMATS, MODELS, build, fronts, qwen3_5, qwen3_next, rewritten, right_list
from drawn import Case, cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtpfix.analysis import analyse, wanted_releases
from mtpfix.decisions import Judge, Table, judges, tables, world_of
from mtpfix.engines.registry import ENGINES
from mtpfix.formats import format_of
from mtpfix.model import Checkpoint, Report
from mtpfix.patch import invert, ops
from mtpfix.planning import relevant, solutions, usable
from mtpfix.rules.base import spans
from mtpfix.solve import Solution, contradicts
from mtpfix.splice import splice
from mtpfix.verdicts import mismatch, mismatches

LONG = bool(os.environ.get("MTPFIX_LONG"))
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": not LONG}


def many(short: int, long: int = 2000) -> settings:
    return settings(max_examples=long if LONG else short, **QUIET)  # type: ignore[arg-type]


# (engine, release, part, module) -> decision
Decisions = dict[tuple[str, str, str, str], str]


@dataclass(frozen=True)
class Wrong:
    """A decision that contradicts what is stored, in a way that hurts."""

    engine: str
    release: str
    part: str
    module: str
    decision: str


class Study:
    """A checkpoint, its report, and the checkpoint after its plan."""

    def __init__(self, checkpoint: Checkpoint, scope: Any = "all") -> None:
        self.checkpoint = checkpoint
        self.report: Report = analyse(checkpoint, scope=scope)
        self.scope = scope
        self.wanted = wanted_releases((), self.report.format)
        self.engines = [ENGINES[name] for name in self.wanted]

    @cached_property
    def repaired(self) -> Checkpoint:
        return rewritten(self.checkpoint, self.report.plan.after)

    @cached_property
    def again(self) -> Report:
        return analyse(self.repaired, scope=self.scope) if self.report.plan.edits else self.report

    @cached_property
    def before(self) -> Decisions:
        return decisions(self.checkpoint, self.engines, self.wanted)

    @cached_property
    def after(self) -> Decisions:
        return decisions(self.repaired, self.engines, self.wanted)

    @cached_property
    def left(self) -> set[Wrong]:
        return set(wrongs(self.repaired, self.engines, self.wanted))

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        return {unit.name: unit.stored.scheme.kind for unit in world_of(self.checkpoint).units}

    @cached_property
    def solved(self) -> tuple[Solution, ...]:
        if not self.report.plan.edits:
            return ()
        return tuple(item for item in solutions(world_of(self.checkpoint), self.engines, self.wanted) if not item.empty)


def judged(checkpoint: Checkpoint, engines: Sequence[Any], wanted: Mapping[str, frozenset[str]]) -> Iterator[Table]:
    world = world_of(checkpoint)
    yield from tables(world, usable(world, relevant(judges(world, engines), wanted)))


def decisions(checkpoint: Checkpoint, engines: Sequence[Any], wanted: Mapping[str, frozenset[str]]) -> Decisions:
    return {
        (table.judge.engine.name, release, table.judge.part, row.unit.name): answer.decision
        for table in judged(checkpoint, engines, wanted)
        for release in table.judge.profile.releases
        for row, answer in table.decided
    }


def wrongs(
    checkpoint: Checkpoint, engines: Sequence[Any], wanted: Mapping[str, frozenset[str]]
) -> Iterator[Wrong]:
    world = world_of(checkpoint)
    for table in judged(checkpoint, engines, wanted):
        for item in mismatches(world, table):
            if contradicts(item.row.unit, item.answer):
                for release in table.judge.profile.releases:
                    yield Wrong(
                        table.judge.engine.name, release, table.judge.part, item.row.unit.name, item.answer.decision
                    )


def covered(text: str, engine: str, release: str) -> bool:
    """Whether a range such as `vllm>=0.17,<0.25` holds a release."""
    from mtpfix.releases import key

    name, *bounds = text.replace(">=", ",>=").replace("<", ",<").split(",")
    tests = {">=": lambda bound: key(release) >= key(bound), "<": lambda bound: key(release) < key(bound)}
    found = [bound for bound in bounds if bound]
    return name == engine and all(
        tests[">=" if bound.startswith(">=") else "<"](bound.lstrip("<>=")) for bound in found
    )


def named(report: Report, wrong: Wrong, fixes: Sequence[str] = ("safe", "unsafe", "none")) -> bool:
    """Whether a finding names a module in an engine's release."""
    return any(
        finding.fix in fixes
        and wrong.module in finding.modules
        and any(covered(text, wrong.engine, wrong.release) for text in finding.engines)
        for finding in report.findings
    )


# --- laws 1 and 2 -----------------------------------------------------------------------------------------------------


def sound(study: Study) -> None:
    for at, old in study.before.items():
        if old == "quantized" and study.kinds[at[3]] != "plain":
            assert study.after[at] != "plain", f"{at} became plain"
    assert study.report.plan.certificate.newly_plain_quantized == 0
    for at, old in study.before.items():
        if old == "plain" and study.kinds[at[3]] == "plain":
            assert study.after[at] == "plain", f"{at} was right and is {study.after[at]}"


def complete(study: Study) -> None:
    for wrong in study.left:
        assert named(study.again, wrong), f"{wrong} and no finding after the plan"
        assert named(study.report, wrong, ("none", "unsafe")), f"{wrong} and no finding that says that it stays"


def truthful(study: Study) -> None:
    """What the status promises is what apply does."""
    report, again = study.report, study.again
    if report.status == "fixable":
        assert again.status == "clean", [finding for finding in again.findings if finding.severity == "error"]
    if report.status == "partly-fixable":
        assert report.plan.edits
        promised = {finding.rule for finding in report.findings if finding.severity == "error" and finding.fix != "safe"}
        errors = {finding.rule for finding in again.findings if finding.severity == "error"}
        assert errors
        assert errors <= promised
    if report.status in ("clean", "not-fixable"):
        assert not report.plan.edits


def idempotent(study: Study) -> None:
    assert study.again.plan.edits == ()


def byte_true(study: Study) -> None:
    plan = study.report.plan
    assert set(plan.before) == set(plan.after) == {edit.file for edit in plan.edits}
    for name, patch in ops(plan.edits).items():
        old, new = plan.before[name], plan.after[name]
        assert old == study.checkpoint.files[name].raw
        assert json.loads(new) == jsonpatch.apply_patch(json.loads(old), patch)
        assert list(pairs(json.loads(new))) == list(pairs(json.loads(new)))
        touched = {json.dumps(edit.value) for edit in plan.edits if edit.file == name and edit.op == "add"}
        lost = set(lines(old)) - set(lines(new))
        gone = {text for text in lost if not removed_text(text, json.loads(old), patch)}
        assert not gone, gone
        assert touched is not None


def pairs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from pairs(item)


def lines(raw: bytes) -> list[str]:
    return [line.strip().rstrip(",") for line in raw.decode().splitlines()] if raw.count(b"\n") > 3 else []


def removed_text(line: str, value: Any, patch: list[dict[str, Any]]) -> bool:
    """Whether a line is an entry that the patch takes out, or a list that it writes anew."""
    return any(op["op"] in ("remove", "replace") for op in patch) or line in ("", "[", "{", "}", "]") or line.endswith(
        ("[]", "{}")
    )


@many(110)
@given(cases())
def test_repairs_are_sound_complete_truthful_and_final(case: Case) -> None:
    study = Study(case.build())
    sound(study)
    complete(study)
    truthful(study)
    idempotent(study)
    byte_true(study)
