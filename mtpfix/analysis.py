"""A checkpoint to a report: judges, verdicts, plan and findings put together (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from mtpfix import releases
from mtpfix.alike import NONE, Alike
from mtpfix.asked import Wanted, left_out, shown, wanted_releases, words
from mtpfix.checkpoint.jsonfiles import NAMES, parse_json
from mtpfix.checkpoint.reading import paused_collection
from mtpfix.decisions import Judge, Table, judges, list_in, tables, tables_under
from mtpfix.engines.registry import ENGINES
from mtpfix.errors import UnreadableError
from mtpfix.families.base import Note
from mtpfix.forced import forced
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
from mtpfix.solving.solution import Solution
from mtpfix.storage.modules import tensors_of
from mtpfix.verdicts import Mismatch, engine_row, mismatches, rank_of
from mtpfix.world import Unit, World, world_of

if TYPE_CHECKING:
    from mtpfix.atlas import Tabled
    from mtpfix.mending import Mending
    from mtpfix.rebuild import Rebuild

Scope = Literal["mtp", "all"]
# For a method that a flag names, not config.json (vllm-0.33.0 model_executor/layers/quantization/auto_gptq.py:187,
# auto_awq.py:238; sglang-0.5.23 srt/layers/quantization/gptq/gptq.py:144, awq/awq.py:121).
_FLAGGED = ("quantize_config.json", "quant_config.json")
_FLAG_ONLY = (
    "engines read it only where --quantization names the method, since config.json holds no quantization config"
)
_COPIES = (
    "consolidated*.safetensors lie beside the other files: vLLM opens them alone where --load-format is left at auto; "
    "the other engines go by the other files"
)


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A tensor of the draft. `declared`: what vLLM's newest modelled release decides about its module."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    stored: str
    declared: str


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
    asked = asked_about(world, engines)
    study = _Study(world, asked, NONE if atlas else world.alike)
    report = study.report(asked.fmt, scope, unsafe)
    return replace(report, atlas=study.atlas(bool(report.plan.edits))) if atlas else report


def repaired(checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> Checkpoint:
    """The checkpoint with other contents of some JSON files; UnreadableError where one does not parse."""
    for name in contents.keys() - set(NAMES):
        from mtpfix.rebuild import reindexed

        checkpoint = reindexed(checkpoint, name, contents[name])
    parsed = {name: parse_json(name, raw)[0] for name, raw in contents.items() if name in NAMES}
    return replace(checkpoint, files={**checkpoint.files, **parsed})


def _format_name(world: World) -> str:
    """The format's name, the method's own name where mtpfix has no file for it, or "" without a config."""
    for fragment in editable(world.files):
        fmt = format_of(fragment.value)
        return fmt.name if fmt else str(fragment.value.get("quant_method", "unknown"))
    return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about.

    wanted  the releases of each engine that a plan must satisfy
    specs   how they were named; then no others are shown
    """

    wanted: Wanted
    fmt: str
    specs: tuple[str, ...]

    def judges(self, world: World, alike: Alike) -> tuple[Judge, ...]:
        """The judges that are shown."""
        if not self.specs:
            return judges(world, [ENGINES[name] for name in shown(self.fmt)], alike=alike)
        return relevant(judges(world, [ENGINES[name] for name in self.wanted], alike=alike), self.wanted)

    def others(self, world: World, alike: Alike) -> tuple[Judge, ...]:
        """The judges of every other release, whom no plan may harm."""
        rest = {name: _every(name) - self.wanted.get(name, frozenset()) for name in shown(self.fmt)}
        return relevant(judges(world, [ENGINES[name] for name, some in rest.items() if some], alike=alike), rest)

    def note(self, plan: Plan) -> tuple[str, ...]:
        """That others were not looked at, where they were not."""
        if not left_out(self.wanted, self.fmt):
            return ()
        spared = "" if plan.empty or plan.index or plan.renames else "; what the plan changes harms none of them"
        return (f"only {words(self.wanted)} was asked about: other engines and releases may differ{spared}",)


