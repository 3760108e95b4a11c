"""A patch as a value."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest

from mtpfix import patch
from mtpfix.errors import WriteError
from mtpfix.model import Edit

VALUE: Any = {"q": {"ignore": ["a", "b"], "x/y": 1, "m~n": None}, "l": [[1], [2]]}


def test_pointers() -> None:
    assert patch.pointer() == ""
    assert patch.pointer("a/b", "m~n", 0, "", "~1") == "/a~1b/m~0n/0//~01"
    assert patch.tokens("/a~1b/m~0n/0//~01") == ["a/b", "m~n", "0", "", "~1"]
    assert patch.tokens("") == []


@pytest.mark.parametrize("text", ["a", "a/b", "/~", "/~2", "/a~/b"])
def test_what_is_no_pointer(text: str) -> None:
    with pytest.raises(ValueError, match="JSON pointer"):
        patch.tokens(text)


def test_operations_per_file() -> None:
    edits = [
        Edit("a.json", "add", "/x", None, first=True),
        Edit("b.json", "remove", "/y"),
        Edit("a.json", "replace", "/z", [1]),
    ]
    assert patch.ops(edits) == {
        "a.json": [{"op": "add", "path": "/x", "value": None}, {"op": "replace", "path": "/z", "value": [1]}],
        "b.json": [{"op": "remove", "path": "/y"}],
    }


OPERATIONS = [
    [{"op": "add", "path": "/q/ignore/-", "value": "c"}],
    [{"op": "add", "path": "/q/ignore/0", "value": "c"}, {"op": "remove", "path": "/q/ignore/1"}],
    [{"op": "add", "path": "/q/new", "value": []}, {"op": "add", "path": "/q/new/-", "value": 1}],
    [{"op": "add", "path": "/q/x~1y", "value": 2}],
    [{"op": "remove", "path": "/q/m~0n"}, {"op": "replace", "path": "/q/x~1y", "value": {}}],
    [{"op": "replace", "path": "/l/0/0", "value": 5}, {"op": "remove", "path": "/l"}],
    [{"op": "remove", "path": "/l/0"}, {"op": "add", "path": "/l/0/0", "value": 5}, {"op": "remove", "path": "/l/0"}],
    [{"op": "replace", "path": "", "value": [1]}, {"op": "add", "path": "/-", "value": 2}],
    [{"op": "add", "path": "", "value": 7}],
    [],
]


@pytest.mark.parametrize("operations", OPERATIONS)
def test_apply_and_back(operations: list[patch.Op]) -> None:
    before, kept = json.dumps(VALUE), json.dumps(operations)
    patched = patch.apply_value(VALUE, operations)
    inverse = patch.invert(VALUE, operations)
    assert patch.apply_value(patched, inverse) == VALUE
    assert len(inverse) == len(operations)
    assert (json.dumps(VALUE), json.dumps(operations)) == (before, kept)


def test_each_operation_is_taken_back_by_its_own() -> None:
    assert patch.invert(
        VALUE, [{"op": "add", "path": "/q/ignore/-", "value": "c"}, {"op": "remove", "path": "/l/0"}]
    ) == [
        {"op": "add", "path": "/l/0", "value": [1]},
        {"op": "remove", "path": "/q/ignore/2"},
    ]


MISFITS = [
    {"op": "remove", "path": "/none"},
    {"op": "replace", "path": "/q/none", "value": 1},
    {"op": "add", "path": "/none/x", "value": 1},
    {"op": "add", "path": "/q/ignore/3", "value": 1},
    {"op": "remove", "path": "/q/ignore/x"},
    {"op": "remove", "path": "/q/ignore/-"},
    {"op": "add", "path": "/q/x~1y/z", "value": 1},
]


@pytest.mark.parametrize("operation", MISFITS)
def test_what_does_not_fit(operation: patch.Op) -> None:
    with pytest.raises(WriteError, match="does not fit"):
        patch.apply_value(VALUE, [operation])
    with pytest.raises(WriteError, match="does not fit"):
        patch.invert(VALUE, [operation])


def test_too_deep() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(WriteError, match="too deep"):
        patch.apply_value(value, [])


def test_the_text_is_a_patch_document() -> None:
    operations = patch.ops([Edit("c", "add", "/a", "é"), Edit("c", "remove", "/a")])["c"]
    text = patch.text(operations)
    assert text == '[\n  {"op": "add", "path": "/a", "value": "é"},\n  {"op": "remove", "path": "/a"}\n]\n'
    assert jsonpatch.JsonPatch.from_string(text).patch == operations
    assert patch.text([]) == "[]\n"


def test_a_table_of_nothing_but_plain_values_is_copied_too() -> None:
    value = {"keys": {"a": {"bits": 16, "sym": True}, "b": {"bits": 4}}, "names": ["n"] * 20}
    operations = [
        {"op": "add", "path": "/keys/a/bits", "value": 8},
        {"op": "remove", "path": "/keys/b/bits"},
        {"op": "add", "path": "/names/-", "value": "m"},
    ]
    patched = patch.apply_value(value, operations)
    assert patched == {"keys": {"a": {"bits": 8, "sym": True}, "b": {}}, "names": [*["n"] * 20, "m"]}
    assert value == {"keys": {"a": {"bits": 16, "sym": True}, "b": {"bits": 4}}, "names": ["n"] * 20}
