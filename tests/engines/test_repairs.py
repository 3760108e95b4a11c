"""Repairs of recorded checkpoints: what becomes clean, and what the matrix says then (seen in the real engines)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import ASKS, load_record, write_checkpoint

import mtpfix

Matrix = dict[tuple[str, str], str]
LOADS: Matrix = {(engine, part): "loads" for engine in ("vllm", "sglang") for part in ("target", "draft")}
# The draft of Qwen3-Next goes in SGLang by names that are the target's: what an entry too broad did for it, it loses.
LOST = LOADS | {("sglang", "draft"): "degrades"}
CASES: dict[str, tuple[set[str], Matrix]] = {
    "d-next-fp8-layers-star": ({"MTP004"}, LOST),
    "d-next-fp8b-layer-0": ({"MTP002", "MTP004"}, LOST),
}


ENGINES = ("vllm", "sglang")


def matrix(report: mtpfix.Report) -> Matrix:
    """The verdicts of the newest releases."""
    return {(row.engine, row.part): row.verdict for row in report.engines if row.latest and row.engine in ENGINES}


@pytest.mark.parametrize("name", CASES)
def test_a_repair_is_clean_and_loads(name: str, tmp_path: Path) -> None:
    rules, after = CASES[name]
    folder = write_checkpoint(load_record(ASKS / f"{name}.json"), tmp_path / "checkpoint")
    report = mtpfix.check(folder)
    assert report.status == "fixable"
    assert {finding.rule for finding in report.findings if finding.severity == "error"} == rules
    mtpfix.apply(mtpfix.plan(report))
    repaired = mtpfix.check(folder)
    assert (repaired.status, repaired.plan.edits, matrix(repaired)) == ("clean", (), after)


DROPPED = {
    "s-q35-nvfp4-k-proj-dropped": "mtp.layers.0.self_attn.k_proj",
    "s-q35-nvfp4-fc-dropped": "mtp.fc",
    "s-glm-nvfp4-eh-proj-dropped": "model.layers.2.eh_proj",
    "s-ds-fp8b-expert-dropped": "model.layers.2.mlp.experts.0.gate_proj",
    "s-next-ct-w4a16-k-proj-dropped": "mtp.layers.0.self_attn.k_proj",
    "s-glm-plain-o-proj-dropped": "model.layers.4.self_attn.o_proj",
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_draft_that_lacks_a_module_is_named(name: str, tmp_path: Path) -> None:
    report = mtpfix.check(write_checkpoint(load_record(ASKS / f"{name}.json"), tmp_path / "checkpoint"))
    found = {finding.rule: finding.modules for finding in report.findings if finding.severity == "error"}
    assert (report.status, found.get("MTP006")) == ("not-fixable", (DROPPED[name],))


@pytest.mark.parametrize("name", ["v32-nvfp4-count-zero", "s-glm-nvfp4-count-zero", "s-q35-mixed-count-zero"])
def test_a_count_of_none_contradicts_a_stored_draft(name: str, tmp_path: Path) -> None:
    report = mtpfix.check(write_checkpoint(load_record(ASKS / f"{name}.json"), tmp_path / "checkpoint"))
    assert (report.status, report.plan.edits) == ("not-fixable", ())
    assert "MTP013" in {finding.rule for finding in report.findings if finding.severity == "error"}


def changed(name: str, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A recorded checkpoint with its config.json changed."""
    write_checkpoint(load_record(ASKS / f"{name}.json"), folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    return folder


def test_an_entry_for_one_projection_of_a_quantized_expert_goes(tmp_path: Path) -> None:
    entry = "mtp.layers.0.mlp.experts.0.up_proj"

    def list_it(config: dict[str, Any]) -> None:
        config["quantization_config"]["ignore"].append(entry)

    folder = changed("s-next-ct-w4a16-mtp-quantized", tmp_path / "c", list_it)
    report = mtpfix.check(folder)
    assert report.status == "fixable"
    assert {finding.rule for finding in report.findings if finding.severity == "error"} == {"MTP010"}
    assert [edit.op for edit in report.plan.edits] == ["remove"]
    mtpfix.apply(mtpfix.plan(report))
    assert mtpfix.check(folder).status == "clean"


def test_a_fault_that_no_list_mends_gets_no_entry(tmp_path: Path) -> None:
    name = "ok-glm4-moe-nvfp4-layer12-dot-star"
    folder = changed(name, tmp_path / "c", lambda config: config.update(num_nextn_predict_layers=2))
    report = mtpfix.check(folder)
    assert (report.status, report.plan.edits) == ("not-fixable", ())


def test_the_draft_s_subtree_replaces_an_entry_that_took_the_whole_model(tmp_path: Path) -> None:
    """SGLang before 0.5.21 asks the shards of a fused module one by one: only the parent says all of them."""

    def widen(config: dict[str, Any]) -> None:
        entries = config["quantization_config"]["modules_to_not_convert"]
        entries += ["model", "model.decoder.mlp.shared_experts.down_proj"]

    folder = changed("load-d-dsv3-fp8-mtp-bf16-full", tmp_path / "c", widen)
    report = mtpfix.check(folder)
    assert report.status == "fixable"
    mtpfix.apply(mtpfix.plan(report))
    repaired = mtpfix.check(folder)
    assert (repaired.status, repaired.plan.edits, matrix(repaired)) == ("clean", (), LOADS)


@pytest.mark.parametrize("name", ["ds-fp8b-shared-down-plain", "glm-ctf8-shared-down-plain"])
def test_what_would_only_harm_is_no_repair(name: str, tmp_path: Path) -> None:
    """A plain down projection beside FP8 gate and up: SGLang casts it where it is not listed, and stops where it is.

    vLLM loads it either way. (sglang 0.5.23 srt/models/deepseek_v2.py:969)
    """
    report = mtpfix.check(write_checkpoint(load_record(ASKS / f"{name}.json"), tmp_path / "checkpoint"))
    assert mtpfix.plan(report).empty
    assert not {finding.fix for finding in report.findings} & {"safe", "unsafe"}
    assert matrix(report)["vllm", "draft"] == "loads"
    assert matrix(report)["sglang", "draft"] == "degrades"


TIED = "x-q35-nvfp4-tied-head-unlisted"


def by_release(report: mtpfix.Report) -> dict[str, str]:
    """What becomes of the target in each release of vLLM."""
    rows = (row for row in report.engines if (row.engine, row.part) == ("vllm", "target"))
    return {release: row.verdict for row in rows for release in row.releases}


def test_a_tied_head_is_asked_about_since_vllm_builds_one(tmp_path: Path) -> None:
    """Before 0.28.0 Qwen3.5's head was the embedding itself; ERNIE's class always set the weight of a head it built.

    ModelOpt quantizes heads since 0.23.0 (vllm-0.23.0 model_executor/layers/quantization/modelopt.py:186).
    """
    report = mtpfix.check(write_checkpoint(load_record(ASKS / f"{TIED}.json"), tmp_path / "q35"), scope="all")
    found = by_release(report)
    assert [found[release] for release in ("0.23.0", "0.27.1", "0.28.0", "0.33.0")] == 2 * ["loads"] + 2 * ["degrades"]
    mtpfix.apply(mtpfix.plan(report))
    assert set(by_release(mtpfix.check(tmp_path / "q35", scope="all")).values()) == {"loads", "unsupported"}
    ernie = load_record(ASKS / "x-ernie-nvfp4-tied-head-unlisted.json")
    found = by_release(mtpfix.check(write_checkpoint(ernie, tmp_path / "ernie")))
    assert (found["0.22.1"], found["0.23.0"]) == ("loads", "degrades")


def test_an_embedding_that_is_not_said_to_be_the_head_is_none(tmp_path: Path) -> None:
    def untie(config: dict[str, Any]) -> None:
        config["text_config"]["tie_word_embeddings"] = False

    report = mtpfix.check(changed(TIED, tmp_path / "c", untie), scope="all")
    assert by_release(report)["0.33.0"] == "loads"
