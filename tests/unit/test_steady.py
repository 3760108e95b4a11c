"""A directory that is written while it is read: what is read is what stood there at one moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import qwen3_next

import mtpfix
from mtpfix import api
from mtpfix.checkpoint.local import Folder
from mtpfix.errors import UnreadableError

Act = Callable[[], object]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return qwen3_next(tmp_path / "here", "mtp.layers.0*")


def meanwhile(monkeypatch: pytest.MonkeyPatch, acts: list[Act]) -> list[str]:
    """Do something after each JSON file that is read, as long as there is something to do; the files that were read."""
    real, seen = Folder.json_bytes, []

    def reading(self: Folder, name: str) -> bytes:
        found = real(self, name)
        seen.append(name)
        if acts:
            acts.pop(0)()
        return found

    monkeypatch.setattr(Folder, "json_bytes", reading)
    return seen


def test_both_files_old_or_both_new(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = mtpfix.check(place)
    assert set(report.plan.files) == {"config.json", "hf_quant_config.json"}
    seen = meanwhile(monkeypatch, [lambda: mtpfix.apply(report)])
    assert mtpfix.check(place).plan.empty
    assert seen.count("config.json") == 2  # the first look was thrown away


def test_a_snapshot_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = mtpfix.check(place)
    seen = meanwhile(monkeypatch, [lambda: mtpfix.apply(report)])
    bundle = api.snapshot(place)
    assert len(seen) == len(set(seen)) * 2
    assert bundle == api.snapshot(place)


def test_an_error_that_is_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (place / "hf_quant_config.json").read_bytes()
    (place / "hf_quant_config.json").write_bytes(b"{")
    with pytest.raises(UnreadableError):
        mtpfix.check(place)

    def mend() -> None:
        (place / "new").write_bytes(whole)
        (place / "new").rename(place / "hf_quant_config.json")

    meanwhile(monkeypatch, [int, mend])  # after it was read
    assert mtpfix.check(place).status == "fixable"


def test_somebody_who_never_stops(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touch() -> None:
        os.utime(place / "config.json")
        time.sleep(0.005)  # a tick of the clock of files

    acts: list[Act] = [touch] * 100
    meanwhile(monkeypatch, acts)
    assert mtpfix.check(place).status == "fixable"
    assert len(acts) > 80  # there is an end to it


def test_applied_and_undone_by_another_process(place: Path) -> None:
    """A reader in a loop: what mtpfix reads is one of the two states, and so is what it says of it."""
    old, report = read(place), mtpfix.check(place)
    mtpfix.apply(report)
    new = read(place)
    mtpfix.undo(place)
    one = os.fork()
    if not one:
        try:
            while True:
                mtpfix.apply(report)
                time.sleep(0.003)
                mtpfix.undo(place)
                time.sleep(0.003)
        finally:
            os._exit(1)
    try:
        found = [read(place) for _ in range(40)]
        end = time.monotonic() + 20
        while not (old in found and new in found) and time.monotonic() < end:
            found.append(read(place))
    finally:
        os.kill(one, signal.SIGKILL)
        os.waitpid(one, 0)
    if mtpfix.check(place).plan.empty:
        mtpfix.undo(place)
    assert read(place) == old
    assert [one for one in found if one not in (old, new)] == []
    assert old in found
    assert new in found


def read(place: Path) -> dict[str, bytes]:
    return {name: file.raw for name, file in api.read(place).files.items()}
