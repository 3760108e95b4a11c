"""fp8 (block FP8 as DeepSeek writes it): full module names in `modules_to_not_convert` or `ignored_layers`.

vLLM compares whole names (vllm-0.33.0 model_executor/layers/quantization/fp8.py:158-208), SGLang runs of path
components (sglang-0.5.23 srt/layers/quantization/utils.py:48-59), transformers a regex: only names of linears suit
all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, text_entries


class Fp8:
    """`quant_method: fp8`, and DeepSeek-V4's own name for it."""

    name = "fp8"
    title = "fp8"
    marks = (".experts",)

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") in ("fp8", "deepseek_v4_fp8")

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        filled = text_entries(value.get("ignored_layers"))
        return at(value, "ignored_layers" if filled else "modules_to_not_convert")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return () if reach == "below" else (node,)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (node,)

    def covers(self, entry: str, name: str) -> bool:
        return entry == name or (entry.endswith(".experts") and name.startswith(f"{entry}."))

    def anchors(self, entry: str) -> Anchors | None:
        return (("whole", entry), ("start", f"{entry}.")) if entry.endswith(".experts") else (("whole", entry),)

    def container(self) -> bool:
        return False


FORMATS: tuple[Format, ...] = (Fp8(),)
