"""MXFP8 by its own name: full module names in `ignored_layers`.

vLLM reads that key where no ModelOpt algorithm is named (vllm-0.24.0
model_executor/layers/quantization/modelopt.py:1680), SGLang through its FP8 class, stars to the letter
(sglang-0.5.23 srt/layers/quantization/fp8.py:288-296).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import ExclusionList, Format, at
from mtpfix.formats.fp8 import Fp8


class Mxfp8(Fp8):
    """`quant_method: mxfp8`."""

    name = "mxfp8"
    title = "MXFP8"

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "mxfp8"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "ignored_layers")


FORMATS: tuple[Format, ...] = (Mxfp8(),)
