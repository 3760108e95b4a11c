"""The draft of a base model copied to a quantized one: what exporters that load through transformers leave out."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

INDEX = "model.safetensors.index.json"
SHARD = "mtp.safetensors"


def shards(folder: Path) -> list[Path]:
    """The weight files of a checkpoint."""
    return sorted(folder.glob("*.safetensors"))


def names(shard: Path) -> list[str]:
    """The tensors of a weight file."""
    with safe_open(shard, "pt") as file:
        return list(file.keys())


def copy_draft(base: Path, out: Path) -> None:
    """Copy the tensors of the layers behind the last one, and of `mtp`, into a shard of their own, and index all."""
    last = json.loads((base / "config.json").read_text("utf-8"))["num_hidden_layers"]
    fronts = ("mtp.", *(f"model.layers.{number}." for number in range(last, last + 4)))
    written = {name: shard.name for shard in shards(out) for name in names(shard)}
    draft = {}
    for shard in shards(base):
        with safe_open(shard, "pt") as file:
            draft |= {name: file.get_tensor(name) for name in names(shard) if name.startswith(fronts)}
    draft = {name: tensor for name, tensor in draft.items() if name not in written}
    if not draft:
        return
    save_file(draft, out / SHARD, metadata={"format": "pt"})
    places = {**written, **dict.fromkeys(draft, SHARD)}
    size = sum(shard.stat().st_size for shard in shards(out))
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (out / INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")
