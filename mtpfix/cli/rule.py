"""`mtpfix rule`: what is known of the rules."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from mtpfix.cli import options, summary
from mtpfix.cli.given import log_of_stdin
from mtpfix.cli.terminal import page_for, write
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.output import FORMATS
from mtpfix.output.base import RuleList, Symptom

if TYPE_CHECKING:
    from mtpfix.rules.base import Rule


_MOST = 5  # symptoms of a log that are shown
_NUMBER = re.compile(r"(?:mtp)?([0-9]{1,3})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Options:
    code: str | None
    error: str | None
    format: str
    output: str | None


def _codes(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The codes that begin so, for the shell."""
    from mtpfix.rules import RULES

    return [CompletionItem(rule.code, help=rule.name) for rule in RULES if rule.code.startswith(begun.upper())]


@click.command("rule", short_help=summary("rule"))
@click.argument("code", metavar="[CODE]", required=False, shell_complete=_codes)
@click.option(
    "--error", metavar="TEXT", help="A line of an engine's traceback or log, or many; - is stdin. Names the rules."
)
@click.option(
    "--format",
    "format",
    type=click.Choice([form.name for form in FORMATS if form.rules and form.symptoms]),
    default="human",
    show_default=True,
    help="How to write the answer.",
)
@options.output
def command(**values: Any) -> None:
    """Explain a rule, by its code or name; without one, list all rules. With --error, name the rules that an error
    message of an engine can come from, most likely first; exit code 2 where it is none that is known.

    \b
    mtpfix rule MTP001
    mtpfix rule draft-not-excluded
    mtpfix rule --error "KeyError: 'model.layers.0.mlp.experts.w2_weight'"
    """
    run(Options(**values))


def run(chosen: Options) -> None:
    """Write one rule, the table of all, or what a message means."""
    from mtpfix.rules import RULES

    if chosen.code is not None and chosen.error is not None:
        raise click.UsageError("give a CODE or --error, not both")
    form = next(form for form in FORMATS if form.name == chosen.format)
    page = page_for(chosen.output)
    if chosen.error is not None:
        assert form.symptoms
        write(form.symptoms(_symptoms(chosen.error, RULES), page), chosen.output)
        return
    assert form.rules
    rules = RULES if chosen.code is None else (_named(chosen.code, RULES),)
    write(form.rules(RuleList(rules, whole=chosen.code is not None), page), chosen.output)


def _symptoms(text: str, rules: tuple[Rule, ...]) -> tuple[Symptom, ...]:
    """What the lines of a log mean. UsageError where none of them means anything."""
    from mtpfix.symptoms import diagnose

    found = diagnose(log_of_stdin() if text == "-" else text)
    if not found:
        raise UsageError(
            "no known error of an engine in this text",
            hint="give the last line of the traceback, or run mtpfix check on the checkpoint",
        )
    book = {rule.code: rule for rule in rules}
    return tuple(
        Symptom(
            match.line, match.symptom.means, tuple(book[code] for code in match.symptom.rules), match.symptom.source
        )
        for match in found[:_MOST]
    )


def _named(code: str, rules: tuple[Rule, ...]) -> Rule:
    """The rule with this code or name, in any case, or with this number. UsageError where there is none."""
    known = {key.casefold(): rule for rule in rules for key in (rule.code, rule.name)}
    number = _NUMBER.fullmatch(code)
    found = known.get(f"mtp{int(number[1]):03}" if number else code.casefold())
    if found is None:
        near = get_close_matches(code.casefold(), known, n=1)
        hint = f"did you mean {known[near[0]].code}?" if near else "`mtpfix rule` lists all rules"
        raise UsageError(f"no rule has the code or name {code!r}", hint=hint)
    return found
