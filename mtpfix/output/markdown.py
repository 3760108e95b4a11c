"""Markdown for step summaries and pull requests, as GitHub and the Hub render it.

Foreign strings cannot act: names stand in code spans, and in running text nothing of theirs becomes a link, a mention,
a tag or a table's border.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from mtpfix.model import Edit, EngineRow, Finding, Plan, Report, VerdictKind
from mtpfix.output import human, matrix
from mtpfix.output.base import CheckResult, Format, Page, RuleText
from mtpfix.output.collapse import collapsed
from mtpfix.output.listing import span, spans
from mtpfix.output.text import clean, listed, page_text, plural, spelled

PAGE = Page(width=120)

_MOST_ENTRIES = 200
_MOST_GROUPS = 8
_SPECIAL = re.compile(r"([\\`*_\[\]|~#$!])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_SYMBOLS: Mapping[VerdictKind, str] = {
    "loads": "✅", "fails": "❌", "degrades": "⚠️", "unsupported": "–", "unknown": "?",
}  # fmt: skip
Verdicts = Sequence[EngineRow]


def escaped(text: str) -> str:
    """Running text in which nothing of a foreign string acts as Markdown or HTML."""
    shown = "".join(_ENTITIES.get(char, char) for char in clean(text, PAGE))
    return _SPECIAL.sub(r"\\\1", shown).replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def code(text: str, *, cell: bool = False) -> str:
    """A foreign string as a code span; `cell`: inside a table, where a bar would end the cell."""
    shown = clean(text, PAGE) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return fence + pad + (shown.replace("|", "\\|") if cell else shown) + pad + fence


def block(text: str, language: str = "") -> list[str]:
    """A foreign text of several lines as a fenced block."""
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    lines = [clean(line.replace("\t", "    "), PAGE) for line in text.removesuffix("\n").split("\n")]
    return [fence + language, *lines, fence]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; the cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def verdict(kind: VerdictKind | None) -> str:
    """`✅ loads`, or nothing."""
    return f"{_SYMBOLS[kind]} {kind}" if kind else ""


def change(before: VerdictKind | None, after: VerdictKind | None) -> str:
    """`❌ fails → ✅ loads`, or the one verdict that stays."""
    return verdict(before) if before == after else f"{verdict(before)} → **{verdict(after)}**"


def matrix_lines(before: Verdicts, after: Verdicts | None = None) -> list[str]:
    """The verdict matrix, a row for each range of releases; with `after` each cell says what changes."""
    parts = matrix.parts(before)
    rows = matrix.compared(before, before if after is None else after)
    cells = (
        [
            code(row.engine, cell=True),
            escaped(span(row.first, row.last, PAGE)),
            *(change(row.before.get(part), row.after.get(part)) for part in parts),
        ]
        for row in rows
    )
    return table(["engine", "releases", *parts], cells)


def cause_lines(rows: Verdicts) -> list[str]:
    """Why an engine does not load a part, a line a cause; only what goes wrong, not what is unsupported."""
    lines = []
    for why in matrix.causes(rows):
        if why.verdict not in ("fails", "degrades"):
            continue
        text = f"- {code(why.engine)} {escaped(spans(why.spans, PAGE))}: {listed(why.parts)} {why.verdict}"
        text += f": {escaped(why.reason)}" if why.reason else ""
        lines.append(text + (f": {code(why.error)}" if why.error else ""))
    return lines


def finding_lines(finding: Finding, rule: RuleText | None) -> list[str]:
    """A finding as an item of a list, with its evidence below."""
    name = f" {escaped(rule.name)}" if rule else ""
    lines = [f"- **{finding.severity} {escaped(finding.rule)}{name}**: {escaped(finding.message)}"]
    if finding.modules:
        lines.append(f"  - modules: {modules(finding.modules, finding.module_count)}")
    if finding.engines:
        lines.append(f"  - engines: {', '.join(map(code, finding.engines))}")
    if finding.locations:
        lines.append(f"  - where: {', '.join(code(f'{place.file} {place.pointer}') for place in finding.locations)}")
    if finding.hint:
        lines.append(f"  - help: {escaped(finding.hint)}")
    return lines


def modules(names: Sequence[str], count: int = 0) -> str:
    """Names in brace form, the first few of them, and how many there are."""
    groups = collapsed(names)
    shown = ", ".join(code(group.pattern) for group in groups[:_MOST_GROUPS])
    total = max(count, sum(group.size for group in groups))
    more = ", …" if len(groups) > _MOST_GROUPS else ""
    return f"{shown}{more} ({plural(total, 'module')})" if total > 1 else shown


def edit_text(edit: Edit) -> str:
    """An operation in words; the place is the list's where an entry is added to its end."""
    value = code(edit.value if isinstance(edit.value, str) else json.dumps(edit.value, ensure_ascii=False))
    words = {"add": f"add {value} to", "replace": f"set to {value}:", "remove": "remove"}
    return f"{words[edit.op]} {code(edit.pointer.removesuffix('/-'))}"


