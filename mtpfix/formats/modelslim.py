"""ModelSlim: quant_model_description.json names every weight, and `FLOAT` for one in full precision.

sglang-0.5.23 srt/layers/quantization/modelslim/modelslim.py:440-470 (shards must agree, experts are told by expert 0
and cannot be FLOAT); vLLM-Ascend reads the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach

_FLOAT = "FLOAT"
_WEIGHT = ".weight"


class ModelSlim:
    """The description file; its own keys are the list."""

    name = "modelslim"
    title = "ModelSlim"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return "model_quant_type" in value or value.get("quant_method") == "modelslim"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        found = [(key, place) for place, (key, kind) in enumerate(value.items()) if kind == _FLOAT]
        keys, places = tuple(key for key, _ in found), tuple(place for _, place in found)
        return ExclusionList("", keys, places, True, keyed=True, value=_FLOAT)

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return (node + _WEIGHT,) if reach == "leaf" else ()

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        return self.spellings(node, reach, ())

    def covers(self, entry: str, name: str) -> bool:
        return entry == name + _WEIGHT

    def anchors(self, entry: str) -> Anchors | None:
        return (("whole", entry.removesuffix(_WEIGHT)),) if entry.endswith(_WEIGHT) else ()

    def container(self) -> bool:
        return False


FORMATS: tuple[Format, ...] = (ModelSlim(),)
