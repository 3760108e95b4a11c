"""The index as it will be. Pure.

What the file says beside the changed names stays; it keeps its own spelling where that is one that exporters write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from mtpfix.checkpoint.index import WEIGHT_MAP
from mtpfix.grafting.layout import size_of
from mtpfix.model import RawModule, Tensor
from mtpfix.storage.modules import tensors_of

_METADATA, _SIZE, _COUNT = "metadata", "total_size", "total_parameters"


def indexed(
    raw: bytes | None,
    modules: Mapping[str, RawModule],
    added: Mapping[str, Tensor],
    dropped: Collection[Tensor],
    ghosts: Collection[str],
) -> bytes:
    """The index of a checkpoint with some tensors more, in their shards, and without others.

    raw      the index that is there, None where there is none
    modules  all that is stored before
    dropped  copies that no longer count; `ghosts`: names that the index lists and that are nowhere
    """
    gone = {tensor.name for tensor in dropped}
    stored = {tensor.name: tensor for module in modules.values() for tensor in tensors_of(module)}
    stored = {**{name: tensor for name, tensor in stored.items() if name not in gone}, **added}
    if raw is None:
        weight_map = {name: stored[name].shard for name in sorted(stored)}
        value = {_METADATA: {_SIZE: 0}, WEIGHT_MAP: weight_map}
    else:
        value = json.loads(raw.decode("utf-8-sig"))
        value[WEIGHT_MAP] = _merged(value[WEIGHT_MAP], added, gone.union(ghosts))
    _count(value, stored)
    return _spelled(value, raw or b"{\n}\n")


def _merged(old: Mapping[str, str], added: Mapping[str, Tensor], gone: Collection[str]) -> dict[str, str]:
    kept = {name: shard for name, shard in old.items() if name not in gone}
    merged = kept | {name: tensor.shard for name, tensor in added.items()}
    return dict(sorted(merged.items())) if list(old) == sorted(old) else merged


def _count(value: Any, stored: Mapping[str, Tensor]) -> None:
    """Correct the sums that the index keeps, as far as it keeps them."""
    metadata = value.get(_METADATA)
    if isinstance(metadata, dict) and _SIZE in metadata:
        listed = (stored[name] for name in value[WEIGHT_MAP] if name in stored)
        metadata[_SIZE] = sum(size_of(tensor.dtype, tensor.shape) for tensor in listed)
        metadata.pop(_COUNT, None)  # of parameters; a wrong number is worse than none


def _spelled(value: Any, raw: bytes) -> bytes:
    """The value as text, in the spelling of the old one where that can be told."""
    text = raw.decode("utf-8-sig")
    end = "\n" if text.endswith("\n") else ""
    indent = next((indent for indent in (2, 4, None) if _writes(text, indent, end)), 2)
    return (json.dumps(value, indent=indent, ensure_ascii="\\u" in text) + end).encode()


def _writes(text: str, indent: int | None, end: str) -> bool:
    return json.dumps(json.loads(text), indent=indent, ensure_ascii="\\u" in text) + end == text
