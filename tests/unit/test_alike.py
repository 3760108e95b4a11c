"""Which layers stand for which others, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpfix import alike as layers
from mtpfix.alike import NONE, Alike, Mentions, Wild, alike, runs
from mtpfix.formats import formats
from mtpfix.formats.base import Format
from mtpfix.formats.coverage import Coverage

MODULES = [(f"model.layers.{n}.{leaf}", "bf16") for n in range(12) for leaf in ("mlp.gate", "self_attn.o_proj")]


def classes(*entries: str, modules: list[tuple[str, str]] = MODULES, globs: bool = True) -> list[tuple[str, ...]]:
    return sorted(alike(modules, [{"ignore": list(entries)}], (), (), globs).members.values())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lm_head", []),
        ("model.layers.3.self_attn*", [("3", True, True)]),
        (r"re:^model\.layers\.3\..*", [("3", True, True)]),
        ("model.layers.3", [("3", True, False)]),
        ("model.layers.3.*", [("3", True, False)]),  # of a regular expression the first dot is any character
        ("*.3.mlp.gate", [("3", False, True)]),
        (r"re:.*layers\.(3|14)\.mlp", [("3", False, False), ("14", False, False)]),
        ("mlp.experts.7.up_proj", []),
        ("model.layers.3.mlp.experts.7.up_proj", [("3", True, True)]),
        ("w4.conv1d", []),
        (r"\wlayers.3.mlp", [("3", False, True)]),
        ("re:model.layers.61*", [("6", True, False)]),  # 6, and any number of 1
        ("model.layers.[0-9]+.mlp", []),
    ],
)
def test_what_a_run_of_digits_falls_on(text: str, found: list[tuple[str, bool, bool]]) -> None:
    assert [tuple(run)[:3] for run in runs(text, globs=True)] == found


@pytest.mark.parametrize("text", ["a.layers.[0-3].b", r"re:(layers)\.3\.\1", r"re:layers\.\x33", "(?P<a>3)(?P=a)"])
def test_digits_that_mean_more_than_themselves(text: str) -> None:
    with pytest.raises(Wild):
        runs(text)
    assert alike(MODULES, [{"ignore": [text]}], (), ()) == NONE


def test_layers_of_the_same_length_stand_for_each_other() -> None:
    assert classes() == [tuple("0123456789"), ("10", "11")]


def test_a_layer_that_is_named_otherwise_stands_alone() -> None:
    assert classes("model.layers.3.mlp.gate") == [tuple("012456789"), ("10", "11")]


def test_layers_that_are_all_named_alike_stay_together() -> None:
    named = [f"model.layers.{n}.mlp.gate" for n in range(12)]
    assert classes("lm_head", *named) == [tuple("0123456789"), ("10", "11")]
    assert classes(*named[:5], "lm_head", *named[5:]) == [tuple("01234"), ("10", "11"), tuple("56789")]


def test_an_open_number_is_nobodys_equal() -> None:
    assert classes("model.layers.1*") == [tuple("023456789")]
    assert classes("*.1.mlp.gate") == [tuple("023456789")]
    assert classes("model.layers.11*", globs=False) == [tuple("023456789")]


def test_layers_that_are_stored_otherwise_are_not_alike() -> None:
    modules = [*MODULES[:-2], ("model.layers.11.mlp.gate", "fp8"), ("model.layers.11.self_attn.o_proj", "bf16")]
    assert classes(modules=modules) == [tuple("0123456789")]


def test_a_number_that_stands_in_names_twice_is_nobodys_equal() -> None:
    modules = [(f"model.layers.{n}.mlp.{inner}.gate", "bf16") for n in range(4) for inner in (0, 2)]
    assert classes(modules=modules) == [("1", "3")]


def test_the_value_of_a_rule_counts() -> None:
    rules = {f"+:model.layers.{n}.mlp.gate": {"bits": 8 if n == 4 else 4} for n in range(10)}
    assert sorted(alike(MODULES, [{"dynamic": rules}], (), ()).members.values()) == [tuple("012356789"), ("10", "11")]


def test_what_is_tried_out_may_tell_layers_apart() -> None:
    found = Alike({("model.layers", "0"): ("0", "1", "2")}, frozenset("012"), globs=True)
    assert not found.told_apart(["mtp.fc", "model.layers.9.mlp*", "model.layers.21*"])
    assert found.told_apart(["model.layers.1.mlp*"])
    assert found.told_apart(["model.layers.[0-1]"])
    assert found.idle(["model.layers.0.mlp.gate", "model.layers.1.mlp.gate", "model.layers.1*", "lm_head"]) == (1,)


_TEXTS = (".experts", "a.experts", "re:a", "re:a.*", "-:a", "a.weight")
_TEXT = st.text("a.*0e?[x", max_size=6) | st.sampled_from(_TEXTS)


@given(st.sampled_from([*formats()]), st.lists(_TEXT, max_size=4), _TEXT)
def test_a_list_that_is_looked_up_covers_what_its_entries_cover(fmt: Format, entries: list[str], name: str) -> None:
    for each in (name, f"{name}.experts.0", f"a.{name}", f"{name}.a"):
        assert Coverage(fmt, entries)(each) is any(fmt.covers(entry, each) for entry in entries)


WORDS = st.sampled_from(("bits", "fp", "layers.3.mlp", "model.layers.12", "re:[", "re:a", "*.1.*", "x[0-3]", "", "v1"))
TABLES = st.recursive(
    st.one_of(WORDS, st.integers(0, 2), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=16,
)


def every_text(value: Any, place: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
    """What stands in a value, one part after the other."""
    if isinstance(value, dict):
        yield place, list(value), [repr(held) if any(map(str.isdigit, key)) else "" for key, held in value.items()]
        for key, held in value.items():
            yield from every_text(held, f"{place}/{key}") if "version" not in key else ()
    elif isinstance(value, list):
        yield place, [held for held in value if isinstance(held, str)], []
        for held in value:
            yield from every_text(held, f"{place}/-") if isinstance(held, (dict, list)) else ()
    elif isinstance(value, str):
        yield place, [value], []


def mentioned(parts: Iterator[tuple[str, Any, Any]]) -> object:
    found = Mentions()
    try:
        for place, texts, values in parts:
            found.read(place, zip(texts, values or [""] * len(texts), strict=True), frozenset())
    except Wild:
        return Wild
    return found.named, found.exactly, found.starts, found.parts


@given(st.dictionaries(WORDS, TABLES, max_size=4), st.lists(st.text("ab1", max_size=3), unique=True), TABLES)
def test_equal_recipes_are_read_once(value: dict[str, Any], keys: list[str], recipe: Any) -> None:
    """A table with the same recipe for each of its keys says what all of them say."""
    value = {**value, "extra_config": {**dict.fromkeys(keys, recipe), **value}}
    assert mentioned(layers.texts_of(value)) == mentioned(every_text(value))
