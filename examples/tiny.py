"""Writes small safetensors files with true names: every tensor is zeros, only names, dtypes and shapes matter.

A row says what to store: `("model.layers.{0..3}.mlp.gate", "bf16", (4, 16))`. Braces stand for several names. A scheme
in small letters (`bf16`, `nvfp4`, `gptq4`) makes the tensors of a linear module with that (out, in) shape; a dtype in
capitals (`BF16`, `F32`) makes one tensor of that very name.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

try:
    from safetensors import TensorSpec, serialize_file
except ModuleNotFoundError as lacking:
    raise SystemExit("The scripts of examples/ write safetensors files: pip install safetensors") from lacking

Row = tuple[str, str, tuple[int, ...]]
Tensors = dict[str, tuple[str, tuple[int, ...]]]

# A dtype as headers write it -> the library's name for it, bytes.
DTYPES = {
    "BF16": ("bfloat16", 2),
    "F16": ("float16", 2),
    "F32": ("float32", 4),
    "I32": ("int32", 4),
    "U8": ("uint8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
}


def names(pattern: str) -> Iterator[str]:
    """The names that a pattern with `{a..b}` or `{x,y}` stands for."""
    front, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    body, _, end = rest.partition("}")
    span = re.fullmatch(r"(\d+)\.\.(\d+)", body)
    for item in range(int(span[1]), int(span[2]) + 1) if span else body.split(","):
        yield from names(f"{front}{item}{end}")


def module(scheme: str, rows: int, columns: int) -> Tensors:
    """Suffix -> dtype and shape of a linear module that is stored under a scheme."""
    schemes: dict[str, Tensors] = {
        "bf16": {"weight": ("BF16", (rows, columns))},
        "nvfp4": {
            "weight": ("U8", (rows, columns // 2)),
            "weight_scale": ("F8_E4M3", (rows, columns // 16)),
            "weight_scale_2": ("F32", ()),
            "input_scale": ("F32", ()),
        },
        "gptq4": {
            "qweight": ("I32", (columns // 8, rows)),
            "qzeros": ("I32", (1, rows // 8)),
            "scales": ("F16", (1, rows)),
            "g_idx": ("I32", (columns,)),
        },
    }
    return schemes[scheme]


def tensors(rows: Iterable[Row]) -> Tensors:
    """Name -> dtype and shape of every tensor that the rows mean."""
    found: Tensors = {}
    for pattern, stored, shape in rows:
        for name in names(pattern):
            if stored in DTYPES:
                found[name] = (stored, shape)
            else:
                found |= {f"{name}.{suffix}": spec for suffix, spec in module(stored, *shape).items()}
    return found


def save(path: Path, content: Tensors) -> int:
    """Write a safetensors file of zeros; the number of data bytes is returned."""
    sizes = {name: DTYPES[dtype][1] * math.prod(shape) for name, (dtype, shape) in content.items()}
    zeros = ctypes.create_string_buffer(max(sizes.values()))
    at = ctypes.addressof(zeros)
    specs = {
        name: TensorSpec(dtype=DTYPES[dtype][0], shape=list(shape), data_ptr=at, data_len=sizes[name])
        for name, (dtype, shape) in content.items()
    }
    serialize_file(specs, path, {"format": "pt"})
    return sum(sizes.values())


def save_sharded(folder: Path, shards: list[Tensors]) -> None:
    """Write one file, or several and their index."""
    if len(shards) == 1:
        save(folder / "model.safetensors", shards[0])
        return
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    total = sum(save(folder / file, part) for file, part in zip(files, shards, strict=True))
    weight_map = {name: file for file, part in zip(files, shards, strict=True) for name in part}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    save_json(folder / "model.safetensors.index.json", index)


def save_json(path: Path, value: Mapping[str, Any], indent: int = 2) -> None:
    """Write a JSON file as the transformers library does."""
    path.write_text(json.dumps(value, indent=indent) + "\n", "utf-8")


def modelopt(excluded: list[str], version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ModelOpt writes for NVFP4: config.json's `quantization_config`, and `hf_quant_config.json`."""
    producer = {"name": "modelopt", "version": version}
    numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    inside = {
        "config_groups": {"group_0": {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}},
        "ignore": excluded,
        "quant_algo": "NVFP4",
        "producer": producer,
        "quant_method": "modelopt",
    }
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "exclude_modules": excluded,
    }
    return inside, {"producer": producer, "quantization": quantization}
