"""examples/bot.py against a Hub: what it proposes, and that it proposes nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from hub import OWNER, Hub

BOT = Path(__file__).resolve().parents[2] / "examples/bot.py"


@pytest.fixture
def organisation(hub: Hub, tmp_path: Path) -> Hub:
    """A broken checkpoint, one that is clean, and one that is none."""
    hub.create("org/broken", tiny.qwen3_next(tmp_path / "broken", "mtp.layers.0*"))
    hub.create("org/clean", tiny.qwen3_next(tmp_path / "clean", "mtp.layers.0*", "mtp.fc"))
    hub.create("org/empty", {"README.md": b"# nothing\n"})
    return hub


def run(state: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MTPFIX")}
    command = [sys.executable, str(BOT), "org", "--state", str(state), *args]
    return subprocess.run(
        command, env={**env, "HF_TOKEN": OWNER}, capture_output=True, text=True, timeout=120, check=False
    )


def proposals(hub: Hub) -> list[str]:
    return [name for name, repo in hub.repositories.items() for _ in repo.pulls]


def test_a_dry_run_sends_nothing(organisation: Hub, tmp_path: Path) -> None:
    done = run(tmp_path / "state.jsonl", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "== org/broken\n" in done.stdout
    assert done.stdout.endswith("1 fixable, 1 of 1 proposed\n")
    assert proposals(organisation) == []


def test_the_fixable_one_is_proposed_once(organisation: Hub, tmp_path: Path) -> None:
    first, second = run(tmp_path / "one.jsonl"), run(tmp_path / "two.jsonl")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert proposals(organisation) == ["org/broken"]
    assert OWNER not in f"{first.stdout}{first.stderr}{second.stdout}{second.stderr}"


def test_no_more_than_asked_for(organisation: Hub, tmp_path: Path) -> None:
    done = run(tmp_path / "state.jsonl", "--most", "0")
    assert done.stdout.endswith("1 fixable, 0 of 0 proposed\n")
    assert proposals(organisation) == []
