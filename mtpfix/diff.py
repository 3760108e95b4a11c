"""The unified diff of file contents, as `patch` and `git apply` read it.

Lines that occur once in both texts are matched first (patience), so that the time stays near linear in
the size of the files; only what is left between them goes to difflib.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from mtpfix.frozen import NamedTuple

_SMALL = 250_000  # pairs of lines that difflib may compare
_NO_BREAK = "\\ No newline at end of file\n"

Lines = Sequence[bytes]


class _Block(NamedTuple):
    """A stretch of lines: old[i:i2] and new[j:j2]."""

    i: int
    i2: int
    j: int
    j2: int


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes], *, context: int = 3) -> str:
    """The diff that leads from `before` to `after`, which hold the same names; empty where nothing differs.

    Bytes that are not UTF-8 show as backslash escapes; a file with NUL bytes is only said to differ.
    """
    return "".join(_file(name, before[name], after[name], context) for name in after if before[name] != after[name])


def blocks(before: bytes, after: bytes) -> Iterator[_Block]:
    """The stretches of lines that differ between two texts, in order."""
    return _changes(_lines(before), _lines(after))


def _file(name: str, old: bytes, new: bytes, context: int) -> str:
    one, other = _name("a/" + name), _name("b/" + name)
    if b"\0" in old or b"\0" in new:
        return f"Binary files {one} and {other} differ\n"
    before, after = _lines(old), _lines(new)
    hunks = (_hunk(before, after, hunk, context) for hunk in _hunks(before, after, context))
    return f"--- {one}\n+++ {other}\n" + "".join(hunks)


def _name(name: str) -> str:
    return name if name.isprintable() else json.dumps(name)


def _lines(text: bytes) -> list[bytes]:
    """The lines of a text with their line feeds; a carriage return belongs to its line."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _hunks(old: Lines, new: Lines, context: int) -> Iterator[list[_Block]]:
    """The changes, in groups that share their context."""
    group: list[_Block] = []
    for change in _changes(old, new):
        if group and change.i - group[-1].i2 > 2 * context:
            yield group
            group = []
        group.append(change)
    yield group


def _hunk(old: Lines, new: Lines, changes: list[_Block], context: int) -> str:
    first, last = changes[0], changes[-1]
    before = min(context, first.i)
    behind = min(context, len(old) - last.i2)
    start, end = first.i - before, last.i2 + behind
    text = [f"@@ -{_span(start, end)} +{_span(first.j - before, last.j2 + behind)} @@\n"]
    for change in changes:
        text += [_line(" ", line) for line in old[start : change.i]]
        text += [_line("-", line) for line in old[change.i : change.i2]]
        text += [_line("+", line) for line in new[change.j : change.j2]]
        start = change.i2
    return "".join(text + [_line(" ", line) for line in old[start:end]])


def _span(start: int, end: int) -> str:
    """Lines as a hunk's header counts them: from 1, or the line before where there are none."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _line(sign: str, line: bytes) -> str:
    text = sign + line.decode("utf-8", "backslashreplace")
    return text if text.endswith("\n") else f"{text}\n{_NO_BREAK}"


def _changes(old: Lines, new: Lines) -> Iterator[_Block]:
    """The stretches that differ, in order."""
    ends = _Block(0, 0, 0, 0), _Block(len(old), len(old), len(new), len(new))
    for left, right in pairwise([ends[0], *_matches(old, new), ends[1]]):
        if left.i2 < right.i or left.j2 < right.j:
            yield _Block(left.i2, right.i, left.j2, right.j)


def _matches(old: Lines, new: Lines) -> list[_Block]:
    """The stretches that are the same, in order."""
    found: list[_Block] = []
    todo = [_Block(0, len(old), 0, len(new))]
    while todo:
        part = todo.pop()
        inner = _trimmed(old, new, part)
        found.append(_Block(part.i, inner.i, part.j, inner.j))
        found.append(_Block(inner.i2, part.i2, inner.j2, part.j2))
        if inner.i == inner.i2 or inner.j == inner.j2:
            continue
        anchors = _anchors(old, new, inner)
        if anchors:
            bounds = [(inner.i, inner.j), *anchors, (inner.i2, inner.j2)]
            todo += [_Block(i, i2, j, j2) for (i, j), (i2, j2) in pairwise(bounds)]
        else:
            found += _by_difflib(old, new, inner)
    return sorted(block for block in found if block.i < block.i2)


def _trimmed(old: Lines, new: Lines, part: _Block) -> _Block:
    """A part without the lines that it begins and ends with alike."""
    i, i2, j, j2 = part
    while i < i2 and j < j2 and old[i] == new[j]:
        i, j = i + 1, j + 1
    while i < i2 and j < j2 and old[i2 - 1] == new[j2 - 1]:
        i2, j2 = i2 - 1, j2 - 1
    return _Block(i, i2, j, j2)


def _anchors(old: Lines, new: Lines, part: _Block) -> list[tuple[int, int]]:
    """Lines that occur once on each side of a part: the longest row of them that is in order on both sides."""
    here, there = Counter(old[part.i : part.i2]), Counter(new[part.j : part.j2])
    places = {new[j]: j for j in range(part.j, part.j2)}
    pairs = [(i, places[old[i]]) for i in range(part.i, part.i2) if here[old[i]] == there[old[i]] == 1]
    ends: list[int] = []
    chain: list[tuple[int, int, int]] = []  # per pair: i, j, the pair before it in its row
    tops: list[int] = []
    for number, (i, j) in enumerate(pairs):
        rank = bisect_left(ends, j)
        chain.append((i, j, tops[rank - 1] if rank else -1))
        ends[rank : rank + 1], tops[rank : rank + 1] = [j], [number]
    row = []
    number = tops[-1] if tops else -1
    while number >= 0:
        i, j, number = chain[number]
        row.append((i, j))
    return row[::-1]


def _by_difflib(old: Lines, new: Lines, part: _Block) -> list[_Block]:
    """What difflib finds; nothing where the part is too large for it."""
    if (part.i2 - part.i) * (part.j2 - part.j) > _SMALL:
        return []
    blocks = SequenceMatcher(None, old[part.i : part.i2], new[part.j : part.j2], autojunk=False).get_matching_blocks()
    return [_Block(part.i + i, part.i + i + size, part.j + j, part.j + j + size) for i, j, size in blocks]
