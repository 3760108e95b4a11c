"""`mtpfix snapshot`: a checkpoint's headers and JSON files in one small file."""

from __future__ import annotations

import sys
from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.process import delivered
from mtpfix.cli.terminal import save, say
from mtpfix.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    output: str
    remote: remote.Remote


@click.command("snapshot", short_help=summary("snapshot"))
@options.source
@click.option("-o", "--output", metavar="FILE", type=click.Path(), required=True, help="The bundle; - is stdout.")
@remote.options
def command(**values: Any) -> None:
    """Write a header bundle: names, dtypes, shapes, JSON files, hashes; no weights, no token.

    Every command that only reads takes the bundle as SOURCE, so it is what a bug report needs. The same checkpoint
    gives the same bundle, byte for byte. It is a tar.gz: the JSON files as they are, each safetensors file cut off
    after its header.

    \b
    mtpfix snapshot org/name -o bundle.tar.gz
    mtpfix check bundle.tar.gz
    """
    run(Options(**values))


def run(chosen: Options) -> None:
    """Read, pack, write."""
    from mtpfix import api

    with chosen.remote.watched((chosen.source,)) as access:
        bundle = api.snapshot(chosen.source, access=access)
    if chosen.output == "-":
        with delivered():
            sys.stdout.buffer.write(bundle)
            sys.stdout.buffer.flush()
        return
    save(bundle, chosen.output, "bundle")
    say(f"Wrote {chosen.output}: {len(bundle)} bytes.")
