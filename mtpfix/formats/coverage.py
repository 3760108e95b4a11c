"""Whether any entry of a list covers a name, asked for many names: entries that are plain text are looked up (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import repeat

from mtpfix.formats.base import Anchors, Format, Where


class Coverage:
    """The entries of one list, each read as its format reads it."""

    def __init__(self, fmt: Format, entries: Iterable[str]) -> None:
        self._covers = fmt.covers
        self._whole: set[str] = set()
        self._parts: set[str] = set()
        self._runs: dict[int, set[str]] = {}
        self._inner: dict[int, dict[str, list[str]]] = {}
        self._starts: dict[int, set[str]] = {}
        self._ends: dict[int, set[str]] = {}
        self._others: list[str] = []
        self._known: dict[str, bool] = {}
        read = fmt.anchors
        listed = self._apart(dict.fromkeys(entries), fmt.marks)
        for entry, anchors in zip(listed, map(_anchors, repeat(read), listed), strict=False):
            if anchors is None:
                self._others.append(entry)
                continue
            for where, text in anchors:
                if where == "whole":  # as most
                    self._whole.add(text)
                else:
                    self._add(where, text)

    def _apart(self, entries: dict[str, None], marks: tuple[str, ...] | None) -> Collection[str]:
        """The entries that have to be read one by one; the others cover their own names."""
        if marks is None:
            return entries
        whole = "\n".join(entries)
        odd = {entry for mark in marks if mark in whole for entry in entries if mark in entry}
        self._whole.update(entries.keys() - odd if odd else entries)
        return odd

    def _add(self, where: Where, text: str) -> None:
        if where == "part":
            self._parts.add(text)
        elif where == "run":
            self._runs.setdefault(text.count(".") + 1, set()).add(text)
        elif where == "within":
            first, last = text.find("."), text.rfind(".")
            length, inner = (text.count(".") - 1, text[first + 1 : last]) if first < last else (0, "")
            self._inner.setdefault(length, {}).setdefault(inner, []).append(text)
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
            or (bool(self._runs) and self._has_run(name.split(".")))
            or (bool(self._inner) and any(text in name for text in self._likely(name.split("."))))
            or any(self._covers(entry, name) for entry in self._others)
        )

    def _has_run(self, parts: list[str]) -> bool:
        return any(
            ".".join(parts[at : at + length]) in texts
            for length, texts in self._runs.items()
            for at in range(len(parts) - length + 1)
        )

    def _likely(self, parts: list[str]) -> Iterator[str]:
        """The texts that may be part of a name: what stands between two dots of one is a run of whole components."""
        for length, texts in self._inner.items():
            if not length:
                yield from texts.get("", ())
                continue
            for at in range(len(parts) - length + 1):
                yield from texts.get(".".join(parts[at : at + length]), ())


@lru_cache(maxsize=16384)  # a list is asked as it is, and with each repair
def _anchors(read: Callable[[str], Anchors | None], entry: str) -> Anchors | None:
    return read(entry)
