"""Laws of the byte-preserving edit, over generated documents in random styles."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lengths import many

from mtpfix.errors import UnreadableError
from mtpfix.model import Edit
from mtpfix.patch import invert, ops, pointer
from mtpfix.splice import scan, splice

KEYS = st.sampled_from(["a", "b", "ignore", "a/b", "m~n", "", "--", "0", "é", 'a"\\', "re:.*mtp.*", "\U0001f600"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5), KEYS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)
RANDOM = st.integers(0, 2**32).map(random.Random)


def scrambled(value: Any, rng: random.Random, *, twins: bool = False) -> str:
    """A value written with random white space, random escapes and, on demand, members that occur twice."""

    def space() -> str:
        return rng.choice(("", "", " ", "  ", "\n", "\n  ", "\r\n\t", " \n"))

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)

    def write(item: Any) -> str:
        return space() + scrambled(item, rng, twins=twins) + space()

    if isinstance(value, dict):
        rows = [f"{space()}{text(key)}{space()}:{write(item)}" for key, item in value.items()]
        if twins and rows and rng.random() < 0.5:
            rows.insert(0, f"{text(rng.choice(sorted(value)))}:{space()}[1, 2]{space()}")
        return "{" + (",".join(rows) or space()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(map(write, value)) or space()) + "]"
    return text(value) if isinstance(value, str) else json.dumps(value)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    """Every container in a value, with its path."""
    rows: list[tuple[tuple[str | int, ...], Any]] = []
    if isinstance(value, (list, dict)):
        rows.append((path, value))
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            rows += places(inner, (*path, step))
    return rows


def random_edit(value: Any, draw: Any, kinds: tuple[str, ...] = ("add", "remove", "replace")) -> Edit:
    """An operation that fits a value."""
    path, container = draw(st.sampled_from(places(value)))
    kind = draw(st.sampled_from(kinds)) if container else "add"
    new = None if kind == "remove" else draw(VALUES)
    if isinstance(container, dict):
        key = draw(KEYS) if kind == "add" else draw(st.sampled_from(sorted(container)))
        return Edit("c.json", kind, pointer(*path, key), new)
    last = len(container) if kind == "add" else len(container) - 1
    step: str | int = draw(st.integers(0, last))
    if kind == "add" and step == last and draw(st.booleans()):
        step = "-"
    return Edit("c.json", kind, pointer(*path, step), new)


def patched(value: Any, edits: list[Edit]) -> Any:
    return jsonpatch.apply_patch(value, json.loads(json.dumps(ops(edits).get("c.json", []))))


def random_edits(value: Any, draw: Any, most: int) -> list[Edit]:
    edits: list[Edit] = []
    for _ in range(draw(st.integers(1, most))):
        state = patched(value, edits)
        if not isinstance(state, (list, dict)):
            break
        edits.append(random_edit(state, draw))
    return edits


def shared(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def exact(value: Any) -> str:
    """A value with the types of its numbers and the order of its keys."""
    return json.dumps(value)


@many(100)
@given(
    st.data(),
    RANDOM,
    st.one_of(OBJECTS, st.lists(VALUES, max_size=4)),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.booleans(),
)
def test_spliced_text_means_what_the_patched_value_means(
    data: Any, rng: random.Random, value: Any, bom: bytes, twins: bool
) -> None:
    raw = bom + ("\n" + scrambled(value, rng, twins=twins) + "\r\n").encode()
    value = json.loads(raw)
    edits = random_edits(value, data.draw, 6)
    spliced = splice(raw, edits)
    assert spliced.startswith(bom)
    assert json.loads(spliced) == patched(value, edits)
    if not twins:
        assert exact(json.loads(spliced)) == exact(patched(value, edits))


STYLES = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, 4, "\t"]),
        "separators": st.sampled_from([(",", ":"), (",", ": "), (", ", ": ")]),
        "ensure_ascii": st.booleans(),
    }
).filter(lambda style: style["separators"] != (",", ": ") if style["indent"] is None else style["separators"][0] == ",")


@many(100)
@given(st.data(), OBJECTS, STYLES, st.sampled_from(["", "\n"]), st.sampled_from(["\n", "\r\n"]))
def test_a_uniform_file_stays_uniform(data: Any, value: Any, style: Any, final: str, line_break: str) -> None:
    def written(value: Any) -> bytes:
        return (json.dumps({"ä": 0, **value}, **style) + final).replace("\n", line_break).encode()

    edits = random_edits(value, data.draw, 6)
    value = {"x": {"y": [1, 2]}, **value}
    assert splice(written(value), edits) == written(patched(value, edits))


@many(100)
@given(st.data(), RANDOM, st.one_of(OBJECTS, st.lists(VALUES, min_size=1, max_size=4)))
def test_what_was_added_is_removed_without_a_trace(data: Any, rng: random.Random, value: Any) -> None:
    raw = scrambled(value, rng).encode()
    filled = [(path, container) for path, container in places(value) if container]
    path, container = data.draw(st.sampled_from(filled))
    step: Any = "new" if isinstance(container, dict) else data.draw(st.integers(0, len(container)))
    first = data.draw(st.booleans())
    edit = Edit("c.json", "add", pointer(*path, step), data.draw(VALUES), first)
    (inverse,) = invert(value, ops([edit])["c.json"])
    spliced = splice(raw, [edit])
    assert splice(spliced, [Edit("c.json", inverse["op"], inverse["path"])]) == raw
    assert shared(raw, spliced) + shared(raw[::-1], spliced[::-1]) >= len(raw)


@many(100)
@given(st.data(), RANDOM, OBJECTS, st.sampled_from(["", " ", "  ", "\t", "\n\n", " \n", "\r\n\r\n  "]))
def test_what_was_added_to_an_empty_container_too(data: Any, rng: random.Random, value: Any, inner: str) -> None:
    kind = data.draw(st.sampled_from(["[]", "{}"]))
    text = scrambled({**value, "here": 77777777777777777777}, rng)
    raw = text.replace("77777777777777777777", kind[0] + inner + kind[1]).encode()
    step = "/here/0" if kind == "[]" else "/here/new"
    spliced = splice(raw, [Edit("c.json", "add", step, data.draw(VALUES))])
    assert splice(spliced, [Edit("c.json", "remove", step)]) == raw


@many(100)
@given(st.data(), RANDOM, OBJECTS)
def test_one_by_one_and_all_at_once_mean_the_same(data: Any, rng: random.Random, value: Any) -> None:
    raw = scrambled(value, rng).encode()
    edits = random_edits(json.loads(raw), data.draw, 5)
    single = raw
    for edit in edits:
        single = splice(single, [edit])
    assert exact(json.loads(single)) == exact(json.loads(splice(raw, edits)))


@many(100)
@given(st.data(), RANDOM, st.lists(VALUES, min_size=1, max_size=5))
def test_a_replaced_value_leaves_all_else(data: Any, rng: random.Random, values: list[Any]) -> None:
    texts = [scrambled(value, rng, twins=True) for value in values]
    spaces = [rng.choice(("", " ", "\n ", "\t")) for _ in values]
    index = data.draw(st.integers(0, len(values) - 1))

    def written(items: list[str]) -> bytes:
        return (
            "[" + ",".join(f"{space}{item}{space}" for space, item in zip(spaces, items, strict=True)) + "]"
        ).encode()

    spliced = splice(written(texts), [Edit("c.json", "replace", f"/{index}", "NEW")])
    assert spliced == written([*texts[:index], '"NEW"', *texts[index + 1 :]])


@many(100)
@given(st.binary(max_size=30) | st.text(alphabet='[]{},:"\\ 01eE+-.tnu\n', max_size=14).map(str.encode))
def test_what_json_refuses_is_refused(raw: bytes) -> None:
    edit = [Edit("c.json", "replace", "", 1)]
    try:
        json.loads(raw)
    except ValueError:
        with pytest.raises(UnreadableError):
            splice(raw, edit)
    else:
        assert json.loads(splice(raw, edit)) == 1


@many(150)
@given(OBJECTS, RANDOM, st.lists(st.tuples(st.integers(0, 400), st.sampled_from(',{}[]":1\\ ')), max_size=2))
def test_a_long_text_is_read_as_a_short_one(value: dict[str, Any], rng: random.Random, typos: Any) -> None:
    """Runs of items, and objects of plain members, are read at once in a long text: brackets and faults are the same,
    whatever was mistyped."""
    text = scrambled({"a": [value, {"a": {}, "b": {"c": 1}, "d": {"e": 1, "f": []}, "g": 1}], **value}, rng)
    for at, letter in typos:
        text = text[: at % len(text)] + letter + text[at % len(text) + 1 :]
    found = []
    for long in (-1, len(text)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "_LONG", long)
            try:
                found.append(scan._scan(text, "f.json"))
            except UnreadableError as error:
                found.append(str(error))
    assert found[0] == found[1]
