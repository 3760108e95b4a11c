"""ModelOpt in SGLang: FP8, NVFP4 and MIXED_PRECISION."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Rule, plain, quantized, read_list, unique
from mtpfix.engines.sglang.exclusions import Exclusions
from mtpfix.engines.sglang.layered import Layered
from mtpfix.engines.sglang.names import mapped, with_unwrapped
from mtpfix.engines.sglang.skip import Searched, Skips, tests_of
from mtpfix.engines.sglang.switches import on
from mtpfix.frozen import dataclass
from mtpfix.model import Answer, Layer

_UNLISTED = "no entry of the list excludes it"
_NEVER = "the method leaves this kind of layer alone"
_FP4 = {"NVFP4": ("nvfp4", ""), "NVFP4_AWQ": ("nvfp4-awq", "fp4-awq"), "W4A16_NVFP4": ("nvfp4-w4a16", "fp4-w4a16")}


@dataclass(frozen=True, slots=True)
class Lists:
    """Both tests of a list: `skips` asks for linears only, `excluded` for experts too."""

    skips: Skips
    excluded: Exclusions

    def linear(self, prefix: str) -> Entry | None:
        return self.skips.first(prefix) or self.excluded.first(prefix)


def _lists(query: MatchQuery, value: Any, pointer: str) -> Lists:
    list_of = (pointer, query.options.get("remap_prefix"), query.mappers)

    def entries() -> tuple[Entry, ...]:
        found = query.once(("sglang", pointer), lambda: read_list(value or None, pointer))
        found = _prefix_remapped(found, query)
        return unique(with_unwrapped(mapped(found, query.mappers))) if query.mappers else found

    found = query.once(("sglang mapped", *list_of), lambda: Searched(entries()))
    tests, packed = tests_of(query.release), tuple(sorted(query.packed.items()))

    def lists() -> Lists:
        excluded = query.once(("exclusions", *list_of), lambda: Exclusions(found.entries))
        return Lists(Skips(found, query.packed, tests), excluded)

    return query.once(("lists", *list_of, tests, packed), lists)


def _prefix_remapped(entries: tuple[Entry, ...], query: MatchQuery) -> tuple[Entry, ...]:
    """`remap_prefix` of a model class, which is applied to hf_quant_config.json alone.

    (sglang 0.5.9 srt/model_loader/weight_utils.py:179; option `remap_prefix` = "backbone=model")
    """
    old, found, new = query.options.get("remap_prefix", "").partition("=")
    if not found or "quantization" not in query.config:
        return entries
    return tuple(
        Entry(new + entry.text.removeprefix(old), entry.pointer, entry.written) if entry.text.startswith(old) else entry
        for entry in entries
    )


def section(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Where a config states its algorithm: itself (flat) or `quantization` (nested), and the pointer to it.

    Raises ValueError where there is neither, AttributeError where the section is no table.
    """
    if config.get("quant_algo") is not None:
        return config, ""
    if "quantization" not in config:
        raise ValueError("the config names no quant_algo")
    nested = config["quantization"]
    if not isinstance(nested, Mapping):
        raise AttributeError("the quantization section is no table")
    return nested, "/quantization"


def fp8(query: MatchQuery) -> Rule:
    """ModelOptFp8Config: flat `ignore`, nested `exclude_modules`. Raises ValueError for another algorithm."""
    part, pointer = section(query.config)
    algo = part.get("quant_algo")
    if algo is None or ("FP8" not in algo if not on("fp8-exactly", query.release) else algo != "FP8"):
        raise ValueError(f"ModelOptFp8Config takes no {algo!r}")
    name = "exclude_modules" if pointer else "ignore"
    return _uniform(query, _lists(query, part.get(name), f"{pointer}/{name}"), "fp8")


