"""The compressed-tensors library: whether a module is a target and not ignored.

An entry of either list is a name to the letter, a `re:` pattern from the start of the name, or the name of a class
of the module. (compressed-tensors 0.20.1 utils/match.py:344)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import Matcher, MatchQuery, Method
from mtpfix.engines.listing import (
    Entry,
    Patterns,
    Remembered,
    Rule,
    built,
    firsts,
    pattern_of,
    picked,
    plain,
    quantized,
    read_list,
    sound,
)
from mtpfix.model import Answer, Cause, Layer, Packed
from mtpfix.patch import step

_METHOD = "compressed-tensors"
_REGEX = "re:"
_CLASSES: Mapping[Layer, tuple[str, ...]] = {
    "linear": ("Linear", "Module"),
    "lm_head": ("Linear", "Module"),
    "moe": ("Linear", "Module"),
    "embedding": ("Embedding", "Module"),
}


class _Names:
    """One list, asked with a name and the classes of its module."""

    __slots__ = ("_entries", "_exact", "_packed", "_patterns")

    def __init__(self, entries: tuple[Entry, ...], packed: Packed) -> None:
        self._entries = entries
        self._exact = {text: index for text, index in firsts(entries).items() if not text.startswith(_REGEX)}
        self._packed = packed
        self._patterns = Patterns(
            (index, pattern_of(entry, entry.text.removeprefix(_REGEX)))
            for index, entry in enumerate(entries)
            if entry.text.startswith(_REGEX)
        )

    def first(self, name: str, classes: tuple[str, ...]) -> Entry | None:
        """The first entry that meets the module, or None. Raises AtEntry where a broken one is reached first."""
        names = self._shards(name)
        known = [self._exact[text] for text in (*names, *classes) if text in self._exact]
        best = self._patterns.first("match", names, min(known, default=len(self._entries)))
        return picked(self._entries, best)

    def _shards(self, name: str) -> tuple[str, ...]:
        """The shards of a fused name: one that matches is enough."""
        fused = next((key for key in self._packed if name.endswith(key)), None)
        if fused is None:
            return (name,)
        return tuple(name.removesuffix(fused) + shard for shard in self._packed[fused])


def _targets(config: Mapping[str, Any]) -> tuple[Entry, ...]:
    groups = config.get("config_groups", {}).items()
    return tuple(
        entry
        for name, group in groups
        for entry in sound(read_list(group["targets"], f"/config_groups/{step(name)}/targets"))
    )


def _rule(query: MatchQuery) -> Rule:
    targets = _Names(_targets(query.config), query.packed)
    ignored = _Names(read_list(query.config.get("ignore"), "/ignore"), query.packed)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        classes = _CLASSES[layer]
        target = targets.first(runtime, classes)
        if target is None:
            return plain("no target of the config matches")
        found = ignored.first(runtime, classes)
        return plain(found) if found else quantized(_METHOD, target)

    return answer


class CompressedTensors:
    """The library, as llm-compressor and transformers use it."""

    name = _METHOD
    releases = ("0.20.1",)

    def method(self, config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
        """compressed-tensors, or "" for any other method."""
        return Method(_METHOD if config.get("quant_method") == _METHOD else "")

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher for compressed-tensors configs; `unknown` throughout for any other."""
        if query.method != _METHOD:
            answer = Answer("unknown", Cause("the library knows compressed-tensors alone"))
            return Remembered(lambda *_: answer)
        return built(query, lambda: _rule(query))

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """The class's packed mapping as it is."""
        return packed

    def change_points(self, method: str, model_type: str = "") -> tuple[str, ...]:
        """The one modelled release."""
        return self.releases


ENGINE = CompressedTensors()
