"""The byte-preserving edit, style by style."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from mtpfix.errors import UnreadableError, WriteError
from mtpfix.model import Edit
from mtpfix.splice import splice


def edit(op: Any, pointer: str, value: Any = None, *, first: bool = False) -> Edit:
    return Edit("config.json", op, pointer, value, first)


def add(pointer: str, value: Any, *, first: bool = False) -> Edit:
    return edit("add", pointer, value, first=first)


def remove(pointer: str) -> Edit:
    return edit("remove", pointer)


def replace(pointer: str, value: Any) -> Edit:
    return edit("replace", pointer, value)


ONE = [
    # an entry goes behind the last, before the first, between
    ('["a"]', add("/-", "b"), '["a", "b"]'),
    ('["a","b"]', add("/-", "c"), '["a","b","c"]'),
    ('["a", "b"]', add("/0", "c"), '["c", "a", "b"]'),
    ('["a" ,  "b"]', add("/1", "c"), '["a" ,  "c" ,  "b"]'),
    ('[ "a", "b" ]', add("/2", "c"), '[ "a", "b", "c" ]'),
    ('[\n  "a"\n]', add("/-", "b"), '[\n  "a",\n  "b"\n]'),
    ('[\n  "a"\n]', add("/0", "b"), '[\n  "b",\n  "a"\n]'),
    ('[\r\n\t"a",\r\n\t"b"\r\n]\r\n', add("/-", "c"), '[\r\n\t"a",\r\n\t"b",\r\n\t"c"\r\n]\r\n'),
    ('[ "a"\n, "b"\n]', add("/-", "c"), '[ "a"\n, "b"\n, "c"\n]'),
    ('[\n  "a", "b",\n  "c", "d"\n]', add("/-", "e"), '[\n  "a", "b",\n  "c", "d", "e"\n]'),
    # a member goes behind its siblings, or first of all
    ('{"a":1}', add("/b", 2), '{"a":1,"b":2}'),
    ('{"a": 1}', add("/b", 2), '{"a": 1, "b": 2}'),
    ('{ "a" : 1 }', add("/b", 2), '{ "a" : 1, "b" : 2 }'),
    ('{"a": 1, "c": 3}', add("/b", 2, first=True), '{"b": 2, "a": 1, "c": 3}'),
    ('{\n    "a": 1\n}\n', add("/b", 2), '{\n    "a": 1,\n    "b": 2\n}\n'),
    ('{\n    "a": 1\n}\n', add("/b", 2, first=True), '{\n    "b": 2,\n    "a": 1\n}\n'),
    ('{"a": 1, "b": 2}', add("/b", 3, first=True), '{"b": 3, "a": 1}'),
    ('{"a": 1, "b": 2}', add("/a", 3), '{"a": 3, "b": 2}'),
    # new lists and objects take the style of what is around them
    ('{\n  "a": 1\n}', add("/b", ["x", "y"]), '{\n  "a": 1,\n  "b": [\n    "x",\n    "y"\n  ]\n}'),
    ('{\n\t"a": 1\n}', add("/b", {"c": []}), '{\n\t"a": 1,\n\t"b": {\n\t\t"c": []\n\t}\n}'),
    ('{"a": 1}', add("/b", ["x", {"y": 1}]), '{"a": 1, "b": ["x", {"y": 1}]}'),
    ('{"a":1}', add("/b", ["x", {"y": 1}]), '{"a":1,"b":["x",{"y":1}]}'),
    # empty containers
    ('{\n  "a": []\n}', add("/a/-", "x"), '{\n  "a": [\n    "x"\n  ]\n}'),
    ('{\r\n    "a": []\r\n}', add("/a/-", "x"), '{\r\n    "a": [\r\n        "x"\r\n    ]\r\n}'),
    ('{"b": 1, "a": []}', add("/a/-", "x"), '{"b": 1, "a": ["x"]}'),
    ('{\n  "q": {"a": []}\n}', add("/q/a/-", "x"), '{\n  "q": {"a": ["x"]}\n}'),
    ('{\n  "a": {}\n}', add("/a/k", 1), '{\n  "a": {\n    "k": 1\n  }\n}'),
    ('{\n  "a": [\n  ]\n}', add("/a/-", "x"), '{\n  "a": [\n    "x"\n  ]\n}'),
    ('{\n  "a": [ ]\n}', add("/a/-", "x"), '{\n  "a": [ "x" ]\n}'),
    ("{}", add("/a", [1, 2]), '{"a": [1, 2]}'),
    ("[]\n", add("/0", {}), "[{}]\n"),
    # removal leaves what would be there without the entry
    ('["a", "b", "c"]', remove("/0"), '["b", "c"]'),
    ('["a", "b", "c"]', remove("/1"), '["a", "c"]'),
    ('["a", "b", "c"]', remove("/2"), '["a", "b"]'),
    ('["a"]', remove("/0"), "[]"),
    ('{\n  "a": [\n    "x"\n  ]\n}', remove("/a/0"), '{\n  "a": []\n}'),
    ('{\n  "a": 1,\n  "b": 2\n}', remove("/b"), '{\n  "a": 1\n}'),
    ('{\n  "a": 1,\n  "b": 2\n}', remove("/a"), '{\n  "b": 2\n}'),
    ('{"a": {"b": 1}}', remove("/a/b"), '{"a": {}}'),
    # replacement keeps the place
    ('{"a" :  1.50 , "b": 2}', replace("/a", "x"), '{"a" :  "x" , "b": 2}'),
    ('{\n  "a": ["x"]\n}', replace("/a", ["y", "z"]), '{\n  "a": ["y", "z"]\n}'),
    ('{\n  "a": [\n    "x"\n  ]\n}', replace("/a", ["y"]), '{\n  "a": [\n    "y"\n  ]\n}'),
    ('{\n  "a": null\n}', replace("/a", ["y"]), '{\n  "a": [\n    "y"\n  ]\n}'),
    (" 1 \n", replace("", {"a": 1}), ' {"a": 1} \n'),
    ('{\n "a": 1\n}\n', replace("", {"b": [2]}), '{\n "b": [\n  2\n ]\n}\n'),
    # a member that is there twice: the last one counts
    ('{"a": [1], "a": [2]}', add("/a/-", 3), '{"a": [1], "a": [2, 3]}'),
    ('{"a": 1, "b": 0, "a": 2}', replace("/a", 3), '{"a": 1, "b": 0, "a": 3}'),
    ('{"a": 1, "b": 0, "a": 2}', remove("/a"), '{"b": 0}'),
    # names: escapes in the file and in the pointer
    ('{"\\u0061": [1]}', add("/a/-", 2), '{"\\u0061": [1, 2]}'),
    ('{"a/b": {"m~n": [1]}}', add("/a~1b/m~0n/-", 2), '{"a/b": {"m~n": [1, 2]}}'),
    ('{"": [1]}', add("//-", 2), '{"": [1, 2]}'),
    ('{"0": 1}', replace("/0", 2), '{"0": 2}'),
    ('{"-": 1}', replace("/-", 2), '{"-": 2}'),
    ('{"a": 1}', add("/x\"y", 2), '{"a": 1, "x\\"y": 2}'),
    # characters beyond ASCII as the file has them
    ('["\\u00e9"]', add("/-", "ü\x7f\U0001f600"), '["\\u00e9", "\\u00fc\\u007f\\ud83d\\ude00"]'),
    ('["é"]', add("/-", "ü"), '["é", "ü"]'),
    ('["a"]', add("/-", "ü"), '["a", "ü"]'),
    ('["\\\\u00e9"]', add("/-", "ü"), '["\\\\u00e9", "ü"]'),
    ('["\\u000a"]', add("/-", "ü"), '["\\u000a", "ü"]'),
    ('["é"]', add("/-", "\ud800"), '["é", "\\ud800"]'),
    # what else must not change
    ('{"n": [1.0, 1e-06, 1E5, -0, 1e400], "s": "\\/\\u0041", "l": []}', add("/l/0", 1),
     '{"n": [1.0, 1e-06, 1E5, -0, 1e400], "s": "\\/\\u0041", "l": [1]}'),
    ('[NaN, -Infinity, Infinity, "x"]', remove("/3"), "[NaN, -Infinity, Infinity]"),
    ('{"a":\n  {\n    "b": 1\n  }\n}', add("/a/c", 2), '{"a":\n  {\n    "b": 1,\n    "c": 2\n  }\n}'),
    # indentation of the sibling entries, not of the file
    ('{\n  "a": {\n        "b": 1\n  }\n}', add("/a/c", [2]),
     '{\n  "a": {\n        "b": 1,\n        "c": [\n              2\n        ]\n  }\n}'),
    ('{\n"a": 1,\n"b": 2\n}', add("/c", [3]), '{\n"a": 1,\n"b": 2,\n"c": [\n3\n]\n}'),
]  # fmt: skip


@pytest.mark.parametrize(("before", "one", "after"), ONE)
def test_one_edit(before: str, one: Edit, after: str) -> None:
    assert splice(before.encode(), [one]) == after.encode()


@pytest.mark.parametrize(("before", "one", "after"), ONE)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_other_encodings(before: str, one: Edit, after: str, encoding: str) -> None:
    raw = before.encode(encoding)
    assert splice(raw, [one]) == after.encode(encoding)


SEVERAL = [
    ("{}", [add("/a", []), add("/a/-", "x"), add("/a/0", "y")], '{"a": ["y", "x"]}'),
    ('{\n  "q": 1\n}', [add("/a", []), add("/a/-", "x"), add("/a/-", "y")],
     '{\n  "q": 1,\n  "a": [\n    "x",\n    "y"\n  ]\n}'),
    ('["a", "b", "c"]', [remove("/1"), add("/1", "b")], '["a", "b", "c"]'),
    ('["a",\n"b"]', [remove("/0"), remove("/0"), add("/0", "c"), add("/1", "d")], '["c",\n"d"]'),
    ('[[1], [2]]', [add("/0/-", 9), remove("/0")], "[[2]]"),
    ('[[1], [2]]', [replace("/0/0", 9), replace("/0", 3), remove("/0")], "[[2]]"),
    ('[[1], [2]]', [replace("/0", [7]), add("/0/-", 8)], "[[7, 8], [2]]"),
    ('[1]', [add("/-", 2), replace("/1", 3), remove("/0")], "[3]"),
    ('[1]', [replace("", {"a": []}), add("/a/0", 1)], '{"a": [1]}'),
    ('{"a": 1}', [remove("/a"), add("/a", 2)], '{"a": 2}'),
    ('{"z": 0}', [add("/a", 1, first=True), add("/b", 2, first=True), add("/a", 3)], '{"b": 2, "a": 3, "z": 0}'),
    ('{"z": 0}', [add("/a", 1), add("/b", 2), add("/a", 3), add("/b", 4, first=True)], '{"b": 4, "z": 0, "a": 3}'),
    ('{"z": 0}', [add("/a", 1), remove("/a"), remove("/z")], "{}"),
    ('{"a": 1, "a": 2}', [replace("/a", 5), remove("/a"), add("/a", 3)], '{"a": 3}'),
]  # fmt: skip


@pytest.mark.parametrize(("before", "edits", "after"), SEVERAL)
def test_several_edits(before: str, edits: list[Edit], after: str) -> None:
    assert splice(before.encode(), edits) == after.encode()


def test_no_edit_no_change() -> None:
    assert splice(b"not even JSON", []) == b"not even JSON"


def test_a_byte_order_mark_stays() -> None:
    assert splice(b'\xef\xbb\xbf["a"]', [add("/-", "b")]) == b'\xef\xbb\xbf["a", "b"]'


MISSES = [
    ('{"a": 1}', remove("/b"), "no member 'b'"),
    ('{"a": 1}', replace("/b", 1), "no member 'b'"),
    ('{"a": 1}', add("/b/c", 1), "no member 'b'"),
    ('{"a": 1}', add("/a/b", 1), "neither an array nor an object"),
    ('{"a": [1]}', add("/a/2", 1), "the array has 1 entries"),
    ('{"a": [1]}', remove("/a/1"), "the array has 1 entries"),
    ('{"a": [1]}', remove("/a/-"), "'-' is no index"),
    ('{"a": [1]}', replace("/a/01", 1), "'01' is no index"),
    ('{"a": [1]}', replace("/a/٠", 1), "is no index"),
    ('{"a": [1]}', replace("/a/" + "9" * 5000, 1), "is no index"),
    ('{"a": [1]}', add("/a/-/b", 1), "'-' is no index"),
    ('{"a": [1]}', add("a", 1), "starts with a slash"),
    ('{"a": [1]}', add("/~2", 1), "tilde"),
    ("1", add("/a", 1), "neither an array nor an object"),
    ("1", remove(""), "a file without a value"),
]


@pytest.mark.parametrize(("before", "one", "why"), MISSES)
def test_an_edit_that_does_not_fit(before: str, one: Edit, why: str) -> None:
    with pytest.raises(WriteError, match=why) as caught:
        splice(before.encode(), [one])
    assert caught.value.subject == "config.json"
    assert one.pointer[:40] in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"[", b"[1,]", b"[,1]", b"[1 2]", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a" 1}', b"{1:2}",
        b"[1]]", b"[1}", b'{"a":1]', b"1 2", b"01", b"+1", b".5", b"1.", b"- 1", b"tru", b"nan", b'"', b'"a', b'"\\x"',
        b'"\\u12"', b'"\n"', b'"\x00"', b"'a'", b"[1] // no", b"\xff", b'["\xe9"]', b"\xef\xbb\xbf\xef\xbb\xbf1",
        b"\xa01", b"\x0b1",
    ],
)  # fmt: skip
def test_what_is_not_json(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of the parser's
        json.loads(raw)
    with pytest.raises(UnreadableError) as caught:
        splice(raw, [add("/a", 1)])
    assert caught.value.subject == "config.json"
    assert "config.json" in str(caught.value)


def test_edits_of_one_file_only() -> None:
    with pytest.raises(ValueError, match="several files"):
        splice(b"{}", [add("/a", 1), Edit("other.json", "add", "/a", 1)])


def test_deep_nesting() -> None:
    depth = 100_000
    raw = b'{"a":[' * (depth // 2) + b"]}" * (depth // 2)
    pointer = "/a/0" * (depth // 2 - 1) + "/a/-"
    spliced = splice(raw, [add(pointer, "x")])
    assert spliced == raw.replace(b"[]", b'["x"]')
    with pytest.raises(UnreadableError):
        splice(raw[:-1], [add("/b", 1)])


def test_a_new_value_that_is_too_deep() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(WriteError, match="nested too deep"):
        splice(b"[]", [add("/0", value)])


def test_time_grows_with_the_file_not_with_the_edits() -> None:
    names = [f"model.layers.{number}.self_attn" for number in range(50_000)]
    raw = json.dumps({"ignore": names, "map": dict.fromkeys(names, "a")}, indent=2).encode()
    edits = [add("/ignore/-", f"mtp.{number}") for number in range(1000)]
    edits += [remove(f"/map/model.layers.{number}.self_attn") for number in range(1000)]
    start = time.process_time()
    spliced = splice(raw, edits)
    assert time.process_time() - start < 5
    value = json.loads(spliced)
    assert (len(value["ignore"]), len(value["map"])) == (51_000, 49_000)
    assert spliced == json.dumps(value, indent=2).encode()


@pytest.mark.parametrize("half", ['"b":', '"b"', '"b', "", '"b":1,', '"b":"\\u'])
def test_half_of_a_member_in_a_long_text(half: str) -> None:
    """Objects of plain members are read at once there, as far as they are right."""
    filler = ", ".join(f'"m{at}": {{"a": 1}}' for at in range(3000))
    raw = f'{{{filler}, "x": {{"a": 1,{half}}}, "y": 12345}}'.encode()
    with pytest.raises(UnreadableError):
        splice(raw, [replace("/y", 1)])
