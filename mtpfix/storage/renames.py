"""Scales that two formats store alike and call by unlike names. Pure.

Only names that stand for the same numbers are here: what dequantizes a weight by multiplication, one number a block.
`weight_global_scale` of compressed-tensors is no other name of ModelOpt's `weight_scale_2`, it is its reciprocal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell
from mtpfix.storage.schemes import FLOAT


class Alike(NamedTuple):
    """A scale's name in a stored scheme, and in the one that an engine builds; where both were read to be the same."""

    stored: str
    built: str
    old: str
    new: str
    source: str


# vLLM's fp8.py says of the name only that it is DeepSeek-V3's; both classes make it with create_fp8_scale_parameter and
# give it to the same kernel, as SGLang's do (fp8.py:689, compressed_tensors_w8a8_fp8.py:124).
_SOURCE = "vllm-0.33.0 quantization/fp8.py:339, compressed_tensors_w8a8_fp8.py:123, utils/fp8_utils.py:1396"
ALIKE = (
    Alike("fp8-block-ct", "fp8-block", "weight_scale", "weight_scale_inv", _SOURCE),
    Alike("fp8-block", "fp8-block-ct", "weight_scale_inv", "weight_scale", _SOURCE),
)


def alike(stored: str, built: str) -> Alike | None:
    """The names that tell two schemes apart, where nothing else does."""
    return next((row for row in ALIKE if (row.stored, row.built) == (stored, built)), None)


def fits(row: Alike, cells: Sequence[Cell], block: tuple[int, int]) -> bool:
    """Whether a module's scale is, but for its name, what an engine builds: floating point, one number a block."""
    held = {cell.suffix: cell for cell in cells}
    scale, weight = held.get(row.old), held.get("weight")
    if scale is None or weight is None or row.new in held or len(weight.shape) != 2 or scale.dtype not in FLOAT:
        return False
    return scale.shape == tuple(-(-size // step) for size, step in zip(weight.shape, block, strict=True))


def block_size(value: Mapping[str, Any]) -> tuple[int, int] | None:
    """The block of a quantization config: `weight_block_size`, or what all groups of compressed-tensors have."""
    groups = value.get("config_groups")
    found = [value.get("weight_block_size")]
    if isinstance(groups, Mapping):
        found += [_block_of(group) for group in groups.values()]
    sizes = {tuple(size) for size in found if isinstance(size, (list, tuple)) and _is_pair(size)}
    return next(iter(sizes)) if len(sizes) == 1 else None


def _block_of(group: Any) -> Any:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    return weights.get("block_structure") if isinstance(weights, Mapping) else None


def _is_pair(size: Sequence[Any]) -> bool:
    return len(size) == 2 and all(type(step) is int and step > 0 for step in size)
