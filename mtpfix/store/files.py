"""A file on the disk: what state it is in, and the few ways in which anything is written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from mtpfix import bulk
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError, WriteError
from mtpfix.store.states import Blob, Change, Content, Head, Stamp, State

LIKE = "config.json"  # whose owner and mode a new file gets
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
NOTHING = "; nothing was changed"


def stamp_of(path: str | Path) -> Stamp:
    """What tells a large file from another. Raises OSError."""
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns)


def has_stamp(path: Path, blob: Blob) -> bool:
    """Whether a file is the large one that has a stamp."""
    try:
        return path.is_file() and stamp_of(path) == blob.stamp
    except OSError:
        return False


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A file's descriptor, closed behind the `with` statement."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mode_of(path: Path) -> int:
    """The mode of a file, links followed. Raises OSError."""
    return stat.S_IMODE(os.stat(path).st_mode)


def is_in(place: Path, name: str, state: State) -> bool:
    """Whether a file is in a state."""
    if state is None:
        return not os.path.lexists(place / name)
    if isinstance(state, Content):
        return bytes_of(place, name) == state.data
    if isinstance(state, Head):
        return bytes_at(place / name, state) == state.data
    return has_stamp(place / name, state)


def bytes_at(file: Path, head: Head) -> bytes | None:
    """What stands where a head has its bytes; None where the file has another size, is a link or is not there."""
    with reading(file):
        if file.is_symlink() or not file.is_file() or os.stat(file).st_size != head.size:
            return None
        with opened(file, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, len(head.data), head.start)


def is_torn(place: Path, change: Change) -> bool:
    """Whether a file was being overwritten when that was cut short: each byte is the old one or the new one."""
    if not isinstance(change.old, Head) or not isinstance(change.new, Head):
        return False
    found = bytes_at(place / change.name, change.old)
    if found is None or found in (change.old.data, change.new.data):
        return False
    return all(
        byte in pair for byte, pair in zip(found, zip(change.old.data, change.new.data, strict=True), strict=True)
    )


def expect(place: Path, name: str, state: State) -> None:
    """Raises ConflictError where a file is not in a state."""
    if is_in(place, name, state):
        return
    path = place / name
    what = "is there already" if state is None else "was changed meanwhile" if path.is_file() else "is gone"
    raise ConflictError(f"{path} {what}; nothing was written", subject=str(path), hint="Look at it, then run it again.")


def bytes_of(place: Path, name: str) -> bytes | None:
    """The bytes of a regular file, links followed; None if there is none."""
    path = place / name
    with reading(path):
        try:
            return path.read_bytes() if path.is_file() else None
        except FileNotFoundError:
            return None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of the system into an UnreadableError that names the path."""
    try:
        yield
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}", subject=str(path), hint=READ_HINT) from error


def write_new(path: Path, data: bytes, mode: int, like: Path | None = None) -> None:
    """Writes a file that is not there yet, with the owner of another, down to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o777)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if like is not None and like.exists():
            give_owner(descriptor, like)
        set_on(os.fchmod, descriptor, mode)
        bulk.sync(descriptor)
    finally:
        os.close(descriptor)


def set_on(call: Callable[..., None], descriptor: int, *value: int, **more: tuple[int, int]) -> None:
    """Sets a mode or time, where the file system has any to set."""
    try:
        call(descriptor, *value, **more)
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTE:
            raise


def give_owner(descriptor: int, like: Path) -> None:
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


def drop(path: Path) -> None:
    """Removes a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(folder: Path) -> None:
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
    nobody else knows.
    """
    try:
        yield
    except OSError as error:
        folder = path if path.is_dir() else path.parent
        about = f"in {folder}" if path.name.startswith(_HIDDEN) else str(path)
        message = f"cannot write {about}: {error.strerror or error}{NOTHING}"
        told = hint or _HINTS.get(error.errno or 0, _OTHER).format(folder=folder)
        raise WriteError(message, subject=str(folder if path.name.startswith(_HIDDEN) else path), hint=told) from error
