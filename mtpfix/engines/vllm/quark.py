"""Quark: `exclude`, by equality or `re:`; what is left takes the config of its layer, or the global one.

Read at vllm-0.33.0 Q/quark/utils.py:31 (exclusion), Q/quark/quark.py:133 (mapping), :219 (decision), :724 (configs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import partial
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.quark_schemes import scheme_of
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, as_linears, cause_of, listed, plain, quantized
from mtpfix.engines.vllm.entries import Entry, are_texts, in_force, mapped, numbered, read, rename, under
from mtpfix.engines.vllm.matching import Ancestors, Exact, Patterns, agreed, earliest, shards
from mtpfix.engines.vllm.switches import on
from mtpfix.model import Answer, Layer, Mapper, Packed


class LayerConfigs:
    """`layer_quant_config`: a pattern with a star is a glob; one without has to contain the name."""

    def __init__(self, configs: Mapping[str, Any], entries: Sequence[Entry], packed: Packed, default: Any) -> None:
        self.configs = configs
        self._default = default
        self._packed = packed
        self._globs = [(entry, re.compile(translate(entry.name))) for entry in entries if "*" in entry.name]
        self._texts = [entry for entry in entries if "*" not in entry.name]

    def find(self, name: str) -> Entry | None:
        """The entry of a module; raises where the shards of a fused one take different configs."""
        leaf = name.rsplit(".", 1)[-1]
        if leaf not in self._packed:
            return self._first(name)
        found = [None if part == name else self._first(part) for part in shards(name, leaf, self._packed)]
        configs = [self._default if entry is None else self.configs[entry.name] for entry in found]
        if any(config != configs[0] for config in configs):
            raise Refusal("ValueError", f"the shards of {name} have different configs", earliest(found))
        return found[0] if found else None

    def _first(self, name: str) -> Entry | None:
        hits = [entry for entry, glob in self._globs if glob.match(name)]
        return earliest([*hits, *(entry for entry in self._texts if name in entry.name)])


class Quark:
    """A Quark config."""

    def __init__(self, query: MatchQuery) -> None:
        config, release = query.config, query.release
        self._query = query
        _check_export(config)
        mappers = in_force(query.mappers, release)
        _map_all_lists(config, mappers, release)
        self._packed = query.packed
        self._whole_name_wins = on("fused-patterns", release)
        made = partial(_excluded_by, query, mappers, exhaustive=self._whole_name_wins)
        found = query.once(("vllm quark", mappers, self._whole_name_wins), made)
        self._patterns, self._equal, self._below = found
        self._children = on("quark-expert-children", release)
        self._has_types = isinstance(config.get("layer_type_quant_config"), Mapping)
        self._scheme = scheme_of(config.get("global_quant_config"))
        self._layers = _layer_configs(config, mappers, query.packed)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        entry = self._excluded(runtime, layer)
        if entry is not None:
            return as_linears(entry, self._query) if layer == "moe" and not self._children else listed(entry)
        if layer not in ("linear", "moe"):
            return plain(NOT_ASKED)
        found = self._layers.find(runtime)
        if found is not None:
            scheme = scheme_of(self._layers.configs[found.name])
            return Answer("quantized", cause_of(found, "layer_quant_config"), scheme)
        if not self._has_types:
            raise TypeError("layer_type_quant_config is no dictionary")
        return quantized(self._scheme)

    def _excluded(self, name: str, layer: Layer) -> Entry | None:
        if layer == "moe" and self._children:
            child = earliest([self._equal.find(name), self._below.find(name)])
            if child is not None:
                return child
        leaf = name.rsplit(".", 1)[-1]
        fused = leaf in self._packed
        if self._whole_name_wins or not fused:
            whole = self._patterns.find(name)
            if whole is not None or not fused:
                return whole
        return agreed(name, shards(name, leaf, self._packed), self._patterns.find)


def _excluded_by(
    query: MatchQuery, mappers: Sequence[Mapper], *, exhaustive: bool
) -> tuple[Patterns, Exact, Ancestors]:
    """The entries of `exclude`, and those of them that are names, ready to be searched."""
    excluded = query.once(("vllm quark list",), lambda: read(query.config.get("exclude"), "/exclude"))
    texts = are_texts(excluded)
    entries = under(excluded, mappers) if texts else excluded

    def made() -> tuple[Patterns, Exact, Ancestors]:
        patterns = Patterns(entries)
        for entry in () if texts else entries:
            entry.name.startswith("re:")  # raises what the engine raises over an entry that is no text
        return patterns, patterns.exact, Ancestors(patterns.exact)

    patterns, exact, below = query.once(("vllm quark entries", entries), made) if texts else made()
    return patterns.exhaustive() if exhaustive else patterns, exact, below


def _layer_configs(config: Mapping[str, Any], mappers: Sequence[Mapper], packed: Packed) -> LayerConfigs:
    raw = config.get("layer_quant_config") or {}
    entries = numbered(mapped(read(raw, "/layer_quant_config"), mappers))
    configs = {entry.name: raw[entry.text] for entry in entries}
    return LayerConfigs(configs, entries, packed, config.get("global_quant_config"))


def _map_all_lists(config: Mapping[str, Any], mappers: Sequence[Mapper], release: str) -> None:
    """The engine renames every list of the config; before 0.31.0 one that holds anything but texts breaks it."""
    if on("quark-text-lists", release):
        return
    for mapper in mappers:
        for value in config.values():
            sound = not mapper.regex and isinstance(value, list) and set(map(type, value)) <= {str}
            for item in value if isinstance(value, list) and not sound else ():
                rename(mapper, item)


def _check_export(config: Mapping[str, Any]) -> None:
    export = config.get("export")
    if export is None:
        raise Refusal("ValueError", "the config has no export key")
    groups = export.get("kv_cache_group")
    if len(groups) == 0:
        return
    names = list(config["layer_quant_config"])
    if not any(fnmatchcase(name, group) for name in names for group in groups):
        raise Refusal("ValueError", "kv_cache_group names no layer of layer_quant_config")


def build(query: MatchQuery) -> Decider:
    """The decider of a Quark config."""
    return Quark(query)
