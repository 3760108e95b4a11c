"""FBGEMM FP8: full names of linears in `modules_to_not_convert`.

vllm-0.12.0 model_executor/layers/quantization/fbgemm_fp8.py:58-84 compares whole names, the shards of fused linears one
by one, and renames nothing; later releases refuse the method unless a flag allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at


class FbgemmFp8:
    """`quant_method: fbgemm_fp8`."""

    name = "fbgemm_fp8"
    title = "FBGEMM FP8"
    marks = ()

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "fbgemm_fp8"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "modules_to_not_convert")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return (node,) if reach == "leaf" else ()

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (node,) if reach == "leaf" else ()

    def covers(self, entry: str, name: str) -> bool:
        return entry == name

    def anchors(self, entry: str) -> Anchors | None:
        return (("whole", entry),)

    def container(self) -> bool:
        return False


FORMATS: tuple[Format, ...] = (FbgemmFp8(),)
