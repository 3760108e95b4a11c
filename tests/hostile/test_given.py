"""Files that an option names, and stdin, which anything may be put behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtpfix import symptoms
from mtpfix.checkpoint import source
from mtpfix.cli.given import MAX_LOG
from mtpfix.engines.replay import MAX_ROW

from .sandbox import Sandbox, civil

REPLAY = ("engines", "--replay")
SCAN = ("scan", "--file")
STATE = ("scan", "org", "--state")


def behind(tmp_path: Path, what: str) -> str:
    """A file of a kind that no option is meant for."""
    path = tmp_path / "given"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "20 GB of holes":
        path.touch()
        os.truncate(path, 20 << 30)
    elif what == "one line of 200 MB":
        path.write_bytes(b"x" * 200_000_000)
    elif what == "not UTF-8":
        path.write_bytes(b"\xff\xfe{}")
    elif what == "a loop":
        path.symlink_to(path)
    elif what == "a folder":
        path.mkdir()
    else:
        return what
    return str(path)


KINDS = ("a pipe", "20 GB of holes", "one line of 200 MB", "not UTF-8", "a loop", "a folder", "/dev/zero", "/dev/full")


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("command", [REPLAY, SCAN, STATE])
def test_a_file_of_another_kind(command: tuple[str, ...], what: str, sandbox: Sandbox, tmp_path: Path) -> None:
    done = sandbox.run(*command, behind(tmp_path, what))
    civil(done)
    assert done.code in (2, 3)
    assert "unexpected" not in done.err


@pytest.mark.parametrize(
    ("key", "value"), [("layer", "x" * 900_000), ("decision", "\u202e\x1b[2J" * 9000), ("error", "x" * MAX_ROW)]
)
def test_a_row_with_a_text_that_nobody_records(key: str, value: str, sandbox: Sandbox, tmp_path: Path) -> None:
    row = dict.fromkeys(("engine", "release", "format", "runtime"), "x") | {"layer": "linear", "decision": "plain"}
    (tmp_path / "rows").write_text(json.dumps({**row, "config": {}, key: value}))
    done = sandbox.run(*REPLAY, tmp_path / "rows")
    civil(done)
    assert done.code == 3


@pytest.mark.parametrize(
    ("command", "given"),
    [(("scan", "--file", "-"), b"\xff\xfe"), (("scan", "--file", "-"), None), (("rule", "--error", "-"), None)],
)
def test_stdin_that_is_no_text_or_does_not_end(command: tuple[str, ...], given: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(given or b"")
    with open(tmp_path / "given" if given else "/dev/zero", "rb") as stdin:
        done = subprocess.run([sys.executable, "-m", "mtpfix", *command], stdin=stdin, capture_output=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(b"Error: stdin")


def test_a_pipe_that_somebody_writes_to(tmp_path: Path) -> None:
    """As `<(zcat rows.gz)` of a shell, whose writer takes its time."""
    shell = f'"{sys.executable}" -m mtpfix engines --replay <(sleep 1; echo "{{}}")'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "`engine` is missing" in done.stderr


def test_the_end_of_a_log_is_looked_at(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"INFO loading\n" * MAX_LOG + b"KeyError: 'mtp.fc.weight'\n")
    with open(log, "rb") as stdin:
        command = [sys.executable, "-m", "mtpfix", "rule", "--error", "-"]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "MTP" in done.stdout


def test_what_a_file_is_for_is_asked_without_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a file in /proc that waits until there is something to read, as /proc/kmsg does, whose mode is a regular
    file's."""
    os.mkfifo(tmp_path / "waits")
    monkeypatch.setattr(os.path, "isfile", lambda path: True)
    assert source.parse(str(tmp_path / "waits")).kind == "local"


def test_lines_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(symptoms, "symptom_of", lambda line: seen.append(line))
    symptoms.diagnose("x\n" * 1000 + "y\n" * 2)
    assert seen == ["y", "x"]
