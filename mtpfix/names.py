"""Names of tensors and files: how they are joined, split and put in order."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"([0-9]+)")

NaturalKey = tuple[tuple[str, int], ...]


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
    return tuple((text, int(digits or 0)) for text, digits in zip(steps[::2], [*steps[1::2], ""], strict=True))


def is_plain(name: str) -> bool:
    """Whether a name stands in JSON as it is, without escapes."""
    return name.isprintable() and '"' not in name and "\\" not in name
