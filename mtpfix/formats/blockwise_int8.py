"""Block INT8: full module names in `ignored_layers`, in SGLang alone, and for linears only.

sglang-0.5.23 srt/layers/quantization/blockwise_int8.py:102; experts are quantized whatever the list says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import ExclusionList, Format, at
from mtpfix.formats.fp8 import Fp8


class BlockwiseInt8(Fp8):
    """`quant_method: blockwise_int8`."""

    name = "blockwise_int8"
    title = "block INT8"

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "blockwise_int8"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "ignored_layers")


FORMATS: tuple[Format, ...] = (BlockwiseInt8(),)
