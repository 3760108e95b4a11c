"""TensorRT-LLM's handling of ModelOpt configs, in three states of its main branch.

The list test lies in QuantConfig.is_module_excluded_from_quantization: globs alone (snapshot-1, commit 01ea6d79 of
tensorrt_llm/models/modeling_utils.py); then `re:` patterns that match whole names, and a walk up to the parents
(snapshot-2); then `X.*` that matches X too (snapshot-3). Its caller asks for the shards of a fused module as well:
any hit excludes the whole (tensorrt_llm/_torch/models/modeling_utils.py `apply_quant_config_exclude_modules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from typing import Any

from mtpfix.engines.base import Change, Matcher, MatchQuery, Method
from mtpfix.engines.listing import (
    Ends,
    Entry,
    Pattern,
    Patterns,
    Remembered,
    Rule,
    built,
    pattern_of,
    picked,
    plain,
    quantized,
    read_list,
    sound,
    texts,
    unique,
)
from mtpfix.engines.releases import at_least, modelled
from mtpfix.engines.trtllm_qwen import exclusion_names, layer_names
from mtpfix.model import Answer, Cause, Layer, Packed
from mtpfix.patch import step
from mtpfix.regexes import Regex

_REGEX = "re:"
_NAMES = {
    "FP8": ("modelopt_fp8", "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": ("modelopt_fp8", "fp8-channel"),
    "FP8_BLOCK_SCALES": ("modelopt_fp8", "fp8-pb"),
    "fp8_pb_wo": ("modelopt_fp8", "fp8-pb"),
    "NVFP4": ("modelopt_fp4", "nvfp4"),
    "NVFP4_AWQ": ("modelopt_fp4", "nvfp4-awq"),
    "W4A16_NVFP4": ("modelopt_fp4", "nvfp4-w4a16"),
    "MXFP8": ("mxfp8", "mxfp8"),
    "W4A16_AWQ": ("modelopt_int4", "modelopt-int4"),
    "MIXED_PRECISION": ("modelopt_mixed", ""),
}
_METHODS = frozenset(method for method, _ in _NAMES.values())
_LISTING = tuple(sorted(_METHODS))
_READ = "tensorrt_llm/models/modeling_utils.py"
SWITCHES = (
    Change("globs", "snapshot-1", _LISTING, f"01ea6d79 {_READ}"),
    Change("sidecar-first", "snapshot-1", _LISTING, "008e0af tensorrt_llm/_torch/model_config.py"),
    Change("any-shard-excludes", "snapshot-1", _LISTING,
           "01ea6d79 tensorrt_llm/_torch/models/modeling_utils.py"),
    Change("regex-and-parents", "snapshot-2", _LISTING, _READ),
    Change("subtree-matches-node", "snapshot-3", _LISTING, _READ),
)  # fmt: skip
_SINCE = {change.name: change.since for change in SWITCHES}
_UNLISTED = "no entry of the list excludes it"


class Excluded:
    """One list under one snapshot."""

    __slots__ = ("_ending", "_entries", "_literal", "_parents", "_patterns", "_starting", "_subtrees")

    def __init__(self, entries: tuple[Entry, ...], release: str) -> None:
        self._entries = entries
        self._parents = at_least(release, _SINCE["regex-and-parents"])
        self._subtrees = at_least(release, _SINCE["subtree-matches-node"])
        self._literal: dict[str, int] = {}
        self._starting, self._ending = Ends(False), Ends(True)
        found = [(index, pattern) for index, text in enumerate(texts(entries)) for pattern in self._tabled(index, text)]
        self._patterns = Patterns((2 * index + late, pattern) for index, (late, pattern) in found)

    def _tabled(self, index: int, text: str) -> Iterator[tuple[int, Pattern]]:
        """Puts a simple entry into the tables; the patterns of any other."""
        entry = self._entries[index]
        if self._parents and text.startswith(_REGEX):
            yield 0, pattern_of(entry, text.removeprefix(_REGEX))
            return
        yield from self._glob(index, text, 0)
        if self._subtrees and text.endswith(".*"):
            yield from self._glob(index, text.removesuffix(".*"), 1)

    def _glob(self, index: int, text: str, late: int) -> Iterator[tuple[int, Pattern]]:
        body = text.strip("*")
        if not re.search(r"[*?\[]", body) and text in (body, body + "*", "*" + body):
            if text == body:
                self._literal.setdefault(text, index)
            else:
                (self._starting if text.endswith("*") else self._ending).add(body, index)
            return
        needle = "" if "[" in text else max(re.split(r"[*?]", text), key=len)
        yield late, Pattern(self._entries[index], needle, Regex(re.compile(translate(text)), (), False, needle))

    def first(self, name: str) -> Entry | None:
        """The entry that excludes a module or one of its parents, or None. Raises AtEntry for a bad pattern."""
        while True:
            found = self._of(name)
            if found or not self._parents or "." not in name:
                return found
            name = name.rpartition(".")[0]

    def _of(self, name: str) -> Entry | None:
        best = self._literal.get(name, len(self._entries))
        best = 2 * self._ending.first(name, self._starting.first(name, best))
        return picked(self._entries, self._patterns.first("fullmatch", (name,), best) // 2)


def _section(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """Where the algorithm stands, the pointer to it, and the name of its list. Raises ValueError for no table."""
    if "quantization" not in config:
        return config, "", "ignore"
    nested = config["quantization"]
    if not isinstance(nested, Mapping):
        raise ValueError("the quantization section is no table")
    return nested, "/quantization", "exclude_modules"


def _rule(query: MatchQuery) -> Rule:
    part, pointer, name = _section(query.config)
    algo = part.get("quant_algo")
    if algo not in _NAMES:
        raise ValueError(f"{algo!r} is not a valid QuantAlgo")
    place, normalise = f"{pointer}/{name}", query.options.get("normalise")

    def made() -> Excluded:
        entries = query.once(("trtllm", place), lambda: read_list(part.get(name) or None, place))
        return Excluded(_normalised(entries, query) if normalise == "qwen3_5" else entries, query.release)

    excluded = query.once(("trtllm excluded", place, normalise, query.release), made)
    layers = _Layers(part, pointer, query) if algo == "MIXED_PRECISION" else None

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        found = next((entry for name in _candidates(runtime, query) if (entry := excluded.first(name))), None)
        if layer == "embedding":
            return plain("embeddings are never quantized")
        if found:
            return plain(found)
        return layers.of(runtime, layer) if layers else quantized(_NAMES[str(algo)][1], _UNLISTED)

    return answer


def _candidates(name: str, query: MatchQuery) -> Iterator[str]:
    yield name
    leaf = name.rpartition(".")[2]
    for shard in query.packed.get(leaf, ()):
        yield name.replace(leaf, shard)


def _normalised(entries: tuple[Entry, ...], query: MatchQuery) -> tuple[Entry, ...]:
    """A Qwen3.5 list after its translation, sorted as the engine sorts it."""
    layers = query.options.get("num_hidden_layers", "")
    count = int(layers) if layers.isdecimal() else None
    kept = [
        entry._replace(text=name)
        for entry in sound(entries)
        if (name := exclusion_names(entry.text, count)) is not None
    ]
    own = [Entry(text, "", text) for text in ("*linear_attn.conv1d", "lm_head")]
    return tuple(sorted(unique([*kept, *own]), key=lambda entry: entry.text))


class _Layers:
    """`quantized_layers`: experts by any key that holds their name, fused linears by a shard's key, others by name.

    (tensorrt_llm/_torch/models/modeling_utils.py `apply_layerwise_quant_config`)
    """

    def __init__(self, part: Mapping[str, Any], pointer: str, query: MatchQuery) -> None:
        layers = part.get("quantized_layers") or {}
        names: Mapping[str, str] = {name: name for name in layers}
        if query.options.get("normalise") == "qwen3_5":
            count = query.options.get("num_hidden_layers", "")
            names = layer_names(layers, int(count) if count.isdecimal() else None)
        self._keys = {
            name: (_scheme(layers[written]), Entry(name, f"{pointer}/quantized_layers/{step(written)}", written))
            for name, written in names.items()
        }

    def of(self, name: str, layer: Layer) -> Answer:
        """Quantized as the first key says that counts for the module, plain where none does."""
        head, _, leaf = name.rpartition(".")
        parts = {"gate_up_proj": (f"{head}.gate_proj", f"{head}.gate_up_proj"), "qkv_proj": (f"{head}.q_proj",)}
        held = (name,) if layer == "moe" else parts.get(leaf)
        key = self._holding(held) if held else name
        if key not in self._keys:
            return plain("quantized_layers does not name it")
        return quantized(*self._keys[key])

    def _holding(self, names: tuple[str, ...]) -> str:
        return next((key for key in self._keys if any(name in key for name in names)), "")


def _scheme(value: Any) -> str:
    algo = value["quant_algo"]
    if algo not in _NAMES:
        raise ValueError(f"{algo!r} is not a valid QuantAlgo")
    return _NAMES[algo][1]


class TensorRTLLM:
    """TensorRT-LLM, three states of its main branch."""

    name = "tensorrt-llm"
    releases = modelled("tensorrt-llm")

    def method(self, config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
        """The method of a ModelOpt config by its algorithm; any other config's own name, which is not modelled."""
        producer = config.get("producer")
        by_modelopt = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
        declared = str(config.get("quant_method") or "")
        if not (by_modelopt or "quantization" in config or declared.lower().startswith("modelopt")):
            return Method(declared)
        nested = config.get("quantization", config)
        algo = nested.get("quant_algo") if isinstance(nested, Mapping) else None
        if not isinstance(algo, str) or algo not in _NAMES:
            return Method("", f"{algo!r} is not a valid QuantAlgo")
        return Method(_NAMES[algo][0])

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher for ModelOpt configs; `unknown` throughout for any other."""
        if query.method not in _METHODS:
            answer = Answer("unknown", Cause(f"TensorRT-LLM's {query.method or 'unnamed method'} is not modelled"))
            return Remembered(lambda *_: answer)
        return built(query, lambda: _rule(query))

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """The class's packed mapping as it is."""
        return packed

    def change_points(self, method: str, model_type: str = "") -> tuple[str, ...]:
        """All three snapshots differ for every ModelOpt method."""
        return self.releases if method in _METHODS else self.releases[:1]


ENGINE = TensorRTLLM()
