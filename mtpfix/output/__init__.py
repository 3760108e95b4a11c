"""The formats of the output: a new one is a file in this folder and a line in `FORMATS`."""

from __future__ import annotations

from mtpfix.output import github, human, json_v1, markdown, quiet, sarif
from mtpfix.output.base import Format

FORMATS: tuple[Format, ...] = (
    human.FORMAT,
    json_v1.FORMAT,
    sarif.FORMAT,
    github.FORMAT,
    markdown.FORMAT,
    quiet.FORMAT,
)
