"""Every input that fuzzing started from, or found, is tried again; no fuzzer is needed for that."""

from __future__ import annotations

import pytest

from .targets import TARGETS, seeds

CASES = [(name, raw) for name in TARGETS for raw in seeds(name)]


@pytest.mark.parametrize(("name", "raw"), CASES, ids=[f"{name}-{at}" for at, (name, _) in enumerate(CASES)])
def test_an_input_of_the_corpus(name: str, raw: bytes) -> None:
    TARGETS[name](raw)


def test_each_target_has_a_corpus() -> None:
    assert {name for name, _ in CASES} == set(TARGETS)
