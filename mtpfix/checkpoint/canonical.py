"""Safetensors headers in the spelling that the library itself writes, read without a JSON parser. Pure.

    {"__metadata__":{"format":"pt"},"a.weight":{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]},...}

A large checkpoint repeats the same few tails (`weight":{"dtype":"BF16","shape":[8,4],"data_offsets":`) a hundred
thousand times. So the text is cut at `]},"`, each piece at its last `.` and last `[`, and the tail looked up: that
costs half of parsing the JSON. Experts that follow one another are compared many at a time (`checkpoint.experts`).
Nothing but valid headers gets through, since all text is checked: the metadata and each distinct tail by a strict
expression, `data_offsets` against the text that the sizes so far demand, and a module's name for anything that JSON
would have to escape.

Blanks behind a name are what `mtpfix.renaming` leaves there, those behind colons and commas what Python's `json.dumps`
writes. Any other header, a valid one in another spelling too, is left to `headers.decode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mtpfix.checkpoint.experts import LOOSE, TIGHT, Experts, Run, Seen
from mtpfix.checkpoint.headers import DTYPE_BITS, METADATA, byte_size
from mtpfix.frozen import NamedTuple
from mtpfix.late import possessive
from mtpfix.model import Cell
from mtpfix.modules import Block, Cells, expert_of
from mtpfix.names import is_plain

# Beyond these a header is hostile or odd, and the tree of tails would grow with every tensor.
MAX_CELLS = 64
MAX_TAILS = 10_000
MAX_END = 1 << 16  # characters of padding and what stands before it,
_FEW_END = 1 << 6  # and of nearly all headers
MAX_PIECE = 1 << 20  # characters from tensor to tensor: more is blanks, which would be copied thrice

_CHARACTER = r'[^"\\\x00-\x1f]'
_STRING = f'"{_CHARACTER}*+"'  # possessive: a million of them leave nothing to come back to
_NUMBER = "(?:0|[1-9][0-9]{0,18})"
_PAIR = f"{_STRING}: ?{_STRING}"
_PAIRS = possessive(_PAIR + possessive(f", ?{_PAIR}", "*"), "?")
_METADATA = re.compile(rf'\{{"{METADATA}": ?\{{{_PAIRS}\}}, ?"')
_TAIL = re.compile(
    rf'({_CHARACTER}*)" *: ?\{{"dtype": ?"([A-Z0-9_]+)", ?"shape": ?\[((?:{_NUMBER}(?:, ?{_NUMBER})*)?)\]'
    ', ?"data_offsets": ?'
)
_BEGIN, _END = '{"', "]}}"
_LOOSE = re.compile(rf"\{{{_STRING}: ")


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


class Folded(NamedTuple):
    """What a header lists: how many tensors, the modules that they make up one by one, and in blocks."""

    tensors: int
    singles: dict[str, Cells]
    blocks: tuple[Block, ...] = ()

    @property
    def modules(self) -> dict[str, Cells]:
        """All modules with their tensors in header order."""
        rest = {module.name: module.cells for block in self.blocks for module in block.modules()}
        return {**self.singles, **rest}


def fold(header: bytes, data_bytes: int, root: Tails, seen: Seen | None = None) -> Folded | None:
    """The tensors of a header, module by module. None where it is not canonical; it may be valid all the same.

    root, seen  what is known from other headers of the checkpoint; both are added to
    """
    try:
        text = header.decode("utf-8")
        return _walk(text, *_bounds(text), data_bytes, root, Seen() if seen is None else seen)
    except (_Unusual, UnicodeDecodeError):
        return None


def _bounds(text: str) -> tuple[int, int]:
    """Where the name of the first tensor begins and where the offsets of the last one end."""
    metadata = _METADATA.match(text)
    if not (metadata or text.startswith(_BEGIN)):
        raise _Unusual
    for most in (_FEW_END, MAX_END):
        last = text[-most:]
        stripped = last.rstrip(" ")
        if stripped.endswith(_END):
            end = len(text) - len(last) + len(stripped) - len(_END)
            return metadata.end() if metadata else len(_BEGIN), end
    raise _Unusual


def _walk(text: str, place: int, end: int, data_bytes: int, root: Tails, seen: Seen) -> Folded:
    """What the text lists between two places."""
    modules: dict[str, Tails] = {}
    spelling = LOOSE if _LOOSE.match(text) else TIGHT
    so_far, experts, step = modules.get, Experts(text, end, modules, root, seen, spelling), len(spelling.between)
    count = data = 0
    while place <= end:  # behind the last tensor it is farther
        cut = _cut(text, spelling.between, place, end)
        head, _, offsets = text[place:cut].rpartition("[")
        module, _, tail = head.rpartition(".")
        expert = expert_of(module)
        if expert != experts.at:
            taken = experts.turn(expert, place, data, (module[len(expert) :], tail))
            if taken:
                place, data, count = taken.place, taken.data, count + taken.tensors
                continue
        size, modules[module] = so_far(module, root)[tail]
        if offsets != f"{data}{spelling.comma}{data + size}" or (not module and head.startswith(".")):
            raise _Unusual
        if expert:
            experts.add(module[len(expert) :], tail, size)
        place, data = cut + step, data + size
        count += 1
    if data != data_bytes or not is_plain("".join([*modules, *experts.runs])):
        raise _Unusual
    experts.close()
    return Folded(count, {name: tails.cells for name, tails in modules.items()}, tuple(_blocks(experts.by_place())))


def _blocks(runs: Iterable[tuple[str, Run]]) -> Iterator[Block]:
    for holder, run in runs:
        cells = {rest: tails.cells for rest, tails in run.nodes.items()}
        if not is_plain("".join(run.nodes)):
            raise _Unusual
        yield Block(holder, tuple(run.numbers), cells, run.before)


def _cut(text: str, between: str, place: int, end: int) -> int:
    """Where the offsets of the tensor at a place end."""
    cut = text.find(between, place, end)
    cut = end if cut < 0 else cut
    if cut - place > MAX_PIECE:
        raise _Unusual
    return cut


def _read_tail(tail: str) -> tuple[int, Cell]:
    match = _TAIL.fullmatch(tail)
    if match is None or match[1] == METADATA or match[2] not in DTYPE_BITS:
        raise _Unusual
    shape = tuple(map(int, match[3].split(","))) if match[3] else ()
    size = byte_size(match[2], shape)
    if size is None:
        raise _Unusual
    return size, Cell(match[1], match[2], shape)
