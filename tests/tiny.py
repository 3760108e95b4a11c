"""A tiny checkpoint with true names: Qwen3-Next NVFP4 whose lists miss `mtp.fc`."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZES = {"BF16": 2, "U8": 1, "F8_E4M3": 1, "F32": 4}
Tensors = dict[str, tuple[str, list[int]]]


def plain(module: str, rows: int, columns: int) -> Tensors:
    return {f"{module}.weight": ("BF16", [rows, columns])}


def nvfp4(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight": ("U8", [rows, columns // 2]),
        f"{module}.weight_scale": ("F8_E4M3", [rows, columns // 16]),
        f"{module}.weight_scale_2": ("F32", []),
        f"{module}.input_scale": ("F32", []),
    }


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """A file with these headers; its data is a hole."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


def qwen3_next(folder: Path, *ignore: str) -> Path:
    """Two layers, four experts, one draft layer, everything of the draft in full precision."""
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", [64, 128]), "model.norm.weight": ("BF16", [128])}
    tensors |= plain("lm_head", 64, 128)
    for front, make in (("model.layers.0", nvfp4), ("model.layers.1", nvfp4), ("mtp.layers.0", plain)):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{front}.{norm}.weight"] = ("BF16", [128])
        for name in ("q_proj", "k_proj", "v_proj"):
            tensors |= plain(f"{front}.self_attn.{name}", 128, 128)
        tensors |= make(f"{front}.self_attn.o_proj", 128, 128)
        tensors |= plain(f"{front}.mlp.gate", 4, 128) | plain(f"{front}.mlp.shared_expert_gate", 1, 128)
        for place in ("shared_expert", *(f"experts.{number}" for number in range(4))):
            for name in ("gate_proj", "up_proj", "down_proj"):
                tensors |= make(f"{front}.mlp.{place}.{name}", 128, 128)
    tensors |= plain("mtp.fc", 128, 256)
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{norm}.weight"] = ("BF16", [128])
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    names = ["lm_head", *(f"model.layers.{layer}.{leaf}" for layer in (0, 1) for leaf in _PLAIN_LEAVES), *ignore]
    _write_json(folder / "config.json", _config(names))
    _write_json(folder / "hf_quant_config.json", {"producer": _PRODUCER, "quantization": _sidecar(names)})
    return folder


_PLAIN_LEAVES = (
    "mlp.gate",
    "mlp.shared_expert_gate",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
)
_PRODUCER = {"name": "modelopt", "version": "0.33.0"}


def _config(ignore: list[str]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "full_attention_interval": 1,
        "num_experts": 4,
        "num_nextn_predict_layers": 1,
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "producer": _PRODUCER,
            "config_groups": {
                "group_0": {
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
                    "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
                    "targets": ["Linear"],
                }
            },
            "ignore": ignore,
        },
    }


def _sidecar(ignore: list[str]) -> dict[str, Any]:
    return {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ignore}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
