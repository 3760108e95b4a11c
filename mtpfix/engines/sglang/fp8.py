"""FP8 in SGLang (block, per-tensor, MXFP8), the FP4 experts and hybrids built on it, and the classes without a list."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from mtpfix import late
from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Entry, Rule, plain, quantized, read_list, rows, sound, texts, unique
from mtpfix.engines.sglang.exclusions import Exclusions
from mtpfix.engines.sglang.names import mapped, with_unwrapped
from mtpfix.engines.sglang.skip import Searched, Skips, tests_of
from mtpfix.engines.sglang.switches import on
from mtpfix.frozen import replace
from mtpfix.model import Answer, Layer, Mapper

_UNLISTED = "no entry of the list skips it"
_NEVER = "the method leaves this kind of layer alone"
_NO_LIST = "the method reads no list"
_KEYS = ("ignored_layers", "modules_to_not_convert")
_ACTIVATIONS = ("static", "dynamic")
_ROUTED_EXPERT = late.pattern(r"\.experts\.\d+\.(?:w[123]|down_proj|up_proj|gate_proj)\.weight$")
_PACKED_DTYPES = ("U8", "I8", "F4")
_OWN_EXPERTS = (("model.decoder.*", "hybrid-nvfp4"), ("stages.*", "hybrid-stages"))


def needed(config: Mapping[str, Any], name: str) -> Any:
    """A key's value. Raises ValueError where the config lacks it."""
    if name not in config:
        raise ValueError(f"the config has no {name}")
    return config[name]


def _found(config: Mapping[str, Any]) -> tuple[Entry, ...]:
    name = next((name for name in _KEYS if name in config), _KEYS[0])
    return read_list(config.get(name) or None, f"/{name}")


def _both_spellings(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    bare = [text.removeprefix("model.") for text in texts(sound(entries))]
    columns = (bare, list(map("model.".__add__, bare))), *([list(map(itemgetter(at), entries))] * 2 for at in (1, 2))
    return rows(Entry, *(chain.from_iterable(zip(*column, strict=True)) for column in columns), repeat(False))


def _ignored(query: MatchQuery, both_spellings: bool, mappers: tuple[Mapper, ...]) -> tuple[Entry, ...]:
    config = query.config
    entries = query.once(("sglang fp8 list",), lambda: _found(config))
    if both_spellings:
        entries = _both_spellings(entries)
    elif "mistral3" in str(config.get("model_type", "")):
        entries = tuple(entry._replace(text=entry.text.replace("model.", "")) for entry in entries)
    return unique(mapped(entries, mappers)) if mappers else entries


def _skips(query: MatchQuery) -> Skips:
    """The list as this release reads and searches it: one for all releases that do so alike."""
    release, tests = query.release, tests_of(query.release)
    packed = query.packed if on("fp8-packed", release) else {}
    read = on("fp8-both-spellings", release), query.mappers if on("fp8-mapper", release) else ()
    found = query.once(("sglang fp8", *read), lambda: Searched(_ignored(query, *read)))
    made_from = (*read, tests, tuple(sorted(packed.items())))
    return query.once(("sglang fp8 skips", *made_from), lambda: Skips(found, packed, tests))


def _check(config: Mapping[str, Any], method: str) -> None:
    """Fp8Config's own checks. Raises ValueError, or TypeError for a block size without a length."""
    activation, block = needed(config, "activation_scheme"), config.get("weight_block_size")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"unsupported activation scheme {activation}")
    if "mxfp8" in method or block is None:
        return
    if "fp8" not in method or len(block) != 2 or activation != "dynamic":
        raise ValueError(f"block-wise FP8 needs two block sizes and dynamic activations, not {block}, {activation}")


