"""The terminal or pipe at the other end: what it can show, and writing to it."""

from __future__ import annotations

import errno
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import TYPE_CHECKING, TextIO

import click

from mtpfix.cli.process import aside, delivered, stoppable
from mtpfix.errors import WRITE_HINT, WriteError
from mtpfix.output.base import Page
from mtpfix.tokens import masked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from threading import Event

Line = tuple[str, int, int]  # of progress: what is done, how much of it, of how much (0: not known)

TICK, ELSEWHERE = 0.2, 10.0  # seconds between two lines of progress, on a terminal and elsewhere
_CLEAR = "\r\x1b[K"
_FIXED = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_NARROWEST, _USUAL, _WIDEST = 60, 80, 200
_AT_ONCE = 1 << 24  # characters that are written: each is held in several forms meanwhile
_BAR, _SHORTEST_BAR = 24, 8


def page(stream: TextIO | None = None) -> Page:
    """What stdout, or another stream, can show: columns, colour, encoding."""
    stream = sys.stdout if stream is None else stream
    width = min(max(_columns(), _NARROWEST), _WIDEST)
    return Page(width, _colour(stream), stream.encoding or "utf-8", stream.isatty())


def _columns(stream: TextIO | None = None) -> int:
    """COLUMNS, else what the terminal says, else 80: `shutil.get_terminal_size`, whose module takes 4 ms to import.

    stream  whose terminal; None: stdout's
    """
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size((stream or sys.__stdout__).fileno()).columns or _USUAL  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return _USUAL


def _colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def telling(line: Callable[[], Line | None], first: float | None = None) -> Iterator[None]:
    """Tell on stderr, again and again, how far the work that is done meanwhile has come.

    line   the state of the work, None where there is nothing to tell now
    first  seconds until the first line, where that is another time than between two
    """
    import threading

    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(line, first, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(line: Callable[[], Line | None], first: float | None, done: Event) -> None:
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    told = False
    usual = TICK if terminal else ELSEWHERE
    pause = usual if first is None else first
    while not done.wait(pause):
        found = line()
        found = found and (masked(found[0]), *found[1:])
        pause = TICK if found is None else usual
        if found is not None:
            told = True
            aside(_CLEAR + gauge(*found) if terminal else found[0], nl=not terminal, color=terminal)
    if told and terminal:
        aside(_CLEAR, nl=False, color=True)


def gauge(text: str, done: int, total: int) -> str:
    """A line of progress for stderr's terminal: a bar before the text where both fit; never more than one line."""
    room = max(_columns(sys.stderr) - 1, 1)
    length = min(_BAR, room - len(text) - len("  "))
    if total <= 0 or length < _SHORTEST_BAR:
        return text[:room]
    filled = min(length * done // total, length)
    full, empty = "█░" if _encodes("█░", sys.stderr) else "#."
    return f"{full * filled}{empty * (length - filled)}  {text}"


def _encodes(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write(text: str, output: str | None = None, about: str = "") -> None:
    """Data to stdout, or to a file where one is named, which stderr is told of; no text, no file.

    about  what stands in the file, in a phrase

    Raises WriteError where the file refuses.
    """
    if not text:
        return
    if output is None or output == "-":
        echo(text)
        return
    from mtpfix.output.text import clean

    save(masked(text).encode("utf-8"), output, "report")
    # One line, so that the path can be copied.
    talk(clean(f"Wrote {output}: {about}." if about else f"Wrote {output}.", page(sys.stderr)))


def save(data: bytes, output: str, what: str) -> None:
    """Data to a file, all of it or none: killed in the midst, what was there before is still there.

    A pipe or a device is written as it is, and so is a file that nothing can stand in for (its folder is closed, it is
    mounted by itself). Raises WriteError, which calls the data `what`.
    """
    place = os.path.realpath(output)
    try:
        if os.path.isfile(place) or not os.path.exists(place):
            try:
                with stoppable():
                    return _replace(place, data)
            except OSError as error:
                if error.errno not in _FIXED or not os.path.exists(place):
                    raise
        with open(place, "wb") as file:
            file.write(data)
    except OSError as error:
        raise WriteError(f"cannot write the {what}: {error.strerror}", subject=output, hint=WRITE_HINT) from error


def _replace(place: str, data: bytes) -> None:
    """The file with new contents. They are written to a hidden one beside it: to the one that a killed process left
    behind, so that whoever writes to the same place next clears up, or to one of this process where that is in use.
    """
    folder, name = os.path.split(place)
    draft = os.path.join(folder, f".mtpfix-{zlib.crc32(os.fsencode(name)):08x}.part")
    try:
        with _own(draft) as file:
            if file:
                return _write(file, data, draft, place)
    except BaseException:
        with suppress(OSError), _own(draft) as file:
            if file:
                os.unlink(draft)
        raise
    draft = f"{draft}-{os.getpid()}"
    try:
        with open(draft, "xb", buffering=0) as file:
            _write(file, data, draft, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _write(file: FileIO, data: bytes, draft: str, place: str) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    file.truncate()
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    if os.path.exists(place):
        with suppress(PermissionError):  # a file system where all have one mode
            os.chmod(draft, stat.S_IMODE(os.stat(place).st_mode))
    os.replace(draft, place)


@contextmanager
def _own(path: str) -> Iterator[FileIO | None]:
    """A new file, or one that is there, if this process alone may write to it: a regular one of this user's that has no
    second name and that nobody has locked."""
    flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor, made = -1, True
    with suppress(OSError):
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            descriptor, made = os.open(path, flags), False
    if descriptor < 0:
        yield None
        return
    with open(descriptor, "wb", buffering=0) as file:
        yield file if _is_own(descriptor, path, made) else None


def _is_own(descriptor: int, path: str, made: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):  # no locks here
        return made
    found = os.fstat(descriptor)
    try:
        there = os.lstat(path)
    except FileNotFoundError:  # whoever had it locked has put it in place
        return False
    named = (found.st_dev, found.st_ino, found.st_nlink) == (there.st_dev, there.st_ino, 1)
    return named and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def page_for(output: str | None) -> Page:
    """The page of the report: stdout's, or a plain one for a file."""
    return page() if output is None or output == "-" else Page()


def echo(text: str) -> None:
    """Text to stdout as it is, whatever its encoding can hold."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = masked(text)
    with delivered():
        for at in range(0, len(shown), _AT_ONCE):
            part = shown[at : at + _AT_ONCE]
            click.echo(part.encode(encoding, "backslashreplace").decode(encoding), nl=False, color=True)


def talk(*lines: str) -> None:
    """Lines for the person, on stderr."""
    encoding = sys.stderr.encoding or "utf-8"
    for line in lines:
        aside(masked(line).encode(encoding, "backslashreplace").decode(encoding), color=True)


def say(text: str) -> None:
    """A paragraph for the person, on stderr."""
    from mtpfix.output.text import paragraph

    talk(*paragraph(text, page(sys.stderr)))
