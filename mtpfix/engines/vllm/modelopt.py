"""ModelOpt: FP8, NVFP4, MXFP8, and MIXED_PRECISION with its algorithm per layer.

Read at vllm-0.33.0 Q/modelopt.py:191 (exclusion), :228 (decision), :324 (the config), :1748 (per-layer algorithms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mtpfix.engines.base import KNOWN_SHARDS, MatchQuery
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, cause_of, listed, plain, quantized
from mtpfix.engines.vllm.entries import Entry, in_force, mapped, numbered, read, rename
from mtpfix.engines.vllm.matching import Ancestors, Contained, Exact, Find, Globs, Holding, SkipList, experts_of
from mtpfix.engines.vllm.switches import ALGOS, MIXED_EXPERTS, MIXED_LINEAR, algos, on
from mtpfix.frozen import dataclass
from mtpfix.model import Answer, Layer, Mapper, Packed

_VISION = ("vision_tower", "vision_model")
_PROJECTOR = "vit_large_projector"
CODECS = {"iq2_xs": (256, 74), "iq2_xxs": (256, 66), "q8_0": (32, 34)}
"""Elements and bytes of a block (vllm-0.33.0 vllm/utils/b12x.py:14)."""
_INSIDE, _OUTSIDE = "language_model.model.", "model.language_model."
_BLOCK_ALGOS = ("FP8_PB_WO", "FP8_BLOCK_SCALES")
_REQUIRED = {
    "modelopt_fp4": ("NVFP4", ("group_size", "kv_cache_quant_algo", "exclude_modules")),
    "modelopt_mxfp8": ("MXFP8", ("kv_cache_quant_algo", "exclude_modules")),
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the engine takes from a config: the algorithm and the exclusion list as written, and where that stands."""

    algo: str
    excluded: Sequence[Entry]
    pointer: str


def parse(query: MatchQuery) -> Parsed:
    """The config as the engine reads it. Raises Refusal, or what Python raises, where the engine raises."""
    config, release, method = query.config, query.release, query.method
    as_mxfp8 = method == "modelopt_mxfp8" and on("mxfp8-ignored-layers", release)
    if as_mxfp8 and "quantization" not in config and not config.get("quant_algo"):
        return Parsed(
            "MXFP8", _excluded(query, config.get("ignored_layers", []) or [], "/ignored_layers"), "/ignored_layers"
        )
    nested = "quantization" in config
    fields = config["quantization"] if nested else config
    if not isinstance(fields, dict):
        raise Refusal("ValueError", "quantization is no dictionary")
    algo = fields.get("quant_algo")
    if not algo:
        raise Refusal("ValueError", "the config names no quant_algo")
    name = str(algo).upper() if on("upper-case-algo", release) else algo
    key = _list_key(fields, nested, release)
    pointer = f"/quantization/{key}" if nested else f"/{key}"
    excluded = _excluded(query, fields.get(key, []), pointer)
    _check_group_size(fields.get("group_size"))
    _check_algo(name, method, release)
    _check_required(name, method, fields if nested else None)
    return Parsed(name, excluded, pointer)


def _list_key(fields: Mapping[str, Any], nested: bool, release: str) -> str:
    if nested or (on("ignore-or-exclude", release) and "ignore" not in fields):
        return "exclude_modules"
    return "ignore"


def _excluded(query: MatchQuery, value: Any, pointer: str) -> Sequence[Entry]:
    if not isinstance(value, list):
        raise Refusal("ValueError", f"the exclusion list is a {type(value).__name__}")
    return query.once(("vllm", pointer), lambda: read(value, pointer))


def _check_group_size(value: Any) -> None:
    try:
        int(0 if value is None else value)
    except (ValueError, TypeError):
        raise Refusal("ValueError", "group_size is no integer") from None


def _check_algo(name: Any, method: str, release: str) -> None:
    row = algos(ALGOS, release).get(str(name))
    if row is None:
        raise Refusal("ValueError", f"unknown quant_algo {name}")
    if row.method != method and method != "modelopt_mixed":
        raise Refusal("ValueError", f"quant_algo {name} is not one of {method}")


