"""Layers that nothing tells apart: one of them is judged, and stands for the others (pure).

A large model is one layer written down many times. Two layers are alike where they hold the same modules stored in the
same way, and where nothing that takes part in a decision can make a difference between their numbers. Names are only
ever compared with texts: with the entries of a config's lists and the keys of its tables, with the rules of a class
mapper, with the patterns of a family file. Whatever the comparison is (equal, starts with, is part of, glob, regular
expression, after whatever renaming), a text can tell two numbers of the same length apart only by a digit of its own
that falls on the number. So each run of digits in a text is looked at by what stands around it:

- behind a letter (`w4`, `conv1d`) it never falls on a number, which has a dot in front; behind `experts.` it falls on
  an expert, never on a layer
- `layers.3.self_attn`, with a whole word in front and a dot and a letter behind, falls on the number 3 and on no other,
  whether it is read as a literal, as a glob or as a regular expression. Such a text *names* 3. Layers are alike if the
  texts that name them are the same but for the number, and stand at the same place among all other texts
- `layers.3*`, `layers.3` fall on every number that starts with 3, `*.3.*` on every one that holds a 3: these numbers
  are nobody's equals, and neither are those of the draft and those that a family file names
- a text in which digits can mean more than themselves (`[0-3]`, `\\1`) tells all numbers apart

Two runs in one text, or a number that stands in a name a second time, count as the worse case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from mtpfix import late
from mtpfix.frozen import NamedTuple, dataclass, field
from mtpfix.names import counted
from mtpfix.regexes import TooCostly, compiled

FEW = 200  # texts from which on it pays to look for doubles
MANY = 200_000  # texts from which on it no longer pays to look into each
_NUMBER = late.pattern(r"(?:^|\.)([0-9]+)(?=\.|$)")
_INNER = late.pattern(r"(?<!experts)\.([0-9]+)(?=\.|$)")
_RUN = late.pattern(
    r"(?P<word>(?<![\\A-Za-z_])[A-Za-z_]+\\?\.)?(?P<run>[0-9]+)"
    r"(?P<end>(?=\\\.(?![*+?{])|\.[A-Za-z_](?![*+?{])))?"
)
_GLUED = late.pattern(r"(?<!\\)[A-Za-z_]$")
_DIGIT = late.pattern("[0-9]")
_WILD = late.pattern(r"\[[^\]]*[0-9]|\\[0-9xuUNo]|\(\?P=|\(\?\(")
_ANY_DIGIT = "[0-9]"
_EXPERTS = "experts"

Find = Callable[[tuple[str, ...], Sequence[str]], Mapping[Any, Iterable[int]]]
Layer = tuple[str, str]  # the path to a number, and the number: ("model.layers", "3")


class Run(NamedTuple):
    """A run of digits that may fall on a layer's number. `left`, `right`: whether the number ends there too."""

    digits: str
    left: bool
    right: bool
    start: int


class Wild(Exception):
    """A text whose digits can mean more than themselves."""


def runs(text: str, globs: bool = False) -> list[Run]:
    """The runs of digits of a text that may fall on a layer's number. Raises Wild.

    `globs`: a star is any text, whoever reads it; else, and behind `re:`, it may repeat what stands before it.
    """
    return _runs(text, globs and "*" in text) if _DIGIT.search(text) else []


def is_literal(text: str) -> bool:
    """Whether the digits of a text mean no more than themselves."""
    try:
        runs(text)
    except Wild:
        return False
    return True


@lru_cache(maxsize=16384)  # config.json and its sidecar hold the same list, which is looked at more than once
def _runs(text: str, globs: bool) -> list[Run]:
    text = text.replace(_ANY_DIGIT, r"\d")
    if ("[" in text or "\\" in text or "(?" in text) and _WILD.search(text):
        raise Wild(text)
    repeats = "+?{" if globs and not text.startswith("re:") else "*+?{"
    return [run for found in _RUN.finditer(text) if (run := _run(text, found, repeats)) is not None]


def _run(text: str, found: re.Match[str], repeats: str) -> Run | None:
    word, digits, start = (found["word"] or "").rstrip(".\\"), found["run"], found.start("run")
    if word == _EXPERTS or (not word and _GLUED.search(text, 0, start)):
        return None
    behind = text[found.end("run") : found.end("run") + 1]
    if behind and behind in repeats and len(digits) > 1:
        digits = digits[:-1]  # the last one may be missing
    return Run(digits, bool(word) and not _EXPERTS.endswith(word), found["end"] is not None, start)


