"""`mtpfix graft`: the draft's tensors restored from the base checkpoint."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from mtpfix.cli import options, remote, summary
from mtpfix.cli.apply import interactive
from mtpfix.cli.left import tell_left, tell_still
from mtpfix.cli.process import stoppable
from mtpfix.cli.terminal import Line, echo, page, page_for, say, talk, telling, write
from mtpfix.frozen import dataclass
from mtpfix.output.base import Grafted, GraftedTensor, Page
from mtpfix.output.listing import bytes_text
from mtpfix.output.text import listed, typed

if TYPE_CHECKING:
    from mtpfix.grafting.plan import GraftPlan

DONE, LEFT = 0, 1


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    base: str
    modules: tuple[str, ...]
    engine: tuple[str, ...]
    scope: Any
    dequantize: bool
    rewrite: bool
    dry_run: bool
    yes: bool
    format: Callable[[Grafted, Page], str]
    output: str | None
    remote: remote.Remote


@click.command("graft", short_help=summary("graft"))
@options.directory
@click.option(
    "--from",
    "from",
    metavar="BASE",
    required=True,
    callback=options.not_empty,
    help="The base checkpoint: a directory, or a repository on the Hub.",
)
@click.option(
    "--modules",
    metavar="PATTERN",
    multiple=True,
    callback=options.not_empty,
    help="Only these modules of the draft: 'mtp.fc', 'mtp.**'. Repeatable.",
)
@options.engine
@options.scope
@click.option("--dequantize", is_flag=True, help="Graft what the base stores in FP8 as BF16.")
@click.option("--rewrite", is_flag=True, help="Write shards again without the old copies of what is replaced.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be done and change nothing. Exit 1 where it would.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked.")
@options.format_of("graft")
@options.output
@remote.options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Restore the draft's tensors that DIR lacks or stores wrongly (MTP006, MTP007) from its base checkpoint.

    They are copied into one new shard, from a repository on the Hub by ranges, only their bytes. The index and the
    lists of what is not quantized follow, everything at once or nothing. `mtpfix undo DIR` takes it back, byte for
    byte. What is stored quantized and declared so stays.

    It is refused where BASE is another model than DIR was made from (the numbers that differ are named), and where no
    engine could load what comes out. Old copies of wrong tensors stop engines as long as they lie beside tensors that
    are needed: --rewrite removes them. Exit code 0 where no error remains, else 1.

    \b
    mtpfix graft DIR --from org/base --dry-run
    mtpfix graft DIR --from org/base
    """
    ctx.exit(run(Options(base=values.pop("from"), **values)))


def run(chosen: Options) -> int:
    """Plan, show, ask, write; the exit code."""
    from mtpfix import api

    with (
        chosen.remote.watched((chosen.source, chosen.base)) as access,
        api.grafting(
            chosen.source,
            chosen.base,
            modules=chosen.modules,
            engines=chosen.engine,
            scope=chosen.scope,
            dequantize=chosen.dequantize,
            rewrite=chosen.rewrite,
            access=access,
        ) as ready,
    ):
        plan = ready.plan
        if plan.layout is None:
            return _nothing(plan, chosen)
        if chosen.dry_run:
            return _planned(plan, chosen)
        plan.require()
        asked = not chosen.yes and interactive()
        if asked:
            echo(_text(plan, chosen, "planned"))
            if not click.confirm("Write this?", err=True):
                say("Nothing was changed.")
                return LEFT
        with stoppable(), _progress(plan.size + plan.fetched) as tell:
            ready.write(tell)
        return _done(plan, chosen, shown=asked and chosen.output is None)


def _nothing(plan: GraftPlan, chosen: Options) -> int:
    write(_text(plan, chosen, "nothing"), chosen.output)
    say(f"Nothing to graft: {plan.reason}.")
    return _after(plan)


def _planned(plan: GraftPlan, chosen: Options) -> int:
    write(_text(plan, chosen, "refused" if plan.refusal else "planned"), chosen.output)
    _about(plan)
    if plan.report:
        tell_still(plan.report.engines, plan.report)
    plan.require()
    say(f"Would change {listed(_files(plan))}.")
    return LEFT


def _done(plan: GraftPlan, chosen: Options, *, shown: bool) -> int:
    try:
        if not shown:
            write(_text(plan, chosen, "done"), chosen.output)
    finally:  # whatever becomes of the report
        _about(plan)
        say(f"Changed {listed(_files(plan))}. Take back: mtpfix undo {typed(chosen.source)}")
    return _after(plan)


def _about(plan: GraftPlan) -> None:
    from mtpfix.output import human

    for note in plan.notes:
        say(f"Note: {note}.")
    if plan.repair.edits:
        say(f"Lists: {human.changes(plan.repair)}.")
        talk(*human.certificate_lines(plan.repair, page(sys.stderr)))


def _after(plan: GraftPlan) -> int:
    """What is left, and what would help."""
    errors = plan.report is not None and tell_left(plan.report)
    if plan.lacking:
        say(f"The base does not hold {len(plan.lacking)} modules that are needed, e.g. {plan.lacking[0]}.")
    return LEFT if errors or plan.lacking else DONE


def _text(plan: GraftPlan, chosen: Options, status: Any) -> str:
    return chosen.format(_grafted(plan, chosen.source, status), page_for(chosen.output))


def _grafted(plan: GraftPlan, directory: str, status: Any) -> Grafted:
    """A plan as the outputs take it."""
    from mtpfix import api
    from mtpfix.rules import BY_CODE

    assert plan.report is not None
    schemes = {t.name: (c.scheme.name if c.scheme else "other", c.why) for c in plan.chosen for t in c.tensors}
    tensors = tuple(
        GraftedTensor(row.row.name, row.row.dtype, row.row.shape, row.shard, *schemes[row.row.name])
        for row in plan.origins
    )
    return Grafted(
        directory=directory,
        base=plan.base,
        status=status,
        report=plan.report,
        reason=plan.refusal.message if plan.refusal else plan.reason,
        shard=plan.shard,
        size=plan.layout.size if plan.layout else 0,
        written=plan.size,
        tensors=tensors,
        replaced=tuple((copy.tensor, copy.read) for copy in plan.old),
        rewritten=tuple(plan.rewrites),
        removed=plan.removed,
        lacking=plan.lacking,
        notes=plan.notes,
        files=tuple(_files(plan)),
        plan=plan.repair,
        diff=api.config_diff(plan),
        rules=BY_CODE,
    )


def _files(plan: GraftPlan) -> list[str]:
    changed = [name for name, raw in plan.after.items() if plan.before[name] != raw]
    return [*changed, *((plan.shard,) if plan.layout else ()), *plan.rewrites, *plan.removed]


# Progress.


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Tells on stderr how far a copy has come; gives what counts."""
    counted, lock, start = [0], threading.Lock(), time.monotonic()

    def tell(count: int) -> None:
        with lock:
            counted[0] += count

    with telling(lambda: _line(counted[0], total, start)):
        yield tell


def _line(count: int, total: int, start: float) -> Line:
    speed = bytes_text(int(count / (time.monotonic() - start)))
    return f"Copying: {bytes_text(count)} of {bytes_text(max(total, count))}, {speed}/s ...", count, total
