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
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shlex
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from mtpfix import bulk
from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError, UsageError, WriteError
from mtpfix.exchange import exchanged
from mtpfix.frozen import NamedTuple, dataclass, replace
from mtpfix.merging import taken_back
from mtpfix.output.text import listed

JSON, SUFFIX = ".json", ".safetensors"
LOCK_SECONDS = 20.0

Maker = Callable[[Path], None] | None
Way = Literal["exact", "keep-edits", "force"]
Outcome = Literal["none", "old", "new", "foreign"]

_LIKE = "config.json"  # whose owner and mode a new file gets
_RECORD = re.compile(r"([0-9]{6})-[0-9a-f]{16}\.json")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_MOST = 1 << 29  # bytes of a journal
_MOST_DATA = 1 << 27  # of what a file has changed in it; a header has 100 MB at most, a JSON file less
_FEW = 1 << 20  # bytes of a journal that is read before it is known to be of this directory
_HEAD = re.compile(
    rb'\{"mtpfix_journal": 1, "inode": ([0-9]{1,20}), "kind": "[a-z]+", "record": "([0-9]{6}-[0-9a-f]{16}\.json)"'
)
_MALFORMED = (ValueError, TypeError, KeyError, OverflowError, zlib.error)
_NO_LOCK = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_NO_LINK = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
_NO_ATTRIBUTE = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
_HINTS = {
    errno.ENOSPC: "Free some space there, then run it again.",
    errno.EDQUOT: "The disk quota is used up: free some space there, then run it again.",
    errno.EFBIG: "The limit on the size of files is too low (ulimit -f).",
    errno.EROFS: "The file system is read-only: copy {folder} to where it can be written.",
    errno.EACCES: "Make the directory {folder} writable for this user, or run it as the user who owns it.",
    errno.EPERM: "Make the directory {folder} writable for this user, or run it as the user who owns it.",
}
_OTHER = "Look at the directory {folder} and its file system, then run it again."
_HIDDEN = ".mtpfix-"
_NOTHING = "; nothing was changed"
_EDITED_HINT = "`mtpfix undo {place} --keep-edits` takes back only what mtpfix did; with --dry-run it shows the diff."
_FORCE_HINT = (
    "`mtpfix undo {place} --force` makes it what it was before mtpfix and keeps what is there now in {folder}; with "
    "--dry-run it shows the diff."
)
_LARGE_HINT = "Put back the file that mtpfix wrote, then run it again; or download the checkpoint again."
_STATE_HINT = "Undo records are kept there. Set XDG_STATE_HOME to a folder outside the checkpoint that can be written."


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


_UNMADE = Stamp(-1, -1)


@dataclass(frozen=True, slots=True)
class _Journal:
    """What is under way: its undo record's file name, the token in the names of its siblings, the files."""

    kind: Literal["apply", "undo"]
    record: str
    token: str
    changes: tuple[Change, ...]


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
        if not _is_plain(name, JSON if isinstance(new, bytes) else SUFFIX):
            raise ValueError(f"not a JSON file directly in the checkpoint: {name!r}")
    names = [name for name in after if before[name] != after[name]]
    if not names:
        return None
    with _locked(directory) as place:
        _recover_or_refuse(place)
        changes = tuple(_change(place, name, before[name], after[name]) for name in names)
        makers = {name: new.make for name, new in after.items() if isinstance(new, Large)}
        record = UndoRecord(str(place), _next_record(place), datetime.now(UTC).isoformat(timespec="seconds"), changes)
        return _swap(place, _Journal("apply", record.path.name, secrets.token_hex(8), changes), record, makers)


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
    with _locked(directory) as place:
        _recover_or_refuse(place)
        for path in reversed(_records(place)):
            record = _read_record(path)
            changes = _way_back(place, record, way)
            if not changes:
                if not dry_run:
                    with writing(path, _STATE_HINT):
                        _drop_record(path)  # it never happened, or was taken back by hand
                continue
            undone = replace(record, changes=tuple(Change(row.name, row.new, row.old) for row in reversed(changes)))
            if dry_run:
                return undone
            journal = _Journal("undo", path.name, secrets.token_hex(8), _unmade(changes))
            with _keeping(place, record, undone, way) as undone:
                _swap(place, journal, record, _makers(place, record))
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
    with _locked(directory) as place:
        return _recover(place)


