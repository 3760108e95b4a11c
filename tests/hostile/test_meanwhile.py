"""Files that are cut, grown, removed, replaced or made something else while they are read, and folders without rights.

At each run one file changes before or behind one of the calls that read: exit code 3, or what was there at one moment.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tiny import qwen3_next

from mtpfix.checkpoint import local
from mtpfix.cli import main

ROUNDS = 2000 if os.environ.get("MTPFIX_LONG") else 36
COMMANDS = (("check", "DIR"), ("apply", "DIR", "--dry-run"), ("snapshot", "DIR", "-o", "OUT"), ("list", "DIR"),
            ("check", "DIR", "--format", "json"), ("hook", "DIR"), ("graft", "DIR", "--from", "BASE", "--dry-run"),
            ("explain", "DIR", "mtp.**"), ("override", "DIR", "--engine", "vllm"))  # fmt: skip
CAPABILITIES = "-dac_override,-dac_read_search"


class Meddler:
    """Changes one file of a folder at one of the calls that are counted."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.left = folder, random.Random(seed), 0
        self.sound = {path.name: path.read_bytes() for path in folder.iterdir()}

    def put_back(self, calls: int) -> None:
        """The folder as it was, to be changed after so many calls."""
        self.left = 0
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for name, raw in self.sound.items():
            (self.folder / name).write_bytes(raw)
        self.left = calls

    def watching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._count()
            found = call(*args, **kwargs)
            self._count()
            return found

        return watched

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            path = self.folder / self.random.choice(sorted(self.sound))
            self.random.choice((self._cut, self._grow, self._swap, self._drop, self._pipe, self._folder, self._loop))(
                path
            )

    def _cut(self, path: Path) -> None:
        path.write_bytes(self.sound[path.name][: self.random.randrange(len(self.sound[path.name]))])

    def _grow(self, path: Path) -> None:
        path.write_bytes(self.sound[path.name] + b"x" * 1000)

    def _swap(self, path: Path) -> None:
        other = path.with_name("other")
        other.write_bytes(self.sound[self.random.choice(sorted(self.sound))])
        other.replace(path)

    def _drop(self, path: Path) -> None:
        path.unlink()

    def _pipe(self, path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    def _folder(self, path: Path) -> None:
        path.unlink()
        path.mkdir()

    def _loop(self, path: Path) -> None:
        path.unlink()
        path.symlink_to(path.name)


def test_files_that_change_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = qwen3_next(tmp_path / "base", "mtp.layers.0*")
    meddler = Meddler(qwen3_next(tmp_path / "model", "mtp.layers.0*"), 7)
    words = {"DIR": str(meddler.folder), "BASE": str(base), "OUT": str(tmp_path / "bundle")}
    places = [(os, name) for name in ("open", "stat", "fstat", "listdir")]
    codes = set()
    for number in range(ROUNDS):
        command = [words.get(word, word) for word in COMMANDS[number % len(COMMANDS)]]
        meddler.put_back(meddler.random.randrange(1, 60))
        with monkeypatch.context() as patched:
            for module, name in (*places, (local, "_exactly")):
                patched.setattr(module, name, meddler.watching(getattr(module, name)))
            done = CliRunner().invoke(main, command)
            meddler.left = 0
        assert isinstance(done.exception, SystemExit | None), (command, done.exception)
        assert done.exit_code in (0, 1, 3), (command, done.output[-500:])
        codes.add(done.exit_code)
    assert 3 in codes


@pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root, to give rights up")
@pytest.mark.parametrize(("place", "mode"), [("", 0o555), ("", 0), ("", 0o444), ("config.json", 0)])
def test_a_folder_without_rights(tmp_path: Path, place: str, mode: int) -> None:
    folder = qwen3_next(tmp_path / "model", "mtp.layers.0*")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / place).chmod(mode)
    less = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}", sys.executable, "-m", "mtpfix"]
    for args in (
        ["apply", "-y", str(folder)],
        ["hook", "--fix", str(folder)],
        ["check", str(folder), "-o", f"{folder}/r"],
    ):
        done = subprocess.run([*less, *args], capture_output=True, text=True, check=False)
        assert done.returncode == 3, (args, done.stderr)
        assert "Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
    (folder / place).chmod(0o755)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
