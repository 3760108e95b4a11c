"""`mtpfix review`: what a pull request changes, and whether it mends the findings."""

from __future__ import annotations

from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.terminal import page_for, write
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass

GOOD, BAD = 0, 1
_FORMATS = ("human", "json", "markdown")


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    number: int
    engine: tuple[str, ...]
    scope: Any
    format: str
    output: str | None
    remote: remote.Remote


@click.command("review", short_help=summary("review"))
@options.source
@click.argument("number", metavar="NUMBER", type=click.IntRange(1))
@options.engine
@options.scope
@click.option(
    "--format", type=click.Choice(_FORMATS), default="human", show_default=True, help="How to write the answer."
)
@options.output
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Say what a pull request of anybody changes, and whether it mends what is wrong.

    SOURCE is a repository on the Hub. Said are the files and whether nothing but lists changes in them, the modules
    that an engine decides otherwise, in which releases, and the findings that go, stay and come. --revision names
    the branch to compare with. Exit code 0 where no error is left and nothing gets worse, else 1.

    \b
    mtpfix review org/name 7
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Read both versions, write what differs; the exit code."""
    from mtpfix.checkpoint.source import parse
    from mtpfix.hub.review import review_pull_request
    from mtpfix.output.review import WRITERS

    source = parse(chosen.source, chosen.remote.access.revision)
    if source.kind != "hub":
        raise UsageError("only a repository on the Hub has pull requests", subject=source.id, hint="write org/name")
    with chosen.remote.watched() as access:
        found = review_pull_request(source, chosen.number, access, engines=chosen.engine, scope=chosen.scope)
    write(WRITERS[chosen.format](found, page_for(chosen.output)), chosen.output)
    return BAD if found.review.effect == "harms" or found.review.after.status != "clean" else GOOD
