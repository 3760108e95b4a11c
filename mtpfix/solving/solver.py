"""One list worked out: entries go, others come, and what can be left out is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mtpfix.alike import NONE, Alike
from mtpfix.engines.sources import Fragment
from mtpfix.formats.base import ExclusionList, Format
from mtpfix.frozen import replace
from mtpfix.solving.aliases import Aliases
from mtpfix.solving.removal import Removal
from mtpfix.solving.seats import Bench, seated
from mtpfix.solving.solution import Added, Solution, entries_at, entries_kept, entries_of, places_of
from mtpfix.solving.spelling import Spelling
from mtpfix.solving.trials import Spent, Trials
from mtpfix.world import World

FEW = 40  # entries at fault up to which each is tried by itself, where all of them together cannot go


def solved(
    world: World,
    fmt: Format,
    fragment: Fragment,
    where: ExclusionList,
    benches: Sequence[Bench],
    alike: Alike,
    malformed: Callable[[str], bool],
    start: Solution | None,
) -> Solution:
    """The change that mends most of a list and harms nothing, on top of `start`.

    Where something comes up that makes a difference between layers of which one stands for others, the list is worked
    out once more with a row for each unit.
    """
    trials = Trials(world, fragment, where, seated(world, benches), alike)
    found = Solver(trials, fmt).solve(malformed, start)
    if not trials.told_apart:
        return found
    full = [bench.full(world) for bench in benches]
    return Solver(Trials(world, fragment, where, seated(world, full), NONE), fmt).solve(malformed, start)


class Solver:
    """Works one list out."""

    def __init__(self, trials: Trials, fmt: Format) -> None:
        self.trials = trials
        self.removal, self.spelling, self.aliases = Removal(trials), Spelling(trials, fmt), Aliases(trials, fmt)

    def solve(self, malformed: Callable[[str], bool], start: Solution | None = None) -> Solution:
        """The change that mends most and harms nothing; `start`, or an empty one, where nothing more can be mended.

        An entry that is at fault in one engine and serves another stays where no other spelling suits both.
        """
        found = start or Solution(self.trials.fragment, self.trials.where, (), ())
        try:
            gone = self.removal.gone(malformed)
            while (better := self._better(found, gone)) is not None:
                found = better
                if set(gone).issubset(found.removed):
                    break
        except Spent:
            return replace(found, given_up=True)
        left = self.trials.faults(self.trials.after(found.removed, found.added)) > 0
        vetoed = any(
            id(bench) in self.trials.vetoes for bench in self.trials.benches if bench is not self.trials.benches[0]
        )
        return replace(found, vetoed=left and vetoed)

    def _better(self, found: Solution, gone: tuple[int, ...]) -> Solution | None:
        """A change that mends more than the one that was found, and leaves nothing worse; None where there is none."""
        tried = (self._worked_out(removed, found) for removed in self._removals(found, gone))
        return next((better for better in tried if better is not None), None)

    def _removals(self, found: Solution, gone: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Places of entries to take out: all that are at fault, those of them that nobody misses, those found."""
        most = tuple(dict.fromkeys((*found.removed, *gone)))
        yield most
        some = self._unmissed(found, most)
        if set(some) not in (set(most), set(found.removed)):
            yield some
        if most != found.removed:
            yield found.removed

    def _unmissed(self, found: Solution, gone: tuple[int, ...]) -> tuple[int, ...]:
        """The places whose entries can go one after the other, mend something and harm nothing, of some few."""
        entries = entries_of(found.added)
        removed, state = found.removed, self.trials.of(found.removed, entries)
        texts = dict.fromkeys(entries_at(self.trials.where, set(gone).difference(removed)))
        for text in texts if len(texts) <= FEW else ():
            more = tuple(sorted({*removed, *places_of(self.trials.where, {text})}))
            after = self.trials.of(more, entries)
            if not self.trials.harmed(state, after) and self.trials.faults(after) < self.trials.faults(state):
                removed, state = more, after
        return removed

    def _worked_out(self, removed: tuple[int, ...], found: Solution) -> Solution | None:
        """A change that was found with more entries gone, and what has to come then; None where it harms something or
        mends nothing more."""
        before = self.trials.after(found.removed, found.added)
        added = self.spelling.faithful(removed, found.added)
        if removed or added or not self.trials.settled():
            added = self.aliases.spelled(removed, added)
        added = self._pruned(removed, self.spelling.owned(removed, added))
        removed, added = self._cancelled(removed, added)
        after = self.trials.after(removed, added)
        if self.trials.faults(after) >= self.trials.faults(before) or self.trials.harmed(before, after):
            return None
        if before is not self.trials.base and self.trials.harmed(self.trials.base, after):
            return None
        return Solution(self.trials.fragment, self.trials.where, removed, added)

    def _pruned(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """Drops doubles, what the list has already, and every alias that nothing needs, the last one added first."""
        held = self._held(removed)
        added = tuple({item.entry: item for item in reversed(added) if item.entry not in held}.values())[::-1]
        faults = self.trials.faults(self.trials.after(removed, added))
        for item in reversed([item for item in added if item.role == "alias"]):
            fewer = tuple(other for other in added if other is not item)
            if self.trials.faults(self.trials.after(removed, fewer)) <= faults:
                added = fewer
        mended = self.trials.mended(self.trials.of(removed, ()), self.trials.after(removed, added))
        return tuple(
            item
            for item in added
            if item.role == "alias" or self._serves(item, mended) or self._guards(item, removed, added)
        )

    def _held(self, removed: tuple[int, ...]) -> frozenset[str]:
        """The entries that stay in the list; none of a table, in which a member may come first or get another word."""
        where = self.trials.where
        return frozenset(() if where.keyed else entries_kept(where, removed))

    def _guards(self, item: Added, removed: tuple[int, ...], added: tuple[Added, ...]) -> bool:
        """Whether without an entry the others would leave something wrong that was right."""
        fewer = entries_of(other for other in added if other is not item)
        return self.trials.harmed(self.trials.after(removed, added), self.trials.of(removed, fewer))

    def _serves(self, item: Added, mended: set[str]) -> bool:
        """Whether a faithful or stripped entry stands for something that the change mends in some engine."""
        wrapper = self.trials.world.family.wrapper if self.trials.world.family else None
        node = item.node
        if item.role == "stripped" and wrapper:
            node = wrapper[0] + node.removeprefix(wrapper[1])
        return any(name == node or name.startswith(f"{node}.") for name in mended)

    def _cancelled(
        self, removed: tuple[int, ...], added: tuple[Added, ...]
    ) -> tuple[tuple[int, ...], tuple[Added, ...]]:
        """An entry that goes and comes again stays where it is."""
        listed = zip(self.trials.where.places, self.trials.where.entries, strict=True)
        place_of = {entry: place for place, entry in listed if place in removed}
        back = {item.entry for item in added} & place_of.keys()
        stays = {place_of[entry] for entry in back}
        return tuple(place for place in removed if place not in stays), tuple(
            item for item in added if item.entry not in back
        )
