"""Name patterns of family files: small enough to be a dictionary lookup.

A pattern is a dotted name in which a component may be a slot and a part of a component may be a choice:

    {n}      a layer number below N (N = number of hidden layers)
    {N+i}    a layer number from N on; binds i = number - N
    {i}      any number; binds i
    {e}      any number (an expert)
    0, 61    that very number
    {q,k,v}  one of several texts
    **       as last component: everything below (and not the node itself)

On the right side of a rule `{n}`, `{i}`, `{N}`, `{N+i}` and `{2N}` are filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, compress
from operator import itemgetter
from typing import Generic, TypeVar

from mtpfix.frozen import dataclass
from mtpfix.names import MAX_NAME, counted

T = TypeVar("T")

_SLOTS = frozenset({"{n}", "{N+i}", "{i}", "{e}"})
_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class Key:
    """A name with every number replaced by `#`, and the numbers."""

    text: str
    numbers: tuple[int, ...]


def key_of(name: str) -> Key:
    """The lookup key of a module name: `a.3.b` -> Key("a.#.b", (3,))."""
    numbers: list[int] = []
    parts = name[:MAX_NAME].split(".")
    for at in compress(range(len(parts)), map(str.isdecimal, parts)):
        count = counted(parts[at])
        if count is not None:
            numbers.append(count)
            parts[at] = "#"
    return Key(".".join(parts), tuple(numbers))


def expand(pattern: str) -> tuple[str, ...]:
    """All readings of the `{a,b}` choices in a pattern, left to right."""
    if "," not in pattern:
        return (pattern,)
    pieces = pattern.split("{")
    for at, piece in enumerate(pieces[1:], 1):
        items, closed, tail = piece.partition("}")
        if closed and "," in items:
            head, tail = "{".join(pieces[:at]), "{".join((tail, *pieces[at + 1 :]))
            return tuple(name for item in items.split(",") for name in expand(head + item + tail))
    return (pattern,)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One expanded pattern: its key and what each number in it has to be. `below`: ends in `**`."""

    text: str
    key: str
    slots: tuple[str, ...]
    below: bool

    def bind(self, numbers: tuple[int, ...], layers: int) -> Mapping[str, int] | None:
        """The numbers that the slots bind, or None where one does not fit. `layers` is N."""
        bound: dict[str, int] = {}
        for slot, number in zip(self.slots, numbers, strict=False):
            if not _fits(slot, number, layers, bound):
                return None
        return bound


def _fits(slot: str, number: int, layers: int, bound: dict[str, int]) -> bool:
    if slot == "{n}":
        bound["n"] = number
        return number < layers
    if slot == "{N+i}":
        bound["i"] = number - layers
        return number >= layers
    if slot == "{i}":
        bound["i"] = number
        return True
    return slot == "{e}" or int(slot) == number


@lru_cache(maxsize=8192)
def compile_pattern(text: str) -> Pattern:
    """A pattern without choices, compiled."""
    below = text.endswith(".**") or text == "**"
    parts = [] if text == "**" else text.removesuffix(".**").split(".")
    slots = tuple(part for part in parts if part in _SLOTS or part.isdecimal())
    key = ".".join("#" if part in _SLOTS or part.isdecimal() else part for part in parts)
    return Pattern(text, key, slots, below)


def fill(template: str, bound: Mapping[str, int], layers: int) -> str:
    """The right side of a rule with its numbers filled in."""
    if "{" not in template:
        return template
    for slot in ("n", "i"):
        if f"{{{slot}}}" in template:
            template = template.replace(f"{{{slot}}}", str(bound[slot]))
    if "{N+i}" in template:
        template = template.replace("{N+i}", str(layers + bound["i"]))
    return template.replace("{N}", str(layers)).replace("{2N}", str(2 * layers))


_Row = tuple[int, Pattern, T]


class PatternMap(Generic[T]):
    """Patterns to values, looked up by name; of those that fit, the one given first wins.

    Exact patterns cost one dictionary lookup; `**` patterns one for each leading path of the name.
    """

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        self._exact: dict[str, list[_Row[T]]] = {}
        self._below: dict[str, list[_Row[T]]] = {}
        self._known: dict[str, list[_Row[T]]] = {}  # a checkpoint's names have a few dozen texts
        for rank, (text, value) in enumerate(rows):
            for reading in expand(text):
                pattern = compile_pattern(reading)
                table = self._below if pattern.below else self._exact
                table.setdefault(pattern.key, []).append((rank, pattern, value))
        self._deepest = max((key.count(".") + 1 for key in self._below), default=0)

    def find(
        self, key: Key, layers: int, accepts: Callable[[T], bool] | None = None
    ) -> tuple[T, Mapping[str, int]] | None:
        """The value of the first pattern that fits a name (and that `accepts` takes), with what its slots bind."""
        for _, pattern, value in self._fitting(key.text):
            if accepts and not accepts(value):
                continue
            bound = pattern.bind(key.numbers, layers)
            if bound is not None:
                return value, bound
        return None

    def may_fit(self, text: str) -> bool:
        """Whether some pattern fits a name of this text (see `Key`), whatever its numbers are."""
        return bool(self._fitting(text))

    def values(self) -> Iterator[T]:
        """The values, some perhaps more than once."""
        for table in (self._exact, self._below):
            yield from (value for rows in table.values() for _, _, value in rows)

    def numbers(self) -> Iterator[int]:
        """The numbers that stand in patterns as such."""
        for table in (self._exact, self._below):
            patterns = (pattern for rows in table.values() for _, pattern, _ in rows)
            yield from (int(slot) for pattern in patterns for slot in pattern.slots if slot.isdecimal())

    def _fitting(self, text: str) -> list[_Row[T]]:
        rows = self._known.get(text)
        return self._learn(text) if rows is None else rows

    def _learn(self, text: str) -> list[_Row[T]]:
        """The patterns that may fit names of some text, whatever their numbers; the one given first comes first."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        rows = self._known[text] = sorted(chain.from_iterable(self._candidates(text)), key=itemgetter(0))
        return rows

    def _candidates(self, text: str) -> Iterator[list[_Row[T]]]:
        if text in self._exact:
            yield self._exact[text]
        if not self._below:
            return
        if "" in self._below:
            yield self._below[""]
        end = -1
        for _ in range(self._deepest):
            end = text.find(".", end + 1)
            if end < 0:
                return
            found = self._below.get(text[:end])
            if found:
                yield found
