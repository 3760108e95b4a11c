"""Every decision that vLLM's own code made on the published vectors, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from vector_rows import disagreements, files

from mtpfix.engines.vllm import ENGINE


@pytest.mark.parametrize("path", files("vllm-*.jsonl"))
def test_the_model_decides_as_the_engine_does(path: Path) -> None:
    assert disagreements(ENGINE, path) == []
