"""What a Quark layer config makes an engine allocate, in the words of the storage schemes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "quark"
"""A layer config that an engine has no class for: it raises, or allocates what nothing stored fits."""

_Parts = tuple[tuple[str, str], ...]
SCHEMES: Mapping[_Parts, str] = {
    (("fp8_e4m3", "per_tensor"),): "fp8",
    (("fp8_e4m3", "per_channel"),): "fp8-channel",
    (("fp8_e4m3", "per_block"),): "fp8-block-ct",
    (("fp8_e4m3", "per_group"),): "mxfp8",
    (("fp4", "per_group"),): "mxfp4",
    (("fp4", "per_group"), ("fp8_e4m3", "per_tensor")): "nvfp4",
    (("int8", "per_tensor"),): "ct-w8a8",
    (("int8", "per_channel"),): "ct-w8a8",
    (("int4", "per_group"),): "quark-int4",
    (("uint4", "per_group"),): "quark-int4",
}
"""Type and granularity of the weights; vllm-0.33.0 Q/quark/quark.py:806-870, Q/quark/schemes."""


def scheme_of(config: Any) -> str:
    """The scheme of a layer config, `UNKNOWN` where the table has none."""
    weight = config.get("weight") if isinstance(config, Mapping) else None
    parts = weight if isinstance(weight, list) else [weight]
    return SCHEMES.get(
        tuple((str(part.get("dtype")), str(part.get("qscheme"))) for part in parts if isinstance(part, Mapping)),
        UNKNOWN,
    )
