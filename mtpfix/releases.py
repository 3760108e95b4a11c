"""Releases of the engines, compared and grouped. The modelled ones are data: `data/releases.json`."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

from mtpfix import packaged
from mtpfix.frozen import dataclass

_PART = re.compile(r"\d+|[a-z]+")
_SUFFIX = {"dev": -2, "rc": -1, "post": 1}


@dataclass(frozen=True, slots=True)
class Span:
    """The releases a fact holds in, both ends included; "" is open. `source`: release and place it was read from."""

    since: str = ""
    until: str = ""
    source: str = ""


@lru_cache(maxsize=4096)
def key(release: str) -> tuple[int, ...]:
    """A sort key: 0.5.9 < 0.5.10 < 0.5.10.post1 < 0.5.11; snapshot-1 < snapshot-2."""
    parts = _PART.findall(release.lower().removeprefix("snapshot-"))
    numbers = [int(part) if part.isdecimal() else _SUFFIX.get(part, 0) * 1_000_000 for part in parts]
    return (*numbers, *(0,) * (6 - len(numbers)))


@lru_cache(maxsize=1 << 14)
def at_least(release: str, since: str) -> bool:
    """Whether a release is `since` or later; "" is open."""
    return not since or key(release) >= key(since)


def between(release: str, since: str, until: str) -> bool:
    """Whether a release lies in a range, both ends included; "" is open."""
    return at_least(release, since) and (not until or key(release) <= key(until))


def holds(release: str, span: Span) -> bool:
    """Whether a fact holds in a release."""
    return between(release, span.since, span.until)


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[str, ...]]:
    table = json.loads(packaged.text("data/releases.json"))
    return {engine: tuple(names) for engine, names in table.items()}


def modelled(engine: str) -> tuple[str, ...]:
    """The modelled releases of an engine, ascending."""
    return _table()[engine]


def after(engine: str, release: str) -> str:
    """The first modelled release after a release, or "" where it is the newest."""
    return next((name for name in modelled(engine) if key(name) > key(release)), "")


def ranges(engine: str, some: Iterable[str]) -> list[str]:
    """Releases of an engine as ranges of neighbours: `vllm>=0.17.0,<0.25.0`; the engine's name where all are there."""
    found, every = set(some), modelled(engine)
    if found >= set(every):
        return [engine]
    out: list[str] = []
    start = None
    for name in (*every, ""):
        if name in found:
            start = start or name
        elif start:
            low = "" if start == every[0] else f">={start}"
            high = f"<{name}" if name else ""
            out.append(engine + ",".join(filter(None, (low, high))))
            start = None
    return out


def groups(engine: str, points: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The modelled releases cut at the change points: each group behaves alike."""
    starts = sorted({key(point) for point in points})
    found: dict[int, list[str]] = {}
    for name in modelled(engine):
        found.setdefault(bisect_right(starts, key(name)), []).append(name)
    return tuple(map(tuple, found.values()))
