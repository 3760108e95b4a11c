"""Large ranges of bytes from one open file to another, read back and compared. Memory stays the same for any size.

Each piece is written, read back and compared while it is in the processor's cache, which costs little; a thread
brings what was written to the disk meanwhile, so that the disk does not wait for the copying nor the copying for it.
Copying in the kernel (copy_file_range) was measured to be no faster once both files have to be read to compare them.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mtpfix.errors import ConflictError, WriteError

PIECE = 1 << 18  # stays in the processor's cache
SECTOR = 512  # what every disk writes as a whole or not at all
_FLUSH = 64 << 20  # bytes between two flushes
_NO_SYNC = {errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_DAMAGED = "The disk or its file system loses data: look at the system's log."

Tell = Callable[[int], None]


class Target:
    """An open file that is written at given places; `written` counts its bytes."""

    def __init__(self, descriptor: int, name: str, tell: Tell | None = None) -> None:
        self.descriptor, self.name = descriptor, name
        self.written = 0
        self._tell = tell
        self._back = bytearray(PIECE)

    def put(self, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write and read back. Raises OSError where the system refuses, WriteError where other bytes come back."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            self._put(view[start : start + PIECE], at + start)

    def put_whole(self, data: bytes, at: int) -> None:
        """Write in one call and read back: what replaces bytes that somebody may be reading. Raises as `put`."""
        if os.pwrite(self.descriptor, data, at) < len(data):
            self.put(data, at)  # a full disk says so now
        if os.pread(self.descriptor, len(data), at) != data:
            raise WriteError(f"{self.name}: other bytes come back than were written", subject=self.name, hint=_DAMAGED)

    def _put(self, view: memoryview, at: int) -> None:
        rest = view
        while rest:
            rest = rest[os.pwrite(self.descriptor, rest, at + len(view) - len(rest)) :]
        whole = len(view) == PIECE
        if (
            _filled(self.descriptor, self._back, len(view), at) < len(view)
            or (self._back if whole else self._back[: len(view)]) != view
        ):
            raise WriteError(f"{self.name}: other bytes come back than were written", subject=self.name, hint=_DAMAGED)
        self.written += len(view)
        if self._tell:
            self._tell(len(view))


def copy(source: int, start: int, end: int, target: Target, at: int, name: str) -> None:
    """Bytes [start, end) of an open file to a place in another one. Raises ConflictError where the file is shorter."""
    piece = bytearray(PIECE)
    while start < end:
        count = min(PIECE, end - start)
        if _filled(source, piece, count, start) < count:
            raise ConflictError(f"{name} became shorter while it was read", subject=name, hint="Run it again.")
        target.put(memoryview(piece)[:count], at)
        start, at = start + count, at + count


def sectors(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Bytes [start, end) of a file, cut where its sectors meet."""
    while start < end:
        stop = min(end, start // SECTOR * SECTOR + SECTOR)
        yield start, stop
        start = stop


def _filled(descriptor: int, buffer: bytearray, count: int, at: int) -> int:
    """Fill the front of a buffer from a place in a file; how many bytes there were."""
    view, done = memoryview(buffer)[:count], 0
    while done < count:
        got = os.preadv(descriptor, [view[done:]], at + done)
        if not got:
            break
        done += got
    return done


def sync(descriptor: int) -> None:
    """Brings an open file or folder to the disk, where its file system can. Raises OSError where that goes wrong."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextmanager
def flushed(target: Target) -> Iterator[None]:
    """What is written meanwhile is on the disk afterwards. Raises OSError where it does not get there."""
    done = threading.Event()
    failed: list[OSError] = []

    def flush() -> None:
        before = 0
        while not done.wait(0.05) and not failed:
            if target.written - before >= _FLUSH:
                before = target.written
                try:
                    sync(target.descriptor)
                except OSError as error:
                    failed.append(error)

    thread = threading.Thread(target=flush, name="mtpfix-flush", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]
    sync(target.descriptor)
