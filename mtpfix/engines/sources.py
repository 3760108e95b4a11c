"""Which file an engine takes a quantization config from.

vLLM    config.json `quantization_config`; where it is absent hf_quant_config.json takes its place, then
        `text_config.quantization_config`, then `compression_config`
        (vllm-0.33.0 transformers_utils/config.py:954-962, model_executor/model_loader/weight_utils.py:240-250)
SGLang  the same places, the sidecar last (sglang-0.5.23 srt/model_loader/checkpoint_quantization.py:53-78)
        ModelSlim's quant_model_description.json before everything else (srt/configs/model_config.py:2063); vLLM knows
        no such file: where it stands alone, the checkpoint is in a format that vLLM does not know
both    MIXED_PRECISION without the keys its class needs is read from the sidecar instead
        (vllm-0.33.0 weight_utils.py:275-282; sglang-0.5.23 srt/model_loader/weight_utils.py:285-298)
vLLM-A. config.json `quantization_config`, else ModelSlim's file (vllm-ascend 0.25.1rc1 quantization/utils.py:84, :156,
        modelslim_config.py:556, :849)
TRT-LLM hf_quant_config.json first where it names an algorithm
        (tensorrt-llm main _torch/model_config.py `from_pretrained`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mtpfix.frozen import dataclass
from mtpfix.model import JsonFile
from mtpfix.releases import at_least

CONFIG = "config.json"
SIDECAR = "hf_quant_config.json"
DESCRIPTION = "quant_model_description.json"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A quantization config: the file, where in it, and what it says."""

    file: str
    pointer: str
    value: Mapping[str, Any]


def config_fragments(files: Mapping[str, JsonFile]) -> tuple[Fragment, ...]:
    """The quantization configs inside config.json, in the engines' order."""
    config = files[CONFIG].value if CONFIG in files else {}
    text = config.get("text_config")
    places = (
        ("/quantization_config", config.get("quantization_config")),
        ("/text_config/quantization_config", text.get("quantization_config") if isinstance(text, Mapping) else None),
        ("/compression_config", config.get("compression_config")),
    )
    return tuple(Fragment(CONFIG, pointer, value) for pointer, value in places if isinstance(value, Mapping))


def sidecar_fragment(files: Mapping[str, JsonFile]) -> Fragment | None:
    """hf_quant_config.json as a quantization config, or None."""
    found = files.get(SIDECAR)
    return Fragment(SIDECAR, "", found.value) if found and isinstance(found.value, Mapping) else None


def description_fragment(files: Mapping[str, JsonFile]) -> Fragment | None:
    """ModelSlim's quant_model_description.json as a quantization config, or None."""
    found = files.get(DESCRIPTION)
    return Fragment(DESCRIPTION, "", found.value) if found and isinstance(found.value, Mapping) else None


def _has_layers(value: Mapping[str, Any]) -> bool:
    return "quantized_layers" in value


def names_fp4_layers(value: Mapping[str, Any]) -> bool:
    """Whether `quantized_layers` names an FP4 layer: what SGLang from 0.5.15 on takes for its modelopt_mixed
    (sglang-0.5.23 srt/configs/model_config.py:1855-1865)."""
    layers = value.get("quantized_layers") or {}
    rows = [row for row in layers.values() if isinstance(row, Mapping)] if isinstance(layers, Mapping) else []
    return any(str(row.get("quant_algo", "")).upper() in ("NVFP4", "W4A16_NVFP4") for row in rows)


def _other_class_or_has_cache(value: Mapping[str, Any]) -> bool:
    return not names_fp4_layers(value) or "kv_cache_quant_algo" in value or "kv_cache_scheme" in value


def _vllm(files: Mapping[str, JsonFile]) -> Fragment | None:
    inside, beside = config_fragments(files), sidecar_fragment(files)
    top = [fragment for fragment in inside if fragment.pointer == "/quantization_config"]
    return next(iter([*top, *([beside] if beside else []), *inside]), None) or description_fragment(files)


def _sglang(files: Mapping[str, JsonFile]) -> Fragment | None:
    return description_fragment(files) or next(iter(config_fragments(files)), None) or sidecar_fragment(files)


def _tensorrt_llm(files: Mapping[str, JsonFile]) -> Fragment | None:
    beside = sidecar_fragment(files)
    if beside:
        nested = beside.value.get("quantization")
        if isinstance(nested, Mapping) and nested.get("quant_algo"):
            return beside
    return next(iter(config_fragments(files)), None)


def _vllm_ascend(files: Mapping[str, JsonFile]) -> Fragment | None:
    top = (fragment for fragment in config_fragments(files) if fragment.pointer == "/quantization_config")
    return next(top, None) or description_fragment(files)


def _transformers(files: Mapping[str, JsonFile]) -> Fragment | None:
    return next(iter(config_fragments(files)), None)


_CHOICE: Mapping[str, Callable[[Mapping[str, JsonFile]], Fragment | None]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "transformers": _transformers,
    "vllm-ascend": _vllm_ascend,
}


@dataclass(frozen=True, slots=True)
class _Mixed:
    """What an engine wants a MIXED_PRECISION config to say, and from which release; else it reads the sidecar."""

    complete: Callable[[Mapping[str, Any]], bool]
    since: str


_MIXED: Mapping[str, _Mixed] = {
    "vllm": _Mixed(_has_layers, "0.17.0"),
    "sglang": _Mixed(_other_class_or_has_cache, "0.5.15"),
}


def declared(engine: str, files: Mapping[str, JsonFile]) -> Fragment | None:
    """The quantization config that an engine detects its method from, or None where there is none."""
    return _CHOICE[engine](files)


def fragment_for(engine: str, release: str, files: Mapping[str, JsonFile]) -> Fragment | None:
    """The quantization config whose lists an engine release reads, or None where there is none."""
    return read_by(engine, release, files, declared(engine, files))


def read_by(engine: str, release: str, files: Mapping[str, JsonFile], chosen: Fragment | None) -> Fragment | None:
    """The same, for an engine whose `declared` config is known."""
    return sidecar_fragment(files) or chosen if chosen and _incomplete(engine, release, chosen) else chosen


def _incomplete(engine: str, release: str, chosen: Fragment) -> bool:
    """Whether a config is MIXED_PRECISION and says too little for this engine release."""
    wants = _MIXED.get(engine)
    if wants is None or chosen.file == SIDECAR or not at_least(release, wants.since):
        return False
    mixed = str(chosen.value.get("quant_algo", "")).upper() == "MIXED_PRECISION"
    return mixed and not wants.complete(chosen.value)


def refusal(engine: str, release: str, method: str, files: Mapping[str, JsonFile]) -> str:
    """The engine's words where it looks for a sidecar that is not there; "" where it reads what it needs."""
    chosen = declared(engine, files)
    if method != "modelopt_mixed" or chosen is None or SIDECAR in files or not _incomplete(engine, release, chosen):
        return ""
    return "ValueError: Cannot find the config file for modelopt_mixed"