def fp8(query: MatchQuery) -> Rule:
    """Fp8Config: `ignored_layers`, else `modules_to_not_convert`; experts follow the list from 0.5.10."""
    config, method = query.config, needed(query.config, "quant_method")
    _check(config, method)
    scheme = "mxfp8" if "mxfp8" in method else "fp8-block" if config.get("weight_block_size") is not None else "fp8"
    skips = _skips(query)
    if query.options.get("model_type", "").startswith("deepseek_v4"):
        return _deepseek_v4(query, skips, "fp8" if scheme == "fp8" else "dsv4-fp8")
    return _uniform(skips, scheme, _declared_fp4(query) or scheme, query.release)


def mxfp8(query: MatchQuery) -> Rule:
    """Fp8Config for MXFP8. A ModelOpt config is translated first; stars of its list are then literal.

    From hf_quant_config.json alone no list is read at all (sglang 0.5.23 srt/model_loader/weight_utils.py:316).
    """
    config = query.config
    if "quantization" in config:
        return _uniform(Skips(Searched(()), {}, tests_of(query.release)), "mxfp8", "mxfp8", query.release)
    if config.get("quant_method", "modelopt") != "modelopt" or "quant_algo" not in config:
        return fp8(query)
    name = "exclude_modules" if "exclude_modules" in config else "ignore"
    translated = {**config, "quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": None}
    if config.get(name) is None or _KEYS[0] in config:
        return fp8(replace(query, config=translated))

    def made() -> Searched:
        entries = _both_spellings(read_list(config[name] or None, f"/{name}"))
        return Searched(unique(mapped(entries, query.mappers)) if query.mappers else entries)

    found = query.once(("sglang mxfp8", query.mappers), made)
    return _uniform(Skips(found, query.packed, tests_of(query.release)), "mxfp8", "mxfp8", query.release)


def _uniform(skips: Skips, scheme: str, experts: str, release: str) -> Rule:
    listed = ("linear", "moe") if on("fp8-experts", release) else ("linear",)

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        found = skips.first(runtime) if layer in listed else None
        if found:
            return plain(found)
        if layer == "linear":
            return quantized(scheme, _UNLISTED)
        if layer == "moe":
            return quantized(experts, _UNLISTED if layer in listed else _NO_LIST)
        return plain(_NEVER)

    return answer


def _declared_fp4(query: MatchQuery) -> str:
    """The format of MXFP4 experts where the config says that they are; "" elsewhere.

    Their scales are called weight_scale_inv (sglang-0.5.23 srt/layers/quantization/fp8.py:1694-1717); MiMo renames its.
    """
    config, model = query.config, query.options.get("model_type", "")
    mimo = model.startswith("mimo_v2")
    if on("fp4-experts-declared", query.release) and config.get("routed_experts_quant_method") == "mxfp4":
        return "mxfp4" if mimo else "mxfp4-inv"
    stored = mimo and on("mimo-store-dtype", query.release) and str(config.get("store_dtype") or "").lower() == "mxfp4"
    return "mxfp4" if stored else ""


def _stored_fp4(query: MatchQuery) -> bool:
    """DeepSeek-V4: whether the first routed expert's weight is stored packed; unknown counts as packed."""
    if not on("fp4-experts", query.release):
        return False
    dtypes = query.dtypes or {}
    first = next((dtype for name, dtype in dtypes.items() if _ROUTED_EXPERT.search(name)), "")
    return first in _PACKED_DTYPES or first != "F8_E4M3"


def _hybrid(query: MatchQuery) -> Exclusions | None:
    """What is excluded from NVFP4 experts; None where the checkpoint has none or the release knows none."""
    config = query.config
    algos = [str(config.get(name, "")).upper() for name in ("quant_algo", "moe_quant_algo")]
    if not on("hybrid-nvfp4", query.release) or algos != ["MIXED_PRECISION", "NVFP4"]:
        return None
    if config.get("group_size") is None:
        return None
    entries = sound(read_list(config.get("ignore") or None, "/ignore"))
    own = tuple(Entry(text, "", text) for text, since in _OWN_EXPERTS if on(since, query.release))
    entries += own
    if query.mappers:
        entries = unique(with_unwrapped(mapped(entries, query.mappers)))
    return Exclusions(entries)


