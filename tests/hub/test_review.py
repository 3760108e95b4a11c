"""`mtpfix review org/name NUM` over the loopback Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner, Result
from documents import valid

from hub import WRITER, Hub, Repository
from hub.repositories import Content
from mtpfix.cli import main

REPO = "org/name"
ENGINE = ("--engine", "vllm==0.24.0")


@pytest.fixture
def repo(hub: Hub, tmp_path: Path) -> Repository:
    return hub.create(REPO, tiny.qwen3_next(tmp_path / "checkpoint", "mtp.layers.0*"))


def review(num: int, *args: str) -> Result:
    return CliRunner().invoke(main, ("review", REPO, str(num), *ENGINE, *args))


def document(num: int) -> tuple[int, Any]:
    result = review(num, "--format", "json")
    return result.exit_code, valid(result.stdout, "review")


def with_entries(repo: Repository, *entries: str, **more: Any) -> dict[str, bytes]:
    config = json.loads(repo.files()["config.json"].read())
    sidecar = json.loads(repo.files()["hf_quant_config.json"].read())
    config["quantization_config"]["ignore"] += entries
    sidecar["quantization"]["exclude_modules"] += entries
    return {
        "config.json": json.dumps({**config, **more}).encode(),
        "hf_quant_config.json": json.dumps(sidecar).encode(),
    }


def test_our_own_pull_request_mends_and_changes_only_lists(repo: Repository, hub: Hub) -> None:
    applied = CliRunner().invoke(main, ("apply", REPO, "--create-pr", *ENGINE, "--token", WRITER))
    assert applied.exit_code == 0
    hub.forget()
    code, found = document(1)
    assert (code, found["effect"], found["only_lists"]) == (0, "mends", True)
    assert [(one["name"], one["kind"]) for one in found["files"]] == [
        ("config.json", "lists"),
        ("hf_quant_config.json", "lists"),
    ]
    assert found["decisions"]
    assert all(change["right"] for change in found["decisions"])
    assert {name for change in found["decisions"] for name in change["modules"]} == {"mtp.fc"}
    assert found["newly_plain_quantized"] == []
    assert found["status"] == {"before": "fixable", "after": "clean"}
    assert hub.count("POST") == 0


@pytest.mark.parametrize("fault", ["no hashes", "one hash", "no diff"])
def test_hubs_that_tell_less(repo: Repository, hub: Hub, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    hub.sizes = fault != "no hashes"
    if fault == "one hash":
        monkeypatch.setattr(Content, "oid", "0" * 40)
    if fault == "no diff":
        monkeypatch.setattr(Repository, "diff", lambda *_: "")
    repo.open_pr("mend", with_entries(repo, "mtp*"))
    code, found = document(1)
    assert (code, found["effect"], found["only_lists"]) == (0, "mends", True)


def test_few_requests(repo: Repository, hub: Hub) -> None:
    repo.open_pr("mend", with_entries(repo, "mtp*"))
    review(1)
    # the pull request; the branch: commit, two JSON files, the front of the weights over a redirect; the pull request's
    # commit, its two files
    assert hub.count() == 1 + (3 + 2) + 3
    hub.forget()
    review(1)
    assert hub.count() == 1 + 1 + 3


def test_a_list_that_takes_too_much_does_harm(repo: Repository) -> None:
    repo.open_pr("too much", with_entries(repo, "mtp*", "model.layers.1*"))
    code, found = document(1)
    assert (code, found["effect"], found["only_lists"]) == (1, "harms", True)
    assert any(name.startswith("model.layers.1.mlp") for name in found["newly_plain_quantized"])


def test_only_the_decisions_that_were_asked_about_are_shown_and_harm_to_any_engine_counts(repo: Repository) -> None:
    repo.open_pr("too much", with_entries(repo, "mtp*", "model.layers.1*"))
    wide, narrow = (
        json.loads(CliRunner().invoke(main, ("review", REPO, "1", "--engine", one, "--format", "json")).stdout)
        for one in ("vllm", "transformers")
    )
    assert {one["engine"] for one in wide["decisions"]} == {"vllm"}
    assert {one["engine"] for one in narrow["decisions"]} <= {"transformers"}
    assert wide["newly_plain_quantized"] == narrow["newly_plain_quantized"] != []


def test_more_than_lists_is_said(repo: Repository) -> None:
    repo.open_pr("more", {**with_entries(repo, "mtp*", rope_theta=7), "README.md": b"x"})
    code, found = document(1)
    assert (code, found["effect"], found["only_lists"]) == (0, "mends", False)
    assert {one["name"]: one["kind"] for one in found["files"]} == {
        "README.md": "other",
        "config.json": "config",
        "hf_quant_config.json": "lists",
    }
    assert "/rope_theta" in found["files"][1]["pointers"]


def test_other_bytes_and_the_same_meaning(repo: Repository) -> None:
    value = json.loads(repo.files()["config.json"].read())
    repo.open_pr("reformat", {"config.json": json.dumps(value, indent=8).encode()})
    code, found = document(1)
    assert (code, found["effect"]) == (1, "nothing")
    assert (found["files"][0]["kind"], found["decisions"]) == ("spelling", [])


def test_what_the_branch_has_done_since_is_not_the_pull_requests(repo: Repository) -> None:
    repo.open_pr("mend", with_entries(repo, "mtp*"))
    repo.commit({"README.md": b"new", "generation_config.json": b"{}"})
    _, found = document(1)
    assert [one["name"] for one in found["files"]] == ["config.json", "hf_quant_config.json"]


def test_changed_weights_are_read_again(repo: Repository, tmp_path: Path) -> None:
    other = tiny.qwen3_next(tmp_path / "other")
    tiny.write_safetensors(other / "model.safetensors", tiny.plain("lm_head", 64, 128))
    repo.open_pr("prune", {"model.safetensors": (other / "model.safetensors").read_bytes()})
    code, found = document(1)
    assert [one["kind"] for one in found["files"]] == ["weights"]
    assert (code, found["only_lists"]) == (1, False)


@pytest.mark.parametrize("form", ["human", "markdown"])
def test_for_people(repo: Repository, form: str) -> None:
    repo.open_pr("mend", with_entries(repo, "mtp.fc"), author="somebody")
    result = review(1, "--format", form)
    assert result.exit_code == 0
    assert "mends what is wrong" in result.stdout
    assert "mtp.fc" in result.stdout
    assert result.stderr == ""


def test_what_is_no_pull_request(repo: Repository, tmp_path: Path) -> None:
    repo.discuss("a question", "why?", "somebody")
    for num in ("1", "7"):
        result = review(int(num))
        assert (result.exit_code, result.stdout) == (3, "")
    local = CliRunner().invoke(main, ("review", str(tmp_path), "1"))
    assert local.exit_code == 2


def test_a_broken_config_must_not_be_merged(repo: Repository) -> None:
    repo.open_pr("oops", {"config.json": b"{"})
    result = review(1)
    assert result.exit_code == 3
    assert "must not be merged" in result.stderr
