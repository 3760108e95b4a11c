"""Whether any entry of a list covers a name, asked for many names: entries that are plain text are looked up (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from mtpfix.formats.base import Anchors, Format


class Coverage:
    """The entries of one list, each read as its format reads it."""

    def __init__(self, fmt: Format, entries: Iterable[str]) -> None:
        self._covers = fmt.covers
        self._whole: set[str] = set()
        self._parts: set[str] = set()
        self._starts: dict[int, set[str]] = {}
        self._ends: dict[int, set[str]] = {}
        self._others: list[str] = []
        self._known: dict[str, bool] = {}
        read = fmt.anchors
        for entry in dict.fromkeys(entries):
            anchors = _anchors(read, entry)
            if anchors is None:
                self._others.append(entry)
                continue
            for where, text in anchors:
                if where in ("whole", "part"):
                    (self._whole if where == "whole" else self._parts).add(text)
                else:
                    table = self._starts if where == "start" else self._ends
                    table.setdefault(len(text), set()).add(text)

    def __call__(self, name: str) -> bool:
        """Whether some entry covers a name."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._found(name)
        return found

    def _found(self, name: str) -> bool:
        return (
            name in self._whole
            or (bool(self._parts) and not self._parts.isdisjoint(name.split(".")))
            or any(name[:size] in texts for size, texts in self._starts.items())
            or any(name[max(len(name) - size, 0) :] in texts for size, texts in self._ends.items())
            or any(self._covers(entry, name) for entry in self._others)
        )


@lru_cache(maxsize=16384)  # a list is asked as it is, and with each repair
def _anchors(read: Callable[[str], Anchors | None], entry: str) -> Anchors | None:
    return read(entry)
