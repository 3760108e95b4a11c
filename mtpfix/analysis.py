"""A checkpoint to a report: judges, verdicts, plan and findings put together (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from mtpfix import releases
from mtpfix.alike import NONE, Alike
from mtpfix.checkpoint.jsonfiles import NAMES, parse_json
from mtpfix.checkpoint.reading import paused_collection
from mtpfix.decisions import Judge, Table, Unit, World, judges, tables, tables_under, world_of
from mtpfix.engines.registry import ENGINES
from mtpfix.errors import UsageError
from mtpfix.formats import format_of
from mtpfix.frozen import dataclass, replace
from mtpfix.model import (
    Atlas,
    Checkpoint,
    Draft,
    EngineRow,
    Finding,
    Index,
    JsonFile,
    Location,
    Part,
    Plan,
    Rename,
    Report,
    Status,
    VerdictKind,
)
from mtpfix.planning import (
    build,
    changed_files,
    count_edits,
    editable,
    held_counts,
    in_config,
    reads_sidecar,
    relevant,
    solutions,
    usable,
)
from mtpfix.rules import RULES
from mtpfix.rules.base import Claim, Context, Key, key_of
from mtpfix.rules.claims import claims
from mtpfix.solve import Solution
from mtpfix.storage.modules import tensors_of
from mtpfix.verdicts import Mismatch, engine_row, forced, mismatches, rank_of

if TYPE_CHECKING:
    from mtpfix.atlas import Tabled
    from mtpfix.mending import Mending
    from mtpfix.rebuild import Rebuild

Scope = Literal["mtp", "all"]
Wanted = Mapping[str, frozenset[str]]
_Choose = Callable[[World, Alike], tuple[Judge, ...]]
_SPEC = re.compile(r"(?P<name>[a-z][a-z-]*)(?P<rest>(?:(?:>=|<=|==|<|>)[^,<>=]+,?)*)$")
_BOUND = re.compile(r"(>=|<=|==|<|>)([^,<>=]+)")


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A tensor of the draft. `declared`: what vLLM's newest modelled release decides about its module."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    stored: str
    declared: str


def wanted_releases(specs: Sequence[str], fmt: str) -> dict[str, frozenset[str]]:
    """The releases of each engine that a plan must satisfy; raises UsageError for a spec that names none.

    Without specs: every modelled release of vLLM and SGLang, and TensorRT-LLM for ModelOpt checkpoints.
    """
    if not specs:
        names = ("vllm", "sglang", *(("tensorrt-llm",) if fmt == "modelopt" else ()))
        return {name: frozenset(releases.modelled(name)) for name in names}
    out: dict[str, frozenset[str]] = {}
    for spec in specs:
        name, found = _chosen(spec)
        out[name] = out.get(name, frozenset()) | found
    return out


def _chosen(spec: str) -> tuple[str, frozenset[str]]:
    parsed = _SPEC.match(spec.replace(" ", ""))
    if parsed is None or parsed["name"] not in ENGINES:
        raise UsageError(
            f"no such engine: {spec}",
            subject=spec,
            hint=f"write one of {', '.join(ENGINES)}, with a range if you like: 'vllm>=0.20,<0.26'",
        )
    bounds = _BOUND.findall(parsed["rest"])
    every = releases.modelled(parsed["name"])
    found = frozenset(name for name in every if all(_within(name, op, bound) for op, bound in bounds))
    if not found:
        raise UsageError(
            f"no modelled release of {parsed['name']} fits {spec}",
            subject=spec,
            hint=f"modelled are {every[0]} to {every[-1]}: mtpfix engines",
        )
    return parsed["name"], found


def _within(name: str, op: str, bound: str) -> bool:
    one, other = releases.key(name), releases.key(bound)
    return {">=": one >= other, "<=": one <= other, "==": one == other, "<": one < other, ">": one > other}[op]


@paused_collection()
def analyse(
    checkpoint: Checkpoint,
    *,
    engines: Sequence[str] = (),
    scope: Scope = "mtp",
    unsafe: bool = False,
    atlas: bool = False,
) -> Report:
    """Everything there is to say about a checkpoint. Raises UsageError for an engine that is not modelled.

    unsafe  the plan holds the fixes that change what engines build (draft counts) too
    atlas   the report holds the decisions on every module
    """
    world = world_of(checkpoint)
    fmt = format_name(world)
    wanted = wanted_releases(engines, fmt)
    shown = [ENGINES[name] for name in (wanted if engines else ENGINES)]

    def choose(of: World, alike: Alike) -> tuple[Judge, ...]:
        return shown_judges(judges(of, shown, alike=alike), wanted if engines else None)

    study = _Study(world, choose, wanted, NONE if atlas else world.alike)
    report = study.report(fmt, scope, unsafe)
    return replace(report, atlas=study.atlas(bool(report.plan.edits))) if atlas else report


def repaired(checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> Checkpoint:
    """The checkpoint with other contents of some JSON files; UnreadableError where one does not parse."""
    for name in contents.keys() - set(NAMES):
        from mtpfix.rebuild import reindexed

        checkpoint = reindexed(checkpoint, name, contents[name])
    parsed = {name: parse_json(name, raw)[0] for name, raw in contents.items() if name in NAMES}
    return replace(checkpoint, files={**checkpoint.files, **parsed})


def format_name(world: World) -> str:
    """The format's name, the method's own name where mtpfix has no file for it, or "" without a config."""
    for fragment in editable(world.files):
        fmt = format_of(fragment.value)
        return fmt.name if fmt else str(fragment.value.get("quant_method", "unknown"))
    return ""


def shown_judges(found: Sequence[Judge], wanted: Wanted | None) -> tuple[Judge, ...]:
    return tuple(found) if wanted is None else relevant(found, wanted)


class _Study:
    """One analysis: the tables before and after the plan, and what follows from them."""

    def __init__(self, world: World, choose: _Choose, wanted: Wanted, alike: Alike) -> None:
        self.world, self.choose, self.wanted = world, choose, wanted
        self._judge(alike)
        self.solutions = self._solutions(alike)
        if alike.told_apart(text for item in self.solutions for text in item.texts):
            self._judge(NONE)
        self.files = changed_files(world, self.solutions)
        self.after = tables(world, self.judges, self.files) if self.solutions else self.before
        if self._unsound():
            self.solutions, self.files, self.after = (), dict(world.files), self.before
        self.left = self.wrong if not self.solutions else {
            id(table.judge): list(mismatches(world, table)) for table in self.after
        }  # fmt: skip

    def _judge(self, alike: Alike) -> None:
        """What is decided, and what of it is wrong, in the files as they are."""
        self.judges = self.choose(self.world, alike)
        self.before = tables(self.world, self.judges)
        self.wrong = {id(table.judge): list(mismatches(self.world, table)) for table in self.before}
        self.in_plan = tuple(id(judge) for judge in usable(self.world, relevant(self.judges, self.wanted)))

    def _solutions(self, alike: Alike) -> tuple[Solution, ...]:
        """The changes worth making; none where every judge of the plan is content with both files."""
        some = [ENGINES[name] for name in self.wanted]
        if not any(self.wrong[at] for at in self.in_plan) and not self._sidecar_differs():
            return ()
        return tuple(item for item in solutions(self.world, some, self.wanted, alike) if not item.empty)

    def _unsound(self) -> bool:
        """Whether the changes make anything plain that is not stored plain, in the files as the engines read them."""
        return any(
            (old.decision, new.decision) == ("quantized", "plain") and not row.unit.stored.plain
            for before, after in zip(self.before, self.after, strict=True)
            if id(before.judge) in self.in_plan
            for (row, old), (_, new) in zip(before.decided, after.decided, strict=True)
        )

    def _sidecar_differs(self) -> bool:
        lists = []
        for fragment in editable(self.world.files):
            fmt = format_of(fragment.value)
            where = fmt.exclusions(fragment.value) if fmt else None
            lists.append((where.entries, where.broken) if where else ())
        return len(lists) == 2 and lists[0] != lists[1]

    def sidecar(self) -> tuple[Claim, ...]:
        """What the sidecar's list decides wrongly where config.json's decides rightly, now or after the plan."""
        before = self._beside(self.world.files, self.wrong)
        after = self._beside(self.files, self.left) if self.solutions else before
        late = (Claim(item, False) for key, item in after.items() if key not in before)
        return (*(Claim(item, key not in after) for key, item in before.items()), *late)

    def _beside(self, files: Mapping[str, JsonFile], wrong: Mapping[int, list[Mismatch]]) -> dict[Key, Mismatch]:
        """The mismatches under the sidecar's list, for the engines that read config.json, that these do not have."""
        stand_in = in_config(files)
        if stand_in is None or not self._sidecar_differs():
            return {}
        some = [judge for judge in self.judges if id(judge) in self.in_plan and not reads_sidecar(judge.engine, files)]
        known = {key_of(item) for found in wrong.values() for item in found}
        kinds = ("unlisted", "unexpected", "error")
        return {
            key_of(item): item
            for table in tables_under(self.world, some, stand_in[0])
            for item in mismatches(self.world, table)
            if key_of(item) not in known and item.kind in kinds
        }

    @property
    def wrong_in_plan(self) -> list[Mismatch]:
        return [item for at in self.in_plan for item in self.wrong[at]]

    @property
    def tabled(self) -> list[Table]:
        """The tables of the releases that a plan must satisfy."""
        return [table for table in self.before if id(table.judge) in self.in_plan]

    def _is_out_of_step(self) -> bool:
        """Whether the index says something else than the headers, or is missing where it would help."""
        checkpoint = self.world.checkpoint
        if checkpoint.index is None:
            return len(checkpoint.shards) > 1
        return checkpoint.index != Index(checkpoint.index.file) or bool(checkpoint.duplicates)

    @cached_property
    def misnamed(self) -> tuple[Rename, ...]:
        """Scales that only have the wrong name."""
        if not any(item.kind == "scales" for item in self.wrong_in_plan):
            return ()
        from mtpfix.mending import renames

        return renames(self.tabled, self.wrong_in_plan, self.world)

    @cached_property
    def mended(self) -> tuple[Mending, _Study] | None:
        """What mends index and headers, and the checkpoint with it looked at; None where nothing does without harm.

        In a repository on the Hub no header can be edited.
        """
        names = () if self.world.checkpoint.source.kind == "hub" else self.misnamed
        if not names and not self._is_out_of_step():
            return None
        from mtpfix.mending import mended

        for tried in dict.fromkeys((names, ())):
            found = mended(self.world, tried)
            if found is None:
                continue
            if not tried and found.change and found.change.created:
                return found, self  # engines open the same files as before
            of = world_of(found.checkpoint)
            study = _Study(of, self.choose, self.wanted, of.alike)
            if self._no_worse(study, ("target", "draft") if tried else ("target",)):
                return found, study
        return None

    def _no_worse(self, study: _Study, parts: Sequence[Part]) -> bool:
        """Whether after another study's plan no release is worse off with some parts than before."""
        now = _by_release(self.rows(self.before, self.wrong))
        then = _by_release(study.rows(study.after, study.left))
        return all(rank_of(then[at]) <= rank_of(now[at]) for at in now.keys() & then.keys() if at[2] in parts)

    def rows(self, decided: Sequence[Table], wrong: Mapping[int, list[Mismatch]]) -> tuple[EngineRow, ...]:
        """The verdict matrix of some tables."""
        return tuple(engine_row(table, wrong[id(table.judge)], forced(self.world, table)) for table in decided)

    def findings(self, scope: Scope) -> tuple[Finding, ...]:
        """What the rules say, errors first."""
        world = self.world
        found, tabled = self.wrong_in_plan, self.tabled
        left = [item for at in self.in_plan for item in self.left[at]]
        fragment = next(iter(editable(world.files)), None)
        context = Context(
            world=world,
            fmt=format_of(fragment.value) if fragment else None,
            before=tuple(tabled),
            rows_before=self.rows(self.before, self.wrong),
            rows_after=self.rows(self.after, self.left),
            solutions=self.solutions,
            claims=claims(world, tabled, _in_scope(found, left, scope), left),
            sidecar=self.sidecar(),
            reindex=self._reindex(),
            renames=self._renames(),
        )
        out = [finding for rule in RULES for finding in rule.check(context)]
        order = {"error": 0, "warning": 1, "note": 2}
        return tuple(sorted(out, key=lambda finding: (order[finding.severity], finding.part != "draft", finding.rule)))

    def _reindex(self) -> Rebuild | None:
        if not self._is_out_of_step():
            return None
        from mtpfix.mending import rebuilt

        found = rebuilt(self.world)
        if found.change is not None and (self.mended is None or self.mended[0].change is None):
            return replace(found, change=None, reason="an engine that loads the target now would not any more")
        return found

    def _renames(self) -> tuple[Rename, ...]:
        if self.world.checkpoint.source.kind == "hub":
            return self.misnamed
        return self.mended[0].renames if self.mended else ()

    def plan(self, found: Sequence[Finding], scope: Scope, unsafe: bool) -> Plan:
        """The plan; where no finding is fixed safely, the lists stay as they are. With `unsafe` it is made for the
        checkpoint with its index and headers mended."""
        if self.mended is None:
            return self._plan(found, unsafe)
        from mtpfix import mending

        change, study = self.mended
        if unsafe:
            return mending.joined(study._plan(study.findings(scope), unsafe), change)
        held = (*held_counts(count_edits(study.world)), *mending.words(change))
        return replace(self._plan(found, unsafe), held_back=held)

    def _plan(self, found: Sequence[Finding], unsafe: bool) -> Plan:
        useful = any(finding.severity == "error" and finding.fix == "safe" for finding in found)
        return build(self.world, self.solutions if useful else (), self.before, self.after, unsafe=unsafe)

    def atlas(self, changed: bool) -> Atlas:
        """The map, before and, where the plan changes something, after it."""
        from mtpfix.atlas import atlas_of

        before = self._tabled(self.before, self.wrong)
        return atlas_of(self.world, before, self._tabled(self.after, self.left) if changed else before)

    def _tabled(self, decided: Sequence[Table], wrong: Mapping[int, list[Mismatch]]) -> list[Tabled]:
        mine = (wrong[id(table.judge)] for table in decided)
        return list(zip(decided, self.rows(decided, wrong), mine, strict=True))

    def report(self, fmt: str, scope: Scope, unsafe: bool) -> Report:
        world, checkpoint = self.world, self.world.checkpoint
        found = self.findings(scope)
        configs = tuple(Location(each.file, each.pointer) for each in editable(world.files))
        places = [*configs, *(place for finding in found for place in finding.locations)]
        plan = self.plan(found, scope, unsafe)
        last = self.mended[1] if unsafe and self.mended else self
        return Report(
            source=checkpoint.source,
            family=world.family.name if world.family else "unknown",
            family_reason=world.family_reason,
            format=fmt,
            schemes=_schemes(world),
            tensors=checkpoint.tensor_count,
            shards=len(checkpoint.shards),
            draft=_draft(world),
            status=status_of(found),
            engines=self.rows(self.before, self.wrong),
            findings=found,
            plan=plan,
            notes=_notes(world),
            configs=configs,
            texts={place.file: world.files[place.file].raw for place in places if place.file in world.files},
            after=() if plan.empty else last.rows(last.after, last.left),
        )


