"""What a list would make of the modules: the one place that asks judges, and what they answer set against storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mtpfix.alike import Alike
from mtpfix.decisions import Row, listed, recalled
from mtpfix.engines.sources import Fragment
from mtpfix.formats.base import ExclusionList
from mtpfix.model import Answer, Cause
from mtpfix.patch import put
from mtpfix.solving.quiet import Quiet, Verdicts
from mtpfix.solving.seats import Bench, Seats
from mtpfix.solving.shards import taken
from mtpfix.solving.solution import Added, entries_at, entries_of, rewritten
from mtpfix.verdicts import Mismatch, leaves_beside, mismatch
from mtpfix.world import Unit, World

MANY = 500  # entries from which on it pays to set aside those without effect
# What a list is worked out with at most: decisions of all trials together, in that many trials in any case. The largest
# models take 3,000; a checkpoint with hundreds of draft layers would take minutes.
MOST_DECISIONS, FEW_TRIALS = 200_000, 8


class Spent(Exception):
    """Working a list out takes more than any model needs."""


def contradicts(unit: Unit, answer: Answer) -> bool:
    """Whether a decision is not how the module is stored."""
    if unit.stored.plain:
        return answer.decision in ("quantized", "error")
    return answer.decision in ("plain", "error")


class Trials:
    """Tries lists out; each costs only the matching, and none is tried twice.

    judges, members, benches, newest  see `seats.Seats`
    base        what is decided under the list as it is
    told_apart  whether something was tried that makes a difference between layers of which one stands for others
    vetoes      the benches that some change would have harmed
    """

    def __init__(self, world: World, fragment: Fragment, where: ExclusionList, seats: Seats, alike: Alike) -> None:
        self.world, self.fragment, self.where, self.alike = world, fragment, where, alike
        self.judges, self.members, self.benches, self.newest = seats.judges, seats.members, seats.benches, seats.newest
        self.told_apart = False
        self.vetoes: set[int] = set()
        self._places, self._answering, self._ceded = seats.places, seats.answering, seats.ceded
        self._weights = tuple(tuple(row.questions for row in judge.rows) for judge in self.judges)
        self._leaves = tuple(leaves_beside(world, judge) for judge in self.judges)
        self._spent = 0
        self._known: dict[tuple[tuple[int, ...], tuple[str, ...]], Verdicts] = {}
        self._missed: dict[int, tuple[Verdicts, frozenset[str]]] = {}
        self._judged: dict[tuple[int, int, str, tuple[str, ...]], bool] = {}
        self._plain: dict[tuple[int, int], set[str]] = {}
        self._left: dict[int, tuple[tuple[int, ...], list[tuple[int, Any]]]] = {}
        self.quiet = Quiet(world, fragment, where, self.judges, alike)
        self._idle = self.quiet.stood_for()
        if len(where.entries) - len(self._idle) > MANY:
            self._idle = (*self._idle, *self.quiet.without_effect(set(self._idle), self._decided))
        self.base = self.of((), ())

    @property
    def half_spent(self) -> bool:
        """Whether half of what a list is worked out with is gone."""
        return self._spent > MOST_DECISIONS // 2

    def of(self, removed: Iterable[int], entries: Sequence[str]) -> Verdicts:
        """What every seat decides under the list without the entries at some places, and with others.

        Raises Spent once that was asked too often.
        """
        at = (tuple(removed), tuple(entries))
        if at not in self._known:
            self.told_apart = self.told_apart or self.alike.told_apart((*entries_at(self.where, at[0]), *at[1]))
            self._known[at] = self._decided((*at[0], *self._idle), at[1])
            self._spent += sum(len(self._known[at][first]) for first in set(self._answering))
            if self._spent > MOST_DECISIONS and len(self._known) > FEW_TRIALS:
                raise Spent
        return self._known[at]

    def after(self, removed: Iterable[int], added: Iterable[Added]) -> Verdicts:
        """What every seat decides once a plan has taken entries out and added some. Raises Spent like `of`."""
        return self.of(removed, entries_of(added))

    def _decided(self, removed: Iterable[int], entries: Sequence[str]) -> Verdicts:
        gone = tuple(removed)
        benches = {id(bench): bench for bench in self.benches}
        values = {at: self._value(bench, gone, entries) for at, bench in benches.items()}
        shared: dict[int, dict[Any, Any]] = {at: {} for at in benches}
        as_it_is = gone == self._idle and not entries
        found = {
            at: (as_it_is and self._recalled(at, bench))
            or judge.answers(self.world, values[id(bench)], shared=shared[id(bench)])
            for at, (judge, bench) in enumerate(zip(self.judges, self.benches, strict=True))
            if self._answering[at] == at
        }
        for held in shared.values():
            held.clear()  # matchers hold what they share: a list would stay for each trial
        return tuple(found[at] for at in self._answering)

    def _recalled(self, at: int, bench: Bench) -> tuple[Answer, ...]:
        """What a judge says of the list as it is, where it was asked about that with all of its rows; else nothing."""
        signature, places = self._places[at]
        decided = recalled(self.world, signature, bench.value)
        return tuple(decided[place][1] for place in places) if decided else ()

    def _value(self, bench: Bench, gone: tuple[int, ...], entries: Sequence[str]) -> Mapping[str, Any]:
        """A bench's config for a trial. What is idle is taken out of a list once, not for each trial."""
        if bench.where.keyed or not bench.where.present or len(gone) < len(self._idle) or not self._idle:
            return rewritten(bench.value, bench.where, gone, entries)
        at = id(bench)
        if at not in self._left or self._left[at][0] is not self._idle:
            idle, held = set(self._idle), listed(bench.value, bench.where)
            self._left[at] = self._idle, [(place, item) for place, item in enumerate(held) if place not in idle]
        out = set(gone)
        kept = [item for place, item in self._left[at][1] if place not in out]
        found: Mapping[str, Any] = put(bench.value, bench.where.pointer.split("/")[1:], [*kept, *entries])
        return found

    def pairs(self, state: Verdicts) -> Iterator[tuple[int, Row, Answer]]:
        """Each question of each seat, with its answer."""
        for at, (judge, answers) in enumerate(zip(self.judges, state, strict=True)):
            for row, answer in zip(judge.rows, answers, strict=True):
                yield at, row, answer

    def faults(self, state: Verdicts) -> int:
        """How many modules are decided wrongly, by all seats, but for drafts that no list can make load."""
        return sum(
            weight
            for at, (judge, answers, weights) in enumerate(zip(self.judges, state, self._weights, strict=True))
            if at not in self._ceded
            for row, answer, weight in zip(judge.rows, answers, weights, strict=True)
            if self.wrong(at, row, answer, state)
        )

    def harmed(self, before: Verdicts, after: Verdicts) -> bool:
        """Whether anything that was right is wrong after a change, or anything not plain is newly taken for plain, or
        stopped on: the first shard of a fused module that is listed does that, and the second makes it plain.

        What a draft got right by accident, under names that are the target's (`colliding`), may become wrong: a plain
        module that was taken for plain.
        """
        harmed = (
            at
            for (at, row, old), (_, _, new) in zip(self.pairs(before), self.pairs(after), strict=True)
            if self._leaves[at] or old.decision != new.decision or old.scheme != new.scheme
            if (at not in self._ceded and self.wrong(at, row, new, after) and not self.wrong(at, row, old, before))
            or (not row.unit.stored.plain and taken(old, new))
        )
        first = next(harmed, None)
        if first is not None:
            self.vetoes.add(id(self.benches[first]))
        return first is not None

    def settled(self) -> bool:
        """Whether the newest release of every engine takes the list rightly as it is.

        Then what an older one lacks is that release's fault; the list is not rewritten in its words alone.
        """
        return bool(self.newest) and not any(
            self.wrong(at, row, answer, self.base)
            for at in self.newest
            for row, answer in zip(self.judges[at].rows, self.base[at], strict=True)
        )

    def missing_names(self, state: Verdicts) -> set[str]:
        """Units that are stored plain and that some judge would not build plain."""
        if id(state) not in self._missed:
            found: set[str] = set()
            for at, (judge, answers, members) in enumerate(zip(self.judges, state, self.members, strict=True)):
                for row, answer, names in zip(judge.rows, answers, members, strict=True):
                    if self.missing(at, row, answer, state):
                        found.update(names)
            self._missed[id(state)] = state, frozenset(found)  # a state lives as long as its id counts
        return set(self._missed[id(state)][1])

    def missing(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        """Whether a seat would not build plain what is stored plain, and that hurts."""
        return answer.decision != "plain" and row.unit.stored.plain and self.wrong(at, row, answer, state)

    def mended(self, start: Verdicts, final: Verdicts) -> set[str]:
        """Units that some judge would not build plain before and does after."""
        found: set[str] = set()
        for at, (judge, old, new, members) in enumerate(zip(self.judges, start, final, self.members, strict=True)):
            for row, before, after, names in zip(judge.rows, old, new, members, strict=True):
                if self.missing(at, row, before, start) and not self.missing(at, row, after, final):
                    found.update(names)
        return found

    def wrong(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        """Whether a judge's decision contradicts how the module is stored, in a way that hurts in this engine."""
        if not contradicts(row.unit, answer):
            return False
        beside = self._beside(at, row, state) if self._leaves[at] else ()
        key = (id(row), at, answer.decision + answer.scheme, beside)
        if key not in self._judged:
            self._judged[key] = self._hurts(at, row, answer, beside)
        return self._judged[key]

    def _hurts(self, at: int, row: Row, answer: Answer, beside: tuple[str, ...]) -> bool:
        """Whether a decision keeps a module from loading, and a fault that strikes every decision alike does not."""
        found = self._mismatch(at, row, answer, beside)
        if found is None or found.fault is None or not row.unit.stored.plain:
            return found is not None
        listed = self._mismatch(at, row, Answer("plain", Cause()), beside)
        return listed is None or listed.fault is not found.fault

    def misfits(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        """Whether a module does not load as it is decided."""
        return self._mismatch(at, row, answer, self._beside(at, row, state)) is not None

    def _mismatch(self, at: int, row: Row, answer: Answer, beside: tuple[str, ...]) -> Mismatch | None:
        return mismatch(self.world, self.judges[at], self.benches[at].value, row, answer, beside)

    def _beside(self, at: int, row: Row, state: Verdicts) -> tuple[str, ...]:
        """Of the leaves beside a module by which a judge's faults go, those that are decided plain."""
        leaves = self._leaves[at]
        if leaves and (at, id(state)) not in self._plain:  # a state lives as long as the solver
            self._plain[at, id(state)] = {
                name
                for answer, names in zip(state[at], self.members[at], strict=True)
                if answer.decision == "plain"
                for name in names
                if name.rpartition(".")[2] in leaves
            }
        head = row.unit.name.rpartition(".")[0]
        return tuple(leaf for leaf in leaves if f"{head}.{leaf}" in self._plain[at, id(state)])

    def alone(self, row: Row) -> None:
        """Notes that what follows holds for one unit and not for those that it stands for."""
        self.told_apart = self.told_apart or bool(row.others)
