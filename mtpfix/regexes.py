"""Regular expressions that come from a checkpoint's config: compiled once, tried only where the cost is bounded.

A config is hostile input. The standard library's matcher backtracks and cannot be stopped, so a pattern is
weighed first: `compiled` lists the choices that a pattern leaves to the matcher, and a `Regex` multiplies them for
the text at hand and refuses (`TooCostly`) instead of trying for hours.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from math import prod

from mtpfix import late
from mtpfix.frozen import NamedTuple, dataclass

NEGATIVE = "-:"  # sign of a rule in GPTQ's `dynamic`: what it matches stays plain
LETTERS = frozenset("*+?^$()[]{}|\\")  # a key of AutoRound's `extra_config` with one of them is an expression
MAX_LENGTH = 4000
MAX_TRIES = 200_000

_TOKEN = late.pattern(
    r"(?P<open>\((?:\?(?:P<\w+>|P=\w+|<[=!]|[=!:>]|\(\w+\)|[a-zA-Z-]+:?))?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<quant>[*+?]|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\})[?+]?"
    r"|(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]|\\?.)",
    re.DOTALL,
)
# Characters, an escaped dot or dash, each perhaps with a star, between two anchors: whatever they are an expression.
_SURE = late.pattern(r"\^?(?!\*)[A-Za-z0-9_.-]*(?:(?:\*(?!\*)|\\[.-])[A-Za-z0-9_.-]*)*\$?")
# What a match of one begins with: a dot that is not escaped is any character.
_OPENING = late.pattern(r"\^?((?:(?:[A-Za-z0-9_.-]|\\[.-])(?!\*))*)")
_RUN = late.pattern(r"(?:(?:[A-Za-z0-9_-]|\\[.-])(?!\*))+")
_FEW = frozenset({r"\d", "[0-9]"})
_SIGNS = (NEGATIVE, "+:")


class TooCostly(Exception):
    """The pattern could take unbounded time on this text, and would do so in the engine too."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled pattern and the choices that it leaves open.

    choices  tries of each choice: a fixed number, or a character that must come next ("" any): as many as the
             text has of it
    nested   something that can vary is repeated: never tried
    literal  a text that every match contains: where it is missing nothing needs to be tried
    """

    pattern: re.Pattern[str]
    choices: tuple[str | int, ...]
    nested: bool
    literal: str

    def match(self, text: str) -> bool:
        """`re.match`: anchored at the start only. Raises TooCostly."""
        return self.literal in text and self._affordable(text, 1) and self.pattern.match(text) is not None

    def fullmatch(self, text: str) -> bool:
        """`re.fullmatch`. Raises TooCostly."""
        return self.literal in text and self._affordable(text, 1) and self.pattern.fullmatch(text) is not None

    def search(self, text: str) -> bool:
        """`re.search`. Raises TooCostly."""
        starts = 1 + len(text)
        return self.literal in text and self._affordable(text, starts) and self.pattern.search(text) is not None

    def sub(self, replacement: str, text: str) -> str:
        """`re.sub`. Raises TooCostly, and re.error or IndexError for a replacement that names no group."""
        self._affordable(text, 1 + len(text))
        return self.pattern.sub(replacement, text)

    def _affordable(self, text: str, starts: int) -> bool:
        tries = (c if isinstance(c, int) else 1 + (text.count(c) if c else len(text)) for c in self.choices)
        if self.nested or starts * prod(tries) > MAX_TRIES:
            raise TooCostly(self.pattern.pattern)
        return True


def unsigned(rule: str) -> str:
    """The expression of a rule in GPTQ's `dynamic`, which may have a sign in front."""
    return rule[2:] if rule.startswith(_SIGNS) else rule


def compiled(pattern: str) -> Regex:
    """The pattern, ready to be tried. Raises re.error for an invalid one and TooCostly for one of absurd length."""
    if len(pattern) > MAX_LENGTH:
        raise TooCostly(pattern)
    found = _weighed(pattern)
    if isinstance(found, Regex):
        return found
    raise re.error(*found)


