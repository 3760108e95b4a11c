"""compressed-tensors' tests of a list in SGLang; w8a8_int8 uses them too."""

from __future__ import annotations

from mtpfix.engines.listing import Entry, Patterns, Within, firsts, pattern_of, picked, starting, tails
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Packed

REGEX = "re:"


def regexes(entries: tuple[Entry, ...]) -> Patterns:
    """The `re:` entries of a list."""
    tried = ((at, entries[at]) for at in starting([entry.text for entry in entries], REGEX))
    return Patterns((at, pattern_of(entry, entry.text.removeprefix(REGEX))) for at, entry in tried)


class Names:
    """`check_equal_or_regex_match`: which entry of a list meets a name.

    Up to 0.5.16 a plain entry is part of the name, whatever the case; from 0.5.17 it is the name or its dotted tail.
    A `re:` entry matches from the start of the name.
    """

    __slots__ = ("_entries", "_patterns", "_plain", "_within", "exact")

    def __init__(self, entries: tuple[Entry, ...], release: str) -> None:
        self._entries = entries
        plain = [
            (index, entry) for index, entry in enumerate(entries) if not (entry.broken or entry.text.startswith(REGEX))
        ]
        self._plain: dict[str, int] = {}
        self._within: tuple[Within, tuple[int, ...]] | None = None
        if on("ct-suffix", release):
            for index, entry in plain:
                self._plain.setdefault(entry.text, index)
        else:
            self._within = Within(entry.text.lower() for _, entry in plain), tuple(index for index, _ in plain)
        self._patterns = regexes(entries)
        self.exact = firsts(entries)

    def first(self, name: str) -> Entry | None:
        """The first entry that meets the name. Raises AtEntry where an invalid pattern is reached first."""
        best = self._first_plain(name)
        if self._patterns:
            best = self._patterns.first("match", (name,), best)
        return picked(self._entries, best)

    def _first_plain(self, name: str) -> int:
        if self._within:
            table, indices = self._within
            found = table.first(name.lower())
            return len(self._entries) if found is None else indices[found]
        known = self._plain
        return min((known[tail] for tail in tails(name) if tail in known), default=len(self._entries))


class Ignored:
    """`should_ignore_layer`: a fused layer counts by its own name only where that is listed to the letter."""

    __slots__ = ("_names", "_packed")

    def __init__(self, names: Names, packed: Packed) -> None:
        self._names = names
        self._packed = packed

    def first(self, name: str) -> Entry | None:
        """The entry that ignores a layer, or None. Raises ValueError where shards differ, AtEntry for bad patterns."""
        leaf = name.rpartition(".")[2]
        if leaf not in self._packed or name in self._names.exact:
            return self._names.first(name)
        return agreed(name, [self._names.first(name.replace(leaf, shard)) for shard in self._packed[leaf]])


def agreed(name: str, found: list[Entry | None]) -> Entry | None:
    """What all shards of a fused layer have in common. Raises ValueError where some are listed and some are not."""
    if not found:
        raise AssertionError("a fused layer without shards")
    if len({entry is None for entry in found}) > 1:
        raise ValueError(f"some but not all shards of {name} are listed")
    return found[0]
