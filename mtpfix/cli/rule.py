"""`mtpfix rule`: what is known of the rules."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from mtpfix.cli import options, summary
from mtpfix.cli.terminal import page_for, write
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.output.base import Page, RuleList

if TYPE_CHECKING:
    from mtpfix.rules.base import Rule


@dataclass(frozen=True, slots=True)
class Options:
    code: str | None
    format: Callable[[RuleList, Page], str]
    output: str | None


@click.command("rule", short_help=summary("rule"))
@click.argument("code", metavar="[CODE]", required=False)
@options.format_of("rules")
@options.output
def command(**values: Any) -> None:
    """Explain a rule, by its code or name; without one, list all rules.

    \b
    mtpfix rule MTP001
    mtpfix rule draft-not-excluded
    """
    run(Options(**values))


def run(chosen: Options) -> None:
    """Write one rule, or the table of all."""
    from mtpfix.rules import RULES

    rules = RULES if chosen.code is None else (_named(chosen.code, RULES),)
    result = RuleList(rules, whole=chosen.code is not None)
    write(chosen.format(result, page_for(chosen.output)), chosen.output)


def _named(code: str, rules: tuple[Rule, ...]) -> Rule:
    """The rule with this code or name, in any case. UsageError where there is none."""
    known = {key.casefold(): rule for rule in rules for key in (rule.code, rule.name)}
    found = known.get(code.casefold())
    if found is None:
        near = get_close_matches(code.casefold(), known, n=1)
        hint = f"did you mean {known[near[0]].code}?" if near else "`mtpfix rule` lists all rules"
        raise UsageError(f"no rule has the code or name {code!r}", hint=hint)
    return found
