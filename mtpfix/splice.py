"""JSON edited as text: outside the entries that an edit names not one byte changes.

A document is scanned once, which checks its grammar and notes where each bracket closes. Only the
containers that an edit reaches are split into entries. An edit then changes a list of entries, not
the text; at the end each touched container says which stretches of the text to exchange. New
separators, line breaks and indentation are copied from the neighbours of the new entry.

What cannot be told afterwards: `[]` and an empty array that holds one line break and some indentation
both become the same lines when an entry is added, and `[]` when it is removed again.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from mtpfix import late, patch
from mtpfix.errors import UnreadableError, WriteError
from mtpfix.frozen import NamedTuple
from mtpfix.model import Edit

_NOT_JSON = "Mend the spot: JSON has no comments, no trailing commas and double quotes only."
_WS = r"[ \t\n\r]*+"
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'  # in text that is known to be right
_SCALAR = rf"(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)"
# Scanning: in an object the name and its colon; an item up to the end of its value or, in group 1, its opening bracket.
_NAME = late.pattern(rf"{_WS}{_STRING}{_WS}:")
_ITEM = late.pattern(rf"{_WS}(?:{_SCALAR}|([\[{{]))")
# The same for runs of plain items with commas, which pays in a long text.
_LONG = 30_000
_KEPT = 1 << 20  # characters of a text whose scan is kept
_RUN = {
    "[": late.pattern(rf"(?:{_WS}{_SCALAR}{_WS},){{0,500}}"),
    "{": late.pattern(rf"(?:{_WS}{_STRING}{_WS}:{_WS}{_SCALAR}{_WS},){{0,500}}"),
}
# A member that is an object of plain members, with the comma behind it; group 1 is that object up to its last bracket.
_MEMBER = rf"{_WS}{_STRING}{_WS}:{_WS}{_SCALAR}{_WS}"
_HELD = late.pattern(rf"{_WS}{_STRING}{_WS}:{_WS}(\{{(?:{_MEMBER}(?:,{_MEMBER}){{0,50}}+|{_WS}))\}}{_WS},")
# Splitting, in text that is known to be right: group 1 is where an entry starts, group 2 where its value does.
_VALUE = rf'(?:{_QUOTED}|[^" \t\n\r,:\[\]{{}}]++|[\[{{])'
_ENTRY = {
    "[": late.pattern(rf"[ \t\n\r,]*+()(){_VALUE}"),
    "{": late.pattern(rf"[ \t\n\r,]*+(){_QUOTED}{_WS}:{_WS}(){_VALUE}"),
}
_SPACE = late.pattern(_WS)
_KEY = late.pattern(_QUOTED)
_CLOSER = {"[": "]", "{": "}"}

_INDEX = late.pattern(r"0|[1-9][0-9]{0,17}")
_BREAK = late.pattern(r"\r\n|\n|\r")
_ONE_BREAK = late.pattern(r"(?:\r\n|\n|\r)[ \t]*")
_INDENT = late.pattern(r"[\r\n]([ \t]+)[^ \t\r\n]")
_INLINE = late.pattern(rf"{_STRING}(?:([ \t]*:[ \t]*)(?![ \t\r\n]))?|,([ \t]*)(?![ \t\r\n])")
_ESCAPE = late.pattern(r"\\(?:(u(?!00[0-7]))|.)")
_BEYOND_ASCII = late.pattern(r"[^\x00-\x7e]")
_SURROGATE = late.pattern(r"[\ud800-\udfff]")

_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)


_HINT = "The file is not the one that the patch was made for."


class _Miss(Exception):
    """An operation that does not fit; the message says why."""


def splice(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes of a JSON file after RFC 6902 operations, which all name that one file.

    An added object member goes behind its siblings, or before them all or one where the edit says so. A
    pointer to a member that occurs twice means the last one, as it does for every parser; removing it
    removes all of them. Raises UnreadableError if `raw` is not JSON and WriteError if an edit does not fit.
    """
    if not edits:
        return raw
    file = edits[0].file
    if any(edit.file != file for edit in edits):
        raise ValueError("edits of several files")
    bom, encoding, text = _decoded(raw, file)
    document = _Document(text, file)
    for edit in edits:
        document = document.edited(edit)
    return bom + document.render().encode(encoding, "surrogatepass")


