"""How SGLang renames a list: the weights mapper of the class that is built.

At most one substring rule, then one prefix rule, then one suffix rule; in each kind the longest key that fits.
(sglang 0.5.9 srt/models/utils.py:43, unchanged since)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from mtpfix.engines.listing import Entry, sound
from mtpfix.model import Mapper

_WRAPPER = "language_model."
Rules = tuple[tuple[str, str | None], ...]


@lru_cache(maxsize=256)
def _longest_first(rules: Rules) -> Rules:
    return tuple(sorted(dict(rules).items(), key=lambda rule: len(rule[0]), reverse=True))


def renamed(name: str, mapper: Mapper) -> str | None:
    """The name after a mapper; None where a rule drops it."""
    for old, new in _longest_first(mapper.substr):
        if old in name:
            if new is None:
                return None
            name = name.replace(old, new, 1)
            break
    for old, new in _longest_first(mapper.prefix):
        if name.startswith(old):
            if new is None:
                return None
            name = name.replace(old, new, 1)
            break
    for old, new in _longest_first(mapper.suffix):
        if name.endswith(old):
            if new is None:
                return None
            return new.join(name.rsplit(old, 1))
    return name


def renamed_all(name: str, mappers: Iterable[Mapper]) -> str | None:
    """The name after every mapper in turn."""
    kept: str | None = name
    for mapper in mappers:
        kept = None if kept is None else renamed(kept, mapper)
    return kept


def mapped(entries: Iterable[Entry], mappers: tuple[Mapper, ...]) -> tuple[Entry, ...]:
    """The entries after every mapper, those dropped left out; places and texts as written stay."""
    if not mappers:
        return tuple(entries)
    names = ((entry, renamed_all(entry.text, mappers)) for entry in sound(tuple(entries)))
    return tuple(entry._replace(text=name) for entry, name in names if name is not None)


def mapped_keys(table: Mapping[str, Any], mappers: tuple[Mapper, ...]) -> dict[str, tuple[str, Any]]:
    """New key -> (key as written, value): a later key takes the place of an earlier one that it becomes equal to."""
    names = ((key, value, renamed_all(key, mappers)) for key, value in table.items())
    return {name: (key, value) for key, value, name in names if name is not None}


def with_unwrapped(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Each entry, and after one under `language_model.` a copy without it."""
    out = []
    for entry in entries:
        out.append(entry)
        if entry.text.startswith(_WRAPPER):
            out.append(entry._replace(text=entry.text.removeprefix(_WRAPPER)))
    return tuple(out)
