"""The list tests of vLLM, compiled: dictionaries and prefix tables instead of a walk over the entries.

Every `find` returns the entry that the engine's own walk would meet first, or None, and raises where that walk would.
An entry that is no text stands for the exception that it causes as soon as the walk reaches it.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from fnmatch import translate
from functools import lru_cache
from itertools import accumulate, compress
from operator import itemgetter, methodcaller

from mtpfix.engines.listing import AtEntry, Below, Index, Pattern, pattern_of
from mtpfix.engines.listing import Entry as Written
from mtpfix.engines.listing import Patterns as Tried
from mtpfix.engines.vllm.answers import Refusal
from mtpfix.engines.vllm.entries import Entry, are_texts
from mtpfix.model import Packed

Find = Callable[[str], Entry | None]
_MANY = 32
_NAME = itemgetter(0)
_NOBODY = Written("", "", "")  # whose pattern it is: what goes wrong with it is raised without
_DOTS, _OF_EXPERTS = methodcaller("count", "."), methodcaller("count", "experts")


def _texts(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are texts, as all are in most lists."""
    kept = list(entries)
    if are_texts(kept):
        return kept
    return [entry for entry in kept if isinstance(entry.name, str)]


def _first_bad(entries: Sequence[Entry]) -> Entry | None:
    """The first entry that is no text."""
    if are_texts(entries):
        return None
    return next((entry for entry in entries if not isinstance(entry.name, str)), None)


class Exact:
    """Equality. An entry that is no text equals nothing."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        kept = _texts(entries)
        table = dict.fromkeys(map(_NAME, kept), None)  # in their order; of equal ones the first counts
        table.update(zip(map(_NAME, reversed(kept)), reversed(kept), strict=True))
        self._names = table

    def texts(self) -> Iterable[str]:
        """The entries that are texts, each once, in their order."""
        return self._names

    def find(self, name: str) -> Entry | None:
        return self._names.get(name)


class Contained:
    """Entries that are part of the name's text.

    An entry with two dots or more can only be part of a name that has the components between its dots as a whole,
    so a dictionary of these finds the candidates. The others are few in practice and tried one by one.
    """

    def __init__(self, entries: Iterable[Entry], exact: Exact | None = None) -> None:
        """`exact`: the same entries by their texts, where that is there already."""
        kept = list(entries)
        self._bad = _first_bad(kept)
        self._names = exact or Exact(kept)
        names = self._names.texts()
        dots = list(map(_DOTS, names))
        self._inner = _INNER.of(compress(names, map((1).__lt__, dots)))
        self._lengths = sorted(count - 1 for count in set(dots) if count > 1)
        short = list(compress(names, map((2).__gt__, dots)))
        self._short = [(text, entry) for text in short if (entry := self._names.find(text))]
        many = len(self._short) > _MANY
        self._any_short = re.compile("|".join(re.escape(text) for text in short)) if many else None

    def find(self, name: str, besides: str | None = None) -> Entry | None:
        """`besides`: an entry with this text does not count."""
        best: Entry | None = None
        if self._any_short is None or self._any_short.search(name):
            best = next((entry for text, entry in self._short if text in name and text != besides), None)
        if self._lengths:
            parts = name.split(".")
            for length in self._lengths:
                for start in range(1, len(parts) - length):
                    for text in self._inner.get(".".join(parts[start : start + length]), ()):
                        if text in name and text != besides:
                            best = earliest((best, self._names.find(text)))
        return best if self._bad is None else _unless_bad(best, self._bad)


def _between(text: str) -> str:
    """The components between the first dot of a text and its last one."""
    return text[text.find(".") + 1 : text.rfind(".")]


_INNER = Index(_between)


def _unless_bad(found: Entry | None, bad: Entry) -> Entry | None:
    """What was found, unless the walk meets an entry that is no text before."""
    if found is None or found.order > bad.order:
        raise TypeError(f"an entry is no text: {bad.text!r}")
    return found


class Suffixed:
    """Entries that equal the name or end it after a dot."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._names = Exact(entries)

    def find(self, name: str) -> Entry | None:
        return earliest((self._names.find(name), self.ending(name)))

    def ending(self, name: str) -> Entry | None:
        """The first entry that ends the name after a dot."""
        best: Entry | None = None
        at = name.find(".")
        while at >= 0:
            hit = self._names.find(name[at + 1 :])
            if hit is not None and (best is None or hit.order < best.order):
                best = hit
            at = name.find(".", at + 1)
        return best


