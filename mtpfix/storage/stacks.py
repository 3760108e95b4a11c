"""Fused stacks of experts: parameters of one module, without a module path of their own. Pure.

`experts.gate_up_proj` and `experts.gate_up_proj_scale` are to each other what `weight` and `weight_scale` are in a
linear layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mtpfix import late
from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell

# How the name of a stack's tensor goes on -> what the tensor would be called in a linear layer.
_ROLES = {
    "": "weight",
    "scale": "weight_scale",
    "scale_inv": "weight_scale_inv",
    "scale_2": "weight_scale_2",
    "packed": "weight_packed",
    "global_scale": "weight_global_scale",
    "zero_point": "weight_zero_point",
}
_WORDS = {*_ROLES, *_ROLES.values(), "blocks", "scales", "bias", "input_scale", "input_global_scale"} - {""}
_NAME = late.pattern(rf"(.+?)(?:_({'|'.join(sorted(_WORDS, key=len, reverse=True))}))?")
_RANKS = {"weight": 3, "weight_packed": 3, "blocks": 4}


class StackPart(NamedTuple):
    """A stack: its name below the owner, and its tensors, suffix -> what it would be called in a linear layer."""

    name: str
    roles: Mapping[str, str]


def stack_parts(cells: Iterable[Cell]) -> tuple[StackPart, ...]:
    """The fused stacks among a module's tensors; a tensor that belongs to none is in no part."""
    groups: dict[str, dict[str, str]] = {}
    ranks: dict[str, int] = {}
    for cell in cells:
        match = _NAME.fullmatch(cell.suffix)
        if match is not None:
            word = match[2] or ""
            groups.setdefault(match[1], {})[cell.suffix] = _ROLES.get(word, word)
            ranks[cell.suffix] = len(cell.shape)
    return tuple(
        StackPart(next((suffix for suffix, role in roles.items() if role == "weight"), name), roles)
        for name, roles in groups.items()
        if any(_RANKS.get(role) == ranks[suffix] for suffix, role in roles.items())
    )
