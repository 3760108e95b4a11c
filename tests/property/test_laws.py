"""The laws of the design over generated checkpoints. MTPFIX_LONG=1 tries thousands of them.

What an engine decides is taken from its model, one release at a time; what a plan does is taken from its bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jsonpatch
from checkpoints import rewritten
from drawn import Case, cases
from hypothesis import HealthCheck, given, settings

from mtpfix.analysis import analyse, wanted_releases
from mtpfix.decisions import Row, Table, World, judges, tables, world_of
from mtpfix.engines.registry import ENGINES
from mtpfix.families.base import LIST_LAYERS
from mtpfix.formats import format_of
from mtpfix.model import Answer, Cause, Checkpoint, Report
from mtpfix.patch import ops
from mtpfix.planning import relevant, solutions, usable
from mtpfix.solve import Solution, contradicts
from mtpfix.solve import rewritten as changed
from mtpfix.verdicts import mismatch

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

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.engine, self.release, self.part, self.module


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
    def hurt(self) -> set[Wrong]:
        return set(wrongs(self.checkpoint, self.engines, self.wanted))

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


def wrongs(checkpoint: Checkpoint, engines: Sequence[Any], wanted: Mapping[str, frozenset[str]]) -> Iterator[Wrong]:
    world = world_of(checkpoint)
    for table in judged(checkpoint, engines, wanted):
        for row, answer in table.decided:
            if hurts(world, table, row, answer):
                for release in table.judge.profile.releases:
                    yield Wrong(table.judge.engine.name, release, table.judge.part, row.unit.name, answer.decision)


def hurts(world: World, table: Table, row: Row, answer: Answer) -> bool:
    """Whether a decision contradicts storage and keeps the module from loading; what strikes any decision is out."""
    if not contradicts(row.unit, answer):
        return False
    value = table.fragment.value if table.fragment else {}
    found = mismatch(world, table.judge, value, row, answer)
    if found is None or found.fault is None or not row.unit.stored.plain:
        return found is not None
    right = mismatch(world, table.judge, value, row, Answer("plain", Cause()))
    return right is None or right.fault is not found.fault


def ceded(checkpoint: Checkpoint, engines: Sequence[Any], wanted: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    """Engine releases whose draft asks for a plain module by a name of a quantized one of the target: never mended."""
    names: dict[tuple[str, str, str, str], set[str]] = {}
    for table in judged(checkpoint, engines, wanted):
        for row in table.judge.rows:
            kind = row.unit.stored.scheme.kind
            if row.ask is not None and row.ask.layer in LIST_LAYERS and not row.specials:
                for release in table.judge.profile.releases:
                    at = (table.judge.engine.name, release, table.judge.part, kind)
                    names.setdefault(at, set()).add(row.ask.runtime)
    return {
        (engine, release)
        for (engine, release, part, kind), found in names.items()
        if part == "draft" and kind == "plain" and found & names.get((engine, release, "target", "quantized"), set())
    }


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
    lost = ceded(study.checkpoint, study.engines, study.wanted)
    old = {wrong.key for wrong in study.hurt}
    fresh = {
        wrong.key for wrong in study.left if wrong.part != "draft" or (wrong.engine, wrong.release) not in lost
    } - old
    assert not fresh, f"was right and is not any more: {sorted(fresh)[:3]}"


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
        promised = {
            finding.rule for finding in report.findings if finding.severity == "error" and finding.fix != "safe"
        }
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
    return (
        any(op["op"] in ("remove", "replace") for op in patch)
        or line in ("", "[", "{", "}", "]")
        or line.endswith(("[]", "{}"))
    )


# --- what a better repair could still do ------------------------------------------------------------------------------


Entries = tuple[str, ...]
ESCAPED = {"compressed-tensors": "re:^{}$", "gptq": "-:^{}$"}


def candidates(fmt: str, runtime: str, packed: Mapping[str, Entries]) -> Iterator[Entries]:
    """Sets of entries for one runtime name in a format's dialects, the plainest first."""
    head, _, leaf = runtime.rpartition(".")
    names = [f"{head}.{shard}" if head else shard for shard in packed.get(leaf, ())]
    if fmt == "gptq":
        yield (f"-:^{escaped(runtime)}$",)
        return
    yield (runtime,)
    if names:
        yield tuple(names)
        yield (*names, runtime)
    if fmt == "compressed-tensors":
        yield (f"re:^{escaped(runtime)}$",)
        yield tuple(f"{runtime}.0.{leaf}" for leaf in ("gate_proj", "up_proj", "down_proj"))
        yield (f"re:^{escaped(runtime)}\\..*",)
    if fmt == "modelopt":
        yield (f"{runtime}*",)
    if fmt == "fp8" and "." in runtime:
        yield (head,)


def escaped(name: str) -> str:
    return name.replace(".", r"\.")


