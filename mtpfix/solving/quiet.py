"""Entries of a list that decide nothing, so that trials go without them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property

from mtpfix import late
from mtpfix.alike import Alike
from mtpfix.decisions import Judge, idle_in, names_asked
from mtpfix.engines.sources import Fragment
from mtpfix.formats.base import ExclusionList
from mtpfix.model import Answer
from mtpfix.solving.shards import shard_names
from mtpfix.world import World

Verdicts = tuple[tuple[Answer, ...], ...]
Decided = Callable[[Iterable[int], Sequence[str]], Verdicts]  # by the places that are gone and the entries that come
ROUNDS = 3
_WORD = late.pattern(r"[^.*]+")
_UNSPECIFIC = frozenset({"model", "language_model", "layers", "mtp", "re:", "weight"})


class Quiet:
    """What is known of one list's entries before any is tried out."""

    def __init__(
        self, world: World, fragment: Fragment, where: ExclusionList, judges: Sequence[Judge], alike: Alike
    ) -> None:
        self.world, self.fragment, self.where, self.judges, self.alike = world, fragment, where, judges, alike

    def stood_for(self) -> tuple[int, ...]:
        """Places of entries that fall on no name that is asked: of layers for which others stand, and doubles."""
        where, found = self.where, set(self.doubles)
        if not any(judge.reads_headers for judge in self.judges):  # rows of these stand for nobody
            found.update(self.alike.idle(where.entries, self.doubles))
        return tuple(where.places[at] for at in sorted(found))

    @cached_property
    def doubles(self) -> frozenset[int]:
        """The indices of entries that fall on no name that is asked and read like an earlier one."""
        names = names_asked(judge.rows for judge in self.judges)
        return idle_in(self.world, self.fragment.value, self.where, names)

    @cached_property
    def live(self) -> tuple[tuple[int, str], ...]:
        """The places and entries of the list without these."""
        listed = enumerate(zip(self.where.places, self.where.entries, strict=True))
        return tuple(pair for at, pair in listed if at not in self.doubles)

    @cached_property
    def _covering_nothing(self) -> frozenset[str]:
        """The texts of the list that stand among these alone."""
        live = {entry for _, entry in self.live}
        return frozenset(entry for at in self.doubles if (entry := self.where.entries[at]) not in live)

    def without_doubles(self, entries: Iterable[str]) -> Iterator[str]:
        """Entries that may cover a name, each once: those of the list, and those that come."""
        gone = self._covering_nothing
        return (entry for entry in dict.fromkeys(entries) if entry not in gone) if self.doubles else iter(entries)

    def without_effect(self, idle: Container[int], decided: Decided) -> tuple[int, ...]:
        """Places of entries that decide nothing in any engine, not even by themselves: trials go without them.

        Those are looked for among entries with a number or a word that no engine asks for. What decides after all is
        set aside, for a few rounds, until a list of the rest decides as one of them alone does, which stays: a list
        without any entry may mean something of its own.
        """
        asked = self._asked_words()
        rest = {at: text for at, text in self.live if at not in idle and not _has_only(asked, text)}
        for _ in range(ROUNDS):
            if len(rest) < 2:
                break
            first = next(iter(rest))
            bare, state = (decided(self._all_but(kept), ()) for kept in ({first}, rest))
            told = {new.cause.entry for old, new in differing(bare, state)}
            told |= {rest[first]} & {answer.cause.entry for answers in bare for answer in answers}
            if not told:
                return tuple(rest)[1:]
            rest = {at: text for at, text in rest.items() if text not in told}
        return ()

    def _all_but(self, kept: Container[int]) -> tuple[int, ...]:
        """All places of the list but some."""
        return (*self.where.broken, *(at for at in self.where.places if at not in kept))

    def _asked_words(self) -> frozenset[str]:
        """The words and numbers of the names that are asked, shards of fused modules included."""
        asked = {
            (id(row.unit), row.ask, judge.packed.get(row.ask.runtime.rpartition(".")[2])): (judge, row)
            for judge in self.judges
            for row in judge.rows
            if row.ask is not None
        }
        names = {name for judge, row in asked.values() for name in shard_names(judge, row)}
        names |= {ask.runtime for _, ask, _ in asked}
        return frozenset(word for name in names for word in _words(name)).union(_UNSPECIFIC)


def differing(one: Verdicts, other: Verdicts) -> Iterator[tuple[Answer, Answer]]:
    """The answers that are not the same under two lists."""
    for old, new in zip(one, other, strict=True):
        yield from (pair for pair in zip(old, new, strict=True) if pair[0] != pair[1])


def _words(text: str) -> Iterator[str]:
    """The words and numbers between dots and stars; an expert's number is left out."""
    if "*" not in text:
        steps = text.split(".")
        yield from (
            step for before, step in zip(["", *steps], steps, strict=False) if step and before[-7:] != "experts"
        )
        return
    for found in _WORD.finditer(text):
        if not text.endswith("experts.", 0, found.start()):
            yield found[0]


def _has_only(known: frozenset[str], text: str) -> bool:
    """Whether all words and numbers of a text are known."""
    if "*" not in text and "experts." not in text:
        return known.issuperset(filter(None, text.split(".")))
    return known.issuperset(_words(text))
