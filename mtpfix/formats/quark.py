"""Quark: names and `re:` patterns in `exclude`.

vLLM (vllm-0.33.0 model_executor/layers/quantization/quark/utils.py:31-66) and SGLang (sglang-0.5.23
srt/layers/quantization/quark/utils.py:46-109) match a pattern from the start of the name and take stars in a name to
the letter; the experts of a layer are asked for as one module. AMD's exporter lists every module by name; where an
engine reads more into a name than the module (SGLang's Qwen3.5 drafter), a pattern for that one name says the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, regex_matches


class Quark:
    """`quant_method: quark`."""

    name = "quark"
    title = "Quark"
    marks = ("re:", ".experts")

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "quark"

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "exclude")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return self.aliases(node, reach)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        literal = re.escape(node)
        return (rf"re:^{literal}\..*",) if reach == "below" else (node, rf"re:^{literal}$")

    def covers(self, entry: str, name: str) -> bool:
        if entry.startswith("re:"):
            return regex_matches(entry.removeprefix("re:"), name)
        return entry == name or (entry.endswith(".experts") and name.startswith(f"{entry}."))

    def anchors(self, entry: str) -> Anchors | None:
        if entry.startswith("re:"):
            return None
        return (("whole", entry), ("start", f"{entry}.")) if entry.endswith(".experts") else (("whole", entry),)

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (Quark(),)
