"""Entries that have to come, in the checkpoint's own names, and without the wrapper that a draft sits under."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mtpfix.formats.base import Format
from mtpfix.formats.coverage import Coverage
from mtpfix.model import Part
from mtpfix.solving.leaves import Leaf, holder, merged, summarised
from mtpfix.solving.quiet import Verdicts
from mtpfix.solving.shards import halves
from mtpfix.solving.solution import Added, Role, entries_kept, entries_of
from mtpfix.solving.trials import Trials
from mtpfix.world import Unit

PARTS: tuple[Part, ...] = ("target", "draft")
_LEVELS = (1, 2, 3, 4, 5, 100)  # dots in the name of a subtree in what cannot come whole; at last each name by itself


class Spelling:
    """Spells what is missing in a list by names that belong to the checkpoint, not to an engine."""

    def __init__(self, trials: Trials, fmt: Format) -> None:
        self.trials, self.fmt = trials, fmt
        self._coverage: tuple[tuple[str, ...], Coverage] | None = None

    def faithful(self, removed: tuple[int, ...], found: tuple[Added, ...]) -> tuple[Added, ...]:
        """What was found, and the checkpoint's own spelling of every plain module that some engine would quantize."""
        entries = entries_of(found)
        kept = (*entries_kept(self.trials.where, removed), *entries)
        state = self.trials.of(removed, entries)
        wanted, halved = self.trials.missing_names(state), self._halved(state)
        choices = self._choices(kept, wanted, halved)
        while exposed := self._exposed(removed, entries, choices) - wanted:
            wanted |= exposed
            choices = self._choices(kept, wanted, halved)
        if not choices:
            return found
        added = self._accepted(removed, found, choices)
        wider = self._accepted(removed, added, self._wider(removed, added, kept))
        whole = self._outgrown(removed, wider, wider[len(added) :])
        return self._completed(removed, self._smaller(removed, whole, kept), kept)

    def owned(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """The entries, and those for what others mend alone, where the checkpoint's own names do no harm any more.

        A shard's name may do harm as long as another's is not there.
        """
        if all(item.role == "faithful" for item in added):
            return added
        mended = self.trials.mended(self.trials.of(removed, ()), self.trials.after(removed, added))
        kept = entries_kept(self.trials.where, removed)
        return self._by_depth(removed, added, kept, (0, *_LEVELS), lambda _: mended)

    def _choices(
        self, kept: tuple[str, ...], wanted: set[str], halved: set[str], depth: int = 0
    ) -> list[tuple[tuple[Added, ...], ...]]:
        """What is to be spelled, each with its alternatives; subtrees from a number of dots in their name on."""
        if not wanted:
            return []
        covered, held = self._covered_by(kept), frozenset(kept)

        def exactly(name: str) -> bool:
            return name in held or not held.isdisjoint(self.fmt.spellings(name, "leaf", kept)[:1])

        def leaf(unit: Unit, name: str) -> Leaf:
            return self._leaf(unit, name, exactly if unit.name in halved else covered, wanted)

        leaves = merged(leaf(unit, unit.name) for unit in self.trials.world.units)
        nodes = [node for part in PARTS for node in self._nodes(leaves, part, depth)]
        bare = merged(leaf(unit, name) for unit, name in self._stripped())
        return [
            *(self._spelled(node, "faithful", kept) for node in nodes),
            *(self._spelled(node, "stripped", kept) for node in self._nodes(bare, "draft", depth)),
        ]

    def _covered_by(self, kept: tuple[str, ...]) -> Coverage:
        """What some entries cover in the format's own reading; the last answer is kept, as one list is asked often."""
        if self._coverage is None or self._coverage[0] != kept:
            self._coverage = kept, Coverage(self.fmt, self.trials.quiet.without_doubles(kept))
        return self._coverage[1]

    def _completed(
        self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]
    ) -> tuple[Added, ...]:
        """The entries with shards by their own names where an engine still stops: a subtree is not enough for it."""
        state = self.trials.after(removed, added)
        halved = self._halved(state)
        if not halved:
            return added
        choices = self._choices((*kept, *entries_of(added)), halved, halved)
        found = self._accepted(removed, added, choices)
        return found if self.trials.faults(self.trials.after(removed, found)) < self.trials.faults(state) else added

    def _halved(self, state: Verdicts) -> set[str]:
        """Units that an engine stops on: the list names some shards of their fused module, and a glob is not enough."""
        return {
            name
            for judge, answers, members in zip(self.trials.judges, state, self.trials.members, strict=True)
            for row, answer, names in zip(judge.rows, answers, members, strict=True)
            if halves(answer) and row.unit.stored.plain
            for name in names
        }

    def _wider(
        self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]
    ) -> list[tuple[tuple[Added, ...], ...]]:
        """Subtrees around what could not be listed by itself, though parts of them are covered.

        SGLang takes some leaves of latent attention for those of every layer.
        """
        covered, more = self._covered_by(kept), Coverage(self.fmt, entries_of(added))
        still = self.trials.missing_names(self.trials.after(removed, added))
        stuck = {name for name in still if not (covered(name) or more(name))}
        nothing = frozenset[str]().__contains__
        leaves = (
            merged(self._leaf(unit, unit.name, nothing, stuck) for unit in self.trials.world.units) if stuck else []
        )
        return [self._spelled(node, "faithful", kept) for part in PARTS for node in self._nodes(leaves, part)]

    def _smaller(self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]) -> tuple[Added, ...]:
        """The entries with smaller subtrees and single names, where one that holds them all cannot come: an engine asks
        by such a name for what is stored elsewhere, quantized (vLLM's `shared_head.head` for `lm_head`)."""
        return self._by_depth(removed, added, kept, _LEVELS, self.trials.missing_names)

    def _by_depth(
        self,
        removed: tuple[int, ...],
        added: tuple[Added, ...],
        kept: tuple[str, ...],
        depths: Iterable[int],
        wanted: Callable[[Verdicts], set[str]],
    ) -> tuple[Added, ...]:
        """The entries with subtrees from a number of dots in their name on, for what is wanted by what is decided."""
        for depth in depths:
            names = wanted(self.trials.after(removed, added))
            choices = self._choices((*kept, *entries_of(added)), names, set(), depth)
            if not choices or self.trials.half_spent:
                break
            added = self._accepted(removed, added, choices)
        return added

    def _exposed(
        self, removed: tuple[int, ...], entries: Sequence[str], choices: Sequence[tuple[tuple[Added, ...], ...]]
    ) -> set[str]:
        """Units that a list's first entries leave missing: without a list vLLM finds AWQ's plain modules by itself.

        So it does with a list of which everything goes.
        """
        if not choices or not set(self.trials.where.places).issubset(removed):
            return set()
        firsts = [item.entry for choice in choices if choice for item in choice[0]]
        return self.trials.missing_names(self.trials.of(removed, [*entries, *firsts]))

    def _stripped(self) -> Iterator[tuple[Unit, str]]:
        """The units under the draft's wrapper, with their names without it; the target's are there to be kept apart."""
        wrapper = self.trials.world.family.wrapper if self.trials.world.family else None
        if wrapper:
            for unit in self.trials.world.units:
                if unit.name.startswith(wrapper[0]):
                    yield unit, wrapper[1] + unit.name.removeprefix(wrapper[0])

    def _outgrown(
        self, removed: tuple[int, ...], added: tuple[Added, ...], wider: tuple[Added, ...]
    ) -> tuple[Added, ...]:
        """The entries without those that a wider one has made idle; listed alone, single shards of it do harm."""
        state = self.trials.after(removed, added)
        inside = tuple(
            item for item in added if any(item.node.startswith(f"{node.node}.") for node in wider if node is not item)
        )
        fewer = tuple(item for item in added if item not in inside)
        after = self.trials.after(removed, fewer)
        return fewer if inside and not self.trials.harmed(state, after) else added

    def _leaf(self, unit: Unit, name: str, covers: Callable[[str], bool], wanted: set[str]) -> Leaf:
        node, reach = holder(name)
        part: Part = "draft" if unit.draft else "target"
        covered = unit.stored.plain and covers(name)
        return Leaf(node, reach, part, not unit.stored.plain, covered, unit.name in wanted and not covered)

    def _nodes(self, leaves: list[Leaf], part: Part, depth: int = 0) -> Iterator[Leaf]:
        """What stands for the wanted leaves of a part; subtrees from a number of dots in their name on."""
        if not any(leaf.wanted and leaf.part == part for leaf in leaves):
            return

        def allowed(prefix: str, below: Sequence[Leaf]) -> bool:
            if any(leaf.part != part for leaf in below) or not self.fmt.spellings(prefix, "below", ()):
                return False
            if prefix.count(".") < depth:
                return False
            numbered = any(step.isdecimal() for step in prefix.split("."))
            if part == "draft":
                return bool(prefix) and (numbered or self.fmt.container())
            last = prefix.rpartition(".")[2]
            return self.fmt.name == "modelopt" and numbered and not last.isdecimal() and len(below) > 1

        yield from (node for node in summarised(leaves, allowed) if node.part == part)

    def _spelled(self, node: Leaf, role: Role, kept: tuple[str, ...]) -> tuple[tuple[Added, ...], ...]:
        """A node's alternatives, best first; each is a set of entries that come together."""
        entries = self.fmt.spellings(node.name, node.reach, kept)
        return tuple((Added(entry, role, node.name, node.part),) for entry in entries)

    def _accepted(
        self,
        removed: tuple[int, ...],
        added: tuple[Added, ...],
        choices: Sequence[tuple[tuple[Added, ...], ...]],
    ) -> tuple[Added, ...]:
        """Takes the first alternative of each choice that harms nothing: all first ones at once where that is sound,
        else those of one half and then of the other."""
        start = self.trials.after(removed, added)
        for items in _together(choices):
            trial = (*added, *items)
            if not self.trials.harmed(start, self.trials.after(removed, trial)):
                return trial
        if len(choices) < 2:
            return added
        middle = len(choices) // 2
        return self._accepted(removed, self._accepted(removed, added, choices[:middle]), choices[middle:])


def _together(choices: Sequence[tuple[tuple[Added, ...], ...]]) -> Iterator[tuple[Added, ...]]:
    """What may come of some choices at once: the first alternatives of many, every one of a single one."""
    if len(choices) == 1:
        yield from choices[0]
    else:
        yield tuple(item for choice in choices if choice for item in choice[0])
