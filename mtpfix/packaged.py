"""Data files of this package.

Read through the package's own loader, as `importlib.resources` does it. That module costs 10 ms to import.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Table = dict[str, Any]

_END = b"\0"  # stands in no TOML file


def text(path: str) -> str:
    """The text of a file of this package, `data/releases.json`, wherever the package was imported from.

    Raises OSError where there is none.
    """
    return _raw(path).decode("utf-8")


def table(path: str) -> Table:
    """What a TOML file of this package says, `families/llama`; OSError where there is none.

    Reading TOML takes thirty times as long as reading JSON. So a wheel holds the file as JSON too; elsewhere what was
    read is kept where Python keeps the bytecode of its sources, behind the file's own bytes: after any edit it is read
    anew.
    """
    try:
        found: Table = json.loads(_raw(f"{path}.json"))
    except OSError:
        return _read(_raw(f"{path}.toml"), _place(f"{path}.toml"))
    return found


def _raw(path: str) -> bytes:
    loader: Any = __spec__.loader
    raw: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), *path.split("/")))
    return raw


def _read(source: bytes, place: str) -> Table:
    kept = _kept(source, place)
    if kept is None:
        import tomllib  # 3 ms

        kept = tomllib.loads(source.decode("utf-8"))
        _keep(source, place, kept)
    return kept


def _place(path: str) -> str:
    """A file beside the bytecode that Python keeps of its sources; "" where it keeps none."""
    from importlib.util import cache_from_source

    beside = os.path.join(os.path.dirname(__file__), *path.split("/"))
    try:
        return cache_from_source(beside).removesuffix("pyc") + "json"
    except NotImplementedError:
        return ""


def _kept(source: bytes, place: str) -> Table | None:
    try:
        with open(place, "rb") as file:
            held, _, made = file.read().partition(_END)
        found: Table | None = json.loads(made) if held == source else None
    except (OSError, ValueError):
        return None
    return found


def _keep(source: bytes, place: str, made: Table) -> None:
    """All or nothing, and nothing where the place cannot be written to."""
    if not place or sys.dont_write_bytecode:
        return
    part = f"{place}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(part, "xb") as file:
            file.write(source + _END + json.dumps(made).encode("utf-8"))
        os.replace(part, place)
    except OSError:
        _remove(part)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        return
