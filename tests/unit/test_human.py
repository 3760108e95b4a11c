"""What people read, kept as files, and what holds for all of it: width, colour, encodings, hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable

import factories
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot import same_as_snapshot

from mtpfix.model import Contrast, Explanation, Plan, Reading, Report, Source
from mtpfix.output import human, listing, matrix, quiet
from mtpfix.output.base import (
    ChangePoint,
    CheckResult,
    Disagreement,
    EngineFacts,
    Page,
    Profile,
    Replayed,
    RuleList,
    TensorList,
)
from mtpfix.output.text import Cell, cells, clean, table, wrapped

BOOK = {rule.code: rule for rule in factories.RULES}
ANSI = re.compile(r"\x1b\[[0-9;]*m")
CHANGES = (
    ChangePoint("fp8", "0.13.0", "moe", "vllm 0.13.0 fp8.py:7"),
    ChangePoint("fp8", "0.13.0", "packed", "vllm 0.13.0 fp8.py:9"),
    ChangePoint("modelopt_fp4", "0.33.0", "leaf-lists", "vllm 0.33.0 modelopt.py:1"),
)
FACTS = (
    EngineFacts(
        "vllm",
        ("0.12.0", "0.13.0", "0.33.0"),
        CHANGES,
        (
            Profile("fp8", "0.12.0", "0.12.0", 34),
            Profile("fp8", "0.13.0", "0.33.0", 120, CHANGES[:2]),
            Profile("modelopt_fp4", "0.33.0", "0.33.0", 0, CHANGES[2:]),
        ),
    ),
    EngineFacts("transformers", ("5.24.0",)),
)
REPLAYED = Replayed(
    (Disagreement("a.jsonl:7", "vllm", "fp8", "0.33.0", "mtp.fc", "error ValueError", "plain", "/ignore/0 'mtp.fc'"),),
    {("vllm", "fp8", "0.33.0"): 3, ("vllm", "fp8", "0.32.0"): 1, ("sglang", "awq", "0.5.23"): 2},
    1,
)


def checked(page: Page, *reports: Report) -> str:
    return human.FORMAT.check(CheckResult(reports, BOOK, several=len(reports) > 1), page)


def report_text(report: Report) -> Callable[[Page], str]:
    return lambda page: checked(page, report)


VIEWS: dict[str, Callable[[Page], str]] = {
    "check-fixable": report_text(factories.fixable()),
    "check-clean": report_text(factories.clean()),
    "check-not-fixable": report_text(factories.not_fixable()),
    "check-several": lambda page: checked(page, factories.clean(), factories.not_fixable()),
    "explain": lambda page: listing.explain_text(Explanation(factories.decisions()), page),
    "list": lambda page: listing.tensors_text(TensorList(factories.tensors()), page),
    "list-all": lambda page: listing.tensors_text(TensorList(factories.tensors()[:3], every=True), page),
    "rules": lambda page: listing.rules_text(RuleList(factories.RULES), page),
    "rule": lambda page: listing.rules_text(RuleList(factories.RULES[:1], whole=True), page),
    "engines": lambda page: listing.engines_text(FACTS, page),
    "replayed": lambda page: listing.replayed_text(REPLAYED, page),
}


@pytest.mark.parametrize("view", VIEWS)
def test_at_80_columns(view: str) -> None:
    same_as_snapshot(VIEWS[view](Page(80)), f"{view}.txt")


@pytest.mark.parametrize("view", ["check-fixable", "check-not-fixable", "explain"])
def test_at_60_columns_without_unicode(view: str) -> None:
    text = VIEWS[view](Page(60, encoding="ascii"))
    assert text.isascii()
    same_as_snapshot(text, f"{view}-60-ascii.txt")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_no_line_is_wider_than_the_page(view: str, width: int, encoding: str) -> None:
    text = VIEWS[view](Page(width, encoding=encoding))
    assert max(map(cells, text.splitlines())) <= width
    text.encode(encoding)


@pytest.mark.parametrize("view", VIEWS)
def test_colour_adds_codes_and_nothing_else(view: str) -> None:
    coloured = VIEWS[view](Page(80, colour=True))
    assert "\x1b[" in coloured
    assert [line.rstrip() for line in ANSI.sub("", coloured).splitlines()] == VIEWS[view](Page(80)).splitlines()


@pytest.mark.parametrize("view", VIEWS)
def test_lines_have_no_blanks_at_their_ends(view: str) -> None:
    text = VIEWS[view](Page(80))
    assert [line.rstrip() for line in text.splitlines()] == text.splitlines()
    assert text.endswith("\n")
    assert "\n\n\n" not in text


def test_the_first_line_is_the_verdict() -> None:
    first = checked(Page(80), factories.fixable()).splitlines()[0]
    assert first == "✗ Qwen3-Next-80B-A3B-Instruct-NVFP4: fixable; draft fails in vllm, degrades in"
    first = checked(Page(80), factories.clean(source=Source("local", "."))).splitlines()[0]
    assert first == "✓ .: clean; loads in vllm and sglang"


def test_outlook() -> None:
    rows = factories.engine_rows
    both = (*rows("vllm", "target", ("0.12.0", "fails")), *rows("vllm", "draft", ("0.12.0", "fails")))
    assert human.outlook(factories.fixable(engines=both)) == "target and draft fail in vllm"
    unknown = (*rows("vllm", "target", ("0.12.0", "unknown")), *rows("sglang", "target", ("0.5.9", "unsupported")))
    assert human.outlook(factories.clean(engines=unknown)) == "no modelled engine is known to load it"
    assert human.outlook(factories.fixable(engines=unknown)) == "1 error"
    assert human.mark(factories.clean(engines=unknown)) == "unknown"
    assert human.mark(factories.clean(engines=rows("vllm", "draft", ("0.12.0", "unsupported")))) == "unsupported"
    half = (*rows("vllm", "draft", ("0.12.0", "loads")), *rows("sglang", "draft", ("0.5.9", "fails")))
    assert human.outlook(factories.clean(engines=half)) == "loads in vllm; draft fails in sglang"
    older = (
        *rows("vllm", "draft", ("0.12.0", "fails"), ("0.25.0", "loads")),
        *rows("sglang", "draft", ("0.5.9", "degrades"), ("0.5.20", "fails")),
        *rows("tensorrt-llm", "draft", ("snapshot-1", "fails"), ("snapshot-3", "loads")),
    )
    assert human.outlook(factories.fixable(engines=older)) == "draft fails in sglang and older vllm"
    assert human.outlook(factories.clean(engines=older)) == "loads in vllm and tensorrt-llm; draft fails in sglang"


def test_what_the_fix_makes_of_it() -> None:
    rows = factories.engine_rows
    after = (
        *rows("vllm", "draft", ("0.12.0", "fails"), ("0.25.0", "loads")),
        *rows("sglang", "draft", ("0.5.9", "fails")),
    )
    report = factories.fixable(after=after)
    assert human.prospect(report) == "loads in vllm; draft fails in sglang"
    assert "  after it: loads in vllm; draft fails in sglang" in checked(Page(80), report).splitlines()
    assert human.prospect(factories.fixable()) == ""


def test_what_only_a_base_mends_is_told_with_the_command() -> None:
    hint = "restore them from the base checkpoint: mtpfix graft DIR --from BASE"
    report = factories.not_fixable(findings=(factories.finding(severity="error", fix="none", hint=hint),))
    told = f"Restore: mtpfix graft {report.source.id} --from BASE"
    assert told in checked(Page(200), report).splitlines()
    elsewhere = factories.not_fixable(findings=report.findings, source=Source("hub", "org/m", "1" * 40))
    assert "Restore:" not in checked(Page(200), elsewhere)


def test_clean_with_trouble_is_no_green_tick() -> None:
    rows = factories.engine_rows
    some = (*rows("vllm", "draft", ("0.12.0", "fails")), *rows("sglang", "draft", ("0.5.9", "loads")))
    assert checked(Page(80, colour=True), factories.clean(engines=some)).startswith("\x1b[1;33m! ")
    assert checked(Page(80, colour=True), factories.clean()).startswith("\x1b[1;32m✓ ")


def test_the_matrix_says_what_the_plan_makes_of_a_verdict() -> None:
    before = factories.engine_rows("vllm", "draft", ("0.12.0", "fails"), ("0.25.0", "loads"))
    after = factories.engine_rows("vllm", "draft", ("0.12.0", "loads"))
    report = factories.fixable(engines=before, after=after)
    text = checked(Page(80), report)
    assert re.search(r"vllm +0\.25\.0–0\.33\.0 +✓ loads\n +0\.12\.0–0\.24\.0 +✗ fails → ✓ loads\n", text)
    assert "\x1b[31m✗ fails\x1b[0m → \x1b[32m✓ loads\x1b[0m" in checked(Page(80, colour=True), report)
    cell = Cell("✗ fails", ("red",), Cell("✓ loads", ("green",)))
    below = table([[Cell("vllm"), cell, Cell("! degrades")]], Page(30, colour=True))
    assert below == ["  vllm  \x1b[31m✗ fails\x1b[0m     ! degrades", "        \x1b[32m→ ✓ loads\x1b[0m"]
    assert "x fails -> + loads" in checked(Page(80, encoding="ascii"), report)


def test_stored_stands_beside_what_is_built() -> None:
    contrasts = (
        Contrast("bf16", "nvfp4", ("vllm", "sglang<0.5.20"), ("mtp.fc", "mtp.norm")),
        Contrast("fp8", "fp8", ("vllm",), ("mtp.head",)),
    )
    item = factories.finding(modules=("mtp.fc", "mtp.norm"), module_count=2, contrasts=contrasts)
    lines = human.finding_lines(item, None, Page(80))
    assert "  stored   bf16 → built nvfp4 by vllm, sglang<0.5.20" in lines
    assert "  modules  mtp.{fc,norm} ×2" in lines
    assert not any(line.startswith("  engines") for line in lines)
    # Where nothing is built otherwise, or modules are left over, all of them are named, and the engines.
    rest = human.finding_lines(factories.finding(contrasts=contrasts[1:]), None, Page(80))
    assert any(line.startswith("  engines  vllm, sglang") for line in rest)


def test_releases_that_know_nothing_share_a_line() -> None:
    rows = (
        *factories.engine_rows("vllm", "draft", ("0.12.0", "unsupported"), ("0.30.0", "loads"), reason="not known"),
        *factories.engine_rows("sglang", "draft", ("0.5.9", "unsupported"), ("0.5.20", "loads"), reason="not known"),
    )
    text = checked(Page(100), factories.clean(engines=rows))
    assert "  vllm 0.12.0–0.29.0, sglang 0.5.9–0.5.19: draft unsupported: not known\n" in text


def test_text_stays_readable_on_a_wide_page() -> None:
    report = factories.fixable(notes=("word " * 60,))
    assert max(len(line) for line in checked(Page(200), report).splitlines() if "word" in line) <= 110


def test_an_unknown_family_is_no_success() -> None:
    report = factories.clean(engines=factories.engine_rows("vllm", "target", ("0.12.0", "unknown")))
    assert checked(Page(80), report).startswith("? ")


HOSTILE = "mtp.\x1b[31mred\x07\u202eltr\u200b\x9b\n\t\ud800名.fc"


def test_names_cannot_steer_the_terminal() -> None:
    report = factories.fixable(
        source=Source("local", HOSTILE),
        family=HOSTILE,
        family_reason=HOSTILE,
        format=HOSTILE,
        schemes={HOSTILE: 1},
        engines=factories.engine_rows("vllm", "draft", ("0.12.0", "fails"), reason=HOSTILE, error=HOSTILE),
        findings=(
            factories.finding(
                rule=HOSTILE, message=HOSTILE, hint=HOSTILE, engines=(HOSTILE,), modules=(HOSTILE,), module_count=9
            ),
        ),
        plan=Plan(held_back=(HOSTILE,)),
        notes=(HOSTILE,),
    )
    row = factories.decision(module=HOSTILE, runtime_name=HOSTILE, stored=HOSTILE, rule=HOSTILE, scheme=HOSTILE)
    tensor = factories.FakeTensor(HOSTILE, HOSTILE, (1,), HOSTILE, HOSTILE, HOSTILE)
    for encoding in ("utf-8", "ascii"):
        page = Page(80, encoding=encoding)
        text = checked(page, report) + listing.explain_text(
            Explanation((row,), (Reading(HOSTILE, "tensor", (HOSTILE,)),)), page
        )
        text += listing.tensors_text(TensorList((tensor,), every=True), page)
        text += listing.tensors_text(TensorList((tensor,)), page) + quiet.FORMAT.check(CheckResult((report,)), page)
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert "\\x1b[31m" in text.replace("\n", "")
        text.encode(encoding)


@given(st.text(max_size=40), st.sampled_from(["utf-8", "ascii", "latin-1", "cp1252", "no-such-encoding"]))
def test_clean_text_is_printable_and_fits_the_encoding(text: str, encoding: str) -> None:
    shown = clean(text, Page(encoding=encoding))
    assert shown.isprintable()
    shown.encode("ascii" if encoding == "no-such-encoding" else encoding)


@given(st.text(alphabet="ab ./_é名\u0301", max_size=60), st.integers(8, 30))
def test_wrapped_text_fits_and_loses_nothing(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_the_parts_of_a_module_of_both_are_told_apart() -> None:
    rows = (
        factories.decision(module="lm_head", part="draft", runtime_name="head"),
        factories.decision(module="lm_head", part="target", runtime_name="lm_head"),
    )
    lines = listing.explain_text(Explanation(rows), Page(100)).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("  vllm")] == ["target", "draft"]
    alone = listing.explain_text(Explanation(rows[:1]), Page(100)).splitlines()
    assert [line.split()[2] for line in alone if line.startswith("  vllm")] == ["✗"]


def test_long_names_break_after_a_dot() -> None:
    assert wrapped("model.layers.0.self_attn", 16) == ["model.layers.0.", "self_attn"]
    assert wrapped("abcdefghij_klm", 12) == ["abcdefghij_", "klm"]
    assert wrapped("a" * 20, 12) == ["a" * 12, "a" * 8]


def test_a_table_shrinks_its_widest_column() -> None:
    lines = table([[Cell("a" * 90), Cell("short")], [Cell("b"), Cell("x")]], Page(60))
    assert [len(line) for line in lines] == [60, 41, 56]


def test_releases_are_merged_where_verdicts_agree() -> None:
    rows = factories.engine_rows(
        "vllm", "draft", ("0.12.0", "fails"), ("0.20.0", "fails"), ("0.25.0", "loads"), ("0.30.0", "fails"), reason="r"
    )
    assert [(row.first, row.last, row.before) for row in matrix.compared(rows, rows)] == [
        ("0.30.0", "0.33.0", {"draft": "fails"}),
        ("0.25.0", "0.29.0", {"draft": "loads"}),
        ("0.12.0", "0.24.0", {"draft": "fails"}),
    ]
    (cause,) = matrix.causes(rows)
    assert cause.spans == (("0.30.0", "0.33.0"), ("0.12.0", "0.24.0"))


def test_parts_may_be_cut_at_different_releases() -> None:
    rows = (
        *factories.engine_rows("vllm", "target", ("0.12.0", "loads"), ("0.20.0", "fails")),
        *factories.engine_rows("vllm", "draft", ("0.12.0", "fails"), ("0.25.0", "loads")),
    )
    assert [(row.first, dict(row.before)) for row in matrix.compared(rows, rows)] == [
        ("0.25.0", {"target": "fails", "draft": "loads"}),
        ("0.20.0", {"target": "fails", "draft": "fails"}),
        ("0.12.0", {"target": "loads", "draft": "fails"}),
    ]


def test_a_long_tail_of_modules_is_counted_not_listed() -> None:
    names = tuple(f"m{number}x.{'abcdefghijkl'[number]}{number}" for number in range(12))
    lines = human.modules_listed(factories.finding(modules=names, module_count=12), Page())
    assert len(lines) == 8
    assert lines[-1] == "… and 5 more (--format json lists all)"


def test_quiet_names_the_sources_with_errors() -> None:
    result = CheckResult((factories.clean(), factories.not_fixable()), BOOK, several=True)
    assert quiet.FORMAT.check(result, Page()) == "/data/gemma-4-assistant-NVFP4\n"
    assert quiet.FORMAT.check(CheckResult((factories.clean(),)), Page()) == ""


DIFF = '--- config.json\n+++ config.json\n@@ -1 +1 @@\n-\t"a"\n+\t"b\u202e"\n same\n'


def test_a_diff_is_coloured_for_people_and_exact_for_pipes() -> None:
    assert human.diff_text(DIFF, Page()) == DIFF
    assert human.diff_text(DIFF, Page(colour=True)).splitlines() == [
        "\x1b[1m--- config.json\x1b[0m",
        "\x1b[1m+++ config.json\x1b[0m",
        "\x1b[36m@@ -1 +1 @@\x1b[0m",
        '\x1b[31m-    "a"\x1b[0m',
        '\x1b[32m+    "b\\u202e"\x1b[0m',
        " same",
    ]


def test_the_certificate_in_words() -> None:
    assert " ".join(human.certificate_lines(factories.plan(), Page(80))) == (
        "Checked: 49,340 modules, 36,912 of them stored quantized; 3,106 decisions of 2 engine releases before and "
        "after; 0 quantized modules became plain."
    )
    assert human.certificate_lines(Plan(), Page()) == []


def test_no_matrix_no_draft_no_findings() -> None:
    report = factories.clean(
        engines=(),
        draft=factories.fixable().draft.__class__(None, 0, 0, {}, 0),
        family="",
        format="",
        source=Source("local", "x"),
    )
    text = checked(Page(80), report)
    assert "draft   none" in text
    assert "format  none" in text
    assert "family  unknown" in text
