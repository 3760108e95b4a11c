"""Header laws: what goes in comes out, and the safetensors library agrees about every mutation."""

from __future__ import annotations

from differential import compare
from hypothesis import given
from hypothesis import strategies as st
from lengths import many
from safetensors import SafetensorError, deserialize
from shards import Spec, Tensors, blob, data_size, header

from mtpfix.checkpoint.canonical import Tails, fold
from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.headers import DTYPE_BITS, METADATA, decode, header_length
from mtpfix.errors import UnreadableError
from mtpfix.names import split_name, tensor_name

Rows = set[tuple[str, str, tuple[int, ...]]]

CHARACTERS = st.characters(codec="utf-8")
USUAL = r"(model\.layers\.[0-3]\.)?(mlp|experts\.[0-9]{1,2}\.up_proj)\.(weight|weight_scale|bias)"
NAMES = st.one_of(
    st.from_regex(USUAL, fullmatch=True),
    st.text(st.sampled_from(".a"), max_size=4),
    st.text(st.sampled_from('ab.".\\[]{}:,\n\u00e9') | CHARACTERS, max_size=8),
).filter(lambda name: name != METADATA)
SPECS = st.tuples(
    st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.sampled_from([0, 1, 2, 4, 8]), max_size=3).map(tuple)
)
TENSORS = st.dictionaries(NAMES, SPECS.filter(lambda spec: whole_bytes(spec)), max_size=6)
METADATAS = st.none() | st.dictionaries(st.text(CHARACTERS, max_size=4), st.text(CHARACTERS, max_size=4), max_size=2)

TOKENS = st.sampled_from(
    [
        *('"', "\\", ",", ":", "{", "}", "[", "]", "0", "1", "-", ".", "e", " ", "\n", "\0", "\x7f", "a", "\\u0041"),
        *('"dtype"', '"shape"', '"data_offsets"', '"U8"', '"F4"', "[]", "[0,4]", "null", "true", "NaN", "1.0", "-0"),
        *(']},"', '"__metadata__"', '"__metadata__":{},', '"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'),
        *("\\ud83d", "\\ud83d\\ude00", "18446744073709551616", '["U8",[1],[0,1]]', '{"U8":null}'),
    ]
)
MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["insert", "delete", "replace"]), st.integers(0, 10_000), st.integers(1, 12), TOKENS),
    min_size=1,
    max_size=3,
)


def whole_bytes(spec: Spec) -> bool:
    bits = DTYPE_BITS[spec[0]]
    for side in spec[1]:
        bits *= side
    return bits % 8 == 0


def ours(file: bytes) -> Rows | None:
    try:
        length = header_length(file[:8], len(file), "f")
        entries = decode(file[8 : 8 + length], len(file) - 8 - length, "f")
    except UnreadableError:
        return None
    return {(entry.name, entry.dtype, entry.shape) for entry in entries}


def theirs(file: bytes) -> Rows | None:
    try:
        found = deserialize(file)
    except SafetensorError:
        return None
    return {(name, body["dtype"], tuple(body["shape"])) for name, body in found}


def folded(file: bytes) -> Rows | None:
    """What the fast way makes of a file; None where it leaves the file alone."""
    length = int.from_bytes(file[:8], "little")
    found = fold(file[8 : 8 + length], len(file) - 8 - length, Tails())
    if found is None:
        return None
    rows = {(tensor_name(name, cell[0]), cell[1], cell[2]) for name, cells in found.modules.items() for cell in cells}
    assert len(rows) == found.tensors
    return rows


def mutated(raw: bytes, mutations: list[tuple[str, int, int, str]]) -> bytes:
    for how, place, length, token in mutations:
        at = place % (len(raw) + 1)
        until = at if how == "insert" else at + length
        raw = raw[:at] + (b"" if how == "delete" else token.encode()) + raw[until:]
    return raw


@many(100)
@given(TENSORS, METADATAS)
def test_round_trip(tensors: Tensors, metadata: dict[str, str] | None) -> None:
    raw, size = header(tensors, metadata)
    file = blob(raw, size)
    wanted = {(name, *spec) for name, spec in tensors.items()}
    assert ours(file) == theirs(file) == wanted
    assert folded(file) in (None, wanted)


@many(400)
@given(TENSORS, METADATAS, MUTATIONS, st.sampled_from([0, 0, 0, -1, 1]))
def test_the_library_agrees_about_mutations(
    tensors: Tensors, metadata: dict[str, str] | None, mutations: list[tuple[str, int, int, str]], more: int
) -> None:
    raw, size = header(tensors, metadata)
    file = blob(mutated(raw, mutations), max(0, size + more))
    assert ours(file) == theirs(file)
    assert folded(file) in (None, theirs(file))


@many(200)
@given(TENSORS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=3))
def test_the_library_agrees_about_flipped_bytes(tensors: Tensors, flips: list[tuple[int, int]]) -> None:
    raw, size = header(tensors, {"format": "pt"})
    file = bytearray(blob(raw, size))
    for place, byte in flips:
        file[place % (8 + len(raw))] = byte
    assert ours(bytes(file)) == theirs(bytes(file))
    assert folded(bytes(file)) in (None, theirs(bytes(file)))


@many(100)
@given(TENSORS)
def test_a_collector_keeps_every_tensor(tensors: Tensors) -> None:
    raw, size = header(tensors)
    collector = Collector()
    collector.add_header("a.safetensors", raw, 8 + len(raw) + size)
    collector.settle()
    held = {
        (tensor_name(module.name, cell.suffix), cell.dtype, cell.shape)
        for module in collector.modules.values()
        for cell in module.cells
    }
    assert held == {(name, *spec) for name, spec in tensors.items()}
    assert collector.tensor_count == len(tensors)
    assert collector.shards[0].size == 8 + len(raw) + sum(map(data_size, tensors.values()))


@many(100)
@given(NAMES)
def test_names_split_and_join(name: str) -> None:
    assert tensor_name(*split_name(name)) == name


def test_mutated_files() -> None:
    """A run of the differential script, which can be run for longer by itself."""
    found = compare(1500, seed=1)
    assert min(found["taken"], found["refused"], found["fast"]) > 100
