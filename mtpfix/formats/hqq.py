"""HQQ: components of names in `skip_modules`.

transformers 5.24 integrations/hqq.py:103-105 takes the entries from the set of layer tags (a linear's name without
layer numbers); vllm-0.12.0 model_executor/layers/quantization/hqq_marlin.py:92-108 skips what has an entry as a
component. No later release of vLLM knows the method, nor does SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at


class Hqq:
    """`quant_method: hqq`."""

    name = "hqq"
    title = "HQQ"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "hqq"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "skip_modules")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return (node.rpartition(".")[2],)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return ()

    def covers(self, entry: str, name: str) -> bool:
        return entry in name.split(".")

    def anchors(self, entry: str) -> Anchors | None:
        return None

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (Hqq(),)
