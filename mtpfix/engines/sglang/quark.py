"""Quark in SGLang: `exclude`, and the config that a layer gets."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from mtpfix.engines import quark_schemes
from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import (
    Below,
    Entry,
    Patterns,
    Rule,
    firsts,
    picked,
    plain,
    quantized,
    read_list,
    texts,
    unique,
)
from mtpfix.engines.sglang.ct_lists import REGEX, agreed, regexes
from mtpfix.engines.sglang.names import mapped, mapped_keys, with_unwrapped
from mtpfix.engines.sglang.switches import on
from mtpfix.frozen import NamedTuple
from mtpfix.model import Answer, Layer, Mapper, Packed

_NEVER = "the method leaves this kind of layer alone"
_FP8 = ("fp8_e4m3", "fp8_e4m3fn")
_BUILT = ("mxfp4", "fp8", "fp8-channel")


def quark(query: MatchQuery) -> Rule:
    """QuarkConfig. Raises ValueError without `export` and where the KV cache layers have no config of their own."""
    config = query.config
    export = config.get("export")
    if export is None:
        raise ValueError("a Quark config without export")
    _check_kv_cache(config, export.get("kv_cache_group"))
    return _Quark(query).answer


def _check_kv_cache(config: Mapping[str, Any], group: Any) -> None:
    if not len(group):
        return
    layers = config.get("layer_quant_config") or {}
    if not set(group) <= set(layers):
        raise ValueError("kv_cache_group names layers without a config")
    configs = [layers[name] for name in group]
    if any(not _alike(one, configs[0]) for one in configs) or configs[0].get("output_tensors") is None:
        raise ValueError("the KV cache layers have no config, or different ones")


class _Searched(NamedTuple):
    """A list made ready to be searched: its names, its patterns, what lies below a name."""

    entries: tuple[Entry, ...]
    exact: Mapping[str, int]
    patterns: Patterns
    tree: Below


def _searched(config: Mapping[str, Any], mappers: tuple[Mapper, ...], unwraps: bool) -> _Searched:
    entries = read_list(config.get("exclude", []), "/exclude")
    if mappers:
        entries = mapped(entries, mappers)
        entries = unique(with_unwrapped(entries)) if unwraps else entries
    exact = firsts(entries)
    tried = [text for text in exact if text.startswith(REGEX)] if REGEX in "".join(exact) else ()
    for text in tried:
        del exact[text]
    return _Searched(entries, exact, regexes(entries), Below(texts(entries)))


class _Excluded:
    """`should_ignore_layer` of Quark: the name itself or a `re:` pattern from its start.

    Up to 0.5.20 a fused name is never looked up itself; from 0.5.21 it is, and an entry below `X.experts` excludes it.
    """

    __slots__ = ("_direct", "_entries", "_exact", "_packed", "_patterns", "_tree")

    def __init__(self, made: _Searched, packed: Packed, direct: bool) -> None:
        self._entries, self._exact, self._patterns, self._tree = made
        self._packed = packed
        self._direct = direct

    def first(self, name: str) -> Entry | None:
        """The entry that excludes a layer, or None. Raises ValueError where shards differ, AtEntry for bad patterns."""
        leaf = name.rpartition(".")[2]
        if self._direct:
            found = self._met(name) or self._below(name)
            if found or leaf not in self._packed:
                return found
        elif leaf not in self._packed:
            return self._met(name)
        return agreed(name, [self._met(name.replace(leaf, shard)) for shard in self._packed[leaf]])

    def _met(self, name: str) -> Entry | None:
        best = self._exact.get(name, len(self._entries))
        if self._patterns:
            best = self._patterns.first("match", (name,), best)
        return picked(self._entries, best)

    def _below(self, name: str) -> Entry | None:
        if not name.endswith(".experts"):
            return None
        found = self._tree.first(name)
        return None if found is None else next(entry for entry in self._entries if entry.text == found)


class _Quark:
    __slots__ = ("_block_fp8", "_by_layer", "_by_type", "_excluded", "_expert_entries", "_global", "_packed")

    def __init__(self, query: MatchQuery) -> None:
        config, release = query.config, query.release
        later = on("quark-default-list", release)
        if config.get("exclude") is None and ("exclude" in config or not later):
            raise TypeError("a null exclude list cannot be searched")
        mappers = query.mappers if on("quark-mapper", release) else ()
        read = mappers, bool(mappers) and on("quark-language-model", release)
        made = query.once(("sglang quark", *read), lambda: _searched(config, *read))
        self._packed = query.packed
        self._excluded = _Excluded(made, query.packed, on("quark-direct", release))
        layers: Any = config.get("layer_quant_config")
        if query.mappers and layers and on("quark-expert-entries", release):
            layers = {name: value for name, (_, value) in mapped_keys(layers, query.mappers).items()}
        self._by_layer: Any = layers
        self._by_type: Any = config.get("layer_type_quant_config")
        self._global = config.get("global_quant_config")
        self._expert_entries = on("quark-expert-entries", release)
        self._block_fp8 = on("quark-block-fp8", release)

    def answer(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        found = self._excluded.first(runtime)
        if found:
            return plain(found)
        if layer not in ("linear", "moe") and not self._block_fp8:
            return plain(_NEVER)
        own = self._config_of(runtime, layer)
        if layer not in ("linear", "moe"):
            return plain(_NEVER)
        return quantized(self._scheme(own), "no entry excludes it")

    def _scheme(self, own: Any) -> str:
        """What is allocated; from 0.5.21 block FP8 goes to the FP8 class. (sglang 0.5.23 quark.py:799-1020)"""
        if self._block_fp8 and _is_block_fp8(own):
            return "fp8-block"
        found = quark_schemes.scheme_of(own)
        return found if found in _BUILT else quark_schemes.UNKNOWN

    def _config_of(self, name: str, layer: Layer) -> Any:
        """The layer's own config: by pattern, by kind of layer, else the global one.

        Raises ValueError where shards, or the experts' own entries, differ.
        """
        leaf = name.rpartition(".")[2]
        if leaf in self._packed:
            configs = [self._config_of(name.replace(leaf, shard), layer) for shard in self._packed[leaf]]
            if any(not _alike(one, configs[0]) for one in configs):
                raise ValueError(f"the shards of {name} have different configs")
            return configs[0]
        for pattern, value in self._by_layer.items():
            if fnmatch.fnmatch(name, pattern):
                return value
        below = {key: value for key, value in self._by_layer.items() if key.startswith(name + ".")}
        if self._expert_entries and name.endswith(".experts") and below:
            return _one_expert_config(name, {key.removeprefix(name + "."): value for key, value in below.items()})
        kind = "FusedMoE" if layer == "moe" else "Linear"
        return self._by_type.get(kind, self._global)


def _one_expert_config(name: str, entries: Mapping[str, Any]) -> Any:
    """The config that all experts share. Raises ValueError for a gap, for other names than N.proj, for differences."""
    experts: dict[int, set[str]] = {}
    for key in entries:
        index, _, projection = key.partition(".")
        if not index.isdigit() or not projection:
            raise ValueError(f"{name}.{key} is no projection of an expert")
        experts.setdefault(int(index), set()).add(projection)
    alike = len({frozenset(projections) for projections in experts.values()}) == 1
    configs = list(entries.values())
    if len(experts) != max(experts) + 1 or not alike or any(not _alike(one, configs[0]) for one in configs):
        raise ValueError(f"the experts of {name} are configured differently")
    return configs[0]


def _is_block_fp8(config: Any) -> bool:
    """Whether a layer's config is block FP8. (sglang 0.5.21 quark.py:392)"""
    if config is None:
        return False
    weight, inputs = config.get("weight") or {}, config.get("input_tensors") or {}
    block = weight.get("block_size")
    return (
        not config.get("output_tensors")
        and not config.get("bias")
        and (weight.get("dtype") in _FP8 and inputs.get("dtype") in _FP8)
        and (weight.get("qscheme") == "per_block" and weight.get("is_dynamic") is False)
        and (isinstance(block, list) and len(block) == 2 and inputs.get("is_dynamic") is True)
    )


def _alike(one: Any, other: Any) -> bool:
    """Equality in which the order of a list does not matter."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return set(one) == set(other) if isinstance(one, list) else bool(one == other)
