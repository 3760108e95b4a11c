"""Lists of a quantization config, read and searched fast; shared by engines that test names against a list.

An entry keeps the place and the text it was written with, whatever an engine makes of its text. A table answers
which entry comes first, so that the cause of a decision is the entry that the engine itself would have met first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtpfix.engines.regexes import Regex, TooCostly, compiled
from mtpfix.model import Answer, Cause, Layer

_GRAM = 12
_LITERAL = re.compile(r"(?:[\w-]|\\[^\w\s])+", re.ASCII)
_SIMPLE = re.compile(r"\^?(?:[\w-]|\\[^\w\s]|\.\*?)*\$?", re.ASCII)
RAISED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a list. `text` is what the engine matches, `written` what stands at `pointer`."""

    text: str
    pointer: str
    written: str


def escaped(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def read_list(value: Any, pointer: str) -> tuple[Entry, ...]:
    """The entries of a list as Python iterates it: None is empty, a text gives its characters, a dict its keys.

    Raises TypeError for a value that cannot be iterated or that holds something else than texts.
    """
    if value is None:
        return ()
    entries = []
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise TypeError(f"an entry of {pointer} is no text: {text!r}")
        step = escaped(text) if isinstance(value, Mapping) else index
        entries.append(Entry(text, pointer if isinstance(value, str) else f"{pointer}/{step}", text))
    return tuple(entries)


def read_keys(value: Mapping[str, Any], pointer: str) -> tuple[Entry, ...]:
    """The keys of a table as entries."""
    return tuple(Entry(key, f"{pointer}/{escaped(key)}", key) for key in value)


def unique(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without those whose text came before."""
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(entry.text, entry)
    return tuple(first.values())


def cause_of(entry: Entry) -> Cause:
    """The cause of a decision that an entry made; an entry of the engine's own has no place in a file."""
    if not entry.pointer:
        return Cause(rule=f"the engine's own entry {entry.written}")
    return Cause(pointer=entry.pointer, entry=entry.written)


def plain(found: Entry | str) -> Answer:
    """Unquantized, because of an entry or of a rule in words."""
    return Answer("plain", Cause(rule=found) if isinstance(found, str) else cause_of(found))


def quantized(scheme: str, found: Entry | str) -> Answer:
    """Quantized in a scheme, because of an entry or of a rule in words."""
    return Answer("quantized", Cause(rule=found) if isinstance(found, str) else cause_of(found), scheme=scheme)


def raised(problem: Exception, entry: Entry | None = None) -> Answer:
    """What an exception of the engine becomes; a pattern too costly to try is `unknown`."""
    cause = Cause(str(problem), entry.pointer, entry.written) if entry else Cause(str(problem))
    if isinstance(problem, TooCostly):
        return Answer("unknown", replace(cause, rule="a pattern that could take the engine unbounded time"))
    return Answer("error", cause, error="re.error" if isinstance(problem, re.error) else type(problem).__name__)


class AtEntry(Exception):
    """An exception that the engine raises over one entry."""

    def __init__(self, problem: Exception, entry: Entry) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.entry = entry


Rule = Callable[[str, Layer, tuple[str, ...]], Answer]


def settled(rule: Rule, runtime: str, layer: Layer, projections: tuple[str, ...] = ()) -> Answer:
    """The rule's answer, an exception of the engine included."""
    try:
        return rule(runtime, layer, projections)
    except AtEntry as found:
        return raised(found.problem, found.entry)
    except (re.error, TooCostly, *RAISED) as problem:
        return raised(problem)


class Remembered:
    """A matcher that asks its rule once for every question."""

    __slots__ = ("_known", "_rule")

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._known: dict[tuple[str, Layer, tuple[str, ...]], Answer] = {}

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...] = ()) -> Answer:
        """The answer for a runtime name; never raises."""
        question = (runtime, layer, projections)
        known = self._known.get(question)
        if known is None:
            known = self._known[question] = settled(self._rule, runtime, layer, projections)
        return known


def built(build: Callable[[], Rule]) -> Remembered:
    """A matcher from a rule; where building it fails as the engine's parsing does, every answer is that failure."""
    try:
        return Remembered(build())
    except AtEntry as found:
        failure = raised(found.problem, found.entry)
    except (re.error, TooCostly, *RAISED) as problem:
        failure = raised(problem)
    return Remembered(lambda *_: failure)


def firsts(entries: Iterable[Entry]) -> dict[str, int]:
    """Text -> index of the first entry with it."""
    table: dict[str, int] = {}
    for index, entry in enumerate(entries):
        table.setdefault(entry.text, index)
    return table


