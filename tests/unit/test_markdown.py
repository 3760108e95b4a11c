"""Markdown for step summaries and pull requests: what is in it, and that foreign strings cannot act."""

from __future__ import annotations

import re
from dataclasses import replace

import factories
import pytest

from mtpfix.hub.describe import describe, fingerprint, mark, marks
from mtpfix.model import Edit, Plan, Source
from mtpfix.output import markdown
from mtpfix.output.base import CheckResult, Page

BOOK = {rule.code: rule for rule in factories.RULES}
HOSTILE = "a`b|c\n<!-- mtpfix-repair: sha256=" + "0" * 64 + " -->\n@all <script> [x](http://evil) ![i](x) \x1b[31m"


def text(*reports: object) -> str:
    return markdown.FORMAT.check(CheckResult(reports, BOOK), Page())  # type: ignore[arg-type]


@pytest.mark.parametrize("report", [factories.fixable(), factories.clean(), factories.not_fixable()])
def test_every_report_has_its_verdict_and_matrix(report: object) -> None:
    shown = text(report)
    assert shown.startswith("## ")
    assert "| engine | releases | " in shown
    assert shown.endswith("\n")


def test_every_line_of_a_table_has_the_same_cells() -> None:
    report = factories.fixable(source=Source("hub", "a|b", "c|d"), family="x|y")
    for block in text(report).split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_foreign_strings_do_nothing() -> None:
    finding = factories.finding(message=HOSTILE, modules=(HOSTILE,), hint=HOSTILE)
    plan = factories.plan(edits=(Edit("config.json", "add", "/quantization_config/ignore/-", HOSTILE),))
    report = factories.fixable(source=Source("hub", HOSTILE), findings=(finding,), plan=plan)
    shown = text(report)
    assert marks(shown) == ()
    assert "\x1b" not in shown
    assert "\n@" not in shown
    outside = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", shown)
    assert not re.search(r"<script>|(?<!\\)\]\(|@all|://", outside)
    assert not re.search(r"(?<!\\)[\[\]]|://", markdown.escaped(HOSTILE))
    assert "@" not in markdown.escaped(HOSTILE)


@pytest.mark.parametrize("name", ["a", "`", "a``b", "`a`", "", "a|b"])
def test_a_code_span_holds_any_name(name: str) -> None:
    shown = markdown.code(name)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(fence)
    inner = shown[len(fence) : -len(fence)]
    assert fence not in inner.split()
    assert name in inner


def test_a_report_says_what_the_repair_makes_of_it_and_bears_the_sign_of_the_other_formats() -> None:
    rows = factories.engine_rows
    before, after = (rows("vllm", "draft", ("0.12.0", verdict)) for verdict in ("fails", "loads"))
    shown = text(factories.fixable(engines=before, after=after))
    assert "| ❌ fails → **✅ loads** |" in shown
    assert "\n\nAfter it: loads in vllm.\n" in shown
    unsupported = factories.clean(engines=rows("vllm", "draft", ("0.12.0", "unsupported")))
    assert text(unsupported).startswith("## – ")


def test_before_and_after_share_a_table() -> None:
    before = factories.fixable().engines
    after = tuple(replace(row, verdict="loads") if row.verdict == "fails" else row for row in before)
    shown = "\n".join(markdown.matrix_lines(before, after))
    assert "❌ fails → **✅ loads**" in shown
    assert "⚠️ degrades → " not in shown


def test_a_description_carries_one_fingerprint_in_its_own_line() -> None:
    finding = factories.finding(message=HOSTILE, modules=(HOSTILE,), hint=HOSTILE)
    report = factories.fixable(findings=(finding,), source=Source("hub", "org/name", "c0ffee"))
    found = describe(report, factories.clean(), factories.RULES)
    assert marks(found.body) == (found.fingerprint,)
    assert "config.json" in found.title
    assert "org/name@c0ffee" in found.body


def test_the_fingerprint_knows_no_repository_and_no_places() -> None:
    def plan(*entries: str, at: int) -> Plan:
        raw = ('{"ignore": [' + ", ".join(f'"{entry}"' for entry in entries) + "]}").encode()
        edits = (Edit("config.json", "remove", f"/ignore/{at}"), Edit("config.json", "add", "/ignore/-", "new"))
        return Plan(edits, {"config.json": raw}, {}, source=Source("hub", f"org/{at}"))

    one, other = plan("old", "b", at=0), plan("a", "b", "old", at=2)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(plan("else", at=0))
    assert marks(f"x\r\n{mark(fingerprint(one))}\r\n") == (fingerprint(one),)
    assert marks(f"x {mark(fingerprint(one))}") == ()
