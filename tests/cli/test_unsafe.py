"""`apply --unsafe-fixes` on a folder: index and headers as a user sees them change, and change back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checkpoints import FORMATS, Tensors, deepseek_v3, fronts, right_list, tensors_of
from click.testing import CliRunner, Result
from shards import write_index, write_shard

import mtpfix
from mtpfix.cli import main
from mtpfix.errors import WriteError

DS = deepseek_v3()
ENGINE = ("--engine", "vllm==0.33.0")
DRAFT = tuple(fronts(DS))
Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make(path: Path, scheme: str = "fp8-block", *, index: str = "true", experts: int = 2) -> Path:
    """DeepSeek-V3 in block FP8, the draft in a file of its own. `index`: true, omits, none."""
    made = deepseek_v3(experts=experts)
    shards: dict[str, Tensors] = {"model.safetensors": {}, "mtp.safetensors": {}}
    for name, cell in tensors_of(made, "fp8-block", dict.fromkeys(made.draft, scheme)).items():
        shards["mtp.safetensors" if name.startswith(DRAFT) else "model.safetensors"][name] = cell
    for shard, tensors in shards.items():
        write_shard(path / shard, tensors)
    quant = FORMATS["fp8-block"].config(right_list(made, "fp8-block", draft=False))
    (path / "config.json").write_text(json.dumps({**made.config, "quantization_config": quant}, indent=2))
    names = {name: shard for shard, tensors in shards.items() for name in tensors}
    if index != "none":
        write_index(path, {n: s for n, s in names.items() if index == "true" or s == "model.safetensors"})
    return path


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def content(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_index_that_leaves_the_draft_out(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", index="omits")
    before = content(folder)
    plain = run("apply", folder, *ENGINE)
    assert (plain.exit_code, plain.stdout) == (1, "")
    assert "rebuild model.safetensors.index.json from the headers: 33 names added" in " ".join(plain.stderr.split())
    shown = run("apply", folder, *ENGINE, "--unsafe-fixes", "--dry-run")
    assert shown.exit_code == 1
    assert '+    "model.layers.2.eh_proj.weight": "mtp.safetensors",' in shown.stdout
    assert content(folder) == before
    done = run("apply", folder, *ENGINE, "--unsafe-fixes")
    assert (done.exit_code, done.stdout) == (0, shown.stdout)
    assert {name for name, data in content(folder).items() if data != before[name]} == {"model.safetensors.index.json"}
    assert run("apply", folder, *ENGINE, "--unsafe-fixes").stderr == "Nothing to do: the checkpoint is clean.\n"
    assert run("undo", folder).stderr == "Restored model.safetensors.index.json.\n"
    assert content(folder) == before


def test_many_names_are_told_in_few_lines(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", index="omits", experts=64)
    shown = run("apply", folder, *ENGINE, "--unsafe-fixes", "--dry-run").stdout.splitlines()
    assert shown[0] == "model.safetensors.index.json: 405 names"
    assert len(shown) < 12
    wanted = (
        "  + model.layers.2.mlp.experts.{0..63}.{down,gate,up}_proj.{weight,weight_scale_inv} ×384 in mtp.safetensors"
    )
    assert wanted in shown


def test_scales_that_are_only_misnamed(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", "fp8-block-ct")
    before = content(folder)
    shown = run("apply", folder, *ENGINE, "--unsafe-fixes", "--dry-run")
    assert "mtp.safetensors: 14 tensors renamed in the header, all data stay as they are" in shown.stdout
    assert "proj.weight_scale ×6 → weight_scale_inv" in shown.stdout
    assert "every byte of data stay" in " ".join(shown.stderr.split())
    done = run("apply", folder, *ENGINE, "--unsafe-fixes")
    assert done.exit_code == 0
    assert "Changed mtp.safetensors and model.safetensors.index.json." in done.stderr
    assert run("check", folder, *ENGINE).exit_code == 0
    names = {row["name"] for row in json.loads(run("list", folder, "--format", "json").stdout)["tensors"]}
    assert "model.layers.2.self_attn.o_proj.weight_scale_inv" in names
    assert run("undo", folder).exit_code == 0
    assert content(folder) == before


def test_an_index_where_there_is_none(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", index="none")
    before = content(folder)
    assert run("check", folder, *ENGINE).exit_code == 0
    done = run("apply", folder, *ENGINE, "--unsafe-fixes")
    assert done.exit_code == 0
    assert set(content(folder)) - set(before) == {"model.safetensors.index.json"}
    assert run("check", folder, *ENGINE).stdout.count("MTP011") == 0
    run("undo", folder)
    assert content(folder) == before


def test_json_tells_of_it_in_brace_form(tmp_path: Path) -> None:
    from mtpfix.output import json_v1

    report = mtpfix.check(make(tmp_path / "x", "fp8-block-ct", index="omits"), engines=["vllm==0.33.0"], unsafe=True)
    plan = json_v1.report(report, {})["plan"]
    assert plan["files"] == {}
    index = plan["index"]
    assert index is not None
    assert [(row["before"], row["after"], row["count"]) for row in index["changes"]] == [(None, "mtp.safetensors", 33)]
    assert {(row["shard"], row["before"], row["after"], row["count"]) for row in plan["renames"]} == {
        ("mtp.safetensors", "weight_scale", "weight_scale_inv", 14)
    }
    assert plan["certificate"]["tensors_renamed"] == 14


def test_from_python(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", "fp8-block-ct")
    before = content(folder)
    plan = mtpfix.plan(mtpfix.check(folder, engines=["vllm==0.33.0"], unsafe=True))
    assert mtpfix.apply(plan) == ("mtp.safetensors", "model.safetensors.index.json")
    with pytest.raises(WriteError):
        mtpfix.apply(plan)
    assert mtpfix.undo(folder) == ("model.safetensors.index.json", "mtp.safetensors") or content(folder) == before
    assert content(folder) == before


def test_pages_tell_of_it_too(tmp_path: Path) -> None:
    from mtpfix.output import base, html, markdown

    report = mtpfix.check(make(tmp_path / "x", "fp8-block-ct"), engines=["vllm==0.33.0"], unsafe=True, atlas=True)
    result = base.CheckResult((report,))
    assert "14 tensors renamed in the header" in markdown.FORMAT.check(result, base.Page())
    assert "14 tensors renamed in the header" in html.FORMAT.check(result, base.Page())


@pytest.mark.parametrize("scheme", ["fp8-block-ct"])
def test_a_process_killed_at_any_moment(tmp_path: Path, scheme: str) -> None:
    """The files are old or new after the next command, whenever the command was killed."""
    folder = make(tmp_path / "x", scheme)
    before = content(folder)
    command = [sys.executable, "-m", "mtpfix", "apply", str(folder), *ENGINE, "--unsafe-fixes", "-y"]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.monotonic() - started
    after = content(folder)
    run("undo", folder)
    for part in range(5):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(whole * (0.6 + 0.09 * part))
            os.kill(process.pid, signal.SIGKILL)
        run("check", folder, *ENGINE)
        assert content(folder) in (before, after)
        if content(folder) == after:
            run("undo", folder)
            assert content(folder) == before
