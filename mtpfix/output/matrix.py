"""The verdict matrix for a reader: releases that share a verdict are one row, causes that repeat are one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mtpfix.frozen import dataclass, replace
from mtpfix.model import DecisionRow, EngineRow, Part, VerdictKind
from mtpfix.releases import key

PARTS: tuple[Part, ...] = ("target", "draft")
Verdicts = Mapping[Part, VerdictKind]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """Neighbouring releases of one engine that agree on every part, before an edit and after it."""

    engine: str
    first: str
    last: str
    before: Verdicts
    after: Verdicts


@dataclass(frozen=True, slots=True)
class Why:
    """A cause that profiles of one engine share.

    spans    first and last release of each run of releases
    modules  what the verdict rests on in any of them
    """

    engine: str
    parts: tuple[Part, ...]
    verdict: VerdictKind
    reason: str
    error: str
    spans: tuple[tuple[str, str], ...]
    modules: tuple[str, ...]


def parts(rows: Iterable[EngineRow]) -> tuple[Part, ...]:
    """The parts that the rows speak of, the target first."""
    seen = {row.part for row in rows}
    return tuple(part for part in PARTS if part in seen)


def compared(before: Sequence[EngineRow], after: Sequence[EngineRow]) -> tuple[ComparedRow, ...]:
    """Two matrices as one, engines in their own order, the newest releases of each engine first."""
    out: list[ComparedRow] = []
    for engine in dict.fromkeys(row.engine for row in before):
        own: list[ComparedRow] = []
        old, new = _by_release(engine, before), _by_release(engine, after)
        for release in sorted(old, key=key):
            row = ComparedRow(engine, release, release, old[release], new.get(release, {}))
            if own and (own[-1].before, own[-1].after) == (row.before, row.after):
                own[-1] = replace(row, first=own[-1].first)
            else:
                own.append(row)
        out += reversed(own)
    return tuple(out)


def _by_release(engine: str, rows: Sequence[EngineRow]) -> dict[str, dict[Part, VerdictKind]]:
    verdicts: dict[str, dict[Part, VerdictKind]] = {}
    for row in rows:
        if row.engine == engine:
            for release in row.releases or (row.version,):
                verdicts.setdefault(release, {})[row.part] = row.verdict
    return verdicts


def causes(rows: Sequence[EngineRow]) -> tuple[Why, ...]:
    """Why an engine does not load a part, newest releases first; equal causes are one, whatever releases they hit."""
    order = {engine: at for at, engine in enumerate(dict.fromkeys(row.engine for row in rows))}
    found: dict[tuple[str, Part, VerdictKind, str, str], list[EngineRow]] = {}
    for row in sorted(rows, key=lambda row: (-order[row.engine], key(row.version)), reverse=True):
        if row.verdict != "loads" and (row.reason or row.error):
            found.setdefault((row.engine, row.part, row.verdict, row.reason, row.error), []).append(row)
    known = {engine: releases(row for row in rows if row.engine == engine) for engine in order}
    shared: dict[tuple[str, VerdictKind, str, str, tuple[tuple[str, str], ...]], list[EngineRow]] = {}
    for (engine, _, verdict, reason, error), hit in found.items():
        shared.setdefault((engine, verdict, reason, error, spans(releases(hit), known[engine])), []).extend(hit)
    return tuple(_why(*cause, hit) for cause, hit in shared.items())


def _why(
    engine: str,
    verdict: VerdictKind,
    reason: str,
    error: str,
    runs: tuple[tuple[str, str], ...],
    hit: Sequence[EngineRow],
) -> Why:
    modules = tuple(dict.fromkeys(name for row in hit for name in row.modules))
    return Why(engine, parts(hit), verdict, reason, error, runs, modules)


def releases(rows: Iterable[EngineRow | DecisionRow]) -> tuple[str, ...]:
    """Every release of the rows, ascending."""
    return tuple(sorted({release for row in rows for release in row.releases or (row.version,)}, key=key))


def spans(some: Sequence[str], every: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Releases as runs (first, last) of neighbours in `every`, newest run first."""
    place = {release: at for at, release in enumerate(every)}
    out: list[tuple[str, str]] = []
    for release in some:
        if out and place.get(release, -1) == place.get(out[-1][1], -2) + 1:
            out[-1] = (out[-1][0], release)
        else:
            out.append((release, release))
    return tuple(reversed(out))
