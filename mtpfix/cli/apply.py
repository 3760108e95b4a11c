"""`mtpfix apply`: the diff and the edit."""

from __future__ import annotations

import sys
from typing import Any, Literal

import click

from mtpfix.cli import create_pr, options, remote, summary
from mtpfix.cli.left import tell_left, tell_still
from mtpfix.cli.process import stoppable
from mtpfix.cli.terminal import echo, page, say, talk
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.model import Report
from mtpfix.output import human
from mtpfix.output.base import Applied
from mtpfix.output.text import listed, typed

Outcome = Literal["done", "planned", "nothing", "declined"]
CLEAN, LEFT = 0, 1
_ELSEWHERE = "--dry-run shows the diff; `hf download` makes a directory of a repository"


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    engine: tuple[str, ...]
    scope: Any
    dry_run: bool
    unsafe_fixes: bool
    yes: bool
    remote: remote.Remote
    pull: create_pr.Request


@click.command("apply", short_help=summary("apply"))
@options.source
@options.engine
@options.scope
@click.option("-n", "--dry-run", is_flag=True, help="Show the diff and change nothing. Exit 1 where it would.")
@click.option("--unsafe-fixes", is_flag=True, help="Also make the fixes that change more than lists.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked.")
@create_pr.options
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Show and make the edits that repair a checkpoint.

    The diff goes to stdout, or the report with --format json; everything else to stderr. What an engine still makes
    of the result is said last. Only JSON files change, all of them or none; weights are never written. `mtpfix undo
    DIR` takes the edit back, byte for byte. Exit code 0 where all is fixed or nothing was to do, 1 where errors
    remain.

    --unsafe-fixes sets draft counts and layer types to what is stored, writes the index again from the headers, and
    renames scales in the headers of shards that are only misnamed; no byte of the data changes.

    With --create-pr the edit of a repository on the Hub becomes a pull request. One that is open with the same
    repair is reported, an own one that is stale is updated, and one that was closed is respected (exit code 1).
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Analyse, show, ask, write, look again; the exit code."""
    from mtpfix import api

    if chosen.pull.wanted:
        return create_pr.run(_job(chosen))
    report = _look(chosen)
    if report.plan.empty:
        return _nothing_to_write(chosen, report)
    if not chosen.pull.json:
        echo(human.plan_text(report.plan, api.diff_of(report.plan), page()))
    if chosen.dry_run:
        return _planned(chosen, report)
    if report.source.kind != "local":
        raise UsageError("only a directory can be changed", subject=report.source.id, hint=_ELSEWHERE)
    if not chosen.yes and interactive() and not click.confirm("Write this?", err=True):
        _tell(chosen, "declined", report)
        say("Nothing was changed.")
        return LEFT
    with stoppable():
        names = api.apply(report)
    say(f"Changed {listed(names)}. Take back: mtpfix undo {typed(chosen.source)}")
    _about_plan(report)
    left = _look(chosen)
    _tell(chosen, "done", report, left)
    return LEFT if tell_left(left) else CLEAN


def _job(chosen: Options) -> create_pr.Job:
    return create_pr.Job(
        chosen.source,
        chosen.engine,
        chosen.scope,
        chosen.unsafe_fixes,
        chosen.dry_run,
        not chosen.yes and interactive(),
        chosen.pull,
        chosen.remote,
    )


def interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _look(chosen: Options) -> Report:
    from mtpfix import api

    with chosen.remote.watched((chosen.source,)) as access:
        return api.check(
            chosen.source, engines=chosen.engine, scope=chosen.scope, unsafe=chosen.unsafe_fixes, access=access
        )


def _tell(chosen: Options, outcome: Outcome, report: Report, left: Report | None = None) -> None:
    """The whole story for a program, where one listens."""
    if not chosen.pull.json:
        return
    from mtpfix import api
    from mtpfix.output import json_v1
    from mtpfix.rules import BY_CODE

    diff = api.diff_of(report.plan)
    echo(json_v1.line(json_v1.applied(Applied(outcome, report, left, report.plan.files, diff, BY_CODE))))


def _planned(chosen: Options, report: Report) -> int:
    _tell(chosen, "planned", report)
    say(f"Would change {human.changes(report.plan)}.")
    _about_plan(report)
    tell_still(report.after, report)
    return LEFT


def _about_plan(report: Report) -> None:
    err = page(sys.stderr)
    talk(*human.certificate_lines(report.plan, err), *human.held_back_lines(report, err))


def _nothing_to_write(chosen: Options, report: Report) -> int:
    _tell(chosen, "nothing", report)
    if report.status == "clean":
        say("Nothing to do: the checkpoint is clean.")
        return LEFT if tell_left(report) else CLEAN
    safe = "safe " if report.plan.held_back else ""
    say(f"Nothing was changed: no {safe}edit of the JSON files mends this.")
    talk(*human.held_back_lines(report, page(sys.stderr)))
    return LEFT if tell_left(report) else CLEAN