class Ancestors:
    """Entries that lie below the name."""

    def __init__(self, exact: Exact) -> None:
        self._names = exact
        self._below = Below(exact.texts())

    def find(self, name: str) -> Entry | None:
        found = self._below.first(name)
        return None if found is None else self._names.find(found)


class Holding:
    """Entries whose text contains the name: the walk looks for the name in all of them joined."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        kept = list(entries)
        self._bad = _first_bad(kept)
        self._entries = [entry for entry in kept if isinstance(entry.name, str)]
        self._text = "\n".join(entry.name for entry in self._entries)
        self._ends = list(accumulate(len(entry.name) + 1 for entry in self._entries))

    def find(self, name: str) -> Entry | None:
        found = self._first(name)
        return found if self._bad is None else _unless_bad(found, self._bad)

    def _first(self, name: str) -> Entry | None:
        if "\n" in name:
            return next((entry for entry in self._entries if name in entry.name), None)
        at = self._text.find(name)
        return self._entries[bisect_right(self._ends, at)] if at >= 0 and self._entries else None


class Globs:
    """`fnmatch` of the name against each entry: equal, `X*` and `*X` by dictionaries, the rest as regexes."""

    def __init__(self, exact: Exact) -> None:
        self._equal = exact
        self._starts: dict[int, dict[str, Entry]] = {}
        self._ends: dict[int, dict[str, Entry]] = {}
        self._others: list[tuple[Entry, re.Pattern[str]]] = []
        whole = "\n".join(self._equal.texts())
        for text in self._equal.texts() if _special(whole) else ():
            if _special(text):
                entry = self._equal.find(text)
                if entry is not None:
                    self._add(entry, text)

    def _add(self, entry: Entry, text: str) -> None:
        if text.endswith("*") and not _special(text[:-1]):
            self._starts.setdefault(len(text) - 1, {}).setdefault(text[:-1], entry)
        elif text.startswith("*") and not _special(text[1:]):
            self._ends.setdefault(len(text) - 1, {}).setdefault(text[1:], entry)
        else:
            self._others.append((entry, _glob(text)))

    def find(self, name: str) -> Entry | None:
        best = None if _special(name) else self._equal.find(name)
        for length, table in self._starts.items():
            hit = table.get(name[:length])
            if hit is not None and (best is None or hit.order < best.order):
                best = hit
        for length, table in self._ends.items():
            hit = table.get(name[-length:])
            if hit is not None and (best is None or hit.order < best.order):
                best = hit
        if self._others:
            hit = next((entry for entry, pattern in self._others if pattern.match(name)), None)  # they are in order
            best = earliest((best, hit))
        return best


@lru_cache(maxsize=4096)
def _glob(text: str) -> re.Pattern[str]:
    return re.compile(translate(text))


def _special(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def earliest(entries: Iterable[Entry | None]) -> Entry | None:
    """The entry that comes first in the engine's list."""
    best: Entry | None = None
    for entry in entries:
        if entry is not None and (best is None or entry.order < best.order):
            best = entry
    return best


class SkipList:
    """The test that ModelOpt, fp8 and AWQ share, in one of its three modes.

    A fused name needs all of its shards or none; from 0.24.0 the fused name itself may be listed instead. In exact
    mode a name with `experts` in it is skipped when it is part of any entry with `experts` in it.
    (vllm-0.33.0 Q/utils/quant_utils.py:596-693)
    """

    def __init__(self, match: Find, packed: Packed, *, experts: Holding | None = None, fused_name: bool) -> None:
        """`experts`: what the exact mode asks for experts; None in the others."""
        self._packed = packed
        self._fused_name = fused_name
        self._match = match
        self._experts = experts

    def find(self, name: str) -> Entry | None:
        leaf = name.rsplit(".", 1)[-1]
        if leaf in self._packed:
            whole = self._match(name) if self._fused_name else None
            return whole or agreed(name, shards(name, leaf, self._packed), self._match)
        if self._experts is not None and "experts" in name:
            return self._experts.find(name)
        return self._match(name)


