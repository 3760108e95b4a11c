"""The list tests of vLLM, compiled: dictionaries and prefix tables instead of a walk over the entries.

Every `find` returns the entry that the engine's own walk would meet first, or None, and raises where that walk would.
An entry that is no text stands for the exception that it causes as soon as the walk reaches it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from itertools import accumulate

from mtpfix.engines.regexes import Regex, TooCostly, compiled, united
from mtpfix.engines.vllm.answers import Refusal
from mtpfix.engines.vllm.entries import Entry
from mtpfix.model import Packed

Find = Callable[[str], Entry | None]
_MANY = 32


class Exact:
    """Equality. An entry that is no text equals nothing."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._names: dict[str, Entry] = {}
        for entry in entries:
            if isinstance(entry.name, str):
                self._names.setdefault(entry.name, entry)

    def find(self, name: str) -> Entry | None:
        return self._names.get(name)


class Contained:
    """Entries that are part of the name's text.

    An entry with two dots or more can only be part of a name that has the components between its dots as a whole,
    so a dictionary of these finds the candidates. The others are few in practice and tried one by one.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._inner: dict[str, list[Entry]] = {}
        self._short: list[Entry] = []
        self._bad: Entry | None = None
        seen: set[str] = set()
        lengths: set[int] = set()
        for entry in entries:
            if not isinstance(entry.name, str):
                self._bad = self._bad or entry
            elif entry.name not in seen:
                seen.add(entry.name)
                parts = entry.name.split(".")
                if len(parts) > 2:
                    lengths.add(len(parts) - 2)
                    self._inner.setdefault(".".join(parts[1:-1]), []).append(entry)
                else:
                    self._short.append(entry)
        self._lengths = sorted(lengths)
        self._any_short = re.compile("|".join(re.escape(e.name) for e in self._short)) if self._many else None

    @property
    def _many(self) -> bool:
        return len(self._short) > _MANY

    def find(self, name: str, besides: str | None = None) -> Entry | None:
        """`besides`: an entry with this text does not count."""
        best: Entry | None = None
        for entry in self._candidates(name):
            if entry.name in name and (best is None or entry.order < best.order) and entry.name != besides:
                best = entry
        if self._bad is not None and (best is None or best.order > self._bad.order):
            raise TypeError(f"an entry is no text: {self._bad.text!r}")
        return best

    def _candidates(self, name: str) -> Iterator[Entry]:
        if self._any_short is None or self._any_short.search(name):
            yield from self._short
        if self._inner:
            parts = name.split(".")
            inside = len(parts) - 1
            for length in self._lengths:
                for start in range(1, inside - length + 1):
                    yield from self._inner.get(".".join(parts[start : start + length]), ())


class Suffixed:
    """Entries that equal the name or end it after a dot."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._names = Exact(entries)

    def find(self, name: str) -> Entry | None:
        whole = self._names.find(name)
        return earliest([whole, self.ending(name)])

    def ending(self, name: str) -> Entry | None:
        """The first entry that ends the name after a dot."""
        cuts = (at + 1 for at, letter in enumerate(name) if letter == ".")
        return earliest(self._names.find(name[cut:]) for cut in cuts)


class Ancestors:
    """Entries that lie below the name."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._above: dict[str, Entry] = {}
        for entry in entries:
            text = entry.name
            at = text.find(".")
            while at >= 0:
                self._above.setdefault(text[:at], entry)
                at = text.find(".", at + 1)

    def find(self, name: str) -> Entry | None:
        return self._above.get(name)


class Holding:
    """Entries whose text contains the name: the walk looks for the name in all of them joined."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        kept = list(entries)
        self._bad = next((entry for entry in kept if not isinstance(entry.name, str)), None)
        self._entries = [entry for entry in kept if isinstance(entry.name, str)]
        self._text = "\n".join(entry.name for entry in self._entries)
        self._ends = list(accumulate(len(entry.name) + 1 for entry in self._entries))

    def find(self, name: str) -> Entry | None:
        found = self._first(name)
        if self._bad is not None and (found is None or found.order > self._bad.order):
            raise TypeError(f"an entry is no text: {self._bad.text!r}")
        return found

    def _first(self, name: str) -> Entry | None:
        if "\n" in name:
            return next((entry for entry in self._entries if name in entry.name), None)
        at = self._text.find(name)
        return self._entries[bisect_right(self._ends, at)] if at >= 0 and self._entries else None


