"""Which method SGLang sees in a quantization config, and which methods a release knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.engines.base import Method
from mtpfix.engines.releases import between
from mtpfix.engines.sglang.gptq_awq import awq_runs_on_marlin, gptq_runs_on_marlin
from mtpfix.engines.sglang.switches import on
from mtpfix.engines.sources import names_fp4_layers

# name, first and last release whose registry has it (srt/layers/quantization/__init__.py of each wheel)
KNOWN = (
    ("fp8", "", ""),
    ("mxfp8", "", ""),
    ("blockwise_int8", "", ""),
    ("modelopt_fp8", "", ""),
    ("modelopt_fp4", "", ""),
    ("modelopt_mixed", "0.5.10", ""),
    ("w8a8_int8", "", ""),
    ("w8a8_fp8", "", ""),
    ("awq", "", ""),
    ("bitsandbytes", "", ""),
    ("gguf", "", ""),
    ("gptq", "", "0.5.19"),
    ("gptq_marlin", "", ""),
    ("moe_wna16", "", ""),
    ("compressed-tensors", "", ""),
    ("qoq", "", "0.5.15.post1"),
    ("w4afp8", "", ""),
    ("petit_nvfp4", "", ""),
    ("fbgemm_fp8", "", "0.5.15.post1"),
    ("quark", "", ""),
    ("auto-round", "", ""),
    ("auto-round-int8", "0.5.15", ""),
    ("modelslim", "", ""),
    ("quark_int4fp8_moe", "", ""),
    ("mxfp4", "", ""),
    ("mxfp_w4a8", "0.5.15", ""),
    ("humming", "0.5.16", ""),
    ("minimax_m3_nvfp4", "0.5.23", ""),
)
_ON_MARLIN = {"gptq": gptq_runs_on_marlin, "awq": awq_runs_on_marlin}
PLAIN_GPTQ, PLAIN_AWQ = "gptq-without-marlin", "awq-without-marlin"
_WITHOUT = {"gptq": PLAIN_GPTQ, "awq": PLAIN_AWQ}


def detect(config: Mapping[str, Any], release: str, model_type: str = "") -> Method:
    """The method of a config; `error` where the release knows none of the name.

    0.5.9 does not look into a config.json that says `modelopt` (it needs `--quantization modelopt_fp4`); the answer
    is what that flag, or a config without `quant_method`, gives. `gptq` and `awq` stand for their Marlin classes;
    a config that Marlin cannot run is `gptq-without-marlin` or `awq-without-marlin`.
    """
    part = _unwrapped(config)
    declared = config.get("quant_method")
    if declared is None and "model_quant_type" in config:
        return Method("modelslim")
    if declared is None and "bits" in config and "group_size" in config:
        return Method("")  # MLX
    if declared is None or declared == "modelopt":
        name = _of_algo(part, release, model_type)
        known = name or part.get("quant_algo") == "MIXED_PRECISION"
        return Method(name) if known else _without_algo(declared, part.get("quant_algo"), nested=part is not config)
    if not isinstance(declared, str):
        return Method("", f"quant_method is no text: {declared!r}")
    name = declared.lower()
    known = any(name == row and between(release, since, until) for row, since, until in KNOWN)
    runs = _ON_MARLIN.get(name)
    if runs and runs(config):
        return Method(name)
    if not known:
        return Method("", f"Unknown quantization method: {name}")
    return Method(_WITHOUT.get(name, "gptq" if name == "gptq_marlin" else name))


def _unwrapped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("quantization")
    return nested if isinstance(nested, Mapping) else config


def _without_algo(declared: Any, algo: Any, nested: bool) -> Method:
    """`modelopt` with an algorithm that detection does not know falls to the FP8 class, which refuses it.

    hf_quant_config.json with such an algorithm counts for nothing.
    """
    if declared is None:
        return Method("", "" if nested else "Unknown quantization method: ")
    return Method("modelopt_fp8", f"ModelOptFp8Config only supports regular FP8 quantization, but found {algo!r}")


def _of_algo(part: Mapping[str, Any], release: str, model_type: str) -> str:
    algo = part.get("quant_algo")
    if not isinstance(algo, str):
        return ""
    if algo == "MIXED_PRECISION":
        return _of_mixed(part, release, model_type)
    if "FP4" in algo:
        return "modelopt_fp4"
    if not on("detect-mxfp8", release):
        return "modelopt_fp8" if "FP8" in algo else ""
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algo, "")


def _of_mixed(part: Mapping[str, Any], release: str, model_type: str) -> str:
    """`modelopt_mixed` where the release has the class for this model, `w4afp8` for what that class is made for.

    Older releases take every other MIXED checkpoint for w4afp8 too, whose parameters FP4 layers never fit: they do not
    know the format, and no method is named.
    """
    fp4 = names_fp4_layers(part)
    if on("detect-mixed-by-layers", release):
        return "modelopt_mixed" if fp4 else "w4afp8"
    if on("mixed", release) and model_type.startswith("nemotron_h"):
        return "modelopt_mixed"
    return "" if fp4 else "w4afp8"
