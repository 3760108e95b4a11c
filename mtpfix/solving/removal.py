"""Entries that have to go: they make a quantized module plain, break an engine, or can never match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mtpfix.decisions import Judge, Row
from mtpfix.engines.base import Matcher
from mtpfix.modules import EXPERT_NUMBER
from mtpfix.rules.entries import means
from mtpfix.solving.quiet import Verdicts, differing
from mtpfix.solving.shards import cited, shards_of
from mtpfix.solving.solution import is_broken, places_of, rewritten
from mtpfix.solving.trials import Trials

TURNS, SHORT = 20, 100


class Removal:
    """Finds the entries of one list that have to go."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self._matchers: dict[tuple[int, tuple[int, ...]], Matcher] = {}
        self._without: dict[tuple[int, tuple[int, ...]], tuple[Mapping[str, Any], dict[Any, Any]]] = {}

    def gone(self, malformed: Callable[[str], bool]) -> tuple[int, ...]:
        """Places of entries that make a quantized module plain, break an engine, or can never match.

        Taking one out may bring another to light, so that this is asked until nothing new comes. A malformed entry
        goes only where it was meant for a module that is decided wrongly, and no engine makes sense of it.
        """
        missing = self.trials.missing_names(self.trials.base)
        named = set(self._deciding(self.trials.base))
        texts = {
            entry
            for _, entry in self.trials.quiet.live
            if entry not in named and malformed(entry) and any(means(entry, name) for name in missing)
        }
        self.trials.told_apart = self.trials.told_apart or self.trials.alike.told_apart(texts)
        broken = self._breaking()
        patience = max(TURNS * SHORT // max(len(self.trials.where.entries), SHORT), 2)
        for turn in range(3 * patience):  # no list of a model's hides an entry behind as many others
            removed = (*broken, *places_of(self.trials.where, texts))
            new = self._bad(removed) - texts
            if not new:
                break
            named |= self._deciding(self.trials.of(removed, ()))
            texts |= self._kin(new) if turn > patience else new
        return (*broken, *places_of(self.trials.where, texts - self._vain(removed, texts & named)))

    def _kin(self, texts: set[str]) -> set[str]:
        """Entries that differ from some in the number of an expert alone, since a list may name thousands one by one;
        and where one is no regular expression, all that are none."""
        kinds = {EXPERT_NUMBER.sub("", text) for text in texts}
        broken = any(is_broken(text) for text in texts)
        return {
            entry
            for entry in self.trials.where.entries
            if EXPERT_NUMBER.sub("", entry) in kinds or (broken and is_broken(entry))
        }

    def _breaking(self) -> tuple[int, ...]:
        """Places of what is no text, where an engine stops on it: what it then decides may have to be listed."""
        broken = self.trials.where.broken
        without = self.trials.of(broken, ()) if broken else self.trials.base
        goes_on = any(old.decision == "error" != new.decision for old, new in differing(self.trials.base, without))
        return broken if goes_on or self.trials.faults(without) < self.trials.faults(self.trials.base) else ()

    def _vain(self, removed: tuple[int, ...], named: set[str]) -> set[str]:
        """Of entries that decide something those that go for nothing: every module that they made plain is built in a
        scheme that does not fit it.

        One that stays may be at fault for more once the others have gone: that is asked until no more are useful.
        """
        state, vain = self.trials.of(removed, ()), named
        while vain:
            stays = set(places_of(self.trials.where, vain))
            useful = vain & self._useful(self.trials.of((at for at in removed if at not in stays), ()), state)
            if not useful:
                break
            vain = vain - useful
        return vain

    def _useful(self, kept: Verdicts, state: Verdicts) -> set[str]:
        """Entries without which a module fits that does not with them, or an engine does not stop on."""
        return {
            entry
            for (at, row, old), (_, _, new) in zip(self.trials.pairs(kept), self.trials.pairs(state), strict=True)
            for entry in cited(self.trials.judges[at], row, old)
            if old.decision != "plain" or row.unit.stored.plain or not self.trials.misfits(at, row, new, state)
        }

    def _deciding(self, state: Verdicts) -> frozenset[str]:
        """The entries that decide anything in any engine."""
        pairs = self.trials.pairs(state)
        return frozenset(entry for at, row, answer in pairs for entry in cited(self.trials.judges[at], row, answer))

    def _bad(self, removed: tuple[int, ...]) -> set[str]:
        """Entries that are at fault once some are gone; where one shard's entry goes, those of the others go too."""
        found: set[str] = set()
        state = self.trials.of(removed, ())
        for at, (judge, answers) in enumerate(zip(self.trials.judges, state, strict=True)):
            for row, answer, first, names in zip(
                judge.rows, answers, self.trials.base[at], self.trials.members[at], strict=True
            ):
                if not self.trials.wrong(at, row, answer, state):
                    continue
                self.trials.alone(row)
                if answer.error == "re.error" or (answer.decision == "plain" and answer.cause.pointer):
                    found.add(answer.cause.entry)
                elif answer.decision == "error" and (first.decision != "error" or self._all_quantized(judge, row)):
                    found.update(self._shard_entries(at, shards_of(judge, row, names), removed))
        return found & set(self.trials.where.entries)

    def _all_quantized(self, judge: Judge, row: Row) -> bool:
        """Whether every shard of the fused module that a row asks for is stored quantized."""
        asked = row.ask.runtime if row.ask else ""
        same = [other for other in judge.rows if other.ask is not None and other.ask.runtime == asked]
        return all(other.unit.stored.quantized for other in same)

    def _shard_entries(self, at: int, shards: Iterable[str], removed: tuple[int, ...]) -> set[str]:
        """Entries that name some shards of a fused module."""
        judge, bench = self.trials.judges[at], self.trials.benches[at]
        if (id(bench), removed) not in self._without:
            self._without[id(bench), removed] = rewritten(bench.value, bench.where, removed, ()), {}
        if (at, removed) not in self._matchers:
            self._matchers[at, removed] = judge.engine.matcher(
                judge.query(self.trials.world, *self._without[id(bench), removed])
            )
        matcher = self._matchers[at, removed]
        answers = [matcher.decide(name, "linear") for name in shards]
        return {answer.cause.entry for answer in answers if answer.decision == "plain" and answer.cause.pointer}
