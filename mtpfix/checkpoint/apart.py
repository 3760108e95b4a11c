"""Work done in another process, where that is possible and costs nobody anything: the one place that forks.

Headers of a large checkpoint are parsed in half the time where a second processor is idle: one process begins with the
first shard, the other with the last one, until they meet. What cannot be done apart is done here: no fork, no result,
and nobody is told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import NoReturn

Result = Callable[[], bytes | None]
_LENGTH = 8
_FRONT, _BACK = 0, 1


def possible() -> bool:
    """Whether a second process would have a processor to itself, and can be forked off: no thread may hold a lock."""
    affinity = getattr(os, "sched_getaffinity", None)
    return hasattr(os, "fork") and affinity is not None and len(affinity(0)) > 1 and threading.active_count() == 1


@contextmanager
def apart(work: Callable[[], bytes]) -> Iterator[Result]:
    """Begin some work in another process; what is yielded waits for its result, None where it has none.

    The process is gone at the end, whatever happens.
    """
    import signal

    try:
        reading, writing = os.pipe()
    except OSError:
        yield lambda: None
        return
    with open(reading, "rb") as pipe:
        try:
            child = os.fork()
        except OSError:
            os.close(writing)
            yield lambda: None
            return
        if not child:
            _work(work, writing)
        os.close(writing)
        try:
            yield lambda: _whole(pipe.read())
        finally:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


class Ends:
    """A list that two processes go through, one from each end; both see how far the other one is.

    Where they meet, both may take the same item.
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


def _work(work: Callable[[], bytes], writing: int) -> NoReturn:
    """Do the work and write the result behind its length. What fails is done again by who waits, and told there."""
    try:
        result = work()
        with open(writing, "wb") as pipe:
            pipe.write(len(result).to_bytes(_LENGTH, "little") + result)
    finally:
        os._exit(0)


def _whole(answer: bytes) -> bytes | None:
    """The result; None where the process did not come to its end."""
    result = answer[_LENGTH:]
    return result if answer and int.from_bytes(answer[:_LENGTH], "little") == len(result) else None