class Globs:
    """`fnmatch` of the name against each entry."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        starts: list[Entry] = []
        ends: list[Entry] = []
        self._others: list[tuple[Entry, re.Pattern[str]]] = []
        texts = [entry for entry in entries if isinstance(entry.name, str)]
        for entry in texts:
            text = entry.name
            if text.endswith("*") and not _special(text[:-1]):
                starts.append(entry._replace(name=text[:-1]))
            elif text.startswith("*") and not _special(text[1:]):
                ends.append(entry._replace(name=text[1:]))
            elif _special(text):
                self._others.append((entry, re.compile(translate(text))))
        self._starts, self._ends = Exact(starts), Exact(ends)
        self._start_lengths = sorted({len(entry.name) for entry in starts})
        self._end_lengths = sorted({len(entry.name) for entry in ends})
        self._equal = Exact(texts)

    def find(self, name: str) -> Entry | None:
        size = len(name)
        hits = [self._equal.find(name)]
        hits += [self._starts.find(name[:length]) for length in self._start_lengths if length <= size]
        hits += [self._ends.find(name[size - length :]) for length in self._end_lengths if length <= size]
        hits += [entry for entry, pattern in self._others if pattern.match(name)]
        return earliest(hits)


def _special(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def earliest(entries: Iterable[Entry | None]) -> Entry | None:
    """The entry that comes first in the engine's list."""
    return min((entry for entry in entries if entry is not None), key=_order, default=None)


def _order(entry: Entry) -> int:
    return entry.order


class SkipList:
    """The test that ModelOpt, fp8 and AWQ share, in one of its three modes.

    A fused name needs all of its shards or none; from 0.24.0 the fused name itself may be listed instead. In exact
    mode a name with `experts` in it is skipped when it is part of any entry with `experts` in it.
    (vllm-0.33.0 Q/utils/quant_utils.py:596-693)
    """

    def __init__(self, entries: Sequence[Entry], packed: Packed, *, mode: str = "exact", fused_name: bool) -> None:
        self._packed = packed
        self._fused_name = fused_name
        self._match: Find = {"exact": Exact, "substring": Contained, "suffix": Suffixed}[mode](entries).find
        experts = mode == "exact"
        self._experts = Holding(_with_experts(entries)) if experts else None

    def find(self, name: str) -> Entry | None:
        leaf = name.rsplit(".", 1)[-1]
        if leaf in self._packed:
            whole = self._match(name) if self._fused_name else None
            return whole or agreed(name, shards(name, leaf, self._packed), self._match)
        if self._experts is not None and "experts" in name:
            return self._experts.find(name)
        return self._match(name)


def _with_experts(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not isinstance(entry.name, str) or "experts" in entry.name]


def shards(name: str, leaf: str, packed: Packed) -> list[str]:
    """The names of a fused module's shards, made as the engine makes them: every occurrence of the leaf replaced."""
    return [name.replace(leaf, shard) for shard in packed[leaf]]


def agreed(name: str, parts: Sequence[str], match: Find) -> Entry | None:
    """The first shard's entry where all shards are listed, None where none is; raises where they disagree."""
    found = [match(part) for part in parts]
    if not found:
        raise Refusal("AssertionError", f"the packed mapping has no shards for {name}")
    if any(found) and not all(found):
        witness = next(entry for entry in found if entry)
        raise Refusal("ValueError", f"some but not all shards of {name} are listed", witness)
    return found[0]


class Patterns:
    """Equality, or from the start for an entry with `re:`; the engine meets the entries in their order.

    `exhaustive`: the engine tries all entries, so that a broken one counts wherever it stands.
    """

    def __init__(self, entries: Iterable[Entry], *, exhaustive: bool = False) -> None:
        literal: list[Entry] = []
        self._regexes: list[tuple[Entry, Regex]] = []
        self._bad: tuple[Entry, Exception] | None = None
        for entry in entries:
            try:
                if entry.name.startswith("re:"):
                    self._regexes.append((entry, compiled(entry.name[3:])))
                else:
                    literal.append(entry)
            except (AttributeError, TypeError, re.error, TooCostly) as problem:
                self._bad = self._bad or (entry, problem)
        self._exact = Exact(literal)
        self._exhaustive = exhaustive
        self._all = united([regex for _, regex in self._regexes])

    def find(self, name: str) -> Entry | None:
        equal = self._exact.find(name)
        found = self._regex(name, equal) or equal
        if self._bad is not None and (self._exhaustive or found is None or self._bad[0].order < found.order):
            raise self._bad[1]
        return found

    def _regex(self, name: str, equal: Entry | None) -> Entry | None:
        if self._all is not None and not self._all.match(name):
            return None
        for entry, regex in self._regexes:
            if equal is not None and equal.order < entry.order:
                return None
            if regex.match(name):
                return entry
        return None
