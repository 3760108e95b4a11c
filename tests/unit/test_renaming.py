"""Renames in headers on a disk: in place where they fit, else a new file; data untouched, and back again."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import test_store
from hypothesis import given, settings
from hypothesis import strategies as st
from lengths import steps
from shards import Tensors, header
from test_store import code_of, error_of, failing, in_child, killed_at, started

from mtpfix.checkpoint.local import read_local
from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import ConflictError, UnreadableError, WriteError
from mtpfix.model import Rename
from mtpfix.renaming import prepared
from mtpfix.store import apply_files, recover, undo
from mtpfix.store.files import bytes_at, stamp_of
from mtpfix.store.states import Head, Large, Overwrite
from mtpfix.store.way_back import Way

pytestmark = pytest.mark.forks

S, LONG, SHORT = "model.safetensors", "weight_scale_inv", "weight_scale"
BLOCK = ("F32", (2, 3))
CONFIG = {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {}}'}
NEW_INDEX = b'{"weight_map": {"a": "b"}}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def tensors(scale: str, count: int = 3) -> Tensors:
    rows = ((f"m.{n}.weight", ("F8_E4M3", (16, 24))) if kind else (f"m.{n}.{scale}", BLOCK)
            for n in range(count) for kind in (1, 0))  # fmt: skip
    return dict(rows)


def shard(scale: str, *, padding: int = 0, count: int = 3) -> bytes:
    """A file with data that are no hole."""
    raw, size = header(tensors(scale, count), {"format": "pt", "note": f"m.0.{scale}"})
    raw += b" " * padding
    return len(raw).to_bytes(8, "little") + raw + hashlib.shake_256(b"x").digest(size)


def renames(old: str, new: str, count: int = 3) -> list[Rename]:
    return [Rename(S, f"m.{n}.{old}", f"m.{n}.{new}", *BLOCK) for n in range(count)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, data in CONFIG.items():
        (folder / name).write_bytes(data)
    (folder / S).write_bytes(shard(LONG))
    return folder


def change(folder: Path, rows: list[Rename]) -> None:
    """The renames and an edit of the index, as `mtpfix.apply` asks for them."""
    index = "model.safetensors.index.json"
    found = prepared(folder, rows)
    before = {name: stamp for name, (stamp, _) in found.items()} | {index: CONFIG[index]}
    apply_files(folder, before, {name: new for name, (_, new) in found.items()} | {index: NEW_INDEX})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names_and_data(path: Path) -> tuple[list[str], bytes, dict[str, str]]:
    """The tensors' names as the header has them, the data, the metadata."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    held = json.loads(raw[8:end])
    return [name for name in held if name != "__metadata__"], raw[end:], held["__metadata__"]


def test_in_place_where_it_fits(place: Path) -> None:
    before, inode, stamp = content(place), (place / S).stat().st_ino, stamp_of(place / S)
    _, data, metadata = names_and_data(place / S)
    change(place, renames(LONG, SHORT))
    assert names_and_data(place / S) == (list(tensors(SHORT)), data, metadata)
    assert (place / S).stat().st_ino == inode
    assert set(content(place)) == set(before)
    undo(place)
    assert content(place) == before
    assert stamp_of(place / S) == stamp


def test_a_header_that_grows_makes_a_new_file(place: Path) -> None:
    (place / S).write_bytes(shard(SHORT))
    os.chmod(place / S, 0o640)
    before, stamp, inode = content(place), stamp_of(place / S), (place / S).stat().st_ino
    _, data, metadata = names_and_data(place / S)
    change(place, renames(SHORT, LONG))
    assert names_and_data(place / S) == (list(tensors(LONG)), data, metadata)
    found = (place / S).stat()
    assert found.st_ino != inode
    assert found.st_mode & 0o777 == 0o640
    assert (found.st_size - len(data)) % 8 == 0
    undo(place)
    assert content(place) == before
    assert stamp_of(place / S) == stamp


