"""What a command shares with other processes: its standard streams, and the signals that end it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import click

from mtpfix.errors import WriteError

_ENDING = ("SIGTERM", "SIGHUP")


class Ended(BaseException):
    """Somebody asked this process to end; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Meanwhile SIGTERM and SIGHUP end the command as Ctrl-C does: what is being written is taken back first.

    A signal that whoever started the process has it ignore (nohup) stays ignored.
    """
    import signal  # 1 ms, and most commands write nothing

    def end(number: int, _frame: object) -> NoReturn:
        raise Ended(number)

    found = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]
    mine = [number for number in found if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in mine:
            signal.signal(number, end)
    except ValueError:  # a thread, which signals do not reach
        mine = []
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def reopen() -> None:
    """A standard stream that the caller closed leads nowhere; no file that is read later takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def delivered() -> Iterator[None]:
    """Turns an error of stdout into a WriteError; a reader that went away is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        silence(sys.stdout)
        message = f"cannot write the output: {error.strerror}"
        raise WriteError(message, subject="stdout", hint="look at where it goes: its disk may be full") from error


def aside(text: str, **how: Any) -> None:
    """Text for the person, on stderr. Where that takes nothing, the work goes on."""
    try:
        click.echo(text, err=True, **how)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Nothing more is written there, also not when Python flushes at the end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, stream.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(devnull)
