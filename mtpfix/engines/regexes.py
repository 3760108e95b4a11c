"""Regular expressions that come from a checkpoint's config: compiled once, tried only where the cost is bounded.

A config is hostile input. The standard library's matcher backtracks and cannot be stopped, so a pattern is
weighed first: `compiled` lists the choices that a pattern leaves to the matcher, and a `Regex` multiplies them for
the text at hand and refuses (`TooCostly`) instead of trying for hours.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

MAX_LENGTH = 4000
MAX_TRIES = 200_000
_JOIN = 8
_JOIN_LENGTH = 400

_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:P<\w+>|P=\w+|<[=!]|[=!:>]|\(\w+\)|[a-zA-Z-]+:?))?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<quant>[*+?]|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\})[?+]?"
    r"|(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]|\\?.)",
    re.DOTALL,
)
_BY_GROUP = re.compile(r"\\[1-9]|\(\?[P(]")
_FEW = frozenset({r"\d", "[0-9]"})
_ANCHORS = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\Z"})


class TooCostly(Exception):
    """The pattern could take unbounded time on this text, and would do so in the engine too."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled pattern and the choices that it leaves open.

    choices  tries of each choice: a fixed number, or a character that must come next ("" any): as many as the
             text has of it
    nested   something that can vary is repeated: never tried
    """

    pattern: re.Pattern[str]
    choices: tuple[str | int, ...]
    nested: bool

    def match(self, text: str) -> bool:
        """`re.match`: anchored at the start only. Raises TooCostly."""
        self._weigh(text, 1)
        return self.pattern.match(text) is not None

    def fullmatch(self, text: str) -> bool:
        """`re.fullmatch`. Raises TooCostly."""
        self._weigh(text, 1)
        return self.pattern.fullmatch(text) is not None

    def search(self, text: str) -> bool:
        """`re.search`. Raises TooCostly."""
        self._weigh(text, 1 + len(text))
        return self.pattern.search(text) is not None

    def sub(self, replacement: str, text: str) -> str:
        """`re.sub`. Raises TooCostly, and re.error or IndexError for a replacement that names no group."""
        self._weigh(text, 1 + len(text))
        return self.pattern.sub(replacement, text)

    def _weigh(self, text: str, starts: int) -> None:
        tries = (c if isinstance(c, int) else 1 + (text.count(c) if c else len(text)) for c in self.choices)
        if self.nested or starts * prod(tries) > MAX_TRIES:
            raise TooCostly(self.pattern.pattern)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Regex:
    """The pattern, ready to be tried. Raises re.error for an invalid one and TooCostly for one of absurd length."""
    if len(pattern) > MAX_LENGTH:
        raise TooCostly(pattern)
    choices, nested = _weight(pattern)
    return Regex(_compile(pattern), choices, nested)


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (OverflowError, RecursionError) as problem:
        raise re.error(str(problem), pattern) from problem


@dataclass(frozen=True, slots=True)
class Union:
    """Many patterns as one alternation: a quick "none of them matches"."""

    pattern: re.Pattern[str]

    def match(self, text: str) -> bool:
        """False only where none of the patterns matches from the start."""
        return len(text) > _JOIN_LENGTH or self.pattern.match(text) is not None


def united(regexes: Sequence[Regex]) -> Union | None:
    """The patterns as one, or None where they are few, or cannot be joined without a change of meaning or of cost."""
    if len(regexes) < _JOIN or not all(_joinable(regex) for regex in regexes):
        return None
    return Union(_compile("|".join(f"(?:{regex.pattern.pattern})" for regex in regexes)))


def _joinable(regex: Regex) -> bool:
    alone = regex.pattern.flags != re.UNICODE or _BY_GROUP.search(regex.pattern.pattern)
    return not alone and not regex.nested and len(regex.choices) < 3


def _weight(pattern: str) -> tuple[tuple[str | int, ...], bool]:
    """The choices of a pattern, and whether something that varies is repeated."""
    tokens = list(_TOKEN.finditer(pattern))
    choices: list[str | int] = []
    starts = [0]
    group: int | None = None
    for place, token in enumerate(tokens):
        if token["open"]:
            starts.append(len(choices))
        elif token["bar"]:
            choices.append(2)
        elif token["quant"]:
            lowest, highest = _bounds(token)
            if group is not None and group < len(choices) and highest > 1:
                return tuple(choices), True
            choices += _tries(tokens, place, lowest, highest)
        group = starts.pop() if token["close"] and len(starts) > 1 else None
    return tuple(choices), False


def _bounds(token: re.Match[str]) -> tuple[int, int]:
    fixed = {"*": (0, 999), "+": (1, 999), "?": (0, 1)}.get(token["quant"])
    if fixed:
        return fixed
    low = int(token["low"] or 0)
    return low, int(token["high"] or 999) if token["comma"] else low


def _tries(tokens: list[re.Match[str]], place: int, lowest: int, highest: int) -> Iterator[str | int]:
    """The choice that a quantifier leaves: none when its count is fixed or nothing can fail after it."""
    if lowest == highest or place + 1 == len(tokens):
        return
    before, after = tokens[place - 1]["atom"] or "", tokens[place + 1]["atom"] or ""
    literal = after.removeprefix("\\")
    plain = len(literal) == 1 and (after != literal) != literal.isalnum() and after not in _ANCHORS and after != "."
    if highest < 10 or before in _FEW:
        yield min(highest + 1, 4)
    else:
        yield literal if plain else ""
