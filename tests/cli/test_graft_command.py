"""`mtpfix graft` as a user types it: what goes where, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import INDEX, deepseek_v3, glm4_moe, on_disk, qwen3_5, qwen3_next
from click.testing import CliRunner, Result
from documents import valid

from mtpfix.cli import graft as command
from mtpfix.cli import main, terminal

GLM = ("lm_head", "model.layers.1.mlp.gate")
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in ("NO_COLOR", "FORCE_COLOR", "MTPFIX_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def runner(*args: Any, **more: Any) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="mtpfix", **more)

    return runner


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return on_disk(tmp_path / "base", glm4_moe(), seed=2)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_there_and_back(run: Run, here: Path, base: Path) -> None:
    old = content(here)
    result = run("graft", "here", "--from", "base", "--dry-run")
    assert result.exit_code == 1
    assert content(here) == old
    assert result.stdout.startswith("18 tensors from base, 527.3 kB, to model_mtp.safetensors\n")
    assert "model.layers.2.eh_proj.weight" in result.stdout
    assert '+      "model.layers.2.*"' in result.stdout
    assert "Would change config.json, hf_quant_config.json" in result.stderr
    planned = result.stdout
    result = run("graft", "here", "--from", "base")
    assert (result.exit_code, result.stdout) == (0, planned)
    assert "Take back: mtpfix undo here" in result.stderr
    assert "0 quantized modules became plain" in re.sub(r"\s+", " ", result.stderr)
    assert sorted(content(here)) == sorted([*old, INDEX, "model_mtp.safetensors"])
    assert run("check", "here", "--format", "quiet").exit_code == 0
    result = run("graft", "here", "--from", "base")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Nothing to graft: the checkpoint lacks no tensor" in result.stderr
    result = run("undo", "here")
    assert "Restored" in result.stderr
    assert content(here) == old


def test_the_engines_that_fail_all_the_same(run: Run, tmp_path: Path) -> None:
    """SGLang asks for the draft of Qwen3-Next by names of the target's first layer: no graft and no list helps it."""
    made = qwen3_next()
    ignore = ("lm_head", "*linear_attn*", "*.mlp.gate", "*.mlp.shared_expert_gate")
    on_disk(tmp_path / "here", made.without_draft(), "nvfp4", ignore)
    on_disk(tmp_path / "base", made)
    result = run("graft", "here", "--from", "base")
    said = re.sub(r"\s+", " ", result.stderr)
    assert result.exit_code == 0
    assert "Still fails: sglang" in said
    assert "MTP015 not-representable" in said
    assert "Still fails: vllm" not in said


def test_a_report_that_cannot_be_written(run: Run, here: Path, base: Path) -> None:
    """It says all the same that the graft was made, and how it is taken back."""
    old = content(here)
    result = run("graft", "here", "--from", "base", "-o", "nowhere/report")
    assert result.exit_code == 3
    assert "cannot write the report" in result.stderr
    assert "Take back: mtpfix undo here" in result.stderr
    assert run("undo", "here").exit_code == 0
    assert content(here) == old


@pytest.mark.parametrize("dry", [True, False])
def test_json(run: Run, here: Path, base: Path, dry: bool) -> None:
    result = run("graft", "here", "--from", "base", "--format", "json", *(["-n"] if dry else []))
    assert result.exit_code == int(dry)
    document = valid(result.stdout, "graft")
    assert document["outcome"] == ("planned" if dry else "done")
    assert document["base"] == {"kind": "local", "id": "base", "revision": None}
    assert document["files"][-1] == document["shard"] == "model_mtp.safetensors"
    assert document["report"]["status"] == "clean"
    assert {row["why"] for row in document["tensors"]} == {"missing"}
    assert list(document["plan"]["files"]) == ["config.json", "hf_quant_config.json"]
    result = run("graft", "here", "--from", "here/../base", "--format", "json", "--modules", "**.eh_proj", "-n")
    names = [row["name"] for row in json.loads(result.stdout)["tensors"]]
    assert names == (["model.layers.2.eh_proj.weight"] if dry else [])


def test_old_copies(run: Run, tmp_path: Path) -> None:
    made = qwen3_5()
    ignore = ("lm_head", "*linear_attn*", "*.mlp.gate", "*.mlp.shared_expert_gate")
    stored = {"mtp.fc": "nvfp4", **dict.fromkeys(made.draft, "nvfp4")}
    here = on_disk(tmp_path / "here", made, "nvfp4", ignore, sidecar=ignore, stored=stored)
    on_disk(tmp_path / "base", made)
    old = content(here)
    result = run("graft", "here", "--from", "base")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: 4 old tensors, e.g. mtp.fc.weight (U8 [128, 128])" in result.stderr
    assert "Hint: add --rewrite" in result.stderr
    assert content(here) == old
    dry = run("graft", "here", "--from", "base", "-n")
    assert dry.exit_code == 1
    assert dry.stdout.startswith("1 tensor from base")
    assert "Error: 4 old tensors" in dry.stderr
    assert "Would change" not in dry.stderr
    document = valid(run("graft", "here", "--from", "base", "-n", "--format", "json").stdout, "graft")
    assert document["outcome"] == "refused"
    assert document["reason"].startswith("4 old tensors")
    assert {row["read"] for row in document["replaced"]} == {True}
    assert content(here) == old
    result = run("graft", "here", "--from", "base", "--rewrite", "--format", "json")
    assert result.exit_code == 0
    document = valid(result.stdout, "graft")
    assert document["rewritten"] == ["model.safetensors"]
    assert document["replaced"][0]["name"] == "mtp.fc.weight"
    assert document["written"] > document["size"]
    assert run("undo", "here").exit_code == 0
    assert content(here) == old


