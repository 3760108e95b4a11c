"""torchao: runs of whole components of a name in `modules_to_not_convert`.

vllm-0.33.0 model_executor/layers/quantization/torchao.py:76-90 (which also skips what `module_fqn_to_config` maps to
null); transformers 5.24 converts by the same list. No engine renames the entries or tells shards of fused linears.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at


class TorchAo:
    """`quant_method: torchao`."""

    name = "torchao"
    title = "torchao"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "torchao"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "modules_to_not_convert")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return (node,)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return (node,)

    def covers(self, entry: str, name: str) -> bool:
        return f".{entry}." in f".{name}."

    def anchors(self, entry: str) -> Anchors | None:
        return (("run", entry),)

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (TorchAo(),)
