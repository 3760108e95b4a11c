"""Entries of long lists that read alike and fall on nothing: one of them stands for the others (pure).

A list may name thousands of modules that no checkpoint with these tensors has: the blocks of a vision tower, the layers
of a larger model. Such an entry has a number that no name has which is ever looked up. However the entry is read (as a
name, a part of one, a glob, a regular expression) and whatever a class mapper makes of it, its digits are literal, so
that it falls on none of these names; nor does a name fall on it, where none is part of it. Two entries that differ in
such numbers alone, of the same length, do the same everywhere: nothing. But a list is not the same with none of them:
one without any entry may mean something of its own. So the first one stays.

An engine that looks at the last part of an entry alone reads no number: entries that end so (ANY_LAYER) are left alone.
Should there be more of that kind, the first one has all the effect, so that nothing else shows until it is taken out:
a list from which one goes that may have stood for others is worked out once more, with all of them (`World.hides`).

Not all digits of a text are literal. Entries with other signs than those of a plain name, of an escaped dot, of a
star, and of anchors at both ends are left alone. To a regular expression a digit with a star behind it may be missing,
so that what stands before it is all that an entry needs: `17*` and `18*` do the same where no name has a 17 or an 18,
but not the same as `27*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from mtpfix import late
from mtpfix.engines.base import ANY_LAYER
from mtpfix.frozen import dataclass
from mtpfix.modules import EXPERT_NUMBER

MANY = 200  # entries from which on it pays to look for them
_SIMPLE = late.pattern(r"(?:re:|[-+]:)?\^?(?:[A-Za-z0-9_.*#-]|\\[.-])+\$?")
_NUMBERS = late.pattern(r"[0-9]+")
_LITERAL = late.pattern(r"([0-9]+)(\*?)")
_WORD = late.pattern(r"(?:^|[^A-Za-z_])([A-Za-z_]+)\\?\.$")
_NEAR = 80  # characters before a number in which its word stands
_EXPERTS = "experts"
_DIGITS = "0123456789"
_MASK = "#"

Doubles = Mapping[str, Sequence[int]]  # the indices of entries of a kind but the first, by what they have in common
Runs = frozenset[str]  # numbers, and every part of one


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that names have: those of experts, and all others. A name has an expert's behind `experts.` alone."""

    others: Runs
    experts: Runs

    def hold(self, names: Iterable[str]) -> bool:
        """Whether names have no other numbers."""
        return numbers_in(names) <= self.others


def numbers_in(texts: Iterable[str]) -> Runs:
    """Every number that texts hold, those of experts left out."""
    return runs_of(_NUMBERS.findall(EXPERT_NUMBER.sub("", "\n".join(texts))))


def runs_of(numbers: Iterable[str]) -> Runs:
    """Numbers, and every part of one."""
    found = set(numbers)
    return frozenset(run[at:end] for run in found for at in range(len(run)) for end in range(at + 1, len(run) + 1))


def doubles(entries: Sequence[str], known: Numbers, values: Sequence[Any] = ()) -> Doubles:
    """The entries that fall on no name and read like an earlier one.

    known   the numbers that names may have
    values  what a table holds for each entry: it has to be the same
    """
    kinds: dict[str, list[int]] = {}
    for at, shape in enumerate(_shapes(entries, known) if len(entries) >= MANY else ()):
        if _MASK in shape:
            kinds.setdefault(shape, []).append(at)
    return {
        shape: [at for at in places[1:] if values[at] == values[places[0]]] if values else places[1:]
        for shape, places in kinds.items()
        if len(places) > 1 and not shape.endswith(ANY_LAYER) and _SIMPLE.fullmatch(shape)
    }


def apart(found: Doubles, names: Iterable[str]) -> frozenset[int]:
    """The indices of those on which no name falls either: on none of their kind, with whatever numbers."""
    whole = "\n".join(found)
    met = set[str]()
    for name in {name.strip(_DIGITS) for name in names if name} if found else ():
        if name in whole:
            met.update(shape for shape in found if name in shape)
    return frozenset(chain.from_iterable(places for shape, places in found.items() if shape not in met))


def _shapes(entries: Sequence[str], known: Numbers) -> Sequence[str]:
    """The entries with numbers that no name has blotted out; nothing where an entry is no line."""
    whole, others, experts = "\n".join(entries), known.others, known.experts
    if _MASK in whole:
        return ()

    def blotted(found: re.Match[str]) -> str:
        digits, star = found.groups()
        if digits in others or (digits in experts and _may_be_an_expert(whole, found.start())):
            return found[0]
        sure = digits[:-1] if star else ""
        sure = sure if sure in others or sure in experts else ""
        return f"{sure}{_MASK * (len(digits) - len(sure))}{star}"

    shapes = _LITERAL.sub(blotted, whole).split("\n")
    return shapes if len(shapes) == len(entries) else ()


def _may_be_an_expert(text: str, at: int) -> bool:
    """Whether a number can fall on an expert's: no other word stands before it."""
    word = _WORD.search(text, max(at - _NEAR, 0), at)
    return word is None or _EXPERTS.endswith(word[1])
