"""An expression that is compiled late is the expression."""

from __future__ import annotations

import re

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