@contextlib.contextmanager
def quiet(directory: str | Path) -> Iterator[None]:
    """Meanwhile nobody writes in a directory with mtpfix; a change that was cut short is ended first. Raises as
    `recover`."""
    with _locked(directory) as place:
        _recover(place)
        yield


# The steps of a change.


def _swap(place: Path, journal: _Journal, record: UndoRecord, makers: Mapping[str, Maker]) -> UndoRecord:
    """Makes a change, or leaves everything as it was. Returns the record of what was made."""
    try:
        with writing(place / JOURNAL):
            _write(place / JOURNAL, _journal_text(place, journal), 0o600)
            _sync(place)
        if makers:
            journal = _staged(place, journal, makers)
        for number, change in enumerate(journal.changes):
            if isinstance(change.new, Content):
                _prepare(_sibling(place, journal, number), place / change.name, change.new)
        if journal.kind == "apply":
            record = _saved(place, replace(record, changes=journal.changes))
            _write_record(record)
        for number, change in enumerate(journal.changes):
            _expect(place, change.name, change.old)
            _rename(place, journal, number)
        _settle(place, journal, forward=True)
    except BaseException as error:
        if not os.path.lexists(place / JOURNAL):  # not begun, or done
            raise
        ended = _is_ended(place, journal)
        try:
            _settle(place, journal, forward=ended)
        except (WriteError, UnreadableError) as second:
            why = str(second).removesuffix(_NOTHING)
            message = f"{place}: a change was cut short and cannot be taken back: {why}"
            hint = "Any mtpfix command ends it as soon as the directory can be written."
            raise WriteError(message, subject=str(place), hint=hint) from error
        if not ended or not isinstance(error, Exception):
            raise
    return record


def _is_ended(place: Path, journal: _Journal) -> bool:
    """Whether a change has come so far that something is gone for good: a large file which gave way, or the record of
    what an undo takes back."""
    if journal.kind == "undo" and not os.path.lexists(state_folder(place) / journal.record):
        return True
    return any(
        isinstance(change.old, Blob)
        and _is(place, change.name, change.new)
        and not _stamped(_outgoing(place, journal, number), change.old)
        for number, change in enumerate(journal.changes)
    )


def _settle(place: Path, journal: _Journal, *, forward: bool) -> None:
    """Brings all files to the new contents, or back from them, and removes the journal; can be repeated."""
    for number, change in enumerate(journal.changes):
        _give_back(place, journal, number)
        wrong, right = (change.old, change.new) if forward else (change.new, change.old)
        torn = _is_torn(place, change)
        if torn or _holds(place, journal, number, wrong) or _is_displaced(place, journal, number, right):
            if isinstance(right, Content):
                _restore(place, journal, number, right)
            else:
                _put(place, journal, number, right)
    with writing(place):
        _sync(place)
        _drop(_next_journal(place, journal))
        for beside in (_sibling, _outgoing):  # the way back last
            for number in range(len(journal.changes)):
                _drop(beside(place, journal, number))
    if forward == (journal.kind == "undo"):
        with contextlib.suppress(OSError, WriteError):  # a record that stays is known later for what it is
            _drop_record(state_folder(place) / journal.record)
    with writing(place):
        _drop(place / JOURNAL)
    with contextlib.suppress(OSError):
        _sync(place)


def _prepare(path: Path, file: Path, content: Content) -> None:
    """Writes a content beside its file, with the owner that the file has."""
    with writing(file):
        _drop(path)
        if content.link is not None and _bytes(file.parent, content.link) == content.data:
            os.symlink(content.link, path)
        else:
            _write(path, content.data, content.mode, like=file if file.exists() else file.with_name(_LIKE))


def _rename(place: Path, journal: _Journal, number: int) -> None:
    """Puts the new state of a file in place; a large file that gives way keeps another name until the end."""
    change = journal.changes[number]
    file = place / change.name
    with writing(file):
        if isinstance(change.old, Blob):
            _put_aside(file, _outgoing(place, journal, number))
        if isinstance(change.old, Content) and isinstance(change.new, Content):
            _swap_in(place, journal, number, change.old)
            return
    _put(place, journal, number, change.new)


def _swap_in(place: Path, journal: _Journal, number: int, old: Content) -> None:
    """Puts a JSON file in place of what it was; in place of something else, written since that was looked at, not."""
    sibling, name = _sibling(place, journal, number), journal.changes[number].name
    if not exchanged(sibling, place / name):
        os.replace(sibling, place / name)
    elif _bytes(place, sibling.name) != old.data:
        os.replace(sibling, place / name)
        _expect(place, name, old)


