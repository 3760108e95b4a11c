"""That a layer may stand for others: nothing of a report differs from one in which each is judged by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import drawn
import pytest
from checkpoints import ABSENT, FORMATS, Model, Shape
from drawn import Case
from hypothesis import given
from hypothesis import strategies as st
from lengths import many
from recorded import MAKERS, SEPARATE

from mtpfix import alike, world
from mtpfix.analysis import Scope, analyse

FAMILIES = tuple(name for name in MAKERS if name not in SEPARATE)
TARGET = ("model.layers.1*", "model.layers.3.*", "*.1.*", "re:.*layers\\.1.*", "model.layers.12.mlp*", "*layers.?.mlp*",
          "re:.*layers\\.(2|5)\\..*", "re:.*layers\\.[0-4]\\..*", "model.layers.7", "*mlp*")  # fmt: skip


@st.composite
def thinned(draw: Any, made: Model) -> Model:
    """The model with a few kinds of modules in each of its target's layers: what is not there costs no time."""
    kinds = list(dict.fromkeys(kind_of(name) for name in (*made.body, *made.kept)))
    chosen = draw(st.sets(st.sampled_from(kinds), min_size=1, max_size=5))

    def kept(names: Mapping[str, Shape]) -> dict[str, Shape]:
        return {name: shape for name, shape in names.items() if kind_of(name) in chosen}

    return replace(made, body=kept(made.body), kept=kept(made.kept))


def kind_of(name: str) -> str:
    """A module's group without its numbers."""
    return re.sub(r"[0-9]+", "#", drawn.group_of(name))


@st.composite
def cases(draw: Any) -> Case:
    """Deep models: lists that name layers, all of them or some."""
    family = draw(st.sampled_from(FAMILIES))
    fmt = draw(st.sampled_from(tuple(FORMATS)))
    made = draw(thinned(MAKERS[family](layers=13, experts=2, drafts=1)))
    stored = draw(drawn.storages(made, FORMATS[fmt].scheme))
    ignore = draw(drawn.entries(made, fmt, stored))
    more = draw(st.lists(st.sampled_from(TARGET), max_size=2)) if draw(st.booleans()) else []
    ignore = [*ignore, *(map(drawn.keyed, more) if fmt == "gptq" else more)]
    sidecar = draw(st.sampled_from((ignore, None))) if FORMATS[fmt].sidecar is not None else ABSENT
    return Case(family, fmt, made, stored, ignore, sidecar, 0)


@many(15)
@given(cases(), st.sampled_from(("all", "all", "mtp")))
def test_a_report_is_the_same(case: Case, scope: Scope) -> None:
    checkpoint = case.build()
    quick = analyse(checkpoint, scope=scope)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "alike", lambda *_: alike.NONE)
        assert analyse(checkpoint, scope=scope) == quick