@pytest.mark.parametrize("how", ["hard link", "symlink"])
def test_a_file_that_is_also_elsewhere_is_not_written(place: Path, how: str) -> None:
    blob = place.parent / "blob"
    os.rename(place / S, blob)
    os.link(blob, place / S) if how == "hard link" else (place / S).symlink_to("../blob")
    held, stamp = blob.read_bytes(), stamp_of(blob)
    change(place, renames(LONG, SHORT))
    assert names_and_data(place / S)[0] == list(tensors(SHORT))
    assert not (place / S).is_symlink()
    assert (blob.read_bytes(), stamp_of(blob)) == (held, stamp)
    undo(place)
    assert (place / S).read_bytes() == held
    assert (place / S).is_symlink() == (how == "symlink")
    assert (blob.read_bytes(), stamp_of(blob)) == (held, stamp)


@pytest.mark.parametrize(
    "row",
    [
        Rename(S, "m.9.weight_scale_inv", "m.9.weight_scale", *BLOCK),
        Rename(S, "m.0.weight_scale_inv", "m.0.weight_scale", "BF16", (2, 3)),
        Rename(S, "m.0.weight_scale_inv", "m.0.weight_scale", "F32", (3, 2)),
        Rename(S, "m.0.weight_scale_inv", "m.1.weight_scale_inv", *BLOCK),
    ],
)
def test_a_shard_that_is_not_what_was_read(place: Path, row: Rename) -> None:
    with pytest.raises(ConflictError, match="as it was read") as caught:
        prepared(place, [row])
    assert caught.value.subject == str(place / S)


def test_a_shard_that_is_gone_or_no_shard(place: Path) -> None:
    (place / S).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UnreadableError, match="Git LFS"):
        prepared(place, renames(LONG, SHORT))
    (place / S).unlink()
    with pytest.raises(UnreadableError, match="cannot read"):
        prepared(place, renames(LONG, SHORT))


def test_one_that_changes_between_looking_and_writing(place: Path) -> None:
    """The size and the header are the same: the time of the last write tells."""
    found = prepared(place, renames(LONG, SHORT))
    mine = shard(LONG)[:-1] + b"!"
    (place / S).write_bytes(mine)
    os.utime(place / S, ns=(1, 1))
    with pytest.raises(ConflictError, match="changed meanwhile"):
        apply_files(place, {S: found[S][0]}, {S: found[S][1]})
    assert (place / S).read_bytes() == mine


WAYS: tuple[Way, ...] = ("exact", "keep-edits", "force")


def test_undo_of_what_was_changed_since(place: Path) -> None:
    change(place, renames(LONG, SHORT))
    mine = shard(LONG)[:-1]
    (place / S).write_bytes(mine)
    for way in WAYS:
        with pytest.raises(ConflictError, match=f"{S} changed since mtpfix wrote there"):
            undo(place, way)
    assert (place / S).read_bytes() == mine


TEXT = st.text('ab."\\\u00e9\U0001f600 ', min_size=1, max_size=6)


@given(st.dictionaries(TEXT, st.sampled_from([BLOCK, ("U8", (5,)), ("BF16", ())]), min_size=1, max_size=6), st.data())
@settings(deadline=None, max_examples=60)
def test_undo_after_apply_is_the_identity(tmp_path_factory: Any, held: dict[str, Any], data: Any) -> None:
    """Whatever the names are: names change, dtypes, shapes, offsets and data do not, and all comes back."""
    place = tmp_path_factory.mktemp("x")
    os.environ["XDG_STATE_HOME"] = str(place / "state")
    folder = place / "checkpoint"
    folder.mkdir()
    raw, size = header(held)
    before = len(raw).to_bytes(8, "little") + raw + hashlib.shake_256(raw).digest(size)
    (folder / S).write_bytes(before)
    chosen = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True, min_size=1))
    rows = [Rename(S, name, f"{name}-{'x' * data.draw(st.integers(0, 9))}!", *held[name]) for name in chosen]
    if {row.new for row in rows} & held.keys():
        return
    found = prepared(folder, rows)
    apply_files(folder, {S: found[S][0]}, {S: found[S][1]})
    after = (folder / S).read_bytes()
    length = int.from_bytes(after[:8], "little")
    new = {row.old: row.new for row in rows}
    wanted = {new.get(name, name): value for name, value in json.loads(raw).items()}
    assert json.loads(after[8 : 8 + length]) == wanted
    assert list(json.loads(after[8 : 8 + length])) == list(wanted)
    assert after[8 + length :] == before[8 + len(raw) :]
    undo(folder)
    assert content(folder) == {S: before}


