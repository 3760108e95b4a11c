"""`mtpfix hook`: the checkpoints that some files belong to, for pre-commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from mtpfix.cli import options, summary
from mtpfix.cli.guard import tell
from mtpfix.cli.left import tell_still
from mtpfix.cli.process import stoppable
from mtpfix.cli.terminal import echo, page, say
from mtpfix.errors import READ_HINT, MtpfixError, UnreadableError, UsageError
from mtpfix.frozen import dataclass
from mtpfix.output.text import listed

if TYPE_CHECKING:
    from mtpfix.model import Report

WEIGHTS = ".safetensors"
FILES = (WEIGHTS, ".json")


@dataclass(frozen=True, slots=True)
class Options:
    files: tuple[str, ...]
    fix: bool
    engine: tuple[str, ...]
    scope: Any


@click.command("hook", short_help=summary("hook"))
@click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(readable=False))  # reading says what may not be
@click.option("--fix", is_flag=True, help="Make the safe edits. Exit 1 where a file was changed.")
@options.engine
@options.scope
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Check the checkpoints that some files belong to, as pre-commit calls it.

    Each folder of the files, or folder that is given, is looked at once; one without safetensors files is no
    checkpoint and is passed over. Prints nothing where nothing is wrong. Exit code 1 where errors remain or --fix
    changed a file, 3 where a checkpoint cannot be inspected.

    \b
    mtpfix hook model/config.json model/model.safetensors
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Look at each folder, with --fix repair it; the exit code."""
    codes = [0, *(_missing(path) for path in chosen.files if not (path.endswith(FILES) or os.path.lexists(path)))]
    for folder in folders(chosen.files):
        try:
            codes.append(_visit(folder, chosen))
        except UsageError:
            raise
        except MtpfixError as error:
            codes.append(tell(error))
    return max(codes)


def _missing(folder: str) -> int:
    """Tell of a folder that is not there; a file that is not may have been deleted by the commit."""
    return tell(UnreadableError(f"{folder}: no such folder", subject=folder, hint=READ_HINT))


def folders(files: Sequence[str]) -> Iterator[str]:
    """The folders of some files that hold weights, each once, in their order; a folder stands for itself."""
    for folder in dict.fromkeys(
        file if os.path.isdir(file) else os.path.dirname(file) or "." for file in files if file
    ):
        if os.path.isdir(folder) and any(name.endswith(WEIGHTS) for name in os.listdir(folder)):
            yield folder


def _visit(folder: str, chosen: Options) -> int:
    from mtpfix import api

    report = api.check(folder, engines=chosen.engine, scope=chosen.scope)
    if not (chosen.fix and report.plan.edits):
        return _told(report)
    with stoppable():
        names = api.apply(report)
    say(f"Changed {listed(names)} in {folder}.")
    left = api.check(folder, engines=chosen.engine, scope=chosen.scope)
    if not _told(left):
        tell_still(left.engines, left)
    return 1


def _told(report: Report) -> int:
    """Print a report that has errors; 1 for one that has."""
    from mtpfix.output import human
    from mtpfix.output.base import CheckResult
    from mtpfix.rules import BY_CODE

    if report.status == "clean":
        return 0
    echo(human.check_text(CheckResult((report,), BY_CODE), page()))
    return 1
