"""fp8 with `weight_block_size` or one scale a tensor, and DeepSeek-V4's own config on top of it.

Read at vllm-0.33.0 Q/fp8.py:158 (the config), :177 (decision), vllm/models/deepseek_v41/quant_config.py (DeepSeek-V4).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, listed, plain, quantized, required
from mtpfix.engines.vllm.entries import Entry, are_texts, in_force, read, under
from mtpfix.engines.vllm.matching import Find, Holding, SkipList, searched
from mtpfix.engines.vllm.switches import on
from mtpfix.model import Answer, Layer, Mapper

_LIST_KEYS = ("ignored_layers", "modules_to_not_convert")
# What the class makes of a Quark MXFP4 export of DeepSeek-V4, but for its list.
_FROM_QUARK = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_EXPERTS = re.compile(r"(?:^|\.)layers\.(\d+)\.ffn\.experts$")


class Fp8:
    """An fp8 config: linears and experts are quantized unless the list names them."""

    def __init__(
        self, query: MatchQuery, config: Mapping[str, Any] | None = None, entries: tuple[Entry, ...] | None = None
    ) -> None:
        """`config`, and `entries` in the place of its list: what a class makes of the file's own."""
        config = query.config if config is None else config
        self._block = config.get("weight_block_size")
        self._experts_as = config.get("store_dtype") if on("fp8-mxfp4-experts", query.release) else None
        _check(config, self._block)
        if self._block is not None:
            self._experts_as = _declared_experts(config, query.options) or self._experts_as
        mappers = in_force(query.mappers, query.release)
        # Ling's classes set the mode for block FP8 alone (vllm-0.33.0 model_executor/models/bailing_moe_v3.py:234).
        chosen = on("match-mode", query.release) and self._block is not None
        mode = query.options.get("match_mode", "exact") if chosen else "exact"
        fused_name = on("fused-name", query.release)
        made = partial(_searched, query, entries, mappers, mode)
        match, experts = query.once(("vllm fp8", mappers, mode), made) if entries is None else made()
        self._skipped = SkipList(match, query.packed, experts=experts, fused_name=fused_name)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer not in ("linear", "moe"):
            return plain(NOT_ASKED)
        entry = self._skipped.find(runtime)
        if entry is not None:
            return listed(entry)
        return quantized(self.scheme(runtime, layer))

    def scheme(self, runtime: str, layer: Layer) -> str:
        """What the engine allocates for a module that is not listed."""
        if layer == "moe" and self._experts_as == "mxfp4":
            return "mxfp4"
        return "fp8" if self._block is None else "fp8-block"


def _declared_experts(config: Mapping[str, Any], options: Mapping[str, str]) -> str:
    """The experts' format in the key that a model class reads by itself; "" where there is none.

    Ling's classes (vllm-0.33.0 model_executor/models/bailing_moe_v3.py:230-260; the same in vllm-0.28.0).
    """
    declared = config.get(options.get("experts_as", ""))
    if declared not in (None, "mxfp4"):
        raise Refusal("ValueError", f"unsupported routed experts quantization {declared!r}")
    return declared or ""


def _searched(
    query: MatchQuery, entries: tuple[Entry, ...] | None, mappers: Sequence[Mapper], mode: str
) -> tuple[Find, Holding | None]:
    if entries is None:
        entries = query.once(("vllm fp8 list",), lambda: _listed(query.config))
    entries = under(entries, mappers)
    made = partial(searched, entries, mode)
    return query.once(("vllm fp8 entries", entries, mode), made) if are_texts(entries) else made()


def _listed(config: Mapping[str, Any]) -> tuple[Entry, ...]:
    key = next((key for key in _LIST_KEYS if config.get(key)), "")
    return read(config[key], f"/{key}") if key else ()


def _check(config: Mapping[str, Any], block: Any) -> None:
    required(config, "quant_method")
    activations = required(config, "activation_scheme")
    if activations not in ("static", "dynamic"):
        raise Refusal("ValueError", f"unsupported activation scheme {activations}")
    if block is not None and len(block) != 2:
        raise Refusal("ValueError", "weight_block_size has not two dimensions")
    if block is not None and activations != "dynamic":
        raise Refusal("ValueError", "block-wise weights need dynamic activations")


class DeepseekV4(Fp8):
    """DeepSeek-V4: fp8 linears; experts in the dtype of config.json (`expert_dtype`), or NVFP4 by `moe_quant_algo`."""

    def __init__(self, query: MatchQuery) -> None:
        release = query.release
        quark = on("dsv4-quark", release) and query.config.get("quant_method") == "quark"
        if quark:
            super().__init__(query, _FROM_QUARK, _excluded(query.config))
        else:
            super().__init__(query)
        expert_dtype = query.options.get("expert_dtype", "fp4") if on("dsv4-expert-dtype", release) else "fp4"
        if expert_dtype not in ("fp4", "fp8"):
            raise Refusal("ValueError", f"unsupported expert_dtype {expert_dtype}")
        self._fp4 = expert_dtype == "fp4"
        algo = (query.config.get("moe_quant_algo") or "").upper() if on("dsv4-nvfp4", release) else ""
        self._nvfp4 = algo == "NVFP4"
        ignored = query.config.get("ignore") if on("dsv4-ignored-experts", release) else None
        texts = ignored if isinstance(ignored, list) else []
        self._ignored = tuple(entry for entry in texts if isinstance(entry, str))
        self._layers = int(query.options.get("num_hidden_layers") or 0)
        self._mxfp8 = self._fp4 and self._block == [32, 32] and on("dsv4-mxfp8-linears", release)

    def scheme(self, runtime: str, layer: Layer) -> str:
        if layer == "moe" and self._fp4:
            return "nvfp4" if self._nvfp4 and not self._is_ignored(runtime) else "dsv4-fp4"
        if layer == "linear" and self._mxfp8:
            return "mxfp8"
        return "dsv4-fp8"

    def _is_ignored(self, runtime: str) -> bool:
        """Whether the exporter's `ignore` leaves these experts in the native FP4 format."""
        found = _EXPERTS.search(runtime)
        if not found or not self._ignored:
            return False
        number = int(found[1])
        layer = f"mtp.{number - self._layers}" if number >= self._layers else f"layers.{number}"
        return any(fnmatch.fnmatchcase(f"{layer}.ffn.experts", pattern) for pattern in self._ignored)


def _excluded(config: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The texts of Quark's list, which are the fp8 config's; each in its place in the file."""
    entries = read(config.get("exclude") or [], "/exclude")
    return tuple(entry for entry in entries if isinstance(entry.name, str))


def build(query: MatchQuery) -> Decider:
    """The decider of an fp8 method."""
    return DeepseekV4(query) if query.method == "deepseek_v4_fp8" else Fp8(query)
