"""vLLM-Ascend, vLLM's plug-in for NPUs, 0.18.0rc1 to 0.25.1rc1: how it reads ModelSlim's quant_model_description.json.

The models are vLLM's own classes, that of the same number, so that families keep no rows for it: their names are those
of vLLM (families/plugins.py). What it decides for a name is its own: AscendModelSlimConfig (vllm_ascend/quantization/
modelslim_config.py) looks every weight up in the description. A draft is built with the target's config and asks the
same object (vllm-ascend 0.18.0rc1 spec_decode/eagle_proposer.py:173; 0.25.1rc1 spec_decode/llm_base_proposer.py:263).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from mtpfix.engines.base import Change, Matcher, MatchQuery, Method
from mtpfix.engines.listing import Entry, Remembered, Rule, built, plain, quantized
from mtpfix.engines.releases import at_least, modelled
from mtpfix.engines.vllm.entries import renamed
from mtpfix.model import Answer, Cause, Layer, Mapper, Packed
from mtpfix.patch import step

NAME = "vllm-ascend"
METHOD = "ascend"
_FLOAT, _WEIGHT = "FLOAT", ".weight"
_READ = "vllm_ascend/quantization/modelslim_config.py"
_METHODS = "vllm_ascend/quantization/methods"
SWITCHES = (
    Change("described", "0.18.0rc1", (METHOD,), f"vllm-ascend 0.18.0rc1 {_READ}:436, :490"),
    Change("mxfp4-types", "0.19.1rc1", (METHOD,), f"vllm-ascend 0.19.1rc1 {_METHODS}/w4a4_mxfp4.py"),
    Change("mxfp4-flatquant-types", "0.20.2rc1", (METHOD,), f"vllm-ascend 0.20.2rc1 {_METHODS}, register_scheme"),
    Change("mxfp-w4a8-types", "0.21.0rc1", (METHOD,), f"vllm-ascend 0.21.0rc1 {_METHODS}/w4a8_mxfp4.py"),
    Change("wrapped-head", "0.21.0rc1", (METHOD,), f"vllm-ascend 0.21.0rc1 {_READ}:500"),
    Change("w8a8fp8-types", "0.22.1rc1", (METHOD,), f"vllm-ascend 0.22.1rc1 {_METHODS}/w8a8fp8_dynamic.py"),
    Change("w4a16-mxfp4-types", "0.23.0rc1", (METHOD,), f"vllm-ascend 0.23.0rc1 {_METHODS}, register_scheme"),
    Change("undescribed-head-plain", "0.23.0rc1", (METHOD,), f"vllm-ascend 0.23.0rc1 {_READ}:668"),
    Change("undescribed-head-raises", "0.24.0rc1", (METHOD,), f"vllm-ascend 0.24.0rc1 {_READ}:710"),
    Change("value-shard-may-be-missing", "0.24.0rc1", (METHOD,), f"vllm-ascend 0.24.0rc1 {_READ}:382"),
)  # fmt: skip
_SINCE = {change.name: change.since for change in SWITCHES}

_QKV = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
_UP = {"gate_up_proj": ("gate_proj", "up_proj")}
_EXPERTS = {"experts": ("experts.0.gate_proj", "experts.0.up_proj", "experts.0.down_proj")}
_LATENT = {**_UP, **_EXPERTS, "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa")}
_HYBRID = {**_QKV, **_UP, "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a")}
# packed_modules_model_mapping; every other model_type goes by its class's own (0.25.1rc1 modelslim_config.py:69).
PACKED: Mapping[str, Packed] = {
    "qwen3_moe": {**_QKV, **_UP, **_EXPERTS},
    "qwen3_5": _HYBRID,
    "qwen3_5_moe": {**_HYBRID, **_EXPERTS},
    "qwen3_next": {**_QKV, **_UP, "in_proj": ("in_proj_qkvz", "in_proj_ba"), **_EXPERTS},
    "glm4_moe": {**_QKV, **_UP, **_EXPERTS},
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "longcat_flash", "pangu_ultra_moe"), _LATENT
    ),
}
# Types with a scheme class, and since when, for linears and for experts (quantization/methods, `register_scheme`).
_BOTH = {
    "W8A8_DYNAMIC": "", "W8A8_MIX": "", "W8A8_MXFP8": "", "W4A8_DYNAMIC": "", "W4A4_MXFP4": _SINCE["mxfp4-types"],
    "W4A8_MXFP": _SINCE["mxfp-w4a8-types"], "W8A8FP8_DYNAMIC": _SINCE["w8a8fp8-types"],
}  # fmt: skip
_LINEAR_TYPES = {
    **_BOTH, "W8A8": "", "W8A16": "", "W4A4_DYNAMIC": "", "W4A4_FLATQUANT_DYNAMIC": "",
    "W4A4_MXFP4_FLATQUANT": _SINCE["mxfp4-flatquant-types"],
}  # fmt: skip
_MOE_TYPES = {**_BOTH, "W4A16": "", "W4A16_MXFP4": _SINCE["w4a16-mxfp4-types"]}
# What is stored for them has names and shapes that are known; of the others only that they are quantized.
_SCHEMES = {"W8A8": "modelslim-w8a8", "W8A8_DYNAMIC": "modelslim-w8a8"}


class Described:
    """The description as the plug-in holds it: renamed by the classes' mappers, keys that it adds itself included."""

    def __init__(self, config: Mapping[str, Any], mappers: Iterable[Mapper]) -> None:
        names, keys = _adapted(config)
        for mapper in mappers:
            found = renamed(mapper, names)
            keys = [key for key, name in zip(keys, found, strict=True) if name is not None]
            names = [name for name in found if name is not None]
        self._config = config
        self._keys = dict(zip(names, keys, strict=True))
        floats = {key for key, kind in config.items() if kind == _FLOAT}
        self._floats = sorted(name for name, key in self._keys.items() if key in floats and name.endswith(_WEIGHT))

    def get(self, module: str) -> Entry | None:
        """What is said of a module's weight; the entry's text is the type."""
        return self._entry(module + _WEIGHT)

    def _entry(self, name: str) -> Entry | None:
        key = self._keys.get(name)
        return None if key is None else Entry(str(self._config[key]), f"/{step(key)}", key)

    def required(self, module: str) -> Entry:
        """The same; raises KeyError where nothing is said, as the plug-in does."""
        found = self.get(module)
        if found is None:
            raise Undescribed(module + _WEIGHT)
        return found

    def first_float(self, start: str) -> Entry | None:
        """Any weight in full precision whose name begins so: that is how a name without shards is looked up."""
        at = bisect_left(self._floats, start)
        hit = at < len(self._floats) and self._floats[at].startswith(start)
        return self._entry(self._floats[at]) if hit else None


