"""Writing: several files of a checkpoint change together or not at all, and can be changed back.

A change is made in this order, each step on disk before the next begins:

1. the journal, a hidden file in the directory, with the old and the new contents;
2. the new contents, in hidden siblings of the files;
3. the undo record, in the user's state folder;
4. the siblings renamed over the files;
5. the journal removed.

JSON files are in the journal and the record as they are. Of a large file both hold only what tells it from another,
and how undo makes it again: from what was saved of it, beside the record, and from the file that took its place. It
is complete in its sibling before the record is written; the file that gives way keeps a hidden name until the end.
Bytes that change in a large file where they are stand in the journal, old and new, and are written sector by sector:
what was cut short between two of them is ended like a rename that was not made.

Whoever finds a journal ends what it says: an apply is finished if its undo record was written, since no
file changes before that, and taken back if not; an undo is finished. A lock on the directory keeps two
processes apart; the kernel drops it when a process dies.

A checkpoint may come from anywhere, with a journal in it that nobody here wrote. So a journal counts only
if the state folder holds the record it names, or if it names the inode of the directory it lies in.

`steps` makes a change and ends one that was cut short, `way_back` finds what undo has to do, `large` makes large files;
below them are `journal`, `records` and `packing`, what is written about a change, and `states`, `files` and `lock`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import UsageError
from mtpfix.frozen import replace
from mtpfix.store.files import LIKE, expect, mode_of, writing
from mtpfix.store.journal import Journal
from mtpfix.store.large import makers_of, unmade
from mtpfix.store.lock import locked
from mtpfix.store.records import STATE_HINT, drop_record, next_record, read_record, records_of
from mtpfix.store.states import (
    JSON,
    SUFFIX,
    UNMADE,
    Blob,
    Change,
    Content,
    Head,
    Large,
    Overwrite,
    Stamp,
    UndoRecord,
    is_plain,
)
from mtpfix.store.steps import Outcome, recover_or_refuse, recovered, swap
from mtpfix.store.way_back import Way, keeping, way_back


def apply_files(
    directory: str | Path, before: Mapping[str, bytes | Stamp | None], after: Mapping[str, bytes | Large | Overwrite]
) -> UndoRecord | None:
    """Writes files that are `before` so that they are `after`: all of them or none. They change in that order.

    before  a JSON file's bytes, a large file's stamp, None where there is no such file
    after   a JSON file's bytes; a large file, or what changes in it

    Returns the undo record, or None where nothing differs. Modes stay, and owners where the system allows it; a
    symlink gives way to a regular file, and what it points to is not touched. Raises ValueError for names that are
    no JSON files, or large ones no *.safetensors, directly in the directory; ConflictError if a file is not what
    `before` says, or if another process keeps the directory; WriteError if something cannot be written. Then nothing
    has changed.
    """
    if before.keys() != after.keys():
        raise ValueError("before and after name different files")
    for name, new in after.items():
        if not is_plain(name, JSON if isinstance(new, bytes) else SUFFIX):
            raise ValueError(f"not a JSON file directly in the checkpoint: {name!r}")
    names = [name for name in after if before[name] != after[name]]
    if not names:
        return None
    with locked(directory) as place:
        recover_or_refuse(place)
        changes = tuple(_change(place, name, before[name], after[name]) for name in names)
        makers = {name: new.make for name, new in after.items() if isinstance(new, Large)}
        record = UndoRecord(str(place), next_record(place), datetime.now(UTC).isoformat(timespec="seconds"), changes)
        return swap(place, Journal("apply", record.path.name, secrets.token_hex(8), changes), record, makers)


def undo(directory: str | Path, way: Way = "exact", *, dry_run: bool = False) -> UndoRecord:
    """Takes the last apply back: the first bytes, modes and symlinks. Returns its record, which is gone then.

    way      what to do where a JSON file was changed since. `exact`: refuse; `keep-edits`: what was edited stays, and
             only what the apply did goes; `force`: the file becomes what it was before the apply, and what stands there
             now is kept in the state folder
    dry_run  nothing is written

    A symlink comes back if its target still has the first bytes, else a regular file does. A file that is what it was
    already stays. The record that is returned tells what was taken back: its `new` states are those that were there.
    Raises UsageError if there is nothing to undo, ConflictError if a file was changed since and `way` does not help,
    UnreadableError if the record is damaged, WriteError if something cannot be written. Then nothing has changed.
    """
    with locked(directory) as place:
        recover_or_refuse(place)
        for path in reversed(records_of(place)):
            record = read_record(path)
            changes = way_back(place, record, way)
            if not changes:
                if not dry_run:
                    with writing(path, STATE_HINT):
                        drop_record(path)  # it never happened, or was taken back by hand
                continue
            undone = replace(record, changes=tuple(Change(row.name, row.new, row.old) for row in reversed(changes)))
            if dry_run:
                return undone
            journal = Journal("undo", path.name, secrets.token_hex(8), unmade(changes))
            with keeping(place, record, undone, way) as undone:
                swap(place, journal, record, makers_of(place, record))
            return undone
        raise UsageError(
            f"there is nothing to undo in {place}",
            subject=str(place),
            hint="undo records are kept for each user and folder: a checkpoint that was moved or copied has none",
        )


def recover(directory: str | Path) -> Outcome:
    """Ends a change that was cut short. To be called before a checkpoint is read.

    Returns `new` if it is finished now, `old` if it is taken back, `none` if there was none. `foreign` means that a
    journal lies there which no change in this directory has left; it stays as it is. Raises WriteError if there is
    something to end and it cannot be written, ConflictError if another process keeps the directory.
    """
    if not os.path.lexists(os.path.join(directory, JOURNAL)):
        return "none"
    with locked(directory) as place:
        return recovered(place)


@contextlib.contextmanager
def quiet(directory: str | Path) -> Iterator[None]:
    """Meanwhile nobody writes in a directory with mtpfix; a change that was cut short is ended first. Raises as
    `recover`."""
    with locked(directory) as place:
        recovered(place)
        yield


def _change(place: Path, name: str, before: bytes | Stamp | None, after: bytes | Large | Overwrite) -> Change:
    """A change of a file that is as expected, with the mode and the link it has."""
    old = _state(place, name, before)
    expect(place, name, old)
    if isinstance(after, Overwrite):
        assert isinstance(before, Stamp)
        heads = Head(after.start, after.old, before.size, before.mtime_ns), Head(after.start, after.new, before.size)
        expect(place, name, heads[0])
        return Change(name, *heads)
    if isinstance(after, bytes):
        return Change(name, old, Content(after, old.mode if old else mode_of(place / LIKE)))
    if isinstance(old, Blob):
        old = replace(old, back=after.back)
    return Change(name, old, Blob(UNMADE, old.mode if old else mode_of(place / LIKE)) if after.make else None)


def _state(place: Path, name: str, before: bytes | Stamp | None) -> Content | Blob | None:
    """What a file is that should be as `before` says."""
    path = place / name
    if before is None:
        return None
    try:
        mode, link = mode_of(path), os.readlink(path) if path.is_symlink() else None
    except OSError:  # which the comparison will say
        mode, link = 0o644, None
    return Content(before, mode, link) if isinstance(before, bytes) else Blob(before, mode, link)
