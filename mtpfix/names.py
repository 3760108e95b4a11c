"""Names of tensors and files: how they are joined, split, put in order and shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mtpfix import late
from mtpfix.tokens import masked

_DIGITS = late.pattern(r"([0-9]+)")
MAX_NAME = 4096  # characters of a module's name; a longer one is no model's
_SHOWN = 120
_ALIKE = 0.7  # of difflib's ratio
_MOST_DIGITS = 18  # of a 64-bit number, with room; int() refuses thousands of them

NaturalKey = tuple[list[tuple[str, int, str]], str]


def tensor_name(module: str, suffix: str) -> str:
    """The full name of a tensor; a tensor whose name has no dot belongs to the module ""."""
    return f"{module}.{suffix}" if module else suffix


def split_name(name: str) -> tuple[str, str]:
    """Module and suffix of a tensor's name: `tensor_name` backwards."""
    module, _, suffix = name.rpartition(".")
    return (module, suffix) if module else ("", name)


def natural_key(name: str) -> NaturalKey:
    """A key that sorts `layers.2` before `layers.10`."""
    steps = _DIGITS.split(name)
    numbers = [digits.lstrip("0") for digits in steps[1::2]]  # compared by length: int() refuses thousands of digits
    return [(text, len(number), number) for text, number in zip(steps[::2], [*numbers, ""], strict=True)], name


def counted(digits: str) -> int | None:
    """The number that a step of a name is, None where it is none that counts layers or experts."""
    return int(digits) if len(digits) <= _MOST_DIGITS and digits.isdecimal() and digits.isascii() else None


def is_plain(name: str) -> bool:
    """Whether a name stands in JSON as it is, without escapes."""
    return name.isprintable() and '"' not in name and "\\" not in name


def brief(text: str, most: int = 2 * _SHOWN) -> str:
    """A name or sentence as a message may hold it: of more than so many characters the middle is left out.

    A secret in it is masked before: half of one would not be known for what it is.
    """
    if len(text) > most:
        text = masked(text)
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-(most // 2) :]}"


def beginning(text: str, count: int) -> str:
    """The first characters of a text, for a person; of a secret none, as half of one would not be known for it."""
    return masked(text)[:count]


def shown(value: Any) -> str:
    """A value from a file as a message may hold it: without control characters, and not without end."""
    text = repr(value)
    if len(text) > _SHOWN:
        text = masked(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that is most like a mistyped one, None where none is like it.

    Names that differ in numbers only are compared once: a checkpoint has tens of thousands of names of a few shapes.
    """
    from difflib import get_close_matches

    shapes: dict[str, list[str]] = {}
    for each in known:
        shapes.setdefault(_DIGITS.sub("0", each.lower()), []).append(each)
    found = get_close_matches(_DIGITS.sub("0", brief(name.lower())), shapes, n=1, cutoff=_ALIKE)
    numbers = _DIGITS.findall(name)
    return max(shapes[found[0]], key=lambda each: _shared(numbers, _DIGITS.findall(each))) if found else None


def _shared(some: Sequence[str], others: Sequence[str]) -> int:
    """How many numbers two names have in common, place by place; the first of equally good ones is taken."""
    return sum(one == other for one, other in zip(some, others, strict=False))