class Bench:
    """A repaired checkpoint whose lists can be tried on."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.world = world_of(study.repaired)
        self.judges = usable(self.world, relevant(judges(self.world, study.engines), study.wanted))
        self.tables = tables(self.world, self.judges)
        self.states: dict[tuple[tuple[str, Entries], ...], tuple[Table, ...]] = {}

    def with_entries(self, file: str, entries: Sequence[str]) -> tuple[Table, ...]:
        """The tables with more entries in one file's list."""
        found = next(table.fragment for table in self.tables if table.fragment and table.fragment.file == file)
        fmt = format_of(found.value)
        where = fmt.exclusions(found.value) if fmt else None
        assert where is not None
        value = changed(found.value, where, (), list(entries))
        old = self.world.files[file]
        text = placed(old.value, found.pointer, value)
        return tables(self.world, self.judges, {**self.world.files, file: replace(old, value=text)})

    def harmless(self, new: Sequence[Table]) -> bool:
        for one, other in zip(self.tables, new, strict=True):
            for (row, old), (_, answer) in zip(one.decided, other.decided, strict=True):
                if old.decision == "quantized" and answer.decision == "plain" and not row.unit.stored.plain:
                    return False
                if not self.wrong(one, row, old) and self.wrong(other, row, answer):
                    return False
        return True

    def wrong(self, table: Table, row: Row, answer: Answer) -> bool:
        return hurts(self.world, table, row, answer)

    def missing(self, table: Table) -> list[Any]:
        return [
            row
            for row, answer in table.decided
            if answer.decision == "quantized" and row.unit.stored.plain and self.wrong(table, row, answer)
        ]


def placed(value: Any, pointer: str, new: Any) -> Any:
    first, _, rest = pointer.removeprefix("/").partition("/")
    return {**value, first: placed(value[first], rest, new)} if first else new


def sharp(study: Study) -> None:
    """No engine is left with missing entries that could have been added without harm."""
    bench = Bench(study)
    for at, table in enumerate(bench.tables):
        missing = bench.missing(table)
        if not missing or table.fragment is None or not study.report.format:
            continue
        fmt = format_of(table.fragment.value)
        if fmt is None or fmt.exclusions(table.fragment.value) is None:
            continue
        added: list[str] = []
        for row in missing:
            assert row.ask is not None
            for found in candidates(fmt.name, row.ask.runtime, table.judge.packed):
                trial = [*added, *found]
                new = bench.with_entries(table.fragment.file, trial)
                if row not in bench.missing(new[at]) and bench.harmless(new):
                    added = trial
                    break
            else:
                break
        else:
            raise AssertionError(f"{table.judge.profile} {table.judge.part}: {added} would have mended it")


# --- law 3 ------------------------------------------------------------------------------------------------------------


def hurt(checkpoint: Checkpoint, study: Study) -> set[Wrong]:
    return set(wrongs(checkpoint, study.engines, study.wanted))


def without(study: Study, solution: Solution, entry: str) -> Checkpoint:
    """The repaired checkpoint without one of the entries that the plan added."""
    file = study.repaired.files[solution.fragment.file]
    value = json.loads(file.raw)
    inner = value
    for step in (solution.fragment.pointer + solution.where.pointer).split("/")[1:]:
        inner = inner[step]
    if isinstance(inner, dict):
        del inner[entry]
    else:
        inner.remove(entry)
    return rewritten(study.repaired, {file.name: json.dumps(value).encode()})


def minimal(study: Study) -> None:
    world = world_of(study.checkpoint)
    for solution in study.solved:
        entries = [item.entry for item in solution.added]
        assert len(set(entries)) == len(entries)
        kept = {entry for at, entry in zip(solution.where.places, solution.where.entries, strict=True)
                if at not in solution.removed}  # fmt: skip
        assert not kept & set(entries), "an entry is written twice"
        if solution.fragment.file != "config.json":
            continue
        for item in solution.added:
            if item.role == "alias":
                assert hurt(without(study, solution, item.entry), study) - study.left, f"{item} is not needed"
        faithful(study, world, solution, [*kept, *entries])


def faithful(study: Study, world: Any, solution: Solution, entries: Sequence[str]) -> None:
    """Every draft module that the plan mends is named as the checkpoint names it, and without its wrapper too."""
    fmt = format_of(solution.fragment.value)
    assert fmt is not None
    if solution.added and all(item.part == "target" for item in solution.added):
        return
    mended = {
        wrong.module for wrong in study.hurt - study.left if wrong.part == "draft" and wrong.decision == "quantized"
    }
    wrapper = world.family.wrapper if world.family else None
    for unit in world.units:
        if unit.name not in mended or not unit.draft or not unit.stored.plain:
            continue
        names = [unit.name]
        if wrapper and unit.name.startswith(wrapper[0]):
            names.append(wrapper[1] + unit.name.removeprefix(wrapper[0]))
        for name in names:
            if any(fmt.covers(entry, name) for entry in entries):
                continue
            holder = name.partition(".experts.")[0] + ".experts" if ".experts." in name else name
            bench = Bench(study)
            spelled = next(iter(candidates(fmt.name, holder, {})))
            assert not bench.harmless(bench.with_entries(solution.fragment.file, spelled)), f"no entry names {name}"


# --- law 8 ------------------------------------------------------------------------------------------------------------


def verdicts(report: Report) -> dict[tuple[str, str, str], str]:
    return {(row.engine, release, row.part): row.verdict for row in report.engines for release in row.releases}


def unordered(study: Study, case: Case) -> None:
    if case.fmt == "gptq":
        return
    other = analyse(case.build(seed=1), scope="all")
    assert verdicts(other) == verdicts(study.report)
    assert other.status == study.report.status


@many(110)
@given(cases())
def test_repairs_are_sound_complete_truthful_and_final(case: Case) -> None:
    study = Study(case.build())
    sound(study)
    complete(study)
    truthful(study)
    idempotent(study)
    byte_true(study)
