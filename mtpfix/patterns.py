"""The patterns that users type over the module tree: `mtp.**`, `model.layers.*.mlp.gate`.

Names are dotted; a component is what stands between two dots.

- `*`, `?`, `[abc]`, `[!abc]` match within one component, case-sensitively
- `**` as a whole component matches any number of components, none included: `mtp.**` is `mtp` itself and
  everything below it, `**.fc` is every `fc` at any depth
- braces have no meaning
- a pattern always matches the name that is spelled exactly like it, whatever characters it holds

Nothing here imitates an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fnmatch2 import fnmatchcase2

_ANY_DEPTH = "**"
_WILD = frozenset("*?[")
# fnmatch2 splits on slashes and turns backslashes into slashes: those that names hold are set aside first.
_SET_ASIDE = str.maketrans({"/": "\ue000", "\\": "\ue001", ".": "/"})

Parts = tuple[str, ...]


def matches(name: str, pattern: str) -> bool:
    """Whether a dotted name is meant by a pattern."""
    return compiled(pattern)(name)


def select(names: Iterable[str], patterns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that at least one pattern means, in their own order, and the patterns that mean none of them."""
    tests = {pattern: compiled(pattern) for pattern in patterns}
    chosen: list[str] = []
    idle = dict.fromkeys(patterns)
    for name in names:
        hits = [pattern for pattern, test in tests.items() if test(name)]
        if hits:
            chosen.append(name)
            for pattern in hits:
                idle.pop(pattern, None)
    return tuple(chosen), tuple(idle)


def compiled(pattern: str) -> Callable[[str], bool]:
    """A test for one pattern; the literal front of the pattern is compared first, so that most names cost little."""
    if not _WILD & set(pattern):
        return pattern.__eq__
    runs = _runs(_parts(pattern))
    front = _literal_front(pattern)

    def test(name: str) -> bool:
        return name == pattern or (name.startswith(front) and _meets(_parts(name), runs))

    return test


def _parts(dotted: str) -> Parts:
    return tuple(dotted.translate(_SET_ASIDE).split("/"))


def _literal_front(pattern: str) -> str:
    """What every matching name starts with; the dot before a `**` is not part of it."""
    front: list[str] = []
    for part in pattern.split("."):
        if _WILD & set(part):
            break
        front.append(part)
    return ".".join(front)


def _runs(pattern: Parts) -> tuple[Parts, ...]:
    """The components between the `**`: `a.**.b.c` -> (a), (b, c); a front or back `**` gives an empty run."""
    runs: list[list[str]] = [[]]
    for part in pattern:
        if part == _ANY_DEPTH:
            runs.append([])
        else:
            runs[-1].append(part)
    return tuple(map(tuple, runs))


def _meets(name: Parts, runs: tuple[Parts, ...]) -> bool:
    """Whether the first run is at the front, the last one at the back, the others in order between them."""
    first, *between = runs
    if not between:
        return _run_at(name, first, 0) and len(first) == len(name)
    *inner, last = between
    end = len(name) - len(last)
    if not (_run_at(name, first, 0) and _run_at(name, last, end)):
        return False
    at = len(first)
    for run in inner:
        found = next((start for start in range(at, end - len(run) + 1) if _run_at(name, run, start)), None)
        if found is None:
            return False
        at = found + len(run)
    return at <= end


def _run_at(name: Parts, run: Parts, start: int) -> bool:
    """Whether a run of components without `**` stands at this place of a name."""
    if not run:
        return True
    if start < 0 or start + len(run) > len(name):
        return False
    return bool(fnmatchcase2("/".join(name[start : start + len(run)]), "/".join(run)))