def _deepseek_v4(query: MatchQuery, skips: Skips, scheme: str) -> Rule:
    """DeepSeek-V4: FP8 linears of `scheme`; experts NVFP4 (hybrid checkpoints), MXFP4 or FP8."""
    declared = query.config.get("routed_experts_quant_method") if on("fp4-experts-declared", query.release) else None
    fp4 = declared == "mxfp4" if declared is not None else _stored_fp4(query)
    fallback = _uniform(skips, scheme, "dsv4-fp4" if fp4 else scheme, query.release)
    hybrid = _hybrid(query)
    if hybrid is None:
        return fallback

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer != "moe":
            return fallback(runtime, layer, projections)
        found = hybrid.first(runtime)
        if found is None:
            return quantized("nvfp4", "moe_quant_algo")
        return quantized("dsv4-fp4", found) if fp4 else fallback(runtime, layer, projections)

    return answer


def blockwise_int8(query: MatchQuery) -> Rule:
    """BlockInt8Config: `ignored_layers` for linears, experts always. (sglang 0.5.9 blockwise_int8.py:102)"""
    names = query.config.get("ignored_layers")
    found = query.once(("sglang int8",), lambda: Searched(read_list(names or None, "/ignored_layers")))
    return _linears_only(Skips(found, {}, tests_of(query.release)), "int8-block")


def fbgemm_fp8(query: MatchQuery) -> Rule:
    """FBGEMMFp8Config: `modules_to_not_convert` for linears; experts have no class and stay plain.

    (sglang 0.5.9 srt/layers/quantization/fpgemm_fp8.py; the class gets no packed mapping; gone in 0.5.16)
    """
    needed(query.config, "activation_scale_ub")
    names = needed(query.config, "modules_to_not_convert")
    found = query.once(("sglang fbgemm",), lambda: Searched(read_list(names or None, "/modules_to_not_convert")))
    skips = Skips(found, {}, tests_of(query.release))

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer != "linear":
            return plain(_NEVER)
        found = skips.first(runtime)
        return plain(found) if found else quantized("fp8-channel", _UNLISTED)

    return answer


def w4afp8(query: MatchQuery) -> Rule:
    """W4AFp8Config: no list; linears are block FP8, experts W4A8. (sglang 0.5.9 layers/quantization/w4afp8.py:35)"""
    return _linears_only(Skips(Searched(()), {}, tests_of(query.release)), "fp8-block", "w4afp8")


def w8a8_fp8(query: MatchQuery) -> Rule:
    """W8A8Fp8Config: no list. (sglang 0.5.9 srt/layers/quantization/w8a8_fp8.py:39)"""
    return _linears_only(Skips(Searched(()), {}, tests_of(query.release)), "fp8-channel")


def mxfp4(query: MatchQuery) -> Rule:
    """Mxfp4Config: no list; experts always MXFP4. It was made for gpt-oss, whose other modules do not ask it.

    On CUDA a linear that asks gets no method, and its constructor asserts that there is one; a head that asks is taken
    for attention. (sglang 0.5.9 srt/layers/quantization/mxfp4.py:260, srt/layers/linear.py:330; the same in 0.5.23)
    """
    needed(query.config, "quant_method")

    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized("mxfp4", _NO_LIST)
        if layer == "linear":
            raise AssertionError("MXFP4 has no method for a linear, and the linear needs one")
        raise NotImplementedError("Mxfp4 attention layer is not implemented")

    return answer


def _linears_only(skips: Skips, scheme: str, experts: str = "") -> Rule:
    def answer(runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "moe":
            return quantized(experts or scheme, _NO_LIST)
        if layer != "linear":
            return plain(_NEVER)
        found = skips.first(runtime)
        return plain(found) if found else quantized(scheme, _UNLISTED)

    return answer
