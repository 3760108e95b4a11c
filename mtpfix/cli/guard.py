"""No traceback ever: what goes wrong becomes `Error:` and `Hint:` on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import click

from mtpfix.errors import MtpfixError, WriteError

INTERRUPTED = 130
PIPE_CLOSED = 141
CANNOT = 3
SIGNALLED = 128  # and the signal's number

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


def guarded(ctx: click.Context, call: Callable[[click.Context], Any]) -> Any:
    """What `call` returns; every failure ends in `ctx.exit`."""
    _learn()
    try:
        with refused():
            return call(ctx)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except (KeyboardInterrupt, click.Abort):
        ctx.exit(INTERRUPTED)
    except Ended as end:
        ctx.exit(SIGNALLED + end.number)
    except BrokenPipeError:
        silence(sys.stdout)
        ctx.exit(PIPE_CLOSED)
    except Exception as error:
        if os.environ.get("MTPFIX_DEBUG"):
            import traceback

            from mtpfix.tokens import masked

            aside(masked(traceback.format_exc()))
        ctx.exit(tell(error))


@contextmanager
def refused() -> Iterator[None]:
    """Words of click about arguments hold what the user typed: they are shown as every other foreign text is."""
    try:
        yield
    except click.UsageError as error:
        _learn()
        text = "\n".join(_safe(line) for line in error.format_message().expandtabs(4).splitlines())
        raise click.UsageError(text, error.ctx) from None


def _learn() -> None:
    """The secrets of the environment are in no output from now on."""
    from mtpfix.tokens import learn_from

    learn_from(os.environ)


def tell(error: Exception) -> int:
    """Print an error for a person; the exit code it asks for."""
    if isinstance(error, MtpfixError):
        message, hint, code = named(error), error.hint, error.exit_code
    elif isinstance(error, OSError):
        message, hint, code = f"{error.filename or 'cannot read or write'}: {error.strerror or error}", "", CANNOT
    elif isinstance(error, MemoryError):
        message, hint, code = "not enough memory", "", CANNOT
    else:
        message = f"unexpected {type(error).__name__}: {error}"
        hint = "this is a fault of mtpfix: please report it with what MTPFIX_DEBUG=1 prints"
        code = CANNOT
    aside(f"Error: {_safe(message)}")
    if hint:
        aside(f"Hint: {_safe(hint)}")
    return code


def named(error: MtpfixError) -> str:
    """What is wrong, with what it is about."""
    message = str(error)
    return message if error.subject in message else f"{error.subject}: {message}"


def _safe(text: str) -> str:
    """The text on one line and without characters that steer a terminal or that stderr cannot encode."""
    from mtpfix.cli.terminal import page
    from mtpfix.output.text import clean

    return clean(text, page(sys.stderr))


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
