"""examples/bot.py against a Hub: what it proposes, and that it proposes nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from hub import OWNER, READER, Hub

BOT = Path(__file__).resolve().parents[2] / "examples/bot.py"


@pytest.fixture
def organisation(hub: Hub, tmp_path: Path) -> Hub:
    """A broken checkpoint, one that is clean, and one that is none."""
    hub.create("org/broken", tiny.qwen3_next(tmp_path / "broken", "mtp.layers.0*"))
    hub.create("org/clean", tiny.qwen3_next(tmp_path / "clean", "mtp.layers.0*", "mtp.fc"))
    hub.create("org/empty", {"README.md": b"# nothing\n"})
    return hub


def run(state: Path, *args: str, token: str = OWNER) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MTPFIX")}
    command = [sys.executable, str(BOT), "org", "--state", str(state), *args]
    return subprocess.run(
        command, env={**env, "HF_TOKEN": token}, capture_output=True, text=True, timeout=120, check=False
    )


def proposals(hub: Hub) -> list[str]:
    return [name for name, repo in hub.repositories.items() for _ in repo.pulls]


def test_a_dry_run_sends_nothing(organisation: Hub, tmp_path: Path) -> None:
    done = run(tmp_path / "state.jsonl", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "== org/broken\n" in done.stdout
    assert done.stdout.endswith("1 to repair: 1 shown\n")
    assert proposals(organisation) == []


def test_the_fixable_one_is_proposed_once(organisation: Hub, tmp_path: Path) -> None:
    first, second = run(tmp_path / "one.jsonl"), run(tmp_path / "two.jsonl")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.endswith("1 to repair: 1 opened\n")
    assert second.stdout.endswith("1 to repair: 1 already-open\n")
    assert proposals(organisation) == ["org/broken"]
    assert OWNER not in f"{first.stdout}{first.stderr}{second.stdout}{second.stderr}"


def test_no_more_than_asked_for(organisation: Hub, tmp_path: Path) -> None:
    done = run(tmp_path / "state.jsonl", "--most", "0")
    assert done.stdout.endswith("1 to repair: nothing sent\n")
    assert proposals(organisation) == []


def test_those_that_have_one_do_not_count(organisation: Hub, tmp_path: Path) -> None:
    """The second repository has its turn though the first one may have one pull request in a run and has it."""
    run(tmp_path / "one.jsonl", "--most", "1")
    organisation.create("org/later", tiny.qwen3_next(tmp_path / "later", "mtp.layers.0*"))
    done = run(tmp_path / "two.jsonl", "--most", "1")
    assert done.returncode == 0, done.stderr
    assert sorted(proposals(organisation)) == ["org/broken", "org/later"]


def test_one_that_was_closed_is_respected(organisation: Hub, tmp_path: Path) -> None:
    run(tmp_path / "one.jsonl")
    organisation.repositories["org/broken"].pulls[0].status = "closed"
    done = run(tmp_path / "two.jsonl")
    assert done.returncode == 0, done.stderr
    assert "org/broken: refused" in done.stdout
    assert proposals(organisation) == ["org/broken"]


def test_a_proposal_that_fails_is_told(organisation: Hub, tmp_path: Path) -> None:
    done = run(tmp_path / "state.jsonl", token=READER)
    assert done.returncode == 1
    assert done.stdout.endswith("1 to repair: 1 failed\n")
    assert "org/broken: " in done.stderr
    assert "Traceback" not in done.stderr
