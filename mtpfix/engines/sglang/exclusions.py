"""`is_layer_excluded`: ModelOpt's second test of a list.

An entry becomes a regular expression in which only the dot is escaped and `*` is any text; it must match a whole
name (also without a leading `language_model.`) or a single component of it. The MLA tails match inside a fused leaf.
(sglang 0.5.9 srt/layers/quantization/modelopt_quant.py:330, unchanged since)
"""

from __future__ import annotations

from mtpfix.engines.base import ANY_LAYER
from mtpfix.engines.listing import PLAIN, Ends, Entry, Patterns, first_of, pattern_of, picked, texts

_WRAPPER = "language_model."
_META = frozenset("\\^$+?{}[]|()\n")


class Exclusions:
    """One list, ready to be asked. Entries are told apart by shape: literal, `X*`, `*X`, or any other pattern."""

    __slots__ = (
        "_ending",
        "_entries",
        "_literal",
        "_part_ending",
        "_part_starting",
        "_patterns",
        "_single",
        "_starting",
        "_tails",
    )

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        names = texts(entries)
        self._literal = first_of(names)
        self._starting, self._ending = Ends(False), Ends(True)
        self._part_starting, self._part_ending = Ends(False), Ends(True)
        self._tails: dict[str, int] = {}
        self._single: dict[str, int] = {}
        looked = [(index, text) for index, text in enumerate(names) if not PLAIN.fullmatch(text)]
        for _, text in looked:
            self._literal.pop(text, None)
        for index, text in enumerate(names):
            if text.endswith(ANY_LAYER) or "." not in text:
                self._named(index, text)
        others = [(index, text) for index, text in looked if not self._tabled(index, text)]
        self._patterns = Patterns(
            (index, pattern_of(entries[index], text.replace(".", r"\.").replace("*", ".*"))) for index, text in others
        )

    def _named(self, index: int, text: str) -> None:
        """Puts an entry's MLA tail, and a plain entry of one component, into the tables."""
        tail = text.rpartition(".")[2]
        if tail in ANY_LAYER:
            self._tails.setdefault(tail, index)
        if "." not in text and text in self._literal:
            self._single.setdefault(text, index)

    def _tabled(self, index: int, text: str) -> bool:
        """Puts an entry that is simple, if not plain, into the tables; whether it was simple."""
        stars = text.count("*")
        if stars > 1 or not _META.isdisjoint(text) or (stars and text[0] != "*" and text[-1] != "*"):
            return False
        if not stars:
            self._literal.setdefault(text, index)
            if "." not in text:
                self._single.setdefault(text, index)
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
        best = len(self._entries)
        for name in names:
            best = min(best, self._literal.get(name, best))
            best = self._ending.first(name, self._starting.first(name, best))
        if self._single:
            best = min(best, *(self._single.get(part, best) for part in parts))
        if self._part_starting or self._part_ending:
            for part in parts:
                best = self._part_ending.first(part, self._part_starting.first(part, best))
        for tail, index in self._tails.items():
            if tail in parts[-1]:
                best = min(best, index)
        if self._patterns:
            best = self._patterns.first("fullmatch", (*names, *parts), best)
        return picked(self._entries, best)
