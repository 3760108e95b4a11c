"""Tensors renamed in the headers of shards on a disk; no byte of their data changes.

A header is written over where it is if a crash in the midst of that leaves one which can be read, with the same tensors
under old or new names. A disk writes a sector as a whole or not at all, so every mix of old and new sectors has to be a
header. A new name takes the place of the old one, blanks fill the rest up, behind the name or before it: JSON allows
both. A longer name needs blanks that are there: beside the old one or, where one sector holds all that changes, behind
the header. Otherwise, and where the file has another name or is a link into a cache, a new file takes its place: the
new header and the same data, read back and compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

from mtpfix import bulk
from mtpfix.bulk import SECTOR, sectors
from mtpfix.checkpoint.headers import LENGTH_BYTES, Entry, decode, front, header_length, padded
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError
from mtpfix.model import Rename
from mtpfix.splice import Renamed, renamed_members
from mtpfix.store.states import Large, Overwrite, Piece, Stamp

_MOST_SECTORS = 3  # of one name
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
    keys = renamed_members(header, names, path.name)
    here = None if found.st_nlink > 1 or path.is_symlink() else _in_place(header, keys, {entry.name for entry in old})
    new = here or padded(_exchanged(header, keys).rstrip(b" "))
    if decode(new, data, path.name) != tuple(entry._replace(name=names.get(entry.name, entry.name)) for entry in old):
        raise AssertionError(f"{path.name}: the edited header does not say what was planned")
    stamp = Stamp(found.st_size, found.st_mtime_ns)
    if here:
        return stamp, Overwrite(LENGTH_BYTES, header, here)
    start = LENGTH_BYTES + len(new)
    return stamp, Large(partial(_copied, path, begin, new), (Piece(True, 0, begin), Piece(False, start, start + data)))


# The header.


def _exchanged(header: bytes, keys: Sequence[Renamed]) -> bytes:
    parts, done = [], 0
    for key in keys:
        parts += [header[done : key.start], key.new]
        done = key.end
    return b"".join((*parts, header[done:]))


def _in_place(header: bytes, keys: Sequence[Renamed], held: Collection[str]) -> bytes | None:
    """The header with other names, as long as it is, and such that every mix of its sectors and of the old ones is a
    header; None where there is none. `held`: the names of all tensors."""
    return _name_by_name(header, keys, held) or _within_a_sector(header, keys)


def _name_by_name(header: bytes, keys: Sequence[Renamed], held: Collection[str]) -> bytes | None:
    """Each new name where the old one is, with blanks beside it."""
    out, seen = bytearray(header), set(held)
    for key in keys:
        room = header[key.start : key.colon]
        for text in (key.new.ljust(len(room)), key.new.rjust(len(room))):
            between = _names_between(room, text, LENGTH_BYTES + key.start)
            if between is not None and seen.isdisjoint(between):
                seen |= between
                out[key.start : key.colon] = text
                break
        else:
            return None
    return bytes(out)


def _names_between(old: bytes, new: bytes, at: int) -> set[str] | None:
    """The names other than the old one that some sectors of an old and a new text, at a place in a file, may make
    together; None where they may make no name, or are too many to look at."""
    if len(old) != len(new):
        return None
    pieces = [{old[a - at : b - at], new[a - at : b - at]} for a, b in sectors(at, at + len(old))]
    if len(pieces) > _MOST_SECTORS:
        return None
    try:
        names = {json.loads(b"".join(mix).decode()) for mix in product(*pieces)}
        "".join(names).encode()  # half of a surrogate pair is no text
    except ValueError:
        return None
    return names - {json.loads(old)}


def _within_a_sector(header: bytes, keys: Sequence[Renamed]) -> bytes | None:
    """The new names, and all that is behind them moved into the blanks at the end, where one sector holds it."""
    new = _exchanged(header, keys).rstrip(b" ").ljust(len(header))
    if len(new) > len(header):
        return None
    changed = [at for at, (one, other) in enumerate(zip(header, new, strict=True), LENGTH_BYTES) if one != other]
    return new if changed[0] // SECTOR == changed[-1] // SECTOR else None


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
