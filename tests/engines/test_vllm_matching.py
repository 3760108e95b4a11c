"""The compiled list tests against a plain walk over the entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpfix.engines.vllm.entries import Entry, mapped, numbered, read, rename
from mtpfix.engines.vllm.inc import _renamed, _written
from mtpfix.engines.vllm.matching import Ancestors, Contained, Exact, Globs, Holding, Patterns, Suffixed
from mtpfix.model import Mapper

PART = st.sampled_from(["model", "layers", "1", "10", "mlp", "experts", "q_proj", "proj", "", "m", "mtp"])
NAME = st.lists(PART, min_size=1, max_size=6).map(".".join)
GLOB = (
    NAME | st.tuples(NAME, st.sampled_from(["*", ".*", "?", "[0-9]", "[", "*x"])).map("".join) | NAME.map("*".__add__)
)
TEXTS = st.lists(NAME, max_size=40)


def walk(texts: Sequence[str], hits: Callable[[str], bool]) -> Entry | None:
    """The first entry that a walk meets."""
    return next((entry for entry in read(list(texts), "") if hits(entry.name)), None)


@settings(max_examples=150, deadline=None)
@given(TEXTS, NAME)
def test_equal_contained_suffixed(texts: list[str], name: str) -> None:
    entries = read(texts, "")
    assert Exact(entries).find(name) == walk(texts, lambda text: text == name)
    assert Contained(entries).find(name) == walk(texts, lambda text: text in name)
    assert Contained(entries).find(name, besides=name) == walk(texts, lambda text: text in name and text != name)
    assert Suffixed(entries).find(name) == walk(texts, lambda text: name == text or name.endswith(f".{text}"))


@settings(max_examples=150, deadline=None)
@given(TEXTS, NAME)
def test_holding_and_below(texts: list[str], name: str) -> None:
    entries = read(texts, "")
    assert Holding(entries).find(name) == walk(texts, lambda text: name in text)
    assert Ancestors(Exact(entries)).find(name) == walk(texts, lambda text: text.startswith(f"{name}."))


@settings(max_examples=150, deadline=None)
@given(st.lists(GLOB, max_size=20), NAME)
def test_globs(texts: list[str], name: str) -> None:
    assert Globs(Exact(read(texts, ""))).find(name) == walk(texts, lambda text: fnmatch(name, text))


@settings(max_examples=150, deadline=None)
@given(st.lists(NAME | NAME.map(lambda text: f"re:{re.escape(text)}.*") | NAME.map("re:".__add__), max_size=20), NAME)
def test_patterns(texts: list[str], name: str) -> None:
    def hits(text: str) -> bool:
        return re.match(text[3:], name) is not None if text.startswith("re:") else text == name

    assert Patterns(read(texts, "")).find(name) == walk(texts, hits)


def test_many_short_entries() -> None:
    texts = [f"b{number}" for number in range(100)]
    assert Contained(read(texts, "")).find("x.b7") == Entry("b7", "b7", "/7", 7)
    assert Contained(read(texts, "")).find("x.c") is None


def test_mapper_rules_apply_in_turn_and_once() -> None:
    # vllm-0.33.0 vllm/model_executor/models/utils.py:92: regex, substring, prefix, suffix
    mapper = Mapper(
        prefix=(("x.", "y."), ("y.", "z.")),
        substr=(("a", "b"),),
        suffix=((".gate", ".router"),),
        regex=((r"^m\.(\d)", r"x.\1"),),
    )
    assert rename(mapper, "m.1.aa.gate") == "z.1.ba.router"
    assert rename(Mapper(prefix=(("", "model."),)), "a") == "model.a"
    assert rename(Mapper(suffix=((".gate", None),)), "a.gate") is None


def test_pointers_survive_mapping() -> None:
    entries = mapped(read(["drop", "keep.a"], "/ignore"), (Mapper(prefix=(("drop", None), ("keep", "kept"))),))
    assert [(entry.name, entry.text, entry.pointer) for entry in entries] == [("kept.a", "keep.a", "/ignore/1")]
    assert read({"a/b~c": 1}, "/dynamic")[0].pointer == "/dynamic/a~1b~0c"


RULES = st.lists(st.tuples(PART, st.sampled_from(["", "x", "mlp", None])), max_size=2).map(tuple)
MAPPERS = st.lists(st.builds(Mapper, prefix=RULES, substr=RULES, suffix=RULES), max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(NAME, max_size=12, unique=True), MAPPERS)
def test_keys_go_through_mappers_as_a_dictionary(names: list[str], mappers: list[Mapper]) -> None:
    """Each mapper makes a dictionary anew (vllm-0.33.0 vllm/model_executor/models/utils.py apply_dict): of names that
    become one the last value counts, at the place of the first."""
    config = {name: {"bits": number} for number, name in enumerate(names)}
    expected = {entry.name: (entry, config[entry.text]) for entry in read(config, "/extra_config")}
    for mapper in mappers:
        pairs = [(rename(mapper, name), row) for name, row in expected.items()]
        expected = {name: row for name, row in pairs if name is not None}
    written, recipes = _written(config)
    keys = _renamed(written, mappers)
    assert [(key.name, key.text, recipes[key.text]) for key in keys] == [
        (name, entry.text, recipe) for name, (entry, recipe) in expected.items()
    ]
    assert keys == numbered(keys)