def _give_back(place: Path, journal: _Journal, number: int) -> None:
    """Puts back what somebody wrote just before it was exchanged for the new contents, where a kill came in between.

    Nothing else can be beside a file that has them: they were complete there before any file changed.
    """
    change, sibling = journal.changes[number], _sibling(place, journal, number)
    if not isinstance(change.old, Content) or not isinstance(change.new, Content) or not os.path.lexists(sibling):
        return
    if _is(place, change.name, change.new) and _bytes(place, sibling.name) not in (change.old.data, change.new.data):
        with writing(place / change.name):
            os.replace(sibling, place / change.name)


def _restore(place: Path, journal: _Journal, number: int, content: Content) -> None:
    """Brings a JSON file to contents that stand in the journal, by way of a name that nothing else uses."""
    path, file = _outgoing(place, journal, number), place / journal.changes[number].name
    _prepare(path, file, content)
    with writing(file):
        os.replace(path, file)


def _put_aside(file: Path, aside: Path) -> None:
    """A second name for a file, or another one where the file system allows no two."""
    _drop(aside)
    if file.is_symlink():
        os.symlink(os.readlink(file), aside)
        return
    try:
        os.link(file, aside)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        os.replace(file, aside)


def _put(place: Path, journal: _Journal, number: int, state: State) -> None:
    """Brings a file into a state that is ready beside it."""
    file = place / journal.changes[number].name
    with writing(file):
        if state is None:
            _drop(file)
        elif isinstance(state, Head):
            _overwrite(file, state)
        elif isinstance(state, Content):
            os.replace(_sibling(place, journal, number), file)
        else:
            ready = (_sibling(place, journal, number), _outgoing(place, journal, number))
            os.replace(next((path for path in ready if _stamped(path, state)), ready[0]), file)


def _overwrite(file: Path, head: Head) -> None:
    """Writes bytes of a file where they are, down to the disk: a sector at a time, and only those that differ."""
    with opened(file, os.O_RDWR) as descriptor:
        target = bulk.Target(descriptor, str(file))
        for start, end in bulk.sectors(head.start, head.start + len(head.data)):
            data = head.data[start - head.start : end - head.start]
            if os.pread(descriptor, len(data), start) != data:
                target.put_whole(data, start)
        if head.mtime_ns is not None:
            _set(os.utime, descriptor, ns=(head.mtime_ns, head.mtime_ns))
        bulk.sync(descriptor)


def _sibling(place: Path, journal: _Journal, number: int) -> Path:
    return place / f".mtpfix-{journal.token}-{number}"


def _outgoing(place: Path, journal: _Journal, number: int) -> Path:
    return place / f".mtpfix-{journal.token}-{number}-old"


def _next_journal(place: Path, journal: _Journal) -> Path:
    return place / f".mtpfix-{journal.token}-journal"


def _recover(place: Path) -> Outcome:
    journal = _read_journal(place)
    if journal in ("none", "foreign"):
        return journal
    writable = os.access(place, os.W_OK | os.X_OK)
    if not isinstance(journal, _Journal):
        if writable:
            with writing(place / JOURNAL):
                _drop(place / JOURNAL)
        return "old"
    if not writable:
        message = f"a change in {place} was cut short, and the directory cannot be written"
        raise WriteError(message, subject=str(place), hint=f"Run `mtpfix check {place}` as a user who can write there.")
    forward = _goes_forward(place, journal)
    _settle(place, journal, forward=forward)
    return "new" if forward else "old"


def _goes_forward(place: Path, journal: _Journal) -> bool:
    """Whether a change is to be finished. Where a large file of it is not complete, or where somebody else has written
    one of its files since, and others still wait for their new contents, it is not."""
    if any(isinstance(change.new, Blob) and change.new.stamp == _UNMADE for change in journal.changes):
        return False
    waits, known = False, True
    for number, change in enumerate(journal.changes):
        old = _holds(place, journal, number, change.old) or _is_torn(place, change)
        waits, known = waits or old, known and (old or _is(place, change.name, change.new))
    if waits and not known:
        return False
    return journal.kind == "undo" or not waits or os.path.lexists(state_folder(place) / journal.record)


