"""Writing: all or nothing, whatever happens on the way, and back again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import secrets
import shutil
import signal
import stat
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import ConflictError, UnreadableError, UsageError, WriteError
from mtpfix.store import apply_files, lock, recover, steps, undo
from mtpfix.store.records import state_folder
from mtpfix.store.states import Change, Content

pytestmark = pytest.mark.forks

OLD = {"config.json": b'{"a": 1}\n', "hf_quant_config.json": b'{"b": 1}'}
NEW = {"config.json": b'{"a": 2}\n', "hf_quant_config.json": b'{"b": 2}'}
REST = {"model.safetensors": b"weights", "tokenizer.json": b"{}"}
Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a disk; what is written before what is a test of its own."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(steps, "exchanged", lambda *_: False)  # as on other systems


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "checkpoint"
    fill(folder)
    return folder


def fill(folder: Path) -> None:
    folder.mkdir()
    for name, data in (OLD | REST).items():
        (folder / name).write_bytes(data)


def content(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_child(work: Callable[[], Any]) -> int:
    """Runs something in a process of its own; its exit code, or minus the signal that ended it."""
    return code_of(started(work))


def started(work: Callable[[], Any]) -> int:
    """The number of a process that does something and ends."""
    child = os.fork()
    if not child:
        code = 70
        try:
            work()
            code = 0
        except ConflictError:
            code = 71
        finally:
            os._exit(code)
    return child


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# The way it goes.


def test_apply_and_undo(place: Path) -> None:
    os.chmod(place / "config.json", 0o640)
    times = {name: (place / name).stat().st_mtime_ns for name in REST}
    record = apply_files(place, OLD, NEW)
    assert content(place) == NEW | REST
    assert record is not None
    assert record.directory == os.path.realpath(place)
    assert record.changes[0] == Change("config.json", Content(b'{"a": 1}\n', 0o640), Content(b'{"a": 2}\n', 0o640))
    assert stat.S_IMODE((place / "config.json").stat().st_mode) == 0o640
    os.chmod(place / "config.json", 0o600)
    assert undo(place) == record
    assert content(place) == OLD | REST
    assert stat.S_IMODE((place / "config.json").stat().st_mode) == 0o640
    assert {name: (place / name).stat().st_mtime_ns for name in REST} == times
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(place)


def test_records_are_a_stack(place: Path) -> None:
    third = {"config.json": b"3"}
    apply_files(place, OLD, NEW)
    apply_files(place, {"config.json": NEW["config.json"]}, third)
    undo(str(place))
    assert content(place) == NEW | REST
    undo(place)
    assert content(place) == OLD | REST


def test_what_is_the_same_is_not_written(place: Path) -> None:
    untouched = (place / "config.json").stat()
    assert apply_files(place, OLD, OLD) is None
    record = apply_files(place, OLD, OLD | {"hf_quant_config.json": b"{}"})
    assert record is not None
    assert [change.name for change in record.changes] == ["hf_quant_config.json"]
    assert (place / "config.json").stat() == untouched


def test_a_record_is_private_and_outside(place: Path, tmp_path: Path) -> None:
    record = apply_files(place, OLD, NEW)
    assert record is not None
    assert tmp_path / "state" / "mtpfix" / "undo" in record.path.parents
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert [path.name for path in record.path.parent.iterdir()] == [record.path.name]


def test_a_relative_state_home_does_not_count(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    record = apply_files(place, OLD, NEW)
    assert record is not None
    assert tmp_path / "home" / ".local" / "state" in record.path.parents


def test_through_a_link_to_the_directory(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    apply_files(tmp_path / "link", OLD, NEW)
    undo(place)
    assert content(place) == OLD | REST


# Symlinks into a Hub cache.


@pytest.fixture
def snapshot(place: Path) -> Path:
    """A checkpoint as the Hub cache lays it out."""
    blobs, folder = place.parent / "blobs", place.parent / "snapshots" / "abc"
    blobs.mkdir()
    folder.mkdir(parents=True)
    for name, data in (OLD | REST).items():
        (blobs / f"{name}-hash").write_bytes(data)
        (folder / name).symlink_to(f"../../blobs/{name}-hash")
    return folder


def test_a_link_is_replaced_and_restored(snapshot: Path) -> None:
    blobs = content(snapshot.parent.parent / "blobs")
    apply_files(snapshot, OLD, NEW)
    assert content(snapshot) == NEW | REST
    assert not (snapshot / "config.json").is_symlink()
    assert (snapshot / "tokenizer.json").is_symlink()
    undo(snapshot)
    assert os.readlink(snapshot / "config.json") == "../../blobs/config.json-hash"
    assert content(snapshot) == OLD | REST
    assert content(snapshot.parent.parent / "blobs") == blobs


@pytest.mark.parametrize("data", [None, b"other"])
def test_a_link_whose_target_is_gone_comes_back_as_a_file(snapshot: Path, data: bytes | None) -> None:
    apply_files(snapshot, OLD, NEW)
    blob = snapshot.parent.parent / "blobs" / "config.json-hash"
    blob.unlink()
    if data is not None:
        blob.write_bytes(data)
    undo(snapshot)
    assert content(snapshot) == OLD | REST
    assert not (snapshot / "config.json").is_symlink()
    assert (snapshot / "hf_quant_config.json").is_symlink()


# What is refused.


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "../config.json",
        "sub/config.json",
        "/config.json",
        "config.json/",
        ".json",
        JOURNAL,
        "a\0.json",
        "",
    ],
)
def test_only_json_files_of_the_directory(place: Path, name: str) -> None:
    with pytest.raises(ValueError, match="JSON file"):
        apply_files(place, {name: b"weights"}, {name: b"else"})
    assert content(place) == OLD | REST


def test_the_same_files_before_and_after(place: Path) -> None:
    with pytest.raises(ValueError, match="different files"):
        apply_files(place, OLD, {"config.json": b""})


@pytest.mark.parametrize("change", ["changed", "gone", "directory", "dangling"])
def test_a_file_that_is_not_what_was_read(place: Path, change: str) -> None:
    path = place / "hf_quant_config.json"
    if change == "changed":
        path.write_bytes(b"{}")
    else:
        path.unlink()
    if change == "directory":
        path.mkdir()
    if change == "dangling":
        path.symlink_to("nowhere")
    before = sorted(os.listdir(place))
    with pytest.raises(ConflictError) as caught:
        apply_files(place, OLD, NEW)
    assert caught.value.subject == str(path)
    assert (place / "config.json").read_bytes() == OLD["config.json"]
    assert sorted(os.listdir(place)) == before


def test_undo_of_what_was_changed_since(place: Path) -> None:
    apply_files(place, OLD, NEW)
    (place / "config.json").write_bytes(b"mine")
    with pytest.raises(ConflictError, match=r"config\.json changed since mtpfix wrote"):
        undo(place)
    assert content(place) == NEW | REST | {"config.json": b"mine"}


def lists(*entries: str, **more: Any) -> bytes:
    return json.dumps({"ignore": entries, **more}, indent=1).encode()


WAS, MADE = lists("lm_head", kept=1), lists("lm_head", "mtp.fc", kept=1)
BOTH = ("config.json", "hf_quant_config.json")


def edited(place: Path, now: bytes) -> None:
    """A checkpoint with an entry added to both lists, one of which was edited since."""
    for name in BOTH:
        (place / name).write_bytes(WAS)
    apply_files(place, dict.fromkeys(BOTH, WAS), dict.fromkeys(BOTH, MADE))
    (place / "config.json").write_bytes(now)


def test_an_edit_since_is_kept_and_only_what_was_made_goes(place: Path) -> None:
    edited(place, lists("lm_head", "mtp.fc", "mine", kept=2))
    with pytest.raises(ConflictError) as caught:
        undo(place)
    assert caught.value.hint.startswith(f"`mtpfix undo {place} --keep-edits`")
    planned = undo(place, "keep-edits", dry_run=True)
    assert (place / "hf_quant_config.json").read_bytes() == MADE
    assert undo(place, "keep-edits").changes == planned.changes
    assert (place / "config.json").read_bytes() == lists("lm_head", "mine", kept=2)
    assert (place / "hf_quant_config.json").read_bytes() == WAS
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(place, "keep-edits")


def test_what_was_taken_back_of_an_edited_file_is_not_taken_back_again(place: Path) -> None:
    """By hand, or by an undo that could not remove its record."""
    edited(place, lists("lm_head", "mine", kept=1))
    (place / "hf_quant_config.json").write_bytes(WAS)
    before = content(place)
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(place, "keep-edits")
    assert content(place) == before


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (b'{"ignore": "all"}', "it was edited where mtpfix did: /ignore"),
        (b"{", "line 1 column 2"),
        (None, "it is gone"),
    ],
)
def test_an_edit_in_the_same_place_takes_force_and_is_not_lost(place: Path, now: bytes | None, why: str) -> None:
    edited(place, now or b"")
    if now is None:
        (place / "config.json").unlink()
    before = content(place)
    with pytest.raises(ConflictError, match=re.escape(why)) as caught:
        undo(place, "keep-edits")
    assert content(place) == before
    assert caught.value.hint.startswith(f"`mtpfix undo {place} --force`")
    assert [name for name, _ in undo(place, "force", dry_run=True).kept] == []
    done = undo(place, "force")
    assert {(place / name).read_bytes() for name in BOTH} == {WAS}
    assert [(name, path.read_bytes()) for name, path in done.kept] == ([("config.json", now)] if now else [])
    assert all(state_folder(place) in path.parents for _, path in done.kept)


def test_a_file_that_was_taken_back_by_hand_stands_in_nobody_s_way(place: Path) -> None:
    edited(place, WAS)
    assert [change.name for change in undo(place).changes] == ["hf_quant_config.json"]
    assert (place / "hf_quant_config.json").read_bytes() == WAS


def test_a_record_of_what_was_taken_back_by_hand_is_skipped(place: Path) -> None:
    apply_files(place, OLD, NEW)
    apply_files(place, NEW, {"config.json": b"3", "hf_quant_config.json": b"3"})
    for name, data in NEW.items():
        (place / name).write_bytes(data)
    undo(place)
    assert content(place) == OLD | REST


def test_a_damaged_record(place: Path) -> None:
    record = apply_files(place, OLD, NEW)
    assert record is not None
    for damage in (
        b"",
        b"[]",
        b"[" * 100_000,
        record.path.read_bytes()[:-1],
        record.path.read_bytes().replace(b'"eJ', b'"xx'),
    ):
        record.path.write_bytes(damage)
        with pytest.raises(UnreadableError, match="damaged") as caught:
            undo(place)
        assert caught.value.subject == str(record.path)
    record.path.unlink()
    os.mkfifo(record.path)
    with pytest.raises(UnreadableError, match="damaged"):
        undo(place)
    assert content(place) == NEW | REST


def test_no_such_directory(tmp_path: Path) -> None:
    assert recover(tmp_path / "none") == "none"
    for call in (undo, lambda path: apply_files(path, OLD, NEW)):
        with pytest.raises(UnreadableError, match="cannot open the directory"):
            call(tmp_path / "none")


@pytest.mark.parametrize("state", ["", "deeper"])
def test_a_state_folder_in_the_checkpoint(place: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place / state))
    with pytest.raises(WriteError) as caught:
        apply_files(place, OLD, NEW)
    assert "XDG_STATE_HOME" in caught.value.hint
    assert content(place) == OLD | REST


# What the system refuses.


def test_a_state_folder_that_cannot_be_made(place: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"a file")
    with pytest.raises(WriteError) as caught:
        apply_files(place, OLD, NEW)
    assert str(tmp_path / "state") in str(caught.value)
    assert "XDG_STATE_HOME" in caught.value.hint
    assert content(place) == OLD | REST


def as_nobody(work: Callable[[Path], Any]) -> None:
    """Runs something as a user without rights, in a world that this user can reach."""
    world = Path(tempfile.mkdtemp(prefix="mtpfix-"))

    def child() -> None:
        os.environ["XDG_STATE_HOME"] = str(world / "state")
        if not os.geteuid():
            os.setgid(65534)
            os.setuid(65534)
        work(world)

    try:
        os.chmod(world, 0o755)
        fill(world / "checkpoint")
        (world / "state").mkdir()
        if not os.geteuid():
            os.chown(world / "state", 65534, 65534)
            os.chown(world / "checkpoint", 65534, 65534)
        assert in_child(child) == 0
    finally:
        shutil.rmtree(world)


def test_a_directory_without_rights() -> None:
    def work(world: Path) -> None:
        os.chmod(world / "checkpoint", 0o555)
        with pytest.raises(WriteError) as caught:
            apply_files(world / "checkpoint", OLD, NEW)
        assert caught.value.subject.startswith(os.path.realpath(world / "checkpoint"))
        place = os.path.realpath(world / "checkpoint")
        assert f"Make the directory {place} writable" in caught.value.hint
        assert ".mtpfix-" not in str(caught.value)
        assert content(world / "checkpoint") == OLD | REST
        assert recover(world / "checkpoint") == "none"

    as_nobody(work)


def test_a_change_cut_short_in_a_directory_without_rights() -> None:
    def work(world: Path) -> None:
        place = world / "checkpoint"
        assert in_child(lambda: killed_at("replace", 2, lambda: apply_files(place, OLD, NEW))) == -signal.SIGKILL
        os.chmod(place, 0o555)
        with pytest.raises(WriteError, match="cut short") as caught:
            recover(place)
        assert "as a user who can write" in caught.value.hint
        os.chmod(place, 0o755)
        assert recover(place) == "new"
        assert content(place) == NEW | REST

    as_nobody(work)


def test_a_file_of_another_user() -> None:
    def work(world: Path) -> None:
        apply_files(world / "checkpoint", OLD, NEW)  # the files belong to root, the directory does not
        assert content(world / "checkpoint") == NEW | REST

    as_nobody(work)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes in this Python")
def test_extended_attributes_stay(place: Path) -> None:
    try:
        os.setxattr(place / "config.json", "user.origin", b"here")
    except OSError as error:
        pytest.skip(f"no extended attributes on this file system: {error}")
    apply_files(place, OLD, NEW)
    assert os.getxattr(place / "config.json", "user.origin") == b"here"
    undo(place)
    assert os.getxattr(place / "config.json", "user.origin") == b"here"


def test_a_file_with_a_second_name_becomes_a_file_of_its_own(place: Path, tmp_path: Path) -> None:
    """As a link into a cache does: who has the other name sees no change."""
    os.link(place / "config.json", tmp_path / "other")
    old = (tmp_path / "other").read_bytes()
    apply_files(place, OLD, NEW)
    assert (place / "config.json").read_bytes() != old
    assert (tmp_path / "other").read_bytes() == old
    undo(place)
    assert (place / "config.json").read_bytes() == old


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_stay(place: Path) -> None:
    os.chown(place / "config.json", 1234, 2345)
    apply_files(place, OLD, NEW)
    found = (place / "config.json").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)
    undo(place)
    found = (place / "config.json").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


STEPS = ("open", "write", "fsync", "replace", "unlink", "symlink")


@pytest.mark.parametrize("step", ["open", "write", "fsync", "fchmod", "replace", "unlink", "makedirs"])
@pytest.mark.parametrize("work", ["apply", "undo"])
def test_an_error_at_any_step(place: Path, monkeypatch: pytest.MonkeyPatch, step: str, work: str) -> None:
    """No space left, at the n-th call of each function: a WriteError, and nothing has changed."""
    start, run = OLD, lambda: apply_files(place, OLD, NEW)
    failed = 0
    for number in range(40):
        if work == "undo":
            apply_files(place, OLD, NEW)
            start, run = NEW, lambda: undo(place)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing(getattr(os, step), number))
            error = error_of(run)
        if error is None:
            break
        failed += 1
        assert error.subject
        assert "No space left" in str(error)
        assert content(place) == start | REST
        if work == "undo":
            undo(place)
    assert failed or (step, work) == ("makedirs", "undo")
    assert number < 39


def error_of(work: Callable[[], Any]) -> WriteError | UnreadableError | None:
    try:
        work()
    except (WriteError, UnreadableError) as error:
        return error
    return None


def failing(function: Callable[..., Any], number: int, most: int = 1) -> Callable[..., Any]:
    """A function that fails at its n-th call."""
    calls = iter(range(1000))

    def call(*args: Any, **options: Any) -> Any:
        if number <= next(calls) < number + most:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*args, **options)

    return call


def test_a_disk_that_stays_full(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", failing(os.write, number, 1000))
            if number == 4:
                apply_files(place, OLD, NEW)
                break
            with pytest.raises(WriteError, match="nothing was changed") as caught:
                apply_files(place, OLD, NEW)
        assert content(place) == OLD | REST
        assert "space" in caught.value.hint or "XDG_STATE_HOME" in caught.value.hint
    assert content(place) == NEW | REST


def test_a_change_that_cannot_even_be_taken_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 2, 1000))
        with pytest.raises(WriteError, match="cut short and cannot be taken back") as caught:
            apply_files(place, OLD, NEW)
    assert "mtpfix command" in caught.value.hint
    assert recover(place) == "new"
    assert content(place) == NEW | REST


@pytest.mark.parametrize("limit", [10, 400, 700])
def test_a_limit_on_file_sizes(place: Path, limit: int) -> None:
    new = {"config.json": os.urandom(600), "hf_quant_config.json": b"{}"}

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(WriteError, match="File too large") as caught:
            apply_files(place, OLD, new)
        assert caught.value.hint

    assert in_child(work) == 0
    assert content(place) == OLD | REST


@pytest.mark.parametrize("number", range(4))
def test_an_interrupt(place: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    calls = iter(range(1000))
    replace = os.replace

    def interrupted(*args: Any) -> None:
        replace(*args)
        if next(calls) == number:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        if number == 3:
            apply_files(place, OLD, NEW)
        else:
            with pytest.raises(KeyboardInterrupt):
                apply_files(place, OLD, NEW)
    assert content(place) == (NEW if number == 3 else OLD) | REST


# What is on the disk when.


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="looks up open files by their number")
def test_each_step_is_on_the_disk_before_the_next(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []

    def named(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    for name, about in {
        "fsync": named,
        "replace": lambda *paths: Path(paths[1]).name,
        "unlink": lambda path: path.name,
    }.items():
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, n=name, a=about, r=real: (done.append((n, a(*args))), r(*args))[1])
    record = apply_files(place, OLD, NEW)
    assert record is not None
    rows = [row for row in done if not row[1].startswith(".mtpfix-") or row[0] == "fsync" or row[1] == JOURNAL]
    rows = [(step, "sibling" if name.startswith(".mtpfix-") and name != JOURNAL else name) for step, name in rows]
    draft, folder = record.path.with_suffix(".tmp").name, record.path.parent.name
    assert rows[1:] == [
        ("fsync", JOURNAL),
        ("fsync", "checkpoint"),
        ("fsync", "sibling"),
        ("fsync", "sibling"),
        ("fsync", draft),
        ("replace", record.path.name),
        ("unlink", draft),
        ("fsync", folder),
        ("replace", "config.json"),
        ("replace", "hf_quant_config.json"),
        ("fsync", "checkpoint"),
        ("unlink", JOURNAL),
        ("fsync", "checkpoint"),
    ]


# Killed.


def killed_at(step: str, number: int, work: Callable[[], Any], *, half: bool = False) -> None:
    """Runs something and kills this process at the n-th call of a function; with `half`, in the midst of a write."""
    calls = iter(range(100_000))

    def patched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(calls) == number:
                if half:
                    function(args[0], args[1][: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    for name in STEPS if step == "any" else [step]:
        setattr(os, name, patched(getattr(os, name)))
    work()


def kills(work: Callable[[], Any], *, step: str = "any", half: bool = False) -> Iterator[int]:
    """Runs something again and again, killed one step later each time; ends when it comes through."""
    for number in range(1000):
        code = in_child(lambda n=number: killed_at(step, n, work, half=half))
        yield number
        if code == 0:
            return
        assert code == -signal.SIGKILL
    pytest.fail("it never comes through")


def settled(place: Path) -> str:
    """What the next command finds: all old or all new, and no other file."""
    recover(place)
    files = content(place)
    assert files in (OLD | REST, NEW | REST)
    assert recover(place) == "none"
    return "old" if files == OLD | REST else "new"


def undone(place: Path) -> bool:
    try:
        undo(place)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize(("step", "half"), [("any", False), ("write", True)])
def test_killed_at_each_step_of_an_apply(place: Path, step: str, half: bool) -> None:
    ends = []
    for _ in kills(lambda: apply_files(place, OLD, NEW), step=step, half=half):
        ends.append(settled(place))
        assert undone(place) == (ends[-1] == "new")
        assert content(place) == OLD | REST
    assert ends == sorted(ends, key=["old", "new"].index)
    assert set(ends) == {"old", "new"}


def test_killed_at_each_step_of_an_undo(snapshot: Path) -> None:
    apply_files(snapshot, OLD, NEW)
    ends = []
    for _ in kills(lambda: undo(snapshot)):
        ends.append(settled(snapshot))
        if ends[-1] == "old":
            assert (snapshot / "config.json").is_symlink()
            assert not undone(snapshot)
            apply_files(snapshot, OLD, NEW)
    assert set(ends) == {"old", "new"}


@pytest.mark.parametrize("replaced", [0, 1, 2, 3])
def test_killed_at_each_step_of_a_recovery(place: Path, replaced: int) -> None:
    def half_applied() -> None:
        assert in_child(lambda: killed_at("replace", replaced, lambda: apply_files(place, OLD, NEW))) in (0, -9)

    half_applied()
    for _ in kills(lambda: recover(place)):
        undone(place) if settled(place) == "new" else None
        assert content(place) == OLD | REST
        half_applied()


def test_an_apply_ends_what_was_cut_short(place: Path) -> None:
    assert in_child(lambda: killed_at("replace", 2, lambda: apply_files(place, OLD, NEW))) == -signal.SIGKILL
    apply_files(place, NEW, {"config.json": b"3", "hf_quant_config.json": b"3"})
    undo(place)
    undo(place)
    assert content(place) == OLD | REST


def cut_short(place: Path) -> Files:
    """Leaves a change killed between two renames; what the directory holds then."""
    assert in_child(lambda: killed_at("replace", 2, lambda: apply_files(place, OLD, NEW))) == -signal.SIGKILL
    files = content(place)
    assert files["config.json"] == NEW["config.json"]
    assert files["hf_quant_config.json"] == OLD["hf_quant_config.json"]
    return files


def test_another_state_folder_takes_it_back(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(place)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        assert recover(place) == "old"
    assert content(place) == OLD | REST
    assert not undone(place)


@pytest.mark.parametrize("name", OLD)
def test_a_file_written_by_someone_else_meanwhile_stays(place: Path, name: str) -> None:
    cut_short(place)
    (place / name).write_bytes(b"mine")
    recover(place)
    assert content(place) == OLD | REST | {name: b"mine"} if name == "config.json" else NEW | REST | {name: b"mine"}
    assert recover(place) == "none"


# Journals from elsewhere.


def test_a_copied_journal_changes_nothing(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(place)
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    files = content(copy)
    assert recover(copy) == "foreign"
    assert content(copy) == files
    with pytest.raises(ConflictError, match="no change that was made here"):
        apply_files(copy, {"tokenizer.json": b"{}"}, {"tokenizer.json": b"[]"})
    with pytest.raises(ConflictError, match="no change that was made here"):
        undo(copy)
    assert content(copy) == files


def forged(place: Path, **rows: Any) -> bytes:
    value = json.loads((place / JOURNAL).read_bytes())
    return json.dumps(value | rows).encode()


def test_a_forged_journal_changes_nothing(place: Path) -> None:
    cut_short(place)
    good = json.loads((place / JOURNAL).read_bytes())["changes"][0]
    bomb = dict(good["new"], data="eJwDAAAAAAE=", mode="x")
    for raw in (
        b"{}",
        b"[]",
        b"1",
        forged(place, inode=1, record="000001-0123456789abcdef.json"),
        forged(place, record="../../../etc/passwd"),
        forged(place, token="/../x"),
        forged(place, kind="else"),
        forged(place, changes=[]),
        forged(place, changes=[good | {"name": "../../x.json"}]),
        forged(place, changes=[good | {"name": "model.safetensors"}]),
        forged(place, changes=[good | {"new": bomb}]),
        forged(place, changes=[good | {"new": good["new"] | {"mode": float("inf")}}]),
    ):
        (place / JOURNAL).write_bytes(raw)
        files = content(place)
        assert recover(place) == "foreign"
        assert content(place) == files


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_a_journal_that_is_no_file(place: Path, kind: str) -> None:
    path = place / JOURNAL
    {"link": lambda: path.symlink_to("config.json"), "directory": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    assert recover(place) == "foreign"


@pytest.mark.parametrize("row", ['{"mtpfix_journal": 1, "inode": 1, "kind": "apply", "changes": [%s]}', "[%s]"])
def test_a_large_journal_of_somebody_else_is_not_read(place: Path, row: str) -> None:
    """What it would unfold to, 64 bytes and more for each `[],`, is more than what comes with a checkpoint may take."""
    (place / JOURNAL).write_bytes((row % ("[]," * 1_000_000 + "0")).encode())
    tracemalloc.start()
    try:
        assert recover(place) == "foreign"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_large_journal_of_this_directory_is_ended(place: Path) -> None:
    old = {"config.json": json.dumps(secrets.token_hex(1 << 20)).encode(), "hf_quant_config.json": b"{}"}
    for name, raw in old.items():
        (place / name).write_bytes(raw)
    change = partial(apply_files, place, old, NEW)
    assert in_child(lambda: killed_at("replace", 2, change)) == -signal.SIGKILL
    assert (place / JOURNAL).stat().st_size > 1 << 20
    assert recover(place) == "new"
    assert content(place) == NEW | REST
    undo(place)
    assert content(place) == old | REST


@pytest.mark.parametrize("raw", [b"", b"\0" * 100, b'{"mtpfix_journal": 1, "chan', b"[" * 100_000])
def test_a_torn_journal_is_removed(place: Path, raw: bytes) -> None:
    (place / JOURNAL).write_bytes(raw)
    assert recover(place) == "old"
    assert content(place) == OLD | REST


# Several at once.


def test_two_processes_at_once(place: Path) -> None:
    for _ in range(10):
        children = []
        for number in range(4):
            new = {name: str(number).encode() for name in OLD}
            children.append(started(lambda new=new: apply_files(place, OLD, new)))
        codes = [code_of(child) for child in children]
        assert sorted(codes) == [0, 71, 71, 71]
        winner = str(codes.index(0)).encode()
        assert content(place) == REST | dict.fromkeys(OLD, winner)
        undo(place)


def test_a_change_under_way_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, go = os.pipe(), os.pipe()

    def work() -> None:
        replace, calls = os.replace, iter(range(100))

        def slow(*args: Any) -> None:
            if next(calls) == 2:
                os.write(ready[1], b"x")
                os.read(go[0], 1)
            replace(*args)

        os.replace = slow  # type: ignore[assignment]
        apply_files(place, OLD, NEW)

    thread = threading.Thread(target=lambda: codes.append(in_child(work)))
    codes: list[int] = []
    thread.start()
    os.read(ready[0], 1)
    files = content(place)
    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.05)
    for call in (recover, undo, lambda path: apply_files(path, OLD, NEW)):
        with pytest.raises(ConflictError, match="another mtpfix"):
            call(place)
    assert content(place) == files
    os.write(go[1], b"x")
    thread.join()
    assert codes == [0]
    assert recover(place) == "none"
    assert content(place) == NEW | REST


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="looks up open files by their number")
@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK])
def test_where_directories_cannot_be_locked(place: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real = fcntl.flock
    files: list[str] = []

    def flock(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) or code == errno.ENOLCK:
            raise OSError(code, os.strerror(code))
        files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    apply_files(place, OLD, NEW)
    assert content(place) == NEW | REST
    undo(place)
    assert content(place) == OLD | REST
    assert len(files) == (2 if code == errno.EBADF else 0)
    assert not any(str(place) in file for file in files)


def test_a_reader_sees_old_or_new(place: Path) -> None:
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add((place / "config.json").read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        apply_files(place, OLD, NEW)
        undo(place)
    stop.set()
    reader.join()
    assert seen == {OLD["config.json"], NEW["config.json"]}
