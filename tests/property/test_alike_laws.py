"""That a layer may stand for others: nothing of a report differs from one in which each is judged by itself."""

from __future__ import annotations

from typing import Any

import drawn
import pytest
from checkpoints import ABSENT, FORMATS, MODELS
from drawn import Case
from hypothesis import given
from hypothesis import strategies as st
from lengths import many

from mtpfix import alike, decisions
from mtpfix.analysis import analyse

TARGET = ("model.layers.1*", "model.layers.3.*", "*.1.*", "re:.*layers\\.1.*", "model.layers.12.mlp*", "*layers.?.mlp*",
          "re:.*layers\\.(2|5)\\..*", "re:.*layers\\.[0-4]\\..*", "model.layers.7", "*mlp*")  # fmt: skip


@st.composite
def cases(draw: Any) -> Case:
    """Deep models: lists that name layers, all of them or some."""
    family = draw(st.sampled_from(("qwen3_next", "glm4_moe", "deepseek_v3", "qwen3_moe", "llama", "qwen3_5")))
    fmt = draw(st.sampled_from(tuple(FORMATS)))
    made = MODELS[family](layers=13, experts=2, drafts=1)
    stored = draw(drawn.storages(made, FORMATS[fmt].scheme))
    ignore = draw(drawn.entries(made, fmt, stored))
    more = draw(st.lists(st.sampled_from(TARGET), max_size=2)) if draw(st.booleans()) else []
    ignore = [*ignore, *(map(drawn.keyed, more) if fmt == "gptq" else more)]
    sidecar = draw(st.sampled_from((ignore, None))) if FORMATS[fmt].sidecar is not None else ABSENT
    return Case(family, fmt, made, stored, ignore, sidecar, 0)


@many(12)
@given(cases())
def test_a_report_is_the_same(case: Case) -> None:
    checkpoint = case.build()
    quick = [analyse(checkpoint, scope=scope) for scope in ("mtp", "all")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "alike", lambda *_: alike.NONE)
        assert [analyse(checkpoint, scope=scope) for scope in ("mtp", "all")] == quick