def stretches(raw: bytes, file: str, pointers: Iterable[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a JSON file, without its byte order mark, and where each pointer's entry starts and ends in it.

    A member of an object starts with its key. A pointer that leads nowhere gives the last entry on its way that is
    there. Raises UnreadableError if `raw` is not JSON.
    """
    text = _decoded(raw, file)[2]
    document = _Document(text, file)
    return text, [document.stretch(patch.tokens(pointer)) for pointer in pointers]


class Renamed(NamedTuple):
    """A member that gets another name: where the bytes of its name are, up to its colon, and those of the new one."""

    start: int
    end: int
    colon: int
    new: bytes


def renamed_members(raw: bytes, names: Mapping[str, str], file: str) -> tuple[Renamed, ...]:
    """Where a JSON object has the names of some members that get others, in the order of the text.

    Raises UnreadableError if `raw` is not JSON, WriteError if a member is not there exactly once or the new name is.
    """
    bom, encoding, text = _decoded(raw, file)
    try:
        root = _Document(text, file).outermost()
        rows = sorted(root.renaming(old, new) for old, new in names.items())
    except _Miss as error:
        raise WriteError(f"{file}: cannot rename: {error}", subject=file, hint=_HINT) from error
    out: list[Renamed] = []
    at, done = len(bom), 0
    for start, end, colon, new in rows:
        first, name, gap = (
            len(part.encode(encoding, "surrogatepass")) for part in (text[done:start], text[start:end], text[end:colon])
        )
        out.append(
            Renamed(at + first, at + first + name, at + first + name + gap, new.encode(encoding, "surrogatepass"))
        )
        at, done = at + first + name + gap, colon
    return tuple(out)


def _decoded(raw: bytes, file: str) -> tuple[bytes, str, str]:
    """Byte order mark, encoding and text, told apart as `json.loads` does."""
    bom, encoding = next((row for row in _BOMS if raw.startswith(row[0])), (b"", json.detect_encoding(raw)))
    try:
        return bom, encoding, raw[len(bom) :].decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        message = f"{file} is not {encoding} text: {error.reason} at byte {error.start}"
        raise UnreadableError(message, subject=file, hint="Save the file as UTF-8.") from error


def _malformed(file: str, text: str, place: int) -> UnreadableError:
    line = text.count("\n", 0, place) + 1
    return UnreadableError(f"{file} is not JSON: line {line}, character {place}", subject=file, hint=_NOT_JSON)


def _scanned(text: str, file: str) -> _Scan:
    """What `_scan` finds; a file is edited, and then its places are looked up."""
    return _kept_scan(text, file) if len(text) <= _KEPT else _Scan(*_scan(text, file))


@lru_cache(maxsize=4)
def _kept_scan(text: str, file: str) -> _Scan:
    return _Scan(*_scan(text, file))


def _scan(text: str, file: str) -> tuple[int, int, dict[int, int]]:
    """Start and end of the outermost value, and opening bracket -> closing bracket of every container."""
    closes: dict[int, int] = {}
    opened: list[int] = []
    kind, place = "[", 0
    while True:
        match = _item(kind, text, place)
        if match is None:
            raise _malformed(file, text, place)
        place = match.end()
        if match[1]:
            opened.append(place - 1)
            kind = match[1]
            if not text.startswith(_CLOSER[kind], _end(_SPACE, text, place)):
                place = _after_run(kind, text, place, closes)
                continue
        place = _closed(text, place, opened, closes, file)
        if not opened:
            break
        kind = text[opened[-1]]
        place = _after_run(kind, text, place, closes)
    if _end(_SPACE, text, place) != len(text):
        raise _malformed(file, text, place)
    return _end(_SPACE, text, 0), place, closes


def _item(kind: str, text: str, place: int) -> re.Match[str] | None:
    """The item of an array, or the value of an object's member, that comes next."""
    if kind == "[":
        return _ITEM.match(text, place)
    name = _NAME.match(text, place)
    return name and _ITEM.match(text, name.end())


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where a match ends of a pattern that also matches nothing."""
    match = pattern.match(text, place)
    return match.end() if match else place


def _after_run(kind: str, text: str, place: int, closes: dict[int, int]) -> int:
    """The place behind all items that follow and their commas, plain ones and objects of plain members; in a short
    text they are looked at one by one."""
    while len(text) > _LONG:
        end = _end(_RUN[kind], text, place)
        while kind == "{" and (held := _HELD.match(text, end)):
            opened, closed = held.regs[1]
            closes[opened], end = closed, held.end()
        if end == place:
            break
        place = end
    return place


def _closed(text: str, place: int, opened: list[int], closes: dict[int, int], file: str) -> int:
    """The place behind the brackets that close here and behind the comma that follows them."""
    while opened:
        place = _end(_SPACE, text, place)
        if text.startswith(",", place):
            return place + 1
        if not text.startswith(_CLOSER[text[opened[-1]]], place):
            raise _malformed(file, text, place)
        closes[opened.pop()] = place
        place += 1
    return place


def _indent(space: str) -> str:
    """The indentation that white space ends in: what follows its last line break."""
    return space[max(space.rfind("\n"), space.rfind("\r")) + 1 :]


def _broken(space: str) -> bool:
    return "\n" in space or "\r" in space


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


class _Style:
    """How a file writes what a new entry cannot copy from its neighbours."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def line_break(self) -> str:
        found = _BREAK.search(self._text)
        return found[0] if found else "\n"

    @cached_property
    def unit(self) -> str:
        """One step of indentation."""
        found = _INDENT.search(self._text)
        return found[1] if found else "  "

    @cached_property
    def separators(self) -> tuple[str, str]:
        """A comma and a colon with the space behind them, where no line break follows."""
        return _inline_separators(self._text)

    @cached_property
    def escapes(self) -> bool:
        """Whether characters beyond ASCII are written as escapes: some are, and none is written as it is."""
        return self._text.isascii() and any(match[1] for match in _ESCAPE.finditer(self._text))

    def dumps(self, value: Any, *, space: str, unit: str) -> str:
        """A value as text; on lines of their own where `space`, which stands before its line, has a line break."""
        lines = _broken(space)
        try:
            text = json.dumps(
                value, ensure_ascii=False, indent=unit if lines else None, separators=self._for(value, lines)
            )
        except RecursionError as error:
            raise _Miss("the new value is nested too deep") from error
        if not text.isascii() or "\x7f" in text:
            text = (_BEYOND_ASCII if self.escapes else _SURROGATE).sub(_escape, text)
        return text.replace("\n", self.line_break + _indent(space)) if lines else text

    def _for(self, value: Any, lines: bool) -> tuple[str, str] | None:
        """The separators of a value that has any."""
        if not isinstance(value, (list, tuple, dict)):
            return None
        comma, colon = self.separators
        return "," if lines else comma, colon


def _inline_separators(text: str) -> tuple[str, str]:
    """The first comma and the first colon that have no line break behind them; `: ` and `, ` where nothing tells."""
    colon = comma = None
    for match in islice(_INLINE.finditer(text), 10_000):
        colon = match[1] if colon is None else colon
        comma = "," + match[2] if comma is None and match[2] is not None else comma
        if colon is not None and comma is not None:
            break
    spaced = (colon or comma or " ").endswith(" ")
    return comma or (", " if spaced else ","), colon or (": " if spaced else ":")


Split = tuple["array[int]", "array[int]", "array[int]"]  # where each entry, its value and its end are


class _Scan:
    """What is known of a text, whatever is edited in it.

    start, end  of the outermost value
    closes      opening bracket -> closing bracket of every container
    """

    def __init__(self, start: int, end: int, closes: dict[int, int]) -> None:
        self.start, self.end, self.closes = start, end, closes
        self._split: dict[int, Split] = {}

    def split(self, text: str, place: int) -> Split:
        """The entries of the container that opens at a place."""
        if place not in self._split:
            self._split[place] = (self._plain if self._is_flat(text, place) else self._nested)(text, place)
        return self._split[place]

    def _is_flat(self, text: str, place: int) -> bool:
        """Whether a long container holds no other, which only its text can tell at once."""
        end = self.closes[place]
        return end - place > _LONG and text.find("[", place + 1, end) < 0 > text.find("{", place + 1, end)

    def _plain(self, text: str, place: int) -> Split:
        found = [match.regs for match in _ENTRY[text[place]].finditer(text, place + 1, self.closes[place])]
        return tuple(array("q", [regs[at][side] for regs in found]) for at, side in ((1, 0), (2, 0), (0, 1)))  # type: ignore[return-value]

    def _nested(self, text: str, place: int) -> Split:
        closes, entry, close = self.closes, _ENTRY[text[place]], self.closes[place]
        starts, values, ends = array("q"), array("q"), array("q")
        place += 1
        while match := entry.match(text, place, close):
            start, value = match.regs[1][0], match.regs[2][0]
            place = closes[value] + 1 if value in closes else match.end()
            starts.append(start)
            values.append(value)
            ends.append(place)
        return starts, values, ends


class _Document:
    """A text, the containers of it that edits have reached, and the edits made so far."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.scan = _scanned(text, file)
        self.start, self.end, self.closes = self.scan.start, self.scan.end, self.scan.closes
        self.style = _Style(text)
        self.containers: dict[int, _Container] = {}

    def edited(self, edit: Edit) -> _Document:
        """The document with one more edit: this one, or a new one where the edit reaches into a new entry."""
        try:
            tokens = patch.tokens(edit.pointer)
            if not tokens:
                return self._replaced(edit)
            container = self._find(tokens[:-1])
            if container is None:
                return _Document(self.render(), self.file).edited(edit)
            container.change(tokens[-1], edit)
        except (_Miss, ValueError) as error:
            message = f"{edit.file}: cannot {edit.op} {edit.pointer or 'the whole document'}: {error}"
            raise WriteError(message, subject=edit.file, hint=_HINT) from error
        return self

    def outermost(self) -> _Object:
        """The object that the text is. Raises _Miss where it is none."""
        found = self._container(self.start, None, "")
        if not isinstance(found, _Object):
            raise _Miss("the outermost value is no object")
        return found

    def render(self) -> str:
        """The text with all edits. What changed inside an entry that is gone has no effect."""
        exchanges = sorted(row for container in self.containers.values() for row in container.exchanges())
        parts: list[str] = []
        done = 0
        for start, end, new in exchanges:
            if start >= done:
                parts += (self.text[done:start], new)
                done = end
        return "".join((*parts, self.text[done:]))

    def stretch(self, path: Iterable[str]) -> tuple[int, int]:
        """Where the entry at a path starts and ends; of a path that leads nowhere, the last entry that is there."""
        found, place, parent = (self.start, self.end), self.start, None
        for step in path:
            try:
                parent = self._container(place, parent, "")
                index = parent.locate(step)
            except _Miss:
                break
            if index is None:
                break
            found, place = (parent.starts[index], parent.ends[index]), parent.values[index]
        return found

    def _replaced(self, edit: Edit) -> _Document:
        if edit.op == "remove":
            raise _Miss("a file without a value is not JSON")
        broken = _BREAK.search(self.text, self.start, self.end)
        value = self.style.dumps(edit.value, space=broken[0] if broken else "", unit=self.style.unit)
        return _Document(self.text[: self.start] + value + self.text[self.end :], self.file)

    def _find(self, path: Iterable[str]) -> _Container | None:
        """The container at a path; None if the way leads into an entry that is new."""
        container = self._container(self.start, None, "")
        for step in path:
            index = container.locate(step)
            if index is None:
                return None
            container = self._container(container.values[index], container, container.space(index))
        return container

    def _container(self, place: int, parent: _Container | None, outer: str) -> _Container:
        kind = _KINDS.get(self.text[place])
        if kind is None:
            raise _Miss("the pointer leads into a value that is neither an array nor an object")
        if place not in self.containers:
            self.containers[place] = kind(self, place, parent, outer)
        return self.containers[place]


class _Container:
    """An array or object of the text, split into its entries.

    starts, values, ends  where each entry, its value and its end are; the same for an array's first two
    fresh                 entries with another value: index -> its text
    moved                 whether entries were added or removed
    outer                 the white space before the entry of `parent` whose value this is
    """

    def __init__(self, document: _Document, place: int, parent: _Container | None, outer: str) -> None:
        self.document, self.text = document, document.text
        self.open, self.close = place, document.closes[place]
        self.parent, self.outer = parent, outer
        self.starts, self.values, self.ends = document.scan.split(document.text, place)
        self.fresh: dict[int, str] = {}
        self.moved = False

    # What the subclasses know: their keys.

    def change(self, step: str, edit: Edit) -> None:
        """Applies an edit to the entry that `step` names."""
        raise NotImplementedError

    def locate(self, step: str) -> int | None:
        """The entry that `step` names; None if it is new."""
        raise NotImplementedError

    def sequence(self) -> Iterable[int | str]:
        """The entries in order: the index of an old one, the text of a new one."""
        raise NotImplementedError

    # White space.

    def lead(self) -> str:
        """What stands between the opening bracket and the first entry."""
        if self.starts:
            return self.text[self.open + 1 : self.starts[0]]
        inner = self.text[self.open + 1 : self.close]
        before = inner or self.outer
        if not _broken(before):
            return inner
        return self.document.style.line_break + _indent(before) + self.unit()

    def tail(self) -> str:
        """What stands between the last entry and the closing bracket."""
        if self.starts:
            return self.text[self.ends[-1] : self.close]
        inner = self.text[self.open + 1 : self.close]
        if inner or not _broken(self.outer):
            return inner
        return self.document.style.line_break + _indent(self.outer)

    def gap(self, index: int | None) -> str:
        """What stands between a new entry and the old one that follows it, or the end: a comma and white space."""
        count = len(self.starts)
        if count > 1:
            index = count - 1 if index is None else max(index, 1)
            return self.text[self.ends[index - 1] : self.starts[index]]
        lead = self.lead()
        return "," + lead if _broken(lead) else self.document.style.separators[0]

    def space(self, index: int | None) -> str:
        """The white space before an entry; before a new one, for None."""
        if index == 0 or len(self.starts) < 2:
            return self.lead()
        return self.gap(index).partition(",")[2]

    def unit(self) -> str:
        """One step of indentation: this container's, else the nearest one's around it, else the file's."""
        container: _Container | None = self
        while container is not None:
            if container.starts and _broken(lead := container.lead()) and _broken(tail := container.tail()):
                inner, outer = _indent(lead), _indent(tail)
                if inner.startswith(outer):
                    return inner[len(outer) :]
            container = container.parent
        return self.document.style.unit

    def emptied(self) -> str:
        """What is left between the brackets when the last entry goes."""
        lead, tail = self.lead(), self.tail()
        if not _broken(lead):
            return lead
        return "" if _ONE_BREAK.fullmatch(tail) else tail

    # Text.

    def write(self, value: Any, index: int | None) -> str:
        """The text of a value that takes the place of an old one, or of a new one."""
        space = self.space(index)
        if index is not None and self._is_inline(index):
            space = ""
        nested = isinstance(value, (list, dict)) and _broken(space)
        return self.document.style.dumps(value, space=space, unit=self.unit() if nested else "")

    def _is_inline(self, index: int) -> bool:
        """Whether an old value is an array or object with entries, all on one line."""
        old = self.text[self.values[index] : self.ends[index]]
        return old[0] in _KINDS and not _broken(old) and old[1:-1].strip() != ""

    def exchanges(self) -> Iterator[tuple[int, int, str]]:
        """The stretches of text to exchange: start, end, new text."""
        for index, new in self.fresh.items():
            yield self.values[index], self.ends[index], new
        if not self.moved:
            return
        last, later = self._untouched()
        added: list[str] = []
        for entry in later:
            if isinstance(entry, str):
                added.append(entry)
                continue
            if added or last is None or entry != last + 1:  # else they were neighbours before
                yield from self._between(last, entry, added)
            last, added = entry, []
        yield from self._between(last, None, added)

    def _untouched(self) -> tuple[int | None, Iterable[int | str]]:
        """The last of the old entries at the front that all are where they were, None for none; and all after it."""
        return None, self.sequence()

    def _between(self, last: int | None, entry: int | None, added: list[str]) -> Iterator[tuple[int, int, str]]:
        """What changes between two old entries that are neighbours now; None stands for a bracket."""
        gap = self.gap(entry)
        if last is not None:
            stop = self.ends[(len(self.ends) if entry is None else entry) - 1]
            if added or stop != self.ends[last]:
                yield self.ends[last], stop, "".join(gap + new for new in added)
        elif entry is not None:
            if added or entry:
                yield self.starts[0], self.starts[entry], "".join(new + gap for new in added)
        elif not added:
            yield self.open + 1, self.close, self.emptied()
        elif self.starts:
            yield self.starts[0], self.ends[-1], gap.join(added)
        else:
            yield self.open + 1, self.close, self.lead() + gap.join(added) + self.tail()


class _Array(_Container):
    """An array and its entries as they are now: indices of old ones, texts of new ones."""

    def __init__(self, document: _Document, place: int, parent: _Container | None, outer: str) -> None:
        super().__init__(document, place, parent, outer)
        self.items: list[int | str] = list(range(len(self.starts)))

    def sequence(self) -> Iterable[int | str]:
        return self.items

    def _untouched(self) -> tuple[int | None, Iterable[int | str]]:
        count = len(self.starts)
        if count and self.items[:count] == list(range(count)):
            return count - 1, self.items[count:]
        return super()._untouched()

    def locate(self, step: str) -> int | None:
        item = self.items[self._index(step, len(self.items) - 1)]
        return item if isinstance(item, int) and item not in self.fresh else None

    def change(self, step: str, edit: Edit) -> None:
        count = len(self.items)
        if edit.op == "add":
            index = count if step == "-" else self._index(step, count)
            self.items.insert(index, self.write(edit.value, None))
            self.moved = True
        elif edit.op == "remove":
            item = self.items.pop(self._index(step, count - 1))
            self.moved = True
            if isinstance(item, int):
                self.fresh.pop(item, None)
        else:
            self._replace(self._index(step, count - 1), edit.value)

    def _replace(self, index: int, value: Any) -> None:
        item = self.items[index]
        if isinstance(item, int):
            self.fresh[item] = self.write(value, item)
        else:
            self.items[index] = self.write(value, None)

    def _index(self, step: str, last: int) -> int:
        if not _INDEX.fullmatch(step):
            raise _Miss(f"{step!r} is no index of an array")
        if int(step) > last:
            raise _Miss(f"the array has {len(self.items)} entries")
        return int(step)


class _Object(_Container):
    """An object, the old members that are gone, and the new ones before and behind the rest.

    index  key -> its last member; twins  key -> all its members, where there are several
    front  new members that come first, the newest of them first of all: key -> text; back likewise
    inner  new members by the old one that they come before; place  key -> that one
    """

    def __init__(self, document: _Document, place: int, parent: _Container | None, outer: str) -> None:
        super().__init__(document, place, parent, outer)
        self.gone: set[int] = set()
        self.front: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self.inner: dict[int, dict[str, str]] = {}
        self.place: dict[str, int] = {}
        self.index: dict[str, int] = {}
        self.twins: dict[str, list[int]] = {}
        for number, start in enumerate(self.starts):
            key = self._key(start)
            if key in self.index:
                self.twins.setdefault(key, [self.index[key]]).append(number)
            self.index[key] = number

    def sequence(self) -> Iterable[int | str]:
        yield from reversed(self.front.values())
        for number in range(len(self.starts)):
            if number in self.inner:
                yield from self.inner[number].values()
            if number not in self.gone:
                yield number
        yield from self.back.values()

    def _is_new(self, step: str) -> bool:
        return step in self.front or step in self.back or step in self.place

    def locate(self, step: str) -> int | None:
        if self._is_new(step):
            return None
        if step not in self.index:
            raise _Miss(f"there is no member {step!r}")
        index = self.index[step]
        return None if index in self.fresh else index

    def change(self, step: str, edit: Edit) -> None:
        known = step in self.index or self._is_new(step)
        if edit.op != "add" and not known:
            raise _Miss(f"there is no member {step!r}")
        if known and (edit.op == "remove" or edit.first):
            self._remove(step)
            known = False
        if edit.op == "remove":
            return
        if not known:
            self.moved = True
            self._add(step, edit)
        elif step in self.index:
            self.fresh[self.index[step]] = self.write(edit.value, self.index[step])
        elif step in self.place:
            self.inner[self.place[step]][step] = self._member(step, edit.value, self.place[step])
        else:
            side = self.front if step in self.front else self.back
            side[step] = self._member(step, edit.value, 0 if side is self.front else -1)

    def _add(self, step: str, edit: Edit) -> None:
        if edit.before is None:
            side = self.front if edit.first else self.back
            side[step] = self._member(step, edit.value, 0 if edit.first else -1)
            return
        if edit.before not in self.index:
            raise _Miss(f"there is no member {edit.before!r}")
        self.place[step] = at = self.index[edit.before]
        self.inner.setdefault(at, {})[step] = self._member(step, edit.value, at)

    def _remove(self, key: str) -> None:
        self.moved = True
        self.front.pop(key, None)
        self.back.pop(key, None)
        if key in self.place:
            del self.inner[self.place.pop(key)][key]
        if key in self.index:
            last = self.index.pop(key)
            numbers = self.twins.pop(key, [last])
            self.gone.update(numbers)
            for number in numbers:
                self.fresh.pop(number, None)

    def renaming(self, key: str, new: str) -> tuple[int, int, int, str]:
        """Where the name of a member starts and ends, where its colon is, and the text of another name."""
        if key not in self.index or key in self.twins:
            raise _Miss(f"{key!r} is not there once")
        if new in self.index:
            raise _Miss(f"{new!r} is there already")
        start = self.starts[self.index[key]]
        end = _end(_KEY, self.text, start)
        return start, end, self.text.index(":", end), self.document.style.dumps(new, space="", unit="")

    def _key(self, start: int) -> str:
        written = self.text[start : _end(_KEY, self.text, start)]
        return str(json.loads(written)) if "\\" in written else written[1:-1]

    def _member(self, key: str, value: Any, beside: int) -> str:
        """The text of a new member, with the colon of the sibling that it will stand next to."""
        name = self.document.style.dumps(key, space="", unit="")
        return name + self._colon(beside) + self.write(value, None)

    def _colon(self, index: int) -> str:
        if not self.starts:
            return self.document.style.separators[1]
        colon = self.text[_end(_KEY, self.text, self.starts[index]) : self.values[index]]
        return self.document.style.separators[1] if _broken(colon) else colon


_KINDS: dict[str, type[_Container]] = {"[": _Array, "{": _Object}
