"""The tables against what they stand for."""

from __future__ import annotations

import re
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpfix import regexes
from mtpfix.engines.listing import (
    AtEntry,
    Below,
    Ends,
    Entry,
    Index,
    Patterns,
    Runs,
    Segments,
    Starting,
    Within,
    pattern_of,
    picked,
    read_list,
    tails,
    texts,
    unique,
)

LETTERS = st.sampled_from("ab1.")
TEXTS = st.text(LETTERS, max_size=18)
LISTS = st.lists(TEXTS, max_size=8)
BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"


def first(entries: list[str], test: object) -> int | None:
    return next((index for index, entry in enumerate(entries) if test(entry)), None)  # type: ignore[operator]


@given(LISTS, TEXTS)
def test_within_is_containment(entries: list[str], text: str) -> None:
    assert Within(entries).first(text) == first(entries, lambda entry: entry in text)


@given(LISTS, TEXTS)
def test_runs_are_dotted_containment(entries: list[str], text: str) -> None:
    assert Runs(entries).first(text) == first(entries, lambda entry: f".{entry}." in f".{text}.")


@given(LISTS, TEXTS, st.booleans())
def test_ends_are_what_a_text_starts_or_ends_with(entries: list[str], text: str, at_end: bool) -> None:
    table = Ends(at_end)
    for index, entry in enumerate(entries):
        table.add(entry, index)
    expected = first(entries, lambda entry: text.endswith(entry) if at_end else text.startswith(entry))
    for made in (table, Ends(at_end, entries)):
        assert made.first(text, 99) == (99 if expected is None else expected)
        assert made.first(text, 0) == 0
        assert bool(made) == bool(entries)


@given(LISTS, TEXTS)
def test_starting_are_names_in_their_order(names: list[str], text: str) -> None:
    assert Starting(names).all(text) == list(dict.fromkeys(name for name in names if name.startswith(text)))


@given(LISTS, TEXTS)
def test_segments_are_patterns_up_to_a_boundary(entries: list[str], text: str) -> None:
    segments = Segments(enumerate(entries))
    for asked in (text, text[1:], text):  # it grows with what is asked
        expected = first(entries, lambda entry: re.match(f"(?:{entry}){BOUNDARY}", asked) is not None)  # noqa: B023
        assert segments.first(asked, 99) == (99 if expected is None else expected)


def met(sources: list[str], text: str) -> int | str:
    """The index of the first pattern that matches, its count for none, `broken` where one before it is no pattern."""
    for index, source in enumerate(sources):
        try:
            if re.match(source, text):
                return index
        except re.error:
            return "broken"
    return len(sources)


# Rules as exporters spell them, and what only looks like one.
RULES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["^", "", "", "(?i)", "^^", "(^)"]),
    st.lists(
        st.sampled_from([*["a", "b", "1", "A", "-", ".", r"\.", r"\-", "a", r"\."] * 3, *"*+?|\n", "{0}", r"\b"]),
        max_size=6,
    ).map("".join),
    st.sampled_from(["$", "", ".*", r"\..*", "$$", r"(\.|$)"]),
)  # fmt: skip


@given(
    st.lists(st.text(st.sampled_from(r"ab\.*|()"), max_size=8) | RULES, max_size=6),
    st.lists(st.text("ab1.A-\n", max_size=12), max_size=3),
)
def test_patterns_meet_what_they_match(sources: list[str], asked: list[str]) -> None:
    entries = [Entry(source, f"/{index}", source) for index, source in enumerate(sources)]
    patterns = Patterns((index, pattern_of(entry, entry.text)) for index, entry in enumerate(entries))
    for text in asked:
        found: int | str
        try:
            found = patterns.first("match", (text,), len(sources))
        except AtEntry as raised:
            found = "broken" if isinstance(raised.problem, re.error) else "costly"
        assert found in (met(sources, text), "costly")


def test_rules_are_compiled_where_a_name_begins_like_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    compile_ = regexes._compile
    monkeypatch.setattr(regexes, "_compile", lambda pattern: (tried.append(pattern), compile_(pattern))[1])
    forms = (r"^rules\.{}\.mlp$", "rules.{}.mlp", r"rules\.{}\..*", r"^rules.{}.a*b$")
    sources = [form.format(number) for number in range(100) for form in forms]
    entries = [Entry(source, f"/{index}", source) for index, source in enumerate(sources)]
    patterns = Patterns((index, pattern_of(entry, entry.text)) for index, entry in enumerate(entries))
    assert patterns.first("match", ("rules.71.mlp",), len(sources)) == 71 * len(forms)
    assert patterns.first("match", ("rules-7.ab",), len(sources)) == 7 * len(forms) + 3
    assert patterns.first("match", ("other.71.mlp",), len(sources)) == len(sources)
    assert tried == [forms[3].format(7)]  # of the others the text tells


@given(TEXTS)
def test_tails_start_at_components(text: str) -> None:
    parts = text.split(".")
    assert list(tails(text)) == [".".join(parts[at:]) for at in range(len(parts))]


def test_lists_are_read_as_python_walks_them() -> None:
    assert [entry.pointer for entry in read_list(["a", "b"], "/x")] == ["/x/0", "/x/1"]
    assert [entry.pointer for entry in read_list({"a/b": 1}, "/x")] == ["/x/a~1b"]
    assert [entry.text for entry in read_list("ab", "/x")] == ["a", "b"]
    assert read_list(None, "/x") == ()
    with pytest.raises(TypeError):
        read_list(3, "/x")


def test_the_walk_ends_at_what_is_no_text() -> None:
    entries = read_list(["a", 3, "b"], "/x")
    assert texts(entries) == ["a"]
    assert picked(entries, 0) == entries[0]
    with pytest.raises(AtEntry):
        picked(entries, None)
    assert picked(entries[:1], 5) is None


def test_unique_keeps_the_first() -> None:
    entries = (Entry("a", "/0", "x"), Entry("b", "/1", "b"), Entry("a", "/2", "a"))
    assert unique(entries) == entries[:2]


@given(LISTS, TEXTS)
def test_the_first_below_is_the_first_that_begins_so(names: list[str], name: str) -> None:
    assert Below(names).first(name) == next((each for each in names if each.startswith(f"{name}.")), None)


def test_what_lies_above_a_name_takes_no_room() -> None:
    names = [f"{at}." + "a." * 2000 + "b" for at in range(50)]
    tracemalloc.start()
    try:
        assert Below(names).first("7.a.a") == names[7]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_threads_put_a_text_into_an_index_once() -> None:
    """`scan` works out several repositories at once, in threads of one process."""

    def key(text: str) -> str:
        time.sleep(0.02)  # the other thread comes to the same text meanwhile
        return text[0]

    index = Index(key)
    with ThreadPoolExecutor(4) as pool:
        tables = [*pool.map(index.of, [["ab", "ac"]] * 4)]
    assert all(sorted(table["a"]) == ["ab", "ac"] for table in tables)
