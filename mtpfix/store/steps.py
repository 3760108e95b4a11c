"""The steps of a change, in their order; and how one that was cut short is ended."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mtpfix import bulk
from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import ConflictError, UnreadableError, WriteError
from mtpfix.exchange import exchanged
from mtpfix.frozen import replace
from mtpfix.store.files import (
    LIKE,
    NOTHING,
    bytes_of,
    drop,
    expect,
    has_stamp,
    is_in,
    is_torn,
    opened,
    set_on,
    sync_folder,
    write_new,
    writing,
)
from mtpfix.store.journal import Journal, journal_text, next_journal_of, outgoing_of, read_journal, sibling_of
from mtpfix.store.large import save, staged
from mtpfix.store.records import drop_record, state_folder, write_record
from mtpfix.store.states import UNMADE, Blob, Content, Head, Maker, State, UndoRecord

Outcome = Literal["none", "old", "new", "foreign"]
_NO_LINK = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}


def swap(place: Path, journal: Journal, record: UndoRecord, makers: Mapping[str, Maker]) -> UndoRecord:
    """Makes a change, or leaves everything as it was. Returns the record of what was made."""
    try:
        with writing(place / JOURNAL):
            write_new(place / JOURNAL, journal_text(place, journal), 0o600)
            sync_folder(place)
        if makers:
            journal = staged(place, journal, makers)
        for number, change in enumerate(journal.changes):
            if isinstance(change.new, Content):
                _prepare(sibling_of(place, journal, number), place / change.name, change.new)
        if journal.kind == "apply":
            record = save(place, replace(record, changes=journal.changes))
            write_record(record)
        for number, change in enumerate(journal.changes):
            expect(place, change.name, change.old)
            _rename(place, journal, number)
        _settle(place, journal, forward=True)
    except BaseException as error:
        if not os.path.lexists(place / JOURNAL):  # not begun, or done
            raise
        ended = _is_ended(place, journal)
        try:
            _settle(place, journal, forward=ended)
        except (WriteError, UnreadableError) as second:
            why = str(second).removesuffix(NOTHING)
            message = f"{place}: a change was cut short and cannot be taken back: {why}"
            hint = "Any mtpfix command ends it as soon as the directory can be written."
            raise WriteError(message, subject=str(place), hint=hint) from error
        if not ended or not isinstance(error, Exception):
            raise
    return record


def _is_ended(place: Path, journal: Journal) -> bool:
    """Whether a change has come so far that something is gone for good: a large file which gave way, or the record of
    what an undo takes back."""
    if journal.kind == "undo" and not os.path.lexists(state_folder(place) / journal.record):
        return True
    return any(
        isinstance(change.old, Blob)
        and is_in(place, change.name, change.new)
        and not has_stamp(outgoing_of(place, journal, number), change.old)
        for number, change in enumerate(journal.changes)
    )


def _settle(place: Path, journal: Journal, *, forward: bool) -> None:
    """Brings all files to the new contents, or back from them, and removes the journal; can be repeated."""
    for number, change in enumerate(journal.changes):
        _give_back(place, journal, number)
        wrong, right = (change.old, change.new) if forward else (change.new, change.old)
        torn = is_torn(place, change)
        if torn or _holds(place, journal, number, wrong) or _is_displaced(place, journal, number, right):
            if isinstance(right, Content):
                _restore(place, journal, number, right)
            else:
                _put(place, journal, number, right)
    with writing(place):
        sync_folder(place)
        drop(next_journal_of(place, journal))
        for beside in (sibling_of, outgoing_of):  # the way back last
            for number in range(len(journal.changes)):
                drop(beside(place, journal, number))
    if forward == (journal.kind == "undo"):
        with contextlib.suppress(OSError, WriteError):  # a record that stays is known later for what it is
            drop_record(state_folder(place) / journal.record)
    with writing(place):
        drop(place / JOURNAL)
    with contextlib.suppress(OSError):
        sync_folder(place)


def _prepare(path: Path, file: Path, content: Content) -> None:
    """Writes a content beside its file, with the owner that the file has."""
    with writing(file):
        drop(path)
        if content.link is not None and bytes_of(file.parent, content.link) == content.data:
            os.symlink(content.link, path)
        else:
            write_new(path, content.data, content.mode, like=file if file.exists() else file.with_name(LIKE))


def _rename(place: Path, journal: Journal, number: int) -> None:
    """Puts the new state of a file in place; a large file that gives way keeps another name until the end."""
    change = journal.changes[number]
    file = place / change.name
    with writing(file):
        if isinstance(change.old, Blob):
            _put_aside(file, outgoing_of(place, journal, number))
        if isinstance(change.old, Content) and isinstance(change.new, Content):
            _swap_in(place, journal, number, change.old)
            return
    _put(place, journal, number, change.new)


def _swap_in(place: Path, journal: Journal, number: int, old: Content) -> None:
    """Puts a JSON file in place of what it was; in place of something else, written since that was looked at, not."""
    sibling, name = sibling_of(place, journal, number), journal.changes[number].name
    if not exchanged(sibling, place / name):
        os.replace(sibling, place / name)
    elif bytes_of(place, sibling.name) != old.data:
        os.replace(sibling, place / name)
        expect(place, name, old)


def _give_back(place: Path, journal: Journal, number: int) -> None:
    """Puts back what somebody wrote just before it was exchanged for the new contents, where a kill came in between.

    Nothing else can be beside a file that has them: they were complete there before any file changed.
    """
    change, sibling = journal.changes[number], sibling_of(place, journal, number)
    if not isinstance(change.old, Content) or not isinstance(change.new, Content) or not os.path.lexists(sibling):
        return
    known = (change.old.data, change.new.data)
    if is_in(place, change.name, change.new) and bytes_of(place, sibling.name) not in known:
        with writing(place / change.name):
            os.replace(sibling, place / change.name)


def _restore(place: Path, journal: Journal, number: int, content: Content) -> None:
    """Brings a JSON file to contents that stand in the journal, by way of a name that nothing else uses."""
    path, file = outgoing_of(place, journal, number), place / journal.changes[number].name
    _prepare(path, file, content)
    with writing(file):
        os.replace(path, file)


def _put_aside(file: Path, aside: Path) -> None:
    """A second name for a file, or another one where the file system allows no two."""
    drop(aside)
    if file.is_symlink():
        os.symlink(os.readlink(file), aside)
        return
    try:
        os.link(file, aside)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        os.replace(file, aside)


def _put(place: Path, journal: Journal, number: int, state: State) -> None:
    """Brings a file into a state that is ready beside it."""
    file = place / journal.changes[number].name
    with writing(file):
        if state is None:
            drop(file)
        elif isinstance(state, Head):
            _overwrite(file, state)
        elif isinstance(state, Content):
            os.replace(sibling_of(place, journal, number), file)
        else:
            ready = (sibling_of(place, journal, number), outgoing_of(place, journal, number))
            os.replace(next((path for path in ready if has_stamp(path, state)), ready[0]), file)


def _overwrite(file: Path, head: Head) -> None:
    """Writes bytes of a file where they are, down to the disk: a sector at a time, and only those that differ."""
    with opened(file, os.O_RDWR) as descriptor:
        target = bulk.Target(descriptor, str(file))
        for start, end in bulk.sectors(head.start, head.start + len(head.data)):
            data = head.data[start - head.start : end - head.start]
            if os.pread(descriptor, len(data), start) != data:
                target.put_whole(data, start)
        if head.mtime_ns is not None:
            set_on(os.utime, descriptor, ns=(head.mtime_ns, head.mtime_ns))
        bulk.sync(descriptor)


def recovered(place: Path) -> Outcome:
    """Ends what was cut short in a directory that is locked; see `recover`."""
    journal = read_journal(place)
    if journal in ("none", "foreign"):
        return journal
    writable = os.access(place, os.W_OK | os.X_OK)
    if not isinstance(journal, Journal):
        if writable:
            with writing(place / JOURNAL):
                drop(place / JOURNAL)
        return "old"
    if not writable:
        message = f"a change in {place} was cut short, and the directory cannot be written"
        raise WriteError(message, subject=str(place), hint=f"Run `mtpfix check {place}` as a user who can write there.")
    forward = _goes_forward(place, journal)
    _settle(place, journal, forward=forward)
    return "new" if forward else "old"


def _goes_forward(place: Path, journal: Journal) -> bool:
    """Whether a change is to be finished. Where a large file of it is not complete, or where somebody else has written
    one of its files since, and others still wait for their new contents, it is not."""
    if any(isinstance(change.new, Blob) and change.new.stamp == UNMADE for change in journal.changes):
        return False
    waits, known = False, True
    for number, change in enumerate(journal.changes):
        old = _holds(place, journal, number, change.old) or is_torn(place, change)
        waits, known = waits or old, known and (old or is_in(place, change.name, change.new))
    if waits and not known:
        return False
    return journal.kind == "undo" or not waits or os.path.lexists(state_folder(place) / journal.record)


def recover_or_refuse(place: Path) -> None:
    """The same; raises ConflictError for a journal that nobody left here."""
    if recovered(place) == "foreign":
        path = str(place / JOURNAL)
        raise ConflictError(
            f"{path} is of no change that was made here", subject=path, hint="Look at it, then delete it."
        )


def _holds(place: Path, journal: Journal, number: int, state: State) -> bool:
    """Whether a file is in a state, or is in it but for its name, which it has lost to make room."""
    return is_in(place, journal.changes[number].name, state) or _is_displaced(place, journal, number, state)


def _is_displaced(place: Path, journal: Journal, number: int, state: State) -> bool:
    if not isinstance(state, Blob) or os.path.lexists(place / journal.changes[number].name):
        return False
    return has_stamp(outgoing_of(place, journal, number), state)
