"""Workflow commands of GitHub Actions: an annotation at the list for each finding, and one without a place for each
source that cannot be inspected.

GitHub shows ten errors, ten warnings and ten notices of a step; the log has them all.
"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Report, Severity
from mtpfix.output.base import CheckResult, Format, Page, RuleText
from mtpfix.output.places import Places, path
from mtpfix.output.text import clean, page_text

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}
# actions/toolkit packages/core/src/command.ts: escapeData, escapeProperty
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def _escaped(text: str, table: dict[str, str], page: Page) -> str:
    """A foreign text, a line of it at a time made harmless, that ends neither the command nor the property."""
    lines = (clean(line, page) for line in text.split("\n"))
    return "".join(table.get(char, char) for char in "\n".join(lines))


def _command(report: Report, places: Places, finding: Finding, rule: RuleText | None, page: Page) -> str:
    first = places.of(finding)[0]
    at = places.region(first)
    title = f"{finding.rule} {rule.name}" if rule else finding.rule
    where = {} if report.source.kind == "hub" else {"file": path(report.source, first.file), "line": str(at.line)}
    properties = {**where, **({"col": str(at.column)} if where else {}), "title": title}
    shown = ",".join(f"{name}={_escaped(value, _PROPERTY, page)}" for name, value in properties.items())
    message = f"{report.source.id}: {finding.message}" + (f"\nhelp: {finding.hint}" if finding.hint else "")
    return f"::{_LEVELS[finding.severity]} {shown}::{_escaped(message, _DATA, page)}"


def _commands(result: CheckResult, page: Page) -> Iterator[str]:
    for report in result.reports:
        places = Places(report)
        for finding in report.findings:
            yield _command(report, places, finding, result.rules.get(finding.rule), page)
    for fault in result.unread:
        yield f"::error title=mtpfix::{_escaped(fault, _DATA, page)}"


def _check(result: CheckResult, page: Page) -> str:
    return page_text(_commands(result, page))


FORMAT = Format(name="github", check=_check, unread=True)
