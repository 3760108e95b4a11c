"""Rows, specials and faults of family files name methods by the words that the engines' models use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from mtpfix.engines.sglang.engine import _BUILDERS
from mtpfix.engines.vllm.switches import METHODS
from mtpfix.families import REGISTRY
from mtpfix.families.base import View
from mtpfix.families.loader import load

KNOWN: Mapping[str, frozenset[str]] = {
    "vllm": frozenset(row.method for row in METHODS),
    "sglang": frozenset(_BUILDERS),
}


def named(view: View) -> Iterator[tuple[str, str]]:
    yield from (("mapper", method) for method in view.mapper_methods)
    for fact in (*view.specials, *view.faults):
        yield from ((fact.why, method) for method in fact.methods)


@pytest.mark.parametrize("name", [entry.name for entry in REGISTRY])
def test_methods_are_the_models_own_words(name: str) -> None:
    family = load(name)
    wrong = {
        (view.engine, view.part, where, method)
        for view in family.views
        if view.engine in KNOWN
        for where, method in named(view)
        if method not in KNOWN[view.engine]
    }
    assert not wrong
