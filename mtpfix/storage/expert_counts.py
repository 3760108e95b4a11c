"""Stored experts against their count: engines make room for as many as config.json says. Pure.

What no tensor is loaded into stays as it was allocated, and no engine says a word about it. Experts beyond the count
stop some loaders, and others pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mtpfix.frozen import dataclass
from mtpfix.modules import EXPERTS
from mtpfix.names import brief
from mtpfix.storage.lacking import Members


@dataclass(frozen=True, slots=True)
class FewExperts:
    """A projection of a layer's experts of which fewer are stored than the config's `key` counts.

    name  the first one that is missing
    """

    name: str
    stored: int
    counted: int
    key: str

    @property
    def words(self) -> str:
        """What contradicts what."""
        holder, _, rest = self.name.partition(EXPERTS)
        what = brief(f"{holder}{EXPERTS}*{rest.lstrip('0123456789')}")
        missing = brief(self.name)
        return f"{self.stored} of the {self.counted} experts that {self.key} counts are stored as {what}, not {missing}"


@dataclass(frozen=True, slots=True)
class MoreExperts:
    """An expert that is stored beyond those that the config's `key` counts."""

    name: str
    counted: int
    key: str

    @property
    def words(self) -> str:
        """What contradicts what."""
        return f"{brief(self.name)} is stored, and {self.key} counts {self.counted} experts, from 0 on"


def more_experts(layers: Mapping[str, Members], counted: int, key: str) -> MoreExperts | None:
    """The first expert beyond the count; None where there is none."""
    for layer, members in layers.items():
        for name, held in members.items():
            number = _first_beyond(held, counted) if EXPERTS in name else None
            if number is not None:
                return MoreExperts(_expert(layer, name, number), counted, key)
    return None


def few_experts(layers: Mapping[str, Members], counted: int, key: str) -> FewExperts | None:
    """The first layer that lacks experts, one of whose kind it stores; None where all are there."""
    for layer, members in layers.items():
        for name, held in members.items():
            number = _first_missing(held, counted) if held and EXPERTS in name else None
            if number is not None:
                stored = sum(1 for expert in held if expert < counted)
                return FewExperts(_expert(layer, name, number), stored, counted, key)
    return None


@lru_cache(maxsize=1 << 6)
def _first_missing(held: frozenset[int], counted: int) -> int | None:
    """The first number below a count that is not held."""
    return next((number for number in range(min(counted, len(held) + 1)) if number not in held), None)


@lru_cache(maxsize=1 << 6)
def _first_beyond(held: frozenset[int], counted: int) -> int | None:
    """The first number that is held and not below a count."""
    return min((number for number in held if number >= counted), default=None)


def _expert(layer: str, name: str, number: int) -> str:
    head, _, leaf = name.partition(EXPERTS)
    return f"{layer}.{head}{EXPERTS}{number}.{leaf}"
