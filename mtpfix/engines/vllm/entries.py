"""Entries of a list as written, with the place they come from, and what a class mapper makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mtpfix.engines.regexes import compiled
from mtpfix.engines.vllm.switches import on
from mtpfix.model import Mapper


class Entry(NamedTuple):
    """An entry of a list, or a key of a dictionary.

    name     what the engine's own list holds now, after mapping; anything, where the config is hostile
    text     as written
    pointer  its place, relative to the config fragment
    order    position in the engine's own list
    """

    name: Any
    text: Any
    pointer: str
    order: int


def read(value: Any, pointer: str) -> tuple[Entry, ...]:
    """The entries of a list or the keys of a dictionary; a text is read as the engine reads it, letter by letter.

    Raises TypeError for what cannot be iterated.
    """
    if isinstance(value, Mapping):
        return tuple(Entry(key, key, f"{pointer}/{escaped(str(key))}", at) for at, key in enumerate(value))
    if isinstance(value, str):
        return tuple(Entry(letter, letter, pointer, at) for at, letter in enumerate(value))
    return tuple(Entry(item, item, f"{pointer}/{at}", at) for at, item in enumerate(value))


def escaped(key: str) -> str:
    """A key as a component of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def in_force(mappers: Sequence[Mapper], release: str) -> tuple[Mapper, ...]:
    """The mappers as a quantization config gets to see them: from 0.29.0 without rules that drop a name."""
    if not on("null-rules-stripped", release):
        return tuple(mappers)
    return tuple(Mapper(*(tuple(rule for rule in rules if rule[1] is not None) for rules in _rules(m))) for m in mappers)


def _rules(mapper: Mapper) -> tuple[tuple[tuple[str, str | None], ...], ...]:
    return mapper.prefix, mapper.substr, mapper.suffix, mapper.regex


def rename(mapper: Mapper, name: str) -> str | None:
    """A name under a mapper, None where a rule drops it.

    Order and repetition as in vllm-0.33.0 vllm/model_executor/models/utils.py:92: regex, substring, prefix, suffix,
    every rule in turn on the result of the one before. Raises what Python raises for a name that is no text.
    """
    for pattern, new in mapper.regex:
        regex = compiled(pattern)
        if regex.search(name):
            if new is None:
                return None
            name = regex.sub(new, name)
    for old, new in mapper.substr:
        if old in name:
            if new is None:
                return None
            name = name.replace(old, new, 1)
    for old, new in mapper.prefix:
        if name.startswith(old):
            if new is None:
                return None
            name = new + name[len(old) :]
    for old, new in mapper.suffix:
        if name.endswith(old):
            if new is None:
                return None
            name = name[: len(name) - len(old)] + new
    return name


def mapped(
    entries: Iterable[Entry], mappers: Iterable[Mapper], *, only: Callable[[Any], bool] | None = None
) -> tuple[Entry, ...]:
    """The entries after every mapper, dropped ones left out. `only`: which names a mapper gets to see."""
    current = tuple(entries)
    for mapper in mappers:
        renamed = (
            entry._replace(name=rename(mapper, entry.name)) if only is None or only(entry.name) else entry
            for entry in current
        )
        current = tuple(entry for entry in renamed if entry.name is not None)
    return current


def numbered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries with `order` counted anew."""
    return tuple(entry._replace(order=at) for at, entry in enumerate(entries))
