"""What engines print when a part of a checkpoint does not load, and the rules that it can come from.

The words are data, `data/symptoms.toml`; the same words are what verdicts predict and what real loads were recorded
to say. A line means what its first symptom says; of a log the last line that means something comes first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

from mtpfix import packaged
from mtpfix.frozen import dataclass
from mtpfix.tokens import masked

_LONGEST = 4000  # characters of a line that are looked at
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Symptom:
    """Words of an engine: what they mean, the rules that they can come from, and where they were read.

    unlike   `built` or `stored`, the group of the pattern that has to be the smaller shape; "" where none has
    example  a line that shows it
    """

    pattern: re.Pattern[str]
    unlike: str
    example: str
    means: str
    rules: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Match:
    """A line that means something."""

    line: str
    symptom: Symptom


@lru_cache(maxsize=1)
def symptoms() -> tuple[Symptom, ...]:
    """Every symptom, in the order in which they are tried."""
    raw = packaged.table("data/symptoms")
    means = raw["means"]
    return tuple(
        Symptom(
            re.compile(row["pattern"]),
            row.get("unlike", ""),
            row["example"],
            means[row["means"]]["text"],
            tuple(means[row["means"]]["rules"]),
            row["source"],
        )
        for row in raw["symptom"]
    )


def diagnose(text: str) -> tuple[Match, ...]:
    """The lines of a log or traceback that mean something, the last one first; of lines that mean the same, one."""
    found: dict[str, Match] = {}
    for line in dict.fromkeys(reversed(text.splitlines())):
        symptom = symptom_of(line[:_LONGEST].rstrip())
        if symptom is not None:
            found.setdefault(symptom.means, Match(masked(line)[:_LONGEST].strip(), symptom))
    return tuple(found.values())


def symptom_of(line: str) -> Symptom | None:
    """What a line means, or None."""
    return next((symptom for symptom in symptoms() if _shows(symptom, line)), None)


def _shows(symptom: Symptom, line: str) -> bool:
    match = symptom.pattern.search(line)
    if match is None or not symptom.unlike:
        return match is not None
    built, stored = _size(match["built"]), _size(match["stored"])
    return built < stored if symptom.unlike == "built" else stored < built


def _size(shape: str) -> int:
    return prod(map(int, _NUMBERS.findall(shape)))