def _by_release(rows: Iterable[EngineRow]) -> dict[tuple[str, str, Part], VerdictKind]:
    return {(row.engine, release, row.part): row.verdict for row in rows for release in row.releases}


def _in_scope(found: Sequence[Mismatch], left: Sequence[Mismatch], scope: Scope) -> list[Mismatch]:
    """The draft's mismatches and the target's; with scope `all` every one.

    What older releases alone make of the target, whatever the lists say, is in the matrix and no finding of `mtp`.
    """
    stuck = {key_of(item) for item in left}
    hopeless = {(item.judge.engine.name, item.row.unit.name) for item in left if item.judge.profile.latest}
    return [
        item
        for item in found
        if scope == "all"
        or item.judge.part == "draft"
        or key_of(item) not in stuck
        or (item.judge.engine.name, item.row.unit.name) in hopeless
    ]


def status_of(found: Iterable[Finding]) -> Status:
    """The status that the findings of severity error make."""
    errors = [finding.fix == "safe" for finding in found if finding.severity == "error"]
    if not errors:
        return "clean"
    if all(errors):
        return "fixable"
    return "partly-fixable" if any(errors) else "not-fixable"


def _schemes(world: World) -> Mapping[str, int]:
    counted: Counter[str] = Counter()
    for unit in world.units:
        counted[unit.stored.scheme.name] += max(1, len(unit.stored.experts))
    return dict(sorted(counted.items()))


