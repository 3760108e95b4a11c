"""`is_layer_excluded`: ModelOpt's second test of a list.

An entry becomes a regular expression in which only the dot is escaped and `*` is any text; it must match a whole
name (also without a leading `language_model.`) or a single component of it. The MLA tails match inside a fused leaf.
(sglang 0.5.9 srt/layers/quantization/modelopt_quant.py:330, unchanged since)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mtpfix.engines.listing import Entry, Patterns, pattern_of

_WRAPPER = "language_model."
_TAILS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
_META = re.compile(r"[\\^$+?{}\[\]|()\n]")


class _Ends:
    """Texts that a name must start (or end) with, found by their lengths."""

    __slots__ = ("_at_end", "_index", "_lengths")

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end
        self._index: dict[str, int] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, text: str, index: int) -> None:
        self._index.setdefault(text, index)
        self._lengths = tuple(sorted({*self._lengths, len(text)}))

    def of(self, name: str) -> Iterator[int]:
        size = len(name)
        for length in self._lengths:
            if length > size:
                return
            found = self._index.get(name[size - length :] if self._at_end else name[:length])
            if found is not None:
                yield found


class Exclusions:
    """One list, ready to be asked. Entries are told apart by shape: literal, `X*`, `*X`, or any other pattern."""

    __slots__ = (
        "_ending",
        "_entries",
        "_literal",
        "_part_ending",
        "_part_starting",
        "_patterns",
        "_starting",
        "_tails",
    )

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        self._literal: dict[str, int] = {}
        self._starting, self._ending = _Ends(False), _Ends(True)
        self._part_starting, self._part_ending = _Ends(False), _Ends(True)
        self._tails: dict[str, int] = {}
        others = [(index, entry) for index, entry in enumerate(entries) if not self._tabled(index, entry.text)]
        self._patterns = Patterns(
            (index, pattern_of(entry, entry.text.replace(".", r"\.").replace("*", ".*"))) for index, entry in others
        )

    def _tabled(self, index: int, text: str) -> bool:
        """Puts an entry's MLA tail, and the entry if it is simple, into the tables; whether it was simple."""
        tail = text.rpartition(".")[2]
        if tail in _TAILS:
            self._tails.setdefault(tail, index)
        stars = text.count("*")
        if stars > 1 or _META.search(text) or (stars and text[0] != "*" and text[-1] != "*"):
            return False
        if not stars:
            self._literal.setdefault(text, index)
        else:
            ends, parts = (
                (self._starting, self._part_starting) if text[-1] == "*" else (self._ending, self._part_ending)
            )
            body = text.replace("*", "")
            ends.add(body, index)
            if "." not in body:
                parts.add(body, index)
        return True

    def first(self, prefix: str) -> Entry | None:
        """The entry that excludes a layer, or None. Raises AtEntry where an invalid pattern is reached first."""
        if not self._entries:
            return None
        names = [prefix, prefix.removeprefix(_WRAPPER)] if prefix.startswith(_WRAPPER) else [prefix]
        parts = prefix.split(".")
        best = min(self._simple(names, parts), default=len(self._entries))
        best = self._patterns.first("fullmatch", (*names, *parts), best)
        return self._entries[best] if best < len(self._entries) else None

    def _simple(self, names: list[str], parts: list[str]) -> Iterator[int]:
        literal = self._literal
        for name in names:
            if name in literal:
                yield literal[name]
            yield from self._starting.of(name)
            yield from self._ending.of(name)
        for part in parts:
            if part in literal:
                yield literal[part]
            yield from self._part_starting.of(part)
            yield from self._part_ending.of(part)
        for tail, index in self._tails.items():
            if tail in parts[-1]:
                yield index
