"""What becomes of an exclusion list: values, and the config that comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from mtpfix.engines.sources import Fragment
from mtpfix.formats.base import ExclusionList
from mtpfix.frozen import dataclass
from mtpfix.model import Part
from mtpfix.regexes import is_valid, unsigned

Role = Literal["faithful", "stripped", "alias"]


@dataclass(frozen=True, slots=True)
class Added:
    """An entry that the plan adds. `node`: what it stands for; `engines`: who needs an alias ("" for the others)."""

    entry: str
    role: Role
    node: str
    part: Part
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """What becomes of one exclusion list: the places of the entries that go, and the entries that come.

    vetoed    whether something is still wrong, and what was tried for it is harmless to the engines of the first bench
    given_up  whether it was not worked out to the end, since that takes more than any model needs
    """

    fragment: Fragment
    where: ExclusionList
    removed: tuple[int, ...]
    added: tuple[Added, ...]
    vetoed: bool = False
    given_up: bool = False

    @property
    def empty(self) -> bool:
        return not self.removed and not self.added

    @property
    def texts(self) -> tuple[str, ...]:
        """The entries that go and those that come."""
        return (*entries_at(self.where, self.removed), *(item.entry for item in self.added))

    def value(self) -> Mapping[str, Any]:
        """The quantization config after the change."""
        return rewritten(self.fragment.value, self.where, self.removed, entries_of(self.added))


def entries_of(added: Iterable[Added]) -> list[str]:
    """The texts of what a plan adds."""
    return [item.entry for item in added]


def rewritten(
    value: Mapping[str, Any], where: ExclusionList, removed: Iterable[int], added: Sequence[str]
) -> Mapping[str, Any]:
    """A quantization config with entries out of its exclusion list and others in; what is no list becomes one."""
    gone = set(removed)
    out: Mapping[str, Any] = value
    if gone or added:
        out = _changed(value, where.pointer.split("/")[1:], where, gone, added)
    return out


def _changed(old: Any, path: Sequence[str], where: ExclusionList, gone: set[int], added: Sequence[str]) -> Any:
    if path:
        held = old.get(path[0])
        return {**old, path[0]: _changed(held, path[1:], where, gone, added)}
    if not where.keyed:
        return [*_kept(list(old) if where.present else where.entries, gone), *added]
    items = _kept(list(old.items()) if where.present else [(entry, where.value) for entry in where.entries], gone)
    new = dict.fromkeys(added, where.value)
    return {**new, **{name: value for name, value in items if name not in new}}


def _kept(items: Sequence[Any], gone: set[int]) -> list[Any]:
    return [item for place, item in enumerate(items) if place not in gone]


def is_broken(entry: str) -> bool:
    """Whether no engine can take an entry for a regular expression, were it meant to be one."""
    return not is_valid(unsigned(entry.removeprefix("re:")))


def entries_at(where: ExclusionList, places: Iterable[int]) -> tuple[str, ...]:
    """The entries at some places of a list."""
    gone = set(places)
    return tuple(entry for place, entry in zip(where.places, where.entries, strict=True) if place in gone)


def entries_kept(where: ExclusionList, removed: Iterable[int]) -> tuple[str, ...]:
    """The entries of a list without those at some places."""
    gone = set(removed)
    return tuple(entry for place, entry in zip(where.places, where.entries, strict=True) if place not in gone)


def places_of(where: ExclusionList, texts: set[str]) -> tuple[int, ...]:
    """Every place at which one of some entries stands."""
    return tuple(place for place, entry in zip(where.places, where.entries, strict=True) if entry in texts)
