"""Lists of a quantization config, read and searched fast; shared by engines that test names against a list.

An entry keeps the place and the text it was written with, whatever an engine makes of its text. A table answers
which entry comes first, so that the cause of a decision is the entry that the engine itself would have met first.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, islice, repeat, takewhile
from operator import itemgetter, methodcaller, not_
from threading import Lock
from typing import Any, Literal, TypeVar

from mtpfix import late
from mtpfix.engines.base import MatchQuery, places_of
from mtpfix.frozen import NamedTuple, dataclass, replace
from mtpfix.model import Answer, Cause, Layer
from mtpfix.names import brief
from mtpfix.patch import step
from mtpfix.regexes import MAX_LENGTH, Opening, Regex, TooCostly, compiled, literal_of, opening_of

LONGEST_REASON = 1000  # characters of what an engine says when it raises: a value of the config may be part of it
_GRAM = 12
_NO_DIGITS = "".join(letter for letter in map(chr, range(128)) if not letter.isdigit())
_BEHIND_DOT = chr(ord(".") + 1)
PLAIN = late.pattern(r"[A-Za-z0-9_.-]+")  # an entry that is a name or a part of one, whoever reads it
_MOST = 4_000_000  # characters that an index keeps from one list to the next
_LONGEST = 4000  # characters of an entry that is looked up by a piece; a longer one is part of no real name
_ENDS = ("", "$")  # of a pattern whose opening is all of it
_TEXT, _BROKEN = itemgetter(0), itemgetter(3)
_AT_DOT, _DOTS = methodcaller("partition", "."), methodcaller("count", ".")
Row = TypeVar("Row", bound=tuple[Any, ...])
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


class Entry(NamedTuple):
    """An entry of a list. `text` is what the engine matches, `written` what stands at `pointer`.

    broken  no text at all: an engine that walks as far as this raises; always the last one that is kept
    """

    text: str
    pointer: str
    written: str
    broken: bool = False


def rows(kind: type[Row], *columns: Iterable[Any]) -> tuple[Row, ...]:
    """Named tuples made of their columns: lists are long, and this takes no step of Python's own for each."""
    return tuple(map(partial(tuple.__new__, kind), zip(*columns, strict=False)))


def pointers(value: Mapping[str, Any] | Sequence[Any], pointer: str) -> Iterable[str]:
    """The pointers of a list's entries, or of a table's members, below the pointer of the whole."""
    form = pointer.replace("%", "%%")
    if not isinstance(value, Mapping):
        return map(f"{form}/%d".__mod__, places_of(value))
    whole = "".join(value)
    steps = map(step, value) if "~" in whole or "/" in whole else value  # most need no look at each
    return map(f"{form}/%s".__mod__, steps)


def read_list(value: Any, pointer: str) -> tuple[Entry, ...]:
    """The entries of a list as Python iterates it: None is empty, a text gives its characters, a dict its keys.

    What is no text is `broken` and ends the list. Raises TypeError for a value that cannot be iterated.
    """
    if isinstance(value, list) and set(map(type, value)) == {str}:
        return read_texts(value, pointer)
    entries: list[Entry] = []
    keyed, letters = isinstance(value, Mapping), isinstance(value, str)
    for index, text in enumerate(() if value is None else value):
        if not isinstance(text, str):
            entries.append(Entry("", f"{pointer}/{index}", brief(repr(text), LONGEST_REASON), broken=True))
            break
        place = step(text) if keyed else index
        entries.append(Entry(text, pointer if letters else f"{pointer}/{place}", text))
    return tuple(entries)


def texts(entries: Sequence[Entry]) -> list[str]:
    """What the entries match, a broken last one left out."""
    found = list(map(_TEXT, entries))
    return found if True not in map(_BROKEN, entries) else [entry.text for entry in entries if not entry.broken]


def starting(found: Sequence[str], prefix: str) -> list[int]:
    """The places of texts that begin with a prefix, which most lists have nowhere."""
    if prefix not in "\n".join(found):
        return []
    return [at for at, text in enumerate(found) if text.startswith(prefix)]


def picked(entries: Sequence[Entry], index: int | None) -> Entry | None:
    """The entry that was found, or None for an index past the end. Raises AtEntry where the walk met a broken one."""
    if index is not None and index < len(entries) and not entries[index].broken:
        return entries[index]
    if entries and entries[-1].broken:
        raise AtEntry(TypeError(f"an entry is no text: {entries[-1].written}"), entries[-1])
    return None


