"""compressed-tensors in SGLang, and w8a8_int8, which tests its list with the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import (
    AtEntry,
    Entry,
    Pattern,
    Rule,
    pattern_of,
    plain,
    quantized,
    read_list,
    sound,
)
from mtpfix.engines.sglang.ct_lists import REGEX, Ignored, Names
from mtpfix.engines.sglang.ct_schemes import Group, built_scheme, group_of, is_mxfp4, scheme_of
from mtpfix.engines.sglang.names import mapped
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Answer, Layer, Packed
from mtpfix.patch import step

_NEVER = "the method leaves this kind of layer alone"
_EXPERT_ZERO = (".0.gate_proj", ".0.up_proj", ".0.down_proj")
_EXPERTS_CLASS = "FusedMoE"
_NOTHING = Entry("", "", "")
_OF_GROUPS = ("ct-group-format", "ct-packed-activations")  # what of a release decides what a config group is
_CLASSES = (
    (("qkv_proj",), "QKVParallelLinear"),
    (("gate_up_proj", "in_proj_qkvz", "in_proj_ba", "fused_qkv_a_proj_with_mqa"), "MergedColumnParallelLinear"),
    (("o_proj", "down_proj", "out_proj"), "RowParallelLinear"),
    (("gate", "fc", "eh_proj", "shared_expert_gate"), "ReplicatedLinear"),
)
_CLASS_OF = {leaf: name for leaves, name in _CLASSES for leaf in leaves}
_OTHER_CLASS = "ColumnParallelLinear"


class Targets:
    """`find_matched_target`: by name, by class (part of its name, whatever the case), by all shards of a fused name."""

    __slots__ = ("_classes", "_entries", "_groups", "_packed", "_patterns", "_places")

    def __init__(self, groups: Mapping[str, tuple[Entry, Group]], packed: Packed) -> None:
        self._groups = groups
        self._packed = packed
        self._entries = tuple(entry for entry, _ in groups.values())
        self._patterns: dict[str, Pattern] = {
            text: pattern_of(entry, text.removeprefix(REGEX))
            for text, (entry, _) in groups.items()
            if text.startswith(REGEX)
        }
        self._places = {text: place for place, text in enumerate(groups)}
        self._classes: dict[str, str] = {}

    def of(self, name: str, kind: str) -> tuple[Entry, Group]:
        """The target of a layer and its group. Raises ValueError where nothing matches, AtEntry for a bad pattern."""
        found = self.named(name) or self._of_class(kind) or self._by_shards(name)
        if not found:
            raise ValueError(f"no target of the config matches {name}")
        return self._groups[found]

    def named(self, name: str) -> str:
        """The first target that matches the name itself; "" for none."""
        exact = name if name in self._places and name not in self._patterns else ""
        last = self._places[exact] if exact else len(self._places)
        likely = (text for text in self._patterns if self._places[text] < last)
        return next((text for text in likely if self._patterns[text].meets("match", name)), exact)

    def _of_class(self, kind: str) -> str:
        """The first target that is part of a class's name or matches it; "" for none."""
        if kind not in self._classes:
            self._classes[kind] = next((target for target in self._groups if self._meets(target, kind)), "")
        return self._classes[kind]

    def _meets(self, target: str, kind: str) -> bool:
        if target in self._patterns:
            return self._patterns[target].meets("match", kind)
        return target.lower() in kind.lower()

    def _by_shards(self, name: str) -> str:
        fused = next((key for key in self._packed if name.endswith(key)), None)
        if fused is None:
            return ""
        found = [self.named(name.replace(fused, shard)) for shard in self._packed[fused]]
        return found[0] if found and all(found) else ""


def _groups(config: Mapping[str, Any], query: MatchQuery) -> dict[str, tuple[Entry, Group]]:
    """Target -> the place where it is written and its group; a later group takes a target over.

    Raises what the engine raises on a broken group.
    """
    found: dict[str, tuple[Entry, Group]] = {}
    for name, value in config.get("config_groups", {}).items():
        pointer = f"/config_groups/{step(name)}/targets"
        if value.get("targets") is None:
            raise TypeError(f"{pointer} is no list")
        group = None
        for entry in sound(read_list(value["targets"], pointer)):
            group = group or group_of(value, config, query.release)
            for renamed in mapped((entry,), query.mappers):
                found[renamed.text] = renamed, group
    return found


def compressed_tensors(query: MatchQuery) -> Rule:
    """CompressedTensorsConfig: `ignore` and the targets of `config_groups`."""
    return _Config(query).answer


def _listed(query: MatchQuery) -> Names:
    """The exclusion list, ready to be searched."""

    def made() -> Names:
        entries = read_list(query.config.get("ignore", []), "/ignore")
        return Names(mapped(entries, query.mappers), query.release)

    return query.once(("sglang ct", query.mappers, on("ct-suffix", query.release)), made)


