"""`mtpfix undo`: the last apply or graft taken back."""

from __future__ import annotations

import click

from mtpfix.cli import options, summary
from mtpfix.cli.terminal import page, talk
from mtpfix.output.text import listed, paragraph


@click.command("undo", short_help=summary("undo"))
@options.source
def command(source: str) -> None:
    """Take the last apply or graft on a directory back, byte for byte.

    Refuses where a file was changed since: nothing is overwritten that mtpfix did not write.
    """
    import os
    import sys

    from mtpfix import api

    names = api.undo(source)
    gone = [name for name in names if not os.path.lexists(os.path.join(source, name))]
    text = f"Restored {listed([name for name in names if name not in gone])}." if len(gone) < len(names) else ""
    talk(*paragraph(f"{text} Removed {listed(gone)}.".lstrip() if gone else text, page(sys.stderr)))
