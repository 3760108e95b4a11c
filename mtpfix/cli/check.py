"""`mtpfix check`: findings and the verdict matrix."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.guard import named, tell
from mtpfix.cli.terminal import page_for, say, write
from mtpfix.errors import MtpfixError, UsageError
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Report
from mtpfix.output import FORMATS
from mtpfix.output.base import CheckResult, Format, Page


@dataclass(frozen=True, slots=True)
class Options:
    sources: tuple[str, ...]
    engine: tuple[str, ...]
    scope: Any
    format: Callable[[CheckResult, Page], str]
    output: str | None
    exit_zero: bool
    remote: remote.Remote


@click.command("check", short_help=summary("check"))
@options.sources
@options.engine
@options.scope
@options.format_of("check")
@options.output
@options.exit_zero
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Say what each engine will make of a checkpoint, and what is wrong.

    SOURCE is a directory with safetensors files and config.json, org/name[@revision] or a web address on the Hub,
    or a bundle of `mtpfix snapshot`. Exit code 1 where findings of severity error remain, 3 where a source cannot
    be inspected. With several sources, --format json writes one array, and the sources that cannot be inspected
    are named on stderr only. With --format sarif findings leave the exit code at 0: who uploads the file decides.

    \b
    mtpfix check ./Qwen3-Next-80B-A3B-Instruct-NVFP4
    mtpfix check . --engine 'vllm>=0.24' --format json
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Check every source, write one answer; the exit code."""
    failures: list[MtpfixError] = []
    several = len(chosen.sources) > 1
    with chosen.remote.watched(chosen.sources), nullcontext() if several else _kept():
        reports = tuple(_reports(chosen, failures))
    if reports or (failures and _form(chosen).unread):
        from mtpfix.rules import BY_CODE  # not before reading, beside which it is imported

        result = CheckResult(reports, BY_CODE, several, tuple(map(named, failures)))
        write(chosen.format(result, page_for(chosen.output)), chosen.output, _about(result) if chosen.output else "")
    if several and failures:
        say(f"{len(failures)} of {len(chosen.sources)} sources could not be inspected.")
    dirty = any(report.status != "clean" for report in reports)
    return max(
        [*(error.exit_code for error in failures), int(dirty and not (chosen.exit_zero or _form(chosen).uploaded))]
    )


@contextmanager
def _kept() -> Iterator[None]:
    """Garbage of what is made here is not looked for, not later either: the process ends soon."""
    from mtpfix.checkpoint.reading import paused_collection

    with paused_collection():
        yield
        gc.freeze()  # `invoke` takes it back, should the process live on


def _about(result: CheckResult) -> str:
    from mtpfix.output import human

    return human.summary(result)


def _form(chosen: Options) -> Format:
    """The format of the answer."""
    return next(form for form in FORMATS if form.check is chosen.format)


def _reports(chosen: Options, failures: list[MtpfixError]) -> Iterator[Report]:
    """A report for each source that can be inspected; the errors of the others go to `failures`."""
    from mtpfix import api

    form = _form(chosen)
    access = replace(chosen.remote.access, meanwhile=form.load)
    for source in chosen.sources:
        try:
            yield api.check(source, engines=chosen.engine, scope=chosen.scope, atlas=form.mapped, access=access)
        except UsageError:
            raise
        except MtpfixError as error:
            tell(error)
            failures.append(error)
