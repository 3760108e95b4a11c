"""W8A8 INT8: the list and the tests of compressed-tensors, in SGLang alone.

sglang-0.5.23 srt/layers/quantization/w8a8_int8.py:93-110: `ignore`, for linears and experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Format
from mtpfix.formats.compressed_tensors import CompressedTensors


class W8A8Int8(CompressedTensors):
    """`quant_method: w8a8_int8`."""

    name = "w8a8_int8"
    title = "W8A8 INT8"

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "w8a8_int8"


FORMATS: tuple[Format, ...] = (W8A8Int8(),)
