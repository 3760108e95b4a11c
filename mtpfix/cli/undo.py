"""`mtpfix undo`: the last apply taken back."""

from __future__ import annotations

import click

from mtpfix.cli import options, summary
from mtpfix.cli.terminal import page, talk
from mtpfix.output.text import listed, paragraph


@click.command("undo", short_help=summary("undo"))
@options.source
def command(source: str) -> None:
    """Take the last apply on a directory back, byte for byte.

    Refuses where a file was changed since: nothing is overwritten that apply did not write.
    """
    import sys

    from mtpfix import api

    names = api.undo(source)
    talk(*paragraph(f"Restored {listed(names)}.", page(sys.stderr)))
