"""Laws of experts that are read many at a time: they are the modules that the careful reader finds, whatever is odd
about some of them and however they lie in shards."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from lengths import many
from shards import Spec, data_size

from mtpfix.checkpoint.canonical import Folded, Tails, fold
from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.experts import Seen
from mtpfix.checkpoint.headers import LENGTH_BYTES, decode
from mtpfix.checkpoint.index_text import agrees
from mtpfix.errors import UnreadableError
from mtpfix.model import Checkpoint, RawModule, Source
from mtpfix.modules import Modules
from mtpfix.names import split_name
from mtpfix.storage.modules import stored_modules

Row = tuple[str, Spec]
Found = dict[str, list[tuple[str, str, tuple[int, ...]]]]

HOLDERS = st.sampled_from(["l.0.mlp.experts.", "l.1.mlp.experts.", "mtp.experts.", "l.0.mlp.experts.3.experts."])
LINEAR: dict[str, Spec] = {
    "weight": ("U8", (4, 8)),
    "weight_scale": ("F8_E4M3", (4, 1)),
    "weight_scale_2": ("F32", ()),
    "input_scale": ("F32", ()),
}
KINDS = st.sampled_from([LINEAR, {"weight": ("BF16", (4, 8))}, {"weight": ("F8_E4M3", (4, 8)), "scale": ("F32", (1,))}])
PROJECTIONS = st.sampled_from([("up", "down"), ("down_proj", "gate_proj", "up_proj"), ("w1",), ("",), ("a.b", "a")])
OTHERS = st.lists(
    st.sampled_from(
        ["l.0.norm.weight", "l.0.mlp.experts.bias", "l.0.mlp.experts.0", "mtp.fc.weight", "z", "lm_head.weight"]
    ),
    unique=True,
)
RANK = {"F32": 0, "BF16": 1, "F8_E4M3": 2, "U8": 3}


@st.composite
def experts(draw: st.DrawFn) -> list[Row]:
    """The tensors of some experts of one holder; now and then one has others than the rest."""
    holder, kind, projections = draw(HOLDERS), draw(KINDS), draw(PROJECTIONS)
    first = draw(st.integers(0, 12))
    numbers = [str(number) for number in range(first, first + draw(st.integers(1, 14)))]
    rows = []
    for number in numbers:
        for projection in projections:
            module = f"{holder}{number}.{projection}".removesuffix(".")
            rows += [(f"{module}.{suffix}", spec) for suffix, spec in kind.items()]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, 100)) % max(1, len(rows))
        name, (dtype, shape) = (rows or [("z", ("U8", (1,)))])[at]
        rows[at : at + 1] = draw(
            st.sampled_from(
                [[], [(name, (dtype, (*shape, 2)))], [(name, ("F32", (1,)))], [(f"{name}_2", (dtype, shape))]]
            )
        )
    return rows


@st.composite
def tensors(draw: st.DrawFn) -> list[Row]:
    """Tensors in an order in which something writes them, none twice."""
    rows = [row for some in draw(st.lists(experts(), max_size=3)) for row in some]
    rows += [(name, ("BF16", (2,))) for name in draw(OTHERS)]
    unique = list(dict(rows).items())
    order = draw(st.sampled_from(["library", "name", "as they come", "shuffled"]))
    event(order)
    if order == "library":
        return sorted(unique, key=lambda row: (RANK[row[1][0]], row[0]))
    if order == "shuffled":
        return draw(st.permutations(unique))
    return sorted(unique) if order == "name" else unique


def spelled(rows: Sequence[Row], *, loose: bool = False) -> tuple[bytes, int]:
    """The header of these tensors, repeated ones too, and the bytes of data; loose as `json.dumps` writes it."""
    parts, end = [], 0
    comma, colon = (", ", ": ") if loose else (",", ":")
    for name, (dtype, shape) in rows:
        start, end = end, end + data_size((dtype, shape))
        body = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
        parts.append(f"{json.dumps(name)}{colon}{json.dumps(body, separators=(comma, colon))}")
    metadata = json.dumps({"__metadata__": {"format": "pt"}}, separators=(comma, colon))[1:-1]
    return f"{{{comma.join([metadata, *parts])}}}".encode(), end


def careful(raw: bytes, size: int) -> Found | None:
    """The modules as the decoder finds them; None where it refuses the header."""
    found: Found = {}
    try:
        for name, dtype, shape, _, _ in decode(raw, size, "f"):
            module, suffix = split_name(name)
            found.setdefault(module, []).append((suffix, dtype, shape))
    except UnreadableError:
        return None
    return found


def quick(raw: bytes, size: int, *before: tuple[bytes, int]) -> Found | None:
    """The modules as the fast way finds them; None where it leaves the header alone.

    before  headers of the same checkpoint, which are read first and change nothing but the time
    """
    folded, root, seen = fold(raw, size, Tails()), Tails(), Seen()
    for each in (*before, (raw, size)):
        fold(*each, root, seen)
    again = fold(raw, size, root, seen)
    if folded is None:
        assert again is None
        return None
    assert again is not None
    assert (again.tensors, again.modules) == (folded.tensors, folded.modules)
    event("blocks" if again.blocks else "no blocks")
    found = {name: [tuple(cell) for cell in cells] for name, cells in again.modules.items()}
    assert again.tensors == sum(map(len, found.values()))
    for each_way in (folded, again):
        assert len(found) == len(each_way.singles) + sum(block.size for block in each_way.blocks)
    return found


def placed(folded: Folded) -> list[str]:
    """The names in the order in which reports tell them."""
    singles = {name: RawModule(name, cells, "f") for name, cells in folded.singles.items()}
    return [*Modules(singles, folded.blocks)]


@many(150)
@given(tensors(), st.booleans())
def test_the_fast_way_finds_what_the_careful_one_finds(rows: list[Row], loose: bool) -> None:
    raw, size = spelled(rows, loose=loose)
    if rows:
        assert quick(raw, size) == careful(raw, size) is not None


@many(150)
@given(
    tensors(),
    st.integers(0, 10_000),
    st.sampled_from('0123456789,.[]}{" ae\x1b') | st.characters(codec="ascii"),
    st.booleans(),
)
def test_one_other_character_is_seen(rows: list[Row], place: int, other: str, loose: bool) -> None:
    whole, size = spelled(rows, loose=loose)
    at = place % len(whole)
    raw = whole[:at] + other.encode() + whole[at + 1 :]
    found = quick(raw, size, (whole, size))
    assert found is None or found == careful(raw, size)


@many(100)
@given(tensors(), st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 30), st.booleans())
def test_tensors_that_are_there_twice_are_seen(
    rows: list[Row], start: int, place: int, count: int, empty: bool
) -> None:
    """Without data they may be valid, and the last one counts."""
    if empty:
        rows = [(name, (dtype, (0, *shape))) for name, (dtype, shape) in rows]
    start, place = start % (len(rows) + 1), place % (len(rows) + 1)
    again = rows[start : start + count]
    raw, size = spelled([*rows[:place], *again, *rows[place:]])
    assert (quick(raw, size, spelled(rows)) is None) is bool(again) or not rows


def collected(shards: Sequence[Sequence[Row]], *, in_blocks: bool) -> Collector:
    collector = Collector()
    for number, rows in enumerate(shards):
        raw, size = spelled(rows)
        name = f"model-{number}.safetensors"
        if in_blocks:
            collector.add_header(name, raw, LENGTH_BYTES + len(raw) + size)
        else:
            collector.add_rows(name, [(name, *spec) for name, spec in rows], LENGTH_BYTES + len(raw) + size)
    collector.settle()
    return collector


def checkpoint(collector: Collector) -> Checkpoint:
    return Checkpoint(Source("local", ""), collector.modules, {}, tuple(collector.shards), collector.tensor_count)


@many(100)
@given(tensors(), st.lists(st.integers(0, 200), max_size=3), st.integers(0, 3), st.integers(0, 200))
def test_shards_of_experts_make_the_same_checkpoint(rows: list[Row], cuts: list[int], again: int, at: int) -> None:
    """Cut anywhere, in the midst of an expert and of a module, and with copies in another shard."""
    places = sorted(cut % (len(rows) + 1) for cut in cuts)
    shards = [rows[start:end] for start, end in zip([0, *places], [*places, len(rows)], strict=True)]
    copies = rows[at % (len(rows) + 1) :][:again]
    held = {name for name, _ in shards[0]}
    shards[0] = [*shards[0], *(row for row in copies if row[0] not in held)]
    fast, slow = (collected(shards, in_blocks=in_blocks) for in_blocks in (True, False))
    event("blocks" if fast.modules.blocks else "no blocks")
    assert fast.modules == slow.modules
    assert {name: fast.modules[name] for name in slow.modules} == slow.modules.whole
    assert len(fast.modules) == len(slow.modules)
    assert (fast.duplicates, fast.tensor_count, fast.shards) == (slow.duplicates, slow.tensor_count, slow.shards)
    assert stored_modules(checkpoint(fast)) == stored_modules(checkpoint(slow))


@many(100)
@given(
    tensors(),
    st.integers(0, 200),
    st.integers(0, 200),
    st.sampled_from(["sorted", "stored", "by shard", "mixed"]),
    st.sampled_from([(",\n    ", ": "), (", ", ": "), (",", ":"), (",\r\n\t", " :")]),
)
def test_an_index_of_experts_is_compared_as_text(
    rows: list[Row], cut: int, wrong: int, order: str, spelling: tuple[str, str]
) -> None:
    place = cut % (len(rows) + 1)
    collector = collected([rows[:place], rows[place:]], in_blocks=True)
    where = {name: f"model-{int(at >= place)}.safetensors" for at, (name, _) in enumerate(rows)}
    names = sorted(where) if order == "sorted" else [*where]
    if order == "by shard":
        names = sorted(where, key=lambda name: (where[name], name))
    elif order == "mixed":
        names = [*reversed(names[1::2]), *names[::2]]
    members = [(name, where[name]) for name in names]
    if members:
        assert agrees("i", indexed(members, spelling), collector.modules, collector.by_shard())
        name, shard = members[wrong % len(members)]
        members[wrong % len(members)] = name, shard.replace("model-", "model_")
        assert not agrees("i", indexed(members, spelling), collector.modules, collector.by_shard())


def indexed(members: Sequence[tuple[str, str]], spelling: tuple[str, str]) -> bytes:
    comma, colon = spelling
    body = comma.join(f"{json.dumps(name)}{colon}{json.dumps(shard)}" for name, shard in members)
    return f'{{\n  "metadata": {{}},\n  "weight_map": {{\n{body}\n  }}\n}}\n'.encode()


@pytest.mark.parametrize("order", ["by expert", "by projection", "library", "one is odd"])
def test_where_an_expert_stands_does_not_hang_on_other_headers(order: str) -> None:
    """Two processes read a checkpoint from both ends, and what each has seen differs from time to time."""
    names = [f"l.{layer}.mlp.experts.{number}.{projection}" for layer in (1, 0) for number in range(9)
             for projection in ("up", "down")]  # fmt: skip
    if order == "by projection":
        names.sort(key=lambda name: (name[:3], name.endswith("down")))
    rows = [(f"{name}.{suffix}", spec) for name in names for suffix, spec in LINEAR.items()]
    if order == "library":
        rows.sort(key=lambda row: (RANK[row[1][0]], row[0]))
    if order == "one is odd":
        rows = [(name, ("F32", (2,)) if ".4.down.input" in name else spec) for name, spec in rows]
    raw, size = spelled([*rows, ("l.0.norm.weight", ("BF16", (2,)))])
    fresh, root, seen = fold(raw, size, Tails()), Tails(), Seen()
    fold(*spelled([(name.replace("l.", "k."), spec) for name, spec in rows[30:]]), root, seen)
    for _ in range(2):
        again = fold(raw, size, root, seen)
        assert fresh is not None
        assert again is not None
        assert placed(again) == placed(fresh)
        assert [*again.modules] == [*fresh.modules]


LAYER = [(f"l.0.mlp.experts.{number}.{projection}.{suffix}", spec) for number in range(9)
         for projection in ("up", "down") for suffix, spec in LINEAR.items()]  # fmt: skip


@pytest.mark.parametrize("order", ["by expert", "library"])
def test_experts_that_are_stored_alike_are_one_block_the_first_and_the_last_one_included(order: str) -> None:
    rows = LAYER if order == "by expert" else sorted(LAYER, key=lambda row: (RANK[row[1][0]], row[0]))
    raw, size = spelled(rows)
    root, seen = Tails(), Seen()
    for _ in range(2):
        folded = fold(raw, size, root, seen)
        assert folded is not None
        assert not folded.singles
        assert [block.numbers for block in folded.blocks] == [tuple(map(str, range(9)))]


def test_experts_stand_in_the_order_of_the_shards_where_one_module_lies_in_two() -> None:
    norm: list[Row] = [("l.0.norm.weight", ("BF16", (2,)))]
    split = LAYER.index(("l.0.mlp.experts.4.down.weight_scale", LINEAR["weight_scale"]))
    other = [(name.replace("l.0.", "l.1."), spec) for name, spec in LAYER]
    fast = collected([norm + LAYER[:split], LAYER[split:] + other], in_blocks=True)
    assert fast.modules.blocks
    assert [*fast.modules] == [*dict.fromkeys(split_name(name)[0] for name, _ in [*norm, *LAYER, *other])]
