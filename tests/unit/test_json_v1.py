"""JSON, version 1: the documents and the published schema agree, and neither says more than the contract."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import factories
import pytest
from checkpoints import build, qwen3_next, right_list
from documents import SCHEMA, valid

import mtpfix
from mtpfix.analysis import analyse
from mtpfix.explaining import explain
from mtpfix.model import Contrast, Edit, Explanation, Reading
from mtpfix.output import json_v1, schema_v1
from mtpfix.output.base import (
    Applied,
    ChangePoint,
    CheckResult,
    Disagreement,
    EngineFacts,
    Page,
    Replayed,
    RuleList,
    Symptom,
    TensorList,
)

READING = Reading("fc", "runtime-name", ("mtp.fc",), ("sglang",))
PAGE = Page()
BOOK = {rule.code: rule for rule in factories.RULES}
FACTS = EngineFacts("vllm", ("0.12.0", "0.33.0"), (ChangePoint("fp8", "0.33.0", "leaf-lists", "vllm 0.33.0 fp8.py:1"),))


@pytest.mark.parametrize("report", [factories.fixable(), factories.clean(), factories.not_fixable()])
def test_a_report_is_valid(report: Any) -> None:
    document = valid(json_v1.FORMAT.check(CheckResult((report,), BOOK), PAGE), "report")
    assert document["status"] == report.status
    assert document["mtpfix"] == mtpfix.__version__


def test_the_keys_are_those_of_the_contract() -> None:
    document = valid(json_v1.FORMAT.check(CheckResult((factories.fixable(),), BOOK), PAGE), "report")
    assert list(document) == [
        *("schema_version", "mtpfix", "source", "checkpoint", "status", "engines", "findings", "plan"),
        *("notes", "after"),
    ]
    assert list(document["source"]) == ["kind", "id", "revision"]
    assert list(document["checkpoint"]) == ["family", "format", "schemes", "tensors", "shards", "draft"]
    assert list(document["checkpoint"]["draft"]) == ["declared", "stored", "tensors", "dtypes", "modules"]
    assert list(document["engines"][0]) == [
        *("engine", "version", "releases", "latest", "part", "verdict", "reason", "modules", "error")
    ]
    assert list(document["findings"][0]) == [
        *("rule", "name", "kind", "severity", "fix", "message", "hint", "engines", "modules", "module_count"),
        *("locations", "contrasts"),
    ]
    assert list(document["plan"]) == ["files", "certificate", "held_back", "index", "renames"]


def test_latest_is_the_newest_modelled_release_whatever_was_asked() -> None:
    checkpoint = build(qwen3_next(), "nvfp4", right_list(qwen3_next(), "nvfp4"))
    for spec, latest in (("vllm>=0.20,<0.26", {False}), ("vllm>=0.33", {True})):
        found = json_v1.report(analyse(checkpoint, engines=[spec]), {})
        assert {row["latest"] for row in found["engines"]} == latest
        rows = json_v1.explanation(explain(checkpoint, ["mtp.fc"], engines=[spec]))
        assert {row["latest"] for row in rows["decisions"]} == latest


def test_a_finding_carries_the_name_and_kind_of_its_rule() -> None:
    document = json.loads(json_v1.FORMAT.check(CheckResult((factories.fixable(),), BOOK), PAGE))
    assert [(f["rule"], f["name"], f["kind"]) for f in document["findings"]] == [
        ("MTP008", "engine-cannot", "H"),
        ("MTP001", "draft-not-excluded", "A"),
    ]


def test_the_plan_is_rfc_6902_by_file() -> None:
    edits = (
        Edit("config.json", "remove", "/a/0"),
        Edit("hf_quant_config.json", "add", "/b/-", "x"),
        Edit("config.json", "replace", "/c", None),
    )
    report = factories.fixable(plan=factories.plan(edits=edits))
    document = valid(json_v1.FORMAT.check(CheckResult((report,), BOOK), PAGE), "report")
    assert document["plan"]["files"] == {
        "config.json": [{"op": "remove", "path": "/a/0"}, {"op": "replace", "path": "/c", "value": None}],
        "hf_quant_config.json": [{"op": "add", "path": "/b/-", "value": "x"}],
    }


def test_what_is_told_beside_findings_is_there_for_programs_too() -> None:
    """Engines' own words, modules of a verdict, remarks, and how many fixes --unsafe-fixes would release."""
    report = factories.fixable(
        notes=("config.json: starts with a byte order mark",),
        plan=factories.plan(held_back=("set /num_nextn_predict_layers to 1, as many as are stored",)),
        engines=factories.engine_rows(
            "vllm", "draft", ("0.12.0", "fails"), reason="no", error="KeyError", modules=("a",)
        ),
    )
    document = valid(json_v1.FORMAT.check(CheckResult((report,), BOOK), PAGE), "report")
    assert document["notes"] == ["config.json: starts with a byte order mark"]
    assert document["plan"]["held_back"] == ["set /num_nextn_predict_layers to 1, as many as are stored"]
    assert (document["engines"][0]["error"], document["engines"][0]["modules"]) == ("KeyError", ["a"])


