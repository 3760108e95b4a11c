"""`mtpfix engines`: what is modelled of each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click

from mtpfix.cli import options, summary
from mtpfix.cli.terminal import page_for, write
from mtpfix.output.base import ChangePoint, EngineFacts, Page


class Switch(Protocol):
    """A change of behaviour, as the engines' own tables have it."""

    @property
    def name(self) -> str: ...
    @property
    def methods(self) -> tuple[str, ...]: ...
    @property
    def since(self) -> str: ...
    @property
    def source(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Options:
    format: Callable[[tuple[EngineFacts, ...], Page], str]
    output: str | None


@click.command("engines", short_help=summary("engines"))
@options.format_of("engines")
@options.output
def command(**values: Any) -> None:
    """List the engines and releases that are modelled, and since when each matches as it does."""
    run(Options(**values))


def run(chosen: Options) -> None:
    """Write what is known."""
    from mtpfix.engines.registry import ENGINES

    changes = _changes()
    facts = tuple(
        EngineFacts(name, engine.releases, tuple(_points(changes.get(name, ())))) for name, engine in ENGINES.items()
    )
    write(chosen.format(facts, page_for(chosen.output)), chosen.output)


def _changes() -> Mapping[str, Sequence[Switch]]:
    """The tables of changes of the engines that have one."""
    from mtpfix.engines.sglang.switches import SWITCHES as SGLANG
    from mtpfix.engines.vllm.switches import SWITCHES as VLLM

    return {"vllm": VLLM, "sglang": SGLANG}


def _points(switches: Sequence[Switch]) -> Iterator[ChangePoint]:
    for switch in switches:
        for method in switch.methods:
            yield ChangePoint(method, switch.since, switch.name, switch.source)
