"""Safetensors headers in the spelling that the library itself writes, read without a JSON parser. Pure.

    {"__metadata__":{"format":"pt"},"a.weight":{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]},...}

A large checkpoint repeats the same few tails (`weight":{"dtype":"BF16","shape":[8,4],"data_offsets":`) a hundred
thousand times. So the text is cut at `]},"`, each piece at its last `.` and last `[`, and the tail looked up: that
costs half of parsing the JSON. Nothing but valid headers gets through, since all text is checked: the metadata and each
distinct tail by a strict expression, `data_offsets` against the text that the sizes so far demand, and a module's name
for anything that JSON would have to escape.

Blanks behind a name are what `mtpfix.renaming` leaves there. Any other header, a valid one in another spelling too, is
left to `headers.decode`.
"""

from __future__ import annotations

import re

from mtpfix.checkpoint.headers import DTYPE_BITS, METADATA, byte_size
from mtpfix.model import Cell
from mtpfix.names import is_plain

Cells = tuple[Cell, ...]

# Beyond these a header is hostile or odd, and the tree of tails would grow with every tensor.
MAX_CELLS = 64
MAX_TAILS = 10_000
MAX_END = 1 << 16  # characters of padding and what stands before it
MAX_PIECE = 1 << 20  # bytes from tensor to tensor, on average: more is blanks, which would be copied thrice

_CHARACTER = r'[^"\\\x00-\x1f]'
_STRING = f'"{_CHARACTER}*+"'  # possessive: a million of them leave nothing to come back to
_NUMBER = "(?:0|[1-9][0-9]{0,18})"
_METADATA = re.compile(rf'\{{"{METADATA}":\{{(?:{_STRING}:{_STRING}(?:,{_STRING}:{_STRING})*+)?+\}},"')
_TAIL = re.compile(
    rf'({_CHARACTER}*)" *:\{{"dtype":"([A-Z0-9_]+)","shape":\[((?:{_NUMBER}(?:,{_NUMBER})*)?)\],"data_offsets":'
)
_BEGIN, _BETWEEN, _END = '{"', ']},"', "]}}"


class _Unusual(Exception):
    """The header is not spelled as the library spells it, or not valid."""


class Tails(dict[str, tuple[int, "Tails"]]):
    """The tensors of a module read so far; maps the tail of one more to its size and to what the module is then.

    The root, without tensors, is shared by all headers of a checkpoint, so that equal modules share one `cells`.
    """

    __slots__ = ("_known", "cells")

    def __init__(self, cells: Cells = (), known: dict[str, tuple[int, Cell]] | None = None) -> None:
        super().__init__()
        self.cells = cells
        self._known: dict[str, tuple[int, Cell]] = {} if known is None else known

    def __missing__(self, tail: str) -> tuple[int, Tails]:
        size, cell = self._known.get(tail) or _read_tail(tail)
        self._known[tail] = size, cell
        if len(self.cells) == MAX_CELLS or len(self._known) > MAX_TAILS:
            raise _Unusual
        if any(cell.suffix == other.suffix for other in self.cells):
            raise _Unusual
        step = size, Tails((*self.cells, cell), self._known)
        self[tail] = step
        return step


def fold(header: bytes, data_bytes: int, root: Tails) -> tuple[int, dict[str, Cells]] | None:
    """How many tensors a header lists, and its modules with their tensors in header order.

    None where the header is not canonical; it may be valid all the same.
    """
    try:
        pieces = _pieces(header)
        modules = _walk(pieces, data_bytes, root)
    except (_Unusual, UnicodeDecodeError):
        return None
    return len(pieces), {name: tails.cells for name, tails in modules.items()}


def _pieces(header: bytes) -> list[str]:
    """The header cut between tensors; each piece goes from a name to the end of its offsets."""
    text = header.decode("utf-8")
    metadata = _METADATA.match(text)
    if metadata is None and not text.startswith(_BEGIN):
        raise _Unusual
    if not text[-MAX_END:].rstrip(" ").endswith(_END):
        raise _Unusual
    if len(text) > MAX_PIECE and len(text) > MAX_PIECE * (1 + text.count(_BETWEEN)):
        raise _Unusual
    pieces = text.split(_BETWEEN)
    pieces[0] = pieces[0][metadata.end() if metadata else len(_BEGIN) :]
    pieces[-1] = pieces[-1].rstrip(" ").removesuffix(_END)
    return pieces


def _walk(pieces: list[str], data_bytes: int, root: Tails) -> dict[str, Tails]:
    modules: dict[str, Tails] = {}
    so_far = modules.get
    end, start_text = 0, "0"
    for piece in pieces:
        head, _, offsets = piece.rpartition("[")
        module, _, tail = head.rpartition(".")
        size, modules[module] = so_far(module, root)[tail]
        end += size
        end_text = f"{end}"
        if offsets != f"{start_text},{end_text}":
            raise _Unusual
        start_text = end_text
    if end != data_bytes or not is_plain("".join(modules)):
        raise _Unusual
    if "" in modules and any(piece.startswith(".") for piece in pieces):
        raise _Unusual
    return modules


def _read_tail(tail: str) -> tuple[int, Cell]:
    match = _TAIL.fullmatch(tail)
    if match is None or match[1] == METADATA or match[2] not in DTYPE_BITS:
        raise _Unusual
    shape = tuple(map(int, match[3].split(","))) if match[3] else ()
    size = byte_size(match[2], shape)
    if size is None:
        raise _Unusual
    return size, Cell(match[1], match[2], shape)
