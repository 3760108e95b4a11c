"""SARIF and GitHub annotations: where they point, what they say, and that foreign strings cannot act."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import jsonschema
import pytest

import mtpfix
from mtpfix import splice
from mtpfix.model import Location, Report, Source
from mtpfix.output import FORMATS, github, sarif
from mtpfix.output.base import CheckResult, Page
from mtpfix.output.places import Places, Region, replacements
from mtpfix.rules import RULES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/config.json"))
BOOK = {rule.code: rule for rule in RULES}


def log(*reports: Report) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(sarif.FORMAT.check(CheckResult(reports, BOOK), Page()))
    return value


def results(*reports: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log(*reports)["runs"][0]["results"]
    return found


def commands(*reports: Report) -> list[str]:
    return github.FORMAT.check(CheckResult(reports, BOOK), Page()).splitlines()


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.name)
def report(request: pytest.FixtureRequest) -> Report:
    return mtpfix.check(request.param)


def regions(value: Any) -> Iterator[tuple[str, dict[str, int]]]:
    """Every region under a value and the file that it is in."""
    if isinstance(value, list):
        for each in value:
            yield from regions(each)
    elif isinstance(value, dict):
        if "artifactLocation" in value and "region" in value:
            yield value["artifactLocation"]["uri"], value["region"]
        for each in value.values():
            yield from regions(each)


def lines_of(uri: str) -> list[str]:
    return Path(uri.removeprefix("file://")).read_text("utf-8").split("\n")


# places


JSON = b'{\n  "a": [1, "x"],\n  "q": {\n    "ignore": [\n      "lm_head"\n    ]\n  }\n}\n'


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", Region(1, 1, 1, 2)),
        ("/a", Region(2, 3, 2, 16)),
        ("/a/1", Region(2, 12, 2, 15)),
        ("/q/ignore", Region(4, 5, 4, 16)),
        ("/q/ignore/0", Region(5, 7, 5, 16)),
        ("/q/ignore/-", Region(4, 5, 4, 16)),  # an entry that is not there yet: the list
        ("/q/none/deeper", Region(3, 3, 3, 9)),
        ("/a/0/deeper", Region(2, 9, 2, 10)),
    ],
)
def test_a_pointer_is_found(pointer: str, found: Region) -> None:
    place = Location("c.json", pointer)
    for raw in (JSON, b"\xef\xbb\xbf" + JSON, JSON.replace(b"\n", b"\r\n"), JSON.decode().encode("utf-16")):
        report = factories.clean(configs=(place,), texts={"c.json": raw})
        assert Places(report).region(place) == found


def test_what_is_no_json_or_not_at_hand_points_to_the_top() -> None:
    place = Location("c.json", "/a")
    assert Places(factories.clean(configs=(place,), texts={"c.json": b"{"})).region(place) == Region(1, 1, 1, 1)
    assert Places(factories.clean(configs=(place,))).region(place) == Region(1, 1, 1, 1)


def replaced(before: bytes, after: bytes) -> str:
    """The text that the replacements make of `before`, applied as SARIF says: by line and column, from the end."""
    text = before.decode()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for one in reversed(replacements(before, after)):
        at = one.region
        start, end = starts[at.line - 1] + at.column - 1, starts[at.end_line - 1] + at.end_column - 1
        text = text[:start] + one.text + text[end:]
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'["a"]', b'["a", "b"]'),
        (b'[\n "a"\n]\n', b'[\n "a",\n "b"\n]\n'),
        (b'[\n "a",\n "b"\n]\n', b'[\n "b"\n]\n'),
        (b'{"x": 1,\n"y": 2,\n"z": 3}', b'{"x": 7,\n"y": 2,\n"z": 8}'),
        ('[\n "ä𝄞"\n]'.encode(), '[\n "ä𝄞",\n "b"\n]'.encode()),
        (b"[]", b'["a"]'),
        (b"[1]\n", b"[1]\n"),
    ],
)
def test_replacements_lead_from_one_text_to_the_other(before: bytes, after: bytes) -> None:
    assert replaced(before, after) == after.decode()


def test_replacements_are_as_small_as_the_edit() -> None:
    found = replacements(b'[\n "a"\n]\n', b'[\n "a",\n "b"\n]\n')
    assert [(one.region, one.text) for one in found] == [(Region(2, 5, 2, 5), ',\n "b"')]


# SARIF


def test_every_finding_is_a_result_at_its_list(report: Report) -> None:
    found = results(report)
    assert [item["ruleId"] for item in found] == [finding.rule for finding in report.findings]
    for uri, region in regions(found):
        line = lines_of(uri)[region["startLine"] - 1]
        shown = line[region["startColumn"] - 1 : region["endColumn"] - 1]
        assert region["startLine"] == region["endLine"]
        whole = uri.endswith("hf_quant_config.json") and region["startLine"] == 1
        assert whole or re.match(r'"(quantization_config|ignore|exclude_modules|dynamic)": [{\[]', shown)


def test_rules_are_listed_once_and_found_by_their_index() -> None:
    reports = [mtpfix.check(path) for path in EXAMPLES]
    run = log(*reports)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert {rule["id"] for rule in rules} == {finding.rule for report in reports for finding in report.findings}
    for item in run["results"]:
        assert rules[item["ruleIndex"]]["id"] == item["ruleId"]
    for rule in rules:
        assert BOOK[rule["id"]].explanation in rule["help"]["markdown"]


def test_the_repair_is_carried_once_and_is_the_plan(report: Report) -> None:
    fixes = [fix for item in results(report) for fix in item.get("fixes", [])]
    assert len(fixes) == int(report.status == "fixable")
    for change in (change for fix in fixes for change in fix["artifactChanges"]):
        uri = change["artifactLocation"]["uri"]
        text, rows = "\n".join(lines_of(uri)), lines_of(uri)
        for one in reversed(change["replacements"]):
            at = one["deletedRegion"]
            start = sum(len(row) + 1 for row in rows[: at["startLine"] - 1]) + at["startColumn"] - 1
            end = sum(len(row) + 1 for row in rows[: at["endLine"] - 1]) + at["endColumn"] - 1
            text = text[:start] + one.get("insertedContent", {}).get("text", "") + text[end:]
        assert text.encode() == report.plan.after[Path(uri).name]


def test_the_same_finding_keeps_its_fingerprint_and_another_has_its_own() -> None:
    def prints(report: Report) -> list[str]:
        return [item["partialFingerprints"]["mtpfixFinding/v1"] for item in results(report)]

    report = factories.fixable()
    reworded = replace(report, findings=tuple(replace(one, message="other words") for one in report.findings))
    moved = replace(report, findings=tuple(replace(one, modules=("mtp.other",)) for one in report.findings))
    assert prints(report) == prints(reworded)
    assert not set(prints(report)) & set(prints(moved))


@pytest.mark.parametrize(
    ("source", "uri"),
    [
        (Source("local", "some dir/x#y"), "some%20dir/x%23y/config.json"),
        (Source("local", "./here/"), "here/config.json"),
        (Source("local", "."), "config.json"),
        (Source("local", "/data/x"), "file:///data/x/config.json"),
        (Source("hub", "org/name", "abc"), "hf://org/name@abc/config.json"),
        (Source("bundle", "x.mtpb"), "x.mtpb/config.json"),
        (Source("local", "C:odd"), "C%3Aodd/config.json"),
        (Source("local", os.fsdecode(b"/x\xff\xc3\xa9")), "file:///x%FF%C3%A9/config.json"),  # no UTF-8
    ],
)
def test_addresses(source: Source, uri: str) -> None:
    found = results(factories.fixable(source=source))[0]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_addresses_of_the_project_come_from_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from email.message import Message

    declared = Message()
    declared["Project-URL"] = "Documentation, https://example.org/docs/"
    declared["Project-URL"] = "Homepage, https://example.org"
    monkeypatch.setattr("importlib.metadata.metadata", lambda _name: declared)
    driver = log(mtpfix.check(EXAMPLES[0]))["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == "https://example.org"
    assert driver["rules"][0]["helpUri"] == "https://example.org/docs/rules/MTP001/"


def test_nothing_wrong_is_a_log_without_results() -> None:
    run = log(factories.clean())["runs"][0]
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


@pytest.mark.skipif("MTPFIX_SARIF_SCHEMA" not in os.environ, reason="MTPFIX_SARIF_SCHEMA names no schema")
def test_the_log_fits_the_schema(report: Report) -> None:
    schema = json.loads(Path(os.environ["MTPFIX_SARIF_SCHEMA"]).read_text("utf-8"))
    jsonschema.validate(log(report, factories.clean()), schema)


@pytest.mark.skipif(not shutil.which("sarif-multitool"), reason="no sarif-multitool on the PATH")
def test_the_validator_of_the_format_accepts_the_log(tmp_path: Path) -> None:
    reports = [mtpfix.check(path) for path in EXAMPLES]
    path = tmp_path / "x.sarif"
    path.write_text(sarif.FORMAT.check(CheckResult(tuple(reports), BOOK), Page()), "utf-8")
    out = tmp_path / "found.sarif"
    subprocess.run(
        ["sarif-multitool", "validate", str(path), "--rule-kind", "Sarif;Ghas", "--output", str(out)],
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"},
    )
    said = json.loads(out.read_text("utf-8-sig"))["runs"][0].get("results", [])
    assert [item["ruleId"] for item in said if item["ruleId"] != "SARIF2005"] == []


# GitHub


def test_an_annotation_stands_at_the_list(report: Report) -> None:
    shown = commands(report)
    assert len(shown) == len(report.findings)
    for line, finding in zip(shown, report.findings, strict=True):
        match = re.fullmatch(r"::(\w+) file=(.*),line=(\d+),col=(\d+),title=(\S+) \S+::(.*)", line)
        assert match
        assert match[1] == {"error": "error", "warning": "warning"}[finding.severity]
        assert match[5] == finding.rule
        text = Path(match[2]).read_text("utf-8").split("\n")[int(match[3]) - 1]
        assert text[int(match[4]) - 1] == '"'


def test_a_command_cannot_be_ended_or_begun_from_within() -> None:
    hostile = "50%\r\n::error::x\n::stop-commands::y"
    report = factories.fixable(
        source=Source("local", "a,line=9::b\n%"), findings=(factories.finding(message=hostile, hint="h\n::warning::"),)
    )
    (line,) = commands(report)
    head, _, message = line.removeprefix("::").partition("::")
    assert head.startswith("error file=a%2Cline=9%3A%3Ab%0A%25/config.json,line=1,col=1,title=MTP001 ")
    assert "50%25" in message
    assert "%0Ahelp: h%0A::warning::" in message


def test_a_repository_of_the_hub_has_no_file_here() -> None:
    (line,) = commands(factories.fixable(source=Source("hub", "org/name", "abc"), findings=(factories.finding(),)))
    assert line.startswith("::error title=MTP001 draft-not-excluded::org/name: ")


def test_both_formats_are_registered_and_only_sarif_is_uploaded() -> None:
    assert [form.name for form in FORMATS if form.uploaded] == ["sarif"]
    assert "github" in {form.name for form in FORMATS}


def test_stretches_refuse_what_is_no_json() -> None:
    with pytest.raises(mtpfix.UnreadableError):
        splice.stretches(b"{", "x.json", [""])
