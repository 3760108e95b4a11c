"""Every published decision of TensorRT-LLM's, transformers' and the compressed-tensors library's own code."""

from __future__ import annotations

from pathlib import Path

import pytest
from vector_rows import disagreements, files

from mtpfix.engines import compressed_tensors_lib, tensorrt_llm, transformers


@pytest.mark.parametrize("path", files("tensorrt-llm-*.jsonl"))
def test_tensorrt_llm(path: Path) -> None:
    assert disagreements(tensorrt_llm.ENGINE, path) == []


@pytest.mark.parametrize("path", files("transformers-*.jsonl"))
def test_transformers(path: Path) -> None:
    assert disagreements(transformers.ENGINE, path) == []


@pytest.mark.parametrize("path", files("compressed-tensors-*.jsonl"))
def test_compressed_tensors_library(path: Path) -> None:
    assert disagreements(compressed_tensors_lib.ENGINE, path) == []
