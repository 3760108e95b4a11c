"""The grammar of JSON: a text scanned once, and the containers in it split into entries."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache

from mtpfix import late
from mtpfix.errors import UnreadableError

_NOT_JSON = "Mend the spot: JSON has no comments, no trailing commas and double quotes only."
_WS = r"[ \t\n\r]*+"
_PLAIN = r'[^"\\\x00-\x1f]*+'
_ESCAPES = late.possessive(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})' + _PLAIN, "*")
STRING = f'"{_PLAIN}{_ESCAPES}"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
_QUOTED = '"' + late.possessive(r'[^"\\]++|\\.', "*") + '"'  # in text that is known to be right
_SCALAR = rf"(?:{STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)"
# Scanning: in an object the name and its colon; an item up to the end of its value or, in group 1, its opening bracket.
_NAME = late.pattern(rf"{_WS}{STRING}{_WS}:")
_ITEM = late.pattern(rf"{_WS}(?:{_SCALAR}|([\[{{]))")
# The same for runs of plain items with commas, which pays in a long text.
_LONG = 30_000
_KEPT = 1 << 20  # characters of a text whose scan is kept
_RUN = {
    "[": late.pattern(rf"(?:{_WS}{_SCALAR}{_WS},){{0,500}}"),
    "{": late.pattern(rf"(?:{_WS}{STRING}{_WS}:{_WS}{_SCALAR}{_WS},){{0,500}}"),
}
# A member that is an object of plain members, with the comma behind it; group 1 is that object up to its last bracket.
_MEMBER = rf"{_WS}{STRING}{_WS}:{_WS}{_SCALAR}{_WS}"
_MEMBERS = _MEMBER + late.possessive(f",{_MEMBER}", "{0,50}")
_HELD = late.pattern(rf"{_WS}{STRING}{_WS}:{_WS}(\{{(?:{_MEMBERS}|{_WS}))\}}{_WS},")
# Splitting, in text that is known to be right: group 1 is where an entry starts, group 2 where its value does.
_VALUE = rf'(?:{_QUOTED}|[^" \t\n\r,:\[\]{{}}]++|[\[{{])'
_ENTRY = {
    "[": late.pattern(rf"[ \t\n\r,]*+()(){_VALUE}"),
    "{": late.pattern(rf"[ \t\n\r,]*+(){_QUOTED}{_WS}:{_WS}(){_VALUE}"),
}
_SPACE = late.pattern(_WS)
KEY = late.pattern(_QUOTED)
_CLOSER = {"[": "]", "{": "}"}


def _malformed(file: str, text: str, place: int) -> UnreadableError:
    """What is raised for a text that is not JSON at a place."""
    line = text.count("\n", 0, place) + 1
    return UnreadableError(f"{file} is not JSON: line {line}, character {place}", subject=file, hint=_NOT_JSON)


def scanned(text: str, file: str) -> Scan:
    """What `_scan` finds; a file is edited, and then its places are looked up."""
    return _kept_scan(text, file) if len(text) <= _KEPT else Scan(*_scan(text, file))


@lru_cache(maxsize=4)
def _kept_scan(text: str, file: str) -> Scan:
    return Scan(*_scan(text, file))


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
            if not text.startswith(_CLOSER[kind], end_of(_SPACE, text, place)):
                place = _after_run(kind, text, place, closes)
                continue
        place = _closed(text, place, opened, closes, file)
        if not opened:
            break
        kind = text[opened[-1]]
        place = _after_run(kind, text, place, closes)
    if end_of(_SPACE, text, place) != len(text):
        raise _malformed(file, text, place)
    return end_of(_SPACE, text, 0), place, closes


def _item(kind: str, text: str, place: int) -> re.Match[str] | None:
    """The item of an array, or the value of an object's member, that comes next."""
    if kind == "[":
        return _ITEM.match(text, place)
    name = _NAME.match(text, place)
    return name and _ITEM.match(text, name.end())


def end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where a match ends of a pattern that also matches nothing."""
    match = pattern.match(text, place)
    return match.end() if match else place


def _after_run(kind: str, text: str, place: int, closes: dict[int, int]) -> int:
    """The place behind all items that follow and their commas, plain ones and objects of plain members; in a short
    text they are looked at one by one."""
    while len(text) > _LONG:
        end = end_of(_RUN[kind], text, place)
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
        place = end_of(_SPACE, text, place)
        if text.startswith(",", place):
            return place + 1
        if not text.startswith(_CLOSER[text[opened[-1]]], place):
            raise _malformed(file, text, place)
        closes[opened.pop()] = place
        place += 1
    return place


Split = tuple["array[int]", "array[int]", "array[int]"]  # where each entry, its value and its end are


class Scan:
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
