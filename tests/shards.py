"""Safetensors files without weights, for tests: the library's spelling, data that is a hole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpfix.checkpoint.headers import DTYPE_BITS

Spec = tuple[str, tuple[int, ...]]
Tensors = Mapping[str, Spec]


def data_size(spec: Spec) -> int:
    """Bytes of a tensor."""
    return math.prod(spec[1]) * DTYPE_BITS[spec[0]] // 8


def header(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The header that the library writes (up to escapes of non-ASCII names), and the bytes of data after it."""
    body: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, spec in tensors.items():
        start, end = end, end + data_size(spec)
        body[name] = {"dtype": spec[0], "shape": list(spec[1]), "data_offsets": [start, end]}
    raw = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return raw + b" " * (-len(raw) % 8), end


def blob(raw: bytes, data: int, length: int | None = None) -> bytes:
    """A whole file from its header; `length`: what the first eight bytes claim."""
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(data)


def write_shard(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file on disk."""
    raw, data = header(tensors, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(blob(raw, 0))
        file.truncate(8 + len(raw) + data)


def write_index(folder: Path, weight_map: Mapping[str, str], name: str = "model.safetensors.index.json") -> None:
    """An index as transformers writes it."""
    body = {"metadata": {"total_size": 1}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / name).write_text(json.dumps(body, indent=2) + "\n", "utf-8")


def write_checkpoint(folder: Path, shards: Mapping[str, Tensors], *, index: bool = True) -> Path:
    """A folder with an empty config.json, these shards and, if wanted, a true index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}", "utf-8")
    for name, tensors in shards.items():
        write_shard(folder / name, tensors)
    if index:
        write_index(folder, {tensor: name for name, tensors in shards.items() for tensor in tensors})
    return folder