def _recover_or_refuse(place: Path) -> None:
    if _recover(place) == "foreign":
        path = str(place / JOURNAL)
        raise ConflictError(
            f"{path} is of no change that was made here", subject=path, hint="Look at it, then delete it."
        )


# The way back.


def _way_back(place: Path, record: UndoRecord, way: Way) -> tuple[Change, ...]:
    """From what is there to what was, the last change first."""
    edited = [row for row in record.changes if not (_is(place, row.name, row.new) or _is(place, row.name, row.old))]
    if edited:
        _require_way(place, record, edited, way)
    rows = (
        _resolved(place, row, way) if row in edited else Change(row.name, row.new, row.old)
        for row in reversed(record.changes)
        if row in edited or not _is(place, row.name, row.old)
    )
    return tuple(row for row in rows if row.old != row.new)  # of an edited file all may be taken back already


def _require_way(place: Path, record: UndoRecord, edited: Sequence[Change], way: Way) -> None:
    """Refuses where the way does not lead back; says which does."""
    large = [row.name for row in edited if not _is_json(row)]
    names = listed([row.name for row in edited])
    if way == "exact" or large:
        since = record.time.replace("T", " ").replace("+00:00", " UTC")
        raise ConflictError(
            f"{place}: {listed(large) or names} changed since mtpfix wrote there ({since}); nothing was taken back",
            subject=str(place),
            hint=_LARGE_HINT if large else _EDITED_HINT.format(place=shlex.quote(str(place))),
        )


def _resolved(place: Path, change: Change, way: Way) -> Change:
    """The way back of a JSON file that was changed since."""
    now = _present(place, change.name)
    if way == "force":
        return Change(change.name, now, change.old)
    if not isinstance(now, Content) or not isinstance(change.old, Content) or not isinstance(change.new, Content):
        raise _no_merge(place, change.name, "it is gone" if now is None else "it is a file that mtpfix made")
    try:
        merged = taken_back(change.name, change.old.data, change.new.data, now.data)
    except UnreadableError as error:
        raise _no_merge(place, change.name, str(error)) from error
    if merged.conflicts:
        raise _no_merge(place, change.name, f"it was edited where mtpfix did: {', '.join(merged.conflicts)}")
    return Change(change.name, now, now if merged.data == now.data else Content(merged.data, now.mode))


def _no_merge(place: Path, name: str, why: str) -> ConflictError:
    return ConflictError(
        f"{place / name}: {why}; nothing was taken back",
        subject=str(place / name),
        hint=_FORCE_HINT.format(place=shlex.quote(str(place)), folder=state_folder(place)),
    )


def _present(place: Path, name: str) -> Content | None:
    """A JSON file as it is now."""
    data = _bytes(place, name)
    if data is None:
        if os.path.lexists(place / name):
            raise _no_merge(place, name, "it is no regular file any more")
        return None
    return Content(data, _mode(place / name), os.readlink(place / name) if (place / name).is_symlink() else None)


def _is_json(change: Change) -> bool:
    return all(state is None or isinstance(state, Content) for state in (change.old, change.new))


@contextlib.contextmanager
def _keeping(place: Path, record: UndoRecord, undone: UndoRecord, way: Way) -> Iterator[UndoRecord]:
    """Keeps, beside the records, the files that are there and that mtpfix did not write, if the way is forced; the
    record that says where. What was kept for an undo that did not come to its end goes."""
    written = {row.name: row.new for row in record.changes}
    paths = {row.name: state_folder(place) / f"kept-{record.path.stem}-{row.name}" for row in undone.changes}
    kept: list[tuple[str, Path]] = []
    try:
        for row in undone.changes:
            with writing(paths[row.name], _STATE_HINT):
                _drop(paths[row.name])
                if way == "force" and isinstance(row.new, Content) and not _is(place, row.name, written[row.name]):
                    _write(paths[row.name], row.new.data, 0o600)
                    kept.append((row.name, paths[row.name]))
        yield replace(undone, kept=tuple(kept))
    except BaseException:
        if record.path.exists() and not os.path.lexists(place / JOURNAL):  # neither done nor to be ended
            with contextlib.suppress(OSError):
                for path in paths.values():
                    _drop(path)
        raise


# Large files.


