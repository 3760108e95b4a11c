"""compressed-tensors: exact names and `re:` regexes in `ignore`.

compressed-tensors 0.20.1 utils/match.py:344-445; llm-compressor 0.14 appends `re:^mtp.*` for the draft it copies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtpfix.formats.base import Anchors, ExclusionList, Format, Reach, at, regex_matches


class CompressedTensors:
    """`quant_method: compressed-tensors`, and the older `compression_config`."""

    name = "compressed-tensors"
    title = "compressed-tensors"
    marks = ("re:",)

    def accepts(self, value: Mapping[str, Any]) -> bool:
        return value.get("quant_method") == "compressed-tensors" or "config_groups" in value

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        return at(value, "ignore")

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        return self.aliases(node, reach)

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        whole = re.escape(node)
        return (node, f"re:^{whole}$") if reach == "leaf" else (rf"re:^{whole}\..*",)

    def covers(self, entry: str, name: str) -> bool:
        if entry.startswith("re:"):
            return regex_matches(entry.removeprefix("re:"), name)
        return entry == name

    def anchors(self, entry: str) -> Anchors | None:
        return None if entry.startswith("re:") else (("whole", entry),)

    def container(self) -> bool:
        return True


FORMATS: tuple[Format, ...] = (CompressedTensors(),)
