"""`layer_types` against the stored layers: which attention each layer of the target has. Pure.

Qwen3-Next and its descendants alternate linear and full attention, and their configs say which layer is which; the
tensors say it too (`linear_attn`, `self_attn`). Other families' types (sliding or full) leave no trace in headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mtpfix.frozen import dataclass

KEY = "layer_types"
_BLOCKS = {"linear_attn": "linear_attention", "self_attn": "full_attention"}
_STORED_AS = {kind: block for block, kind in _BLOCKS.items()}


@dataclass(frozen=True, slots=True)
class LayerTypes:
    """What is declared and what is stored, one a layer."""

    declared: tuple[str, ...]
    stored: tuple[str, ...]

    @property
    def wrong(self) -> tuple[int, ...]:
        """The layers whose declared type is not the stored one."""
        pairs = enumerate(zip(self.declared, self.stored, strict=False))
        return tuple(number for number, (one, other) in pairs if one != other)

    @property
    def same_length(self) -> bool:
        return len(self.declared) == len(self.stored)

    @property
    def words(self) -> str:
        """What contradicts what."""
        if not self.same_length:
            return f"{KEY} has {len(self.declared)} entries, the target {len(self.stored)} layers"
        number = self.wrong[0]
        more = f" (and {len(self.wrong) - 1} more)" if len(self.wrong) > 1 else ""
        return (
            f"{KEY} calls layer {number} {self.declared[number]}, and it stores {_STORED_AS[self.stored[number]]}{more}"
        )


def contradiction(declared: Any, names: Iterable[str], layers: int) -> LayerTypes | None:
    """The declared types where they contradict the target's module names; None where they do not, or where names do
    not tell."""
    if not isinstance(declared, (list, tuple)) or not all(isinstance(kind, str) for kind in declared):
        return None
    if not set(declared) <= _STORED_AS.keys():
        return None
    stored = _stored(names, layers)
    if "linear_attention" not in stored or tuple(declared) == stored:
        return None
    return LayerTypes(tuple(declared), stored)


def _stored(names: Iterable[str], layers: int) -> tuple[str, ...]:
    """The type of each layer as its modules say; () where one has none, or both."""
    found: dict[int, set[str]] = {}
    for name in names:
        _, inside, rest = name.partition("layers.")
        number, _, below = rest.partition(".")
        block = below.partition(".")[0]
        if inside and number.isdecimal() and block in _BLOCKS:
            found.setdefault(int(number), set()).add(_BLOCKS[block])
    whole = len(found) == layers and found.keys() == set(range(layers))  # a config may declare 2^70 layers
    if not whole or any(len(kinds) > 1 for kinds in found.values()):
        return ()
    return tuple(kind for number in range(layers) for kind in found[number])