def _staged(place: Path, journal: _Journal, makers: Mapping[str, Maker]) -> _Journal:
    """Writes the large files beside those whose place they take; the journal that knows them, on disk."""
    changes = list(journal.changes)
    for number, change in enumerate(changes):
        make, path, file = makers.get(change.name), _sibling(place, journal, number), place / change.name
        if make and isinstance(change.new, Blob):
            with writing(file):
                make(path)
                like = file if file.exists() else place / _LIKE
                changes[number] = replace(change, new=_settled(path, change, like))
    journal = replace(journal, changes=tuple(changes))
    with writing(place / JOURNAL):
        _sync(place)
        _write(_next_journal(place, journal), _journal_text(place, journal), 0o600)
        os.replace(_next_journal(place, journal), place / JOURNAL)
        _sync(place)
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
            _give(descriptor, like)
        _set(os.fchmod, descriptor, blob.mode)
        if isinstance(change.old, Blob) and stamp_of(path) == change.old.stamp:
            later = change.old.stamp.mtime_ns + 1
            os.utime(descriptor, ns=(later, later))
        bulk.sync(descriptor)
    finally:
        os.close(descriptor)
    return replace(blob, stamp=stamp_of(path))


def stamp_of(path: str | Path) -> Stamp:
    """What tells a large file from another. Raises OSError."""
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns)


def _stamped(path: Path, blob: Blob) -> bool:
    try:
        return path.is_file() and stamp_of(path) == blob.stamp
    except OSError:
        return False


def _saved(place: Path, record: UndoRecord) -> UndoRecord:
    """Saves, beside the record, what undo needs of the large files that give way; the record that says where."""
    wanted = [change for change in record.changes if isinstance(change.old, Blob) and change.old.back]
    if not wanted:
        return record
    path, end = _data_of(record.path), 0
    moved: dict[str, Blob] = {}
    with writing(path, _STATE_HINT):
        _drop(path)
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as kept:
            target = bulk.Target(kept, str(path))
            with bulk.flushed(target):
                for change in wanted:
                    assert isinstance(change.old, Blob)
                    back, end = _save(place / change.name, change.old.back, target, end)
                    moved[change.name] = replace(change.old, back=back)
    changes = tuple(replace(change, old=moved.get(change.name, change.old)) for change in record.changes)
    return replace(record, changes=changes)


def _save(file: Path, back: Sequence[Piece], target: bulk.Target, end: int) -> tuple[tuple[Piece, ...], int]:
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


def _makers(place: Path, record: UndoRecord) -> dict[str, Maker]:
    """How undo makes the large files of a record again."""
    return {
        change.name: partial(_make_again, place / change.name, _data_of(record.path), change.old)
        for change in record.changes
        if isinstance(change.old, Blob)
    }


def _make_again(file: Path, data: Path, blob: Blob, path: Path) -> None:
    """Writes a large file as it was, with the time that it had; a link where its target is still what it was."""
    if blob.link is not None and _stamped(file.parent / blob.link, blob):
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
        _set(os.utime, made, ns=(blob.stamp.mtime_ns, blob.stamp.mtime_ns))


