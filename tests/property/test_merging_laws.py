"""A change that is taken back from a file that was edited since: the edit stays, or nothing happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lengths import many

from mtpfix.errors import UnreadableError
from mtpfix.merging import taken_back

NAMES = st.sampled_from(["lm_head", "mtp.fc", "mtp*", "model.a", "re:.*b"])
LISTS = st.lists(NAMES, max_size=5, unique=True)
MINE = st.lists(st.sampled_from(["mine", "mine.too", "mine.three"]), max_size=3, unique=True)
VALUES = st.one_of(st.integers(0, 2), st.booleans(), st.none(), LISTS)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
INDENTS = st.sampled_from([None, 1, 4])


def text(value: Any, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent).encode()


def value_of(raw: bytes) -> Any:
    return json.loads(raw)


@many(100)
@given(LISTS, st.lists(NAMES, max_size=3, unique=True), st.data(), INDENTS)
def test_entries_that_came_go_and_those_of_others_stay(
    old: list[str], added: list[str], data: st.DataObject, indent: int | None
) -> None:
    brought = [name for name in added if name not in old]
    now = [*old, *brought]
    for name in data.draw(MINE):
        now.insert(data.draw(st.integers(0, len(now))), name)
    back = taken_back("f", text({"l": old}), text({"l": [*old, *brought]}), text({"l": now, "k": 1}, indent))
    assert back.conflicts == ()
    assert (
        back.data == text({"l": [name for name in now if name not in brought], "k": 1}, indent)
        or not (value_of(back.data)["l"])
    )
    assert value_of(back.data) == {"l": [name for name in now if name not in brought], "k": 1}


@many(100)
@given(LISTS, LISTS, st.data())
def test_entries_that_went_come_back(old: list[str], new: list[str], data: st.DataObject) -> None:
    """Whatever the change did to a list, an entry of somebody else's changes nothing of the way back."""
    now = list(new)
    now.insert(data.draw(st.integers(0, len(now))), "mine")
    back = taken_back("f", text({"l": old}), text({"l": new}), text({"l": now}))
    if sorted(old) == sorted(new):
        assert (back.conflicts == ()) == (old == new)  # another order is nobody's entry
        return
    assert back.conflicts == ()
    assert sorted(value_of(back.data)["l"]) == sorted([*old, "mine"])


@many(100)
@given(OBJECTS, OBJECTS)
def test_without_an_edit_the_first_bytes_come_back(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert taken_back("f", text(old, 2), text(new), text(new)).data == text(old, 2)


@many(100)
@given(OBJECTS, OBJECTS, OBJECTS)
def test_the_edit_stays_or_nothing_changes(old: dict[str, Any], new: dict[str, Any], now: dict[str, Any]) -> None:
    """Members that the change did not touch stay as they are; those that it did are as before, or were edited."""
    back = taken_back("f", text(old), text(new), text(now))
    if back.conflicts:
        assert back.data == text(now)
        return
    found = value_of(back.data)
    for key in {*old, *new, *now}:
        was, left, is_now = (text(each[key]) if key in each else b"" for each in (old, new, now))
        if was == left:
            assert found.get(key, ...) == now.get(key, ...)
        elif is_now == left:
            assert found.get(key, ...) == old.get(key, ...)


@many(100)
@given(st.lists(NAMES, max_size=2, unique=True))
def test_an_entry_that_was_edited_is_left_alone(rest: list[str]) -> None:
    """Where the change only brought entries, one that is gone again needs no way back."""
    back = taken_back("f", text({"l": rest}), text({"l": [*rest, "x", "y"]}), text({"l": [*rest, "x.*", "y"]}))
    assert value_of(back.data) == {"l": [*rest, "x.*"]}


def test_a_list_that_was_put_in_another_order_comes_back_whole() -> None:
    """Ten thousand draws found it: the new entry went, the order stayed."""
    old, new = {"a": 1, "b": ["x", "y"]}, {"b": ["y", "x", "z"]}
    back = taken_back("f", text(old), text(new), text({**new, "c": 2}))
    assert value_of(back.data) == {"a": 1, "b": ["x", "y"], "c": 2}
    assert value_of(
        taken_back("f", text({"b": ["x", "y"], "c": 1}), text({"b": ["y", "x"], "c": 1}), text({"b": ["y", "x"]})).data
    ) == {"b": ["x", "y"]}


@pytest.mark.parametrize(
    ("old", "new", "now", "where"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}, "/a"),
        ({"a": 1}, {"a": 2}, {}, "/a"),
        ({"a": 1}, {}, {"a": 3}, "/a"),
        ({}, {"a": 1}, {"a": True}, "/a"),
        ({"l": ["x*"]}, {"l": ["x.a"]}, {"l": ["x.b"]}, "/l"),
        ({"l": [{"t": 1}]}, {"l": [{"t": 1}, {"t": 2}]}, {"l": [{"t": 1}, {"t": 3}]}, "/l"),
        ({"l": [1]}, {"l": [1, 2]}, {"l": "all"}, "/l"),
    ],
)
def test_what_was_edited_in_the_same_place_is_a_conflict(old: Any, new: Any, now: Any, where: str) -> None:
    assert taken_back("f", text(old), text(new), text(now)).conflicts == (where,)


def test_the_order_of_rules_comes_back() -> None:
    old, new = {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}
    assert list(value_of(taken_back("f", text(old), text(new), text({**new, "d": 4})).data)) == ["a", "b", "c", "d"]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(UnreadableError, match="f: line 1"):
        taken_back("f", b"{}", b'{"a": 1}', b"{")
