"""A change of a JSON file taken back although the file was edited since: the edits stay, the change goes (pure).

Three versions are set against each other, value by value: as the change left the file, as it is now, and as it was
before. An entry of a list or a member of an object that the change brought goes if it stands there as it was written;
one that the change took away comes back. What was edited in the same place is a conflict, and nobody's guess.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mtpfix import patch
from mtpfix.checkpoint.jsonfiles import parse_json
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Edit
from mtpfix.splice import splice

Path = tuple[str | int, ...]
Step = Edit | str  # an edit, or the place of a conflict

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The file without the change; or, as it is now, with the places (JSON pointers) where it was edited since."""

    data: bytes
    conflicts: tuple[str, ...] = ()


def taken_back(file: str, old: bytes, new: bytes, now: bytes) -> TakenBack:
    """The file as it is `now` without the change from `old` to `new`; outside of it not one byte changes.

    Raises UnreadableError where one of them is no JSON object.
    """
    if now == new:
        return TakenBack(old)
    left, current, before = (parse_json(file, raw)[0].value for raw in (new, now, old))
    steps = tuple(_steps((), left, current, before))
    conflicts = tuple(step for step in steps if isinstance(step, str))
    if conflicts:
        return TakenBack(now, conflicts)
    return TakenBack(splice(now, [replace(step, file=file) for step in steps if isinstance(step, Edit)]))


def _steps(path: Path, left: Any, now: Any, old: Any) -> Iterator[Step]:
    """What leads a value from `now` to where `old` was, had the change to `left` not been made."""
    if _same(left, old) or _same(now, old):
        return
    if isinstance(left, dict) and isinstance(now, dict) and isinstance(old, dict):
        for key in {**left, **old}:
            yield from _member((*path, key), key, left, now, old)
    elif isinstance(left, list) and isinstance(now, list) and isinstance(old, list):
        steps, entries = _entries(path, left, now, old)
        moved = entries != [*map(_text, old)] and _same(now, left)  # the change put entries in another order
        yield from [Edit("", "replace", patch.pointer(*path), old)] if moved else steps
    elif _same(now, left):
        yield Edit("", "replace", patch.pointer(*path), old)
    else:
        yield patch.pointer(*path)


def _member(
    path: Path, key: str, left: Mapping[str, Any], now: Mapping[str, Any], old: Mapping[str, Any]
) -> Iterator[Step]:
    """The steps of one member of an object."""
    was, is_now, before = (each.get(key, _ABSENT) for each in (left, now, old))
    if _ABSENT not in (was, is_now, before):
        yield from _steps(path, was, is_now, before)
    elif before is _ABSENT and _same(is_now, was):
        yield Edit("", "remove", patch.pointer(*path))
    elif was is _ABSENT and is_now is _ABSENT:
        behind = list(old)[list(old).index(key) + 1 :]
        neighbour = next((name for name in behind if name in now), None)
        yield Edit("", "add", patch.pointer(*path), before, before=neighbour)
    elif not (_same(is_now, before) or _same(was, before)):
        yield patch.pointer(*path)


def _entries(
    path: Path, left: Sequence[Any], now: Sequence[Any], old: Sequence[Any]
) -> tuple[list[Step], Sequence[str]]:
    """The steps of an array, and its entries after them: what the change brought goes, what it took comes back behind
    what it stood behind."""
    one, other = Counter(map(_text, left)), Counter(map(_text, old))
    brought, taken = one - other, other - one
    here, steps = [_text(value) for value in now], list[Step]()
    lost = brought - Counter(here)
    if not (brought or taken) or (lost and (taken or any(text[0] in "[{" for text in lost))):
        return [patch.pointer(*path)], here
    for text in (brought - lost).elements():
        at = len(here) - 1 - here[::-1].index(text)
        steps.append(Edit("", "remove", patch.pointer(*path, at)))
        del here[at]
    for at, value in enumerate(old):
        text = _text(value)
        if taken[text] and here.count(text) < other[text]:
            before = next((place for place in map(_text, old[:at][::-1]) if place in here), None)
            place = 0 if before is None else here.index(before) + 1
            steps.append(Edit("", "add", patch.pointer(*path, place), value))
            here.insert(place, text)
    return steps, here


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same to JSON, where 1 is neither true nor 1.0."""
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return type(one) is type(other) and _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
