"""Names of tensors and files: how they are joined, split, put in order and shown."""

from __future__ import annotations

import re
from typing import Any

_DIGITS = re.compile(r"([0-9]+)")
_SHOWN = 120

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


def is_plain(name: str) -> bool:
    """Whether a name stands in JSON as it is, without escapes."""
    return name.isprintable() and '"' not in name and "\\" not in name


def shown(value: Any) -> str:
    """A value from a file as a message may hold it: without control characters, and not without end."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
