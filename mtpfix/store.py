"""Writing: several JSON files of a checkpoint change together or not at all, and can be changed back.

A change is made in this order, each step on disk before the next begins:

1. the journal, a hidden file in the directory, with the old and the new contents;
2. the new contents as hidden siblings of the files;
3. the undo record, in the user's state folder;
4. the siblings renamed over the files;
5. the journal removed.

Whoever finds a journal finishes or takes back what it says: an apply goes on if its undo record was
written, since no file changes before that; an undo always goes on. A lock on the directory keeps two
processes apart; the kernel drops it when a process dies.

A checkpoint may come from anywhere, and with a journal in it that nobody here wrote. So a journal counts
only if the state folder holds its record, or if it names the very directory (its inode) it lies in.
"""

from __future__ import annotations

import base64
import binascii
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from mtpfix.errors import ConflictError, MtpfixError, UnreadableError, UsageError, WriteError

JOURNAL = ".mtpfix-journal.json"
LOCK_SECONDS = 20.0

Outcome = Literal["none", "old", "new", "foreign"]
Kind = Literal["apply", "undo"]

_RECORD = re.compile(r"(\d{6})-[0-9a-f]{16}\.json")
_MOST = 1 << 29  # bytes of a journal or a record
_NO_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_NO_SYNC = {errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_HINTS = {
    errno.ENOSPC: "Free some space, then run it again.",
    errno.EDQUOT: "The disk quota is used up: free some space, then run it again.",
    errno.EFBIG: "The limit on file sizes is too low (ulimit -f).",
    errno.EROFS: "The file system is read-only: copy the checkpoint to a place that can be written.",
    errno.EACCES: "Make it writable for this user, or run as the user who owns it.",
    errno.EPERM: "Make it writable for this user, or run as the user who owns it.",
}
_STATE_HINT = "Undo records are kept there; set XDG_STATE_HOME to a folder that can be written."


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is: its bytes, its mode and, where it is a symlink, its target as written."""

    data: bytes
    mode: int
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A file in the checkpoint, before and after."""

    name: str
    old: Content
    new: Content

    def reversed(self) -> Change:
        return Change(self.name, self.new, self.old)


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A change that was made: the directory's real path, the record's file, when it was made (ISO 8601), the files."""

    directory: str
    path: Path
    time: str
    changes: tuple[Change, ...]


def apply_files(directory: str | Path, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> UndoRecord | None:
    """Writes files whose contents are `before` so that they are `after`, all of them or none.

    Returns the undo record, or None where nothing differs. Modes stay, owners where the system allows it; a
    symlink is replaced by a regular file, what it points to is not touched. Only plain `.json` names directly in
    the directory are written (ValueError). Raises ConflictError if a file on disk is not what `before` says or
    another process keeps the directory, WriteError if something cannot be written; then nothing has changed.
    """
    if before.keys() != after.keys():
        raise ValueError("before and after name different files")
    names = [name for name in after if before[name] != after[name]]
    for name in names:
        _check_name(name)
    if not names:
        return None
    with _locked(directory) as place:
        if _recover(place) == "foreign":
            raise _foreign(place)
        changes = tuple(Change(name, old, Content(after[name], old.mode)) for name in names for old in [_seen(place, name)])
        for change in changes:
            _expect(place, change.name, before[change.name])
        with _state_errors(place):
            record = _new_record(place, changes)
        _swap(place, _Journal("apply", record.path.name, secrets.token_hex(8), changes), record)
    return record


def undo(directory: str | Path) -> UndoRecord:
    """Takes the last apply back: the first bytes, modes and symlinks. Returns its record, which is gone then.

    A symlink is only restored if its target still has the first bytes; else the file is. Raises UsageError if
    there is nothing to undo, ConflictError if a file was changed since, WriteError if something cannot be written.
    """
    with _locked(directory) as place:
        if _recover(place) == "foreign":
            raise _foreign(place)
        for path in reversed(_records(place)):
            record = _read_record(place, path)
            if all(_reads(place, change.name) == change.old.data for change in record.changes):
                path.unlink()  # of a change that never happened, or that was taken back by hand
                continue
            for change in record.changes:
                _expect(place, change.name, change.new.data)
            changes = tuple(change.reversed() for change in record.changes)
            _swap(place, _Journal("undo", path.name, secrets.token_hex(8), changes), record)
            return record
    raise UsageError(f"there is nothing to undo in {place}", subject=str(place))


def recover(directory: str | Path) -> Outcome:
    """Ends a change that was cut short: `old` if it was taken back, `new` if it was finished, `none` if there was none.

    `foreign` means that a journal lies there which no change of this user in this directory has left; it is not
    touched. Raises WriteError if there is something to end and the directory cannot be written.
    """
    if not os.path.lexists(Path(directory) / JOURNAL):
        return "none"
    with _locked(directory) as place:
        return _recover(place)


# --- names, places, errors


def _check_name(name: str) -> None:
    if not name.endswith(".json") or name.startswith(".") or {"/", os.sep, "\0"} & set(name):
        raise ValueError(f"{name!r} is not a JSON file of the checkpoint itself")


def _foreign(place: Path) -> ConflictError:
    path = str(place / JOURNAL)
    return ConflictError(f"{path} is not from a change that was made here", subject=path, hint="Look at it; delete it.")


@contextlib.contextmanager
def _writing(path: Path, hint: str = "") -> Iterator[None]:
    """System errors become WriteErrors that name the path and say what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise WriteError(f"cannot write {path}: {why}", subject=str(path), hint=hint or _HINTS.get(error.errno or 0, "")) from error


def _state_folder(place: Path) -> Path:
    """Where the records of a directory are; it need not exist."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~/.local/state"))
    key = hashlib.sha256(os.fsencode(place)).hexdigest()[:32]
    return base / "mtpfix" / "undo" / key


@contextlib.contextmanager
def _state_errors(place: Path) -> Iterator[None]:
    with _writing(_state_folder(place), _STATE_HINT):
        yield