@dataclass(frozen=True)
class Mentions:
    """What some texts say about numbers.

    named   number -> (where, the text without the number, how many texts that name none stand before it, its value)
    exactly numbers that are nobody's equals
    starts  digits with which such numbers start
    parts   digits that such numbers hold
    globs   see `runs`
    seen    the runs of texts that were read: config.json and its sidecar hold the same list
    """

    named: dict[str, list[tuple[str, str, int, str]]] = field(default_factory=dict)
    exactly: set[str] = field(default_factory=set)
    starts: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    globs: bool = False
    seen: dict[str, tuple[list[Run], str, str]] = field(default_factory=dict)

    def single(self, number: str) -> bool:
        """Whether some text tells a number from all others."""
        return (
            number in self.exactly
            or any(number.startswith(digits) for digits in self.starts)
            or any(digits in number for digits in self.parts)
        )

    def add(self, found: Iterable[Run]) -> None:
        """Numbers that runs of digits tell apart from all others."""
        for run in found:
            (self.parts if not run.left else self.exactly if run.right else self.starts).add(run.digits)

    def _runs(self, text: str) -> tuple[list[Run], str, str]:
        """The runs of a text, and where it names one number: that, and the text without it. Raises Wild."""
        found, digits, rest = runs(text, self.globs), "", ""
        if len(found) == 1 and found[0].left and found[0].right:
            digits, start = found[0].digits, found[0].start
            rest = f"{text[:start]}#{text[start + len(digits) :]}"
        self.seen[text] = found, digits, rest
        if text.startswith("re:"):
            _check(text)
        return self.seen[text]

    def read(self, place: str, items: Iterable[tuple[str, str]], inner: frozenset[str]) -> None:
        """The texts of one list with their values. `inner`: numbers that stand in names a second time. Raises Wild."""
        others, seen, digit = 0, self.seen, _DIGIT.search
        for text, value in items:
            if digit(text) is None and not text.startswith("re:"):
                others += 1
                continue
            found, digits, rest = seen[text] if text in seen else self._runs(text)
            if rest and digits not in inner:
                self.named.setdefault(digits, []).append((place, rest, others, value))
            else:
                self.add(found)
                others += 1


def _check(text: str) -> None:
    """A pattern that stops an engine does so at its place among the others, which an engine may sort by their text."""
    try:
        compiled(text.removeprefix("re:"))
    except (re.error, TooCostly) as problem:
        raise Wild(text) from problem


