"""Which file SGLang reads a quantization config from.

config.json (`quantization_config`, then `text_config.quantization_config`, then `compression_config`) before
hf_quant_config.json; but from 0.5.15 a MIXED_PRECISION config that lacks `quantized_layers`, or that lacks both
`kv_cache_quant_algo` and `kv_cache_scheme`, is read from hf_quant_config.json
(sglang 0.5.15 srt/model_loader/weight_utils.py:238, sglang 0.5.19 srt/model_loader/checkpoint_quantization.py:53).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from mtpfix.engines.sglang.methods import detect
from mtpfix.engines.sglang.switches import on


def source_rule(
    config_value: Mapping[str, Any] | None, sidecar_value: Mapping[str, Any] | None, release: str, model_type: str = ""
) -> Literal["config", "sidecar"]:
    """The file whose list counts: `config` for config.json, `sidecar` for hf_quant_config.json.

    A missing sidecar does not change the answer where the class insists on it: SGLang then raises ValueError.
    """
    if config_value is None:
        return "sidecar" if sidecar_value is not None else "config"
    mixed = detect(config_value, release, model_type).name == "modelopt_mixed"
    return "sidecar" if mixed and on("mixed-from-sidecar", release) and not complete(config_value) else "config"


def complete(config: Mapping[str, Any]) -> bool:
    """Whether a MIXED_PRECISION config in config.json says enough for SGLang not to look further."""
    return "quantized_layers" in config and ("kv_cache_quant_algo" in config or "kv_cache_scheme" in config)