def asked_about(world: World, engines: Sequence[str]) -> Asked:
    """What `--engine` asks about of a checkpoint. Raises UsageError for a spec that names no release."""
    fmt = _format_name(world)
    return Asked(wanted_releases(engines, fmt), fmt, tuple(engines))


_GIVEN_UP = (
    "{}: its list takes too long to work out and is not repaired to the end; where a module is said to be wrong "
    "whatever the lists say, one may help that was not found"
)


class _Study:
    """One analysis: the tables before and after the plan, and what follows from them."""

    def __init__(self, world: World, asked: Asked, alike: Alike) -> None:
        self.world, self.asked = world, asked
        self.given_up: tuple[str, ...] = ()
        self._unwritten = ""  # why an index is not written
        self._judge(alike)
        self.solutions = self._solutions(alike)
        if any(world.hides(item.where, item.removed) for item in self.solutions):  # see idle.py
            self.world = world = replace(world, thins=False)
            alike = NONE if alike is NONE else world.alike
            self._judge(alike)
            self.solutions = self._solutions(alike)
        if alike.told_apart(text for item in self.solutions for text in item.texts):
            self._judge(NONE)
        self.files = changed_files(world, self.solutions)
        self.after = tables(world, self.judges, self.files) if self.solutions else self.before
        self.left = self.wrong if not self.solutions else {
            id(table.judge): list(mismatches(world, table)) for table in self.after
        }  # fmt: skip
        self.rows_before = self.rows(self.before, self.wrong)
        self.rows_after = self.rows(self.after, self.left) if self.solutions else self.rows_before
        if self._unsound() or self._only_harms():
            self.solutions, self.files, self.after, self.left = (), dict(world.files), self.before, self.wrong
            self.rows_after = self.rows_before

    def _judge(self, alike: Alike) -> None:
        """What is decided, and what of it is wrong, in the files as they are."""
        self.alike, self.judges = alike, self.asked.judges(self.world, alike)
        self.before = tables(self.world, self.judges)
        self.wrong = {id(table.judge): list(mismatches(self.world, table)) for table in self.before}
        self.in_plan = tuple(id(judge) for judge in usable(self.world, relevant(self.judges, self.asked.wanted)))

    def _solutions(self, alike: Alike) -> tuple[Solution, ...]:
        """The changes worth making; none where every judge of the plan is content with both files.

        Where those for the releases of the plan would harm others, the engines of these join in. What harms an engine
        all the same is no change that anybody asked for by name; without a name the engines of the plan come first.
        """
        if not any(self.wrong[at] for at in self.in_plan) and not self._sidecar_differs(self.world.files):
            return ()
        wanted = self.asked.wanted
        found = first = self._solved(wanted, alike)
        while harmed := self._harmed_by(found):
            more = harmed - {name for name, some in wanted.items() if some >= _every(name)}
            if not more:
                break
            wanted = {**wanted, **{name: _every(name) for name in more}}
            found = self._solved(wanted, alike)
        if not harmed or not self._harmed_by(found, modules=False):
            return found
        return () if self.asked.specs else first

    def _solved(self, wanted: Wanted, alike: Alike) -> tuple[Solution, ...]:
        some = [ENGINES[name] for name in wanted]
        found = solutions(self.world, some, wanted, alike)
        self.given_up = tuple(dict.fromkeys(item.fragment.file for item in found if item.given_up))
        return tuple(item for item in found if not item.empty)

    def _harmed_by(self, found: Sequence[Solution], *, modules: bool = True) -> set[str]:
        """The engines of which a change makes a part load worse in a release that is not in the plan.

        modules  also where it makes a single module wrong, though the part loads no better without it
        """
        if not found:
            return set()
        apart = self.alike.told_apart(text for item in found for text in item.texts)
        some = self.asked.others(self.world, NONE if apart else self.alike)
        pairs = zip(tables(self.world, some), tables(self.world, some, changed_files(self.world, found)), strict=True)
        worse = (old.judge for old, new in pairs if old.decided != new.decided and self._is_worse(old, new, modules))
        return {judge.engine.name for judge in worse}

    def _is_worse(self, before: Table, after: Table, modules: bool) -> bool:
        old, new = (list(mismatches(self.world, table)) for table in (before, after))
        if rank_of(self._row(after, new).verdict) > rank_of(self._row(before, old).verdict) or _unsound(before, after):
            return True
        known = {item.row.unit.name for item in old}
        return modules and any(item.row.unit.name not in known for item in new)

    def _unsound(self) -> bool:
        """Whether the changes make anything plain that is not stored plain, in the files as the engines read them."""
        pairs = zip(self.before, self.after, strict=True)
        return any(id(before.judge) in self.in_plan and _unsound(before, after) for before, after in pairs)

    def _only_harms(self) -> bool:
        """Whether some release of the plan loads a part worse after the changes, and none loads one better: then what
        the lists say is not what is wrong. (A plain projection beside a quantized one that SGLang has to find so.)"""
        if not self.solutions:
            return False
        pairs = zip(self.rows_before, self.rows_after, self.before, strict=True)
        gains = [
            rank_of(old.verdict) - rank_of(new.verdict) for old, new, table in pairs if id(table.judge) in self.in_plan
        ]
        return min(gains, default=0) < 0 and max(gains) <= 0

    def _sidecar_differs(self, files: Mapping[str, JsonFile]) -> bool:
        lists = []
        for fragment in editable(files):
            _, where = list_in(self.world, fragment.value)
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
        stand_in = in_config(self.world, files)
        if stand_in is None or not self._sidecar_differs(files):
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

    @property
    def _after_in_plan(self) -> list[Table]:
        """The same tables after the plan."""
        return [
            after for before, after in zip(self.before, self.after, strict=True) if id(before.judge) in self.in_plan
        ]

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
            try:
                found = mended(self.world, tried, lambda: self._rebuild)
            except UnreadableError as error:  # the index would be longer than what mtpfix reads
                self._unwritten = f"mtpfix would not read it again: {error}"
                continue
            if found is None:
                continue
            if not tried and found.change and found.change.created:
                return found, self  # engines open the same files as before
            of = world_of(found.checkpoint)
            study = _Study(of, self.asked, of.alike)
            if self._no_worse(study, ("target", "draft") if tried else ("target",)):
                return found, study
        return None

    def _no_worse(self, study: _Study, parts: Sequence[Part]) -> bool:
        """Whether after another study's plan no release is worse off with some parts than before, named or not."""
        now = _by_release((*self.rows_before, *self._rows_of_others(self.world.files)))
        then = _by_release((*study.rows_after, *study._rows_of_others(study.files)))
        return all(rank_of(then[at]) <= rank_of(now[at]) for at in now.keys() & then.keys() if at[2] in parts)

    def _rows_of_others(self, files: Mapping[str, JsonFile]) -> Iterator[EngineRow]:
        """The matrix of releases that are not shown."""
        hidden = self.asked.others(self.world, NONE) if self.asked.specs else ()
        for table in tables(self.world, hidden, files):
            yield self._row(table, list(mismatches(self.world, table)))

    def _row(self, table: Table, wrong: list[Mismatch]) -> EngineRow:
        return engine_row(table, wrong, forced(self.world, table))

    def rows(self, decided: Sequence[Table], wrong: Mapping[int, list[Mismatch]]) -> tuple[EngineRow, ...]:
        """The verdict matrix of some tables."""
        return tuple(self._row(table, wrong[id(table.judge)]) for table in decided)

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
            rows_before=self.rows_before,
            rows_after=self.rows_after,
            solutions=self.solutions,
            claims=claims(world, tabled, self._after_in_plan, _in_scope(found, left, scope), left),
            sidecar=self.sidecar(),
            reindex=self._reindex(),
            renames=self._renames(),
        )
        out = [finding for rule in RULES for finding in rule.check(context)]
        order = {"error": 0, "warning": 1, "note": 2}
        return tuple(sorted(out, key=lambda finding: (order[finding.severity], finding.part != "draft", finding.rule)))

    @cached_property
    def _rebuild(self) -> Rebuild:
        from mtpfix.mending import rebuilt

        return rebuilt(self.world)

    def _reindex(self) -> Rebuild | None:
        if not self._is_out_of_step():
            return None
        found = self._rebuild
        if found.change is not None and (self.mended is None or self.mended[0].change is None):
            harm = "an engine that loads the target now would not any more"
            return replace(found, change=None, reason=self._unwritten or harm)
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

        before = _tabled(self.before, self.rows_before, self.wrong)
        return atlas_of(self.world, before, _tabled(self.after, self.rows_after, self.left) if changed else before)

    def report(self, fmt: str, scope: Scope, unsafe: bool) -> Report:
        world, checkpoint = self.world, self.world.checkpoint
        found = self.findings(scope)
        configs = tuple(Location(each.file, each.pointer) for each in editable(world.files))
        places = [*configs, *(place for finding in found for place in finding.locations)]
        plan = self.plan(found, scope, unsafe)
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
            engines=self.rows_before,
            findings=found,
            plan=plan,
            notes=(*self.asked.note(plan), *map(_GIVEN_UP.format, self.given_up), *_notes(world, self.judges)),
            asked=self.asked.specs,
            configs=configs,
            texts={place.file: world.files[place.file].raw for place in places if place.file in world.files},
            after=() if plan.empty else self._rows_after(plan, unsafe),
        )

    def _rows_after(self, plan: Plan, unsafe: bool) -> tuple[EngineRow, ...]:
        """The verdict matrix of the checkpoint as the plan leaves it; where counts change, it is looked at anew."""
        last = self.mended[1] if unsafe and self.mended else self
        if not (unsafe and count_edits(last.world)):
            return last.rows_after
        new = repaired(last.world.checkpoint, {name: raw for name, raw in plan.after.items() if name in NAMES})
        world = world_of(new)
        study = _Study(world, self.asked, world.alike)
        return study.rows_before


