"""Large files beside the JSON files: all or nothing, whatever happens on the way, and back again."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lengths import steps
from test_store import error_of, failing, in_child, killed_at

from mtpfix import bulk
from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import ConflictError
from mtpfix.store import apply_files, recover, undo
from mtpfix.store import steps as making
from mtpfix.store.files import stamp_of
from mtpfix.store.states import Large, Piece, UndoRecord

pytestmark = pytest.mark.forks

INDEX = "model.safetensors.index.json"
OLD = {
    "config.json": b'{"a": 1}\n',
    "a.safetensors": b"HEAD" + bytes(range(200)),
    "gone.safetensors": b"all of it",
    "b.safetensors": b"untouched",
}
NEW = {
    "config.json": b'{"a": 2}\n',
    INDEX: b"{}",
    "new.safetensors": b"n" * 1000,
    "a.safetensors": b"SMALLER" + bytes(range(100, 200)),
    "b.safetensors": OLD["b.safetensors"],
}
BACK = (Piece(True, 0, 104), Piece(False, 7, 107))
Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, data in OLD.items():
        (folder / name).write_bytes(data)
    os.chmod(folder / "config.json", 0o640)
    return folder


def written(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            bulk.Target(descriptor, "it").put(data, 0)
        finally:
            os.close(descriptor)

    return make


def change(place: Path) -> UndoRecord | None:
    before = {
        "config.json": OLD["config.json"],
        "new.safetensors": None,
        INDEX: None,
        "a.safetensors": stamp_of(place / "a.safetensors"),
        "gone.safetensors": stamp_of(place / "gone.safetensors"),
    }
    after = {
        "config.json": NEW["config.json"],
        "new.safetensors": Large(written(NEW["new.safetensors"])),
        INDEX: NEW[INDEX],
        "a.safetensors": Large(written(NEW["a.safetensors"]), BACK),
        "gone.safetensors": Large(None, (Piece(True, 0, 9),)),
    }
    return apply_files(place, before, after)


def content(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_there_and_back(place: Path) -> None:
    stamps = {name: stamp_of(place / name) for name in OLD if name != "config.json"}
    record = change(place)
    assert record is not None
    assert content(place) == NEW
    assert stat.S_IMODE((place / "new.safetensors").stat().st_mode) == 0o640  # as config.json
    assert stat.S_IMODE((place / INDEX).stat().st_mode) == 0o640
    undo(place)
    assert content(place) == OLD
    assert {name: stamp_of(place / name) for name in stamps} == stamps
    assert not list(record.path.parent.iterdir())


def test_a_stack_of_two(place: Path) -> None:
    """The first record still knows the file that the second one has brought back."""
    change(place)
    before = {"a.safetensors": stamp_of(place / "a.safetensors")}
    apply_files(place, before, {"a.safetensors": Large(written(b"third"), (Piece(True, 0, 107),))})
    undo(place)
    assert content(place) == NEW
    undo(place)
    assert content(place) == OLD


@pytest.mark.parametrize("name", ["a.safetensors", "gone.safetensors", "new.safetensors"])
def test_a_large_file_that_is_not_what_was_read(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = making._prepare

    def meddle(*args: Any) -> None:
        (place / name).write_bytes(b"mine")
        real(*args)

    monkeypatch.setattr(making, "_prepare", meddle)
    with pytest.raises(ConflictError, match=name):
        change(place)
    assert content(place) == OLD | {name: b"mine"}


@pytest.mark.parametrize("name", ["a.safetensors", "new.safetensors", "gone.safetensors"])
def test_undo_of_what_was_changed_since(place: Path, name: str) -> None:
    change(place)
    (place / name).write_bytes(b"mine")
    with pytest.raises(ConflictError, match=name):
        undo(place)
    assert content(place) == NEW | {name: b"mine"}


def test_links_are_replaced_and_restored(place: Path) -> None:
    blobs = place.parent / "blobs"
    shutil.copytree(place, blobs)
    for name in OLD:
        (place / name).unlink()
        (place / name).symlink_to(f"../blobs/{name}")
    change(place)
    assert content(place) == NEW
    assert content(blobs) == OLD
    undo(place)
    assert content(place) == OLD
    assert all((place / name).is_symlink() for name in OLD)


@pytest.mark.parametrize("name", ["x.bin", "sub/x.safetensors", ".x.safetensors", "../x.safetensors", "config.json"])
def test_only_safetensors_of_the_directory(place: Path, name: str) -> None:
    with pytest.raises(ValueError, match="directly in the checkpoint"):
        apply_files(place, {name: None}, {name: Large(written(b""))})


def test_what_is_there_already_stays(place: Path) -> None:
    with pytest.raises(ConflictError, match="is there already"):
        apply_files(place, {"b.safetensors": None}, {"b.safetensors": Large(written(b""))})
    assert content(place) == OLD


def test_a_file_system_without_second_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    for number in range(20):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing(os.replace, number))
            error = error_of(lambda: change(place))
        if error is None:
            break
        assert content(place) == OLD
    assert number in range(5, 19)
    assert content(place) == NEW
    undo(place)
    assert content(place) == OLD


STEPS = ("open", "pwrite", "write", "fsync", "fdatasync", "link", "replace", "unlink", "fchmod", "utime")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("work", ["apply", "undo"])
def test_an_error_at_any_step(place: Path, monkeypatch: pytest.MonkeyPatch, step: str, work: str) -> None:
    start, run = OLD, lambda: change(place)
    for number in range(60):
        if work == "undo":
            change(place)
            start, run = NEW, lambda: undo(place)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing(getattr(os, step), number))
            error = error_of(run)
        if error is None:
            break
        assert "No space left" in str(error)
        assert content(place) == start
        if work == "undo":
            undo(place)
    assert number < 59


def kill(work: Callable[[], Any], number: int) -> int:
    """Runs something in a process that is killed at its n-th step; the exit code."""

    def child() -> None:
        import test_store

        test_store.STEPS = STEPS
        killed_at("any", number, work)

    return in_child(child)


@pytest.mark.parametrize("work", ["apply", "undo"])
def test_killed_at_each_step(place: Path, work: str) -> None:
    ends = []
    for number in steps(300, work == "undo"):
        if work == "undo" and content(place) == OLD:
            change(place)
        code = kill((lambda: change(place)) if work == "apply" else (lambda: undo(place)), number)
        recover(place)
        files = content(place)
        assert files in (OLD, NEW), number
        ends.append(files == NEW)
        if work == "apply" and files == NEW:
            undo(place)
            assert content(place) == OLD
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert code == 0
    assert set(ends) == {True, False}


def test_no_moment_without_the_old_or_the_new_file(place: Path) -> None:
    """Without any recovery: a file that gives way is there, whole, as it was or as it will be."""
    for number in steps(300, 2):
        code = kill(lambda: change(place), number)
        files = content(place)
        assert files["a.safetensors"] in (OLD["a.safetensors"], NEW["a.safetensors"])
        assert files.get("new.safetensors") in (None, NEW["new.safetensors"])
        assert INDEX not in files or "new.safetensors" in files  # the index comes after what it names
        recover(place)
        if content(place) == NEW:
            undo(place)
        if code == 0:
            return
    pytest.fail("it never comes through")


@pytest.mark.parametrize("number", range(25, 60, 5))
def test_killed_at_each_step_of_a_recovery(place: Path, number: int) -> None:
    for again in steps(60, number // 5):
        kill(lambda: change(place), number)
        code = kill(lambda: recover(place), again)
        recover(place)
        files = content(place)
        assert files in (OLD, NEW)
        assert JOURNAL not in files
        if files == NEW:
            undo(place)
        if code == 0:
            return
    pytest.fail("it never comes through")
