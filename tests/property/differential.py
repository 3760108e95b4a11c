"""Mutated safetensors files, read by us and by the safetensors library.

    python tests/property/differential.py [COUNT] [SEED]

Starts from headers of the shapes that checkpoints have, in the spelling that the library writes and in others, and
changes one to three spots of each: bytes, tokens, numbers, whole tensors, the length, the data. Says how many files
both take and both refuse, how many of those taken the fast way read, and stops at the first that they read unlike.
"""

from __future__ import annotations

import json
import random
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from safetensors import SafetensorError, deserialize
from shards import data_size

from mtpfix.checkpoint.canonical import Tails, fold
from mtpfix.checkpoint.experts import Seen
from mtpfix.checkpoint.headers import METADATA, decode, header_length
from mtpfix.errors import UnreadableError
from mtpfix.names import tensor_name

Rows = set[tuple[str, str, tuple[int, ...]]]
Tensor = dict[str, object]

DTYPES = ("U8", "F8_E4M3", "BF16", "F32", "I64", "F4", "BOOL")
MODULES = (
    "model.layers.1.mlp.experts.{}.up_proj",
    "model.layers.{}.self_attn.q_proj",
    "lm_head",
    "a{}",
    ".x",
    "é{}",
    "a, {}",
    "a,{}",
)
SUFFIXES = ("weight", "weight_scale", "weight_scale_2", "bias", "", "b, c", "b,c")
TOKENS = (
    *('"', "\\", ",", ":", "{", "}", "[", "]", "0", "1", "-", ".", "e", " ", "\n", "\0", "\x7f", "\\u0041", "é"),
    *(
        '"dtype"',
        '"shape"',
        '"U8"',
        "[]",
        "[0,4]",
        ", ",
        ": ",
        "null",
        "true",
        "NaN",
        "1.0",
        "-0",
        "00",
        "1e0",
        "\\ud83d",
    ),
    *(
        "18446744073709551616",
        ']},"',
        "]}}",
        '"__metadata__":{},',
        '"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},',
    ),
)
_NUMBER = re.compile(rb"\d+")


def whole(rng: random.Random) -> tuple[bytes, int]:
    """A header that is right, and how many bytes of data belong to it."""
    found: dict[str, Tensor] = {}
    end = 0
    for number in range(rng.randint(0, 7)):
        module = rng.choice(MODULES).format(rng.choice((number, rng.randint(0, 30))))
        name = tensor_name(module, rng.choice(SUFFIXES))
        dtype, shape = rng.choice(DTYPES), [rng.choice((0, 1, 2, 4, 8)) for _ in range(rng.randint(0, 3))]
        size = data_size((dtype, tuple(shape)))
        if name not in found:
            found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            end += size
    front = {METADATA: {"format": "pt"}} if rng.random() < 0.5 else {}
    separators = (",", ":") if rng.random() < 0.7 else None
    text = json.dumps(front | found, separators=separators, ensure_ascii=rng.random() < 0.2)
    raw = text.encode()
    return raw + b" " * (-len(raw) % 8), end


def _tokens(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(raw))
    gone = rng.choice((0, 0, 1, 1, 2, 8))
    return raw[:at] + rng.choice(TOKENS).encode("utf-8", "surrogatepass") + raw[at + gone :]


def _deleted(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(raw))
    return raw[:at] + raw[at + rng.randint(1, 9) :]


def _number(raw: bytes, rng: random.Random) -> bytes:
    spots = [*_NUMBER.finditer(raw)]
    if not spots:
        return raw
    spot = rng.choice(spots)
    value = int(spot[0]) + rng.choice((-1, 1, 8, 1 << 32, 1 << 63))
    return raw[: spot.start()] + b"%d" % value + raw[spot.end() :]


def _repeated(raw: bytes, rng: random.Random) -> bytes:
    pieces = raw.split(b']},"')
    at = rng.randrange(len(pieces))
    other = pieces[rng.randrange(len(pieces))]
    return b']},"'.join([*pieces[:at], other, *pieces[at + rng.randint(0, 1) :]])


def _byte(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (_tokens, _tokens, _deleted, _number, _repeated, _byte)


def mutated(rng: random.Random) -> bytes:
    """A file whose header was changed in one to three spots, sometimes its length or its data too."""
    raw, size = whole(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        raw = rng.choice(MUTATIONS)(raw, rng) or b" "
    length = len(raw) + (rng.choice((-8, -1, 1, 1 << 40)) if rng.random() < 0.03 else 0)
    data = size + (rng.choice((-1, 1)) if rng.random() < 0.05 else 0)
    return struct.pack("<Q", max(length, 0)) + raw + bytes(max(data, 0))


def ours(file: bytes) -> tuple[Rows | None, Rows | None]:
    """What we make of a file, by the careful way and by the fast one; None where it is refused or left alone."""
    try:
        length = header_length(file[:8], len(file), "f")
        entries = decode(file[8 : 8 + length], len(file) - 8 - length, "f")
        careful = {(entry.name, entry.dtype, entry.shape) for entry in entries}
    except UnreadableError:
        careful = None
    length = int.from_bytes(file[:8], "little")
    root, seen = Tails(), Seen()
    for _ in range(2):  # the second time as a header of a checkpoint of which one like it was read
        folded = fold(file[8 : 8 + length], len(file) - 8 - length, root, seen)
    if folded is None:
        return careful, None
    fast = {(tensor_name(name, cell[0]), cell[1], cell[2]) for name, cells in folded.modules.items() for cell in cells}
    assert len(fast) == folded.tensors
    return careful, fast


def theirs(file: bytes) -> Rows | None:
    """What the library makes of it."""
    try:
        return {(name, body["dtype"], tuple(body["shape"])) for name, body in deserialize(file)}
    except SafetensorError:
        return None


def compare(count: int, seed: int) -> Counter[str]:
    """How the files were read; AssertionError with the first that is read unlike."""
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(count):
        file = mutated(rng)
        (careful, fast), wanted = ours(file), theirs(file)
        assert careful == wanted, (file, careful, wanted)
        assert fast in (None, wanted), (file, fast, wanted)
        found["refused" if wanted is None else "taken"] += 1
        found["fast"] += fast is not None
    return found


if __name__ == "__main__":
    print(dict(compare(*map(int, sys.argv[1:3]))) if len(sys.argv) == 3 else __doc__)
