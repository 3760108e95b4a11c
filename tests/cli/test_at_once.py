"""Several processes that write in one checkpoint at once: each does all of its work or none, in some order.

The long run starts them in any order, each some moments after the one before; MTPFIX_LONG=100 takes 100 rounds of each.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkpoints import INDEX, glm4_moe, on_disk
from tiny import contents, qwen3_next
from writers import GLM, command

LONG = int(os.environ.get("MTPFIX_LONG") or 0)
ROUNDS = max(LONG, 8) if LONG else 1
APART = 0.3  # seconds, at most: about as long as a command needs to come to its first write
Words = tuple[str, ...]
APPLY: Words = ("apply", "here", "-y")
UNDO: Words = ("undo", "here")
CHECK: Words = ("check", "here", "--format", "quiet")
HOOK: Words = ("hook", "--fix", "here/config.json")
GRAFT: Words = ("graft", "here", "--from", "base", "-y")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def at_once(*commands: Words) -> list[tuple[int, str]]:
    """Exit codes and what was said."""
    started = []
    for words in random.sample(commands, len(commands)) if LONG else commands:
        time.sleep(random.uniform(0, APART) if LONG and started else 0)
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "mtpfix", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    said = [process.communicate()[1] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said, strict=True)]


def test_apply_and_apply(root: Path) -> None:
    here = qwen3_next(root / "here", "mtp.layers.0*")
    old = contents(here)
    for _ in range(ROUNDS):
        ends = at_once(APPLY, APPLY, CHECK, APPLY)
        assert sum("Changed config.json" in said for _, said in ends) == 1, ends
        for code, said in ends:
            assert code in (0, 1) or (code == 3 and "was changed meanwhile; nothing was written" in said), ends
        assert command(*CHECK) == 0
        assert contents(here).keys() == old.keys()
        assert command(*UNDO) == 0
        assert contents(here) == old


def test_apply_and_undo(root: Path) -> None:
    here = qwen3_next(root / "here", "mtp.layers.0*")
    old = contents(here)
    assert command(*APPLY) == 0
    new = contents(here)
    for _ in range(ROUNDS):
        ends = at_once(APPLY, UNDO, CHECK, UNDO)
        assert all(code in (0, 1, 2, 3) and "Traceback" not in said for code, said in ends), ends
        assert contents(here) in (old, new)
        nothing = contents(here) == old
        assert command(*UNDO) == (2 if nothing else 0)
        assert contents(here) == old
        assert command(*APPLY) == 0
        assert contents(here) == new


def test_hook_and_apply(root: Path) -> None:
    """Whichever is first mends the checkpoint, and one undo takes it back."""
    here = qwen3_next(root / "here", "mtp.layers.0*")
    old = contents(here)
    assert command(*APPLY) == 0
    new = contents(here)
    assert command(*UNDO) == 0
    for _ in range(ROUNDS):
        ends = at_once(HOOK, APPLY, CHECK, HOOK)
        assert all(code in (0, 1, 3) and "Traceback" not in said for code, said in ends), ends
        assert contents(here) == new
        assert command(*UNDO) == 0
        assert contents(here) == old
        assert command(*UNDO) == 2


def test_graft_and_apply(root: Path) -> None:
    """A graft, and the repair of what is there: the lists come out right whichever is first."""
    on_disk(root / "base", glm4_moe(), seed=2)
    for _ in range(ROUNDS):
        here = on_disk(root / "here", glm4_moe().without_draft(), "nvfp4", GLM[:2], sidecar=GLM[:1], seed=1)
        old = contents(here)
        ends = at_once(GRAFT, APPLY, CHECK)
        assert all(code in (0, 1, 3) and "Traceback" not in said for code, said in ends), ends
        assert not [name for name in contents(here) if name.startswith(".")]
        assert (INDEX in contents(here)) == ("model_mtp.safetensors" in contents(here))
        codes = list(itertools.takewhile(lambda code: code == 0, (command(*UNDO) for _ in range(4))))
        assert len(codes) == sum("Changed" in said for _, said in ends), ends
        assert contents(here) == old
        shutil.rmtree(here)