def _draft(world: World) -> Draft:
    rows = draft_tensors(world)
    return Draft(
        declared=world.declared,
        stored=world.stored_layers,
        tensors=len(rows),
        dtypes=dict(Counter(row.dtype for row in rows).most_common()),
        modules=len({row.name.rpartition(".")[0] for row in rows}),
    )


def draft_tensors(world: World) -> tuple[DraftRow, ...]:
    """Every tensor of the draft, norms included, in header order; `declared` is left empty."""
    return tuple(
        DraftRow(*tensor, world.scheme_of(raw.name), "") for raw in world.draft_modules for tensor in tensors_of(raw)
    )


def draft_rows(checkpoint: Checkpoint) -> tuple[DraftRow, ...]:
    """The draft's tensors with what is stored and what vLLM's newest modelled release makes of each module."""
    world = world_of(checkpoint)
    last = [judge for judge in judges(world, [ENGINES["vllm"]]) if judge.profile.latest and judge.part == "draft"]
    declared: dict[str, str] = {}
    for table in tables(world, last):
        for row, answer in table.decided:
            declared.update(dict.fromkeys(members(row.unit), answer.decision))
    return tuple(replace(row, declared=declared.get(row.name.rpartition(".")[0], "")) for row in draft_tensors(world))


def members(unit: Unit) -> tuple[str, ...]:
    """The module names that a unit stands for; a stack of experts answers to its holder's name too."""
    if not unit.stored.experts:
        return (unit.name,) if unit.stored.raw.name == unit.name else (unit.name, unit.stored.raw.name)
    head, _, rest = unit.name.partition(".experts.")
    tail = rest.partition(".")[2]
    return tuple(f"{head}.experts.{number}.{tail}" for number in unit.stored.experts)


def _notes(world: World) -> tuple[str, ...]:
    """Remarks that are no findings: an unknown family, problems met while reading, what the family file warns of."""
    notes = [f"{problem.file}: {problem.message}" for problem in world.checkpoint.problems]
    if world.family is None:
        notes.append(f"the model family is unknown: {world.family_reason}; only storage was analysed")
    else:
        notes.extend(world.family.notes)
    return tuple(notes)


__all__ = ["DraftRow", "VerdictKind", "analyse", "draft_rows", "repaired", "status_of"]