# --- whatever happens on the way --------------------------------------------------------------------------------------

STEPS = ("open", "pwrite", "write", "fsync", "fdatasync", "link", "replace", "unlink", "fchmod", "utime")


def kill(work: Callable[[], Any], number: int, step: str = "any", *, half: bool = False) -> int:
    def child() -> None:
        test_store.STEPS = STEPS
        killed_at(step, number, work, half=half)

    return in_child(child)


def way(place: Path, fits: bool) -> tuple[Callable[[], None], dict[str, bytes], dict[str, bytes]]:
    """A change that fits in place or does not, the files before and after."""
    old, new = (LONG, SHORT) if fits else (SHORT, LONG)
    (place / S).write_bytes(shard(old))
    before = content(place)
    change(place, renames(old, new))
    after = content(place)
    undo(place)
    return lambda: change(place, renames(old, new)), before, after


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("work", ["apply", "undo"])
def test_killed_at_each_step(place: Path, fits: bool, work: str) -> None:
    apply, old, new = way(place, fits)
    ends = []
    for number in steps(200, 2 * fits + (work == "undo")):
        if work == "undo" and content(place) == old:
            apply()
        code = kill(apply if work == "apply" else lambda: undo(place), number)
        now = content(place)[S] if (place / S).exists() else b""
        assert now in (old[S], new[S])  # without any recovery: a file that loads
        recover(place)
        files = content(place)
        assert files in (old, new), number
        ends.append(files == new)
        if work == "apply" and files == new:
            undo(place)
            assert content(place) == old
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert code == 0
    assert set(ends) == {True, False}


@pytest.mark.parametrize("work", ["apply", "undo"])
def test_killed_in_the_midst_of_the_write_of_a_header(place: Path, work: str) -> None:
    """Half of a sector is there, which no disk should leave: the next command ends it."""
    apply, old, new = way(place, True)
    if work == "undo":
        apply()
    code = kill(apply if work == "apply" else lambda: undo(place), 0, "pwrite", half=True)
    assert code == -signal.SIGKILL
    assert content(place)[S] not in (old[S], new[S])
    assert recover(place) == "new"
    assert content(place) == (new if work == "apply" else old)
    if work == "apply":
        undo(place)
    assert content(place) == old


def test_torn_and_then_written_by_someone_else(place: Path) -> None:
    apply, _, _ = way(place, True)
    assert kill(apply, 0, "pwrite", half=True) == -signal.SIGKILL
    mine = b"m" * len(shard(LONG))
    (place / S).write_bytes(mine)
    recover(place)
    assert (place / S).read_bytes() == mine
    assert recover(place) == "none"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("work", ["apply", "undo"])
@pytest.mark.parametrize("fits", [True, False])
def test_an_error_at_any_step(place: Path, monkeypatch: pytest.MonkeyPatch, step: str, work: str, fits: bool) -> None:
    apply, old, new = way(place, fits)
    start, run = (old, apply) if work == "apply" else (new, lambda: undo(place))
    for number in range(60):
        if work == "undo" and content(place) == old:
            apply()
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing(getattr(os, step), number))
            error = error_of(run)
        if error is None:
            break
        assert "No space left" in str(error)
        assert content(place) == start
    assert number < 59


