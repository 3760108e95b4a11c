"""Safetensors files as they will be: headers, and where each stretch of their data comes from. Pure.

The library writes a file from tensors that it holds in memory, all of them. A draft of 10 GB would take 10 GB. So the
header is written here, as the library spells it (order by falling width of the dtype, then by name; spaces up to a
multiple of eight), and the data is copied behind it, piece by piece.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from mtpfix.checkpoint.headers import DTYPE_BITS, LENGTH_BYTES, METADATA, Entry, byte_size, decode, front, padded
from mtpfix.frozen import dataclass
from mtpfix.store.states import Piece


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor of a new file: name, dtype, shape, and where its data begins and ends in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A file: its first bytes (length and header), its rows in order of their data, its size."""

    front: bytes
    rows: tuple[Row, ...]
    size: int

    @property
    def header(self) -> bytes:
        return self.front[LENGTH_BYTES:]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A shard without some of its tensors.

    kept   (start in the old file, end in the old file, start in the new one), neighbours joined
    back   the pieces that undo makes the old file of
    """

    layout: Layout
    kept: tuple[tuple[int, int, int], ...]
    back: tuple[Piece, ...]


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor of a checked header."""
    size = byte_size(dtype, shape)
    assert size is not None
    return size


def new_file(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> Layout:
    """The layout of a file that holds these tensors."""
    ordered = sorted(tensors, key=lambda row: (-DTYPE_BITS[row[1]], row[0]))
    return _laid_out(ordered, metadata)


def _laid_out(ordered: Sequence[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None) -> Layout:
    header: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    places = []
    for name, dtype, shape in ordered:
        end = at + size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        places.append((at, end))
        at = end
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    first = front(padded(raw))
    rows = tuple(
        Row(name, dtype, shape, len(first) + start, len(first) + end)
        for (name, dtype, shape), (start, end) in zip(ordered, places, strict=True)
    )
    return Layout(first, rows, len(first) + at)


def without(header: bytes, size: int, shard: str, dropped: Collection[str]) -> Rewrite:
    """A shard of `size` bytes as it is without some tensors. Raises UnreadableError for a header that is none."""
    data = LENGTH_BYTES + len(header)
    entries = decode(header, size - data, shard)
    left = sorted((entry for entry in entries if entry.name not in dropped), key=_wide_first)
    layout = _laid_out([(entry.name, entry.dtype, entry.shape) for entry in left], _metadata(header))
    moved = {row.name: row.start for row in layout.rows}
    kept = _joined((data + entry.start, data + entry.end, moved[entry.name]) for entry in left)
    return Rewrite(layout, kept, tuple(_pieces(entries, moved, data)))


def _wide_first(entry: Entry) -> tuple[int, int]:
    return -DTYPE_BITS[entry.dtype], entry.start


def _metadata(header: bytes) -> Mapping[str, str] | None:
    found: Mapping[str, str] | None = json.loads(header).get(METADATA)
    return found


def _joined(stretches: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Stretches of one file that go to another, those joined that go on in both."""
    out: list[tuple[int, int, int]] = []
    for start, end, at in stretches:
        if out and out[-1][1] == start and out[-1][2] + start - out[-1][0] == at:
            out[-1] = (out[-1][0], end, out[-1][2])
        else:
            out.append((start, end, at))
    return tuple(stretch for stretch in out if stretch[0] < stretch[1])


def _pieces(entries: Sequence[Entry], moved: Mapping[str, int], data: int) -> list[Piece]:
    """What an old file is made of: its front and what was dropped are saved, the rest is found in the new one."""
    out = [Piece(True, 0, data)]
    for entry in sorted(entries, key=lambda entry: entry.start):
        at = moved.get(entry.name)
        start = data + entry.start if at is None else at
        piece = Piece(at is None, start, start + entry.end - entry.start)
        if out[-1].saved == piece.saved and out[-1].end == piece.start:
            out[-1] = Piece(piece.saved, out[-1].start, piece.end)
        elif piece.start < piece.end:
            out.append(piece)
    return out
