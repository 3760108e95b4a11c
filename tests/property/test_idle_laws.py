"""That an entry may stand for others that read alike: a report is the same where each of them is looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import drawn
import pytest
from drawn import Case
from hypothesis import given
from hypothesis import strategies as st
from lengths import many

from mtpfix import alike, decisions, idle, world
from mtpfix.analysis import Scope, analyse
from mtpfix.decisions import SPARSE, sparse
from mtpfix.engines.base import Dtypes, MatchQuery

AWAY = ("7", "17", "71", "72", "700", "701", "1000", "99999")
KINDS = ("model.visual.blocks.{}.attn.qkv", "visual.blocks.{}*", "*.blocks.{}.mlp", "re:.*blocks\\.{}\\..*", "junk_{}",
         "{}", "model.layers.{}", "model.layers.{}*", "mtp.layers.{}.*", "model.layers.{}.mlp.experts.{}.up_proj",
         "*.{}.*", "model.layers.0.mlp.experts.{}.up_proj", "layers.{}.self_attn.q_a_proj", "re:layers.{}.+mlp",
         "x.{}?", "model.layers.1{}", "re:model.layers.[0{}]", "lm_head{}", "mtp.fc.{}", "{}.lm_head")  # fmt: skip


@st.composite
def cases(draw: Any) -> Case:
    """Checkpoints of all kinds, among the entries of whose lists stand some that differ in numbers alone."""
    case: Case = draw(drawn.cases())
    names = [re.sub("[0-9]+", "{}", name) for name in case.made.shapes if re.search("[0-9]", name)]
    kinds = draw(st.lists(st.sampled_from((*KINDS, *names)), min_size=1, max_size=3))
    numbers = st.lists(st.sampled_from(AWAY), min_size=3, max_size=3)
    more = [kind.format(*draw(numbers)) for kind in kinds for _ in range(4)]
    more = [drawn.worded(case.fmt, name) if name.isidentifier() else name for name in more]
    if case.fmt == "gptq":
        more = [drawn.keyed(name) for name in more]
    held = case.ignore if isinstance(case.ignore, list) else []
    ignore = draw(st.permutations([*held, *more])) if draw(st.booleans()) else [*more, *held]
    sidecar = ignore if isinstance(case.sidecar, list) and draw(st.booleans()) else case.sidecar
    return replace(case, ignore=ignore, sidecar=sidecar)


@contextmanager
def of_any_length() -> Iterator[pytest.MonkeyPatch]:
    """Lists of any length are looked at for entries that stand for others."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((world, "MANY"), (decisions, "MANY"), (idle, "MANY"), (alike, "FEW")):
            patch.setattr(module, name, 1)
        yield patch


@many(25)
@given(cases(), st.sampled_from(("all", "mtp")))
def test_a_report_is_the_same(case: Case, scope: Scope) -> None:
    checkpoint = case.build()
    with of_any_length() as patch:
        quick = analyse(checkpoint, scope=scope)
        patch.setattr(world.World, "numbers", None)
        assert analyse(checkpoint, scope=scope) == quick


@many(20)
@given(cases(), st.sampled_from(("all", "mtp")))
def test_what_judges_share_of_a_file_changes_nothing(case: Case, scope: Scope) -> None:
    checkpoint = case.build()
    with of_any_length() as patch:
        quick = analyse(checkpoint, scope=scope)
        patch.setattr(decisions, "shared_under", lambda *asked: {SPARSE: sparse(*asked)})
        assert analyse(checkpoint, scope=scope) == quick


@many(40)
@given(cases())
def test_what_queries_share_changes_nothing(case: Case) -> None:
    """Releases, parts and mappers that come to the same search the same: each by itself says what all of them say."""
    checkpoint = case.build()
    quick = analyse(checkpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MatchQuery, "once", lambda self, key, make: make())
        patch.setattr(Dtypes, "once", lambda self, key, make: make())
        assert analyse(checkpoint) == quick
