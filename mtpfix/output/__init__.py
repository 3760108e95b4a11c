"""The formats of the output: a new one is a file in this folder and a line in `FORMATS`.

A file is imported when its format writes for the first time; what each can write is said here, and tested.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from mtpfix.output.base import Format

_EVERYTHING = ("check", "explain", "tensors", "rules", "symptoms", "engines", "replayed", "override", "graft")


def _of(file: str, name: str, *writes: str, **traits: bool) -> Format:
    """The format that `FORMAT` in a file of this folder is; `traits`: what else `Format` knows of it."""

    def writer(what: str) -> Callable[..., str]:
        def write(value: Any, page: Any) -> str:
            text: str = getattr(import_module(f"{__name__}.{file}").FORMAT, what)(value, page)
            return text

        return write

    known: dict[str, Any] = {**{what: writer(what) for what in writes}, **traits}
    return Format(name=name, load=partial(import_module, f"{__name__}.{file}"), **known)


FORMATS: tuple[Format, ...] = (
    _of("human", "human", *_EVERYTHING),
    _of("json_v1", "json", *_EVERYTHING),
    _of("sarif", "sarif", "check", uploaded=True),
    _of("github", "github", "check", unread=True),
    _of("markdown", "markdown", "check"),
    _of("html", "html", "check", mapped=True),
    _of("quiet", "quiet", "check", "tensors", "rules", "symptoms"),
)
