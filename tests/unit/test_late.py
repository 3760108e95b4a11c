"""An expression that is compiled late is the expression."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtpfix import late


def test_it_does_what_the_compiled_one_does() -> None:
    found, wanted = late.pattern("(?P<one>a+)|b", re.IGNORECASE), re.compile("(?P<one>a+)|b", re.IGNORECASE)
    for _ in range(2):
        assert [each.span() for each in found.finditer("xAAb")] == [each.span() for each in wanted.finditer("xAAb")]
        assert found.sub("-", "cabA") == wanted.sub("-", "cabA")
    assert (found.pattern, found.flags, found.groupindex) == (wanted.pattern, wanted.flags, wanted.groupindex)


def test_a_mistake_shows_with_the_first_use() -> None:
    found = late.pattern("(")
    with pytest.raises(re.error):
        found.match("")


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError):
        assert late.pattern("a").nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "wanted"), [("{}", 2), ('{,"a":1}', 8), ('{,"a":1,"b":}', 0), ('{,"a":}', 0), ("{,}", 0)]
)
def test_half_of_a_round_does_not_count(text: str, wanted: int) -> None:
    """As it did before Python 3.11.5: python/cpython#106052."""
    found = re.match(r"\{" + late.possessive(r',"[a-z]":(?:[0-9]|x{4})', "*") + r"\}", text)
    assert (found.end() if found else 0) == wanted


def test_it_is_never_gone_back_into() -> None:
    assert re.fullmatch(late.possessive("ab?", "{0,3}") + "a", "aba") is None
    assert re.fullmatch(late.possessive("ab?", "?") + "a", "aba")


def test_no_group_is_possessive_but_by_it() -> None:
    """Written by hand it is right from Python 3.11.5 on alone."""
    lines = [
        f"{path.name}:{number}: {line}"
        for path in Path(late.__file__).parent.rglob("*.py")
        if path.name != "late.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "(?" in line and re.search(r"\)(?:[*+?]|\{[^()]*\})\+", line)
    ]
    assert lines == []
