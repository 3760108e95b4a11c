"""Writing: several JSON files of a checkpoint change together or not at all, and can be changed back.

A change is made in this order, each step on disk before the next begins:

1. the journal, a hidden file in the directory, with the old and the new contents;
2. the new contents, in hidden siblings of the files;
3. the undo record, in the user's state folder;
4. the siblings renamed over the files;
5. the journal removed.

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
import stat
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from mtpfix.errors import ConflictError, UnreadableError, UsageError, WriteError
from mtpfix.frozen import dataclass

JOURNAL = ".mtpfix-journal.json"
LOCK_SECONDS = 20.0

Outcome = Literal["none", "old", "new", "foreign"]

_RECORD = re.compile(r"([0-9]{6})-[0-9a-f]{16}\.json")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_MOST = 1 << 29  # bytes of a journal, of a record, of a file in one of them
_NO_LOCK = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_NO_SYNC = {errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_HINTS = {
    errno.ENOSPC: "Free some space there, then run it again.",
    errno.EDQUOT: "The disk quota is used up: free some space there, then run it again.",
    errno.EFBIG: "The limit on the size of files is too low (ulimit -f).",
    errno.EROFS: "The file system is read-only: copy the checkpoint to where it can be written.",
    errno.EACCES: "Make it writable for this user, or run as the user who owns it.",
    errno.EPERM: "Make it writable for this user, or run as the user who owns it.",
}
_STATE_HINT = "Undo records are kept there. Set XDG_STATE_HOME to a folder outside the checkpoint that can be written."


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is: its bytes, its mode and, where it is a symlink, the target as it is written."""

    data: bytes
    mode: int
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the checkpoint, before and after."""

    name: str
    old: Content
    new: Content


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A change that was made: the directory's real path, the record's file, the time (ISO 8601, UTC), the files."""

    directory: str
    path: Path
    time: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Journal:
    """What is under way: its undo record's file name, the token in the names of its siblings, the files."""

    kind: Literal["apply", "undo"]
    record: str
    token: str
    changes: tuple[Change, ...]


