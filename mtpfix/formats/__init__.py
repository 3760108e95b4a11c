"""The formats: one file and one line here each. The first that accepts a quantization config has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Format
from mtpfix.formats.compressed_tensors import CompressedTensors
from mtpfix.formats.fp8 import Fp8
from mtpfix.formats.gptq import Gptq
from mtpfix.formats.modelopt import ModelOpt

FORMATS: tuple[Format, ...] = (ModelOpt(), CompressedTensors(), Fp8(), Gptq())


def format_of(value: Mapping[str, Any]) -> Format | None:
    """The format of a quantization config, or None where mtpfix has no file for it."""
    return next((known for known in FORMATS if known.accepts(value)), None)