def _tabled(decided: Sequence[Table], rows: Sequence[EngineRow], wrong: Mapping[int, list[Mismatch]]) -> list[Tabled]:
    return list(zip(decided, rows, (wrong[id(table.judge)] for table in decided), strict=True))


def _every(engine: str) -> frozenset[str]:
    """Every modelled release of an engine."""
    return frozenset(releases.modelled(engine))


def _unsound(before: Table, after: Table) -> bool:
    """Whether anything that is not stored plain is newly taken for plain."""
    return any(
        (old.decision, new.decision) == ("quantized", "plain") and not row.unit.stored.plain
        for (row, old), (_, new) in zip(before.decided, after.decided, strict=True)
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
    modules = world.draft_modules
    dtypes = Counter(cell.dtype for raw in modules for cell in raw.cells)
    return Draft(
        declared=world.declared,
        stored=world.stored_layers,
        tensors=dtypes.total(),
        dtypes=dict(dtypes.most_common()),
        modules=len(modules),
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
    return unit.members


def _notes(world: World, shown: Sequence[Judge]) -> tuple[str, ...]:
    """Remarks that are no findings: an unknown family, problems met while reading, what the family file warns of."""
    notes = [f"{problem.file}: {problem.message}" for problem in world.checkpoint.problems]
    if world.checkpoint.consolidated:
        notes.append(_COPIES)
    if not editable(world.files):
        notes += [f"{name}: {_FLAG_ONLY}" for name in _FLAGGED if name in world.files]
    if world.family is None:
        notes.append(f"the model family is unknown: {world.family_reason}; only storage was analysed")
    else:
        releases_of = {(judge.engine.name, name) for judge in shown for name in judge.profile.releases}
        notes.extend(note.text for note in world.family.notes if _concerns(note, releases_of))
    return tuple(notes)


def _concerns(note: Note, shown: Iterable[tuple[str, str]]) -> bool:
    """Whether a remark is about any release that is shown."""
    return not note.engine or any(engine == note.engine and releases.holds(name, note.span) for engine, name in shown)


__all__ = ["DraftRow", "VerdictKind", "analyse", "draft_rows", "repaired", "status_of", "wanted_releases"]
