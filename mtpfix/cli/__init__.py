"""The command line: parse, call, exit code. A command is a file in this folder and a line in `COMMANDS`."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from mtpfix import __version__
from mtpfix.cli.guard import guarded, refused, tell
from mtpfix.cli.process import delivered, reopen
from mtpfix.errors import WriteError

COMMANDS: tuple[tuple[str, str], ...] = (
    ("check", "Say what each engine will make of a checkpoint, and what is wrong."),
    ("list", "List the draft's tensors."),
    ("explain", "Say for a module what each engine decides, and why."),
    ("apply", "Show and make the edits that repair a checkpoint."),
    ("graft", "Restore the draft's tensors from the base checkpoint."),
    ("scan", "Check many repositories of the Hub."),
    ("review", "Say what a pull request changes, and whether it mends what is wrong."),
    ("override", "Print serve-time flags with the effect of the repair."),
    ("snapshot", "Write a checkpoint's headers and JSON files, without weights, to one file."),
    ("hook", "Check or repair the checkpoints that some files belong to (pre-commit)."),
    ("undo", "Take the last apply or graft back, byte for byte."),
    ("rule", "Explain a rule, or list all rules."),
    ("engines", "List the engines and releases that are modelled."),
)

_COLLECT_EVERY = 50_000  # new objects

EPILOG = """\b
Exit codes:
  0  clean, or all fixed        2  wrong use
  1  errors were found          3  the checkpoint cannot be inspected

Every option can be set by a variable: MTPFIX_CHECK_FORMAT=json. NO_COLOR is respected."""


def summary(name: str) -> str:
    """The one line about a command."""
    return dict(COMMANDS)[name]


class Commands(click.Group):
    """Commands that are imported when they are called, under one guard against tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"mtpfix.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            self._no_such_command(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _no_such_command(self, ctx: click.Context, name: str) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(name, self.list_commands(ctx), n=1)
        ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with refused():
            return super().make_context(*args, **extra)

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with delivered():  # --help and --version write before there is a command
                return super().main(*args, **extra)
        except WriteError as error:
            sys.exit(tell(error))

    def invoke(self, ctx: click.Context) -> Any:
        # A command makes many values that live to its end; looking for garbage among them often is wasted time.
        gc.unfreeze()
        gc.set_threshold(_COLLECT_EVERY, 20, 50)
        atexit.register(gc.freeze)  # nor is it looked for at the end, which takes as long as the imports do
        reopen()
        return guarded(ctx, super().invoke)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "MTPFIX"},
    epilog=EPILOG,
)
@click.version_option(__version__, "-V", "--version", prog_name="mtpfix")
def main() -> None:
    """Find and repair quantized checkpoints whose config files lie about the weights.

    Only safetensors headers and JSON files are read, never weights; graft alone copies some.

    \b
    mtpfix check DIR             what is wrong, for which engines
    mtpfix apply DIR --dry-run   the repair, as a diff
    mtpfix apply DIR             the repair
    """
