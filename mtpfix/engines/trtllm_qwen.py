"""TensorRT-LLM's translation of Qwen3.5 names in ModelOpt configs.

The runtime is Qwen3-Next's: draft layers are appended to the target's, split projections are packed. Read at commit
00620eb of tensorrt_llm/_torch/models/modeling_qwen3_5.py (`_translate_mtp_pattern`,
`_normalize_qwen35_exclude_modules`, `_normalize_qwen35_quant_config_dict`). A head whose algorithm could be kept on
one kind of GPU is taken as dequantized, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mtpfix import late

_WRAPPER = "model.language_model."
_VISION = "model.visual"
_DRAFT, _DRAFT_LAYERS = "mtp.", "mtp.layers."
_TOP = {
    "fc": "fc",
    "norm": "shared_head.norm",
    "pre_fc_norm_embedding": "pre_fc_norm_embedding",
    "pre_fc_norm_hidden": "pre_fc_norm_hidden",
}
_PACKED = (
    (late.pattern(r"\.in_proj_[ab](\b|\*)"), ".in_proj_ba*"),
    (late.pattern(r"\.in_proj_(q|k|v|z|qkv)(\b|\*)"), ".in_proj_qkvz*"),
)
_SPLIT = late.pattern(r"(.+\.linear_attn)\.in_proj_(qkv|q|k|v|z)")
_WHOLE = ({"qkv", "z"}, {"q", "k", "v", "z"})


def draft_name(name: str, layers: int) -> str | None:
    """An `mtp.` name as the runtime has it; None where the translation knows none. `layers`: the target's count."""
    if name.startswith(_DRAFT_LAYERS):
        index, dot, rest = name.removeprefix(_DRAFT_LAYERS).partition(".")
        digits = index.rstrip("*")
        if digits and not digits.isdecimal():
            return None
        star = "*" if index.endswith("*") and not dot else ""
        return f"model.layers.{layers + int(digits or 0)}{star}{dot}{rest}"
    top = name.removeprefix(_DRAFT)
    for written, runtime in _TOP.items():
        tail = top.removeprefix(written)
        if top.startswith(written) and (tail in ("", "*") or tail.startswith(".")):
            return f"model.layers.{layers}.{runtime}{tail}"
    return None


def _unwrapped(name: str) -> str:
    return "model." + name.removeprefix(_WRAPPER) if name.startswith(_WRAPPER) else name


def exclusion_names(name: str, layers: int | None) -> str | None:
    """An entry of the exclude list after the translation; None where it is dropped."""
    name = _unwrapped(name)
    if name.startswith(_VISION):
        return None
    if name.startswith(_DRAFT):
        return None if layers is None else draft_name(name, layers)
    for pattern, packed in _PACKED:
        name = pattern.sub(packed, name)
    return name


def layer_names(table: Mapping[str, Any], layers: int | None) -> dict[str, str]:
    """Runtime name -> key as written, for the keys of `quantized_layers` that survive the translation.

    The split projections of linear attention become one packed projection where all of them are FP8, else none.
    """
    names: dict[str, str] = {}
    split: dict[str, dict[str, str]] = {}
    for written, value in table.items():
        name = _unwrapped(written)
        if name.startswith(_VISION) or name == "lm_head":
            continue
        draft = name.startswith(_DRAFT)
        translated = draft_name(name, layers) if draft and layers is not None else None if draft else name
        found = _SPLIT.fullmatch(name) if not draft else None
        if found and value["quant_algo"] == "FP8":
            split.setdefault(found[1], {})[found[2]] = written
        elif translated is not None:
            names[translated] = written
    return names | dict(_packed(split.items()))


def _packed(split: Iterable[tuple[str, Mapping[str, str]]]) -> Iterable[tuple[str, str]]:
    for prefix, parts in split:
        if set(parts) in _WHOLE:
            yield f"{prefix}.in_proj_qkvz", next(iter(parts.values()))
