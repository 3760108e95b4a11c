"""Names in brace form stand for exactly the names that went in."""

from __future__ import annotations

import itertools
import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpfix.output.collapse import collapse, collapsed, numbers


def expand(form: str) -> list[str]:
    """The names a brace form stands for."""
    pieces = re.split(r"\{([^{}]*)\}", form)
    choices = [_choices(piece) if i % 2 else [piece] for i, piece in enumerate(pieces)]
    return ["".join(parts) for parts in itertools.product(*choices)]


def _choices(body: str) -> list[str]:
    out: list[str] = []
    for part in body.split(","):
        if found := re.fullmatch(r"(\d+)\.\.(\d+)", part):
            width = len(found[1]) if found[1][0] == "0" else 0
            out += (f"{value:0{width}}" for value in range(int(found[1]), int(found[2]) + 1))
        else:
            out.append(part)
    return out


def experts(count: int, *leaves: str, front: str = "mtp.layers.0.mlp.experts") -> list[str]:
    return [f"{front}.{i}.{leaf}" for i in range(count) for leaf in leaves]


@pytest.mark.parametrize(
    ("names", "forms"),
    [
        ([], ()),
        (["mtp.fc"], ("mtp.fc",)),
        (["mtp.fc", "mtp.fc"], ("mtp.fc",)),
        (experts(512, "gate_proj"), ("mtp.layers.0.mlp.experts.{0..511}.gate_proj",)),
        (
            experts(512, "gate_proj", "up_proj", "down_proj"),
            ("mtp.layers.0.mlp.experts.{0..511}.{gate,up,down}_proj",),
        ),
        (["l.0.w1", "l.0.w2", "l.0.w3"], ("l.0.{w1,w2,w3}",)),
        (["a.q_a_proj", "a.q_b_proj"], ("a.q_{a,b}_proj",)),
        (["a.in_proj_qkvz", "a.in_proj_ba"], ("a.in_proj_{qkvz,ba}",)),
        (["a.weight", "a.weight_scale"], ("a.{weight,weight_scale}",)),
        (["l.0", "l.1", "l.3", "l.4", "l.5"], ("l.{0,1,3..5}",)),
        (["l.10", "l.9", "l.8"], ("l.{8..10}",)),
        (["h.layer_0", "h.layer_1", "h.layer_2"], ("h.layer_{0..2}",)),
        (["l.01", "l.02", "l.03"], ("l.{01,02,03}",)),
        ([f"m-{at:05}-of-00012.x" for at in range(2, 13)], ("m-{00002..00012}-of-00012.x",)),
        (["m-01-of-12", "m-02-of-12", "m-03-of-12", "m-11-of-12"], ("m-{01..03,11}-of-12",)),
        ([f"s{at}.x" for at in range(8, 12)], ("s{8..11}.x",)),
        (["s1", "s02", "s3", "s4"], ("{s1,s02,s3,s4}",)),
        (["s1", "s2", "s3", "t4"], ("{s1,s2,s3,t4}",)),
        (["mtp.fc", "mtp.fc.x"], ("mtp.fc", "mtp.fc.x")),
        (["mtp.fc", *experts(4, "up")], ("mtp.fc", "mtp.layers.0.mlp.experts.{0..3}.up")),
        (["a.{x}", "a.{y}"], ("a.{x}", "a.{y}")),
        (["a,b.c", "a,d.c"], ("a,b.c", "a,d.c")),
        (["a..b", "a..c", "a.x.b"], ("a..{b,c}", "a.x.b")),
        (["", "."], ("", ".")),
        (["a." + "9" * 5000, "a.1"], ("a.{" + "9" * 5000 + ",1}",)),
    ],
)
def test_forms(names: list[str], forms: tuple[str, ...]) -> None:
    assert collapse(names) == forms


def test_counts() -> None:
    groups = collapsed([*experts(512, "gate_proj", "up_proj"), "mtp.fc"])
    assert [group.size for group in groups] == [1024, 1]


def test_numbers() -> None:
    assert numbers([]) == ""
    assert numbers([3, 1, 1, 2, 7, 8]) == "1..3,7,8"


_part = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "10",
        "01",
        "a",
        "b_p",
        "c_p",
        "b_c_p",
        "_",
        "w1",
        "w2",
        "w3",
        "w4",
        "w10",
        "w01",
        "w02",
        "w03",
        "w04",
        "w05",
    ]
)
_name = st.lists(_part, min_size=1, max_size=4).map(".".join)


@given(st.lists(_name, max_size=30, unique=True))
def test_forms_stand_for_exactly_the_names(names: list[str]) -> None:
    groups = collapsed(names)
    assert sorted(name for group in groups for name in expand(group.pattern)) == sorted(names)
    assert [len(expand(group.pattern)) for group in groups] == [group.size for group in groups]


@given(st.lists(st.text(alphabet="a0.{},", max_size=6), max_size=12))
def test_any_text_collapses(names: list[str]) -> None:
    assert sum(group.size for group in collapsed(names)) == len(set(names))


def test_names_of_very_many_parts_cost_what_they_are_long() -> None:
    """Each part of a name is looked at for each other one, unless it has more than a module's."""
    names = ["mtp." + "a." * 1000 + str(at) for at in range(500)] + ["." * 1_000_000, "x", "y"]
    before = time.process_time()
    assert collapse(names) == (*names[:501], "{x,y}")
    assert time.process_time() - before < 5


PARTS = st.sampled_from(["a", "b", "0", "1", "", "{", "x,y"])
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=5).map(".".join), max_size=40)


@given(NAMES)
def test_names_of_any_depth_are_merged_from_the_end_on(names: list[str]) -> None:
    """The same as merging rows of parts, one depth after the other."""
    rows = [[(part,) for part in name.split(".")] for name in dict.fromkeys(names)]
    for depth in range(4, -1, -1):
        merged: dict[object, list[tuple[str, ...]]] = {}
        for row in rows:
            joins = len(row) > depth and all(part and not {*"{},"} & {*part} for part in row[depth])
            key = (True, tuple(row[:depth]), tuple(row[depth + 1 :])) if joins else (False, tuple(row), None)
            merged.setdefault(key, [*row])
            if joins and row[depth][0] not in merged[key][depth]:
                merged[key][depth] = (*merged[key][depth], *row[depth])
        rows = [*merged.values()]
    sizes = [math.prod(map(len, row)) for row in rows]
    assert [group.size for group in collapsed(names)] == sizes
    assert sum(sizes) == len({*names})
    for group, row in zip(collapsed(names), rows, strict=True):
        if len(row) == group.pattern.count(".") + 1 and group.size == 1:
            assert group.pattern == ".".join(part for parts in row for part in parts)