def is_valid(pattern: str) -> bool:
    """Whether a pattern is a regular expression; one of absurd length may be."""
    if len(pattern) > MAX_LENGTH or is_surely_valid(pattern):
        return True
    return isinstance(_weighed(pattern), Regex)


def is_surely_valid(pattern: str) -> bool:
    """Whether a pattern is a regular expression beyond doubt, told without compiling it."""
    return len(pattern) <= MAX_LENGTH and _SURE.fullmatch(pattern) is not None


@lru_cache(maxsize=1 << 14)  # beside what is kept of compiled ones: a list of thousands would drive that out
def literal_of(pattern: str) -> str:
    """A text that every match of a pattern contains; "" where it has none, is no regular expression, or too long."""
    if is_surely_valid(pattern):
        return max([run.replace("\\", "") for run in _RUN.findall(pattern)], key=len, default="")
    found = _weighed.__wrapped__(pattern) if len(pattern) <= MAX_LENGTH else None
    return found.literal if isinstance(found, Regex) else ""


class Opening(NamedTuple):
    """What every `re.match` of a pattern begins with.

    texts  one after the other, with any one character but a line's end between two; () for none
    rest   the pattern from there on: where it is a `$` or nothing, the texts are all that a match needs
    """

    texts: tuple[str, ...]
    rest: str

    def spans(self, name: str) -> int:
        """How many characters of a name the texts are; -1 where it does not begin with them."""
        at = 0
        for text in self.texts:
            if not name.startswith(text, at):
                return -1
            at += len(text) + 1
        return max(at - 1, 0)


@lru_cache(maxsize=1 << 14)  # a list is tried again and again
def opening_of(pattern: str) -> Opening | None:
    """The opening of a pattern that is surely valid, told without compiling it; None of any other."""
    found = _OPENING.match(pattern) if is_surely_valid(pattern) else None
    if found is None:
        return None
    written, rest = found[1], pattern[found.end() :]
    if not written:
        return Opening((), rest)
    bare = written.replace(r"\.", "\n").replace("\\", "")
    if "." not in bare:
        return Opening((bare.replace("\n", "."),), rest)
    return Opening(tuple([text.replace("\n", ".") for text in bare.split(".")]), rest)


@lru_cache(maxsize=1 << 14)
def _weighed(pattern: str) -> Regex | tuple[str, str, int | None]:
    """The pattern compiled, or what `re.error` says of it: a list is tried again and again, a broken one too."""
    try:
        ready = _compile(pattern)
    except re.error as problem:
        return problem.msg, pattern, problem.pos
    tokens = list(_TOKEN.finditer(pattern))
    choices, nested = _weight(tokens)
    plain_flags = ready.flags == re.UNICODE
    return Regex(ready, choices, nested, _longest(tokens) if plain_flags else "")


def _longest(tokens: list[re.Match[str]]) -> str:
    return max(_literals(tokens), key=len, default="")


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (OverflowError, RecursionError) as problem:
        raise re.error(str(problem), pattern) from None


def _literals(tokens: list[re.Match[str]]) -> Iterator[str]:
    """The runs of plain characters outside all groups; none where the whole pattern is an alternative."""
    depth, run, runs = 0, "", []
    for token in tokens:
        if token["bar"] and depth == 0:
            return
        letter = _letter(token["atom"] or "") if depth == 0 else ""
        if not letter:
            runs.append(run[:-1] if token["quant"] and depth == 0 and _bounds(token)[0] == 0 else run)
            run = ""
        run += letter
        depth += bool(token["open"]) - bool(token["close"])
    yield from (*runs, run)


def _letter(atom: str) -> str:
    """The character that an atom stands for, "" where it stands for more than one or for none."""
    letter = atom.removeprefix("\\") if len(atom) == 2 else atom
    plain = len(letter) == 1 and (atom == r"\-" or (len(atom) == 2) != (letter.isalnum() or letter in "_-"))
    return letter if plain else ""


def _weight(tokens: list[re.Match[str]]) -> tuple[tuple[str | int, ...], bool]:
    """The choices of a pattern, and whether something that varies is repeated."""
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
    few = highest < 10 or before in _FEW
    yield min(highest + 1, 4) if few else _letter(after)
