"""`mtpfix override`: serve-time flags with the effect of the repair."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.terminal import page, page_for, talk, write
from mtpfix.frozen import dataclass
from mtpfix.output.base import OverrideText, Page
from mtpfix.output.text import paragraph

CAN, CANNOT = 0, 1


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    engine: str
    format: Callable[[OverrideText, Page], str]
    output: str | None
    remote: remote.Remote


@click.command("override", short_help=summary("override"))
@options.source
@click.option(
    "--engine",
    metavar="SPEC",
    required=True,
    callback=options.not_empty,
    help="The engine that serves the checkpoint: vllm, sglang, 'vllm==0.33.0'.",
)
@options.format_of("override")
@options.output
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Print the serve-time flags that have the effect of the repair, for a checkpoint that cannot be edited.

    The flags go to stdout as a shell takes them, everything else to stderr. They are those of the newest release of
    --engine, and are printed only where its code lets them reach the lists of target and draft. Exit code 1 where
    they do not; the reason is said. Of older releases no flags are known.

    \b
    eval vllm serve DIR "$(mtpfix override DIR --engine vllm)"
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Find the flags, write them; the exit code."""
    from mtpfix import api

    with chosen.remote.watched((chosen.source,)) as access:
        found = api.override(chosen.source, chosen.engine, access=access)
    write(chosen.format(found, page_for(chosen.output)), chosen.output)
    err = page(sys.stderr)
    if not found.works:
        talk(*paragraph(f"No flag can do it: {found.reason}.", err))
        talk(*(paragraph(f"Hint: {found.hint}", err) if found.hint else ()))
        return CANNOT
    talk(*paragraph(f"Nothing to override: {found.reason}.", err) if not found.flags else _about(found, err))
    return CAN


def _about(found: OverrideText, err: Page) -> list[str]:
    return paragraph(f"For {found.engine} {found.release}: target and draft load with these flags.", err)