def test_what_a_person_sees_side_by_side_is_there_for_programs_too() -> None:
    """What is stored against what is built, and the matrix as it is after the plan."""
    contrast = Contrast("bf16", "nvfp4", ("vllm<0.25.0",), ("mtp.fc",))
    report = factories.fixable(
        findings=(factories.finding(contrasts=(contrast,)),),
        after=factories.engine_rows("vllm", "draft", ("0.12.0", "loads")),
    )
    document = valid(json_v1.FORMAT.check(CheckResult((report,), BOOK), PAGE), "report")
    assert document["findings"][0]["contrasts"] == [
        {"stored": "bf16", "built": "nvfp4", "engines": ["vllm<0.25.0"], "modules": ["mtp.fc"]}
    ]
    assert [(row["part"], row["verdict"]) for row in document["after"]] == [("draft", "loads")]


@pytest.mark.parametrize("outcome", ["done", "planned", "nothing", "declined"])
def test_a_repair_is_valid(outcome: Any) -> None:
    after = factories.clean() if outcome == "done" else None
    found = Applied(outcome, factories.fixable(), after, ("config.json",), "--- a/config.json\n", BOOK)
    document = valid(json_v1.line(json_v1.applied(found)), "applied")
    assert (document["outcome"], document["files"]) == (outcome, ["config.json"])
    assert (document["afterwards"] is None) == (outcome != "done")


def test_several_sources_are_an_array_also_where_one_is_left() -> None:
    two = CheckResult((factories.clean(), factories.fixable()), BOOK, several=True)
    assert [d["status"] for d in valid(json_v1.FORMAT.check(two, PAGE), "reports")] == ["clean", "fixable"]
    one = CheckResult((factories.clean(),), BOOK, several=True)
    assert len(valid(json_v1.FORMAT.check(one, PAGE), "reports")) == 1


def test_decisions_are_decided_by_an_entry_or_a_rule() -> None:
    assert json_v1.FORMAT.explain is not None
    document = valid(json_v1.FORMAT.explain(Explanation(factories.decisions(), (READING,)), PAGE), "explanation")
    assert document["understood"] == [
        {"asked": "fc", "kind": "runtime-name", "modules": ["mtp.fc"], "engines": ["sglang"]}
    ]
    rule, *_, entry = document["decisions"]
    assert rule["decided_by"] == {"rule": "no entry matches"}
    assert entry["decided_by"] == {
        "file": "config.json",
        "pointer": "/quantization_config/ignore/1",
        "entry": "mtp.layers.0*",
    }
    assert list(rule) == [
        *("module", "part", "engine", "version", "releases", "latest", "runtime_name", "decision", "decided_by"),
        "stored",
    ]


def test_the_other_documents_are_valid() -> None:
    form = json_v1.FORMAT
    assert form.tensors is not None
    assert form.rules is not None
    assert form.engines is not None
    assert len(valid(form.tensors(TensorList(factories.tensors()), PAGE), "tensors")["tensors"]) == 1538
    assert len(valid(form.rules(RuleList(factories.RULES), PAGE), "rules")["rules"]) == 4
    assert form.replayed is not None
    assert valid(form.engines((FACTS,), PAGE), "engines")["engines"][0]["changes"]["fp8"][0]["release"] == "0.33.0"
    found = Disagreement("a.jsonl:1", "vllm", "fp8", "0.33.0", "mtp.fc", "plain", "quantized", "not listed")
    replayed = valid(form.replayed(Replayed((found,), {("vllm", "fp8", "0.33.0"): 2}, 1), PAGE), "replay")
    assert replayed["checked"] == {"vllm": {"fp8": {"0.33.0": 2}}}
    assert replayed["disagreements"][0]["place"] == "a.jsonl:1"


