"""Headers: what the safetensors library takes is taken, what it refuses is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save
from shards import blob, header

from mtpfix.checkpoint.canonical import MAX_CELLS, MAX_TAILS, Folded, Tails, fold
from mtpfix.checkpoint.headers import DTYPE_BITS, MAX_HEADER_BYTES, decode, header_length
from mtpfix.errors import UnreadableError
from mtpfix.model import Cell
from mtpfix.names import tensor_name

A = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
NEST = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":%s%s}}'


def tensor(**fields: Any) -> str:
    """A header of one F32 tensor with some fields replaced."""
    return json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | fields})


def names(file: bytes) -> list[str] | None:
    """What we make of a file, None where we refuse it."""
    try:
        length = header_length(file[:8], len(file), "f")
        return sorted(entry.name for entry in decode(file[8 : 8 + length], len(file) - 8 - length, "f"))
    except UnreadableError:
        return None


def referee(file: bytes) -> list[str] | None:
    """What the library makes of it."""
    try:
        return sorted(name for name, _ in deserialize(file))
    except SafetensorError:
        return None


VALID = {
    "plain": f"{{{A}}}",
    "white space": f" \n{{{A}}}\t\r\n ",
    "empty": "{}",
    "metadata": f'{{"__metadata__":{{"format":"pt"}},{A}}}',
    "metadata last": f'{{{A},"__metadata__":{{"a":"1","a":"2"}}}}',
    "metadata null": f'{{"__metadata__":null,{A}}}',
    "metadata alone": '{"__metadata__":{}}',
    "name twice": f"{{{A},{A}}}",
    "name twice, last one fits": f'{{"a":{{"dtype":"U8","shape":[9],"data_offsets":[0,9]}},{A}}}',
    "data in another order": '{"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},' + A + "}",
    "no data": '{"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},' + A + "}",
    "unknown field": tensor(more={"x": [1.5, None, True]}),
    "unknown field twice": f'{{{A[:-1]},"x":1,"x":2}}}}',
    "tiny number": f'{{{A[:-1]},"x":1e-999}}}}',
    "long number": f'{{{A[:-1]},"x":{"1" * 300}}}}}',
    "a list of fields": '{"a":["F32",[1],[0,4]]}',
    "dtype as an object": tensor(dtype={"F32": None}),
    "escaped dtype": tensor().replace("F32", "\\u00463\\u0032"),
    "no name": tensor().replace('"a"', '""'),
    "a pair of surrogates": tensor().replace('"a"', '"\\ud83d\\ude00"'),
    "escaped backslash": tensor().replace('"a"', '"\\\\ud83d"'),
    "control characters": tensor().replace('"a"', '"\\u0000\\n\x7f"'),
    "zero times much": tensor(shape=[0, 2**64 - 1, 2], data_offsets=[0, 0]),
    "half bytes": tensor(dtype="F4", shape=[8]),
    "three quarters": tensor(dtype="F6_E3M2", shape=[4], data_offsets=[0, 3]),
    "deep": NEST % ("[" * 125, "]" * 125),
}

INVALID = {
    "nothing": "",
    "a list": "[]",
    "null": "null",
    "a hole": tensor(data_offsets=[4, 8]),
    "backwards": tensor(data_offsets=[4, 0]),
    "overlap": '{"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},' + A + "}",
    "size": tensor(shape=[2]),
    "too little data": tensor(shape=[0], data_offsets=[0, 0]),
    "too much data": tensor(shape=[2], data_offsets=[0, 8]),
    "dtype": tensor(dtype="F33"),
    "dtype as a number": tensor(dtype=17),
    "dtype as an object with content": tensor(dtype={"F32": {}}),
    "dtype as a fuller object": tensor(dtype={"F32": None, "U8": None}),
    "no dtype": tensor().replace('"dtype": "F32", ', ""),
    "dtype twice": tensor().replace('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"'),
    "dtype twice, once escaped": tensor().replace('"dtype": "F32"', '"dtype": "F32", "\\u0064type": "F32"'),
    "shape null": tensor(shape=None),
    "shape of floats": tensor(shape=[1.0]),
    "shape of booleans": tensor(shape=[True]),
    "shape of strings": tensor(shape=["1"]),
    "negative": tensor(shape=[-1]),
    "minus zero": tensor().replace("[0,", "[-0,").replace("[0, ", "[-0, "),
    "leading zero": tensor().replace("[1]", "[01]"),
    "beyond 64 bits": tensor(shape=[0, 2**64], data_offsets=[0, 0]),
    "overflow": tensor(shape=[2**64 - 1, 2, 0], data_offsets=[0, 0]),
    "a quarter of a byte": tensor(dtype="F6_E2M3", shape=[1], data_offsets=[0, 1]),
    "one offset": tensor(data_offsets=[0]),
    "three offsets": tensor(data_offsets=[0, 4, 8]),
    "a longer list of fields": '{"a":["F32",[1],[0,4],1]}',
    "a shorter list of fields": '{"a":["F32",[1]]}',
    "a number for a tensor": f'{{"a":1,{A}}}',
    "metadata number": f'{{"__metadata__":{{"a":1}},{A}}}',
    "metadata list": f'{{"__metadata__":[],{A}}}',
    "metadata twice": f'{{"__metadata__":{{}},"__metadata__":{{}},{A}}}',
    "trailing comma": f"{{{A},}}",
    "trailing zero byte": f"{{{A}}}\0",
    "byte order mark": f"\ufeff{{{A}}}",
    "NaN": f'{{{A[:-1]},"x":NaN}}}}',
    "huge number": f'{{{A[:-1]},"x":1e999}}}}',
    "endless number": f'{{{A[:-1]},"x":{"1" * 5000}}}}}',
    "control character": tensor().replace('"a"', '"\x01"'),
    "half a pair": tensor().replace('"a"', '"\\ud83d"'),
    "halves the wrong way round": tensor().replace('"a"', '"\\ude00\\ud83d"'),
    "too deep": NEST % ("[" * 126, "]" * 126),
    "far too deep": NEST % ("[" * 100_000, "]" * 100_000),
    "deep in a repeated field": NEST % ('{"k":' + "[" * 126 + "]" * 126 + ',"k":1', "}"),
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_valid(text: str) -> None:
    raw = text.encode()
    sizes = (blob(raw, size) for size in (0, 3, 4, 8))
    accepted = [file for file in sizes if referee(file) is not None]
    assert accepted
    for file in accepted:
        assert names(file) == referee(file)


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_invalid(text: str) -> None:
    file = blob(text.encode(), 4)
    assert referee(file) is None
    assert names(file) is None
    assert fold(file[8:], 4, Tails()) is None


def test_not_utf8() -> None:
    file = blob(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
    assert referee(file) is None
    with pytest.raises(UnreadableError, match="header byte 2: not UTF-8"):
        decode(file[8:-4], 4, "f")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (b"", "0 bytes are too few"),
        (b"1234567", "7 bytes are too few"),
        (blob(b"{", 0, 2), "length 2 does not fit a file of 9 bytes"),
        (blob(b"{}", 0, 1 << 40), "above the limit"),
        (blob(b"{}", 0, MAX_HEADER_BYTES + 1), "above the limit"),
        (blob(b"{}", 0, MAX_HEADER_BYTES), "does not fit"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    ],
)
def test_length(file: bytes, says: str) -> None:
    assert referee(file) is None
    with pytest.raises(UnreadableError, match=says) as caught:
        header_length(file[:8], len(file), "m.safetensors")
    assert caught.value.subject == "m.safetensors"
    assert str(caught.value).startswith("m.safetensors: ")
    assert caught.value.hint


def test_every_dtype_has_the_size_that_the_library_gives_it() -> None:
    for dtype, bits in DTYPE_BITS.items():
        raw, size = header({"a": (dtype, (8,))})
        assert size == bits
        assert names(blob(raw, size)) == referee(blob(raw, size)) == ["a"]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(UnreadableError, match=r"f: not a valid safetensors file: tensor 'a': F32 \[2\] does not fit"):
        decode(tensor(shape=[2]).encode(), 4, "f")


def test_entries_keep_header_order() -> None:
    raw, size = header({"b": ("U8", (1,)), "a": ("U8", (2,))})
    assert [entry.name for entry in decode(raw, size, "f")] == ["b", "a"]


# --- the canonical spelling -------------------------------------------------------------------------------------------


def test_what_the_library_writes_is_canonical() -> None:
    arrays = {"m.weight": numpy.zeros((2, 3), numpy.float32), "m.bias": numpy.zeros(2, numpy.int8)}
    for metadata in (None, {}, {"format": "pt", "more": "]},a"}):
        file = save(arrays, metadata)
        length = header_length(file[:8], len(file), "f")
        folded = fold(file[8 : 8 + length], len(file) - 8 - length, Tails())
        assert folded is not None
        assert folded.tensors == 2
        assert set(folded.modules["m"]) == {Cell("weight", "F32", (2, 3)), Cell("bias", "I8", (2,))}


def test_equal_modules_share_their_cells() -> None:
    root = Tails()
    raw, size = header({f"m.{n}.{s}": ("U8", (4,)) for n in range(9) for s in ("weight", "bias")})
    found = [fold(raw, size, root) or Folded(0, {}) for _ in range(2)]
    assert len({id(cells) for folded in found for cells in folded.modules.values()}) == 1


@pytest.mark.parametrize(
    "name", ['a"', "a\\", "a\n", "a\x7f", "a\u2028", 'x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y']
)
def test_names_that_need_care_are_left_to_the_decoder(name: str) -> None:
    raw, size = header({f"{name}.weight": ("U8", (1,)), "b": ("U8", (1,))})
    assert fold(raw, size, Tails()) is None
    assert [entry.name for entry in decode(raw, size, "f")] == [f"{name}.weight", "b"]


@pytest.mark.parametrize("name", ["a, b.weight", "a,b.weight", "m.we, ight", "l.experts.1.a: b.weight"])
def test_blanks_behind_colons_and_commas_are_no_part_of_names(name: str) -> None:
    raw, size = header({name: ("U8", (1, 1)), "b.weight": ("U8", (1,))}, {"by, whom": "x, y"})
    loose = fold(json.dumps(json.loads(raw)).encode(), size, Tails())
    assert loose is not None
    assert loose == fold(raw, size, Tails())
    assert {tensor_name(module, cells[0].suffix) for module, cells in loose.modules.items()} == {name, "b.weight"}


def test_a_smuggled_tensor_is_seen() -> None:
    smuggled = b'{"a":1,"b.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    assert referee(blob(smuggled, 1)) is None
    assert fold(smuggled, 1, Tails()) is None


def test_many_tensors_of_one_module_do_not_grow_the_tree() -> None:
    raw, size = header({f"m.{number}": ("U8", (1,)) for number in range(MAX_CELLS + 1)})
    assert fold(raw, size, Tails()) is None
    raw, size = header({f"m{number}.s{number}": ("U8", (1,)) for number in range(MAX_TAILS + 2)})
    assert fold(raw, size, Tails()) is None


@pytest.mark.parametrize(
    "numbers", [("",), ("", ""), ("", "0", "1"), ("a", "0", "1"), ("0", "1", "a"), ("٣", "1", "2")]
)
def test_experts_without_a_number_are_modules_like_others(numbers: tuple[str, ...]) -> None:
    rows = {f"l.experts.{number}.{rest}.weight": ("U8", (1,)) for number in numbers for rest in ("up", "down")}
    raw, size = header(rows)
    folded = fold(raw, size, Tails())
    assert folded is not None
    assert {name: tuple(cells) for name, cells in folded.modules.items()} == {
        name.removesuffix(".weight"): (("weight", *spec),) for name, spec in rows.items()
    }


@pytest.mark.parametrize("metadata", ['"a":"b",', '"a":', '"', '"a"', '"a":"b","c"', '"a":"b","c":', '"a":"\\u"'])
def test_half_of_a_pair_of_metadata(metadata: str) -> None:
    """The fast way leaves to the careful one what it does not know, and both refuse what the library does."""
    rest = '"t.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    raw, whole = (f'{{"__metadata__": {{{pairs}}}, {rest}'.encode() for pairs in (metadata, '"a":"b","c":"d"'))
    with pytest.raises(SafetensorError):
        deserialize(len(raw).to_bytes(8, "little") + raw + bytes(4))
    assert fold(raw, 4, Tails()) is None
    assert fold(whole, 4, Tails()) is not None
