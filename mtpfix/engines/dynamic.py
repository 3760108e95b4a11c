"""`dynamic` of GPTQ: ordered rules by regular expression, of which the first that matches a name decides.

vLLM and SGLang read it alike (vllm-0.33.0 Q/utils/gptq_utils.py:85, sglang 0.5.23 srt/layers/quantization/utils.py
get_dynamic_override). Lists of thousands are names in the clothes of expressions: a rule is compiled where a name that
is asked for can begin like it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Patterns, pattern_of, read_texts
from mtpfix.regexes import NEGATIVE, unsigned


class Dynamic:
    """The rules of one config."""

    __slots__ = ("_entries", "_patterns", "_settings")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._entries = read_texts(value, "/dynamic")
        self._settings = tuple(value.values())
        self._patterns = Patterns(enumerate(map(pattern_of, self._entries, map(unsigned, value))))

    def first(self, name: str) -> tuple[Entry, bool, Any] | None:
        """The entry, whether it leaves the layer plain, and its settings. Raises AtEntry for a bad pattern."""
        index = self._patterns.first("match", (name,), len(self._entries))
        if index == len(self._entries):
            return None
        entry = self._entries[index]
        return entry, entry.text.startswith(NEGATIVE), self._settings[index]


def dynamic(query: MatchQuery) -> Dynamic:
    """The rules of a query's config, read once for all engines. Raises AttributeError where they are no table."""
    value = query.config.get("dynamic")
    if value is not None and not isinstance(value, Mapping):
        raise AttributeError("dynamic is no table")
    return query.once(("dynamic",), lambda: Dynamic(value or {}))