def test_a_document_is_one_line_of_ascii_whatever_the_names_hold() -> None:
    hostile = factories.fixable(findings=(factories.finding(modules=("mtp.\x1b[31m\u202e\ud800\n",), hint="é"),))
    text = json_v1.FORMAT.check(CheckResult((hostile,), BOOK), PAGE)
    assert text.isascii()
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["findings"][0]["modules"] == ["mtp.\x1b[31m\u202e\ud800\n"]


# Members that came after the first release of version 1: a reader must not rely on them.
ADDED = {
    "report": {"notes", "after"},
    "finding": {"contrasts"},
    "explanation": {"understood", "reason"},
    "engine": {"modules", "error"},
    "plan": {"held_back", "index", "renames"},
    "certificate": {"tensors_renamed", "names_listed", "names_unlisted"},
}


@pytest.mark.parametrize(
    ("shape", "definition"),
    [
        (schema_v1.ReportV1, "report"),
        (schema_v1.FindingV1, "finding"),
        (schema_v1.ContrastV1, "contrast"),
        (schema_v1.ReadingV1, "reading"),
        (schema_v1.ExplanationV1, "explanation"),
        (schema_v1.AppliedV1, "applied"),
        (schema_v1.EngineV1, "engine"),
        (schema_v1.CheckpointV1, "checkpoint"),
        (schema_v1.DraftV1, "draft"),
        (schema_v1.PlanV1, "plan"),
        (schema_v1.CertificateV1, "certificate"),
        (schema_v1.IndexV1, "index_change"),
        (schema_v1.ListingV1, "listing"),
        (schema_v1.RenameV1, "rename"),
        (schema_v1.DecisionV1, "decision"),
        (schema_v1.EntryCauseV1, "by_entry"),
        (schema_v1.RuleCauseV1, "by_rule"),
        (schema_v1.TensorV1, "tensor"),
        (schema_v1.RuleV1, "rule"),
        (schema_v1.EngineFactsV1, "engine_facts"),
        (schema_v1.ProfileV1, "profile"),
        (schema_v1.ReplayV1, "replay"),
        (schema_v1.DisagreementV1, "disagreement"),
        (schema_v1.OverrideV1, "override"),
        (schema_v1.PullRequestV1, "pull_request"),
        (schema_v1.ProposalV1, "proposal"),
        (schema_v1.PreviewV1, "preview"),
        (schema_v1.ReviewV1, "review"),
        (schema_v1.FileChangeV1, "file_change"),
        (schema_v1.SpanV1, "span"),
        (schema_v1.DecisionChangeV1, "decision_change"),
        (schema_v1.FindingOfV1, "finding_of"),
        (schema_v1.FindingsOfV1, "findings_of"),
        (schema_v1.StatusesV1, "statuses"),
        (schema_v1.ScanRowV1, "scan_row"),
        (schema_v1.UnreadableRowV1, "unreadable_row"),
        (schema_v1.EntriesV1, "entries"),
    ],
)
def test_the_types_and_the_schema_name_the_same_keys(shape: type, definition: str) -> None:
    published = SCHEMA["$defs"][definition]
    assert set(get_type_hints(shape)) == set(published["properties"])
    assert set(published["properties"]) - set(published["required"]) == ADDED.get(definition, set())


def test_symptoms_are_valid() -> None:
    symptom = Symptom(
        "KeyError: 'a.weight'", "it means", (factories.RULES[0], factories.RULES[1]), "vllm 0.33.0 x.py:1"
    )
    assert json_v1.FORMAT.symptoms is not None
    document = valid(json_v1.FORMAT.symptoms((symptom,), PAGE), "symptoms")
    assert document["symptoms"][0]["rules"] == ["MTP001", "MTP007"]
