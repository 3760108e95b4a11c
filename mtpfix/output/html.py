"""The report as one self-contained web page: verdict, matrix, findings, diff, and the checkpoint as a map.

All but the map is written here and reads without JavaScript; assets/map.js draws the map from `mapdata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mtpfix
from mtpfix.model import Finding, Report, VerdictKind
from mtpfix.names import brief
from mtpfix.output import human, matrix
from mtpfix.output.base import CheckResult, Format, Page, RuleText
from mtpfix.output.collapse import collapsed
from mtpfix.output.listing import span, spans
from mtpfix.output.mapdata import MOST_CELLS, map_data
from mtpfix.output.page import SHOWN, asset, code, document, element, escaped, table
from mtpfix.output.text import listed, page_text
from mtpfix.tokens import masked

_MARKS: dict[VerdictKind, tuple[str, str]] = {
    "loads": ("✓", "good"),
    "fails": ("✗", "bad"),
    "degrades": ("!", "warn"),
    "unsupported": ("–", "faint"),
    "unknown": ("?", "faint"),
}
_TONES = {"error": "bad", "warning": "warn", "note": "faint"}
_MOST_GROUPS = 12
_LONGEST_DIFF, _LONGEST_LINE = 120_000, 2000
_MAP = "The checkpoint as a map"
_FOOT = "Verdicts are predictions, read from the engines' sources and held to recorded loads."
_LINES = {"+": "add", "-": "del", "@": "at"}


def check_page(result: CheckResult, _page: Page) -> str:
    """One page with every report; where there are several each can be folded away."""
    data = [map_data(report.atlas) if report.atlas else None for report in result.reports]
    bodies = [
        _report(report, result, _map(at, data[at] is not None) if report.atlas else "")
        for at, report in enumerate(result.reports)
    ]
    if result.several:
        bodies = [_folding(report, body) for report, body in zip(result.reports, bodies, strict=True)]
    title = ", ".join(human.title(report.source) for report in result.reports)
    foot = escaped(f"mtpfix {mtpfix.__version__}. {_FOOT}")
    body = f"<main>{''.join(bodies)}</main><footer>{foot}</footer>"
    return document(f"mtpfix: {title}", body, style=asset("map.css"), script=asset("map.js"), data=data)


def _folding(report: Report, body: str) -> str:
    """A report that can be folded away; one without errors is."""
    opened = {} if report.status == "clean" else {"open": ""}
    return element("details", element("summary", escaped(human.title(report.source))) + body, class_="report", **opened)


def _report(report: Report, result: CheckResult, drawn: str) -> str:
    return "".join(
        (
            _head(report),
            _loads(report),
            drawn,
            _findings(report, result),
            _fix(report),
            "".join(element("p", f"note: {escaped(note)}", class_="faint") for note in report.notes),
        )
    )


def _head(report: Report) -> str:
    """The verdict and the way out first, then what the checkpoint is."""
    symbol, tone = _MARKS[human.mark(report)]
    status = element("span", escaped(human.STATUS[report.status]), class_=f"pill {tone}")
    typed = human.command(report)
    copy = element("button", "copy", type="button", class_="copy", hidden="")
    fix = element("div", element("pre", escaped(typed)) + copy, class_="command") if typed else ""
    then = human.prospect(report)
    fix += element("p", f"after it: {escaped(then)}", class_="faint") if fix and then else ""
    source = report.source
    facts = {
        "source": f"{source.id} at {source.revision}" if source.revision else source.id,
        "family": report.family + (f" ({report.family_reason})" if report.family_reason else ""),
        "format": report.format or "none",
        "stored": human.stored_text(report),
        "draft": human.draft_text(report.draft),
    }
    described = "".join(f"<dt>{name}</dt><dd>{escaped(text)}</dd>" for name, text in facts.items())
    return (
        f'<header><h1><span class="{tone}" aria-hidden="true">{symbol}</span> {escaped(human.title(source))}</h1>'
        f'<p class="verdict">{status} {escaped(human.outlook(report))}</p>{fix}'
        f'<dl class="facts">{described}</dl></header>'
    )


def _loads(report: Report) -> str:
    """The verdict matrix and what stands behind it."""
    if not report.engines:
        return ""
    parts = matrix.parts(report.engines)
    rows = (
        [
            f"<strong>{escaped(row.engine)}</strong>",
            escaped(span(row.first, row.last, SHOWN)),
            *(_change(row.before.get(part), row.after.get(part)) for part in parts),
        ]
        for row in matrix.compared(report.engines, report.after or report.engines)
    )
    after = " and what the fix makes of it" if report.after else ""
    grid = table(["engine", "releases", *parts], rows, class_="matrix")
    return f'<section><h2>What loads{after}</h2><div class="loads">{grid}<div>{_causes(report)}</div></div></section>'


def _change(before: VerdictKind | None, after: VerdictKind | None) -> str:
    if before is None or before == after or after is None:
        return _verdict(before)
    return f'<span class="before">{_verdict(before)}</span> → {_verdict(after)}'


def _verdict(kind: VerdictKind | None) -> str:
    return element("span", f"{_MARKS[kind][0]} {kind}", class_=f"v {_MARKS[kind][1]}") if kind else ""


def _causes(report: Report) -> str:
    """What goes wrong, the engine's own words below; what is only unsupported or unknown in small print."""
    found = matrix.causes(report.engines)
    wrong = [_cause(why) for why in found if why.verdict in ("fails", "degrades")]
    rest = human.silences(found, SHOWN)
    small = element("p", "<br>".join(map(escaped, rest)), class_="more") if rest else ""
    return (element("ul", "".join(wrong), class_="causes") if wrong else "") + small


