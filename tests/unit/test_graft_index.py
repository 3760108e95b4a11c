"""The index with some tensors more and others less: its spelling, order and sums."""

from __future__ import annotations

import json
from typing import Any

import pytest
from checkpoints import build, glm4_moe

from mtpfix.grafting.index import indexed
from mtpfix.model import Tensor
from mtpfix.storage.modules import tensors_of

MADE = build(glm4_moe(), shard_of=lambda name: f"{'a' if 'layers.0' in name else 'b'}.safetensors")
ROWS = {row.name: row for raw in MADE.modules.values() for row in tensors_of(raw)}
NAMES = {name: row.shard for name, row in sorted(ROWS.items())}
NEW = {"mtp.né": Tensor("mtp.né", "F32", (2, 3), "new.safetensors")}


def total(names: Any) -> int:
    sizes = {"BF16": 2, "F32": 4}
    count = 0
    for name in names:
        row = ROWS.get(name) or NEW[name]
        amount = sizes[row.dtype]
        for size in row.shape:
            amount *= size
        count += amount
    return count


SPELLINGS: dict[str, dict[str, Any]] = {
    "two": {"indent": 2},
    "four": {"indent": 4},
    "tab": {"indent": "\t"},
    "one line": {},
    "as they are": {"indent": 2, "ensure_ascii": False},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("end", ["", "\n"])
def test_what_is_the_same_stays_byte_for_byte(spelling: str, end: str) -> None:
    more = {"x": [1, {"y": "weight_map"}], "né": "the weight map is here"} if spelling == "as they are" else {}
    value = {"metadata": {"total_size": total(NAMES), **more}, "weight_map": NAMES, "z": None}
    raw = (json.dumps(value, **SPELLINGS[spelling]) + end).encode()
    assert indexed(raw, MADE.modules, {}, (), ()) == raw
    grown = indexed(raw, MADE.modules, NEW, (), ())
    names = dict(sorted({**NAMES, "mtp.né": "new.safetensors"}.items()))
    wanted = {**value, "metadata": {"total_size": total(names), **more}, "weight_map": names}
    options = SPELLINGS[spelling] if spelling == "as they are" else {**SPELLINGS[spelling], "ensure_ascii": False}
    assert grown == (json.dumps(wanted, **options) + end).encode()


def test_an_order_of_its_own_stays() -> None:
    names = dict(reversed(NAMES.items()))
    raw = json.dumps({"weight_map": names}).encode()
    found = json.loads(indexed(raw, MADE.modules, NEW, (), ()))
    assert list(found["weight_map"]) == [*names, "mtp.né"]
    assert list(found) == ["weight_map"]


def test_what_goes() -> None:
    gone = next(iter(ROWS.values()))
    value = {
        "metadata": {"total_size": 0, "total_parameters": 7, "x": 1},
        "weight_map": {**NAMES, "ghost": "no.safetensors"},
    }
    found = json.loads(indexed(json.dumps(value).encode(), MADE.modules, NEW, (gone,), ("ghost",)))
    wanted = {**{name: shard for name, shard in NAMES.items() if name != gone.name}, "mtp.né": "new.safetensors"}
    assert found["weight_map"] == wanted
    assert found["metadata"] == {"total_size": total(wanted), "x": 1}


def test_parameters_go_where_no_size_is_told_either() -> None:
    value = {"metadata": {"total_parameters": 7}, "weight_map": NAMES}
    assert json.loads(indexed(json.dumps(value).encode(), MADE.modules, NEW, (), ()))["metadata"] == {}


def test_a_new_index() -> None:
    raw = indexed(None, MADE.modules, NEW, (), ())
    names = dict(sorted({**NAMES, "mtp.né": "new.safetensors"}.items()))
    value = {"metadata": {"total_size": total(names)}, "weight_map": names}
    assert raw == (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def test_an_empty_map() -> None:
    raw = b'{\n  "weight_map": {}\n}\n'
    assert indexed(raw, {}, {}, (), ()) == raw
