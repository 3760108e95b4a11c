"""The GitHub action, the workflows and the pre-commit hooks: run where they can run here, else held to their rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
WORKFLOWS = sorted((*(ROOT / ".github/workflows").glob("*.yml"), *(ROOT / "examples/workflows").glob("*.yml")))
BROKEN, REPAIRED = "GLM-5.3-Flash-NVFP4", "repaired"


@pytest.fixture(scope="module")
def checked_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a broken and a clean checkpoint."""
    folder = tmp_path_factory.mktemp("action") / "work"
    shutil.copytree(ROOT / "examples" / BROKEN, folder / BROKEN)
    shutil.copytree(ROOT / "examples" / BROKEN, folder / REPAIRED)
    hook(folder, "--fix", f"{REPAIRED}/config.json")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, checked_out: Path) -> Path:
    """A copy of it, on a runner where mtpfix is installed."""
    folder = tmp_path / "work"
    shutil.copytree(checked_out, folder)
    program = tmp_path / "temp/mtpfix/bin/mtpfix"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mtpfix "$@"\n', "utf-8")
    program.chmod(0o755)
    return folder


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MTPFIX_")}
    return {**kept, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder.parent / "state"), "COLUMNS": "80"}


def hook(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mtpfix", "hook", *args]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def run_step(folder: Path, step: dict[str, Any], **inputs: str) -> tuple[int, str, dict[str, str], str]:
    """A `run` step of the action as the runner runs it: exit code, log, outputs, step summary."""
    given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in inputs.items()
    }
    files = {name: folder.parent / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.write_text("", "utf-8")
    known = {f"inputs.{name}": value for name, value in given.items()}
    known |= {"steps.install.outputs.mtpfix": str(folder.parent / "temp/mtpfix/bin/mtpfix")}
    known |= {"github.action_path": str(ROOT)}
    variables = {name: re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda m: known[m[1]], value)
                 for name, value in step["env"].items()}  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={
            **environment(folder),
            "RUNNER_TEMP": str(folder.parent / "temp"),
            **{name: str(path) for name, path in files.items()},
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text("utf-8").splitlines())
    return done.returncode, done.stdout, outputs, files["GITHUB_STEP_SUMMARY"].read_text("utf-8")


def check(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str], str]:
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
    return run_step(folder, step, **inputs)


def test_a_broken_checkpoint_fails_the_step_and_is_annotated(workspace: Path) -> None:
    code, log, outputs, summary = check(workspace, source=f"{BROKEN}\n{REPAIRED}\n", sarif_file="out.sarif")
    assert code == 1
    assert log.startswith(f"::error file={BROKEN}/config.json,line=181,col=5,title=MTP001 ")
    assert outputs == {"status": "errors", "exit-code": "1", "sarif-file": "out.sarif"}
    assert summary.startswith(f"## ❌ {BROKEN}: fixable")
    assert f"## ✅ {REPAIRED}" in summary
    assert len(json.loads((workspace / "out.sarif").read_text("utf-8"))["runs"][0]["results"]) == 1


def test_a_clean_one_passes(workspace: Path) -> None:
    code, log, outputs, summary = check(workspace, source=REPAIRED)
    assert (code, log, outputs) == (0, "", {"status": "clean", "exit-code": "0"})
    assert summary.startswith("## ✅ ")


@pytest.mark.parametrize("scripts", ["bin", "Scripts"])
def test_it_is_installed_where_the_check_finds_it(workspace: Path, scripts: str) -> None:
    """On Windows a virtual environment has its programs in Scripts."""
    shutil.rmtree(workspace.parent / "temp")
    python = workspace.parent / "python"
    python.write_text(
        f'#!/bin/sh\nmkdir -p "$3/{scripts}"\nprintf "#!/bin/sh\\necho pip: \\$*\\n" > "$3/{scripts}/python"\n'
        f'chmod +x "$3/{scripts}/python"\n',
        "utf-8",
    )
    python.chmod(0o755)
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "install")
    code, log, outputs, _ = run_step(workspace, step, python=str(python))
    assert (code, outputs) == (0, {"mtpfix": f"{workspace.parent}/temp/mtpfix/{scripts}/mtpfix"})
    assert log == f"pip: -m pip install --quiet --disable-pip-version-check {ROOT}\n"


def test_a_sarif_file_that_is_not_written_is_not_named(workspace: Path) -> None:
    """A later step would upload nothing, or what an earlier run left."""
    (workspace / "out.sarif").write_text("{}", "utf-8")
    code, _, outputs, _ = check(workspace, source=REPAIRED, sarif_file="no/folder/out.sarif")
    assert (code, outputs) == (0, {"status": "clean", "exit-code": "0"})
    code, _, outputs, _ = check(workspace, source=REPAIRED, sarif_file="out.sarif")
    assert outputs["sarif-file"] == "out.sarif"
    assert json.loads((workspace / "out.sarif").read_text("utf-8"))["runs"]


