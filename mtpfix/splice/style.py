"""How a file writes what a new entry cannot copy from its neighbours: line breaks, indentation, separators, escapes."""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import islice
from typing import Any

from mtpfix import late
from mtpfix.splice.scan import STRING

BREAK = late.pattern(r"\r\n|\n|\r")
_INDENT = late.pattern(r"[\r\n]([ \t]+)[^ \t\r\n]")
_INLINE = late.pattern(rf"{STRING}(?:([ \t]*:[ \t]*)(?![ \t\r\n]))?|,([ \t]*)(?![ \t\r\n])")
_ESCAPE = late.pattern(r"\\(?:(u(?!00[0-7]))|.)")
_BEYOND_ASCII = late.pattern(r"[^\x00-\x7e]")
_SURROGATE = late.pattern(r"[\ud800-\udfff]")


class Miss(Exception):
    """An operation that does not fit; the message says why."""


def indent_of(space: str) -> str:
    """The indentation that white space ends in: what follows its last line break."""
    return space[max(space.rfind("\n"), space.rfind("\r")) + 1 :]


def has_break(space: str) -> bool:
    """Whether white space goes over a line's end."""
    return "\n" in space or "\r" in space


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


class Style:
    """How a file writes what a new entry cannot copy from its neighbours."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def line_break(self) -> str:
        found = BREAK.search(self._text)
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
        lines = has_break(space)
        try:
            text = json.dumps(
                value, ensure_ascii=False, indent=unit if lines else None, separators=self._for(value, lines)
            )
        except RecursionError as error:
            raise Miss("the new value is nested too deep") from error
        if not text.isascii() or "\x7f" in text:
            text = (_BEYOND_ASCII if self.escapes else _SURROGATE).sub(_escape, text)
        return text.replace("\n", self.line_break + indent_of(space)) if lines else text

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
