"""AWQ: parts of names in `modules_to_not_convert`.

vLLM (vllm-0.33.0 model_executor/layers/quantization/auto_awq.py:288-362) and SGLang (sglang-0.5.23
srt/layers/quantization/awq/awq.py:61) skip every module whose name holds an entry, whatever stands around it. So an
entry for a subtree ends in a dot, lest `layers.4` be `layers.45` too; vLLM tells the shards of a fused linear one by
one. Without a list vLLM takes what the headers say of linears, and an entry switches that off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, without_wrapper


class Awq:
    """`quant_method: awq` and its Marlin names."""

    name = "awq"
    title = "AWQ"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") in ("awq", "awq_marlin", "auto_awq")

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "modules_to_not_convert")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        if reach != "below":
            return (node,)
        return tuple(dict.fromkeys((f"{without_wrapper(node)}.", f"{node}.")))

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (f"{node}.",) if reach == "below" else (node,)

    def covers(self, entry: str, name: str) -> bool:
        return entry in name

    def anchors(self, entry: str) -> Anchors | None:
        return (("within", entry),)

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (Awq(),)
