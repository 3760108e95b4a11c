"""`mtpfix undo`: the last apply or graft taken back."""

from __future__ import annotations

import click

from mtpfix.cli import options, summary
from mtpfix.cli.terminal import say
from mtpfix.output.text import listed


@click.command("undo", short_help=summary("undo"))
@options.source
def command(source: str) -> None:
    """Take the last apply or graft on a directory back, byte for byte.

    Refuses where a file was changed since: nothing is overwritten that mtpfix did not write.
    """
    from mtpfix import api

    changes = api.undone(source)
    restored = [change.name for change in changes if change.old is not None]
    removed = [change.name for change in changes if change.old is None]
    text = f"Restored {listed(restored)}." if restored else ""
    say(f"{text} Removed {listed(removed)}.".lstrip() if removed else text)
