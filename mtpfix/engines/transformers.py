"""transformers: the test that its quantizers share.

Every key is dropped as it is into a regular expression that must match from the start of the name and stop at a
module boundary; or the name ends with the key's text. (transformers 5.24.0 quantizers/quantizers_utils.py:26)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mtpfix import late
from mtpfix.engines.base import Change, Matcher, MatchQuery, Method
from mtpfix.engines.listing import (
    Ends,
    Entry,
    Patterns,
    Remembered,
    Rule,
    Segments,
    built,
    pattern_of,
    picked,
    plain,
    quantized,
    read_list,
    texts,
)
from mtpfix.engines.releases import modelled
from mtpfix.model import Answer, Cause, Layer, Packed

_LITERAL = late.pattern(r"[\w.-]*", re.ASCII)
_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"
_LIST_KEYS = {
    "fp8": "modules_to_not_convert",
    "mxfp8": "modules_to_not_convert",
    "mxfp4": "modules_to_not_convert",
    "nvfp4": "modules_to_not_convert",
    "awq": "modules_to_not_convert",
    "bitsandbytes": "llm_int8_skip_modules",
}
# transformers 5.24.0 quantizers/auto.py:77
_KNOWN = frozenset(
    {
        *("awq", "bitsandbytes", "gptq", "aqlm", "quanto", "quark", "fouroversix", "fp_quant", "eetq", "higgs", "hqq"),
        *("compressed-tensors", "fbgemm_fp8", "torchao", "bitnet", "vptq", "spqr", "fp8", "gguf", "nvfp4", "mxfp8"),
        *("auto-round", "mxfp4", "metal", "sinq", "gemma"),
    }
)

SWITCHES = (
    Change("regex-or-suffix", "5.24.0", tuple(_LIST_KEYS), "5.24.0 quantizers/quantizers_utils.py:26"),
    Change("config-json-only", "5.24.0", tuple(_LIST_KEYS), "5.24.0 quantizers/auto.py:77"),
)


class _Keys:
    """A list of keys, asked for the first one that keeps a module unconverted."""

    __slots__ = ("_entries", "_patterns", "_segments", "_suffixes")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        keys = texts(entries)
        literal = _literal(keys)
        self._suffixes = Ends(True, keys)
        self._segments = Segments((index, key) for index, key in enumerate(keys) if key in literal)
        self._patterns = Patterns(
            (index, pattern_of(entries[index], f"(?:{key}){_BOUNDARY}", key))
            for index, key in enumerate(keys)
            if key not in literal
        )

    def first(self, name: str) -> Entry | None:
        """The first key that hits, or None. Raises AtEntry where a key that is no pattern is reached first."""
        best = self._segments.first(name, len(self._entries))
        ends = self._suffixes.first(name, best)
        # a key is tried as a pattern before its text, so the key with that suffix may still be a broken pattern
        if self._patterns:
            best = self._patterns.first("match", (name,), min(ends + 1, best))
        return picked(self._entries, min(ends, best))


def _literal(keys: Sequence[str]) -> set[str]:
    """The keys of nothing but word characters and dots, as all are in most lists."""
    whole = "".join(keys)
    return set(keys) if _LITERAL.fullmatch(whole) else {key for key in keys if _LITERAL.fullmatch(key)}


def _scheme(query: MatchQuery) -> str:
    config = query.config
    if query.method == "fp8":
        return "fp8-block" if config.get("weight_block_size") is not None else "fp8"
    return f"awq{config.get('bits', 4)}" if query.method == "awq" else query.method


def _keeps_head(query: MatchQuery, key: str) -> bool:
    """Whether the quantizer adds the output embedding to the list: where none is given, and always for AWQ.

    Known only for a whole model, whose query names its type. (transformers 5.24.0 quantizers/base.py:238,
    quantizers/quantizer_awq.py:70)
    """
    return "model_type" in query.options and (query.config.get(key) is None or query.method == "awq")


def _rule(query: MatchQuery, key: str) -> Rule:
    keys = query.once(("transformers", key), lambda: _Keys(read_list(query.config.get(key), f"/{key}")))
    scheme = _scheme(query)

    keeps_head = _keeps_head(query, key)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        found = keys.first(runtime)
        if found:
            return plain(found)
        if layer == "lm_head" and keeps_head:
            return Answer("plain", Cause("the quantizer leaves the output embedding unconverted by itself"))
        return quantized(scheme, "no key of the list hits")

    return answer


class Transformers:
    """transformers; it converts modules by their names in the model, and knows no draft."""

    name = "transformers"
    releases = modelled("transformers")

    def method(self, config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
        """The quantizer's name; "" for a method that transformers skips with a warning, such as modelopt."""
        if config.get("load_in_8bit") or config.get("load_in_4bit"):
            return Method("bitsandbytes")
        declared = config.get("quant_method")
        if declared is None:
            return Method("", "the quantization config has no quant_method")
        return Method(declared if isinstance(declared, str) and declared in _KNOWN else "")

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher; `plain` throughout for a method that transformers skips, `unknown` for one not modelled."""
        key = _LIST_KEYS.get(query.method)
        if key is not None:
            return built(query, lambda: _rule(query, key))
        if query.method:
            answer = Answer("unknown", Cause(f"transformers' {query.method} is not modelled"))
        else:
            answer = Answer("plain", Cause("transformers skips a quantization method that it does not know"))
        return Remembered(lambda *_: answer)

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """The class's packed mapping as it is."""
        return packed

    def change_points(self, method: str, model_type: str = "") -> tuple[str, ...]:
        """The one modelled release."""
        return self.releases[:1]


ENGINE = Transformers()
