"""`mtpfix scan`: many repositories of the Hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from mtpfix.checkpoint.access import Access
from mtpfix.cli import options, remote, summary
from mtpfix.cli.given import text_of
from mtpfix.cli.terminal import echo, page, say, talk, write
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.output.base import Page
from mtpfix.output.text import Cell, clean, table
from mtpfix.tokens import masked

if TYPE_CHECKING:
    from mtpfix.hub.scan import Look, Row, State

CLEAN, DIRTY, CANNOT = 0, 1, 3
JOBS = 8
_STYLES = {"clean": ("green",), "unreadable": ("yellow",)}
_MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Options:
    targets: tuple[str, ...]
    search: str | None
    file: str | None
    limit: int | None
    jobs: int | None
    state: str | None
    again: bool
    html: str | None
    dask: str | None
    engine: tuple[str, ...]
    scope: Any
    exit_zero: bool
    remote: remote.Remote


@click.command("scan", short_help=summary("scan"))
@click.argument("targets", metavar="[ORG | ORG/NAME]...", nargs=-1)
@click.option("--search", metavar="TEXT", help="Repositories that the Hub finds by this text.")
@click.option("--file", metavar="FILE", type=click.Path(), help="A list of repositories, one a line; - is stdin.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="At most so many of an organisation or a search.")
@click.option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 1024),
    help=f"So many at once. Default: {JOBS}; on a cluster twice its threads.",
)
@click.option("--state", metavar="FILE", type=click.Path(), help="Keep what is done here, and go on where it ends.")
@click.option("--again", is_flag=True, help="With --state: look again at what could not be inspected.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write all rows as a web page too.")
@click.option("--dask", metavar="ADDRESS", help="Let the workers of this Dask cluster look (pip install mtpfix[dask]).")
@options.engine
@options.scope
@options.exit_zero
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Check many repositories of the Hub: of an organisation, of a search, of a list.

    One JSON line for each goes to stdout as soon as it is known, a table of all to stderr at the end. A repository
    that cannot be inspected is a line like the others. With --state a run that was killed goes on where it stopped:
    what is done is not done or written to stdout again, and FILE holds all lines. Exit code 1 where errors were
    found, 3 where no repository could be inspected, or an organisation has none that can be seen.

    With --dask the workers of a cluster look, each with its own login unless --token is given, and with its own cache.

    \b
    mtpfix scan org --state scan.jsonl > rows.jsonl
    mtpfix scan --search NVFP4 --limit 100
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """List, look at each, tell; the exit code."""
    from mtpfix.hub.scan import State

    if not (chosen.targets or chosen.search or chosen.file):
        raise click.UsageError("nothing to scan: name an organisation, --search TEXT or --file LIST")
    for target in chosen.targets:
        if target.startswith((".", "/", "~")):
            raise UsageError("scan looks at the Hub", subject=target, hint="for folders: mtpfix check DIR...")
    if chosen.again and not chosen.state:
        raise click.UsageError("--again goes with --state")
    if chosen.remote.access.revision is not None:
        raise click.UsageError("--revision names one state of one repository; write org/name@REVISION in the list")
    about = {"engines": list(chosen.engine), "scope": chosen.scope, "what": _what(chosen)}
    with State(chosen.state, about) if chosen.state else nullcontext() as state:
        rows = list(_rows(chosen, state))
    everything = list(state.rows.values()) if state else rows
    _summary(everything)
    if chosen.html:
        write(_page(everything, chosen), chosen.html)
    dirty = any(row["status"] not in ("clean", "unreadable") for row in everything)
    if all(row["status"] == "unreadable" for row in everything) and (everything or chosen.targets):
        return CANNOT  # an owner without a repository is a name that is misspelt, or a token that is missing
    return DIRTY if dirty and not chosen.exit_zero else CLEAN


def _what(chosen: Options) -> dict[str, Any]:
    return {"targets": list(chosen.targets), "search": chosen.search, "file": chosen.file, "limit": chosen.limit}


def _rows(chosen: Options, state: State | None) -> Iterator[Row]:
    """The rows that are new, each on stdout and in the state as soon as it is there."""
    from mtpfix.asked import wanted_releases
    from mtpfix.hub.scan import Look

    wanted_releases(chosen.engine, "")  # a wrong engine is the user's fault, not every repository's
    with chosen.remote.watched() as access:
        done = state.done(again=chosen.again) if state else frozenset[str]()
        names = [name for name in _repositories(chosen, access) if masked(name) not in done]
        access.traffic.listed = len(names)
        for row in _looked(names, Look(access, chosen.engine, chosen.scope), chosen):
            if state:
                state.add(row)
            access.traffic.scanned += 1
            echo(json.dumps(row, ensure_ascii=True) + "\n")
            yield row


def _looked(names: list[str], look: Look, chosen: Options) -> Iterator[Row]:
    """The rows as they come, from threads of this process or from a cluster."""
    if chosen.dask is not None:
        from mtpfix.hub.cluster import scan_on

        return scan_on(chosen.dask, names, look, jobs=chosen.jobs)
    from mtpfix.hub.scan import scan

    return scan(names, look, jobs=chosen.jobs or JOBS)


def _repositories(chosen: Options, access: Access) -> list[str]:
    """The names to look at, each once."""
    from mtpfix.hub.scan import listed_in, listed_on_the_hub

    found: list[str] = []
    for target in chosen.targets:
        found += [target] if "/" in target else listed_on_the_hub(access, author=target, limit=chosen.limit)
    if chosen.search:
        found += listed_on_the_hub(access, search=chosen.search, limit=chosen.limit)
    if chosen.file:
        found += listed_in(text_of(chosen.file))
    return list(dict.fromkeys(found))


def _page(rows: list[Row], chosen: Options) -> str:
    from mtpfix.output.scan_page import scan_page

    asked = [*chosen.targets, *filter(None, (chosen.search, chosen.file))]
    return scan_page(rows, title=f"Scan of {', '.join(asked)}", hub=chosen.remote.access.address)


def _summary(rows: list[Row]) -> None:
    from mtpfix.hub.scan import tally

    err = page(sys.stderr)
    ordered = sorted(rows, key=lambda row: (str(row["status"]), str(row["repository"])))
    shown = [row for row in ordered if row["status"] != "clean"][:_MOST_ROWS]
    head = [Cell(title, ("dim",)) for title in ("repository", "status", "what")]
    talk(*(table([head, *(_cells(row, err) for row in shown)], err) if shown else ()))
    counts = ", ".join(f"{count} {status}" for status, count in tally(rows).items())
    noun = "repository" if len(rows) == 1 else "repositories"
    seen = counts or "none can be seen; check the name, and the token for private ones"
    say(f"{len(rows):,} {noun}: {seen}.")


def _cells(row: Row, err: Page) -> list[Cell]:
    found = ", ".join(f"{rule} ×{count}" if count > 1 else rule for rule, count in row.get("findings", {}).items())
    status = str(row["status"])
    what = clean(str(row.get("error") or found), err)
    return [Cell(clean(str(row["repository"]), err)), Cell(status, _STYLES.get(status, ("red",))), Cell(what)]
