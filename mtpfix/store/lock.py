"""A lock on a directory, which keeps two processes apart."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from mtpfix.errors import READ_HINT, ConflictError, UnreadableError
from mtpfix.store.files import writing
from mtpfix.store.records import STATE_HINT, made_state_folder, state_folder

LOCK_SECONDS = 20.0
_NO_LOCK = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def locked(directory: str | Path) -> Iterator[Path]:
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
    with writing(made_state_folder(place) / "lock", STATE_HINT):
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
