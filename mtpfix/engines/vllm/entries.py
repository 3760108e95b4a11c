"""Entries of a list as written, with the place they come from, and what a class mapper makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any

from mtpfix.engines.listing import pointers, rows
from mtpfix.engines.vllm.switches import on
from mtpfix.frozen import NamedTuple
from mtpfix.model import Mapper
from mtpfix.regexes import compiled

Rules = tuple[tuple[str, str | None], ...]


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
        return rows(Entry, value, value, pointers(value, pointer), count())
    if isinstance(value, str):
        return tuple(Entry(letter, letter, pointer, at) for at, letter in enumerate(value))
    items = value if isinstance(value, list) else tuple(value)
    return rows(Entry, items, items, pointers(items, pointer), count())


def in_force(mappers: Sequence[Mapper], release: str) -> tuple[Mapper, ...]:
    """The mappers as a quantization config gets to see them: from 0.29.0 without rules that drop a name."""
    if not on("null-rules-stripped", release):
        return tuple(mappers)
    return tuple(
        Mapper(_kept(mapper.prefix), _kept(mapper.substr), _kept(mapper.suffix), _kept(mapper.regex))
        for mapper in mappers
    )


def _kept(rules: Rules) -> Rules:
    return tuple(rule for rule in rules if rule[1] is not None)


Step = tuple[Callable[[str, str, str | None], str | None], str, str | None]


def rename(mapper: Mapper, name: str) -> str | None:
    """A name under a mapper, None where a rule drops it.

    Order and repetition as in vllm-0.33.0 vllm/model_executor/models/utils.py:92: regex, substring, prefix, suffix,
    every rule in turn on the result of the one before. Raises AttributeError for a name that is no text.
    """
    return _through(_steps(mapper), name)


def renamed(mapper: Mapper, names: Sequence[str]) -> Sequence[str | None]:
    """Names under a mapper; the same object where it finds nothing in any of them."""
    steps = _steps(mapper)
    likely = _likely(steps, names)
    if likely is not None and not likely:
        return names
    return [_through(steps, name) if likely is None or name in likely else name for name in names]


def _steps(mapper: Mapper) -> tuple[Step, ...]:
    kinds = ((_regex, mapper.regex), (_substr, mapper.substr), (_prefix, mapper.prefix), (_suffix, mapper.suffix))
    return tuple((step, old, new) for step, rules in kinds for old, new in rules)


def _through(steps: tuple[Step, ...], name: str) -> str | None:
    for step, old, new in steps:
        changed = step(name, old, new)
        if changed is None:
            return None
        name = changed
    if not isinstance(name, str):
        raise AttributeError(f"an entry is no text: {name!r}")
    return name


def _regex(name: str, old: str, new: str | None) -> str | None:
    regex = compiled(old)
    if not regex.search(name):
        return name
    return None if new is None else regex.sub(new, name)


def _substr(name: str, old: str, new: str | None) -> str | None:
    if old not in name:
        return name
    return None if new is None else name.replace(old, new, 1)


def _prefix(name: str, old: str, new: str | None) -> str | None:
    if not name.startswith(old):
        return name
    return None if new is None else new + name[len(old) :]


def _suffix(name: str, old: str, new: str | None) -> str | None:
    if not name.endswith(old):
        return name
    return None if new is None else name[: len(name) - len(old)] + new


def mapped(
    entries: Iterable[Entry], mappers: Iterable[Mapper], *, only: Callable[[Any], bool] | None = None
) -> tuple[Entry, ...]:
    """The entries after every mapper, dropped ones left out. `only`: which names a mapper gets to see."""
    current = tuple(entries)
    for mapper in mappers:
        steps = _steps(mapper)
        likely = _likely(steps, [entry.name for entry in current])
        if likely is not None:
            likely = set(filter(only, likely)) if only else likely
            if not likely:
                continue
        seen = only if likely is None else likely.__contains__
        renamed = (
            (entry, _through(steps, entry.name) if seen is None or seen(entry.name) else entry.name)
            for entry in current
        )
        current = tuple([_named(entry, name) for entry, name in renamed if name is not None])
    return current


def are_texts(entries: Iterable[Entry]) -> bool:
    """Whether all names are texts; others may have no hash."""
    return set(map(type, map(itemgetter(0), entries))) <= {str}


def _likely(steps: Sequence[Step], names: Sequence[Any]) -> set[str] | None:
    """The names in which some step finds what it looks for; None where each has to be tried."""
    if not set(map(type, names)) <= {str} or any(step is _regex for step, _, _ in steps):
        return None
    whole = "\n".join(names)
    return {name for _, old, _ in steps if old in whole for name in names if old in name}


def _named(entry: Entry, name: Any) -> Entry:
    return entry if name is entry.name else Entry(name, entry.text, entry.pointer, entry.order)


def under(
    entries: tuple[Entry, ...], mappers: Iterable[Mapper], *, only: Callable[[Any], bool] | None = None
) -> tuple[Entry, ...]:
    """A list as it was read after every mapper, counted anew; the same object where none changes it."""
    found = mapped(entries, mappers, only=only)
    return entries if found is entries else numbered(found)


def numbered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries with `order` counted anew."""
    held = tuple(entries)
    return rows(Entry, map(itemgetter(0), held), map(itemgetter(1), held), map(itemgetter(2), held), count())
