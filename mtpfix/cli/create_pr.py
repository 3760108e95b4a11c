"""`mtpfix apply --create-pr`: the repair as a pull request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mtpfix.cli.left import tell_still
from mtpfix.cli.remote import Remote
from mtpfix.cli.terminal import echo, page, say, talk
from mtpfix.frozen import dataclass, replace
from mtpfix.output import human, json_v1
from mtpfix.output.text import listed

if TYPE_CHECKING:
    from mtpfix.hub.pull_request import Draft, Outcome, Wish
    from mtpfix.model import Source

F = TypeVar("F", bound=Callable[..., Any])
DONE, LEFT = 0, 1

_OPTIONS = (
    click.option("--create-pr", is_flag=True, help="Open a pull request on the Hub with the repair."),
    click.option("--commit-message", metavar="TEXT", help="The pull request's title. Default: one that says it all."),
    click.option("--force", is_flag=True, help="Open it although the same pull request was closed."),
    click.option(
        "--format",
        "format",
        type=click.Choice(["human", "json"]),
        default="human",
        show_default=True,
        help="json: one document about the plan and what became of it, in place of the diff.",
    ),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for about a pull request."""

    wanted: bool
    message: str | None
    force: bool
    json: bool

    def __post_init__(self) -> None:
        given = {"--commit-message": self.message is not None, "--force": self.force}
        if not self.wanted and any(given.values()):
            names = " and ".join(name for name, there in given.items() if there)
            raise click.UsageError(f"{names} can only be used with --create-pr")
        if self.message is not None and not self.message.strip():
            raise click.UsageError("--commit-message is empty; is a variable unset?")


def options(command: F) -> F:
    """The options about pull requests; the command gets them as one value, `pull`."""

    @wraps(command)
    def merged(*args: Any, create_pr: bool, commit_message: str | None, force: bool, format: str, **values: Any) -> Any:
        return command(*args, pull=Request(create_pr, commit_message, force, format == "json"), **values)

    wrapped: Callable[..., Any] = merged
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return cast(F, wrapped)


@dataclass(frozen=True, slots=True)
class Job:
    """What to propose, and how."""

    source: str
    engine: tuple[str, ...]
    scope: Any
    unsafe: bool
    dry_run: bool
    ask: bool
    pull: Request
    remote: Remote


def run(job: Job) -> int:
    """Look, show, ask, send, look again; the exit code."""
    try:
        return _run(replace(job, remote=replace(job.remote, stats=False)))
    finally:
        job.remote.tell()


def _run(job: Job) -> int:
    from mtpfix.checkpoint.source import parse
    from mtpfix.hub import pull_request
    from mtpfix.hub.remote import Remote as Repository
    from mtpfix.hub.remote import token_or_refusal

    source = pull_request.require_branch(parse(job.source, job.remote.access.revision))
    token = None if job.dry_run else token_or_refusal(job.remote.access.token)
    wanted = pull_request.draft(_wish(job, source))
    if wanted.before.plan.empty:
        return _tell(job, pull_request.nothing(wanted))
    if job.dry_run:
        return _show(job, wanted)
    if not job.pull.json:
        echo(human.plan_text(wanted.before.plan, _diff(wanted), page()))
    if job.ask:
        click.confirm(f"Open a pull request in {source.id}?", abort=True, err=True)
    with replace(job.remote, access=replace(job.remote.access, token=token)).watched() as access:
        access.traffic.talking = True
        outcome = pull_request.propose(Repository(source.id, access), wanted)
    return _tell(job, outcome)


def _wish(job: Job, source: Source) -> Wish:
    from mtpfix import api
    from mtpfix.hub.pull_request import Wish

    with job.remote.watched() as access:
        checkpoint = api.read(job.source, access)
    return Wish(
        checkpoint,
        engines=job.engine,
        scope=job.scope,
        unsafe=job.unsafe,
        branch=source.revision,
        message=job.pull.message,
        force=job.pull.force,
    )


def _diff(wanted: Draft) -> str:
    from mtpfix import api

    return api.diff_of(wanted.before.plan)


def _show(job: Job, wanted: Draft) -> int:
    """What would be sent: diff and description on stdout."""
    if job.pull.json:
        text = replace(wanted.text, title=wanted.title)
        echo(json_v1.line(json_v1.preview(wanted.before, wanted.after, text, _diff(wanted))))
    else:
        echo(human.plan_text(wanted.before.plan, _diff(wanted), page()))
        echo(f"\n# {wanted.title}\n\n{wanted.text.body}")
    say(f"Would open a pull request in {wanted.before.source.id}: {human.changes(wanted.before.plan)}.")
    talk(*human.held_back_lines(wanted.before, page(sys.stderr)))
    return LEFT


_WORDS = {
    "opened": "Opened",
    "updated": "Updated",
    "already-open": "Nothing sent: the repair is open already:",
    "already-fixed": "Nothing to do:",
    "refused": "Nothing sent:",
}


def _tell(job: Job, outcome: Outcome) -> int:
    if job.pull.json:
        echo(json_v1.line(json_v1.proposal(outcome)))
    found = outcome.pull_request
    words = [_WORDS[outcome.kind], found.url if found else "", f"({outcome.reason})" if found else outcome.reason]
    say(" ".join(word for word in words if word not in ("", "()")) + ("" if found else "."))
    left = [finding.rule for finding in outcome.after.findings if finding.severity == "error"]
    if left and outcome.kind != "refused":
        say(f"It leaves {listed(list(dict.fromkeys(left)))}.")
    elif outcome.kind != "refused":
        tell_still(outcome.after.engines, outcome.after)
    return LEFT if left or outcome.kind == "refused" else DONE
