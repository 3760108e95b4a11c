"""Files that an option names, and stdin: whatever stands there, no more is read than any of them needs."""

from __future__ import annotations

import os
import stat
import sys
from typing import BinaryIO

from mtpfix.checkpoint.stand import WITHOUT_WAITING
from mtpfix.errors import READ_HINT, UnreadableError

MAX_TEXT = 1 << 24  # bytes of a file; the longest known one has 4 MB
MAX_LOG = 1 << 22  # bytes of a log that are looked at: its end
MAX_ENDLESS = 1 << 30  # bytes of one that are read at all
_PIECE = 1 << 20


def text_of(file: str) -> str:
    """The text of a file that an option names; - is stdin. Raises UnreadableError."""
    try:
        if file == "-":
            return _text(sys.stdin.buffer, "stdin")
        with open(os.open(file, WITHOUT_WAITING), "rb", buffering=0) as opened:
            if not stat.S_ISFIFO(os.fstat(opened.fileno()).st_mode):
                return _text(opened, file)
            os.set_blocking(opened.fileno(), True)  # who has it open is waited for
            return _text(opened, file) or _nobody(file)
    except (OSError, ValueError) as error:  # the latter: a name that no file can have
        why = getattr(error, "strerror", None) or str(error)
        raise UnreadableError(f"cannot be read: {why}", subject=file, hint=READ_HINT) from error


def _text(file: BinaryIO, name: str) -> str:
    data = bytearray()
    while piece := file.read(_PIECE):
        data += piece
        if len(data) > MAX_TEXT:
            raise UnreadableError(
                f"more than {MAX_TEXT:,} bytes", subject=name, hint="give it in several files that are shorter"
            )
    try:
        return data.decode("utf-8-sig")
    except ValueError as error:
        raise UnreadableError(f"no UTF-8: {error}", subject=name, hint="save it as UTF-8") from error


def _nobody(file: str) -> str:
    raise UnreadableError("a pipe that nobody writes to", subject=file, hint="start what writes to it before")


def log_of_stdin() -> str:
    """The end of a log that comes on stdin. Raises UnreadableError for one that does not end."""
    data, total = bytearray(), 0
    while piece := sys.stdin.buffer.read(_PIECE):
        total += len(piece)
        data += piece
        del data[:-MAX_LOG]
        if total > MAX_ENDLESS:
            raise UnreadableError(
                f"more than {MAX_ENDLESS:,} bytes", subject="stdin", hint="give its end: tail -n 10000 LOG"
            )
    return data.decode("utf-8", "replace")
