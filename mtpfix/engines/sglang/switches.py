"""What changed in SGLang, and since when: one row a change, with the place it was read from.

Rows that name no method concern detection or a model type only, not the matching of a method's list.
"""

from __future__ import annotations

from functools import lru_cache

from mtpfix.engines.releases import at_least, key, modelled
from mtpfix.frozen import dataclass

_SKIPPING = ("modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "fp8", "mxfp8", "blockwise_int8", "fbgemm_fp8")
_MODELOPT = ("modelopt_fp8", "modelopt_fp4", "modelopt_mixed")
_FP8 = ("fp8", "mxfp8")
_COMPRESSED = ("compressed-tensors",)
_V4 = ("deepseek_v4",)
_Q = "srt/layers/quantization"
_CT = f"{_Q}/compressed_tensors"
_CONFIG = "srt/configs/model_config.py"


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of behaviour.

    methods  methods whose matching it changes
    source   release, file and line it was read from
    models   model types it concerns (the beginning of their names); () all
    """

    name: str
    since: str
    methods: tuple[str, ...]
    source: str
    models: tuple[str, ...] = ()


SWITCHES = (
    # is_layer_skipped
    Switch("skip-experts-add", "0.5.10", _SKIPPING, f"sglang 0.5.10 {_Q}/utils.py:46"),
    Switch("skip-components", "0.5.11", _SKIPPING, f"sglang 0.5.11 {_Q}/utils.py:46"),
    Switch("skip-known-shards", "0.5.11", _SKIPPING, f"sglang 0.5.11 {_Q}/utils.py:60"),
    Switch("skip-strips-dots", "0.5.13", _SKIPPING, f"sglang 0.5.13 {_Q}/utils.py:48"),
    # ModelOpt
    Switch("modelopt-head", "0.5.15", _MODELOPT, f"sglang 0.5.15 {_Q}/modelopt_quant.py:294"),
    Switch("fp8-exactly", "0.5.18", ("modelopt_fp8",), f"sglang 0.5.18 {_Q}/modelopt_quant.py:382"),
    Switch("fp4-awq", "0.5.17", ("modelopt_fp4",), f"sglang 0.5.17 {_Q}/modelopt_quant.py:1289"),
    Switch("fp4-group-default", "0.5.17", ("modelopt_fp4",), f"sglang 0.5.17 {_Q}/modelopt_quant.py:1289"),
    Switch("fp4-w4a16", "0.5.19", ("modelopt_fp4",), f"sglang 0.5.19 {_Q}/modelopt_quant.py:1505"),
    Switch("fp4-three-keys", "0.5.23", ("modelopt_fp4",), f"sglang 0.5.23 {_Q}/modelopt_quant.py:1653"),
    Switch("mixed", "0.5.10", (), f"sglang 0.5.10 {_Q}/modelopt_quant.py:608"),
    Switch("mixed-language-model", "0.5.15", ("modelopt_mixed",), f"sglang 0.5.15 {_Q}/modelopt_quant.py:615"),
    Switch("mixed-w4a16", "0.5.15", ("modelopt_mixed",), f"sglang 0.5.15 {_Q}/modelopt_quant.py:615"),
    Switch("mixed-two-keys", "0.5.17", ("modelopt_mixed",), f"sglang 0.5.17 {_Q}/modelopt_quant.py:669"),
    Switch("mixed-mxfp8", "0.5.17", ("modelopt_mixed",), f"sglang 0.5.17 {_Q}/modelopt_quant.py:627"),
    Switch("mixed-pb-wo", "0.5.18", ("modelopt_mixed",), f"sglang 0.5.18 {_Q}/modelopt_quant.py:729"),
    Switch("mixed-embedding", "0.5.18", ("modelopt_mixed",), f"sglang 0.5.18 {_Q}/modelopt_quant.py:729"),
    Switch("mixed-block-scales", "0.5.20", ("modelopt_mixed",), f"sglang 0.5.20 {_Q}/modelopt_quant.py:791"),
    Switch("mixed-model-prefix", "0.5.20", ("modelopt_mixed",), f"sglang 0.5.20 {_Q}/modelopt_quant.py:988"),
    Switch("mixed-pb-wo-experts", "0.5.21", ("modelopt_mixed",), f"sglang 0.5.21 {_Q}/modelopt_quant.py:794"),
    # FP8
    Switch("fp8-both-spellings", "0.5.10", _FP8, f"sglang 0.5.10 {_Q}/fp8.py:183"),
    Switch("fp8-packed", "0.5.10", _FP8, f"sglang 0.5.10 {_Q}/fp8.py:118"),
    Switch("fp8-experts", "0.5.10", _FP8, f"sglang 0.5.10 {_Q}/fp8.py:217"),
    Switch("fp8-mapper", "0.5.10", _FP8, f"sglang 0.5.10 {_Q}/fp8.py:245"),
    Switch("fp4-experts", "0.5.12", ("fp8",), "sglang 0.5.12 srt/configs/model_config.py:251", _V4),
    Switch("hybrid-nvfp4", "0.5.14", ("fp8",), "sglang 0.5.14 srt/configs/model_config.py:351", _V4),
    Switch("hybrid-stages", "0.5.17", ("fp8",), "sglang 0.5.17 srt/model_loader/loader.py:270", _V4),
    Switch("fp4-experts-declared", "0.5.19", ("fp8",), f"sglang 0.5.19 {_CONFIG}:407", _V4),
    Switch("mimo-store-dtype", "0.5.20", ("fp8",), "sglang 0.5.20 srt/configs/model_config.py:527", ("mimo_v2",)),
    # compressed-tensors
    Switch("ct-asymmetric", "0.5.13", _COMPRESSED, f"sglang 0.5.13 {_CT}/compressed_tensors.py:494"),
    Switch("ct-packed-activations", "0.5.16", _COMPRESSED, f"sglang 0.5.16 {_CT}/utils.py:13"),
    Switch("ct-suffix", "0.5.17", ("compressed-tensors", "w8a8_int8"), f"sglang 0.5.17 {_CT}/utils.py:79"),
    Switch("ct-group-format", "0.5.17", _COMPRESSED, f"sglang 0.5.17 {_CT}/compressed_tensors.py:289"),
    Switch("ct-mxfp4-experts", "0.5.17", _COMPRESSED, f"sglang 0.5.17 {_CT}/compressed_tensors.py:573"),
    Switch("ct-head", "0.5.19", _COMPRESSED, f"sglang 0.5.19 {_CT}/compressed_tensors.py:177"),
    Switch("ct-nvfp4a16", "0.5.22", _COMPRESSED, f"sglang 0.5.22 {_CT}/compressed_tensors.py:720"),
    # AWQ, Quark
    Switch("awq-experts", "0.5.13", ("awq",), f"sglang 0.5.13 {_Q}/awq/awq.py:325"),
    Switch("quark-default-list", "0.5.10", ("quark",), f"sglang 0.5.10 {_Q}/quark/quark.py:41"),
    Switch("quark-mapper", "0.5.10", ("quark",), f"sglang 0.5.10 {_Q}/quark/quark.py:73"),
    Switch("quark-loader-packed", "0.5.11", ("quark",), "sglang 0.5.11 srt/model_loader/loader.py:201"),
    Switch("quark-language-model", "0.5.13", ("quark",), f"sglang 0.5.13 {_Q}/quark/quark.py:101"),
    Switch("quark-direct", "0.5.21", ("quark",), f"sglang 0.5.21 {_Q}/quark/utils.py:46"),
    Switch("quark-block-fp8", "0.5.21", ("quark",), f"sglang 0.5.21 {_Q}/quark/quark.py:392"),
    Switch("quark-expert-entries", "0.5.21", ("quark",), f"sglang 0.5.21 {_Q}/quark/quark.py:896"),
    # ModelSlim
    Switch("modelslim-target-only", "0.5.10", ("modelslim",), f"sglang 0.5.10 {_CONFIG}:792"),
    Switch("modelslim-unknown-plain", "0.5.11", ("modelslim",), f"sglang 0.5.11 {_Q}/modelslim/modelslim.py"),
    # detection
    Switch("detect-mixed-by-layers", "0.5.15", (), "sglang 0.5.15 srt/configs/model_config.py:1148"),
    Switch("detect-mxfp8", "0.5.18", (), "sglang 0.5.18 srt/configs/model_config.py:1290"),
    Switch("mixed-from-sidecar", "0.5.15", (), "sglang 0.5.15 srt/model_loader/weight_utils.py:238"),
)

_SINCE = {switch.name: switch.since for switch in SWITCHES}
_FIRST = {"modelopt_mixed": "mixed"}


@lru_cache(maxsize=4096)
def on(name: str, release: str) -> bool:
    """Whether a change is in force in a release. Raises KeyError for a name that no row has."""
    return at_least(release, _SINCE[name])


@lru_cache(maxsize=256)
def change_points(method: str, model_type: str = "") -> tuple[str, ...]:
    """The releases at which a method changed, the first that has it included; changes that concern other model types
    than `model_type` ("" any) are left out."""
    first = _SINCE[_FIRST[method]] if method in _FIRST else modelled("sglang")[0]
    points = {
        switch.since
        for switch in SWITCHES
        if method in switch.methods and (not model_type or not switch.models or model_type.startswith(switch.models))
    }
    return (first, *sorted((point for point in points if key(point) > key(first)), key=key))
