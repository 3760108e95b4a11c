"""Releases of the engines, as the engines' own files need them: compared, and met by a range such as `>=0.17,<0.25`."""

from __future__ import annotations

import re

from mtpfix.releases import after, at_least, between, key, modelled

__all__ = ["after", "at_least", "between", "key", "modelled", "satisfies"]

_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>|=)?\s*v?((?:snapshot-)?\d[\w.+-]*)")


def satisfies(release: str, ranges: str) -> bool:
    """Whether `release` meets every clause of `>=0.17,<0.25`; a clause without an operator means `==`.

    Raises ValueError for a clause that is none.
    """
    return all(_meets(release, clause.strip()) for clause in ranges.split(",") if clause.strip())


def _meets(release: str, clause: str) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        raise ValueError(f"not a range of releases: {clause!r}")
    ours, theirs = key(release), key(found[2])
    return {
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        "<": ours < theirs,
        "!=": ours != theirs,
    }.get(found[1] or "==", ours == theirs)
