"""Entries that have to come in an engine's own names, where it asks for modules by names that no checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtpfix.decisions import Judge, Row
from mtpfix.families.base import LIST_LAYERS
from mtpfix.formats.base import Format, Reach
from mtpfix.frozen import replace
from mtpfix.model import Answer
from mtpfix.solving.leaves import Leaf, summarised
from mtpfix.solving.quiet import Verdicts
from mtpfix.solving.shards import halves, shards_of
from mtpfix.solving.solution import Added
from mtpfix.solving.trials import Trials

_DEPTHS = (1, 2, 3)  # dots in a name that is written for all that is under it, once its root was tried


class Aliases:
    """Spells what is still missing in a list, for one judge after the other."""

    def __init__(self, trials: Trials, fmt: Format) -> None:
        self.trials, self.fmt = trials, fmt

    def spelled(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """Engines' own names for what is still missing, one judge after the other, the newest releases first.

        A judge whose part would still not load with them gets none: half a repair is only noise in the list.
        """
        for at in sorted(range(len(self.trials.judges)), key=lambda at: at not in self.trials.newest):
            state = self.trials.after(removed, added)
            if self._short(at, state) and not self._collides(at, state):
                trial, after = self._aliased(removed, added, at, state)
                fits = not self._short(at, after) and self._fits(at, after)
                added = trial if fits else added
        return added

    def _short(self, at: int, state: Verdicts) -> bool:
        """Whether a judge would still build something quantized that is stored plain."""
        rows = zip(self.trials.judges[at].rows, state[at], strict=True)
        return any(
            (answer.decision == "quantized" or halves(answer)) and self.trials.missing(at, row, answer, state)
            for row, answer in rows
        )

    def _fits(self, at: int, state: Verdicts) -> bool:
        """Whether what a judge builds quantized fits what is stored: names do not mend another scheme."""
        return not any(
            answer.decision == "quantized" and row.unit.stored.quantized and self.trials.misfits(at, row, answer, state)
            for row, answer in zip(self.trials.judges[at].rows, state[at], strict=True)
        )

    def _collides(self, at: int, state: Verdicts) -> bool:
        """Whether a module that is missing shares its runtime name with one that is stored otherwise: nothing helps."""
        judge = self.trials.judges[at]
        taken = {
            row.ask.runtime
            for other in self.trials.judges
            if other.profile == judge.profile
            for row in other.rows
            if row.ask is not None and row.ask.layer in LIST_LAYERS and not row.unit.stored.plain
        }
        rows = zip(judge.rows, state[at], strict=True)
        return any(
            row.ask is not None and row.ask.runtime in taken and self.trials.missing(at, row, answer, state)
            for row, answer in rows
        )

    def _aliased(
        self, removed: tuple[int, ...], added: tuple[Added, ...], at: int, state: Verdicts
    ) -> tuple[tuple[Added, ...], Verdicts]:
        """The entries with every alias that helps one judge and harms nothing, and what is decided with them."""
        for offered in (self._runtime_choices, self._completions):
            for choice in offered(at, state):
                for items in choice:
                    trial = (*added, *items)
                    after = self.trials.after(removed, trial)
                    if not self.trials.harmed(state, after) and self.trials.faults(after) < self.trials.faults(state):
                        added, state = trial, after
                        break
        return added, state

    def _runtime_choices(self, at: int, state: Verdicts) -> Iterator[list[tuple[Added, ...]]]:
        """The spellings of a judge's own nodes, best first."""
        engine = self.trials.judges[at].engine.name
        for node in self._runtime_nodes(at, state):
            entries = self.fmt.aliases(node.name, node.reach)
            yield [(Added(entry, "alias", node.name, node.part, engine),) for entry in entries]

    def _completions(self, at: int, state: Verdicts) -> Iterator[list[tuple[Added, ...]]]:
        """All shards of a fused module, the ones that are not stored too: the list names some of them, or the engine
        takes each by its whole name alone (SGLang's MXFP8). The fused name comes along where others need it."""
        judge = self.trials.judges[at]
        part, engine = judge.part, judge.engine.name
        for row, answer, names in zip(judge.rows, state[at], self.trials.members[at], strict=True):
            if row.ask is None or not self.trials.missing(at, row, answer, state):
                continue
            shards: tuple[str, ...] = ()
            if row.ask.layer == "linear" or halves(answer):
                shards = shards_of(judge, row, names)
            if shards and self.fmt.aliases(shards[0], "leaf"):
                self.trials.alone(row)
                named = [tuple(Added(self.fmt.aliases(name, "leaf")[0], "alias", name, part, engine) for name in group)
                         for group in (shards, (*shards, row.ask.runtime))]  # fmt: skip
                yield named

    def _runtime_nodes(self, at: int, state: Verdicts) -> Iterator[Leaf]:
        """The nodes of a judge's own names that are missing: whole subtrees first, then what is in them.

        Then come subtrees of which a part is covered: where shards are asked one by one, they alone say all. Last come
        lower ones, for names whose root means more to an engine than the part it begins.
        """
        judge = self.trials.judges[at]
        asked = [(row, answer) for row, answer in zip(judge.rows, state[at], strict=True)
                 if row.ask is not None and row.ask.layer in LIST_LAYERS]  # fmt: skip
        wanted = [self.trials.missing(at, row, answer, state) for row, answer in asked]
        if not any(wanted):
            return
        found = [
            (one, self._runtime_leaf(judge, one, row, answer, missing))
            for (row, answer), missing in zip(asked, wanted, strict=True)
            for one in row.each()
        ]
        leaves = [leaf for _, leaf in sorted(found, key=lambda pair: self.trials.world.place[pair[0].unit.name])]
        others = self._other_names(judge)

        def allowed(prefix: str, below: Sequence[Leaf]) -> bool:
            return bool(prefix) and not any(name == prefix or name.startswith(f"{prefix}.") for name in others)

        yield from summarised(leaves, allowed)
        yield from (leaf for leaf in leaves if leaf.wanted)
        bare = [replace(leaf, covered=False) for leaf in leaves]
        yield from summarised(bare, allowed)
        for depth in _DEPTHS:

            def lower(prefix: str, below: Sequence[Leaf], depth: int = depth) -> bool:
                return prefix.count(".") >= depth and allowed(prefix, below)

            yield from summarised(bare, lower)

    def _runtime_leaf(self, judge: Judge, one: Row, row: Row, answer: Answer, missing: bool) -> Leaf:
        """The leaf of one of the units that a row stands for."""
        assert one.ask is not None
        reach: Reach = "experts" if one.ask.layer == "moe" else "leaf"
        right = answer.decision == "plain" and bool(answer.cause.pointer)
        return Leaf(one.ask.runtime, reach, judge.part, not row.unit.stored.plain, right, missing)

    def _other_names(self, judge: Judge) -> set[str]:
        """Names that the other part of the same engine profile asks for, without the dot that some leave in front."""
        return {
            row.ask.runtime.removeprefix(".")
            for other in self.trials.judges
            if other.profile == judge.profile and other.part != judge.part
            for row in other.every(self.trials.world)
            if row.ask is not None
        }
