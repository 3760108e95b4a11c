"""What a file of a checkpoint is before and after a change, and what was changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mtpfix.frozen import NamedTuple, dataclass

JSON, SUFFIX = ".json", ".safetensors"
Maker = Callable[[Path], None] | None


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is: its bytes, its mode and, where it is a symlink, the target as it is written."""

    data: bytes
    mode: int
    link: str | None = None


class Stamp(NamedTuple):
    """What tells a large file from another: its size, and when it was last written, in nanoseconds."""

    size: int
    mtime_ns: int


class Piece(NamedTuple):
    """Bytes [start, end) of a file that gave way; `saved`: of what was kept of it, else of the file in its place."""

    saved: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Blob:
    """A large file; `back`: the pieces that it is made of again by undo. A stamp of -1: it is still being written."""

    stamp: Stamp
    mode: int
    link: str | None = None
    back: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """A large file some bytes of which change where they are: what stands at `start`, its size, and when it was last
    written, where that is to be so again."""

    start: int
    data: bytes
    size: int
    mtime_ns: int | None = None


State = Content | Blob | Head | None  # None: no such file


@dataclass(frozen=True, slots=True)
class Large:
    """A large file to put in place. `make` writes it, at a path where nothing is, down to the disk; None: it goes.

    back  the pieces that the old file is made of again: `saved` ones of itself, the others of the new one
    """

    make: Callable[[Path], None] | None
    back: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Bytes of a large file to exchange for as many others, where they are.

    A reader, or whoever comes after a crash, may find the old bytes in some sectors (`bulk.SECTOR`) of the file and the
    new ones in others: whoever asks for it has made sure that such a file can be read.
    """

    start: int
    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the checkpoint, before and after."""

    name: str
    old: State
    new: State


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A change that was made: the directory's real path, the record's file, the time (ISO 8601, UTC), the files.

    kept  after an undo that was forced: where the files are that were changed since, name by name
    """

    directory: str
    path: Path
    time: str
    changes: tuple[Change, ...]
    kept: tuple[tuple[str, Path], ...] = ()


UNMADE = Stamp(-1, -1)


def is_plain(name: str, suffix: str) -> bool:
    """Whether a name is that of a visible file of a kind directly in a directory."""
    return name.endswith(suffix) and not name.startswith(".") and not {"/", os.sep, "\0"} & set(name)
