"""`mtpfix list`: the draft's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.terminal import page_for, talk, write
from mtpfix.frozen import dataclass
from mtpfix.output.base import Page, TensorList


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    all: bool
    format: Callable[[TensorList, Page], str]
    output: str | None
    remote: remote.Remote


@click.command("list", short_help=summary("list"))
@options.source
@click.option("-a", "--all", is_flag=True, help="One line for every tensor, none collapsed.")
@options.format_of("tensors")
@options.output
@remote.options
def command(**values: Any) -> None:
    """List the draft's tensors: name, dtype, shape, shard, stored scheme, and what vLLM builds by the config.

    Tensors of one kind share a line: mtp.layers.0.mlp.experts.{0..511}.gate_proj.weight. --format json lists each.
    """
    run(Options(**values))


def run(chosen: Options) -> None:
    """Read the headers, write the table."""
    from mtpfix import api

    with chosen.remote.watched((chosen.source,)) as access:
        rows = api.draft_tensors(chosen.source, access=access)
    write(chosen.format(TensorList(rows, chosen.all), page_for(chosen.output)), chosen.output)
    if not rows:
        talk("No draft tensors are stored.")
