"""Answers, and how a family of methods says that the engine raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import LONGEST_REASON
from mtpfix.engines.vllm.entries import Entry
from mtpfix.frozen import Protocol
from mtpfix.model import Answer, Cause, Layer
from mtpfix.names import brief
from mtpfix.regexes import TooCostly

NOT_LISTED = "not listed; quantized by default"
NOT_ASKED = "the method quantizes no such layer"


class Refusal(Exception):
    """The engine raises. `kind`: the exception's type; `entry`: what led to it."""

    def __init__(self, kind: str, reason: str, entry: Entry | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.entry = entry


class Decider(Protocol):
    """One quantization config of one method. May raise whatever the engine would raise."""

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        """The answer for a runtime name."""


def listed(entry: Entry, rule: str = "") -> Answer:
    """Plain because of an entry."""
    return Answer("plain", cause_of(entry, rule))


def as_linears(entry: Entry, query: MatchQuery) -> Answer:
    """Experts that an entry gives the method of linears.

    Whatever holds experts asserts that their method is one of experts: an AssertionError once a model is built, when
    its part is known; the method by itself is a plain one, and so are they in the vectors.
    (vllm-0.11.1 model_executor/layers/fused_moe/layer.py:548, vllm-0.33.0 .../fused_moe/routed_experts.py:241)
    """
    if "part" in query.options:
        raise Refusal("AssertionError", "experts that are listed get the method of linears", entry)
    return listed(entry, "linear-method-for-moe")


@lru_cache(maxsize=256)
def plain(rule: str) -> Answer:
    """Plain by a rule."""
    return Answer("plain", Cause(rule=rule))


@lru_cache(maxsize=256)
def quantized(scheme: str, rule: str = NOT_LISTED) -> Answer:
    """Quantized by a rule."""
    return Answer("quantized", Cause(rule=rule), scheme)


def cause_of(entry: Entry, rule: str = "") -> Cause:
    """The cause that points at an entry."""
    text = entry.text if isinstance(entry.text, str) else brief(str(entry.text), LONGEST_REASON)
    return Cause(rule, entry.pointer, text)


def answer_for(problem: Exception) -> Answer:
    """What an exception means as an answer: an error of the engine, or `unknown` where mtpfix refuses to try."""
    if isinstance(problem, TooCostly):
        rule = "a pattern of the config could take unbounded time, so it was not tried"
        return Answer("unknown", Cause(rule=rule, entry=brief(str(problem), LONGEST_REASON)))
    if isinstance(problem, Refusal):
        reason = brief(problem.reason, LONGEST_REASON)
        cause = cause_of(problem.entry, reason) if problem.entry else Cause(rule=reason)
        return Answer("error", cause, error=problem.kind)
    kind = "re.error" if isinstance(problem, re.error) else type(problem).__name__
    return Answer("error", Cause(rule=brief(str(problem), LONGEST_REASON)), error=kind)


def required(config: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first key that exists; the engine raises where none does."""
    for key in keys:
        if key in config:
            return config[key]
    raise Refusal("ValueError", f"the config has no {' or '.join(keys)}")


class SafeMatcher:
    """A matcher that never raises and remembers what it answered.

    decider  None where building it failed
    """

    def __init__(self, build: Callable[[], Decider]) -> None:
        self._known: dict[tuple[str, Layer, tuple[str, ...]], Answer] = {}
        self.decider: Decider | None = None
        self._broken = Answer("unknown", Cause())
        try:
            self.decider = build()
        except Exception as problem:
            self._broken = answer_for(problem)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...] = ()) -> Answer:
        """The answer for a runtime name; see `mtpfix.engines.base.Matcher`."""
        if self.decider is None:
            return self._broken
        question = (runtime, layer, projections)
        found = self._known.get(question)
        if found is None:
            try:
                found = self.decider.decide(runtime, layer, projections)
            except Exception as problem:
                found = answer_for(problem)
            self._known[question] = found
        return found


class Constant:
    """A decider with one answer for everything."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        return self._answer