def _check_required(name: str, method: str, nested: Mapping[str, Any] | None) -> None:
    word, fields = _REQUIRED.get(method, ("", ()))
    missing = [field for field in fields if nested is not None and field not in nested]
    if missing and word in name:
        raise Refusal("ValueError", f"hf_quant_config.json lacks {', '.join(missing)}")


@dataclass(frozen=True, slots=True)
class Searched:
    """A list made ready for the three tests: the shared exact one, part of the name, glob."""

    empty: bool
    exact: Find
    experts: Holding
    contained: Contained
    globs: Globs


def _searched(entries: Sequence[Entry]) -> Searched:
    exact = Exact(entries)
    return Searched(not entries, exact.find, experts_of(entries), Contained(entries, exact), Globs(exact))


class Exclusion:
    """The exclusion list under one packed mapping. `fused_name`: see SkipList."""

    def __init__(self, made: Searched, packed: Packed, fused_name: bool) -> None:
        self._made = made
        self._exact = SkipList(made.exact, packed, experts=made.experts, fused_name=fused_name)

    def find(self, name: str) -> Entry | None:
        made = self._made
        if made.empty:
            return None
        return self._exact.find(name) or made.contained.find(name, besides=name) or made.globs.find(name)


def exclusion(query: MatchQuery, parsed: Parsed) -> Exclusion:
    """The exclusion list after the mappers; each of them also splits `foo*` into `foo` and `foo.*`."""
    mappers = in_force(query.mappers, query.release)
    split = bool(mappers) and on("star-split", query.release)
    fused_name = on("fused-name", query.release)
    list_of = ("vllm", parsed.pointer, split, mappers)

    def made() -> Searched:
        found = parsed.excluded
        for mapper in mappers:
            found = mapped(_split(found) if split else found, (mapper,))
        if found is parsed.excluded:
            return query.once(("vllm", parsed.pointer, "as it is"), lambda: _searched(found))
        return _searched(numbered(found))

    searched = query.once(list_of, made)
    packed = tuple(sorted(query.packed.items()))
    return query.once((*list_of, fused_name, packed), lambda: Exclusion(searched, query.packed, fused_name))


def _split(entries: Sequence[Entry]) -> Iterable[Entry]:
    names = [entry.name for entry in entries]
    return _starred(entries) if not set(map(type, names)) <= {str} or "*" in "".join(names) else entries