def texts_of(value: Any, place: str = "") -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Every list, table and text of a JSON value that may hold names: where it is, its texts, and their values where
    there are any."""
    if isinstance(value, Mapping):
        keys = [key for key in value if isinstance(key, str)]
        yield place, keys, [repr(value[key]) if _DIGIT.search(key) else "" for key in keys]
        yield from _held(value, place)
    elif isinstance(value, (list, tuple)):
        if set(map(type, value)) <= {str}:
            yield place, value, ()
            return
        yield place, [item for item in value if isinstance(item, str)], ()
        for item in value:
            if isinstance(item, (Mapping, list, tuple)):
                yield from texts_of(item, f"{place}/-")
    elif isinstance(value, str):
        yield place, [value], ()


def _held(value: Mapping[str, Any], place: str) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """The same of what a table holds; once of values that are equal and say nothing of numbers, wherever they are."""
    silent: Any = None
    for key, held in value.items():
        if "version" in str(key) or (silent is not None and held == silent):
            continue
        found = tuple(texts_of(held, f"{place}/{key}"))
        yield from found
        if found and not any(text.startswith("re:") or _DIGIT.search(text) for _, texts, _ in found for text in texts):
            silent = held


@dataclass(frozen=True, slots=True)
class Alike:
    """Which layers stand for which others.

    members  a layer -> the numbers that it stands for, its own first; only layers that stand for more than one
    numbers  the numbers of all layers that stand for others or are stood for
    globs    see `runs`
    """

    members: Mapping[Layer, tuple[str, ...]] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()
    globs: bool = False

    def told_apart(self, texts: Iterable[str]) -> bool:
        """Whether some texts make a difference between layers that are alike."""
        found = Mentions()
        try:
            for text in texts if self.numbers else ():
                found.add(runs(text, self.globs))
        except Wild:
            return True
        return any(found.single(number) for number in self.numbers)

    def idle(self, texts: Sequence[str], but: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """The indices of texts that name a layer for which another one stands: they fall on nothing that is judged.

        but  indices that need not be looked at
        """
        away, digit = self.numbers - {number for _, number in self.members}, _DIGIT.search
        numbered = ((at, text) for at, text in enumerate(texts if away else ()) if digit(text))
        return tuple(at for at, text in numbered if at not in but and _names(text, away))


def _names(text: str, numbers: frozenset[str] | set[str]) -> bool:
    try:
        found = runs(text)
    except Wild:
        return False
    return len(found) == 1 and found[0].left and found[0].right and found[0].digits in numbers


NONE = Alike()


@lru_cache(maxsize=1 << 12)
def layer_and_rest(name: str) -> tuple[Layer, str] | None:
    """`model.layers.3.mlp.gate` as (("model.layers", "3"), ".mlp.gate"); None for a name without a number."""
    found = _NUMBER.search(name)
    if found is None:
        return None
    return (name[: max(found.start(1) - 1, 0)], found[1]), name[found.end() :]


def alike(
    modules: Iterable[tuple[str, object]],
    values: Iterable[Any],
    mentioned: Iterable[str],
    numbers: Iterable[int],
    globs: bool = False,
    doubles: Find = lambda *_: {},
) -> Alike:
    """The layers that nothing tells apart.

    modules    the names of the target's modules, each with all that counts about how it is stored
    values     the quantization configs whose lists may be read
    mentioned  texts of the family file that names are compared with
    numbers    numbers that are nobody's equals
    globs      see `runs`
    doubles    which texts of a list (with their values) fall on no number and read like an earlier one, by their kind
    """
    layers = _layers(modules)
    if len({(path, len(number), len(held)) for (path, number), held in layers.items()}) == len(layers):
        return NONE
    found = Mentions(exactly={str(number) for number in numbers}, globs=globs)
    rests = {rest for held in layers.values() for rest, _ in held}
    inner = frozenset(number for rest in rests for number in _INNER.findall(rest))
    found.exactly.update(inner)
    try:
        for text in mentioned:
            found.add(runs(text))
        for place, texts, held in _bounded(values):
            found.read(place, _without(texts, held, doubles), inner)
    except Wild:
        return NONE
    return _classes(layers, found)


def _layers(modules: Iterable[tuple[str, object]]) -> dict[Layer, tuple[tuple[str, object], ...]]:
    """Each numbered layer with what is in it; without those whose own name is a module's."""
    layers: dict[Layer, list[tuple[str, object]]] = {}
    bare: set[Layer] = set()
    for name, stored in modules:
        found = layer_and_rest(name)
        if found is not None:
            layer, rest = found
            if rest:
                layers.setdefault(layer, []).append((rest, stored))
            else:
                bare.add(layer)
    return {layer: tuple(held) for layer, held in layers.items() if layer not in bare and _counts(*layer)}


def _counts(path: str, number: str) -> bool:
    plain = number == "0" or not number.startswith("0")
    return plain and counted(number) is not None and path.rpartition(".")[2] != _EXPERTS


def _bounded(values: Iterable[Any]) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    left = MANY
    for at, value in enumerate(values):
        for place, texts, held in texts_of(value, str(at)):
            left -= len(texts)
            if left < 0:
                raise Wild
            yield place, texts, held


def _without(texts: Sequence[str], values: Sequence[str], doubles: Find) -> Iterable[tuple[str, str]]:
    """Texts with their values, without doubles."""
    gone: set[int] = set()
    if len(texts) >= FEW:
        gone.update(*doubles(tuple(texts), values if any(values) else ()).values())
    pairs = zip(texts, values or repeat(""), strict=False)
    return (pair for at, pair in enumerate(pairs) if at not in gone) if gone else pairs


def _classes(layers: Mapping[Layer, tuple[tuple[str, object], ...]], found: Mentions) -> Alike:
    classes: dict[object, list[Layer]] = {}
    for layer, held in layers.items():
        path, number = layer
        if not found.single(number):
            key = path, len(number), held, tuple(found.named.get(number, ()))
            classes.setdefault(key, []).append(layer)
    members = {group[0]: tuple(number for _, number in group) for group in classes.values() if len(group) > 1}
    return Alike(members, frozenset(number for group in members.values() for number in group), found.globs)
