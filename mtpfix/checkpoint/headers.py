"""Safetensors headers: bytes to tensors. Pure.

What the safetensors library 0.8 (tests compare against it) accepts is accepted here, and nothing else:

- 8 bytes, a little-endian length of at most 100 MB that fits into the file, then that many bytes of UTF-8 JSON;
- an object of tensors, each with `dtype`, `shape` and `data_offsets` once (other fields are ignored; a list of the
  three is taken too), and `__metadata__`, which is null or holds strings only;
- the data of all tensors, put in order, covers the rest of the file: no hole, no overlap, nothing left over;
- a repeated name: the last one counts. JSON nests at most 127 deep; numbers must fit a double.

`decode` reads any such header. `mtpfix.checkpoint.canonical` is the fast way for the spelling that the library writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NoReturn

from mtpfix import late
from mtpfix.errors import UnreadableError
from mtpfix.frozen import NamedTuple
from mtpfix.names import shown

LENGTH_BYTES = 8
ALIGNED = 8  # where data begins, as the library writes it: blanks fill the header up
MAX_HEADER_BYTES = 100_000_000
MAX_DEPTH = 127
# What the library would take and no model has: each bounds what a header costs to be read.
FEW_BYTES = 1 << 20  # a header that is no longer is not counted through
MAX_TENSORS = 500_000  # of a checkpoint; the largest have 300,000, in a hundred files
MAX_MODULES = 200_000  # the largest have 76,000
MAX_VALUES = 1_200_000  # of a header that is not spelled as the library spells it
MAX_QUOTES = 2_500_000  # of the same; a tensor has ten
MAX_WIDE_BYTES = 1 << 24  # of one that is not ASCII: Python takes up to four bytes for each of its characters
MAX_TEXT = 1 << 25  # of a name, a number, a value of the metadata
MAX_FULL_BYTES = 3 << 24  # of a header; a longer one is blanks but for
MAX_SPARSE_BYTES = 1 << 24
MAX_ALL_BYTES = 1 << 27  # of all headers of a checkpoint; a trillion parameters make half of it
METADATA = "__metadata__"

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

_WORD = 1 << 64  # the library counts in 64-bit words
_FIELDS = ("dtype", "shape", "data_offsets")
_OPENING = re.compile(rb"[ \t\n\r]*\{")
_BLANKS = (b" ", b"\t", b"\n", b"\r")
_OFFSETS = b'"data_offsets"'
_SPREE = late.pattern(rb'(?<![^"])[^"]{%d,}+' % MAX_TEXT)  # begun behind a quote only: a header is gone through once
_ESCAPED = late.pattern(rb"(?s:\\.)")
_LFS = b"version https://git-lfs"
_AGAIN = "download the file again, or export the checkpoint again"
# A surrogate escape outside a pair; backslashes that are escaped themselves are taken out first.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = r"\\u[dD][89a-fA-F]"


class Entry(NamedTuple):
    """A tensor as its header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class _Object(list[tuple[str, Any]]):
    """A JSON object with its members as written, repeated ones included."""


class _Fault(ValueError):
    """What is wrong with a header."""


def header_length(first: bytes, size: int, file: str) -> int:
    """How long the header of a file of `size` bytes is, from the file's first bytes (eight, or all it has).

    Raises UnreadableError for a length that the file cannot hold, and for a Git LFS pointer.
    """
    if first.startswith(_LFS[:LENGTH_BYTES]):
        raise UnreadableError(
            f"{file}: a Git LFS pointer stands where the weights should be", subject=file, hint="run `git lfs pull`"
        )
    if len(first) < LENGTH_BYTES:
        raise broken(file, f"byte 0: {len(first)} bytes are too few for a header length")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise broken(file, f"byte 0: the header length {length} is above the limit of {MAX_HEADER_BYTES}")
    if LENGTH_BYTES + length > size:
        raise broken(file, f"byte 0: the header length {length} does not fit a file of {size} bytes")
    return length


def prefix(header: bytes) -> bytes:
    """The first bytes of a file: the length of its header."""
    return len(header).to_bytes(LENGTH_BYTES, "little")


