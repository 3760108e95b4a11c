"""What every format offers: where its exclusions stand, in which dialect, and how one is spelled.

A *spelling* is an entry for a node of the module tree: everything below a node, the experts of a layer, or one
linear module. A format offers them best first; whether one is right is for the engines to say, not for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from mtpfix import late
from mtpfix.frozen import Protocol, dataclass, field
from mtpfix.regexes import TooCostly, compiled, is_surely_valid, literal_of

Reach = Literal["below", "experts", "leaf"]
Where = Literal["whole", "start", "end", "part", "run", "within"]
Anchors = tuple[tuple[Where, str], ...]


@dataclass(frozen=True, slots=True)
class ExclusionList:
    """One list of exclusions of a quantization config.

    pointer  relative to the quantization config; "" where its own keys are the list
    present  whether the key holds a list; where it does not, a new list takes its place
    entries  as written; for a dictionary (`keyed`) its keys; anything that is no text is left out
    places   the entries' own places in the list, which tell more than their order where something was left out
    broken   the places of what is no text, or (-1,) where the key holds something that is no list
    value    what a new key of a `keyed` list holds
    """

    pointer: str
    entries: tuple[str, ...]
    places: tuple[int, ...]
    present: bool
    keyed: bool = False
    value: Any = field(default_factory=dict)
    broken: tuple[int, ...] = ()


class Format(Protocol):
    """One quantization method's way to write exclusions."""

    name: str
    title: str

    @property
    def marks(self) -> tuple[str, ...] | None:
        """An entry that holds none of these texts covers its own name alone; None where that cannot be said."""

    def accepts(self, value: Mapping[str, Any]) -> bool:
        """Whether a quantization config is of this format."""

    def exclusions(self, value: Mapping[str, Any]) -> ExclusionList | None:
        """The list that engines read, or where it would stand; None where the format has no usable list."""

    def spellings(self, node: str, reach: Reach, entries: tuple[str, ...]) -> tuple[str, ...]:
        """Entries that should cover a node, the style of the existing entries first."""

    def aliases(self, node: str, reach: Reach) -> tuple[str, ...]:
        """Entries that should cover a node of an engine's own names, best first."""

    def covers(self, entry: str, name: str) -> bool:
        """Whether an entry names a module in the format's own reading, no engine asked."""

    def anchors(self, entry: str) -> Anchors | None:
        """The same as texts to look up: an entry covers what is one of them, starts or ends with it, or has it as one
        of its dotted parts, as a run of them, or anywhere.

        None: ask `covers`.
        """

    def container(self) -> bool:
        """Whether one entry for the whole draft (`mtp`) is good style; else an entry a layer."""


_WRAPPERS = late.pattern(r"^(?:(?:model|language_model)\.)+(?=[a-z_]+\.)")


def without_wrapper(node: str) -> str:
    """A node without the prefixes that engines and checkpoints spell differently: `layers.92`, `mtp.layers.0`."""
    return _WRAPPERS.sub("", node)


def regex_matches(pattern: str, name: str) -> bool:
    """`re.match` for a pattern from a config; an invalid or too costly one matches nothing."""
    if is_surely_valid(pattern) and literal_of(pattern) not in name:
        return False
    try:
        return compiled(pattern).match(name)
    except (re.error, TooCostly):
        return False


def text_entries(value: Any) -> tuple[str, ...]:
    """The texts of a list, in order; a dictionary gives its keys; anything else nothing."""
    if isinstance(value, Mapping):
        return tuple(str(key) for key in value)
    if isinstance(value, (list, tuple)):
        return tuple(entry for entry in value if isinstance(entry, str))
    return ()


def at(value: Mapping[str, Any], key: str, prefix: str = "", *, keyed: bool = False) -> ExclusionList:
    """The list under a key of a (part of a) quantization config."""
    raw, pointer = value.get(key), f"{prefix}/{key}"
    if not isinstance(raw, Mapping if keyed else (list, tuple)):
        entries = (raw,) if isinstance(raw, str) and raw and not keyed else text_entries(raw)
        places = tuple(range(len(entries)))
        return ExclusionList(pointer, entries, places, False, keyed, broken=() if raw is None else (-1,))
    items = list(raw)
    if set(map(type, items)) <= {str}:  # as good as all lists, and they may be long
        return ExclusionList(pointer, tuple(items), tuple(range(len(items))), True, keyed)
    places = tuple(place for place, item in enumerate(items) if isinstance(item, str))
    broken = tuple(place for place, item in enumerate(items) if not isinstance(item, str))
    return ExclusionList(pointer, tuple(items[place] for place in places), places, True, keyed, broken=broken)
