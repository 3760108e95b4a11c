"""bitsandbytes: names, their leading paths or single components in `llm_int8_skip_modules`.

vllm-0.27.1 model_executor/layers/quantization/bitsandbytes.py:140-171 (the last release with the method), sglang-0.5.23
srt/layers/quantization/bitsandbytes.py:156-184; neither asks the list for experts. A fused linear is asked for by its
fused name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at


class BitsAndBytes:
    """`quant_method: bitsandbytes`."""

    name = "bitsandbytes"
    title = "bitsandbytes"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "bitsandbytes" or bool(
            value.get("load_in_8bit") or value.get("load_in_4bit")
        )

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "llm_int8_skip_modules")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return (node,)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (node,)

    def covers(self, entry: str, name: str) -> bool:
        return entry in name.split(".") or f"{name}.".startswith(f"{entry}.")

    def anchors(self, entry: str) -> Anchors | None:
        return (("whole", entry), ("start", f"{entry}."), ("part", entry))

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (BitsAndBytes(),)
