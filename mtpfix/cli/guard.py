"""No traceback ever: what goes wrong becomes `Error:` and `Hint:` on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from mtpfix.cli.process import Ended, aside, silence
from mtpfix.errors import MtpfixError

INTERRUPTED = 130
PIPE_CLOSED = 141
CANNOT = 3
SIGNALLED = 128  # and the signal's number


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
