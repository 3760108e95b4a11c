"""Who judges a list: benches of judges, those that answer alike in one seat, each question asked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtpfix.decisions import Judge, Row
from mtpfix.families.base import LIST_LAYERS
from mtpfix.formats.base import ExclusionList
from mtpfix.frozen import dataclass, replace
from mtpfix.verdicts import faults_of
from mtpfix.world import World

_Seat = tuple[tuple[object, ...], int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Bench:
    """Judges that see the list in one quantization config: the file's own, or config.json's with the list put in."""

    judges: tuple[Judge, ...]
    value: Mapping[str, Any]
    where: ExclusionList

    def full(self, world: World) -> Bench:
        """The bench with a row for each unit."""
        return replace(self, judges=tuple(replace(judge, rows=judge.every(world)) for judge in self.judges))


@dataclass(frozen=True, slots=True)
class Seats:
    """The judges of some benches, one for all that answer alike and are wrong in the same way; all by place.

    members    for each row the names of the units that ask its question
    places     the signature by which decisions are remembered, and the place of each row among the judge's own
    answering  the seat whose answers count here too
    newest     the seats that the newest release of an engine has
    ceded      the seats of drafts that no list can make load (`colliding`)
    """

    judges: tuple[Judge, ...]
    benches: tuple[Bench, ...]
    members: tuple[tuple[tuple[str, ...], ...], ...]
    places: tuple[tuple[tuple[object, ...], tuple[int, ...]], ...]
    answering: tuple[int, ...]
    newest: tuple[int, ...]
    ceded: frozenset[int]


def seated(world: World, benches: Sequence[Bench]) -> Seats:
    """The seats of all judges that read their bench's list."""
    compacted = _Compacted()

    def seat(judge: Judge, bench: Bench) -> _Seat:
        return judge.signature, id(bench), tuple(map(id, faults_of(world, judge)))

    seats = {
        seat(judge, bench): (bench, *compacted.of(judge))
        for bench in benches
        for judge in reversed(bench.judges)
        if judge.view and not judge.method.error
    }
    newest = {seat(judge, bench) for bench in benches for judge in bench.judges if judge.profile.latest}
    firsts: dict[tuple[object, int], int] = {}
    lost = colliding(benches)
    return Seats(
        judges=tuple(judge for _, judge, _, _ in seats.values()),
        benches=tuple(bench for bench, *_ in seats.values()),
        members=tuple(names for _, _, names, _ in seats.values()),
        places=tuple((signature, held[3]) for (signature, *_), held in seats.items()),
        answering=tuple(firsts.setdefault(taken[:2], at) for at, taken in enumerate(seats)),
        newest=tuple(at for at, taken in enumerate(seats) if taken in newest),
        ceded=frozenset(at for at, taken in enumerate(seats) if taken[:2] in lost),
    )


def colliding(benches: Iterable[Bench]) -> set[tuple[object, int]]:
    """Draft judges (signature and bench) that ask for a plain module by the name of a target's quantized one.

    No list can make such a draft load: an entry that it needs takes the target's module along, and the target has
    the name. One release of a signature that has no such name is enough to leave its judges out.
    """
    found: dict[tuple[object, int], bool] = {}
    known: dict[tuple[int, str], frozenset[str]] = {}

    def names(rows: Sequence[Row], kind: str) -> frozenset[str]:
        at = (id(rows), kind)
        if at not in known:
            known[at] = _names(rows, kind)
        return known[at]

    for bench in benches:
        targets = {judge.profile: judge.rows for judge in bench.judges if judge.part == "target"}
        for judge in bench.judges:
            if judge.part == "draft" and judge.view and not judge.method.error:
                at = (judge.signature, id(bench))
                taken = names(targets.get(judge.profile, ()), "quantized")
                found[at] = found.get(at, True) and not taken.isdisjoint(names(judge.rows, "plain"))
    return {at for at, hit in found.items() if hit}


def _names(rows: Sequence[Row], kind: str) -> frozenset[str]:
    """The names by which rows ask for modules of one kind of storage, where no class decides by itself."""
    return frozenset(
        row.ask.runtime
        for row in rows
        if row.ask is not None and row.ask.layer in LIST_LAYERS and not row.specials
        and row.unit.stored.scheme.kind == kind
    )  # fmt: skip


class _Compacted:
    """Judges with one row for each question; what many judges ask is looked at once, and stays one object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, tuple[Row, ...], tuple[tuple[str, ...], ...], tuple[int, ...]]] = {}

    def of(self, judge: Judge) -> tuple[Judge, tuple[tuple[str, ...], ...], tuple[int, ...]]:
        """The judge, the names of the units that ask each question, and the place of its row."""
        at = id(judge.rows)
        if at not in self._known:
            rows, names = compact(judge.rows)
            place = {id(row): at for at, row in enumerate(judge.rows)}
            self._known[at] = judge.rows, rows, names, tuple(place[id(row)] for row in rows)
        _, rows, names, places = self._known[at]
        return replace(judge, rows=rows), names, places


def compact(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[tuple[str, ...], ...]]:
    """One row for each question, and the names of the units that ask it.

    Units that ask alike and are stored alike (the shards of a fused linear, the experts of a layer) are judged once.
    """
    seen: dict[tuple[Any, ...], Row] = {}
    names: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        kind = row.unit.stored.scheme.kind
        if row.ask is not None:
            at = (row.ask, kind, tuple(map(id, row.specials)))
            seen.setdefault(at, row)
            names.setdefault(at, []).extend(row.names)
    return tuple(seen.values()), tuple(map(tuple, names.values()))
