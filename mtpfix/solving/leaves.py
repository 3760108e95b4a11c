"""Names that entries can stand for, and the nodes of the tree that stand for many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mtpfix.formats.base import Reach
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Part


@dataclass(frozen=True, slots=True)
class Leaf:
    """A name that an entry can stand for, and what is known about it."""

    name: str
    reach: Reach
    part: Part
    impure: bool
    covered: bool
    wanted: bool


def holder(name: str) -> tuple[str, Reach]:
    """The name an entry would stand for: an expert's is that of all experts of its layer."""
    head, found, _ = name.partition(".experts.")
    return (f"{head}.experts", "experts") if found else (name, "leaf")


def merged(leaves: Iterable[Leaf]) -> list[Leaf]:
    """One leaf for each name."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        old = found.get(leaf.name)
        found[leaf.name] = leaf if old is None else _joined(old, leaf)
    return list(found.values())


def summarised(leaves: Iterable[Leaf], allowed: Callable[[str, Sequence[Leaf]], bool]) -> Iterator[Leaf]:
    """The highest allowed nodes that hold nothing impure and more that is wanted than covered; leaves elsewhere."""
    yield from _below("", merged(leaves), 0, allowed)


def _joined(one: Leaf, other: Leaf) -> Leaf:
    return replace(
        one,
        impure=one.impure or other.impure,
        covered=one.covered and other.covered,
        wanted=one.wanted or other.wanted,
    )


def _below(
    prefix: str, leaves: list[Leaf], depth: int, allowed: Callable[[str, Sequence[Leaf]], bool]
) -> Iterator[Leaf]:
    wanted = [leaf for leaf in leaves if leaf.wanted]
    if not wanted:
        return
    clean = not any(leaf.impure for leaf in leaves) and sum(leaf.covered for leaf in leaves) < len(wanted)
    if clean and len(leaves) > 1 and allowed(prefix, leaves):
        yield Leaf(prefix, "below", wanted[0].part, False, False, True)
        return
    children: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        steps = leaf.name.split(".")
        if len(steps) == depth + 1:
            if leaf.wanted and not leaf.impure:
                yield leaf
        else:
            children.setdefault(".".join(steps[: depth + 1]), []).append(leaf)
    for child, below in children.items():
        if len(below) == 1 and below[0].wanted and not below[0].impure:
            yield below[0]
        else:
            yield from _below(child, below, depth + 1, allowed)
