"""`mtpfix engines`: what is modelled of each engine, and recorded decisions put to the models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mtpfix.cli import options, summary
from mtpfix.cli.given import text_of
from mtpfix.cli.terminal import page_for, write
from mtpfix.frozen import Protocol, dataclass
from mtpfix.output import FORMATS
from mtpfix.output.base import ChangePoint, Disagreement, EngineFacts, Profile, Replayed

if TYPE_CHECKING:
    from mtpfix.engines import replay
    from mtpfix.engines.base import Engine
    from mtpfix.model import Answer


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
    replay: tuple[str, ...]
    files: tuple[str, ...]
    format: str
    output: str | None


@click.command("engines", short_help=summary("engines"))
@click.option(
    "--replay",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Put the recorded decisions in these files (JSON lines) to the models, and print every disagreement.",
)
@click.argument("files", metavar="", type=click.Path(), nargs=-1)
@click.option(
    "--format",
    "format",
    type=click.Choice([form.name for form in FORMATS if form.engines and form.replayed]),
    default="human",
    show_default=True,
    help="How to write the answer.",
)
@options.output
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """List the engines and releases that are modelled, since when each matches as it does, and how many decisions
    that the engines' own code made stand behind it.

    With --replay, evaluate recorded decisions instead. Exit code 1 where the models answer any of them otherwise, 3
    where a file cannot be read or a line is no recorded decision.

    \b
    mtpfix engines
    mtpfix engines --replay vllm-fp8.jsonl sglang-fp8.jsonl
    """
    ctx.exit(run(Options(**values)))


def run(chosen: Options) -> int:
    """Write what is known, or what a replay comes to; the exit code."""
    if chosen.files and not chosen.replay:
        raise click.UsageError(f"unexpected argument {chosen.files[0]!r}; recorded decisions go after --replay")
    form = next(form for form in FORMATS if form.name == chosen.format)
    page = page_for(chosen.output)
    if chosen.replay:
        result = _replayed((*chosen.replay, *chosen.files))
        write(_writer(form.replayed)(result, page), chosen.output)
        return int(bool(result.disagreements))
    write(_writer(form.engines)(tuple(facts()), page), chosen.output)
    return 0


def _writer(found: Callable[..., str] | None) -> Callable[..., str]:
    assert found is not None
    return found


def _replayed(files: Sequence[str]) -> Replayed:
    """The answers to every row of the files. Raises UnreadableError for a file or a row that cannot be read."""
    from mtpfix.engines import replay

    totals = replay.Totals()
    rows = (row for file in files for row in replay.parse(file, text_of(file)))
    found = tuple(_disagreement(item) for item in replay.replay(rows, totals))
    return Replayed(found, totals.rows, totals.skipped)


def _disagreement(found: replay.Disagreement) -> Disagreement:
    row, answer = found.row, found.answer
    return Disagreement(
        place=found.place,
        engine=row["engine"],
        method=row["format"],
        release=row["release"],
        runtime=row["runtime"],
        recorded=_said(row["decision"], row.get("error") or ""),
        modelled=_said(answer.decision, answer.error),
        why=_why(answer),
    )


def _said(decision: str, error: str) -> str:
    return f"{decision} {error}".strip()


def _why(answer: Answer) -> str:
    cause = answer.cause
    return f"{cause.pointer} {cause.entry!r}" if cause.pointer else cause.rule


def facts() -> Iterator[EngineFacts]:
    from mtpfix.engines.recorded import recorded
    from mtpfix.engines.registry import ENGINES

    changes = _changes()
    for name, engine in ENGINES.items():
        points = tuple(_points(changes.get(name, ())))
        yield EngineFacts(name, engine.releases, points, tuple(_profiles(engine, points, recorded(name))))


def _changes() -> Mapping[str, Sequence[Switch]]:
    """Each engine's table of changes."""
    from mtpfix.engines.sglang.switches import SWITCHES as SGLANG
    from mtpfix.engines.tensorrt_llm import SWITCHES as TENSORRT
    from mtpfix.engines.transformers import SWITCHES as TRANSFORMERS
    from mtpfix.engines.vllm.switches import SWITCHES as VLLM
    from mtpfix.engines.vllm_ascend import SWITCHES as ASCEND

    return {
        "vllm": VLLM,
        "sglang": SGLANG,
        "tensorrt-llm": TENSORRT,
        "transformers": TRANSFORMERS,
        "vllm-ascend": ASCEND,
    }


def _points(switches: Sequence[Switch]) -> Iterator[ChangePoint]:
    for switch in switches:
        for method in switch.methods:
            yield ChangePoint(method, switch.since, switch.name, switch.source)


def _profiles(
    engine: Engine, changes: Sequence[ChangePoint], recorded: Mapping[str, Mapping[str, int]]
) -> Iterator[Profile]:
    """The ranges of releases in which an engine matches alike, method by method."""
    from mtpfix.engines.base import Method
    from mtpfix.releases import groups

    for method in sorted({point.method for point in changes} | set(recorded)):
        for group in groups(engine.name, engine.change_points(method)):
            if engine.method({"quant_method": method}, group[0]) == Method(""):
                continue  # a release without the method
            here = tuple(point for point in changes if point.method == method and point.release in group)
            count = sum(recorded.get(method, {}).get(release, 0) for release in group)
            yield Profile(method, group[0], group[-1], count, here)