def test_an_error_names_which_of_the_two_it_is_about(run: Run, tmp_path: Path) -> None:
    made = deepseek_v3()
    for name in ("here", "base"):
        on_disk(tmp_path / name, made.without_draft(), "nvfp4", GLM)
    (tmp_path / "base" / "config.json").write_text("{")
    assert run("graft", "here", "--from", "base").stderr.startswith("Error: base/config.json: line 1 ")
    assert run("graft", "base", "--from", "here").stderr.startswith("Error: base/config.json: line 1 ")


def test_fp8(run: Run, tmp_path: Path) -> None:
    made = deepseek_v3()
    on_disk(tmp_path / "here", made.without_draft(), "nvfp4", GLM)
    on_disk(tmp_path / "base", made, "fp8-block", (), stored=dict.fromkeys(made.draft, "fp8-block"))
    result = run("graft", "here", "--from", "base")
    assert result.exit_code == 1
    assert "Hint: add --dequantize" in result.stderr
    result = run("graft", "here", "--from", "base", "--dequantize")
    assert result.exit_code == 0
    assert "modules are fp8-block in the base: dequantized to BF16." in re.sub(r"\s+", " ", result.stderr)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("here",), 2, "--from"),
        ((), 2, "DIR"),
        (("here", "--from", "nowhere"), 3, "no such folder"),
        (("nowhere", "--from", "base"), 3, "no such folder"),
        (("here", "--from", "here"), 2, "the checkpoint itself"),
        (("org/name@main", "--from", "base"), 2, "only a directory"),
        (("here", "--from", "base", "--modules", "x.**"), 2, "no module of the draft matches"),
        (("here", "--from", "base", "--engine", "nothing"), 2, "no such engine"),
        (("here", "--from", "base/config.json"), 3, "a file, not a folder"),
        (("here", "--from", ""), 2, "an empty name"),
        (("", "--from", "base"), 2, "an empty name"),
        (("here", "--from", "other"), 1, "number of experts (n_routed_experts): 2 here, 4 there"),
    ],
)
def test_what_is_refused(run: Run, here: Path, base: Path, args: tuple[str, ...], code: int, said: str) -> None:
    on_disk(base.parent / "other", glm4_moe(experts=4))
    old = content(here)
    result = run("graft", *args)
    assert result.exit_code == code, result.stderr
    assert said in re.sub(r"\s+", " ", result.stderr)
    assert "Traceback" not in result.stderr
    assert content(here) == old


def test_what_the_base_lacks(run: Run, tmp_path: Path) -> None:
    made = glm4_moe()
    lost = ["model.layers.2.eh_proj.weight", "model.layers.2.self_attn.q_proj.weight"]
    on_disk(tmp_path / "here", made, "nvfp4", (*GLM, "model.layers.2*"), drop=lost)
    on_disk(tmp_path / "base", made, drop=lost[:1])
    result = run("graft", "here", "--from", "base")
    assert result.exit_code == 1
    assert "no engine could load" in re.sub(r"\s+", " ", result.stderr)
    on_disk(tmp_path / "empty", made, drop=lost)
    result = run("graft", "here", "--from", "empty")
    assert result.exit_code == 1
    assert "does not hold what is lacking, e.g. model.layers.2.eh_proj" in re.sub(r"\s+", " ", result.stderr)


def test_a_terminal_is_asked_and_told(here: Path, base: Path, tmp_path: Path) -> None:
    """On a terminal the plan is shown once, a question asked, and "n" changes nothing."""
    old = content(here)
    for answer, code in (("n", 1), ("y", 0)):
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "mtpfix", "graft", "here", "--from", "base"],
            stdin=child, stdout=child, stderr=child, cwd=tmp_path,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        os.close(child)
        text = b""
        while b"Write this?" not in text:
            text += os.read(parent, 4096)
        os.write(parent, f"{answer}\n".encode())
        try:
            while piece := os.read(parent, 4096):
                text += piece
        except OSError:  # the other side is closed
            pass
        assert process.wait() == code
        assert text.count(b"18 tensors from base") == 1
        assert (content(here) == old) is (answer == "n")


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import time

    monkeypatch.setattr(terminal, "ELSEWHERE", 0.01)
    with command._progress(4_000_000) as tell:
        tell(2_500_000)
        time.sleep(0.1)
    assert re.search(r"Copying: 2\.5 MB of 4\.0 MB, [0-9.]+ [MG]B/s \.\.\.", capsys.readouterr().err)