def _searched(query: MatchQuery) -> tuple[Mapping[str, tuple[Entry, Group]], Targets]:
    """The groups by their targets, and the targets ready to be searched, those of experts among them."""

    def made() -> tuple[Mapping[str, tuple[Entry, Group]], Targets]:
        groups = _groups(query.config, query)
        experts = dict(groups)
        if "Linear" in experts:
            experts.setdefault(_EXPERTS_CLASS, experts["Linear"])
        return groups, Targets(experts, query.packed)

    switches = (on(switch, query.release) for switch in _OF_GROUPS)
    return query.once(("sglang ct targets", *switches, query.mappers, tuple(query.packed.items())), made)


class _Config:
    __slots__ = ("_answers", "_config", "_fp8_linears", "_groups", "_heads", "_ignored", "_release", "_targets")

    def __init__(self, query: MatchQuery) -> None:
        config = query.config
        self._config = config
        self._answers: dict[tuple[str, bool], Answer] = {}
        self._release = query.release
        self._groups, self._targets = _searched(query)
        if "ignore" in config and config["ignore"] is None:
            raise TypeError("a null ignore list cannot be searched")
        self._ignored = Ignored(_listed(query), query.packed)
        self._fp8_linears = config.get("linear_fp8_config")
        self._heads = on("ct-head", query.release)

    def answer(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "linear":
            return self._linear(runtime)
        if layer == "moe":
            return self._experts(runtime)
        if layer == "lm_head" and self._heads and self._groups:
            return self._head(runtime)
        return plain(_NEVER)

    def _linear(self, name: str) -> Answer:
        if self._fp8_linears is not None:
            return quantized("fp8-block" if self._fp8_linears.get("weight_block_size") else "fp8", "linear_fp8_config")
        found = self._ignored.first(name)
        if found:
            return plain(found)
        if not self._groups:
            return plain("the config has no groups")
        return self._built(*self._targets.of(name, _CLASS_OF.get(name.rpartition(".")[2], _OTHER_CLASS)))

    def _head(self, name: str) -> Answer:
        found = self._ignored.first(name)
        if found:
            return plain(found)
        for target, (entry, group) in self._groups.items():
            if Names((Entry(target, entry.pointer, entry.written),), self._release).first(name):
                if scheme_of(group) == "fp8-block-ct":
                    raise NotImplementedError("a block-quantized head")
                return self._built(entry, group)
        return plain("no target names the head")

    def _experts(self, name: str) -> Answer:
        """Expert 0 stands for all: its three projections must agree."""
        if on("ct-mxfp4-experts", self._release) and self._bypasses():
            return quantized("ct-mxfp4", "MXFP4 experts never ask the list")
        found = [self._of_projection(name + leaf) for leaf in _EXPERT_ZERO]
        first, group = found[0]
        if any(other != group for _, other in found):
            raise ValueError("the projections of one expert have different schemes")
        if group is not None:
            return self._built(first, group, experts=True)
        return plain(first) if self._groups else plain("the config has no groups")

    def _of_projection(self, name: str) -> tuple[Entry, Group | None]:
        """The entry that ignores a projection, or its target and group."""
        ignored = self._ignored.first(name)
        if ignored:
            return ignored, None
        return self._targets.of(name, _EXPERTS_CLASS) if self._groups else (_NOTHING, None)

    def _bypasses(self) -> bool:
        if "mxfp4" in (self._config.get("format") or ""):
            return True
        named = (self._groups.get(_EXPERTS_CLASS), self._groups.get("Linear"))
        return any(is_mxfp4(found[1]) for found in named if found)

    def _built(self, entry: Entry, group: Group, experts: bool = False) -> Answer:
        kind = (entry.text, experts)
        if kind not in self._answers:
            self._answers[kind] = quantized(built_scheme(group, experts, self._release), entry)
        return self._answers[kind]


def w8a8_int8(query: MatchQuery) -> Rule:
    """W8A8Int8Config: `ignore`, tested as compressed-tensors does, for every kind of layer.

    Experts that are ignored get the method of linears, whose create_weights has other parameters: a TypeError once a
    model is built, when its part is known; the method by itself is a plain one, and so are they in the vectors.
    (sglang 0.5.23 srt/layers/quantization/w8a8_int8.py:111, unquant.py:546, moe/fused_moe_triton/layer.py:556)
    """
    entries = read_list(query.config.get("ignore", []), "/ignore")
    ignored = Ignored(Names(entries, query.release), query.packed)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        found = ignored.first(runtime)
        if found and layer == "moe" and "part" in query.options:
            raise AtEntry(TypeError("experts that are ignored get the method of linears"), found)
        if found:
            return plain(found)
        return quantized("ct-w8a8", "no entry ignores it") if layer in ("linear", "moe") else plain(_NEVER)

    return answer
