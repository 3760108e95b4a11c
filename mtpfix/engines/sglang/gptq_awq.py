"""GPTQ and AWQ in SGLang: the Marlin classes, and the plain AWQ and GPTQ classes for what Marlin cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.dynamic import dynamic
from mtpfix.engines.listing import AtEntry, Entry, Rule, Within, picked, plain, quantized, read_list, texts
from mtpfix.engines.sglang.fp8 import needed
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Answer, Layer

_NEVER = "the method leaves this kind of layer alone"
_UNLISTED = "no entry of the list skips it"
_NO_LIST = "the method asks no list for experts"
_GROUPS = (-1, 32, 64, 128)
_GPTQ_BITS = (4, 8)


def gptq_runs_on_marlin(config: Mapping[str, Any]) -> bool:
    """Whether GPTQMarlinConfig takes the config. (sglang 0.5.9 gptq.py:254, marlin_utils.py:115)"""
    if any(config.get(name) is None for name in ("bits", "group_size", "sym", "desc_act")):
        return False
    return config["bits"] in _GPTQ_BITS and config["sym"] is True and config["group_size"] in _GROUPS


def awq_runs_on_marlin(config: Mapping[str, Any]) -> bool:
    """Whether AWQMarlinConfig takes the config. (sglang 0.5.9 awq.py:328, marlin_utils.py:79)"""
    return config.get("bits") == 4 and config.get("zero_point") is True and config.get("group_size") in _GROUPS


def gptq(query: MatchQuery) -> Rule:
    """GPTQMarlinConfig. Raises ValueError for other bits than 4 and 8 and for asymmetric weights."""
    config = query.config
    bits, _, _, sym = (needed(config, name) for name in ("bits", "group_size", "desc_act", "sym"))
    _check_bits(bits, sym)
    rules = dynamic(query)
    head = bool(config.get("lm_head", False))

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized(f"gptq{bits}", _NO_LIST)
        if layer == "embedding" or (layer == "lm_head" and not head):
            return plain(_NEVER)
        return _by_dynamic(rules.first(runtime), runtime, bits, sym)

    return answer


def _check_bits(bits: Any, sym: Any) -> None:
    if bits not in _GPTQ_BITS or sym is not True:
        raise ValueError(f"unsupported: bits={bits}, sym={sym}")


def _by_dynamic(found: tuple[Entry, bool, Any] | None, runtime: str, bits: int, sym: bool) -> Answer:
    if found is None:
        return quantized(f"gptq{bits}", "no dynamic rule matches")
    entry, negative, settings = found
    if negative:
        return plain(entry)
    if runtime:
        own, own_sym = settings.get("bits", bits), settings.get("sym", sym)
        bits = own if isinstance(own, int) else bits
        try:
            _check_bits(bits, own_sym if isinstance(own_sym, bool) else sym)
        except ValueError as problem:
            raise AtEntry(problem, entry) from problem
    return quantized(f"gptq{bits}", entry)


def plain_gptq(query: MatchQuery) -> Rule:
    """GPTQConfig (up to 0.5.19), for what Marlin cannot run: no experts. (sglang 0.5.9 gptq.py:231)"""
    config = query.config
    bits = needed(config, "bits")
    if bits not in (2, 3, 4, 8):
        raise ValueError(f"GPTQ of {bits} bits")
    rules = dynamic(query)
    head = bool(config.get("lm_head", False))

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            raise TypeError("plain GPTQ builds no experts")
        if layer == "embedding" or (layer == "lm_head" and not head):
            return plain(_NEVER)
        found = rules.first(runtime)
        if found and found[1]:
            return plain(found[0])
        return quantized(f"gptq{bits}", found[0] if found else "no dynamic rule matches")

    return answer


def awq(query: MatchQuery) -> Rule:
    """AWQMarlinConfig: an entry of `modules_to_not_convert` is part of the name; experts follow it from 0.5.13."""
    config = query.config
    bits, _, _ = (needed(config, name) for name in ("bits", "group_size", "zero_point"))
    if bits not in (4, 8):
        raise ValueError(f"AWQ of {bits} bits")
    linears = ("linear", "lm_head") if config.get("lm_head", False) else ("linear",)
    listed = (*linears, "moe") if on("awq-experts", query.release) else linears
    return _by_part(query, f"awq{bits}", (*linears, "moe"), listed)


def plain_awq(query: MatchQuery) -> Rule:
    """AWQConfig, for what Marlin cannot run: linears only, experts stay plain. (sglang 0.5.9 awq.py:159)"""
    bits = query.config["w_bit"] if "w_bit" in query.config else needed(query.config, "bits")
    if bits != 4:
        raise ValueError(f"AWQ of {bits} bits")
    return _by_part(query, "awq4", ("linear",), ("linear",))


def _by_part(query: MatchQuery, scheme: str, taken: tuple[str, ...], listed: tuple[str, ...]) -> Rule:
    names = query.config.get("modules_to_not_convert")

    def made() -> tuple[tuple[Entry, ...], Within]:
        entries = read_list(names or None, "/modules_to_not_convert")
        return entries, Within(texts(entries))

    entries, parts = query.once(("sglang awq",), made)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer not in taken:
            return plain(_NEVER)
        found = picked(entries, parts.first(runtime)) if layer in listed else None
        if found:
            return plain(found)
        return quantized(scheme, _UNLISTED if layer in listed else _NO_LIST)

    return answer