def test_a_disk_that_is_too_small_for_the_copy(place: Path) -> None:
    (place / S).write_bytes(shard(SHORT, count=200))
    before = content(place)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before[S]) - 100, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with pytest.raises(WriteError, match="File too large") as caught:
            change(place, renames(SHORT, LONG, 200))
        assert "ulimit" in caught.value.hint

    assert in_child(work) == 0
    assert content(place) == before


def test_what_is_written_is_read_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that loses data: nothing has changed, and it is said."""
    before = content(place)
    real, calls = os.pwrite, iter(range(100))

    def losing(descriptor: int, data: Any, at: int) -> int:
        return len(data) if next(calls) == 0 else real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", losing)
    with pytest.raises(WriteError, match="other bytes come back"):
        change(place, renames(LONG, SHORT))
    assert content(place) == before


def test_two_processes_at_once(place: Path) -> None:
    """One renames, the other finds that the shard is not what it read, or that it is done."""
    found = prepared(place, renames(LONG, SHORT))

    def work() -> None:
        apply_files(place, {S: found[S][0]}, {S: found[S][1]})

    children = [started(work) for _ in range(4)]
    codes = [code_of(child) for child in children]
    assert sorted(codes) == [0, 71, 71, 71]
    assert names_and_data(place / S)[0] == list(tensors(SHORT))


def test_a_reader_meanwhile_sees_the_old_or_the_new_header(place: Path) -> None:
    apply, old, new = way(place, False)
    sizes = []
    real = os.replace

    def looking(*paths: Any) -> None:
        sizes.append((place / S).read_bytes())
        real(*paths)
        sizes.append((place / S).read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", looking)
        apply()
    assert set(sizes) == {old[S], new[S]}
    assert read_local(place).tensor_count == 6


# --- journals and the state of a file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        {"start": -1},
        {"start": 10**9},
        {"size": 3},
        {"data": ""},
        {"mtime_ns": "x"},
        {"start": None},
    ],
)
def test_a_forged_journal_changes_nothing(place: Path, rows: dict[str, Any]) -> None:
    apply, _, _ = way(place, True)
    assert kill(apply, 0, "pwrite", half=True) == -signal.SIGKILL
    value = json.loads((place / JOURNAL).read_bytes())
    value["changes"][0]["new"] |= rows
    (place / JOURNAL).write_text(json.dumps(value))
    files = content(place)
    assert recover(place) == "foreign"
    assert content(place) == files


def test_only_safetensors_are_overwritten(place: Path) -> None:
    with pytest.raises(ValueError, match="directly in the checkpoint"):
        apply_files(place, {"config.json": stamp_of(place / "config.json")}, {"config.json": Overwrite(0, b"{", b"[")})


def test_what_the_store_gets(place: Path) -> None:
    stamp, new = prepared(place, renames(LONG, SHORT))[S]
    assert stamp == stamp_of(place / S)
    assert isinstance(new, Overwrite)
    assert len(new.old) == len(new.new)
    (place / S).write_bytes(shard(SHORT))
    assert isinstance(prepared(place, renames(SHORT, LONG))[S][1], Large)


def test_a_head_that_cannot_be_read_is_no_state(place: Path) -> None:
    head = Head(0, b"{}", 2)
    assert bytes_at(place / "config.json", head) == b"{}"
    assert bytes_at(place / "none", head) is None
    (place / "link.safetensors").symlink_to("config.json")
    assert bytes_at(place / "link.safetensors", head) is None


def test_errno_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(place)
    real = os.open

    def refused(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(path).endswith(S) and flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(WriteError, match="Read-only") as caught:
        change(place, renames(LONG, SHORT))
    assert f"copy {place} to where" in caught.value.hint
    assert content(place) == before