def test_a_login_of_the_job_counts_where_no_token_is_given(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = workspace.parent / "temp/mtpfix/bin/mtpfix"
    program.write_text('#!/bin/sh\necho "token $HF_TOKEN"\n', "utf-8")
    monkeypatch.setenv("HF_TOKEN", "of-the-job")
    assert check(workspace, source=REPAIRED)[1] == "token of-the-job\n"
    assert check(workspace, source=REPAIRED, token="given")[1] == "token given\n"


def test_no_source_is_wrong_use(workspace: Path) -> None:
    code, log, outputs, _ = check(workspace, source=" \n")
    assert (code, outputs) == (2, {})
    assert log == "::error title=mtpfix::source names no folder and no repository\n"


def test_errors_can_be_left_to_a_later_step_but_not_what_is_unreadable(workspace: Path) -> None:
    assert check(workspace, source=BROKEN, fail_on="never")[0] == 0
    code, log, outputs, _ = check(workspace, source="gone", fail_on="never")
    assert (code, outputs["status"]) == (3, "unreadable")
    assert "Error: gone: " in log
    assert "::error title=mtpfix::gone: no such folder\n" in log
    code, log, outputs, _ = check(workspace, source=BROKEN, fail_on="sometimes")
    assert (code, outputs) == (2, {})
    assert log == "::error title=mtpfix::fail-on is error or never\n"


def test_wrong_use_fails_at_once(workspace: Path) -> None:
    code, log, outputs, summary = check(workspace, source=BROKEN, engine="vlm")
    assert (code, outputs, summary) == (2, {}, "")
    assert "no such engine: vlm" in log


def test_engines_narrow_the_check(workspace: Path) -> None:
    assert check(workspace, source=BROKEN, engine="  sglang>=0.5.20\n\n")[0] == 0
    assert check(workspace, source=BROKEN, engine="sglang>=0.5.20\nvllm>=0.30")[0] == 1


@pytest.mark.parametrize("text", ["$(touch hacked)", "`touch hacked`", "x; touch hacked", "--output=hacked", "'\""])
def test_inputs_are_data(workspace: Path, text: str) -> None:
    assert check(workspace, source=text)[0] == 3
    assert check(workspace, source=REPAIRED, engine=text)[0] == 2
    assert not (workspace / "hacked").exists()


def test_no_script_holds_an_expression() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            assert not any("${{" in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_least_rights_and_pinned_actions(path: Path) -> None:
    text = path.read_text("utf-8")
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {}
    for job in flow["jobs"].values():
        assert set(job["permissions"].items()) <= {("contents", "read"), ("security-events", "write")}
        assert job["timeout-minutes"]
        for step in job["steps"]:
            used = step.get("uses", "")
            assert re.fullmatch(r"|OWNER/mtpfix@COMMIT|[\w./-]+@[0-9a-f]{40}", used)
            if used.startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_workflows_use_inputs_and_outputs_that_the_action_has() -> None:
    for path in WORKFLOWS:
        text = path.read_text("utf-8")
        for job in yaml.safe_load(text)["jobs"].values():
            for step in job["steps"]:
                if step.get("uses", "").startswith("OWNER/mtpfix"):
                    assert set(step["with"]) <= set(ACTION["inputs"])
        assert set(re.findall(r"steps\.mtpfix\.outputs\.([\w-]+)", text)) <= set(ACTION["outputs"])


# pre-commit


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("config.json", True),
        ("a/b/hf_quant_config.json", True),
        ("model-00001-of-00002.safetensors", True),
        ("x/model.safetensors.index.json", True),
        ("tokenizer_config.json", False),
        ("generation_config.json", False),
        ("config.json.bak", False),
        ("README.md", False),
    ],
)
def test_the_hooks_ask_for_the_files_that_are_read(name: str, wanted: bool) -> None:
    for entry in HOOKS.values():
        assert bool(re.search(entry["files"], name)) is wanted


def test_the_manifest_is_one() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    assert [entry["id"] for entry in clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))] == list(HOOKS)


def entry(folder: Path, name: str, *files: str) -> subprocess.CompletedProcess[str]:
    """A hook as pre-commit calls it: its entry, and the files behind."""
    program, *args = HOOKS[name]["entry"].split()
    assert (program, args[0]) == ("mtpfix", "hook")
    return hook(folder, *args[1:], *files)


def test_the_check_hook(workspace: Path) -> None:
    found = entry(workspace, "mtpfix-check", f"{BROKEN}/config.json", f"{BROKEN}/model.safetensors")
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.count("error[MTP001]") == 1
    clean = entry(workspace, "mtpfix-check", f"{REPAIRED}/config.json")
    assert (clean.returncode, clean.stdout, clean.stderr) == (0, "", "")


def test_the_fix_hook_fails_once_and_then_passes(workspace: Path) -> None:
    first = entry(workspace, "mtpfix-fix", f"{BROKEN}/config.json")
    assert (first.returncode, first.stdout) == (1, "")
    assert first.stderr == f"Changed config.json and hf_quant_config.json in {BROKEN}.\n"
    second = entry(workspace, "mtpfix-fix", f"{BROKEN}/config.json")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


def test_a_folder_stands_for_itself(workspace: Path) -> None:
    found = entry(workspace, "mtpfix-check", BROKEN, f"{BROKEN}/config.json")
    assert (found.returncode, found.stdout.count("error[MTP001]")) == (1, 1)


def test_folders_without_weights_are_passed_over_and_others_named(workspace: Path) -> None:
    (workspace / "app").mkdir()
    (workspace / "app/config.json").write_text("{}", "utf-8")
    assert entry(workspace, "mtpfix-check", "app/config.json", "gone/config.json").returncode == 0
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (workspace / "app/model.safetensors").write_text(pointer, "utf-8")
    found = entry(workspace, "mtpfix-check", "app/config.json", f"{BROKEN}/config.json")
    assert found.returncode == 3
    assert "git lfs pull" in found.stderr
    assert "error[MTP001]" in found.stdout


def test_a_folder_that_is_not_there(workspace: Path) -> None:
    """A misspelt one is not passed over in silence."""
    ran = hook(workspace, "nowhere", REPAIRED)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("Error: nowhere: no such folder\nHint: ")
