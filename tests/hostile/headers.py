"""Safetensors files that lie, each small to describe: what stands before the data, and how long the file is.

Whether one may be read is for the safetensors library to say, not for this table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 100_000_000  # bytes of a header, in the safetensors library
NAME = "mtp.fc"


@dataclass(frozen=True)
class Lie:
    """A file: its first bytes, blanks (or another filling) after so many of them, and its whole length (the rest is a
    hole)."""

    start: bytes
    size: int
    blanks: int = 0
    at: int = 0
    filling: bytes = b" "

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.start[: self.at])
            file.write(self.filling * (self.blanks // len(self.filling)))
            file.write(self.start[self.at :])
            file.truncate(max(self.size, len(self.start) + self.blanks))


@dataclass(frozen=True)
class Late:
    """A large one, which is made when it is written."""

    make: Callable[[], Lie]

    def write(self, path: Path) -> None:
        self.make().write(path)


Hostile = tuple[str, Lie | Late]


def framed(header: bytes, data: int = 0, length: int | None = None) -> Lie:
    """A header after its length, or after a length that lies, before so many bytes of data."""
    start = struct.pack("<Q", len(header) if length is None else length) + header
    return Lie(start, len(start) + data)


def padded(header: bytes, at: int, filling: bytes = b" ") -> Lie:
    """The longest header that may be, by blanks, or something else again and again, at a place of it."""
    blanks = (LIMIT - len(header)) // len(filling) * len(filling)
    start = struct.pack("<Q", len(header) + blanks) + header
    return Lie(start, 8 + len(header) + blanks + 32, blanks, 8 + at, filling)


def tensor(dtype: Any = "BF16", shape: Any = (4, 4), offsets: Any = (0, 32), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def of(members: Any, data: int = 32) -> Lie:
    return framed(json.dumps(members).encode(), data)


def raw(text: str, data: int = 32) -> Lie:
    return framed(text.encode(), data)


def one(*args: Any, data: int = 32, **fields: Any) -> Lie:
    return of({f"{NAME}.weight": tensor(*args, **fields)}, data)


def named(name: str) -> Lie:
    return of({name: tensor()})


def many(name: str, count: int, shape: list[int]) -> Lie:
    """So many empty tensors."""
    return of({name.format(at): tensor("U8", shape, [0, 0]) for at in range(count)}, 0)


def two(first: tuple[int, int], second: tuple[int, int], data: int) -> Lie:
    """Two tensors of bytes whose places are given."""
    rows = {"a": first, "b": second}
    return of({key: tensor("U8", [end - start], [start, end]) for key, (start, end) in rows.items()}, data)


def _lengths() -> Iterator[Hostile]:
    small = json.dumps({"a.weight": tensor()}).encode()
    yield "empty file", Lie(b"", 0)
    yield "seven bytes", Lie(b"\0" * 7, 7)
    yield "length 0", framed(b"", 32, 0)
    yield "length 1", framed(b"{", 0)
    for length in (len(small) + 1, len(small) - 1, LIMIT, LIMIT + 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        yield f"length {length}", framed(small, 32, length)
    yield "length beyond a hole", Lie(struct.pack("<Q", 1 << 40) + small, 1 << 41)
    for at in (0, 1, small.index(b",") + 1, small.index(b"[") + 1, len(small)):
        yield f"100 MB of spaces at {at}", padded(small, at)
    for filling in (b"\t", b"\n"):
        for at in (1, len(small)):
            yield f"100 MB of {filling!r} at {at}", padded(small, at, filling)
    for filling in (b"[", b'{"a":', b"1", b"]},"):
        yield f"nothing but {filling!r}", padded(b"", 0, filling)
    yield "a name of 30 MB", Late(lambda: named("x" * 30_000_000 + ".weight"))
    for filling in (b"\xff", b"\0"):
        yield f"100 MB of {filling!r} behind it", padded(small, len(small), filling)
    yield "100 MB of zeros", Lie(struct.pack("<Q", LIMIT), LIMIT + 8)
    yield "one byte too long", framed(small, 33)
    yield "one byte too short", framed(small, 31)
    yield "leading spaces", framed(b"   " + small, 32)
    yield "a byte order mark", framed(b"\xef\xbb\xbf" + small, 32)
    yield "a zero after the braces", framed(small + b"\0", 32)
    yield "git lfs", Lie(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", 64)
    yield "a zip", Lie(b"PK\x03\x04" + b"\0" * 60, 64)


def _offsets() -> Iterator[Hostile]:
    for at, place in enumerate(
        ([-1, 31], [32, 0], [0, 1 << 63], [0, (1 << 64) - 1], [0, 1 << 70], [0.0, 32.0], [0], [0, 32, 64], "0-32", None,
         {}, [None, None], [True, 32], ["0", "32"])
    ):  # fmt: skip
        yield f"offsets {at}: {place}", one(offsets=place)
    yield "overlap", two((0, 8), (4, 12), 12)
    yield "same place", two((0, 8), (0, 8), 8)
    yield "hole", two((0, 8), (9, 17), 17)
    yield "hole at the start", two((1, 9), (9, 17), 17)
    yield "unsorted", two((8, 16), (0, 8), 16)
    yield "empty tensors", two((0, 0), (0, 0), 0)
    yield "an empty one between", of({"a": tensor("U8", [8], [0, 8]), "b": tensor("U8", [0], [4, 4])}, 8)


def _kinds() -> Iterator[Hostile]:
    for dtype in ("F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E8M0FNU", "F8_E4M3FNUZ", "C64", "U4", "I4", "NVFP4", "",
                  "bf16", "BF16 ", "BF16\0", 7, None, [], {"BF16": None}, True):  # fmt: skip
        for size in (8, 32):
            yield f"dtype {dtype!r} in {size} bytes", one(dtype, [4, 4], [0, size], data=size)
    shapes = ([0], [0, 1 << 63], [-4, -4], [1 << 70], [(1 << 64) - 1, 2], [1 << 32, 1 << 32], [4.0, 4.0], [], None,
              "4x4", [[4, 4]], [16] + [1] * 100_000, [True] * 16, {"0": 16})  # fmt: skip
    for at, shape in enumerate(shapes):
        yield f"shape {at}", one(shape=shape)
        yield f"shape {at} of no data", one(shape=shape, offsets=[0, 0], data=0)


def _names() -> Iterator[Hostile]:
    for what, name in {
        "nothing": "",
        "a NUL": "mtp.fc\0.weight",
        "a newline": "mtp.fc\n.weight",
        "an escape sequence": "mtp.\x1b[31mfc\x1b]0;owned\x07.weight",
        "right to left": "mtp.\u202efc.weight",
        "dots": "....",
        "dots around": ".mtp..fc.",
        "markup": "mtp.<script>alert(1)</script>.weight",
        "a path": "../../etc/passwd",
        "an emoji": "mtp.\U0001f600.weight",
        "a combining mark": "mtp.fc\u0301.weight",
        "a number without end": "model.layers." + "9" * 5000 + ".mlp.up_proj.weight",
        "a negative number": "model.layers.-1.mlp.up_proj.weight",
        "digits of another script": "model.layers.\u0663.mlp.up_proj.weight",
        "the metadata's": "__metadata__",
    }.items():
        yield f"name: {what}", named(name)
    yield "name: 10 MB", Late(lambda: named("x" * 10_000_000 + ".weight"))
    yield "name: 10 MB of dots", Late(lambda: named("." * 10_000_000))
    yield "half a surrogate", raw('{"a\\ud800.weight":' + json.dumps(tensor()) + "}")
    yield "no UTF-8", framed(b'{"a\xff.weight":' + json.dumps(tensor()).encode() + b"}", 32)
    yield "the same name twice", raw('{"a":' + json.dumps(tensor()) + ',"a":' + json.dumps(tensor()) + "}")
    yield (
        "a name twice, spelled unlike",
        raw('{"a":' + json.dumps(tensor()) + ',"\\u0061":' + json.dumps(tensor()) + "}"),
    )


def _structure() -> Iterator[Hostile]:
    for text in (
        "[]",
        "null",
        "7",
        '""',
        "{}",
        "{",
        "}",
        "nul",
        "{}{}",
        "{},",
        '{"a":1}',
        '{"a":[]}',
        "NaN",
        "\u00a0{}",
    ):
        yield f"top: {text}", raw(text, 0)
    for depth in (120, 126, 127, 128, 1000, 100_000):
        nest = "[" * depth + "]" * depth
        yield f"nested {depth}", raw("{" + f'"a":{nest}' + "}", 0)
        more = json.dumps(tensor())[:-1] + f',"more":{nest}' + "}"
        yield f"nested {depth} in a field", raw('{"a":' + more + "}")
    for at, held in enumerate(
        (None, 7, [], "text", {"format": 7}, {"format": None}, {"format": {}}, {"format": "pt"}, {})
    ):
        yield f"metadata {at}", of({"__metadata__": held, "a": tensor()})
    yield "metadata twice", raw('{"__metadata__":{},"__metadata__":{},"a":' + json.dumps(tensor()) + "}")
    for number in ("1e400", "-1e400", "1E2", "0.1", "-0", "01", "+1", "0x10", "1" * 400, "1" * 5000, "Infinity"):
        yield (
            f"number {number[:12]} of {len(number)}",
            raw('{"a":' + json.dumps(tensor(more="@")).replace('"@"', number) + "}"),
        )
        yield (
            f"size {number[:12]} of {len(number)}",
            raw('{"a":' + json.dumps(tensor("U8", "@")).replace('"@"', f"[{number}]") + "}"),
        )
    for field in ("dtype", "shape", "data_offsets"):
        short = tensor()
        del short[field]
        yield f"no {field}", of({"a": short})
        yield (
            f"{field} twice",
            raw('{"a":' + json.dumps(tensor())[:-1] + f',"{field}":{json.dumps(tensor()[field])}' + "}}"),
        )
    yield "a list for a tensor", of({"a": ["BF16", [4, 4], [0, 32]]})
    yield "100,000 empty tensors", Late(lambda: many("m.{}.weight", 100_000, [0]))


PARTS: tuple[Callable[[], Iterator[Hostile]], ...] = (_lengths, _offsets, _kinds, _names, _structure)


def lies() -> Iterator[Hostile]:
    """Every file, with a name for it."""
    for part in PARTS:
        yield from part()


def larger() -> Iterator[Hostile]:
    """Files that are valid and larger than a model can need: their headers are refused for that."""
    held = json.dumps(tensor())[:-1].encode()
    head = b'{"a.weight":' + held
    for what, start, at, filling in (
        ("a name", b'{"a.weight":' + held + b"}}", 2, b"a"),
        ("a name of blanks", b'{"a.weight":' + held + b"}}", 2, b" "),
        ("a name with a quote, of blanks", b'{"\\"a.weight":' + held + b"}}", 4, b" "),
        ("a name of dots", b'{"a.weight":' + held + b"}}", 2, b"a."),
        ("escapes", b'{"a.weight":' + held + b"}}", 2, b"\\u0061"),
        ("text", b'{"__metadata__":{"format":"pt"},' + head[1:] + b"}}", 29, b"blanks and all "),
        ("line ends", b'{"__metadata__":{"format":"pt"},' + head[1:] + b"}}", 29, b"\\n"),
        ("metadata", b'{"__metadata__":{"format":"pt"},' + head[1:] + b"}}", 17, b'"k":"v",'),
        ("more lists", head + b',"more":[[]]}}', len(head) + 9, b"[],"),
        ("more fields", head + b',"more":1}}', len(head) + 1, b'"x":1,'),
        ("sizes", b'{"a.weight":' + held + b"}}", held.index(b"[4") + 13, b"1,"),
        ("the same name", head + b"}}", 1, b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'),
    ):
        yield f"100 MB of {what}", padded(start, at, filling)
    yield "60 MB and an emoji", Lie(*_wide())
    yield "a million tensors", Late(lambda: many("m.{}.w", 1_000_000, [0]))
    yield (
        "40,000 experts of one layer",
        Late(lambda: many("model.layers.0.mlp.experts.{}.up_proj.weight", 40_000, [1, 0])),
    )
    yield "60,000 matrices", Late(lambda: many("mtp.{}.weight", 60_000, [1, 0]))


def weighty() -> Iterator[Hostile]:
    """Files that are valid and cost most of those that are read: each took minutes, gigabytes, or nearly as much as is
    allowed, before what it is full of was looked at once or had a limit."""
    experts = "mtp.layers.0.mlp.experts."
    for what, name, count in (
        ("experts that have words for numbers", experts + "x{}.up_proj.weight", 14_000),
        ("layers of the draft", "mtp.layers.{}.mlp.experts.0.up_proj.weight", 60),
        ("experts of one layer", "model.layers.0.mlp.experts.{}.up_proj.weight", 29_000),
        ("experts of the draft", experts + "{}.up_proj.weight", 29_000),
        ("experts with zeros in front", experts + "{:07}.up_proj.weight", 14_000),
        ("projections of an expert", experts + "0.p{}.weight", 14_000),
        ("quantizers", "model.layers.{}.up_proj.weight_quantizer._amax", 14_000),
        ("names of many parts", "mtp." + "a." * 500 + "l{}.weight", 14_000),
    ):
        yield f"{count:,} {what}", Late(lambda name=name, count=count: many(name, count, [1, 0]))
    text = "x" * 1_000_000
    yield "16 MB of metadata and blanks", Late(lambda: told({"a": text * 16}, " " * 80_000_000))
    yield "48 MB of metadata", Late(lambda: told({str(at): text for at in range(48)}))
    yield "600,000 texts", Late(lambda: told({str(at): str(at) for at in range(600_000)}))
    yield "names of 1 MB", Late(lambda: many("{}" + text, 48, [1, 0]))
    yield "sizes", one("U8", [32] + [1] * 1_100_000)
    yield (
        "16 MB and an emoji",
        Late(lambda: framed(json.dumps({text * 15 + "\U0001f600": tensor()}, ensure_ascii=False).encode(), 32)),
    )


def told(metadata: dict[str, str], blanks: str = "") -> Lie:
    """A tensor behind this metadata, not in the library's spelling."""
    return raw(f'{{"__metadata__": {json.dumps(metadata)},{blanks}"a":{json.dumps(tensor())}}}')


def _wide() -> tuple[bytes, int, int, int]:
    header = '{"\U0001f600.weight":'.encode() + json.dumps(tensor()).encode() + b"}"
    blanks = 60_000_000
    return struct.pack("<Q", len(header) + blanks) + header, 8 + len(header) + blanks + 32, blanks, 9
