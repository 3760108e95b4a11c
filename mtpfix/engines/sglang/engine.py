"""SGLang 0.5.9 to 0.5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mtpfix.engines.base import Matcher, MatchQuery, Method
from mtpfix.engines.listing import Remembered, Rule, built
from mtpfix.engines.releases import modelled
from mtpfix.engines.sglang import switches
from mtpfix.engines.sglang.methods import PLAIN_AWQ, PLAIN_GPTQ, detect
from mtpfix.frozen import replace
from mtpfix.model import Answer, Cause, Packed

# Method -> file here and function in it that makes its rule. A checkpoint needs one of them, so that they are imported
# when they are asked for.
_BUILDERS: Mapping[str, tuple[str, str]] = {
    "modelopt_fp8": ("modelopt", "fp8"),
    "modelopt_fp4": ("modelopt", "fp4"),
    "modelopt_mixed": ("modelopt", "mixed"),
    "fp8": ("fp8", "fp8"),
    "mxfp8": ("fp8", "mxfp8"),
    "blockwise_int8": ("fp8", "blockwise_int8"),
    "w4afp8": ("fp8", "w4afp8"),
    "w8a8_fp8": ("fp8", "w8a8_fp8"),
    "fbgemm_fp8": ("fp8", "fbgemm_fp8"),
    "mxfp4": ("fp8", "mxfp4"),
    "compressed-tensors": ("compressed_tensors", "compressed_tensors"),
    "w8a8_int8": ("compressed_tensors", "w8a8_int8"),
    "gptq": ("gptq_awq", "gptq"),
    PLAIN_GPTQ: ("gptq_awq", "plain_gptq"),
    "awq": ("gptq_awq", "awq"),
    PLAIN_AWQ: ("gptq_awq", "plain_awq"),
    "auto-round": ("auto_round", "auto_round"),
    "quark": ("quark", "quark"),
    "bitsandbytes": ("others", "bitsandbytes"),
    "modelslim": ("others", "modelslim"),
}
_COPYING = frozenset({"fp8", "mxfp8", "compressed-tensors"})
_QKV: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
_LOADER_PACKED: Packed = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}


class SGLang:
    """The engine, all its modelled releases."""

    name = "sglang"
    releases = modelled("sglang")

    def method(self, config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
        """The method this release sees in a config fragment."""
        return detect(config, release, model_type)

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher for one release; `unknown` throughout for a method that is not modelled."""
        found = _BUILDERS.get(query.method)
        if found is None:
            answer = Answer("unknown", Cause(f"SGLang's {query.method or 'unnamed method'} is not modelled"))
            return Remembered(lambda *_: answer)
        return built(query, lambda: _builder(*found)(_as_kept(query)))

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """A class's packed mapping as the loader hands it to a method: Quark gets two fused names besides, ModelSlim
        (on Ascend) three."""
        if method == "modelslim":
            return {**packed, **_QKV, **_LOADER_PACKED}
        more = method == "quark" and switches.on("quark-loader-packed", release)
        return {**packed, **_LOADER_PACKED} if more else packed

    def change_points(self, method: str, model_type: str = "") -> tuple[str, ...]:
        """Releases at which matching for this method changed; with a model type, only what concerns that type."""
        return switches.change_points(method, model_type)


def _as_kept(query: MatchQuery) -> MatchQuery:
    """The query with the packed mapping that the method's config object keeps.

    Some classes fill theirs only while the model is built (option `packed_filled_late`), after the loader has handed it
    over empty. ModelOpt's objects keep that very dict; those of `_COPYING` take `packed_modules_mapping or {}`, another
    one. (sglang 0.5.23 srt/layers/quantization/fp8.py:297, compressed_tensors/compressed_tensors.py:139)
    """
    late = query.method in _COPYING and query.options.get("packed_filled_late")
    return replace(query, packed={}) if late else query


def _builder(file: str, name: str) -> Callable[[MatchQuery], Rule]:
    builder: Callable[[MatchQuery], Rule] = getattr(import_module(f"mtpfix.engines.sglang.{file}"), name)
    return builder


ENGINE = SGLang()
