"""The semantics of the patterns that users type, pinned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpfix.patterns import compiled, matches, select

FC = "mtp.fc"
GATE = "mtp.layers.0.mlp.experts.17.gate_proj"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("mtp.fc", "mtp.fc"),
        ("mtp.*", "mtp.fc"),
        ("mtp.f?", "mtp.fc"),
        ("*.fc", "mtp.fc"),
        ("mtp.**", "mtp.fc"),
        ("mtp.**", GATE),
        ("mtp.**", "mtp"),
        ("**", "mtp"),
        ("**", GATE),
        ("**.**", "mtp"),
        ("**.fc", "fc"),
        ("**.fc", "model.mtp.fc"),
        ("mtp.**.fc", "mtp.fc"),
        ("mtp.**.gate_proj", GATE),
        ("mtp.**.experts.*.*_proj", GATE),
        ("**.mlp.**", GATE),
        ("**.layers.*.**.17.*", GATE),
        ("mtp.layers.[0-9].mlp.experts.1[67].gate_proj", GATE),
        ("mtp.[!l]*", "mtp.fc"),
        # the first place where an inner run fits is not the only one
        ("a.**.d", "a.b.d.c.d"),
        ("**.x.y", "x.x.y"),
        ("a.**.b.c.**", "a.b.b.c"),
        ("**.a.b.**.b", "a.a.b.b"),
    ],
)
def test_matches(pattern: str, name: str) -> None:
    assert matches(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("mtp.fc", "mtp.fc.x"),
        ("mtp.fc", "mtpxfc"),
        ("mtp", "mtp.fc"),
        ("mtp.*", "mtp"),
        ("mtp.*", GATE),
        ("*", "mtp.fc"),
        ("mtp.**", "mtpx"),
        ("mtp.**", "mtp_fc"),
        ("mtp.**", "model.mtp.fc"),
        ("mtp.*.**", "mtp"),
        ("mtp.**", "MTP.fc"),
        ("MTP.fc", "mtp.fc"),
        ("mtp.{fc,norm}", "mtp.fc"),
        ("a.**.d", "a.b.d.c"),
        ("a.b.**.b.c", "a.b.c"),
        ("**.a.**.a", "a"),
        ("mtp.**fc", "mtp.layers.fc"),
        ("", "mtp"),
        ("mtp.", "mtp"),
        ("mtp.[0-9]", "mtp.[0-9"),
    ],
)
def test_does_not_match(pattern: str, name: str) -> None:
    assert not matches(name, pattern)


@pytest.mark.parametrize(
    "name", ["a.[0].b", "a.[!b].c", "a[", "a.]", "a.*", "**", "a.**.b", "a\\b.c", "a/b.c", "", ".", "a..b", "!x", "-x"]
)
def test_a_name_always_matches_itself(name: str) -> None:
    assert matches(name, name)


def test_hostile_characters_do_not_split_components() -> None:
    assert matches("a.b/c.d", "a.*.d")
    assert not matches("a.b/c.d", "a.*.*.d")
    assert matches("a.b\\c.d", "a.*.d")
    assert not matches("a.b/c", "a.b")


def test_an_empty_component_is_a_component() -> None:
    assert matches("a..b", "a.*.b")
    assert not matches("a.b", "a.*.b")


def test_select_keeps_the_order_of_names_and_tells_idle_patterns() -> None:
    names = ["b.x", "a.x", "a.y", "c"]
    assert select(names, ["a.*", "c", "zz.**", "*.x"]) == (("b.x", "a.x", "a.y", "c"), ("zz.**",))
    assert select(names, []) == ((), ())
    assert select(iter(names), ["a.*"]) == (("a.x", "a.y"), ())


_component = st.text(alphabet="ab*?[]!", min_size=0, max_size=3)
_dotted = st.lists(st.sampled_from(["a", "b", "ab", "*", "**", "?", "[a]"]), min_size=1, max_size=5).map(".".join)
_name = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=6)


def _reference(name: list[str], pattern: list[str]) -> bool:
    """The definition, by backtracking."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_reference(name[i:], pattern[1:]) for i in range(len(name) + 1))
    table = {"*": True, "?": bool(name) and len(name[0]) == 1, "[a]": bool(name) and name[0] == "a"}
    return bool(name) and table.get(pattern[0], name[0] == pattern[0]) and _reference(name[1:], pattern[1:])


@given(_name, _dotted)
def test_agrees_with_the_definition(name: list[str], pattern: str) -> None:
    assert matches(".".join(name), pattern) == _reference(name, pattern.split("."))


@given(st.lists(_component, min_size=1, max_size=4).map(".".join))
def test_any_text_is_a_pattern_and_matches_itself(text: str) -> None:
    assert compiled(text)(text)
