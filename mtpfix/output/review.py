"""What a pull request changes, for a person, for a pull request's page, and for a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mtpfix.model import Finding
from mtpfix.output import json_v1, markdown
from mtpfix.output.base import DecisionText, FileText, Page, ReviewedText, ReviewText
from mtpfix.output.collapse import collapse
from mtpfix.output.listing import spans
from mtpfix.output.text import page_text, paint, paragraph, plural

if TYPE_CHECKING:
    from collections.abc import Callable

_FEW = 4
_EFFECTS = {
    "mends": ("✓", "green", "mends what is wrong"),
    "helps": ("✓", "yellow", "mends some of what is wrong"),
    "nothing": ("–", "yellow", "changes no finding"),
    "harms": ("✗", "red", "makes something worse"),
}
_KINDS = {
    "spelling": "says the same in other bytes",
    "lists": "only the lists of what is not quantized",
    "config": "more than the lists",
    "weights": "weights or their index",
    "other": "nothing that an engine reads here",
}


def human(found: ReviewedText, page: Page) -> str:
    """For a terminal."""
    own, pull = found.review, found.pull_request
    symbol, colour, words = _EFFECTS[own.effect]
    title = f"{symbol if page.unicode else '*'} {own.before.source.id} #{pull.num} by {pull.author}: {words}"
    lines = [paint(line, page, "bold", colour) for line in paragraph(title, page, hanging="  ")]
    for heading, items in _sections(own, page, str):
        lines += ["", paint(heading, page, "bold")]
        lines += [line for item in items for line in paragraph(item, page, indent="  ", hanging="    ")]
    return page_text(lines)


def as_markdown(found: ReviewedText, _page: Page) -> str:
    """For a comment or a step summary."""
    own, pull = found.review, found.pull_request
    lines = [f"## {markdown.escaped(own.before.source.id)} #{pull.num}: {_EFFECTS[own.effect][2]}"]
    for heading, items in _sections(own, markdown.PAGE, markdown.escaped):
        lines += ["", f"### {heading}", "", *(f"- {item}" for item in items)]
    lines += ["", "### What the engines do", "", *markdown.matrix_lines(own.before.engines, own.after.engines)]
    return page_text(lines)


def _sections(own: ReviewText, page: Page, safe: Callable[[str], str]) -> Iterable[tuple[str, list[str]]]:
    """Headings and their items; what would be empty is left out."""
    sections = (
        ("Files", [safe(_file(change)) for change in own.files] or ["none: the branch holds all of it already"]),
        ("Decisions that change", [safe(_decision(change, page)) for change in own.decisions] or ["none"]),
        ("Stored quantized, and newly built plain", [safe(name) for name in collapse(own.newly_plain_quantized)]),
        ("Mended", [safe(_finding(one)) for one in own.mended]),
        ("Left", [safe(_finding(one)) for one in own.left]),
        ("New", [safe(_finding(one)) for one in own.new]),
    )
    return [(heading, items) for heading, items in sections if items]


def _file(change: FileText) -> str:
    places = ", ".join(place or "/" for place in change.pointers[:_FEW])
    more = f" and {len(change.pointers) - _FEW} more" if len(change.pointers) > _FEW else ""
    return f"{change.name}: {_KINDS[change.kind]}" + (f": {places}{more}" if places else "")


def _decision(change: DecisionText, page: Page) -> str:
    names = collapse(change.modules)
    shown = ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
    fits = "as stored" if change.right else f"stored {change.stored}"
    where = f"{change.engine} {spans(change.spans, page)}, {change.part}"
    return f"{where}: {change.before} -> {change.after} ({fits}): {plural(len(change.modules), 'module')}: {shown}"


def _finding(found: Finding) -> str:
    return f"{found.rule}: {found.message}"


def as_json(found: ReviewedText, _page: Page) -> str:
    """For a program."""
    return json_v1.line(json_v1.review(found))


WRITERS = {"human": human, "json": as_json, "markdown": as_markdown}
