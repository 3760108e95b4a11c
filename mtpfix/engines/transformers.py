"""transformers: the test that its quantizers share.

Every key is dropped as it is into a regular expression that must match from the start of the name and stop at a
module boundary; or the name ends with the key's text. (transformers 5.24.0 quantizers/quantizers_utils.py:26)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import Matcher, MatchQuery, Method
from mtpfix.engines.listing import Entry, Pattern, Remembered, Rule, built, firsts, pattern_of, plain, quantized, read_list
from mtpfix.engines.releases import modelled
from mtpfix.model import Answer, Cause, Layer

_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"
_LIST_KEYS = {
    "fp8": "modules_to_not_convert",
    "mxfp8": "modules_to_not_convert",
    "mxfp4": "modules_to_not_convert",
    "awq": "modules_to_not_convert",
    "bitsandbytes": "llm_int8_skip_modules",
    "fbgemm_fp8": "modules_to_not_convert",
    "torchao": "modules_to_not_convert",
}
_KNOWN = (
    *("awq", "bitsandbytes", "gptq", "aqlm", "quanto", "quark", "fouroversix", "fp_quant", "eetq", "higgs", "hqq"),
    *("compressed-tensors", "fbgemm_fp8", "torchao", "bitnet", "vptq", "spqr", "fp8", "gguf", "nvfp4", "mxfp8"),
    *("auto-round", "mxfp4", "metal", "sinq", "gemma"),
)


class _Keys:
    """A list of keys, asked for the first one that keeps a module unconverted."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        self._suffixes = firsts(entries)
        self._lengths = sorted({len(text) for text in self._suffixes})
        self._patterns: list[Pattern] = [pattern_of(entry, f"(?:{entry.text}){_BOUNDARY}") for entry in entries]

    def first(self, name: str) -> Entry | None:
        """The first key that hits, or None. Raises AtEntry where a key that is no pattern is reached first."""
        size = len(name)
        ends = (self._suffixes.get(name[size - length :]) for length in self._lengths if length <= size)
        best = min((index for index in ends if index is not None), default=len(self._entries))
        for index, pattern in enumerate(self._patterns[: best + 1]):
            if pattern.meets("match", name):
                return self._entries[index]
        return self._entries[best] if best < len(self._entries) else None