def apply_files(directory: str | Path, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> UndoRecord | None:
    """Writes files whose bytes are `before` so that they are `after`: all of them or none.

    Returns the undo record, or None where nothing differs. Modes stay, and owners where the system allows it; a
    symlink gives way to a regular file, and what it points to is not touched. Raises ValueError for names that are
    no JSON files directly in the directory; ConflictError if a file is not what `before` says, or if another
    process keeps the directory; WriteError if something cannot be written. Then nothing has changed.
    """
    if before.keys() != after.keys():
        raise ValueError("before and after name different files")
    if wrong := [name for name in after if not _is_plain(name)]:
        raise ValueError(f"not a JSON file directly in the checkpoint: {wrong[0]!r}")
    names = [name for name in after if before[name] != after[name]]
    if not names:
        return None
    with _locked(directory) as place:
        _recover_or_refuse(place)
        changes = tuple(_change(place, name, before[name], after[name]) for name in names)
        record = UndoRecord(str(place), _next_record(place), datetime.now(UTC).isoformat(timespec="seconds"), changes)
        _swap(place, _Journal("apply", record.path.name, secrets.token_hex(8), changes), record)
        return record


def undo(directory: str | Path) -> UndoRecord:
    """Takes the last apply back: the first bytes, modes and symlinks. Returns its record, which is gone then.

    A symlink comes back if its target still has the first bytes, else a regular file does. Raises UsageError if
    there is nothing to undo, ConflictError if a file was changed since, UnreadableError if the record is damaged,
    WriteError if something cannot be written. Then nothing has changed.
    """
    with _locked(directory) as place:
        _recover_or_refuse(place)
        for path in reversed(_records(place)):
            record = _read_record(path)
            if all(_bytes(place, change.name) == change.old.data for change in record.changes):
                with _writing(path, _STATE_HINT):
                    _drop(path)  # it never happened, or was taken back by hand
                continue
            for change in record.changes:
                _expect(place, change.name, change.new.data)
            changes = tuple(Change(change.name, change.new, change.old) for change in record.changes)
            _swap(place, _Journal("undo", path.name, secrets.token_hex(8), changes), record)
            return record
        raise UsageError(f"there is nothing to undo in {place}", subject=str(place))


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


# The steps of a change.


def _swap(place: Path, journal: _Journal, record: UndoRecord) -> None:
    """Makes a change, or leaves everything as it was."""
    try:
        with _writing(place / JOURNAL):
            _write(place / JOURNAL, _journal_text(place, journal), 0o600)
            _sync(place)
        for number, change in enumerate(journal.changes):
            _prepare(place, journal, number, change.new)
        if journal.kind == "apply":
            _write_record(record)
        for number, change in enumerate(journal.changes):
            _expect(place, change.name, change.old.data)
            _rename(place, journal, number)
        _settle(place, journal, forward=True)
    except BaseException as error:
        if not os.path.lexists(place / JOURNAL):  # not begun, or done
            raise
        try:
            _settle(place, journal, forward=False)
        except (WriteError, UnreadableError) as second:
            message = f"{place}: a change was cut short and cannot be taken back: {second}"
            hint = "Any mtpfix command ends it as soon as the directory can be written."
            raise WriteError(message, subject=str(place), hint=hint) from error
        raise


def _settle(place: Path, journal: _Journal, *, forward: bool) -> None:
    """Brings all files to the new contents, or back from them, and removes the journal; can be repeated."""
    for number, change in enumerate(journal.changes):
        wrong, right = (change.old, change.new) if forward else (change.new, change.old)
        if _bytes(place, change.name) == wrong.data:
            _prepare(place, journal, number, right)
            _rename(place, journal, number)
    with _writing(place):
        _sync(place)
        for number in range(len(journal.changes)):
            _drop(_sibling(place, journal, number))
        _drop(place / JOURNAL)
    with contextlib.suppress(OSError):  # what stays then is known later for what it is
        _sync(place)
        if forward == (journal.kind == "undo"):
            _drop(_state_folder(place) / journal.record)


def _prepare(place: Path, journal: _Journal, number: int, content: Content) -> None:
    """Writes a content beside its file, with the owner that the file has."""
    path, file = _sibling(place, journal, number), place / journal.changes[number].name
    with _writing(file):
        _drop(path)
        if content.link is not None and _bytes(place, content.link) == content.data:
            os.symlink(content.link, path)
        else:
            _write(path, content.data, content.mode, like=file)


def _rename(place: Path, journal: _Journal, number: int) -> None:
    file = place / journal.changes[number].name
    with _writing(file):
        os.replace(_sibling(place, journal, number), file)


def _sibling(place: Path, journal: _Journal, number: int) -> Path:
    return place / f".mtpfix-{journal.token}-{number}"


def _recover(place: Path) -> Outcome:
    journal = _read_journal(place)
    if journal in ("none", "foreign"):
        return journal
    writable = os.access(place, os.W_OK | os.X_OK)
    if not isinstance(journal, _Journal):
        if writable:
            with _writing(place / JOURNAL):
                _drop(place / JOURNAL)
        return "old"
    if not writable:
        message = f"a change in {place} was cut short, and the directory cannot be written"
        raise WriteError(message, subject=str(place), hint=f"Run `mtpfix check {place}` as a user who can write there.")
    forward = _goes_forward(place, journal)
    _settle(place, journal, forward=forward)
    return "new" if forward else "old"


def _goes_forward(place: Path, journal: _Journal) -> bool:
    """Whether a change is to be finished. Where somebody else has written one of its files since, and others still
    wait for their new contents, it is not."""
    seen = [_bytes(place, change.name) for change in journal.changes]
    waits = any(data == change.old.data for data, change in zip(seen, journal.changes, strict=True))
    known = all(data in (change.old.data, change.new.data) for data, change in zip(seen, journal.changes, strict=True))
    if waits and not known:
        return False
    return journal.kind == "undo" or not waits or os.path.lexists(_state_folder(place) / journal.record)


def _recover_or_refuse(place: Path) -> None:
    if _recover(place) == "foreign":
        path = str(place / JOURNAL)
        raise ConflictError(
            f"{path} is of no change that was made here", subject=path, hint="Look at it, then delete it."
        )


# Files.


def _is_plain(name: str) -> bool:
    """Whether a name is that of a visible JSON file directly in a directory."""
    return name.endswith(".json") and not name.startswith(".") and not {"/", os.sep, "\0"} & set(name)


def _change(place: Path, name: str, before: bytes, after: bytes) -> Change:
    """A change of a file that is as expected, with the mode and the link it has."""
    _expect(place, name, before)
    path = place / name
    mode = stat.S_IMODE(os.stat(path).st_mode)
    link = os.readlink(path) if path.is_symlink() else None
    return Change(name, Content(before, mode, link), Content(after, mode))


def _expect(place: Path, name: str, data: bytes) -> None:
    found = _bytes(place, name)
    if found != data:
        path = str(place / name)
        what = "is gone" if found is None else "was changed by someone else"
        raise ConflictError(f"{path} {what}; nothing was written", subject=path, hint="Look at it, then run it again.")


def _bytes(place: Path, name: str) -> bytes | None:
    """The bytes of a regular file, links followed; None if there is none."""
    path = place / name
    try:
        return path.read_bytes() if path.is_file() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}", subject=str(path)) from error


