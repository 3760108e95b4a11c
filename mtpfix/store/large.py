"""Large files: made beside those whose place they take, and made again by undo."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from mtpfix import bulk
from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.frozen import replace
from mtpfix.store.files import (
    LIKE,
    drop,
    give_owner,
    has_stamp,
    opened,
    set_on,
    stamp_of,
    sync_folder,
    write_new,
    writing,
)
from mtpfix.store.journal import Journal, journal_text, next_journal_of, sibling_of
from mtpfix.store.records import STATE_HINT, data_of
from mtpfix.store.states import UNMADE, Blob, Change, Maker, Piece, UndoRecord


def staged(place: Path, journal: Journal, makers: Mapping[str, Maker]) -> Journal:
    """Writes the large files beside those whose place they take; the journal that knows them, on disk."""
    changes = list(journal.changes)
    for number, change in enumerate(changes):
        make, path, file = makers.get(change.name), sibling_of(place, journal, number), place / change.name
        if make and isinstance(change.new, Blob):
            with writing(file):
                make(path)
                like = file if file.exists() else place / LIKE
                changes[number] = replace(change, new=_settled(path, change, like))
    journal = replace(journal, changes=tuple(changes))
    with writing(place / JOURNAL):
        sync_folder(place)
        write_new(next_journal_of(place, journal), journal_text(place, journal), 0o600)
        os.replace(next_journal_of(place, journal), place / JOURNAL)
        sync_folder(place)
    return journal


def _settled(path: Path, change: Change, like: Path) -> Blob:
    """A large file with its owner and mode, and with its stamp or, where it came back, the stamp that it had.

    A file of the size of the old one that was written in the same tick of the clock gets a time of its own.
    """
    blob = change.new
    assert isinstance(blob, Blob)
    if path.is_symlink():
        return replace(blob, stamp=stamp_of(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if like.exists():
            give_owner(descriptor, like)
        set_on(os.fchmod, descriptor, blob.mode)
        if isinstance(change.old, Blob) and stamp_of(path) == change.old.stamp:
            later = change.old.stamp.mtime_ns + 1
            os.utime(descriptor, ns=(later, later))
        bulk.sync(descriptor)
    finally:
        os.close(descriptor)
    return replace(blob, stamp=stamp_of(path))


def save(place: Path, record: UndoRecord) -> UndoRecord:
    """Saves, beside the record, what undo needs of the large files that give way; the record that says where."""
    wanted = [change for change in record.changes if isinstance(change.old, Blob) and change.old.back]
    if not wanted:
        return record
    path, end = data_of(record.path), 0
    moved: dict[str, Blob] = {}
    with writing(path, STATE_HINT):
        drop(path)
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as kept:
            target = bulk.Target(kept, str(path))
            with bulk.flushed(target):
                for change in wanted:
                    assert isinstance(change.old, Blob)
                    back, end = _save_pieces(place / change.name, change.old.back, target, end)
                    moved[change.name] = replace(change.old, back=back)
    changes = tuple(replace(change, old=moved.get(change.name, change.old)) for change in record.changes)
    return replace(record, changes=changes)


def _save_pieces(file: Path, back: Sequence[Piece], target: bulk.Target, end: int) -> tuple[tuple[Piece, ...], int]:
    pieces: list[Piece] = []
    with opened(file, os.O_RDONLY) as source:
        for saved, start, stop in back:
            if not saved:
                pieces.append(Piece(saved, start, stop))
                continue
            bulk.copy(source, start, stop, target, end, str(file))
            pieces.append(Piece(saved, end, end + stop - start))
            end += stop - start
    return tuple(pieces), end


def makers_of(place: Path, record: UndoRecord) -> dict[str, Maker]:
    """How undo makes the large files of a record again."""
    return {
        change.name: partial(_make_again, place / change.name, data_of(record.path), change.old)
        for change in record.changes
        if isinstance(change.old, Blob)
    }


def _make_again(file: Path, data: Path, blob: Blob, path: Path) -> None:
    """Writes a large file as it was, with the time that it had; a link where its target is still what it was."""
    if blob.link is not None and has_stamp(file.parent / blob.link, blob):
        os.symlink(blob.link, path)
        return
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        needed = {piece.saved for piece in blob.back}
        sources = {saved: stack.enter_context(opened(data if saved else file, os.O_RDONLY)) for saved in needed}
        target, at = bulk.Target(made, str(path)), 0
        with bulk.flushed(target):
            for saved, start, end in blob.back:
                bulk.copy(sources[saved], start, end, target, at, str(data if saved else file))
                at += end - start
        set_on(os.utime, made, ns=(blob.stamp.mtime_ns, blob.stamp.mtime_ns))


def unmade(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Changes whose large files are still to be written."""
    return tuple(
        replace(row, new=replace(row.new, stamp=UNMADE)) if isinstance(row.new, Blob) else row for row in changes
    )