def front(header: bytes) -> bytes:
    """The first bytes of a file: the length of its header, and the header."""
    return prefix(header) + header


def padded(header: bytes) -> bytes:
    """A header with the blanks behind which data begin where they should."""
    return header + b" " * (-(LENGTH_BYTES + len(header)) % ALIGNED)


def decode(header: bytes, data_bytes: int, file: str) -> tuple[Entry, ...]:
    """The tensors of a header, in header order. `data_bytes`: how many bytes follow the header in the file.

    Raises UnreadableError for a header that the safetensors library would refuse, and for one above MAX_VALUES.
    """
    if len(header) > FEW_BYTES:
        _check_count(file, "values", sum(header.count(sign) for sign in (b",", b"[", b"{")), MAX_VALUES)
        _check_count(file, "quotes", header.count(b'"'), MAX_QUOTES)
    try:
        entries = _entries(_parse(header))
        check_cover(entries, data_bytes)
    except _Fault as fault:
        raise broken(file, str(fault)) from None
    return entries


def _check_count(file: str, what: str, count: int, most: int) -> None:
    if count > most:
        raise beyond(file, f"{count:,} {what} in the header are above the limit of {most:,}")


def check_room(header: bytes, tensors: int, file: str) -> None:
    """Raise UnreadableError for a header that would take more time or room than any model's.

    tensors  how many the checkpoint has without it
    """
    if len(header) <= FEW_BYTES:
        return
    if len(header) > MAX_WIDE_BYTES and not header.isascii():
        raise beyond(file, f"a header of {len(header):,} bytes that is not ASCII; the limit is {MAX_WIDE_BYTES:,}")
    if len(header) > MAX_FULL_BYTES and (full := _filled(header)) > MAX_SPARSE_BYTES:
        limit = f"{MAX_SPARSE_BYTES:,} in one of more than {MAX_FULL_BYTES:,}"
        raise beyond(file, f"{full:,} bytes of the header are no blanks; the limit is {limit}")
    if any(_is_text(header, *run.span()) or _in_text(header, run.start()) for run in _SPREE.finditer(header)):
        raise beyond(file, f"more than {MAX_TEXT:,} bytes of the header are one name, one value or one list")
    tensors += header.count(_OFFSETS)
    if tensors > MAX_TENSORS:
        raise beyond(file, f"{tensors:,} tensors are above the limit of {MAX_TENSORS:,}")


def _filled(header: bytes) -> int:
    """How many bytes of a header are no blanks, counted piece by piece, as each is copied for it."""
    pieces = (header[at : at + FEW_BYTES] for at in range(0, len(header), FEW_BYTES))
    return sum(len(piece.translate(None, b"".join(_BLANKS))) for piece in pieces)


def _is_text(header: bytes, start: int, end: int) -> bool:
    """Whether what stands between two quotes is no padding."""
    return end - start - sum(header.count(blank, start, end) for blank in _BLANKS) > MAX_TEXT // 2


def _in_text(header: bytes, at: int) -> bool:
    """Whether a place lies within quotes, be it blanks that stand there: quotes in a text are escaped."""
    escaped = header.find(b"\\", 0, at) >= 0
    return (_ESCAPED.sub(b"", header[:at]) if escaped else header).count(b'"', 0, at) % 2 == 1


def check_cover(entries: Sequence[Entry], data_bytes: int) -> None:
    """Raise ValueError unless the tensors, in the order of their data, cover exactly `data_bytes` bytes."""
    at = 0
    for name, dtype, shape, start, end in sorted(entries, key=itemgetter(3, 4)):
        if start != at or end < start:
            raise _Fault(f"tensor {shown(name)}: data_offsets [{start}, {end}] do not go on from byte {at}")
        size = byte_size(dtype, shape)
        if end - start != size:
            raise _Fault(
                f"tensor {shown(name)}: {dtype} {shown(list(shape))} does not fit its {end - start} bytes of data"
            )
        at = end
    if at != data_bytes:
        raise _Fault(f"the header covers {at} bytes of data, the file holds {data_bytes}")


@lru_cache(maxsize=1 << 12)
def byte_size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """The bytes that a tensor takes, or None where they are no whole number or overflow a 64-bit word."""
    bits = 1
    for factor in (*shape, DTYPE_BITS[dtype]):
        bits *= factor
        if bits >= _WORD:
            return None
    return None if bits % 8 else bits // 8


