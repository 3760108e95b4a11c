"""Which modules a draft layer lacks that every decoder layer like it has (pure, names alone).

A draft layer is a decoder layer with a projection before it, so that the target's own layers tell what belongs to
it. Only what all of the most similar ones have is called lacking, and only in blocks that hold nothing of another
kind: a dense draft of a target of experts lacks no experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

Members = Mapping[str, frozenset[int]]
# Built in some layers only, as the config says.
_SOMETIMES = frozenset({"indexer", "compressor"})


def lacking(draft: Members, targets: Iterable[Members]) -> tuple[str, ...]:
    """Modules that a draft layer lacks, sorted. `Members`: module below the layer -> its experts, if it is one.

    An expert is named `mlp.experts.{e}.up_proj`: without its number where no expert has it, with it where some have.
    """
    overlap = [(len(draft.keys() & target.keys()), target) for target in targets]
    most = max((shared for shared, _ in overlap), default=0)
    alike = [target for shared, target in overlap if shared == most and shared]
    if not alike:
        return ()
    common = reduce(lambda one, other: one & other, (target.keys() for target in alike), frozenset(alike[0]))
    known = frozenset().union(*alike)
    whole = [name for name in common - draft.keys() if _belongs(name, draft, known)]
    return tuple(sorted([*whole, *_fewer(draft, alike, common)]))


def _belongs(name: str, draft: Members, known: frozenset[str]) -> bool:
    """Whether the block of a module is there, and holds nothing that the target's layers do not."""
    if _SOMETIMES.intersection(name.split(".")):
        return False
    block = name.partition(".")[0]
    beside = [other for other in draft if other.partition(".")[0] == block]
    return bool(beside) and known.issuperset(beside)


def _fewer(draft: Members, alike: Iterable[Members], common: Iterable[str]) -> Iterable[str]:
    """Experts that are there in part."""
    for name in common:
        held = draft.get(name)
        if held:
            wanted = frozenset.intersection(*{target[name] for target in alike})  # nearly always one
            head, _, leaf = name.partition(".experts.")
            yield from (f"{head}.experts.{number}.{leaf}" for number in sorted(wanted - held))