def _unmade(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Changes whose large files are still to be written."""
    return tuple(
        replace(row, new=replace(row.new, stamp=_UNMADE)) if isinstance(row.new, Blob) else row for row in changes
    )


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# Files.


def _is_plain(name: str, suffix: str) -> bool:
    """Whether a name is that of a visible file of a kind directly in a directory."""
    return name.endswith(suffix) and not name.startswith(".") and not {"/", os.sep, "\0"} & set(name)


def _change(place: Path, name: str, before: bytes | Stamp | None, after: bytes | Large | Overwrite) -> Change:
    """A change of a file that is as expected, with the mode and the link it has."""
    old = _state(place, name, before)
    _expect(place, name, old)
    if isinstance(after, Overwrite):
        assert isinstance(before, Stamp)
        heads = Head(after.start, after.old, before.size, before.mtime_ns), Head(after.start, after.new, before.size)
        _expect(place, name, heads[0])
        return Change(name, *heads)
    if isinstance(after, bytes):
        return Change(name, old, Content(after, old.mode if old else _mode(place / _LIKE)))
    if isinstance(old, Blob):
        old = replace(old, back=after.back)
    return Change(name, old, Blob(_UNMADE, old.mode if old else _mode(place / _LIKE)) if after.make else None)


def _state(place: Path, name: str, before: bytes | Stamp | None) -> Content | Blob | None:
    """What a file is that should be as `before` says."""
    path = place / name
    if before is None:
        return None
    try:
        mode, link = _mode(path), os.readlink(path) if path.is_symlink() else None
    except OSError:  # which the comparison will say
        mode, link = 0o644, None
    return Content(before, mode, link) if isinstance(before, bytes) else Blob(before, mode, link)


def _mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def _is(place: Path, name: str, state: State) -> bool:
    """Whether a file is in a state."""
    if state is None:
        return not os.path.lexists(place / name)
    if isinstance(state, Content):
        return _bytes(place, name) == state.data
    if isinstance(state, Head):
        return _at(place / name, state) == state.data
    return _stamped(place / name, state)


def _at(file: Path, head: Head) -> bytes | None:
    """What stands where a head has its bytes; None where the file has another size, is a link or is not there."""
    with _reading(file):
        if file.is_symlink() or not file.is_file() or os.stat(file).st_size != head.size:
            return None
        with opened(file, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, len(head.data), head.start)


def _is_torn(place: Path, change: Change) -> bool:
    """Whether a file was being overwritten when that was cut short: each byte is the old one or the new one."""
    if not isinstance(change.old, Head) or not isinstance(change.new, Head):
        return False
    found = _at(place / change.name, change.old)
    if found is None or found in (change.old.data, change.new.data):
        return False
    return all(
        byte in pair for byte, pair in zip(found, zip(change.old.data, change.new.data, strict=True), strict=True)
    )


def _holds(place: Path, journal: _Journal, number: int, state: State) -> bool:
    """Whether a file is in a state, or is in it but for its name, which it has lost to make room."""
    return _is(place, journal.changes[number].name, state) or _is_displaced(place, journal, number, state)


def _is_displaced(place: Path, journal: _Journal, number: int, state: State) -> bool:
    if not isinstance(state, Blob) or os.path.lexists(place / journal.changes[number].name):
        return False
    return _stamped(_outgoing(place, journal, number), state)


def _expect(place: Path, name: str, state: State) -> None:
    if _is(place, name, state):
        return
    path = place / name
    what = "is there already" if state is None else "was changed meanwhile" if path.is_file() else "is gone"
    raise ConflictError(f"{path} {what}; nothing was written", subject=str(path), hint="Look at it, then run it again.")


def _bytes(place: Path, name: str) -> bytes | None:
    """The bytes of a regular file, links followed; None if there is none."""
    path = place / name
    with _reading(path):
        try:
            return path.read_bytes() if path.is_file() else None
        except FileNotFoundError:
            return None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns errors of the system into an UnreadableError that names the path."""
    try:
        yield
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}", subject=str(path), hint=READ_HINT) from error


def _write(path: Path, data: bytes, mode: int, like: Path | None = None) -> None:
    """Writes a file that is not there yet, with the owner of another, down to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o777)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if like is not None and like.exists():
            _give(descriptor, like)
        _set(os.fchmod, descriptor, mode)
        bulk.sync(descriptor)
    finally:
        os.close(descriptor)


def _set(call: Callable[..., None], descriptor: int, *value: int, **more: tuple[int, int]) -> None:
    """Sets a mode or time, where the file system has any to set."""
    try:
        call(descriptor, *value, **more)
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTE:
            raise


def _give(descriptor: int, like: Path) -> None:
    """Sets owner, group and extended attributes (access lists among them) as another file has them, as far as the
    system lets this user."""
    mine, owner = os.fstat(descriptor), os.stat(like)
    if (mine.st_uid, mine.st_gid) != (owner.st_uid, owner.st_gid):
        for uid, gid in ((-1, owner.st_gid), (owner.st_uid, -1)):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, uid, gid)
    with contextlib.suppress(OSError, AttributeError):  # no such attributes here
        for name in os.listxattr(like):
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(like, name))


def _drop(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync(folder: Path) -> None:
    """Brings the names in a folder to the disk, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        bulk.sync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path, hint: str = "") -> Iterator[None]:
    """Turns errors of the system into a WriteError that names the path and says what to do.

    Files are written beside those that they replace, so it is the folder that has to be writable; of the hidden ones
    nobody but this module knows.
    """
    try:
        yield
    except OSError as error:
        folder = path if path.is_dir() else path.parent
        about = f"in {folder}" if path.name.startswith(_HIDDEN) else str(path)
        message = f"cannot write {about}: {error.strerror or error}{_NOTHING}"
        told = hint or _HINTS.get(error.errno or 0, _OTHER).format(folder=folder)
        raise WriteError(message, subject=str(folder if path.name.startswith(_HIDDEN) else path), hint=told) from error