def entry_lines(plan: Plan) -> list[str]:
    """The operations of a plan, a list a file."""
    lines: list[str] = []
    for name in dict.fromkeys(edit.file for edit in plan.edits):
        own = [edit for edit in plan.edits if edit.file == name]
        lines += [f"- {code(name)}", *(f"  - {edit_text(edit)}" for edit in own[:_MOST_ENTRIES])]
        if len(own) > _MOST_ENTRIES:
            lines.append(f"  - and {len(own) - _MOST_ENTRIES:,} more")
    for heading, rows in human.weight_changes(plan):
        lines += [f"- {escaped(heading)}", *(f"  - {escaped(row)}" for row in rows)]
    return lines


def report_lines(report: Report, rules: Mapping[str, RuleText]) -> list[str]:
    """One report: verdict, what is stored, matrix, findings, the plan's entries."""
    sign, status = _SYMBOLS[human.mark(report)], report.status.replace("-", " ")
    lines = [f"## {sign} {escaped(report.source.id)}: {status}; {escaped(human.outlook(report))}", ""]
    lines += table(["", ""], ([name, text] for name, text in fact_cells(report)))
    if report.engines:
        lines += ["", *matrix_lines(report.engines, report.after or None)]
        lines += _paragraphs(cause_lines(report.engines))
    if report.findings:
        found = [line for one in report.findings for line in finding_lines(one, rules.get(one.rule))]
        lines += ["", "### Findings", "", *found]
    if not report.plan.empty:
        lines += ["", f"### The repair: {escaped(human.changes(report.plan))}", "", *entry_lines(report.plan)]
        then = human.prospect(report)
        lines += ["", f"After it: {escaped(then)}."] if then else []
    return lines + _paragraphs([f"- note: {escaped(note)}" for note in report.notes])


def _paragraphs(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def fact_cells(report: Report) -> list[tuple[str, str]]:
    """What is stored and declared, as label and Markdown."""
    stored = ", ".join(f"{name} ×{count:,}" for name, count in report.schemes.items())
    source = report.source.id + (f"@{report.source.revision}" if report.source.revision else "")
    return [
        ("source", code(source, cell=True)),
        ("family", escaped(report.family or "unknown")),
        ("format", escaped(report.format or "none")),
        ("stored", escaped(f"{plural(report.tensors, 'tensor')} in {plural(report.shards, 'shard')}: {stored}")),
        ("draft", escaped(human.draft_text(report.draft))),
    ]


def check_text(result: CheckResult, page: Page) -> str:
    """Every report."""
    blocks = [report_lines(report, result.rules) for report in result.reports]
    text = page_text(line for at, lines in enumerate(blocks) for line in ([""] if at else []) + lines)
    return spelled(text, page)


FORMAT = Format(name="markdown", check=check_text)