def _write(path: Path, data: bytes, mode: int, like: Path | None = None) -> None:
    """Writes a file that is not there yet, with the owner of another, down to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if like is not None and like.exists():
            _give(descriptor, os.stat(like))
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give(descriptor: int, owner: os.stat_result) -> None:
    """Sets owner and group, as far as the system lets this user."""
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (owner.st_uid, owner.st_gid):
        for uid, gid in ((-1, owner.st_gid), (owner.st_uid, -1)):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, uid, gid)


def _drop(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync(folder: Path) -> None:
    """Brings the names in a folder to the disk, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _writing(path: Path, hint: str = "") -> Iterator[None]:
    """Turns errors of the system into a WriteError that names the path and says what to do."""
    try:
        yield
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}; nothing was changed"
        raise WriteError(message, subject=str(path), hint=hint or _HINTS.get(error.errno or 0, "")) from error


# The lock.


@contextlib.contextmanager
def _locked(directory: str | Path) -> Iterator[Path]:
    """Keeps other processes off a directory; gives its real path."""
    place = Path(os.path.realpath(directory))
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(f"cannot open the directory {place}: {error.strerror}", subject=str(place)) from error
    try:
        if _lock(descriptor, place):
            yield place
            return
    finally:
        os.close(descriptor)
    # NFS locks no directory, since it cannot be opened for writing: a file in the state folder will do.
    with _writing(_made_state_folder(place) / "lock", _STATE_HINT):
        descriptor = os.open(_state_folder(place) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            if error.errno not in _NO_LOCK:
                raise
            return False
        else:
            return True


# The state folder and its records.


def _state_folder(place: Path) -> Path:
    """Where the undo records of a directory are; WriteError if that is in the directory itself."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    folder = Path(os.path.realpath(base)) / "mtpfix" / "undo"
    if not os.path.isabs(base) or place == folder or place in folder.parents:
        raise WriteError(f"the state folder {folder} cannot be used", subject=str(folder), hint=_STATE_HINT)
    return folder / hashlib.sha256(os.fsencode(place)).hexdigest()[:32]


def _made_state_folder(place: Path) -> Path:
    folder = _state_folder(place)
    with _writing(folder, _STATE_HINT):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _sync(folder.parent)
    return folder


def _records(place: Path) -> list[Path]:
    """The undo records of a directory, oldest first."""
    folder = _state_folder(place)
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if _RECORD.fullmatch(name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableError(f"cannot read {folder}: {error.strerror}", subject=str(folder)) from error


def _next_record(place: Path) -> Path:
    """A file for the next record, in a folder that is there."""
    folder = _made_state_folder(place)
    last = [int(path.name[:6]) for path in _records(place)[-1:]]
    return folder / f"{sum(last) + 1:06d}-{secrets.token_hex(8)}.json"


def _write_record(record: UndoRecord) -> None:
    value = {"mtpfix_undo": 1, "directory": record.directory, "time": record.time, "changes": _packed(record.changes)}
    draft = record.path.with_suffix(".tmp")
    with _writing(record.path, _STATE_HINT):
        try:
            _write(draft, json.dumps(value).encode(), 0o600)
            os.replace(draft, record.path)
        finally:
            _drop(draft)
        _sync(record.path.parent)


def _read_record(path: Path) -> UndoRecord:
    try:
        value = json.loads(path.read_bytes())
        return UndoRecord(str(value["directory"]), path, str(value["time"]), _unpacked(value["changes"]))
    except (OSError, ValueError, TypeError, KeyError, zlib.error) as error:
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
    raw = _bytes(place, JOURNAL)
    try:
        value = json.loads(raw or b"")
    except (ValueError, RecursionError):
        return "torn"
    try:
        return _trusted(place, value)
    except (ValueError, TypeError, KeyError, zlib.error):
        return "foreign"


def _trusted(place: Path, value: Any) -> _Journal:
    """A journal that was written here; ValueError and the like if it was not."""
    record, token, kind = str(value["record"]), str(value["token"]), value["kind"]
    if not _RECORD.fullmatch(record) or not _TOKEN.fullmatch(token) or kind not in ("apply", "undo"):
        raise ValueError("not a journal")
    if value["inode"] != os.stat(place).st_ino and not os.path.lexists(_state_folder(place) / record):
        raise ValueError("of another directory")
    return _Journal(kind, record, token, _unpacked(value["changes"]))


def _packed(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [{"name": row.name, "old": _packed_content(row.old), "new": _packed_content(row.new)} for row in changes]


def _packed_content(content: Content) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(content.data)).decode()
    return {"data": data, "mode": content.mode, "link": content.link}


def _unpacked(rows: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """The changes as they were packed; ValueError and the like if they were not."""
    changes = tuple(Change(row["name"], _unpacked_content(row["old"]), _unpacked_content(row["new"])) for row in rows)
    if not changes or not all(_is_plain(change.name) for change in changes):
        raise ValueError("not the changes of a checkpoint")
    return changes


def _unpacked_content(row: Mapping[str, Any]) -> Content:
    packed = zlib.decompressobj()
    data = packed.decompress(base64.b64decode(row["data"]), _MOST)
    if not packed.eof:
        raise ValueError("cut short, or too long")
    link = row["link"]
    return Content(data, int(row["mode"]) & 0o7777, None if link is None else str(link))