class Undescribed(KeyError):
    """A weight that the description does not name: the plug-in's KeyError."""


def _adapted(config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names of the description's rows, then those that the plug-in makes up, and the rows' own names for each
    (0.25.1rc1 modelslim_config.py:920)."""
    names, keys = list(config), list(config)
    whole = "\n".join(keys)
    for key in keys[:] if "shared_head" in whole or "weight_packed" in whole else ():
        more = [key.replace(".shared_head.", ".")] if "shared_head" in key else []
        more += [key.replace("weight_packed", "weight")] if "weight_packed" in key else []
        names += more
        keys += [key] * len(more)
    return names, keys


def _rule(query: MatchQuery) -> Rule:
    mappers = query.mappers
    described = query.once(("ascend", mappers), lambda: Described(query.config, mappers))
    packed = PACKED.get(query.options.get("model_type", ""), query.packed)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        head = layer in ("lm_head", "embedding")
        name = _head(described, runtime, query.release)
        shards = tuple(_shards(name, packed))
        if head and not _says(described, shards) and _lets_heads_be(query.release):
            return plain("the description does not name it, and heads and embeddings are then left alone")
        try:
            return _decided(described, name, shards, layer, query.release)
        except Undescribed as missing:
            what = f"the description does not name {missing.args[0]}"
            many = len(shards) > 1 or layer == "moe"
            return Answer("error", Cause(f"not all shards are described: {what}" if many else what), error="KeyError")

    return answer


def _decided(described: Described, name: str, shards: tuple[str, ...], layer: Layer, release: str) -> Answer:
    """Plain where all shards are FLOAT, else quantized in the one type of all; raises as the plug-in does."""
    if shards == (name,):
        found = described.first_float(name)
        return plain(_cited(found)) if found else _typed(described.required(name), layer, release)
    entries = [entry for shard in shards if (entry := _shard(described, shard, release))]
    if len({entry.text == _FLOAT for entry in entries}) > 1:
        raise ValueError(f"some but not all shards of {name} are FLOAT")
    if len({entry.text for entry in entries}) > 1:
        raise ValueError(f"the shards of {name} are of unlike types")
    return plain(_cited(entries[0])) if entries[0].text == _FLOAT else _typed(entries[0], layer, release)


def _typed(entry: Entry, layer: Layer, release: str) -> Answer:
    types = _MOE_TYPES if layer == "moe" else _LINEAR_TYPES
    if entry.text not in types or not at_least(release, types[entry.text]):
        raise NotImplementedError(f"no scheme class for {entry.text} of {entry.written}")
    return quantized(_SCHEMES.get(entry.text, ""), _cited(entry))


def _cited(entry: Entry) -> Entry:
    """The entry as it stands in the file: its key decides by its value."""
    return Entry(entry.written, entry.pointer, entry.written)


def _on(name: str, release: str) -> bool:
    """Whether a release has a change."""
    return at_least(release, _SINCE[name])


def _shard(described: Described, shard: str, release: str) -> Entry | None:
    """What is said of a shard; None where a replicated v_proj may be missing."""
    front, _, leaf = shard.rpartition(".")
    said = described.get(shard)
    replicated = leaf == "v_proj" and _on("value-shard-may-be-missing", release)
    if said is None and replicated and all(described.get(f"{front}.{name}") for name in ("q_proj", "k_proj")):
        return None
    return said or described.required(shard)


def _shards(name: str, packed: Packed) -> Iterable[str]:
    leaf = name.rpartition(".")[2]
    return (name.replace(leaf, shard) for shard in packed[leaf]) if leaf in packed else (name,)


def _head(described: Described, runtime: str, release: str) -> str:
    """The name that is looked up: of a head that the description names under its wrapper, that one."""
    wrapped = "language_model.lm_head"
    if runtime != "lm_head" or described.get(runtime) or not _on("wrapped-head", release):
        return runtime
    return wrapped if described.get(wrapped) else runtime


def _says(described: Described, shards: Iterable[str]) -> bool:
    return all(described.get(shard) for shard in shards)


def _lets_heads_be(release: str) -> bool:
    return _on("undescribed-head-plain", release) and not _on("undescribed-head-raises", release)


class VllmAscend:
    """vLLM-Ascend; see `mtpfix.engines.base.Engine`."""

    name = NAME
    releases = modelled(NAME)

    def method(self, config: Mapping[str, Any], release: str, *, model_type: str = "") -> Method:
        """Its own method for a config that names none (0.25.1rc1 modelslim_config.py:556), else the one named."""
        declared = config.get("quant_method")
        return Method(METHOD) if not declared else Method(str(declared))

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher for ModelSlim's description; `unknown` throughout for any other method."""
        if query.method != METHOD:
            answer = Answer("unknown", Cause(f"vLLM-Ascend's reading of {query.method} is not modelled"))
            return Remembered(lambda *_: answer)
        return built(query, lambda: _rule(query))

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """The class's packed mapping as it is."""
        return packed

    def change_points(self, method: str) -> tuple[str, ...]:
        """Releases at which the description is read otherwise."""
        return tuple(dict.fromkeys(change.since for change in SWITCHES)) if method == METHOD else self.releases[:1]


ENGINE = VllmAscend()