def _starred(entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        name = entry.name
        if len(name) >= 2 and name[-1] == "*" and name[-2] != ".":
            yield Entry(name[:-1], entry.text, entry.pointer, entry.order)
            yield Entry(name[:-1] + ".*", entry.text, entry.pointer, entry.order)
        else:
            yield entry


@dataclass(frozen=True, slots=True)
class OneAlgo:
    """modelopt, modelopt_fp4, modelopt_mxfp8: one algorithm for everything that the list does not exclude."""

    excluded: Exclusion
    scheme: str
    experts: str
    head: bool
    vision: tuple[str, ...]
    no_experts: bool

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe" and self.no_experts:
            raise Refusal("NotImplementedError", "MXFP8 experts are supported from 0.18.0")
        entry = self.excluded.find(runtime)
        if entry is not None:
            return listed(entry)
        if any(word in runtime for word in self.vision):
            return plain("vision towers are never quantized")
        if layer == "lm_head" and not self.head:
            return plain("lm_head is never quantized before 0.23.0")
        if layer == "embedding":
            return plain(NOT_ASKED)
        return quantized(self.experts if layer == "moe" else self.scheme)


def _one_algo(query: MatchQuery) -> OneAlgo:
    """The decider; one for all releases that take the config for the same."""
    release, parsed = query.release, parse(query)
    scheme = algos(ALGOS, release)[_effective(parsed.algo, query)].scheme
    found = OneAlgo(
        exclusion(query, parsed),
        scheme,
        experts="fp8" if query.method == "modelopt" else scheme,
        head=on("modelopt-head", release),
        vision=(*_VISION, _PROJECTOR) if on("vit-projector-plain", release) else _VISION,
        no_experts=query.method == "modelopt_mxfp8" and not on("mxfp8-experts", release),
    )
    return query.once((found,), lambda: found)


def _effective(algo: str, query: MatchQuery) -> str:
    """NVFP4 whose config groups all leave activations alone counts as weight-only from 0.29.0."""
    groups = query.config.get("config_groups")
    if algo != "NVFP4" or not on("nvfp4-weight-only", query.release) or not isinstance(groups, dict) or not groups:
        return algo
    bare = all(isinstance(group, dict) and group.get("input_activations") is None for group in groups.values())
    return "W4A16_NVFP4" if bare else algo


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of `quantized_layers` under some mappers, made ready to be looked up."""

    recipes: Mapping[str, Any]
    exact: Exact
    below: Ancestors


def _keys(layers: Mapping[str, Any], pointer: str, mappers: Sequence[Mapper]) -> _Keys:
    named = _named(layers, pointer, mappers)
    keys = numbered(entry for entry, _ in named.values())
    exact = Exact(keys)
    return _Keys({name: recipe for name, (_, recipe) in named.items()}, exact, Ancestors(exact))


class Layers:
    """`quantized_layers`: which algorithm a name gets, and the key that says so."""

    def __init__(self, query: MatchQuery, pointer: str, layers: Mapping[str, Any]) -> None:
        release = query.release
        mappers = in_force(query.mappers, release)
        keys = query.once(("vllm", "layers", pointer, mappers), lambda: _keys(layers, pointer, mappers))
        self._recipes, self._exact, self._below = keys.recipes, keys.exact, keys.below
        self._packed = query.packed
        self._names: Callable[[str], tuple[str, ...]] = _spellings if on("mixed-wrapper-names", release) else _alone
        self._parent = on("mixed-expert-parent", release)
        self._known = on("mixed-known-shards", release)

    def find(self, name: str) -> tuple[str, Entry] | None:
        """The algorithm in capitals and the key it comes from, or None; raises where shards disagree."""
        base, leaf = name.rsplit(".", 1)[0], name.rsplit(".", 1)[-1]
        direct = first_hit(self._names(name), self._exact.find)
        if direct is not None:
            return self._algo(direct), direct
        packed = self._shards(name, self._names(base), self._packed[leaf]) if leaf in self._packed else None
        found = packed or self._first_below(name)
        return found or (self._known_shards(name, leaf) if self._known and leaf in KNOWN_SHARDS else None)

    def _first_below(self, name: str) -> tuple[str, Entry] | None:
        entry = first_hit(self._names(name), self._below.find)
        if entry is None and self._parent and name.endswith(".experts"):
            entry = self._below.find(name.rsplit(".experts", 1)[0])
        return (self._algo(entry), entry) if entry else None

    def _known_shards(self, name: str, leaf: str) -> tuple[str, Entry] | None:
        for spelling in self._names(name):
            found = self._shards(name, (spelling.rsplit(".", 1)[0],), KNOWN_SHARDS[leaf])
            if found:
                return found
        return None

    def _shards(self, name: str, bases: Iterable[str], leaves: Iterable[str]) -> tuple[str, Entry] | None:
        hits = [hit for base in bases for leaf in leaves if (hit := self._exact.find(f"{base}.{leaf}"))]
        names = {self._algo(hit) for hit in hits}
        if len(names) > 1:
            raise Refusal("ValueError", f"the shards of {name} have different algorithms", hits[0])
        return (names.pop(), hits[0]) if names else None

    def _algo(self, entry: Entry) -> str:
        algo: str = self._recipes[entry.name]["quant_algo"].upper()
        return algo


def _named(layers: Mapping[str, Any], pointer: str, mappers: Sequence[Mapper]) -> dict[str, tuple[Entry, Any]]:
    """Mapped name -> key and recipe; as in a dictionary, the last of equal names wins and the first gives the place."""
    current = {entry.name: (entry, layers[entry.text]) for entry in read(layers, pointer)}
    for mapper in mappers:
        renamed = ((rename(mapper, name), entry, recipe) for name, (entry, recipe) in current.items())
        current = {name: (entry._replace(name=name), recipe) for name, entry, recipe in renamed if name is not None}
    return current


def _alone(name: str) -> tuple[str, ...]:
    return (name,)


def _spellings(name: str) -> tuple[str, ...]:
    """A name and its spellings with the wrapper the other way round (vllm-0.33.0 Q/modelopt.py:1816)."""
    found = [name]
    if name.endswith(".lm_head"):
        found.append("lm_head")
    if name.startswith(_INSIDE):
        found.append(_OUTSIDE + name.removeprefix(_INSIDE))
    elif name.startswith(_OUTSIDE):
        found.append(_INSIDE + name.removeprefix(_OUTSIDE))
    return tuple(found)


def first_hit(names: Iterable[str], find: Callable[[str], Entry | None]) -> Entry | None:
    """What the first name finds that finds anything."""
    return next((hit for name in names if (hit := find(name))), None)


class Mixed:
    """modelopt_mixed: the exclusion list first, then the algorithm of the layer; what has none stays plain."""

    def __init__(self, query: MatchQuery) -> None:
        release = query.release
        parsed = parse(query)
        nested = "quantization" in query.config
        layers = (query.config["quantization"] if nested else query.config).get("quantized_layers", {})
        if not layers:
            raise Refusal("ValueError", "MIXED_PRECISION without quantized_layers")
        _check_recipes(query.once(("vllm", "recipes"), lambda: _recipes(layers)), release)
        self._excluded = exclusion(query, parsed)
        self._layers = Layers(query, ("/quantization" if nested else "") + "/quantized_layers", layers)
        self._linear, self._experts = algos(MIXED_LINEAR, release), algos(MIXED_EXPERTS, release)
        self._head = on("modelopt-head", release)
        self._codecs = CODECS if on("mixed-block-codecs", release) else {}

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        entry = self._excluded.find(runtime)
        if entry is not None:
            return listed(entry)
        found = self._layers.find(runtime)
        if found and found[0].lower() in self._codecs:
            return Answer("quantized", cause_of(found[1]), found[0].lower())
        if layer == "embedding" or (layer == "lm_head" and not self._head):
            return plain(NOT_ASKED)
        if found is None:
            return plain("not in quantized_layers")
        row = (self._experts if layer == "moe" else self._linear).get(found[0])
        if row is None:
            return plain(f"the engine has no {found[0]} for this kind of layer")
        return Answer("quantized", cause_of(found[1]), row.scheme)


def _recipes(layers: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], str]]:
    return [(name, recipe, recipe.get("quant_algo", "").upper()) for name, recipe in layers.items()]


def _check_recipes(named: Iterable[tuple[str, Mapping[str, Any], str]], release: str) -> None:
    if on("mixed-block-codecs", release):
        for name, recipe, algo in named:
            _check_contract(name, recipe, algo.lower())
    if on("mixed-one-block-size", release):
        sizes = {int(recipe.get("group_size", 128)) for _, recipe, algo in named if algo in _BLOCK_ALGOS}
        if len(sizes) > 1:
            raise Refusal("ValueError", "block-FP8 layers with different group sizes")


def _check_contract(name: str, recipe: Mapping[str, Any], codec: str) -> None:
    if codec in CODECS:
        wanted = (*CODECS[codec], "ggml")
        if tuple(recipe.get(field) for field in ("group_size", "block_payload_bytes", "packing")) != wanted:
            raise Refusal("ValueError", f"unsupported {codec} block layout of {name}")


def build(query: MatchQuery) -> Decider:
    """The decider of a ModelOpt method."""
    return Mixed(query) if query.method == "modelopt_mixed" else _one_algo(query)
