"""Another process of this program, where one costs nobody anything: the one place that forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import NoReturn

_LENGTH = 8
_FRONT, _BACK = 0, 1
_SIGKILL = 9  # of every POSIX system; the module that says so takes 1 ms to import
_PATIENCE = 0.5  # seconds between two looks at a process that says nothing


def possible() -> bool:
    """Whether a second process would have a processor to itself, and can be forked off: no thread may hold a lock."""
    affinity = getattr(os, "sched_getaffinity", None)
    return hasattr(os, "fork") and affinity is not None and len(affinity(0)) > 1 and threading.active_count() == 1


class Line:
    """A line to another process. What does not arrive whole does not arrive."""

    def __init__(self, reading: int, writing: int, stopped: Callable[[], bool] | None = None) -> None:
        """`stopped`: whether the other process is at a halt, so that there is no use in waiting for it."""
        self._reading, self._writing, self._stopped = reading, writing, stopped
        os.set_blocking(writing, False)

    def send(self, message: bytes) -> bool:
        """Whether it could be sent."""
        left = memoryview(len(message).to_bytes(_LENGTH, "little") + message)
        try:
            while left and self._ready(self._writing, writing=True):
                left = left[os.write(self._writing, left) :]
        except OSError:
            return False
        return not left

    def receive(self) -> bytes | bytearray | None:
        """The next message, once it is there; None where the other process has ended or is stopped instead."""
        length = self._read(_LENGTH)
        return None if length is None else self._read(int.from_bytes(length, "little"))

    def _read(self, count: int) -> bytearray | None:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            got = os.readv(self._reading, [left]) if self._ready(self._reading) else 0
            if not got:
                return None
            left = left[got:]
        return data

    def _ready(self, end: int, *, writing: bool = False) -> bool:
        """Waits until something can be read or written; False where nothing will be."""
        from select import POLLIN, POLLOUT, poll  # no large checkpoint, no second process

        looked = poll()
        looked.register(end, POLLOUT if writing else POLLIN)
        while not looked.poll(1000 * _PATIENCE):
            if self._stopped and self._stopped():
                return False
        return True

    def close(self) -> None:
        for end in (self._reading, self._writing):
            os.close(end)


class Process:
    """A process that does some work and ends. Raises OSError where there can be none.

    What fails in it is told by nobody: who waits for a message gets none.
    """

    def __init__(self, work: Callable[[Line], object]) -> None:
        ours, theirs = os.pipe(), os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            for end in (*ours, *theirs):
                os.close(end)
            raise
        if not self._child:
            _work(work, ours[0], theirs[1], (ours[1], theirs[0]))
        os.close(ours[0])
        os.close(theirs[1])
        self.line = Line(theirs[0], ours[1], self._is_stopped)

    def _is_stopped(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP); it may go on later, but who waits would hang."""
        with suppress(ChildProcessError):  # it has just ended: the line says so
            return os.waitid(os.P_PID, self._child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def end(self) -> None:
        """It is gone, whatever it was doing."""
        with suppress(OSError):  # where SIGCHLD is ignored nothing is left of one that has ended, not even its number
            os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(self._child, _SIGKILL)
            os.waitpid(self._child, 0)
        self.line.close()


def _work(work: Callable[[Line], object], reading: int, writing: int, others: tuple[int, int]) -> NoReturn:
    try:
        for end in others:
            os.close(end)
        work(Line(reading, writing))
    finally:
        os._exit(0)


class Ends:
    """A list that two processes go through, one from each end; both see how far the other one is.

    Where they meet, both may take the same item. Raises OSError where there is no memory to share.
    """

    def __init__(self, length: int) -> None:
        from mmap import mmap

        self._seen = memoryview(mmap(-1, 2 * _LENGTH)).cast("q")  # memory that a fork shares
        self._seen[_BACK] = length

    def front(self) -> Iterator[int]:
        """The places from the first one on."""
        for place in count():
            if place >= self._seen[_BACK]:
                return
            self._seen[_FRONT] = place + 1
            yield place

    def back(self) -> Iterator[int]:
        """The places from the last one on, downwards."""
        for place in range(self._seen[_BACK] - 1, -1, -1):
            if place < self._seen[_FRONT]:
                return
            self._seen[_BACK] = place
            yield place
