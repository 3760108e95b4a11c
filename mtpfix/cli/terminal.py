"""The terminal or pipe at the other end: what it can show, and writing to it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

import click

from mtpfix.errors import WriteError
from mtpfix.output.base import Page

_NARROWEST, _WIDEST = 60, 120


def page(stream: TextIO | None = None) -> Page:
    """What stdout, or another stream, can show: columns, colour, encoding."""
    stream = sys.stdout if stream is None else stream
    width = shutil.get_terminal_size().columns
    return Page(min(max(width, _NARROWEST), _WIDEST), _colour(stream), stream.encoding or "utf-8")


def _colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def write(text: str, output: str | None = None) -> None:
    """Data to stdout, or to a file where one is named; no text, no file. WriteError where the file refuses."""
    if not text:
        return
    if output is None or output == "-":
        echo(text)
        return
    try:
        Path(output).write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise WriteError(f"cannot write the report: {error.strerror}", subject=output) from error


def page_for(output: str | None) -> Page:
    """The page of the report: stdout's, or a plain one for a file."""
    return page() if output is None or output == "-" else Page()


def echo(text: str) -> None:
    """Text to stdout as it is, whatever its encoding can hold."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, color=True)


def talk(*lines: str) -> None:
    """Lines for the person, on stderr."""
    encoding = sys.stderr.encoding or "utf-8"
    for line in lines:
        click.echo(line.encode(encoding, "backslashreplace").decode(encoding), err=True, color=True)