class Within:
    """Entries that are part of a text: `entry in text`."""

    __slots__ = ("_blank", "_grams", "_short")

    def __init__(self, texts: Iterable[str]) -> None:
        self._short: list[tuple[int, str]] = []
        self._grams: dict[str, list[tuple[int, str]]] = {}
        self._blank: int | None = None
        for index, text in enumerate(texts):
            if not text:
                self._blank = index if self._blank is None else self._blank
            elif len(text) < _GRAM:
                self._short.append((index, text))
            else:
                self._grams.setdefault(_gram(text), []).append((index, text))

    def all(self, text: str) -> list[int]:
        """The indices of all entries that are part of the text, in no order; of empty entries the first alone."""
        found = [index for index, part in self._short if part in text]
        if self._grams:
            for gram in self._grams.keys() & {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}:
                found += [index for index, part in self._grams[gram] if part in text]
        if self._blank is not None:
            found.append(self._blank)
        return found

    def first(self, text: str) -> int | None:
        """The index of the first entry that is part of the text."""
        return min(self.all(text), default=None)


def _gram(text: str) -> str:
    """The characters around the last digit: what tells the entries of one list apart."""
    digit = next((at for at in range(len(text) - 1, -1, -1) if text[at].isdigit()), len(text))
    start = min(max(digit - _GRAM // 2, 0), len(text) - _GRAM)
    return text[start : start + _GRAM]


class Runs:
    """Entries that are a run of whole dotted components of a text."""

    __slots__ = ("_heads", "_index")

    def __init__(self, texts: Iterable[str]) -> None:
        self._index: dict[str, int] = {}
        heads: dict[str, set[int]] = {}
        for index, text in enumerate(texts):
            self._index.setdefault(text, index)
            head, *rest = text.split(".")
            heads.setdefault(head, set()).add(1 + len(rest))
        self._heads = {head: tuple(lengths) for head, lengths in heads.items()}

    def first(self, text: str) -> int | None:
        """The index of the first entry that is a run of the text's components."""
        parts = text.split(".")
        heads, known = self._heads, self._index
        found = [
            known[run]
            for at, part in enumerate(parts)
            if part in heads
            for length in heads[part]
            if (run := ".".join(parts[at : at + length])) in known
        ]
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression of an entry, tried only on texts that hold `needle`.

    problem  why it cannot be compiled, None where it can
    """

    entry: Entry
    needle: str
    regex: Regex | None
    problem: Exception | None = None

    def meets(self, test: str, text: str) -> bool:
        """Whether `match`, `fullmatch` or `search` succeeds. Raises AtEntry where the engine raises or hangs."""
        if self.regex is None or self.problem:
            raise AtEntry(self.problem or ValueError(), self.entry)
        if self.needle not in text:
            return False
        try:
            return bool(getattr(self.regex, test)(text))
        except TooCostly as problem:
            raise AtEntry(problem, self.entry) from problem


def pattern_of(entry: Entry, source: str, shown: str = "") -> Pattern:
    """The pattern and the literal text that every match of it must hold ("" where that is not plain to see).

    `shown`: the part of the source in which to look for that text, where the rest of it demands nothing.
    """
    try:
        regex = compiled(source)
    except (re.error, TooCostly) as problem:
        return Pattern(entry, "", None, problem)
    runs = _LITERAL.findall(shown or source) if _SIMPLE.fullmatch(shown or source) else []
    return Pattern(entry, max((re.sub(r"\\(.)", r"\1", run) for run in runs), key=len, default=""), regex)


class Patterns:
    """Patterns among the entries of a list, by index; only those whose needle occurs are tried."""

    __slots__ = ("_always", "_needles", "_patterns")

    def __init__(self, patterns: Iterable[tuple[int, Pattern]]) -> None:
        self._patterns = dict(patterns)
        self._always = [index for index, pattern in self._patterns.items() if not pattern.needle]
        needled = [(index, pattern.needle) for index, pattern in self._patterns.items() if pattern.needle]
        self._needles = Within((needle for _, needle in needled)), [index for index, _ in needled]

    def first(self, test: str, texts: Iterable[str], below: int) -> int:
        """The first index below `below` whose pattern meets one of the texts, else `below`.

        Raises AtEntry where a broken pattern comes before any that meets.
        """
        if not self._patterns:
            return below
        texts = tuple(texts)
        table, indices = self._needles
        likely = {indices[found] for text in texts for found in table.all(text)} if indices else set()
        for index in sorted({*likely, *self._always}):
            if index >= below:
                break
            if any(self._patterns[index].meets(test, text) for text in texts):
                return index
        return below


def tails(text: str) -> Iterator[str]:
    """A dotted text and every shorter tail of it that starts at a component."""
    yield text
    at = text.find(".")
    while at >= 0:
        yield text[at + 1 :]
        at = text.find(".", at + 1)