def fp4(query: MatchQuery) -> Rule:
    """ModelOptFp4Config. Raises ValueError for an unknown algorithm, a missing group size or a null list."""
    part, pointer = section(query.config)
    algo = part.get("quant_algo")
    scheme, since = _FP4.get(str(algo), ("", ""))
    if not scheme or (since and not on(since, query.release)):
        raise ValueError(f"ModelOptFp4Config takes no {algo!r}")
    name = "exclude_modules" if pointer else _fp4_key(part, query.release)
    value = part.get(name, [])
    if value is None or (_common_group(query.config) if pointer else _flat_group(part, query.release)) is None:
        raise ValueError("NVFP4 needs group_size and a list of excluded modules")
    return _uniform(query, _lists(query, value, f"{pointer}/{name}"), scheme)


def _fp4_key(config: Mapping[str, Any], release: str) -> str:
    names = ("ignore", "modules_to_not_convert", "exclude_modules") if on("fp4-three-keys", release) else ("ignore",)
    return next((name for name in names if name in config), names[0])


def _flat_group(config: Mapping[str, Any], release: str) -> Any:
    group = config.get("group_size")
    groups: Any = config.get("config_groups", {})
    if group is None and groups:
        group = next(iter(groups.values())).get("weights", {}).get("group_size")
    return 16 if group is None and on("fp4-group-default", release) else group


def _common_group(config: Mapping[str, Any]) -> int:
    """The one group size that a nested config states, wherever it does. Raises ValueError for none or several."""
    places: list[Any] = [config, config["quantization"]]
    for group in (config.get("config_groups") or {}).values():
        if isinstance(group, Mapping):
            places += [group, *group.values()]
    found = {place.get("group_size") for place in places if isinstance(place, Mapping)}
    sizes = {size for size in found if isinstance(size, int)}
    if len(sizes) != 1:
        raise ValueError(f"not one group_size: {sorted(sizes)}")
    return sizes.pop()


def _uniform(query: MatchQuery, lists: Lists, scheme: str) -> Rule:
    """The rule of one scheme for all that is not listed; one for all releases that decide alike."""
    linears = ("linear", "lm_head") if on("modelopt-head", query.release) else ("linear",)
    return query.once(("uniform", id(lists), scheme, linears), lambda: _uniform_rule(lists, scheme, linears))


def _uniform_rule(lists: Lists, scheme: str, linears: tuple[str, ...]) -> Rule:
    unlisted = quantized(scheme, _UNLISTED)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer in linears:
            found = lists.linear(runtime)
        elif layer == "moe":
            found = lists.excluded.first(runtime)
        else:
            return plain(_NEVER)
        return plain(found) if found else unlisted

    return answer


def mixed(query: MatchQuery) -> Rule:
    """ModelOptMixedPrecisionConfig: the list first, then the algorithm that `quantized_layers` gives the module.

    Raises ValueError for another algorithm, for no layers and for block-FP8 layers of different group sizes.
    """
    part, pointer = section(query.config)
    name = "exclude_modules" if pointer else _mixed_key(part, query.release)
    if part.get("quant_algo") != "MIXED_PRECISION":
        raise ValueError(f"ModelOptMixedPrecisionConfig takes no {part.get('quant_algo')!r}")
    layers = part.get("quantized_layers", {})
    if not layers:
        raise ValueError("MIXED_PRECISION needs quantized_layers")
    lists = _lists(query, part.get(name), f"{pointer}/{name}")
    layered = Layered(layers, f"{pointer}/quantized_layers", query)
    return _by_layer(lists, layered, query.release)


def _mixed_key(config: Mapping[str, Any], release: str) -> str:
    return "exclude_modules" if "ignore" not in config and on("mixed-two-keys", release) else "ignore"


def _by_layer(lists: Lists, layered: Layered, release: str) -> Rule:
    linears = ("linear", "lm_head") if on("modelopt-head", release) else ("linear",)
    embeddings = ("embedding",) if on("mixed-embedding", release) else ()

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        listed = layered.of(runtime)
        if layer in linears or layer in embeddings:
            found = lists.linear(runtime)
        elif layer == "moe":
            found = lists.excluded.first(runtime)
        else:
            return plain(_NEVER)
        if found:
            return plain(found)
        if listed is None:
            return plain("quantized_layers does not name it")
        scheme = layered.scheme(listed.algo, layer)
        return quantized(scheme, listed.entry) if scheme else plain(f"{listed.algo} builds no quantized layer here")

    return answer
