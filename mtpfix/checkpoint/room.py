"""How much memory the answers about a repository may take, alone and beside others. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from threading import Lock

from mtpfix.errors import UnreadableError

SMALL = 1 << 22  # bytes of a repository that is read beside others; of larger ones one at a time
_LARGE = 1 << 20  # bytes that are put together


class Room:
    """Bytes that several answers about a repository may have together, whatever threads read them."""

    def __init__(self, most: int, repository: str, what: str) -> None:
        self._most, self._repository, self._what = most, repository, what
        self._taken = 0
        self._lock = Lock()

    def take(self, count: int) -> None:
        """So many more are about to be read. Raises UnreadableError where that is too much."""
        with self._lock:
            self._taken += count
            over = self._taken > self._most
        if over:
            raise UnreadableError(
                f"{self._repository}: {self._what} are above the limit of {self._most:,} bytes together",
                subject=self._repository,
                hint="no model needs as much: look at what wrote them",
            )

    def give(self, count: int) -> None:
        """So many less are held than were taken."""
        with self._lock:
            self._taken -= count


class Stay:
    """One repository among many that are read at the same time: once it is larger than most are, it waits until no
    other large one is held, so that what all take is the small ones and one large one."""

    def __init__(self, large: Lock) -> None:
        self._large = large
        self._lock = Lock()
        self._taken = 0
        self._alone = False

    @property
    def left(self) -> int | None:
        """How many bytes it may take beside others; None where it is the large one."""
        return None if self._alone else max(0, SMALL - self._taken)

    def grow(self, count: int) -> None:
        """It takes so many more; returns once there is room for them."""
        with self._lock:  # its own threads wait here as well
            self._taken += count
            if self._taken > SMALL and not self._alone:
                self._large.acquire()  # until `end`
                self._alone = True

    def end(self) -> None:
        """Nothing of it is held any more."""
        with self._lock:
            if self._alone:
                self._alone = False
                self._large.release()


def joined(pieces: Iterator[bytes], size: int = 0, after: bytes = b"") -> bytes:
    """The pieces as one, behind others, without a copy of them beside it as `join` makes it.

    size  how many bytes there will be: room that grows step by step is left behind in holes, by each thread its own
    """
    held = BytesIO()
    if size > _LARGE:
        held.seek(size - 1)
        held.write(b"\0")
        held.seek(0)
    held.write(after)
    for piece in pieces:
        held.write(piece)
    held.truncate()
    return held.getvalue()
