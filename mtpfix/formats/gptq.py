"""GPTQ: ordered regex rules in `dynamic`; `-:` excludes, and the first rule that matches wins.

GPTQModel writes them; vLLM reads them with `re.match` against the fused runtime name
(vllm-0.33.0 model_executor/layers/quantization/utils/gptq_utils.py:85-103).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, regex_matches
from mtpfix.regexes import NEGATIVE, opening_of


class Gptq:
    """`quant_method: gptq`."""

    name = "gptq"
    title = "GPTQ"
    marks = None

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") in ("gptq", "gptq_marlin")

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "dynamic", keyed=True)

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return self.aliases(node, reach)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        end = {"below": r"\..*", "experts": r"(\.|$)", "leaf": "$"}[reach]
        return (f"{NEGATIVE}^{re.escape(node)}{end}",)

    def covers(self, entry: str, name: str) -> bool:
        return entry.startswith(NEGATIVE) and regex_matches(entry.removeprefix(NEGATIVE), name)

    def anchors(self, entry: str) -> Anchors | None:
        if not entry.startswith(NEGATIVE):
            return ()
        opening = opening_of(entry.removeprefix(NEGATIVE))
        if opening is None or len(opening.texts) != 1:
            return None
        text = opening.texts[0]
        if opening.rest == "$":  # stands before a last line's end too
            return (("whole", text), ("whole", f"{text}\n"))
        return (("start", text),) if opening.rest in ("", ".*") else None

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (Gptq(),)