# The lock.


@contextlib.contextmanager
def _locked(directory: str | Path) -> Iterator[Path]:
    """Keeps other processes off a directory; gives its real path."""
    place = Path(os.path.realpath(directory))
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(
            f"cannot open the directory {place}: {error.strerror}", subject=str(place), hint=READ_HINT
        ) from error
    try:
        if _lock(descriptor, place):
            yield place
            return
    finally:
        os.close(descriptor)
    # NFS locks no directory, since it cannot be opened for writing: a file in the state folder will do.
    with writing(_made_state_folder(place) / "lock", _STATE_HINT):
        descriptor = os.open(state_folder(place) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, place)
        yield place
    finally:
        os.close(descriptor)


def _lock(descriptor: int, place: Path) -> bool:
    """Waits for a lock; False where the file system has none, ConflictError if it stays with another process."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > end:
                message = f"another mtpfix is writing in {place}"
                raise ConflictError(message, subject=str(place), hint="Wait for it, then run it again.") from error
            time.sleep(0.01)
        except OSError as error:
            if error.errno in _NO_LOCK:
                return False
            with writing(place):
                raise
        else:
            return True


# The state folder and its records.


def state_folder(place: Path) -> Path:
    """Where the undo records of a directory are; WriteError if that is in the directory itself."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    folder = Path(os.path.realpath(base)) / "mtpfix" / "undo"
    if not os.path.isabs(base) or place == folder or place in folder.parents:
        raise WriteError(f"the state folder {folder} cannot be used", subject=str(folder), hint=_STATE_HINT)
    return folder / hashlib.sha256(os.fsencode(place)).hexdigest()[:32]


def _made_state_folder(place: Path) -> Path:
    folder = state_folder(place)
    with writing(folder, _STATE_HINT):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _sync(folder.parent)
    return folder


def _records(place: Path) -> list[Path]:
    """The undo records of a directory, oldest first."""
    folder = state_folder(place)
    with _reading(folder):
        try:
            return [folder / name for name in sorted(os.listdir(folder)) if _RECORD.fullmatch(name)]
        except FileNotFoundError:
            return []


def _next_record(place: Path) -> Path:
    """A file for the next record, in a folder that is there."""
    folder = _made_state_folder(place)
    last = [int(path.name[:6]) for path in _records(place)[-1:]]
    return folder / f"{sum(last) + 1:06d}-{secrets.token_hex(8)}.json"


def _write_record(record: UndoRecord) -> None:
    value = {"mtpfix_undo": 1, "directory": record.directory, "time": record.time, "changes": _packed(record.changes)}
    draft = _draft_of(record.path)
    with writing(record.path, _STATE_HINT):
        try:
            _write(draft, json.dumps(value).encode(), 0o600)
            os.replace(draft, record.path)
        finally:
            _drop(draft)
        _sync(record.path.parent)


def _data_of(path: Path) -> Path:
    """Where the bytes are that a record has saved."""
    return path.with_suffix(".data")


def _draft_of(path: Path) -> Path:
    """Where a record is written before it has its name."""
    return path.with_suffix(".tmp")


def _drop_record(path: Path) -> None:
    for part in (path, _data_of(path), _draft_of(path)):
        _drop(part)


def _read_record(path: Path) -> UndoRecord:
    try:
        value = json.loads(_bytes(path.parent, path.name) or b"")
        return UndoRecord(str(value["directory"]), path, str(value["time"]), _unpacked(value["changes"]))
    except (OSError, RecursionError, *_MALFORMED) as error:
        hint = "Without it the change cannot be undone; delete it to undo the one before."
        raise UnreadableError(f"the undo record {path} is damaged", subject=str(path), hint=hint) from error


# The journal.


def _journal_text(place: Path, journal: _Journal) -> bytes:
    value = {
        "mtpfix_journal": 1,
        "inode": os.stat(place).st_ino,
        "kind": journal.kind,
        "record": journal.record,
        "token": journal.token,
        "changes": _packed(journal.changes),
    }
    return json.dumps(value).encode()


