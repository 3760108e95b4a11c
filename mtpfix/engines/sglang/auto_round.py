"""AutoRound in SGLang: `extra_config` keys and `block_name_to_quantize`.

The loader does not hand its packed mapping to this class. Only where the model class writes it onto the object (option
`class_sets_packed`: Qwen3-Next, sglang 0.5.9 srt/models/qwen3_next.py:936; DeepSeek-V2/V3, sglang 0.5.13
srt/models/deepseek_v2.py:2537; Qwen3.5 text, sglang 0.5.23 srt/models/qwen3_5_text.py:73) are fused layers told by
their shards; else they are looked up by their own name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Pattern, Rule, Starting, pattern_of, plain, quantized
from mtpfix.engines.sglang.fp8 import needed
from mtpfix.frozen import NamedTuple
from mtpfix.model import Answer, Layer
from mtpfix.patch import step
from mtpfix.regexes import LETTERS

_NEVER = "the method leaves this kind of layer alone"
_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "bits": (2, 3, 4, 8),
    "data_type": ("int",),
    "packing_format": ("auto_round:auto_gptq", "auto_round:auto_awq"),
    "backend": ("auto", "gptq", "gptq:marlin", "awq", "awq:marlin", "marlin"),
}
_DEFAULTS: Mapping[str, Any] = {"data_type": "int", "packing_format": "auto_round:auto_gptq", "backend": "auto"}


class Settings(NamedTuple):
    """How a layer is to be stored; 16 bits is unquantized."""

    bits: Any
    group_size: Any
    sym: Any


def auto_round(query: MatchQuery) -> Rule:
    """AutoRoundConfig. Raises ValueError for bits, types, formats and backends that SGLang does not know."""
    config = query.config
    for name in Settings._fields:
        needed(config, name)
    backend = _backend(config)
    for name, allowed in _ALLOWED.items():
        value = backend if name == "backend" else config.get(name, _DEFAULTS.get(name))
        if value not in allowed:
            raise ValueError(f"unsupported {name}: {value}")
    return _Layers(query).answer


def _backend(config: Mapping[str, Any]) -> Any:
    return next((config[name] for name in ("backend", "vllm_backend", "sglang_backend") if name in config), "auto")


def _class_of(config: Mapping[str, Any]) -> str:
    """Whose layers are built. (sglang 0.5.23 srt/layers/quantization/auto_round.py:638)"""
    return "gptq" if "gptq" in config.get("packing_format", _DEFAULTS["packing_format"]) + _backend(config) else "awq"


class _Layers:
    __slots__ = ("_blocks", "_default", "_extra", "_packed", "_patterns", "_starts", "_taken")

    def __init__(self, query: MatchQuery) -> None:
        config = query.config
        self._default = Settings(config["bits"], config["group_size"], config["sym"])
        blocks = next(
            (config[name] for name in ("block_name_to_quantize", "to_quant_block_names") if name in config), None
        )
        self._blocks = tuple(blocks.split(",") if isinstance(blocks, str) else blocks or ())
        self._extra: Mapping[str, Any] = config.get("extra_config") or {}
        self._packed = query.packed if self._extra and query.options.get("class_sets_packed") else {}
        self._taken = _class_of(config)
        self._patterns = query.once(("sglang extra",), self._compiled)
        self._starts = query.once(("sglang extra", "starts"), self._sorted)

    def _sorted(self) -> Starting | None:
        """The keys by what they start with, where they are the texts of a table."""
        extra: Any = self._extra
        return Starting(extra) if isinstance(extra, Mapping) else None

    def _compiled(self) -> list[Pattern]:
        """The keys that are patterns."""
        special = (key for key in self._extra if isinstance(key, str) and not LETTERS.isdisjoint(key))
        return [pattern_of(self._entry(key), key) for key in special]

    def answer(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        settings, entry = self._of(runtime, layer)
        if not settings.bits < 16:
            return plain(entry or "outside the blocks to quantize, or a head")
        if layer == "embedding":
            return plain(_NEVER)
        return quantized(f"{self._taken}{settings.bits}", entry or "no key of extra_config matches")

    def _of(self, name: str, layer: Layer) -> tuple[Settings, Entry | None]:
        """The settings of a layer and the key that gave them.

        Raises ValueError where the experts' keys, or the shards of a fused layer, differ.
        """
        if name in self._extra:
            return self._configured(name, True)
        inside = layer != "lm_head"
        if self._blocks:
            inside = any(name.startswith(block) for block in self._blocks)
        if layer == "moe":
            below = [self._configured(key, inside) for key in self._below(name)]
            if below:
                return _one(below, name)
        fused = next((key for key in self._packed if name.count(key) == 1), None)
        if fused is None:
            return self._configured(name, inside)
        return _one([self._configured(name.replace(fused, shard), inside) for shard in self._packed[fused]], name)

    def _below(self, name: str) -> list[str]:
        """The keys that start with a name. Raises AttributeError over what is no text, which no table has."""
        if self._starts is None:
            return [key for key in self._extra if key.startswith(name)]
        return self._starts.all(name)

    def _configured(self, name: str, inside: bool) -> tuple[Settings, Entry | None]:
        """A key's own settings: an exact key, else the first pattern that matches the whole name."""
        base = self._default if inside else Settings(16, -1, True)
        if name in self._extra:
            return self._merged(name, base)
        for pattern in self._patterns:
            if not isinstance(pattern.problem, re.error) and pattern.meets("fullmatch", name):
                return self._merged(pattern.entry.text, base)
        return base, None

    def _merged(self, key: str, base: Settings) -> tuple[Settings, Entry]:
        own = self._extra[key]
        return Settings(*(own.get(field, value) for field, value in base._asdict().items())), self._entry(key)

    def _entry(self, key: str) -> Entry:
        return Entry(key, f"/extra_config/{step(key)}", key)


def _one(found: list[tuple[Settings, Entry | None]], name: str) -> tuple[Settings, Entry | None]:
    if len({settings for settings, _ in found}) != 1:
        raise ValueError(f"the parts of {name} are configured differently")
    return found[0]
