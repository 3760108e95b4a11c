"""`mtpfix apply org/name --create-pr` as a user or a bot types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from checkpoints import FORMATS, Model, Tensors, deepseek_v3, fronts, right_list, tensors_of
from click.testing import CliRunner, Result
from documents import valid
from shards import write_index, write_shard

import mtpfix
from hub import WRITER, Hub, Repository
from mtpfix.checkpoint.access import Access
from mtpfix.cli import main
from mtpfix.hub.describe import marks

REPO = "org/name"
ENGINE = ("--engine", "vllm==0.24.0")


@pytest.fixture
def repo(hub: Hub, tmp_path: Path) -> Repository:
    return hub.create(REPO, tiny.qwen3_next(tmp_path / "checkpoint", "mtp.layers.0*"))


def run(*args: str, token: str | None = WRITER) -> Result:
    more = ("--token", token) if token else ()
    return CliRunner().invoke(main, ("apply", REPO, "--create-pr", *ENGINE, *more, *args))


def test_opened_then_already_open(repo: Repository) -> None:
    first = run("-y")
    assert (first.exit_code, first.stderr.split()[0]) == (0, "Opened")
    assert first.stdout.startswith("--- a/config.json")
    again = run("--format", "json")
    document = valid(again.stdout, "proposal")
    assert (again.exit_code, document["outcome"], document["status"]) == (0, "already-open", "clean")
    assert document["pull_request"]["num"] == 1
    assert document["revision"] == repo.head()
    assert len(repo.pulls) == 1


def test_stats_count_what_is_sent_too(repo: Repository, hub: Hub) -> None:
    result = run("--stats")
    assert result.stderr.endswith(f"{hub.count()} requests, {hub.sent} bytes received\n")
    assert result.stderr.count(" received") == 1
    assert (hub.count("POST"), len(repo.pulls)) == (2, 1)


def test_the_title_can_be_given(repo: Repository) -> None:
    assert run("--commit-message", "Mend the lists").exit_code == 0
    assert repo.pulls[0].title == "Mend the lists"


def test_json_says_what_became_of_it(repo: Repository) -> None:
    assert valid(run("--format", "json").stdout, "proposal")["outcome"] == "opened"
    repo.pulls[0].status = "closed"
    refused = run("--format", "json")
    assert (refused.exit_code, valid(refused.stdout, "proposal")["outcome"]) == (1, "refused")
    assert valid(run("--format", "json", "--force").stdout, "proposal")["outcome"] == "opened"
    repo.merge(repo.pulls[1], "owner")
    fixed = run("--format", "json")
    assert (fixed.exit_code, valid(fixed.stdout, "proposal")["outcome"]) == (0, "already-fixed")
    assert json.loads(fixed.stdout)["pull_request"] is None


def test_a_dry_run_shows_everything_and_sends_nothing(repo: Repository, hub: Hub) -> None:
    result = run("--dry-run", token=None)
    assert result.exit_code == 1
    assert "+++ b/config.json" in result.stdout
    assert "### What the engines do before and after" in result.stdout
    assert len(marks(result.stdout)) == 1
    document = valid(run("--dry-run", "--format", "json", token=None).stdout, "preview")
    assert (document["outcome"], document["repository"]) == ("would-open", REPO)
    assert marks(document["description"]) == (document["fingerprint"],)
    assert not hub.count("POST", "commit")
    assert not repo.pulls


def test_from_python(repo: Repository, tmp_path: Path) -> None:
    access = Access(token=WRITER)
    first = mtpfix.open_pr(REPO, engines=["vllm==0.24.0"], message="Mend the lists", access=access)
    assert (first.kind, repo.pulls[0].title, first.revision) == ("opened", "Mend the lists", repo.head())
    again = mtpfix.open_pr(f"hf://{REPO}@main", engines=["vllm==0.24.0"], access=access)
    assert (again.kind, again.pull_request) == ("already-open", first.pull_request)
    with pytest.raises(mtpfix.UsageError, match="token"):
        mtpfix.open_pr(REPO)
    with pytest.raises(mtpfix.UsageError, match="repository on the Hub"):
        mtpfix.open_pr(tmp_path, access=access)


def test_no_token_is_said_before_anything_else(repo: Repository, hub: Hub) -> None:
    result = run(token=None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "token" in result.stderr
    assert not hub.calls


@pytest.mark.parametrize("where", ["", "@refs/pr/1", "@" + "a" * 40])
def test_a_pull_request_needs_a_repository_and_a_branch(repo: Repository, hub: Hub, tmp_path: Path, where: str) -> None:
    source = REPO + where if where else str(tmp_path / "checkpoint")
    result = CliRunner().invoke(main, ("apply", source, "--create-pr", "--token", WRITER))
    assert (result.exit_code, result.stdout) == (2, "")
    assert not hub.calls


@pytest.mark.parametrize("option", [("--force",), ("--commit-message", "x")])
def test_options_of_a_pull_request_need_one(tmp_path: Path, option: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, ("apply", str(tmp_path), *option)).exit_code == 2


def test_the_token_is_never_shown(repo: Repository, hub: Hub) -> None:
    for args in ((), ("--format", "json"), ("--dry-run",), ("--stats",)):
        result = run(*args)
        assert WRITER not in result.output
    assert all(WRITER not in str(pull.events) for pull in repo.pulls)


# --- index and headers ------------------------------------------------------------------------------------------------


def folder(path: Path, made: Model, scheme: str, config: dict[str, Any], *, index: bool) -> Path:
    """A checkpoint with the draft in a file of its own, which the index names or leaves out."""
    front = tuple(fronts(made))
    shards: dict[str, Tensors] = {"model.safetensors": {}, "mtp.safetensors": {}}
    for name, cell in tensors_of(made, "fp8-block", dict.fromkeys(made.draft, scheme)).items():
        shards["mtp.safetensors" if name.startswith(front) else "model.safetensors"][name] = cell
    for shard, tensors in shards.items():
        write_shard(path / shard, tensors)
    (path / "config.json").write_text(json.dumps({**made.config, "quantization_config": config}, indent=2))
    named = {
        name: shard for shard, tensors in shards.items() for name in tensors if index or not name.startswith(front)
    }
    write_index(path, named)
    return path


DS = deepseek_v3()
FP8 = FORMATS["fp8-block"].config(right_list(DS, "fp8-block", draft=False))


def mend(*args: str) -> Result:
    return CliRunner().invoke(main, ("apply", REPO, "--create-pr", "--token", WRITER, *args))


def test_an_index_is_rebuilt_by_pull_request(hub: Hub, tmp_path: Path) -> None:
    repo = hub.create(REPO, folder(tmp_path / "x", DS, "fp8-block", FP8, index=False))
    assert mend("-y").exit_code == 1  # nothing safe to do
    assert not repo.pulls
    first = mend("-y", "--unsafe-fixes")
    assert first.exit_code == 0, first.stderr
    held = repo.files(repo.pulls[0].ref)["model.safetensors.index.json"].read()
    assert "mtp.safetensors" in json.loads(held)["weight_map"].values()
    assert "model.safetensors.index.json" in repo.pulls[0].title
    again = json.loads(mend("--unsafe-fixes", "--format", "json").stdout)
    assert (again["outcome"], again["status"]) == ("already-open", "clean")
    assert len(repo.pulls) == 1


def test_headers_are_no_matter_of_a_pull_request(hub: Hub, tmp_path: Path) -> None:
    repo = hub.create(REPO, folder(tmp_path / "x", DS, "fp8-block-ct", FP8, index=True))
    result = mend("-y", "--unsafe-fixes", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (1, "refused")
    assert not repo.pulls
    told = CliRunner().invoke(main, ("apply", REPO, "--unsafe-fixes", "--dry-run"))
    assert "no header can be edited on the Hub" in " ".join(told.stderr.split())
