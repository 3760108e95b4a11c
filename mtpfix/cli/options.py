"""Arguments and options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from mtpfix.output import FORMATS

F = TypeVar("F", bound=Callable[..., Any])


def not_empty(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """A callback that refuses empty names."""
    if any(not text for text in (value if isinstance(value, tuple) else (value,))):
        raise click.BadParameter("an empty name; is a variable unset?")
    return value


_PLACE = click.Path(readable=False)  # what cannot be read is said by who reads it, with exit code 3
directory = click.argument("source", metavar="DIR", type=_PLACE, callback=not_empty)
source = click.argument("source", metavar="SOURCE", type=_PLACE, callback=not_empty)
sources = click.argument("sources", metavar="SOURCE...", type=_PLACE, nargs=-1, required=True, callback=not_empty)

engine = click.option(
    "--engine",
    "engine",
    metavar="SPEC",
    multiple=True,
    callback=not_empty,
    help="Only this engine: vllm, 'vllm>=0.24', 'sglang==0.5.23', 'vllm>=0.20,<0.26'. Repeatable. "
    "Default: every modelled release of vLLM and SGLang, and TensorRT-LLM where it applies.",
)

scope = click.option(
    "--scope",
    type=click.Choice(["mtp", "all"]),
    default="mtp",
    show_default=True,
    help="mtp: the draft, and what stops the target from loading; all: every module.",
)

output = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Write to a file; - is stdout. Nothing to write, no file."
)

exit_zero = click.option("-e", "--exit-zero", is_flag=True, help="Exit 0 even where errors are found.")


def format_of(writer: str) -> Callable[[F], F]:
    """`--format`, one of the formats that can write this (`check`, `tensors`, ...); the value is the writer."""
    able = {form.name: getattr(form, writer) for form in FORMATS if getattr(form, writer) is not None}

    def chosen(_ctx: click.Context, _param: click.Parameter, value: str) -> Callable[..., str]:
        return cast(Callable[..., str], able[value])

    return click.option(
        "--format",
        "format",
        type=click.Choice(list(able)),
        default=next(iter(able)),
        show_default=True,
        callback=chosen,
        help="How to write the answer.",
    )
