"""Tensors renamed in the headers of shards on a disk; no byte of their data changes.

A header that fits where the old one is (there is padding behind it, and the new names may be shorter) is written over
it. Otherwise, and where the file has another name or is a link into a cache, a new file takes its place: the new header
and the same data, read back and compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mtpfix import bulk
from mtpfix.checkpoint.headers import LENGTH_BYTES, Entry, decode, front, header_length, padded
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError
from mtpfix.model import Rename
from mtpfix.splice import renamed_members
from mtpfix.store import Large, Overwrite, Piece, Stamp

_AGAIN = "Look at it, then run it again."

Prepared = tuple[Stamp, Large | Overwrite]


def prepared(directory: str | Path, renames: Iterable[Rename]) -> dict[str, Prepared]:
    """What the store has to do for some renames, by shard: the file as it is, and what becomes of it.

    Raises ConflictError where a shard does not hold a tensor as it was read, or holds one of the new name;
    UnreadableError where it cannot be read.
    """
    rows: dict[str, list[Rename]] = {}
    for row in renames:
        rows.setdefault(row.shard, []).append(row)
    return {shard: _prepared(Path(directory) / shard, some) for shard, some in rows.items()}


def _prepared(path: Path, rows: Iterable[Rename]) -> Prepared:
    with _opened(path) as descriptor:
        found = os.fstat(descriptor)
        length = header_length(os.pread(descriptor, LENGTH_BYTES, 0), found.st_size, path.name)
        header = os.pread(descriptor, length, LENGTH_BYTES)
    begin = LENGTH_BYTES + length
    data = found.st_size - begin
    old = decode(header, data, path.name)
    names = _checked(old, rows, path)
    text = renamed_members(header, names, path.name).rstrip(b" ")
    in_place = len(text) <= length and found.st_nlink == 1 and not path.is_symlink()
    new = text.ljust(length) if in_place else padded(text)
    if decode(new, data, path.name) != tuple(entry._replace(name=names.get(entry.name, entry.name)) for entry in old):
        raise AssertionError(f"{path.name}: the edited header does not say what was planned")
    stamp = Stamp(found.st_size, found.st_mtime_ns)
    if in_place:
        return stamp, Overwrite(LENGTH_BYTES, header, new)
    start = LENGTH_BYTES + len(new)
    return stamp, Large(partial(_copied, path, begin, new), (Piece(True, 0, begin), Piece(False, start, start + data)))


def _checked(entries: Iterable[Entry], rows: Iterable[Rename], path: Path) -> Mapping[str, str]:
    """The names to exchange. Raises ConflictError unless the tensors are as they were when the plan was made."""
    held = {entry.name: (entry.dtype, entry.shape) for entry in entries}
    for row in rows:
        if held.get(row.old) != (row.dtype, row.shape) or row.new in held:
            message = f"{path} does not hold {row.old} as it was read; nothing was written"
            raise ConflictError(message, subject=str(path), hint=_AGAIN)
    return {row.old: row.new for row in rows}


def _copied(source: Path, begin: int, header: bytes, path: Path) -> None:
    """Writes a file with another header and the data of a shard."""
    with _opened(source) as old:
        size = os.fstat(old).st_size
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            target = bulk.Target(made, str(path))
            with bulk.flushed(target):
                target.put(front(header), 0)
                bulk.copy(old, begin, size, target, LENGTH_BYTES + len(header), str(source))
        finally:
            os.close(made)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}", subject=str(path), hint=READ_HINT) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
