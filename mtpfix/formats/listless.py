"""Formats without a list that an engine reads: nothing can be said about a module in their configs.

mxfp4       vLLM quantizes experts and nothing else, whatever `modules_to_not_convert` says
            (vllm-0.33.0 model_executor/layers/quantization/mxfp4.py:91-113); SGLang never sets a list from the
            config (sglang-0.5.23 srt/layers/quantization/mxfp4.py:319-381)
w4afp8      sglang-0.5.23 srt/layers/quantization/w4afp8.py:78-105
w8a8_fp8    sglang-0.5.23 srt/layers/quantization/w8a8_fp8.py
experts     `experts_int8`, `moe_wna16` and `quark_int4fp8_moe` name what is quantized by their own name
MLX         a module is quantized where the weights hold its scales; the table of modules is secondary
            (mlx-lm mlx_lm/utils.py load_model)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach


class Listless:
    """A format by the `quant_method` names that it goes by."""

    def __init__(self, name: str, title: str, methods: tuple[str, ...]) -> None:
        self.marks = None
        self.name, self.title, self._methods = name, title, methods

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") in self._methods

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return None

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return ()

    def covers(self, entry: str, name: str) -> bool:
        return False

    def anchors(self, entry: str) -> Anchors | None:
        return ()

    def container(self) -> bool:
        return False


class Mlx(Listless):
    """`group_size` and `bits` without a method's name, as mlx-lm writes them."""

    def __init__(self) -> None:
        super().__init__("mlx", "MLX", ())

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return "bits" in value and "group_size" in value and "quant_method" not in value


FORMATS: tuple[Format, ...] = (
    Listless("mxfp4", "MXFP4", ("mxfp4", "gpt_oss_mxfp4", "mxfp_w4a8")),
    Listless("w4afp8", "W4AFP8", ("w4afp8",)),
    Listless("w8a8_fp8", "W8A8 FP8", ("w8a8_fp8",)),
    Listless("experts", "experts by method", ("experts_int8", "moe_wna16", "quark_int4fp8_moe")),
    Mlx(),
)
