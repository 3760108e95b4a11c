"""`mtpfix engines`: the profiles with what stands behind them, and recorded decisions put to the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mtpfix.cli import main
from mtpfix.engines.recorded import recorded
from mtpfix.engines.registry import ENGINES

ROW: dict[str, Any] = {
    "engine": "vllm",
    "release": "0.33.0",
    "format": "fp8",
    "config": {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["mtp.fc"]},
    "packed": {},
    "mapper": None,
    "runtime": "mtp.fc",
    "layer": "linear",
    "decision": "plain",
}
LIBRARY = {
    **ROW,
    "engine": "compressed-tensors",
    "release": "0.20.1",
    "format": "compressed-tensors",
    "config": {"config_groups": {"g": {"targets": ["Linear"]}}, "ignore": ["re:^mtp.*"]},
}


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return str(path)


def engines(*args: str) -> Result:
    return CliRunner().invoke(main, ["engines", *args], prog_name="mtpfix")


def test_a_replay_that_agrees(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a.jsonl", ROW, ROW), written(tmp_path / "b.jsonl", "", LIBRARY)
    result = engines("--replay", one, other)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "  compressed-tensors  compressed-tensors  1/1",
        "  vllm                fp8                 2/2",
        "3 recorded decisions: 3 agree, 0 disagree.",
    ]
    assert engines("--replay", one, "--replay", other).stdout == result.stdout


def test_a_disagreement_names_its_line(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROW, {**ROW, "decision": "error", "error": "ValueError"})
    result = engines("--replay", file)
    assert result.exit_code == 1
    told = " ".join(result.stdout.split())
    assert "a.jsonl:2:vllm0.33.0fp8,askedasmtp.fc" in told.replace(" ", "")  # long paths are broken
    assert "recorded error ValueError, modelled plain (/ignored_layers/0 'mtp.fc')" in told
    assert "vllm fp8 1/2" in told
    assert told.endswith("2 recorded decisions: 1 agree, 1 disagree.")


def test_as_json(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "decision": "quantized"}, {**ROW, "engine": "someone-elses"}]
    document = json.loads(engines("--replay", written(tmp_path / "a.jsonl", *rows), "--format", "json").stdout)
    assert document["checked"] == {"vllm": {"fp8": {"0.33.0": 2}}}
    assert document["skipped"] == 1
    [found] = document["disagreements"]
    assert (found["place"].rpartition("/")[2], found["recorded"], found["modelled"]) == (
        "a.jsonl:2",
        "quantized",
        "plain",
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ([], "no object"),
        ({"engine": "vllm"}, "`release` is missing or no text"),
        ({**ROW, "config": None}, "`config` is missing or no object"),
        ({**ROW, "layer": "conv"}, "`layer` is none of linear, moe, lm_head, embedding: conv"),
        ({**ROW, "decision": "maybe"}, "`decision` is none of plain, quantized, error: maybe"),
        ({**ROW, "packed": {"qkv_proj": "q_proj"}}, "`packed` does not map a name to a list of names"),
        ({**ROW, "mapper": {"prefix": {"a": 1}}}, "`mapper` has rules other than prefix, substr, suffix, regex"),
        ({**ROW, "mapper": {"infix": {}}}, "`mapper` has rules other than prefix, substr, suffix, regex"),
        ({**ROW, "safetensors": ["BF16"]}, "`safetensors` does not map tensors to dtypes"),
        ({**ROW, "expert_projections": "w1"}, "`expert_projections` is no list of names"),
    ],
)
def test_a_malformed_row(tmp_path: Path, row: Any, why: str) -> None:
    result = engines("--replay", written(tmp_path / "a.jsonl", ROW, row))
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"a.jsonl:2: {why}" in result.stderr
    assert "\nHint: each line is a recorded decision" in result.stderr


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    result = engines("--replay", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 3
    assert "none.jsonl: cannot be read: No such file or directory" in result.stderr
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    assert "no UTF-8" in engines("--replay", str(tmp_path / "b.jsonl")).stderr


def test_files_without_the_option() -> None:
    result = engines("a.jsonl")
    assert result.exit_code == 2
    assert "recorded decisions go after --replay" in result.stderr


def test_the_profiles_say_what_changed_and_how_much_stands_behind_them() -> None:
    assert "0.24.0–0.28.0" in engines().stdout
    document = json.loads(engines("--format", "json").stdout)
    profiles = {engine["engine"]: engine["profiles"] for engine in document["engines"]}
    first, second, *_ = profiles["vllm"]["modelopt"]
    assert (first["first"], first["last"], first["changes"]) == ("0.12.0", "0.12.0", [])
    assert "star-split" in second["changes"]
    assert profiles["vllm"]["bitsandbytes"][-1]["last"] == "0.27.1"
    assert profiles["tensorrt-llm"]["modelopt_fp4"][-1]["first"] == "snapshot-3"


def test_every_recorded_decision_is_listed() -> None:
    document = json.loads(engines("--format", "json").stdout)
    for engine in document["engines"]:
        counts = recorded(engine["engine"])
        listed = {method: sum(row["recorded"] for row in rows) for method, rows in engine["profiles"].items()}
        assert {method: sum(rows.values()) for method, rows in counts.items()} == {
            method: count for method, count in listed.items() if count
        }
    assert set(ENGINES) <= {engine["engine"] for engine in document["engines"]}
