"""`mtpfix explain`: what each engine decides about a module, and what decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.terminal import page_for, write
from mtpfix.frozen import dataclass
from mtpfix.model import Explanation
from mtpfix.output.base import Page


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    modules: tuple[str, ...]
    engine: tuple[str, ...]
    format: Callable[[Explanation, Page], str]
    output: str | None
    remote: remote.Remote


@click.command("explain", short_help=summary("explain"))
@options.source
@click.argument("modules", metavar="NAME...", nargs=-1, required=True)
@options.engine
@options.format_of("explain")
@options.output
@remote.options
def command(**values: Any) -> None:
    """Say for a module, per engine and release: runtime name, decision, the entry or rule that decided.

    NAME is a module or a tensor of the checkpoint, or what an engine calls it in a traceback. It may be a pattern: *
    stays within one dotted component, ** crosses dots, mtp.** is mtp and everything below it. A name that is the
    checkpoint's own means that. Exit code 2 where a name means nothing.

    \b
    mtpfix explain . mtp.fc
    mtpfix explain . model.layers.0.mlp.experts.w13_weight
    mtpfix explain . 'mtp.**' --engine 'vllm==0.33.0'
    """
    run(Options(**values))


def run(chosen: Options) -> None:
    """Decide, write the decisions."""
    from mtpfix import api

    with chosen.remote.watched((chosen.source,)) as access:
        found = api.explain(chosen.source, chosen.modules, engines=chosen.engine, access=access)
    write(chosen.format(found, page_for(chosen.output)), chosen.output)
