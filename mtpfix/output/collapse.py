"""Many dotted names in few lines: `mtp.layers.0.mlp.experts.{0..511}.{gate,up,down}_proj`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os.path import commonprefix

from mtpfix.frozen import NamedTuple
from mtpfix.tokens import masked_each

_DIGITS = "0123456789"
_MOST_PARTS = 64  # of a name that is put together with others; each is looked at as often as it has parts
_APART = frozenset("{},.")  # what no brace may hold; a dot stands in a name that has too many parts to be cut
_SHORTEST_RANGE = 3
_LONGEST_NUMBER = 18
_ENDS = 2  # depths at which names are merged as texts

Alternatives = tuple[str, ...]
Row = tuple[Alternatives, ...]


class _Place(NamedTuple):
    """What is around one depth of a row; `after` is None for a row that joins no other."""

    before: Row
    after: Row | None


class Collapsed(NamedTuple):
    """A name with braces and how many names it stands for."""

    pattern: str
    size: int


def collapse(names: Iterable[str]) -> tuple[str, ...]:
    """The names as brace forms that stand for exactly these names, each once, in order of first appearance."""
    return tuple(group.pattern for group in collapsed(names))


def collapsed(names: Iterable[str]) -> tuple[Collapsed, ...]:
    """Like `collapse`, with the number of names that each form stands for."""
    return _collapsed(tuple(dict.fromkeys(masked_each(tuple(names)))))


@lru_cache(maxsize=4)  # one finding after the other names the same modules
def _collapsed(names: tuple[str, ...]) -> tuple[Collapsed, ...]:
    """The same of names of which none is there twice."""
    deepest = max((count for name in names if (count := name.count(".")) < _MOST_PARTS), default=0)
    if deepest < _ENDS:
        rows, depth = [*map(_row, names)], deepest
    else:
        rows, depth = _merged_at_ends(names, deepest), deepest - _ENDS
    for at in range(depth, -1, -1):
        rows = _merged_at(rows, at)
    return tuple(map(_shown, rows))


def _row(name: str) -> Row:
    """A name cut at its dots; one with more parts than any module has is left whole."""
    return tuple((part,) for part in name.split(".")) if name.count(".") < _MOST_PARTS else ((name,),)


def _merged_at_ends(names: Iterable[str], deepest: int) -> list[Row]:
    """What `_merged_at` makes of names at the two last depths, without a row for each of them.

    Experts' projections and numbers stand there, by the hundred thousand: texts are looked up faster than rows.
    """
    last: dict[str | tuple[str], list[str]] = {}
    for name in names:
        head, _, part = name.rpartition(".")
        joins = name.count(".") == deepest and _is_clear(part)
        last.setdefault(head if joins else (name,), []).append(part)
    found: dict[tuple[str, Alternatives, bool], dict[str, None]] = {}
    for text, after in _one_shorter(last, deepest):
        head, _, part = text.rpartition(".")
        joins = text.count(".") == deepest - 1 and _is_clear(part)
        found.setdefault((head if joins else text, after, joins), {})[part] = None
    return [
        (*_row(text), *((tuple(parts),) if joins else ()), *((after,) if after else ()))
        for (text, after, joins), parts in found.items()
    ]


def _one_shorter(last: Mapping[str | tuple[str], list[str]], deepest: int) -> Iterator[tuple[str, Alternatives]]:
    """Names without what stands at the last depth, and that."""
    for key, parts in last.items():
        if isinstance(key, str):
            yield key, tuple(parts)
        elif key[0].count(".") == deepest:
            yield key[0].rpartition(".")[0], (parts[0],)
        else:
            yield key[0], ()


def numbers(values: Iterable[int], width: int = 0) -> str:
    """Numbers as a list with ranges: `0..2,5,7..9`; two neighbours stay a list. `width`: digits, zeros in front."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    told = [[f"{value:0{width}}" for value in run] for run in runs]
    return ",".join(f"{run[0]}..{run[-1]}" if len(run) >= _SHORTEST_RANGE else ",".join(run) for run in told)


def _merged_at(rows: list[Row], depth: int) -> list[Row]:
    """Rows that differ at one depth only become one."""
    merged: dict[_Place, dict[str, None]] = {}
    for row in rows:
        joinable = _joinable(row, depth)
        place = _Place(row[:depth], row[depth + 1 :]) if joinable else _Place(row, None)
        merged.setdefault(place, {}).update(dict.fromkeys(row[depth] if joinable else ()))
    return [
        place.before if place.after is None else (*place.before, tuple(parts), *place.after)
        for place, parts in merged.items()
    ]


def _joinable(row: Row, depth: int) -> bool:
    """Whether the row reaches this depth with parts that no brace could confuse."""
    return len(row) > depth and all(map(_is_clear, row[depth]))


def _is_clear(part: str) -> bool:
    return bool(part) and _APART.isdisjoint(part)


def _shown(row: Row) -> Collapsed:
    count = 1
    for parts in row:
        count *= len(parts)
    return Collapsed(".".join(map(_braced, row)), count)


def _braced(parts: Alternatives) -> str:
    if len(parts) == 1:
        return parts[0]
    if len(parts) > _SHORTEST_RANGE and (counted := _counted(parts)):
        return counted
    front, back = _shared(parts)
    inner = [part[len(front) : len(part) - len(back)] for part in parts]
    listed = numbers(map(int, inner)) if all(map(_is_number, inner)) else ",".join(inner)
    return f"{front}{{{listed}}}{back}"


def _counted(parts: Alternatives) -> str:
    """Parts that differ in one number: `model-{00002..00162}-of-00162`; "" for others."""
    front = _alike(parts).rstrip(_DIGITS)
    back = _alike([part[len(front) :][::-1] for part in parts])[::-1].lstrip(_DIGITS)
    inner = [part[len(front) : len(part) - len(back)] for part in parts]
    widths = set(map(len, inner))
    if all(map(_is_number, inner)):
        return f"{front}{{{numbers(map(int, inner))}}}{back}"
    if len(widths) > 1 or not 0 < len(inner[0]) <= _LONGEST_NUMBER or not all(map(set(_DIGITS).issuperset, inner)):
        return ""
    return f"{front}{{{numbers(map(int, inner), len(inner[0]))}}}{back}"


def _alike(texts: Sequence[str]) -> str:
    """The front that all texts share."""
    return commonprefix(texts)  # noqa: RUF071 - characters are what is meant


def _is_number(part: str) -> bool:
    """Whether the part is a number in its shortest spelling, so that a range stands for exactly it."""
    return part.isascii() and part.isdigit() and len(part) <= _LONGEST_NUMBER and (part[0] != "0" or part == "0")


def _shared(parts: Alternatives) -> tuple[str, str]:
    """The front and back that all parts share, cut at underscores: (`""`, `_proj`) for gate_proj, up_proj."""
    words = [part.split("_") for part in parts]
    shortest = min(map(len, words)) - 1
    back = _common([word[::-1] for word in words], shortest)
    front = _common(words, shortest - back)
    return (
        "".join(f"{word}_" for word in words[0][:front]),
        "".join(f"_{word}" for word in words[0][len(words[0]) - back :]),
    )


def _common(words: list[list[str]], most: int) -> int:
    """How many first words all lists share, at most so many."""
    count = 0
    while count < most and len({word[count] for word in words}) == 1:
        count += 1
    return count