_MODES: Mapping[str, Callable[[Iterable[Entry]], Find]] = {
    "exact": lambda entries: Exact(entries).find,
    "substring": lambda entries: Contained(entries).find,
    "suffix": lambda entries: Suffixed(entries).find,
}


def searched(entries: Sequence[Entry], mode: str) -> tuple[Find, Holding | None]:
    """A list ready to be searched in one of the modes, and for experts: what a `SkipList` is made of."""
    experts = experts_of(entries) if mode == "exact" else None
    return _MODES[mode](entries), experts


def experts_of(entries: Sequence[Entry]) -> Holding:
    """The entries that count for experts in exact mode."""
    return Holding(_with_experts(entries))


def _with_experts(entries: Sequence[Entry]) -> list[Entry]:
    names = list(map(_NAME, entries))
    if set(map(type, names)) <= {str}:
        return list(compress(entries, map(_OF_EXPERTS, names))) if "experts" in "\n".join(names) else []
    return [entry for entry in entries if not isinstance(entry.name, str) or "experts" in entry.name]


def shards(name: str, leaf: str, packed: Packed) -> list[str]:
    """The names of a fused module's shards, made as the engine makes them: every occurrence of the leaf replaced."""
    return [name.replace(leaf, shard) for shard in packed[leaf]]


def agreed(name: str, parts: Sequence[str], match: Find) -> Entry | None:
    """The first shard's entry where all shards are listed, None where none is; raises where they disagree."""
    found = [match(part) for part in parts]
    if not found:
        raise Refusal("AssertionError", f"the packed mapping has no shards for {name}")
    if found.count(None) not in (0, len(found)):
        witness = next(entry for entry in found if entry)
        raise Refusal("ValueError", f"some but not all shards of {name} are listed", witness)
    return found[0]


class Patterns:
    """Equality, or from the start for an entry with `re:`; the engine meets the entries in their order.

    `exhaustive`: the engine tries all entries, so that a broken one counts wherever it stands.
    """

    def __init__(self, entries: Iterable[Entry], *, exhaustive: bool = False) -> None:
        kept = list(entries)
        self.literal: list[Entry] = [] if _may_have_patterns(kept) else kept
        self._bad: tuple[Entry, Exception] | None = None
        self._regexes: dict[int, Entry] = {}
        self._patterns = Tried(self._read(kept) if kept is not self.literal else ())
        self.exact = Exact(self.literal)
        self._exhaustive = exhaustive

    def exhaustive(self) -> Patterns:
        """The same for an engine that tries all entries."""
        found = copy(self)
        found._exhaustive = True
        return found

    def _read(self, entries: Iterable[Entry]) -> Iterator[tuple[int, Pattern]]:
        """The patterns by the places of their entries; puts all other entries where they belong."""
        for entry in entries:
            try:
                if not entry.name.startswith("re:"):
                    self.literal.append(entry)
                    continue
            except (AttributeError, TypeError) as problem:
                self._bad = self._bad or (entry, problem)
                continue
            pattern = pattern_of(_NOBODY, entry.name[3:])
            if pattern.problem is None:
                self._regexes[entry.order] = entry
                yield entry.order, pattern
            else:
                self._bad = self._bad or (entry, pattern.problem)

    def find(self, name: str) -> Entry | None:
        equal = self.exact.find(name)
        found = (self._regex(name, equal) if self._regexes else None) or equal
        if self._bad is not None and (self._exhaustive or found is None or self._bad[0].order < found.order):
            raise self._bad[1].with_traceback(None)
        return found

    def _regex(self, name: str, equal: Entry | None) -> Entry | None:
        below = sys.maxsize if equal is None else equal.order
        try:
            return self._regexes.get(self._patterns.first("match", (name,), below))
        except AtEntry as found:
            raise found.problem.with_traceback(None) from None


def _may_have_patterns(entries: Sequence[Entry]) -> bool:
    """Whether some entry may begin with `re:`, or is no text."""
    names = list(map(_NAME, entries))
    return not set(map(type, names)) <= {str} or "re:" in "\n".join(names)
