"""The builders of matchers are named in tables and imported when they are asked for: every name leads somewhere."""

from __future__ import annotations

from importlib import import_module

import pytest

from mtpfix.engines import vllm
from mtpfix.engines.sglang import engine as sglang


@pytest.mark.parametrize("file", sorted({*vllm._FILES.values()}))
def test_vllm(file: str) -> None:
    assert callable(import_module(f"mtpfix.engines.vllm.{file}").build)


@pytest.mark.parametrize("place", sorted({*sglang._BUILDERS.values()}))
def test_sglang(place: tuple[str, str]) -> None:
    assert callable(sglang._builder(*place))
