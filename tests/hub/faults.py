"""What can go wrong on the way: each fault is a function that gets the handler and the way the request would go."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .server import Handler

Answer = Callable[[], None]
Fault = Callable[["Handler", Answer], None]


@dataclass
class Planned:
    """A fault for the next `times` requests that match."""

    pattern: re.Pattern[str]
    fault: Fault
    times: float


class Faults:
    """The faults that are planned, the first that matches is used up first."""

    def __init__(self) -> None:
        self._planned: list[Planned] = []
        self._lock = threading.Lock()

    def add(self, pattern: str, fault: Fault, times: float) -> None:
        self._planned.append(Planned(re.compile(pattern), fault, times))

    def clear(self) -> None:
        self._planned.clear()

    def take(self, line: str) -> Fault | None:
        with self._lock:
            for planned in self._planned:
                if planned.times > 0 and planned.pattern.search(line):
                    planned.times -= 1
                    return planned.fault
        return None


def status(code: int, headers: Mapping[str, str] | None = None, text: bytes = b"") -> Fault:
    """An error, without doing what was asked."""
    return lambda handler, _go: handler.answer(code, text, dict(headers or {}))


def rate_limited(seconds: float, *, ratelimit: bool = True) -> Fault:
    """429: come back after so many seconds; `ratelimit` says it in the Hub's own headers too."""
    headers = {"Retry-After": f"{seconds:g}"}
    if ratelimit:
        headers |= {"ratelimit": f'"api";r=0;t={seconds:g}', "ratelimit-policy": '"fixed window";"api";q=500;w=300'}
    return status(429, headers, b'{"error":"Too Many Requests"}')


def body(data: bytes, headers: Mapping[str, str] | None = None, code: int = 200) -> Fault:
    """These bytes in place of the answer."""
    return lambda handler, _go: handler.answer(code, data, dict(headers or {}))


def slow(seconds: float) -> Fault:
    """The right answer, late."""

    def fault(_handler: Handler, go: Answer) -> None:
        time.sleep(seconds)
        go()

    return fault


def before(act: Callable[[], object]) -> Fault:
    """The right answer, after something else has happened."""

    def fault(_handler: Handler, go: Answer) -> None:
        act()
        go()

    return fault


def cut(count: int) -> Fault:
    """The right head of an answer, and only so many bytes of its body."""

    def fault(handler: Handler, go: Answer) -> None:
        handler.cut = count
        go()

    return fault


def lost(handler: Handler, go: Answer) -> None:
    """What was asked happens; the answer is lost."""
    handler.mute = True
    go()


def dropped(handler: Handler, _go: Answer) -> None:
    """The connection closes and nothing happens."""
    handler.hang_up()


def whole(handler: Handler, go: Answer) -> None:
    """The range is ignored: 200 and the whole file."""
    del handler.headers["Range"]
    go()


def dripping(data: bytes, front: bytes = b"", pause: float = 0.05) -> Fault:
    """These bytes one by one, after others at once, as long as anybody listens."""

    def fault(handler: Handler, _go: Answer) -> None:
        try:
            handler.wfile.write(front)
            for at in range(len(data)):
                handler.wfile.write(data[at : at + 1])
                handler.wfile.flush()
                time.sleep(pause)
        except OSError:
            pass
        handler.hang_up()

    return fault


def with_value(**more: object) -> Fault:
    """The right answer in JSON with other values."""

    def fault(handler: Handler, go: Answer) -> None:
        send = handler.json
        handler.json = lambda value, headers=None: send({**value, **more}, headers)
        go()
        del handler.json

    return fault