def beyond(file: str, what: str) -> UnreadableError:
    """The error for a safetensors file that may be valid and is larger than a model can need."""
    return UnreadableError(f"{file}: {what}", subject=file, hint="no model needs as much: look at what wrote the file")


def broken(file: str, what: str) -> UnreadableError:
    """The error for a safetensors file that cannot be trusted."""
    return UnreadableError(f"{file}: not a valid safetensors file: {what}", subject=file, hint=_AGAIN)


def _parse(header: bytes) -> Any:
    if not _OPENING.match(header):
        raise _Fault("the header is no JSON object")
    try:
        text = header.decode("utf-8")
        parsed = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise _Fault(f"header byte {error.start}: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Fault(f"header character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise _Fault(f"the header nests deeper than {MAX_DEPTH}") from None
    if "\\u" in text and re.search(_SURROGATE, re.sub(_PAIR, "", text.replace("\\\\", ""))):
        raise _Fault("a name holds half of a surrogate pair")
    return parsed


def _entries(parsed: Any) -> tuple[Entry, ...]:
    if not isinstance(parsed, _Object):
        raise _Fault("the header is no JSON object")
    found: dict[str, Entry] = {}
    metadata = 0
    for name, value in parsed:
        if name == METADATA:
            metadata += 1
            _check_metadata(value)
        else:
            found[name] = _entry(name, value)
    if metadata > 1:
        raise _Fault(f"{METADATA} is there twice")
    return tuple(found.values())


def _check_metadata(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, _Object) or not all(isinstance(text, str) for _, text in value):
        raise _Fault(f"{METADATA} must hold strings only")


def _entry(name: str, value: Any) -> Entry:
    dtype, shape, offsets = _fields(name, value)
    if isinstance(dtype, _Object) and len(dtype) == 1 and dtype[0][1] is None:
        dtype = dtype[0][0]  # the library's decoder takes {"F32": null} for "F32"
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _Fault(f"tensor {shown(name)}: unknown dtype {shown(dtype)}")
    if not _words(shape):
        raise _Fault(f"tensor {shown(name)}: shape {shown(shape)} is no list of sizes")
    if not _words(offsets) or len(offsets) != 2:
        raise _Fault(f"tensor {shown(name)}: data_offsets {shown(offsets)} are not two positions")
    return Entry(name, dtype, tuple(shape), *offsets)


def _fields(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, _Object):
        if isinstance(value, list) and len(value) == len(_FIELDS):
            return value
        raise _Fault(f"tensor {shown(name)}: {shown(value)} is no description of a tensor")
    held: dict[str, Any] = {}
    for field, content in value:
        if field not in _FIELDS:
            _check_depth(content, MAX_DEPTH - 2)
        elif field in held:
            raise _Fault(f"tensor {shown(name)}: {field} is there twice")
        else:
            held[field] = content
    if len(held) < len(_FIELDS):
        raise _Fault(f"tensor {shown(name)}: {', '.join(field for field in _FIELDS if field not in held)} missing")
    return [held[field] for field in _FIELDS]


def _words(value: Any) -> bool:
    if not isinstance(value, list) or isinstance(value, _Object):
        return False
    return all(type(number) is int and 0 <= number < _WORD for number in value)


def _check_depth(value: Any, allowed: int) -> None:
    level = [value] if isinstance(value, list) else []
    for _ in range(allowed):
        level = [item for node in level for item in _members(node) if isinstance(item, list)]
    if level:
        raise _Fault(f"the header nests deeper than {MAX_DEPTH}")


def _members(node: list[Any]) -> list[Any]:
    return [value for _, value in node] if isinstance(node, _Object) else node


def _integer(digits: str) -> int | float:
    # A minus sign and numbers beyond 64 bits make a float of it, as in the library: no size is a float.
    if len(digits) > 20 or digits[0] == "-":
        return _float(digits)
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Fault(f"the number {shown(digits)} is out of range")
    return number


def _constant(word: str) -> NoReturn:
    raise _Fault(f"{word} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
