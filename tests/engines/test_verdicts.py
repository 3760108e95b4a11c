"""The verdict matrix says what the real engines did: recorded loads in vLLM 0.33.0 and SGLang 0.5.23."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from records import ASKS, Record, Run, load_record, write_checkpoint

from mtpfix.checkpoint.local import read_local
from mtpfix.decisions import Table, judges, tables
from mtpfix.engines.registry import ENGINES
from mtpfix.forced import forced
from mtpfix.model import VerdictKind
from mtpfix.verdicts import engine_row, mismatches
from mtpfix.world import World, world_of

IN_THREADS = "copies in a thread pool, where the recorder sees no cast"
PRESET = "the scale is preset to 1 when the layer is made; the recorder poisons every parameter first"
UNUSED = "W4A16 never reads the input scales that it allocates"
NO_GPU = "the loader asks for a GPU, or the recorder's machine has none that decides"
FLOAT16 = "recorded without Marlin, whose classes take bfloat16"
NO_CASTS = "quantized bytes are read as plain weights, which the recorder sees in SGLang only"
NUMBERS = "numbers are cast to exponents, which the recorder sees in SGLang only"
INHERITED = "the class builds parameters of GLM-4.1V's vision tower that GLM-OCR does not store"
TOO_SMALL = "the case is too small for the kernel's layout"
# (record, engine, part) -> why the load says less than it seems.
ARTEFACTS = {
    ("a-glm4-awq-layer-unlisted", "sglang", "target"): FLOAT16,
    ("a-qwen3-next-mxfp4-list-ignored", "vllm", "target"): TOO_SMALL,
    ("bailing3-mxfp4-inv-e8m0", "vllm", "draft"): NUMBERS,
    ("bailing3-mxfp4-inv-e8m0", "vllm", "target"): NUMBERS,
    ("ds-awq-draft-awq", "sglang", "draft"): FLOAT16,
    ("ds-awq-draft-awq", "sglang", "target"): FLOAT16,
    ("ds-fp8b-draft-fp8-attn-listed", "sglang", "draft"): IN_THREADS,
    ("ds-fp8b-draft-fp8-experts-listed", "sglang", "draft"): IN_THREADS,
    ("glm-awq-draft-awq", "sglang", "target"): FLOAT16,
    ("glm-awq-draft-bf16-nolist", "sglang", "target"): FLOAT16,
    ("glm-nvfp4-no-input-scale", "sglang", "target"): PRESET,
    ("i-deepseek-v4-nvfp4-mtp-mxfp4", "sglang", "target"): NO_GPU,
    ("j-glm4-awq-partial-qkv", "sglang", "target"): FLOAT16,
    ("l-deepseek-quark-excluded-fp8-renamed-scales", "sglang", "target"): IN_THREADS,
    ("l-qwen3-5-nvfp4-head-no-input-scale", "sglang", "target"): PRESET,
    ("llmc-nvfp4a16-glm4moe-handmtp", "vllm", "target"): UNUSED,
    ("t-bailing3-ct-fp8-block", "vllm", "target"): NO_CASTS,
    ("t-ocr-ct-fp8-block-repaired", "sglang", "target"): INHERITED,
    ("v4-absent", "sglang", "target"): NO_GPU,
    ("v4-fp8-static", "sglang", "target"): NO_GPU,
    ("v4-fp8experts", "sglang", "target"): NO_GPU,
    ("v4-hybrid", "sglang", "target"): NO_GPU,
    ("v4-native", "sglang", "target"): NO_GPU,
    ("v4-native-draft-bf16", "sglang", "target"): NO_GPU,
    ("v4-native-draft-bf16-listed", "sglang", "target"): NO_GPU,
    ("v4-native-draft-bf16-mtplisted", "sglang", "target"): NO_GPU,
    ("v4-nvfp4-draft-nvfp4", "sglang", "target"): NO_GPU,
}
LISTED = ("linear", "moe", "lm_head")
NAMES = sorted(path.stem for path in ASKS.glob("*.json"))


@cache
def record_of(name: str) -> Record:
    return load_record(ASKS / f"{name}.json")


def newest(record: Record, folder: Path) -> tuple[World, dict[tuple[str, str], Table]]:
    """What the newest modelled releases decide, by engine and part."""
    world = world_of(read_local(write_checkpoint(record, folder / "checkpoint")))
    chosen = [judge for judge in judges(world, [ENGINES["vllm"], ENGINES["sglang"]]) if judge.profile.latest]
    return world, {(table.judge.engine.name, table.judge.part): table for table in tables(world, chosen)}


def verdict_of(world: World, table: Table) -> VerdictKind:
    return engine_row(table, list(mismatches(world, table)), forced(world, table)).verdict


def differing(run: Run, table: Table) -> list[tuple[str, str, str]]:
    """Runtime names that the engine decided otherwise: name, the engine's decision, ours."""
    ours: dict[tuple[str, str], str] = {
        (row.ask.runtime, row.ask.layer): answer.decision
        for row, answer in table.decided
        if row.ask and row.ask.layer in LISTED
    }
    last = {(name, layer): real for name, layer, real, _ in run.asked}  # GLM-OCR builds its tower twice
    return [
        (name, real, ours[name, layer]) for (name, layer), real in last.items() if ours.get((name, layer), real) != real
    ]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_and_decisions_are_the_engines_own(name: str, tmp_path: Path) -> None:
    record = record_of(name)
    world, decided = newest(record, tmp_path)
    for run in record.runs:
        table = decided[run.engine, run.part]
        assert differing(run, table) == []
        if run.verdict and (name, run.engine, run.part) not in ARTEFACTS:
            assert (run.engine, run.part, verdict_of(world, table)) == (run.engine, run.part, run.verdict), run.error


def test_artefacts_are_of_records_and_still_needed(tmp_path: Path) -> None:
    for name in {name for name, _, _ in ARTEFACTS}:
        record = record_of(name)
        world, decided = newest(record, tmp_path / name)
        for run in record.runs:
            if (name, run.engine, run.part) in ARTEFACTS:
                assert verdict_of(world, decided[run.engine, run.part]) != run.verdict
