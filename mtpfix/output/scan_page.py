"""A scan as one self-contained web page: what is wrong first, what is right folded away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import mtpfix
from mtpfix.names import beginning
from mtpfix.output.page import code, document, element, escaped, table

Row = Mapping[str, Any]
_TONES = {"clean": "good", "fixable": "bad", "partly-fixable": "bad", "not-fixable": "bad", "unreadable": "warn"}
_MARKS = {"loads": ("✓", "good"), "fails": ("✗", "bad"), "degrades": ("!", "warn")}
_FIRST = ("vllm", "sglang")
_SHORT = 12
_STYLE = "\n.scan td { white-space: nowrap; }\n"


def scan_page(rows: Sequence[Row], *, title: str, hub: str) -> str:
    """The page of all rows. `title` says what was scanned, `hub` is the address that the names lead to."""
    ordered = sorted(rows, key=lambda row: str(row["repository"]).lower())
    wrong = [row for row in ordered if row["status"] not in ("clean", "unreadable")]
    clean = [row for row in ordered if row["status"] == "clean"]
    unreadable = [row for row in ordered if row["status"] == "unreadable"]
    body = (
        f"<h1>{escaped(title)}</h1>{_counts(rows)}"
        + _rules(wrong)
        + _section("To repair", _inspected(wrong, hub), len(wrong), opened=True)
        + _section("Clean", _inspected(clean, hub), len(clean))
        + _section("Not inspected", _unreadable(unreadable, hub), len(unreadable))
        + element("p", f"mtpfix {escaped(mtpfix.__version__)}", class_="faint")
    )
    return document(f"mtpfix: {title}", f"<main>{body}</main>", style=_STYLE)


def _counts(rows: Sequence[Row]) -> str:
    counts = Counter(str(row["status"]) for row in rows)
    pills = [
        element("span", escaped(f"{counts[status]:,} {status}"), class_=f"pill {tone}")
        for status, tone in _TONES.items()
        if counts[status]
    ]
    total = f"{len(rows):,} {'repository' if len(rows) == 1 else 'repositories'}"
    return element("p", " ".join([escaped(total), *pills]))


def _rules(rows: Iterable[Row]) -> str:
    """How many repositories have an error of each rule."""
    counts = Counter(rule for row in rows for rule in row["findings"])
    if not counts:
        return ""
    lines = ([code(rule), f"{count:,}"] for rule, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    return f"<h2>Errors</h2>{table(['rule', 'repositories'], lines)}"


def _section(heading: str, inner: str, count: int, *, opened: bool = False) -> str:
    if not count:
        return ""
    summary = element("summary", element("strong", escaped(f"{heading} ({count:,})")))
    return element("details", summary + inner, **({"open": ""} if opened else {}))


def _inspected(rows: Sequence[Row], hub: str) -> str:
    found = {name for row in rows for name in row["engines"]}
    engines = [*(name for name in _FIRST if name in found), *sorted(found.difference(_FIRST))]
    head = ["repository", "status", "errors", *engines, "entries", "family", "format"]
    return table((escaped(title) for title in head), (_cells(row, engines, hub) for row in rows), class_="scan")


def _cells(row: Row, engines: Sequence[str], hub: str) -> list[str]:
    status = str(row["status"])
    entries = row["entries"]
    found = ", ".join(f"{code(rule)} ×{count}" if count > 1 else code(rule) for rule, count in row["findings"].items())
    return [
        _link(row, hub),
        element("span", escaped(status), class_=f"pill {_TONES.get(status, 'faint')}"),
        found,
        *(_verdicts(row["engines"].get(name, {})) for name in engines),
        f"+{entries['added']:,} −{entries['removed']:,}" if entries["added"] or entries["removed"] else "",
        code(str(row["family"])),
        code(str(row["format"])),
    ]


def _verdicts(parts: Mapping[str, str]) -> str:
    return "<br>".join(_verdict(part, verdict) for part, verdict in parts.items())


def _verdict(part: str, verdict: str) -> str:
    mark, tone = _MARKS.get(verdict, ("–", "faint"))
    return element("span", escaped(f"{mark} {part} {verdict}"), class_=tone)


def _unreadable(rows: Iterable[Row], hub: str) -> str:
    cells = ([_link(row, hub), escaped(str(row["error"])), escaped(str(row["hint"]))] for row in rows)
    return table(["repository", "why", "what to do"], cells)


def _link(row: Row, hub: str) -> str:
    """The repository's name, leading to the state of it that was looked at; without that, the name alone."""
    name, revision = str(row["repository"]), row.get("revision")
    if not revision:
        return code(name)
    place = f"{hub}/{quote(name.partition('@')[0])}/tree/{quote(str(revision))}"
    shown = element("span", escaped(beginning(str(revision), _SHORT)), class_="faint")
    return f"{element('a', code(name), href=place)} {shown}"
