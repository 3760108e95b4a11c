"""Every published decision of SGLang's own code."""

from __future__ import annotations

from pathlib import Path

import pytest
from vector_rows import disagreements, files

from mtpfix.engines.sglang import ENGINE


@pytest.mark.parametrize("path", files("sglang-*.jsonl"))
def test_vectors(path: Path) -> None:
    assert disagreements(ENGINE, path) == []
