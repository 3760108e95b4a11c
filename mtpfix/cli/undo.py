"""`mtpfix undo`: the last apply or graft taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mtpfix.cli import options, summary
from mtpfix.cli.process import stoppable
from mtpfix.cli.terminal import echo, page, say
from mtpfix.output.text import listed

if TYPE_CHECKING:
    from mtpfix.store.states import Change, Content
    from mtpfix.store.way_back import Way

DONE, LEFT = 0, 1
_WORDS = {  # some edits stay, nothing is written
    (False, False): ("Restored", "Removed"),
    (False, True): ("Would restore", "Would remove"),
    (True, False): ("Took back what mtpfix did to", "Removed"),
    (True, True): ("Would take back what mtpfix did to", "Would remove"),
}


@click.command("undo", short_help=summary("undo"))
@options.directory
@click.option("-n", "--dry-run", is_flag=True, help="Show the diff and change nothing. Exit 1 where it would.")
@click.option("--keep-edits", is_flag=True, help="Of files that were edited since take back only what mtpfix did.")
@click.option("--force", is_flag=True, help="Restore files that were edited since; the edited ones are kept.")
@click.pass_context
def command(ctx: click.Context, source: str, dry_run: bool, keep_edits: bool, force: bool) -> None:
    """Take the last apply or graft on a directory back, byte for byte.

    Refuses where a file was changed since: nothing is overwritten that mtpfix did not write. --keep-edits then takes
    back the entries that mtpfix wrote, as far as they are untouched, and leaves all else as it is. --force restores
    the file as it was before, and keeps the one that is there in the folder of the undo records.
    """
    if keep_edits and force:
        raise click.UsageError("--keep-edits and --force exclude each other")
    ctx.exit(run(source, "keep-edits" if keep_edits else "force" if force else "exact", dry_run=dry_run))


def run(source: str, way: Way, *, dry_run: bool) -> int:
    """Take it back, or show what would be; the exit code."""
    from mtpfix import api

    with stoppable():
        undone = api.undone(source, way=way, dry_run=dry_run)
    if dry_run:
        from mtpfix.output import human

        echo(human.diff_text(_diff(undone.changes), page()))
    restored = [change.name for change in undone.changes if change.old is not None]
    removed = [change.name for change in undone.changes if change.old is None]
    words = _WORDS[way == "keep-edits", dry_run]
    say(" ".join(f"{word} {listed(names)}." for word, names in zip(words, (restored, removed), strict=True) if names))
    for name, path in undone.kept:
        say(f"The {name} that was there is kept: {path}")
    return LEFT if dry_run else DONE


def _diff(changes: Sequence[Change]) -> str:
    """From what is there to what was, of the JSON files that stay."""
    from mtpfix import diff
    from mtpfix.store.states import Content

    texts: dict[str, tuple[Content, Content]] = {
        change.name: (change.new, change.old)
        for change in changes
        if isinstance(change.old, Content) and isinstance(change.new, Content)
    }
    now, then = ({name: pair[at].data for name, pair in texts.items()} for at in (0, 1))
    return diff.unified(now, then)