def read_texts(value: Mapping[str, Any] | Sequence[str], pointer: str) -> tuple[Entry, ...]:
    """The texts of a list, or the keys of a table, as entries."""
    return rows(Entry, value, pointers(value, pointer), value, repeat(False))


def unique(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without those whose text came before."""
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(entry.text, entry)
    return tuple(first.values())


def sound(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries, for an engine that handles each one while it reads the config. Raises AtEntry for a broken one."""
    picked(entries[-1:], 0)
    return entries


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
    reason = brief(str(problem), LONGEST_REASON)
    cause = Cause(reason, entry.pointer, entry.written) if entry else Cause(reason)
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


def built(query: MatchQuery, build: Callable[[], Rule]) -> Remembered:
    """A matcher from a rule; where building it fails as the engine's parsing does, every answer is that failure.

    Queries that share and come to one rule have one matcher.
    """
    try:
        rule = build()
        return query.once(("matcher", rule), lambda: Remembered(rule))
    except AtEntry as found:
        failure = raised(found.problem, found.entry)
    except (re.error, TooCostly, *RAISED) as problem:
        failure = raised(problem)
    return Remembered(lambda *_: failure)


def firsts(entries: Iterable[Entry]) -> dict[str, int]:
    """Text -> index of the first entry with it."""
    return first_of(texts(tuple(entries)))


def first_of(found: Sequence[str]) -> dict[str, int]:
    """Text -> its first index, in the order of the texts."""
    table = dict.fromkeys(found, 0)
    table.update(zip(reversed(found), range(len(found) - 1, -1, -1), strict=True))
    return table


class Below:
    """Of some dotted names the first that lies below another one.

    They are looked up in their sorted order: a table of all paths above a name takes room by the square of its length.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._order = first_of([name for name in names if "." in name])
        self._sorted = sorted(self._order)

    def first(self, name: str) -> str | None:
        """The first that begins with the name and a dot."""
        begin = bisect_left(self._sorted, f"{name}.")
        end = bisect_left(self._sorted, f"{name}{_BEHIND_DOT}", begin)
        return min(self._sorted[begin:end], key=self._order.__getitem__, default=None)


class Starting:
    """Names by what they start with."""

    __slots__ = ("_order", "_sorted")

    def __init__(self, names: Iterable[str]) -> None:
        self._order = first_of(tuple(names))
        self._sorted = sorted(self._order)

    def all(self, prefix: str) -> list[str]:
        """The names that start with a text, each once, in their order."""
        begin = bisect_left(self._sorted, prefix)
        found = list(takewhile(lambda name: name.startswith(prefix), islice(self._sorted, begin, None)))
        return sorted(found, key=self._order.__getitem__)


class Index:
    """Texts by a key that is made of each, of all lists that were asked for so far.

    The lists of a checkpoint, and one list before and after its repair, differ in a few entries: whoever looks into the
    table asks his own list for what he finds. What a table was asked for stays in it. `scan` asks from several threads.
    """

    __slots__ = ("_held", "_key", "_lock", "_size")

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._held: tuple[set[str], dict[str, list[str]]] = set(), {}
        self._size = 0
        self._lock = Lock()

    def of(self, texts: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """A table with all of these texts in it, each once, and others."""
        fresh = set(texts)
        with self._lock:
            return self._with(fresh)

    def _with(self, fresh: set[str]) -> Mapping[str, Sequence[str]]:
        seen, table = self._held
        new = fresh.difference(seen)
        size = sum(map(len, new))
        if self._size + size > _MOST:
            (seen, table), new, size = (set(), {}), fresh, sum(map(len, fresh))
            if size <= _MOST:
                self._held, self._size = (seen, table), 0
        for text, key in zip(new, map(self._key, new), strict=True):
            table.setdefault(key, []).append(text)
        seen |= fresh
        self._size += size if table is self._held[1] else 0
        return table


class Within:
    """Entries that are part of a text: `entry in text`."""

    __slots__ = ("_first", "_grams", "_places", "_short", "_texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._first = first_of(self._texts)
        self._places: dict[str, list[int]] = {}
        sizes = list(map(len, self._first))
        fit = [_GRAM <= size <= _LONGEST for size in sizes]
        sized = list(compress(self._first, fit))
        self._short = list(compress(self._first, map(not_, fit)))
        self._grams = _GRAMS.of(sized) if sized else {}

    def _parts(self, text: str) -> Iterator[str]:
        """The entries that are part of the text, each once, in no order."""
        yield from (part for part in self._short if part in text)
        if self._grams:
            grams = {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}
            for gram in filter(self._grams.__contains__, grams):
                yield from (part for part in self._grams[gram] if part in self._first and part in text)

    def all(self, text: str) -> list[int]:
        """The indices of all entries that are part of the text, in no order; of empty entries the first alone."""
        if not self._places:
            for index, part in enumerate(self._texts):
                self._places.setdefault(part, []).append(index)
            self._places[""] = self._places.get("", [])[:1]
        return [index for part in self._parts(text) for index in self._places[part]]

    def first(self, text: str) -> int | None:
        """The index of the first entry that is part of the text."""
        return min((self._first[part] for part in self._parts(text)), default=None)


def _gram(text: str) -> str:
    """The characters around the last digit: what tells the entries of one list apart."""
    digit = len(text.rstrip(_NO_DIGITS)) - 1
    if digit < 0:
        return text[-_GRAM:]
    start = min(max(digit - _GRAM // 2, 0), len(text) - _GRAM)
    return text[start : start + _GRAM]


_GRAMS = Index(_gram)


class Runs:
    """Entries that are a run of whole dotted components of a text."""

    __slots__ = ("_heads", "_index", "_lengths")

    def __init__(self, texts: Iterable[str]) -> None:
        self._index = first_of(tuple(texts))
        self._heads = frozenset(map(_TEXT, map(_AT_DOT, self._index)))
        self._lengths = [count + 1 for count in set(map(_DOTS, self._index))]

    def first(self, text: str) -> int | None:
        """The index of the first entry that is a run of the text's components."""
        parts = text.split(".")
        heads, known = self._heads, self._index
        best: int | None = None
        for at, part in enumerate(parts):
            for length in self._lengths if part in heads else ():
                found = known.get(".".join(parts[at : at + length]))
                if found is not None and (best is None or found < best):
                    best = found
        return best


class Ends:
    """Texts that a name must start (or end) with, found by their lengths."""

    __slots__ = ("_at_end", "_index", "_lengths")

    def __init__(self, at_end: bool, texts: Sequence[str] = ()) -> None:
        """`texts`: each with its own place for an index."""
        self._at_end = at_end
        self._index = first_of(texts)
        self._lengths = tuple(sorted(set(map(len, texts))))

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def add(self, text: str, index: int) -> None:
        """Puts a text in; of equal texts the first counts."""
        self._index.setdefault(text, index)
        if len(text) not in self._lengths:
            self._lengths = tuple(sorted((*self._lengths, len(text))))

    def first(self, name: str, below: int) -> int:
        """The first index below `below` of a text that the name starts (or ends) with, else `below`."""
        size, index = len(name), self._index
        for length in self._lengths:
            if length > size:
                break
            found = index.get(name[size - length :] if self._at_end else name[:length], below)
            if found < below:
                below = found
        return below


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression of an entry, tried only on texts that hold `needle`.

    problem  why it cannot be compiled, None where it can
    source   of one that certainly can, and is compiled once a text holds the needle
    opening  what a match from the start begins with, where that is known
    """

    entry: Entry
    needle: str
    regex: Regex | None
    problem: Exception | None = None
    source: str = ""
    opening: Opening | None = None

    def meets(self, test: str, text: str) -> bool:
        """Whether `match`, `fullmatch` or `search` succeeds. Raises AtEntry where the engine raises or hangs."""
        if (self.regex is None and not self.source) or self.problem:
            raise AtEntry(self.problem or ValueError(), self.entry)
        if self.needle not in text:
            return False
        if self.opening and self.opening.rest in _ENDS and test != "search" and "\n" not in text:
            end = self.opening.spans(text)
            return end == len(text) or (end >= 0 and test == "match" and not self.opening.rest)
        try:
            return bool(getattr(self.regex or compiled(self.source), test)(text))
        except TooCostly as problem:
            raise AtEntry(problem, self.entry) from problem


def pattern_of(entry: Entry, source: str, inner: str = "") -> Pattern:
    """The pattern of an entry.

    inner  a pattern that every match of the source must hold a match of, if it is one; then the source is one too
    """
    opening = opening_of(inner or source)
    if opening and source and len(source) <= MAX_LENGTH:
        whole = opening.rest in _ENDS and opening.texts and not inner
        if inner and opening.rest in _ENDS:  # of the source more comes behind it
            opening = Opening(opening.texts, source)
        return Pattern(entry, "" if whole else literal_of(inner or source), None, None, source, opening)
    needle = literal_of(inner or source)
    try:
        return Pattern(entry, needle, compiled(source))
    except (re.error, TooCostly) as problem:
        return Pattern(entry, "", None, problem)


class Patterns:
    """Patterns among the entries of a list, by index; only those are tried whose opening or needle a text has."""

    __slots__ = ("_always", "_needles", "_openings", "_patterns")

    def __init__(self, patterns: Iterable[tuple[int, Pattern]]) -> None:
        self._patterns = dict(patterns)
        self._openings = _Node()
        self._always: list[int] = []
        needled: list[tuple[int, str]] = []
        for index, pattern in self._patterns.items():
            if pattern.opening and pattern.opening.texts:
                self._openings.add(index, pattern.opening.texts)
            elif pattern.needle:
                needled.append((index, pattern.needle))
            else:
                self._always.append(index)
        self._needles = Within((needle for _, needle in needled)), [index for index, _ in needled]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def first(self, test: Literal["match", "fullmatch"], texts: Iterable[str], below: int) -> int:
        """The first index below `below` whose pattern meets one of the texts, else `below`.

        Raises AtEntry where a broken pattern comes before any that meets.
        """
        texts = tuple(texts)
        table, indices = self._needles
        likely = {indices[found] for text in texts for found in table.all(text)} if indices else set()
        likely.update(*(node.ends for text in texts for node in self._openings.reached(text)))
        for index in sorted({*likely, *self._always}):
            if index >= below:
                break
            if any(self._patterns[index].meets(test, text) for text in texts):
                return index
        return below


class Segments:
    """Patterns of nothing but word characters and dots, matched from the start of a text up to a module boundary.

    A dot of such a pattern is any one character, so that a pattern is a row of segments at fixed distances. Those of
    one length are a tree of segments, which grows as far as texts lead into it.
    """

    __slots__ = ("_trees", "_waiting")

    def __init__(self, patterns: Iterable[tuple[int, str]]) -> None:
        self._waiting: dict[int, list[tuple[int, str]]] = {}
        self._trees: dict[int, _Node] = {}
        for index, pattern in patterns:
            self._waiting.setdefault(len(pattern), []).append((index, pattern))

    def first(self, text: str, below: int) -> int:
        """The first index below `below` whose pattern matches and stops before or behind a dot, or at the end."""
        for end in _boundaries(text):
            if end in self._waiting:
                below = min((below, *(node.ends[0] for node in self._tree(end).reached(text))))
        return below

    def _tree(self, size: int) -> _Node:
        if size not in self._trees:
            self._trees[size] = _Node()
            for index, pattern in self._waiting[size]:
                self._trees[size].add(index, pattern.split("."))
        return self._trees[size]


class _Node:
    """A segment: what may follow it, by length and text, and the patterns that end with it, the first one first.

    Patterns that were not looked at yet wait with all their segments: a tree grows as far as texts lead into it.
    """

    __slots__ = ("_children", "_depth", "_waiting", "ends")

    def __init__(self, depth: int = 0) -> None:
        self.ends: list[int] = []
        self._waiting: list[tuple[int, Sequence[str]]] | None = None
        self._children: dict[int, dict[str, _Node]] | None = None
        self._depth = depth

    def add(self, index: int, segments: Sequence[str]) -> None:
        """A pattern below this segment."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((index, segments))

    def reached(self, text: str) -> Iterator[_Node]:
        """The nodes with which patterns end that match from the start of a text on."""
        ways = [(self, 0)]
        while ways:
            node, at = ways.pop()
            for length, children in node._grown().items():
                child = children.get(text[at : at + length])
                if child is not None:
                    if child.ends:
                        yield child
                    ways.append((child, at + length + 1))

    def _grown(self) -> dict[int, dict[str, _Node]]:
        depth = self._depth
        children = self._children = {} if self._children is None else self._children
        for index, segments in self._waiting or ():
            segment = segments[depth]
            held = children.setdefault(len(segment), {})
            child = held.get(segment)
            if child is None:
                child = held[segment] = _Node(depth + 1)
            if depth + 1 < len(segments):
                child.add(index, segments)
            else:
                child.ends.append(index)
        self._waiting = None
        return children


def _boundaries(text: str) -> set[int]:
    """Where a text ends, and the places before and behind its dots."""
    found, at = {len(text)}, text.find(".")
    while at >= 0:
        found.update((at, at + 1))
        at = text.find(".", at + 1)
    return found


def tails(text: str) -> Iterator[str]:
    """A dotted text and every shorter tail of it that starts at a component."""
    yield text
    at = text.find(".")
    while at >= 0:
        yield text[at + 1 :]
        at = text.find(".", at + 1)