def _read_journal(place: Path) -> _Journal | Literal["none", "torn", "foreign"]:
    """The journal in a directory. A torn one was cut short itself, so that nothing came after it."""
    try:
        found = os.lstat(place / JOURNAL)
    except FileNotFoundError:
        return "none"
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
        return "foreign"
    if found.st_size > _FEW and not _begins_here(place):
        return "foreign"  # what somebody else made up is not read, however large
    raw = _bytes(place, JOURNAL)
    try:
        value = json.loads(raw or b"")
    except (ValueError, RecursionError):
        return "torn"
    try:
        return _trusted(place, value)
    except _MALFORMED:
        return "foreign"


def _begins_here(place: Path) -> bool:
    """Whether a journal begins as one of this directory does."""
    with _reading(place / JOURNAL), opened(place / JOURNAL, os.O_RDONLY) as descriptor:
        head = _HEAD.match(os.read(descriptor, 1 << 10))
    return head is not None and _is_of(place, int(head[1]), head[2].decode())


def _is_of(place: Path, inode: Any, record: str) -> bool:
    """Whether a journal with this inode and this record was written in a directory, as it is or before it was moved."""
    return inode == os.stat(place).st_ino or os.path.lexists(state_folder(place) / record)


def _trusted(place: Path, value: Any) -> _Journal:
    """A journal that was written here; ValueError and the like if it was not."""
    record, token, kind = str(value["record"]), str(value["token"]), value["kind"]
    if not _RECORD.fullmatch(record) or not _TOKEN.fullmatch(token) or kind not in ("apply", "undo"):
        raise ValueError("not a journal")
    if not _is_of(place, value["inode"], record):
        raise ValueError("of another directory")
    return _Journal(kind, record, token, _unpacked(value["changes"]))


def _packed(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [{"name": row.name, "old": _packed_state(row.old), "new": _packed_state(row.new)} for row in changes]


def _packed_state(state: State) -> dict[str, Any] | None:
    if state is None:
        return None
    if isinstance(state, Blob):
        return {"stamp": state.stamp, "mode": state.mode, "link": state.link, "back": state.back}
    if isinstance(state, Head):
        text = base64.b64encode(zlib.compress(state.data)).decode()
        return {"start": state.start, "data": text, "size": state.size, "mtime_ns": state.mtime_ns}
    data = base64.b64encode(zlib.compress(state.data)).decode()
    return {"data": data, "mode": state.mode, "link": state.link}


def _unpacked(rows: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """The changes as they were packed; ValueError and the like if they were not."""
    changes = tuple(Change(str(row["name"]), _unpacked_state(row["old"]), _unpacked_state(row["new"])) for row in rows)
    if not changes or not all(_is_sound(change) for change in changes):
        raise ValueError("not the changes of a checkpoint")
    return changes


def _is_sound(change: Change) -> bool:
    """Whether a change is of a file that mtpfix changes."""
    if isinstance(change.old, Head) or isinstance(change.new, Head):
        return _is_sound_overwrite(change.old, change.new) and _is_plain(change.name, SUFFIX)
    large = isinstance(change.old, Blob) or isinstance(change.new, Blob)
    small = isinstance(change.old, Content) or isinstance(change.new, Content)
    return large != small and _is_plain(change.name, SUFFIX if large else JSON)


def _is_sound_overwrite(old: State, new: State) -> bool:
    """Whether the same bytes of a file change, and they are inside of it."""
    if not isinstance(old, Head) or not isinstance(new, Head):
        return False
    alike = (old.start, len(old.data), old.size) == (new.start, len(new.data), new.size)
    return alike and 0 <= old.start <= old.size - len(old.data)


def _unpacked_data(text: str) -> bytes:
    packed = zlib.decompressobj()
    data = packed.decompress(base64.b64decode(text), _MOST_DATA)
    if not packed.eof:
        raise ValueError("cut short, or too long")
    return data


def _unpacked_state(row: Mapping[str, Any] | None) -> State:
    if row is None:
        return None
    if "start" in row:
        written = row["mtime_ns"]
        data = _unpacked_data(row["data"])
        return Head(int(row["start"]), data, int(row["size"]), None if written is None else int(written))
    link, mode = row["link"], int(row["mode"]) & 0o7777
    link = None if link is None else str(link)
    if "stamp" in row:
        size, time_ns = row["stamp"]
        back = tuple(Piece(bool(saved), int(start), int(end)) for saved, start, end in row["back"])
        return Blob(Stamp(int(size), int(time_ns)), mode, link, back)
    return Content(_unpacked_data(row["data"]), mode, link)
