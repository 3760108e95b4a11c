"""What each engine decides about the modules that a user names, and how the names were understood (pure).

A name comes from the checkpoint (a module, a tensor), from an engine's traceback (the name that it looks a module or a
parameter up by), or it is a path with modules below it. What is none of these is refused with the nearest that is.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

from mtpfix import patterns
from mtpfix.alike import NONE
from mtpfix.analysis import asked_about, members
from mtpfix.decisions import Row, Table, tables
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.model import Answer, Checkpoint, DecisionRow, DecisionRows, Explanation, Reading
from mtpfix.names import MAX_NAME, nearest, shown
from mtpfix.storage.modules import tensors_of
from mtpfix.world import Unit, World, world_of

_WILD = re.compile(r"[*?\[]")
_FEW = 2


def explain(checkpoint: Checkpoint, wanted: Sequence[str], *, engines: Sequence[str] = ()) -> Explanation:
    """What every engine profile decides about the modules that some names or patterns mean, and by which entry.

    Raises UsageError for a name that means no module, and for an engine that is none.
    """
    world = world_of(checkpoint)
    judges = asked_about(world, engines).judges(world, NONE)
    return _Asked(world, tables(world, judges)).explanation(wanted)


@dataclass(frozen=True)
class _Asked:
    """The checkpoint's names and the engines' names, to look up what a user means."""

    world: World
    tables: tuple[Table, ...]

    def explanation(self, wanted: Sequence[str]) -> Explanation:
        readings = tuple(self._reading(asked) for asked in dict.fromkeys(wanted))
        meant = {name for reading in readings for name in reading.modules}
        rows = DecisionRows(self._told(meant))
        told = (*readings, *self._namesakes(wanted)) if rows else readings
        return Explanation(rows, told, "" if rows else self._silence())

    def _told(self, meant: Container[str]) -> Iterator[tuple[str, Sequence[DecisionRow]]]:
        """The modules that are meant, in the order of the checkpoint, with what is decided about each: what a unit
        stands for shares its rows. A holder's name may be that of several units."""
        owners: dict[str, list[int]] = {}
        for unit in self.world.units:
            for name in members(unit):
                if name in meant:
                    owners.setdefault(name, []).append(id(unit))
        decided = self._decided({at for some in owners.values() for at in some})
        alone = {at: tuple(row for _, row in rows) for at, rows in decided.items()}
        for name, some in owners.items():
            if len(some) == 1:
                yield name, alone[some[0]]
            else:
                both = (row for at in some for row in decided[at])
                yield name, tuple(row for _, row in sorted(both, key=itemgetter(0)))

    def _decided(self, units: Iterable[int]) -> dict[int, list[tuple[int, DecisionRow]]]:
        """What is decided about some units, by their id, each decision with its place among all."""
        found: dict[int, list[tuple[int, DecisionRow]]] = {at: [] for at in units}
        rows = ((table, row, answer) for table in self.tables for row, answer in table.decided)
        for place, (table, row, answer) in enumerate(rows):
            if id(row.unit) in found:
                told = _decision_row(table, row.unit, _runtime(row), answer)
                found[id(row.unit)].append((place, told))
        return found

    def _silence(self) -> str:
        """Why no engine decides anything."""
        if self.world.family is None:
            return f"the model family is unknown: {self.world.family_reason}"
        engines = dict.fromkeys(table.judge.engine.name for table in self.tables)
        return f"no modelled release of {', '.join(engines)} builds it"

    def _reading(self, asked: str) -> Reading:
        """What a name means; the checkpoint's own names come first."""
        ways = (self._module, self._tensor, self._runtime_name, self._holder, self._parameter)
        return next((reading for way in ways if (reading := way(asked))), None) or self._refused(asked)

    def _module(self, asked: str) -> Reading | None:
        names, _ = patterns.select(self.modules, [asked])
        return Reading(asked, "module", names) if names else None

    def _tensor(self, asked: str) -> Reading | None:
        names, _ = patterns.select(self.tensors, [asked])
        owners = dict.fromkeys(owner for name in names if (owner := self._owner(name)))
        return Reading(asked, "tensor", tuple(owners)) if owners else None

    def _owner(self, tensor: str) -> str:
        """The module that a tensor belongs to, "" where no engine could quantize it."""
        return next((name for name in _above(tensor) if name in self.modules), "")

    def _runtime_name(self, asked: str) -> Reading | None:
        test = patterns.compiled(asked)
        hit = {name: units for name, units in self.runtime_names.items() if test(name)}
        names = dict.fromkeys(name for units in hit.values() for name in units)
        engines = dict.fromkeys(engine for units in hit.values() for some in units.values() for engine in some)
        return Reading(asked, "runtime-name", tuple(names), tuple(engines)) if names else None

    def _holder(self, asked: str) -> Reading | None:
        front = f"{asked.rstrip('.')}."
        names = tuple(name for name in self.modules if name.startswith(front))
        return Reading(asked, "holder", names) if names else None

    def _parameter(self, asked: str) -> Reading | None:
        """A tensor that an engine wants and the checkpoint lacks: its module, by either name."""
        owner = asked.rpartition(".")[0]
        if not owner or _WILD.search(asked) or asked in self.world.checkpoint.modules or asked in self.tensors:
            return None
        found = self._module(owner) or self._runtime_name(owner)
        return Reading(asked, "parameter", found.modules, found.engines) if found else None

    def _namesakes(self, wanted: Sequence[str]) -> Iterator[Reading]:
        """Modules that engines look up by a name which is another module's own."""
        for asked in dict.fromkeys(wanted):
            others = self.runtime_names.get(asked, {}) if asked in self.modules else {}
            names = {name: some for name, some in others.items() if self.modules[name] != self.modules[asked]}
            if names:
                engines = dict.fromkeys(engine for some in names.values() for engine in some)
                yield Reading(asked, "namesake", tuple(names), tuple(engines))

    def _refused(self, asked: str) -> Reading:
        stored, _ = patterns.select([*self.world.checkpoint.modules, *self.tensors], [asked])
        if stored:
            raise UsageError(
                f"{shown(asked)} holds nothing that an engine could quantize, so nothing decides about it",
                subject=asked,
                hint="norms, biases and the like stay as they are stored; mtpfix list shows the draft's tensors",
            )
        raise UsageError(f"no module, tensor or runtime name is {shown(asked)}", subject=asked, hint=self._hint(asked))

    def _hint(self, asked: str) -> str:
        below = [name for name in self.modules if name.endswith(f".{asked}")]
        if below:
            named = f"'**.{asked}'" if len(below) > _FEW else " or ".join(below)
            return f"did you mean {named}?"
        near = nearest(asked, [*self.modules, *self.tensors, *self.runtime_names])
        if near:
            return f"did you mean {near}?"
        return "mtpfix list shows the draft's tensors; '**' is every module"

    @cached_property
    def modules(self) -> Mapping[str, bool]:
        """Every module that an engine could quantize, in the order of the checkpoint, and whether it is the draft's."""
        return {name: unit.draft for unit in self.world.units for name in members(unit)}

    @cached_property
    def tensors(self) -> Mapping[str, None]:
        found = self.world.checkpoint.modules.values()
        return dict.fromkeys(tensor.name for raw in found for tensor in tensors_of(raw))

    @cached_property
    def runtime_names(self) -> Mapping[str, Mapping[str, Mapping[str, None]]]:
        """The names that engines ask for; by each the modules that it stands for, and in which engines."""
        found: dict[str, dict[str, dict[str, None]]] = {}
        for table in self.tables:
            for row, _ in table.decided:
                asked = _runtime(row)
                for name in members(row.unit) if asked else ():
                    found.setdefault(asked, {}).setdefault(name, {})[table.judge.engine.name] = None
        return found


def _above(name: str) -> Iterator[str]:
    """The paths that a dotted name lies under, the nearest first, as far as modules have such long names."""
    end = len(name)
    while end > 0:
        if end <= MAX_NAME:
            yield name[:end]
        end = name.rfind(".", 0, end)


def _runtime(row: Row) -> str:
    return row.ask.runtime if row.ask is not None else ""


def _decision_row(table: Table, unit: Unit, runtime: str, answer: Answer) -> DecisionRow:
    profile, cause = table.judge.profile, answer.cause
    listed = bool(cause.pointer) and table.fragment is not None
    return DecisionRow(
        module=unit.name,
        part=table.judge.part,
        engine=profile.engine,
        version=profile.first,
        releases=profile.releases,
        latest=profile.latest,
        runtime_name=runtime,
        decision=answer.decision,
        stored=unit.stored.scheme.name,
        rule="" if listed else cause.rule or "no entry of the config decides",
        file=table.fragment.file if listed and table.fragment else "",
        pointer=table.fragment.pointer + cause.pointer if listed and table.fragment else "",
        entry=cause.entry if listed else "",
        scheme=answer.scheme,
    )
