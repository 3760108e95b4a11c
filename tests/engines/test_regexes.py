"""Patterns from a config: the answers of `re`, unless the pattern could run for ever."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpfix.regexes import TooCostly, compiled, is_surely_valid, literal_of, opening_of

PIECES = st.sampled_from(
    [
        *("m", "t", "p", r"\.", ".", ".*", ".+", r"\d+", r"\d", "[0-9]", "[a-z]+", "(gate|up)", r"(?:mtp\.)?", "(?!x)"),
        *(
            "a?",
            "l{2}",
            "l{0,3}",
            "_",
            "-",
            "$",
            "^",
            r"\b",
            "|",
            "(a",
            "b)",
            r"\w*",
            "q_proj",
            "x*",
            "(?i)",
            r"\-",
            "{",
        ),
        *(r"\\", "(?=l)", "(?<=m)p", "é", "[", "]", "*", "#", " "),
    ]
)
NAMES = ["model.layers.0.mlp.gate_proj", "mtp.layers.0.self_attn.q_proj", "mtp", "llama.mlp-x", "", "mmttpp", "é#x y"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=6), st.sampled_from(NAMES))
def test_answers_are_those_of_re(pieces: list[str], name: str) -> None:
    text = "".join(pieces)
    try:
        regex = compiled(text)
    except re.error:
        with pytest.raises(re.error):
            re.compile(text)
        return
    for kind in ("match", "search", "fullmatch"):
        try:
            found = getattr(regex, kind)(name)
        except TooCostly:
            continue
        assert found == (getattr(re, kind)(text, name) is not None), (kind, regex.literal)


@pytest.mark.parametrize(
    "text",
    [
        r".*layers\.\d+\.mlp\.experts\.\d+\.(gate|up)_proj.*",
        r"^(?:.*\.)?layers\.61\..*",
        r"(model\.)?(language_model\.)?mtp\..*",
        r".*self_attn.*proj.*",
        r"model\.layers\.(?!61\.)\d+\..*",
    ],
)
def test_patterns_of_exporters_are_tried(text: str) -> None:
    name = "model.language_model.layers.61.mlp.experts.127.down_proj"
    assert compiled(text).match(name) == (re.match(text, name) is not None)
    assert compiled(text).search(name) == (re.search(text, name) is not None)


@pytest.mark.parametrize(
    "text",
    ["(a+)+$", "(.*)*b", "(a|a)*b", "(a|aa)+$", "(x+x+)+y", ".*.*.*.*.*b", "a?" * 40 + "a" * 40, "(a{1,9}){1,9}b"],
)
def test_patterns_without_end_are_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(TooCostly):
        compiled(text).match("a" * 60 + "xy" + "b" * ("b" in text) + "!")
    assert time.process_time() - started < 0.5


def test_what_every_match_contains() -> None:
    assert compiled(r"^(model\.)?mtp\.fc.*").literal == "mtp.fc"
    assert compiled(r".*layers?x+y").literal == "layer"
    assert compiled("mtp|fc").literal == ""
    assert compiled("(?i)mtp").literal == ""


def test_a_pattern_of_absurd_length_is_refused() -> None:
    with pytest.raises(TooCostly):
        compiled("a" * 5000)


def test_an_invalid_pattern_is_an_error() -> None:
    with pytest.raises(re.error):
        compiled("*mtp*")


@given(st.lists(PIECES, max_size=6).map("".join))
def test_the_literal_is_known_without_the_pattern(source: str) -> None:
    """That of a pattern which is compiled; a simple one is one beyond doubt."""
    try:
        expected = compiled(source).literal
    except (re.error, TooCostly):
        expected = ""
        assert not is_surely_valid(source)
    assert literal_of(source) == expected


@pytest.mark.parametrize(
    ("source", "sure"),
    [("model.a_b-1*", True), (r"a\.b.*", True), ("a**", False), ("*a", False), ("a+", False), (r"a\d", False),
     ("(a)", False), (r"^a\.b$", True), ("^*a", False), ("^^a", False), ("a$$", False), ("$a", False), ("a**$", False),
     ("a" * 4001, False), ("a\n", False)],
)  # fmt: skip
def test_what_is_a_pattern_beyond_doubt(source: str, sure: bool) -> None:
    assert is_surely_valid(source) is sure


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from([*"^$aB.*-a+|", r"\.", r"\-", r"\."]), max_size=8).map("".join),
    st.text("aB.-\n", max_size=8),
)  # fmt: skip
def test_a_match_begins_with_the_opening(source: str, text: str) -> None:
    opening = opening_of(source)
    assert (opening is not None) == is_surely_valid(source)
    if opening is None:
        return
    found, begins = re.match(source, text), opening.spans(text) >= 0
    assert begins or not found
    if opening.rest == "" and "\n" not in text:
        assert begins == (found is not None)


@pytest.mark.parametrize(
    ("source", "opening"),
    [(r"^model\.a-b\.0$", (("model.a-b.0",), "$")), ("model.mlp", (("model", "mlp"), "")), ("ab*c", (("a",), "b*c")),
     (r"a\.b.*", (("a.b",), ".*")), (r"a\-.b", (("a-", "b"), "")), (".a", (("", "a"), "")), ("a*", ((), "a*")),
     ("", ((), "")), ("(a)", None), ("a|b", None), ("^a$$", None), ("a" * 4001, None)],
)  # fmt: skip
def test_openings(source: str, opening: object) -> None:
    assert opening_of(source) == opening