def _cause(why: matrix.Why) -> str:
    head = f"<strong>{escaped(why.engine)} {escaped(spans(why.spans, SHOWN))}</strong>: {escaped(listed(why.parts))} "
    text = head + element("span", escaped(why.verdict), class_=_MARKS[why.verdict][1]) + f": {escaped(why.reason)}"
    where = f" at {code(human.first_few(why.modules))}" if why.modules else ""
    error = element("pre", escaped(why.error), class_="error-text") if why.error else ""
    return element("li", text + where + error)


def _map(at: int, drawable: bool) -> str:
    if not drawable:
        return f"<section><h2>{_MAP}</h2><p>Left out: it would have more than {MOST_CELLS:,} cells.</p></section>"
    return (
        f'<section><h2>{_MAP}</h2><div class="map" data-at="{at}">'
        "<noscript>The map is drawn by JavaScript, which is switched off. All else is on this page.</noscript>"
        "</div></section>"
    )


def _findings(report: Report, result: CheckResult) -> str:
    if not report.findings:
        return ""
    cards = "".join(_finding(item, result.rules.get(item.rule)) for item in report.findings)
    return f"<section><h2>Findings</h2>{cards}</section>"


def _finding(finding: Finding, rule: RuleText | None) -> str:
    tone = _TONES[finding.severity]
    name = f" {escaped(rule.name)}" if rule else ""
    fix = human.FIXES[finding.fix]
    head = (
        element("span", escaped(finding.severity), class_=f"pill {tone}")
        + f" {escaped(finding.rule)}{name}"
        + (element("span", f" {escaped(fix)}", class_="faint") if fix else "")
    )
    facts = [
        *_contrasts(finding),
        ("where", "<br>".join(code(f"{place.file} {place.pointer}") for place in finding.locations)),
        ("help", escaped(finding.hint)),
    ]
    described = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    body = f"<h3>{head}</h3><p>{escaped(finding.message)}</p><dl class='facts'>{described}</dl>"
    return element("article", body, class_="card")


def _contrasts(finding: Finding) -> list[tuple[str, str]]:
    """Stored beside built, and the modules; the engines by themselves where they build nothing otherwise."""
    rows: list[tuple[str, str]] = []
    for one in human.unlike(finding):
        built = f"<strong>{escaped(one.stored)}</strong> → built <strong>{escaped(one.built)}</strong>"
        rows.append(("stored", f"{built} by {', '.join(map(code, one.engines))}"))
        rows.append(("modules", _modules(one.modules)))
    return rows or [("modules", _modules(finding.modules)), ("engines", ", ".join(map(code, finding.engines)))]


def _modules(names: Sequence[str]) -> str:
    groups = collapsed(names)
    lines = [code(group.pattern) + (f" ×{group.size:,}" if group.size > 1 else "") for group in groups[:_MOST_GROUPS]]
    if len(groups) > _MOST_GROUPS:
        lines.append(f"and {len(groups) - _MOST_GROUPS:,} more")
    return "<br>".join(lines)


def _fix(report: Report) -> str:
    """The diff with its certificate, and what is held back."""
    held = "".join(element("li", escaped(words)) for words in report.plan.held_back)
    held = f"<p>Held back as unsafe:</p><ul>{held}</ul>" if held else ""
    if report.plan.empty:
        return f"<section><h2>The fix</h2>{held}</section>" if held else ""
    text = masked(human.diff_of(report.plan) + page_text(human.weight_lines(report.plan, SHOWN)))
    lines = "".join(_diff_lines(text[:_LONGEST_DIFF].removesuffix("\n").split("\n")))
    cut = "" if len(text) <= _LONGEST_DIFF else "<p>The rest: mtpfix apply --dry-run</p>"
    proof = " ".join(human.certificate_lines(report.plan, SHOWN))
    return (
        f"<section><h2>The fix</h2><p>{escaped(human.changes(report.plan))}</p>"
        f'<pre class="diff" tabindex="0">{lines}</pre>{cut}<p class="more">{escaped(proof)}</p>{held}</section>'
    )


def _diff_lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        kind = "file" if line.startswith(("---", "+++")) else _LINES.get(line[:1], "same")
        shown = brief(line.removesuffix("\r").replace("\t", "    "), _LONGEST_LINE)
        yield element("span", escaped(shown), class_=kind)


FORMAT = Format(name="html", check=check_page, mapped=True)
