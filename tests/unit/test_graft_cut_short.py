"""Grafts that are killed, run out of space, or may not write: at any moment a checkpoint that loads as before.

The short run kills each kind at every third step, at other ones than the next kind; MTPFIX_LONG=1 at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test_store
from checkpoints import INDEX, glm4_moe, on_disk, qwen3_5
from lengths import steps
from test_graft import GLM, NEXT, content, raw_tensors
from test_store import in_child, killed_at

import mtpfix
from mtpfix import api, bulk, store
from mtpfix.errors import WriteError
from mtpfix.grafting.ready import Ready

pytestmark = pytest.mark.forks

STEPS = ("open", "pwrite", "write", "fsync", "fdatasync", "link", "replace", "unlink", "fchmod")
Contents = dict[str, bytes]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def missing(folder: Path, *, shards: bool) -> tuple[Path, Path]:
    """Two lists, with or without an index that is there already."""
    split = {"shard_of": lambda name: f"part{'layers.1' in name}.safetensors"} if shards else {}
    here = on_disk(folder / "here", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1, **split)
    return here, on_disk(folder / "base", glm4_moe(), seed=2)


def packed(folder: Path) -> tuple[Path, Path]:
    made = qwen3_5()
    ignore = [name.replace("model.", "model.language_model.") for name in NEXT]
    stored = {"mtp.fc": "nvfp4", **dict.fromkeys(made.draft, "nvfp4")}
    here = on_disk(folder / "here", made, "nvfp4", ignore, sidecar=ignore, stored=stored, seed=1)
    return here, on_disk(folder / "base", made, seed=2)


KINDS: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "missing, one file": lambda folder: missing(folder, shards=False),
    "missing, shards": lambda folder: missing(folder, shards=True),
    "packed": packed,
}


def numbers(kind: str) -> range:
    """The steps at which a kind is killed."""
    return steps(500, list(KINDS).index(kind))


@contextlib.contextmanager
def planned(here: Path, base: Path) -> Iterator[Ready]:
    with api.grafting(here, base, rewrite=True) as ready:
        yield ready


def target_of(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The target's tensors as an engine finds them that reads what the index names, else every file of the folder."""
    index = folder / INDEX
    names = [path.name for path in folder.glob("*.safetensors")]  # hidden ones are none
    if index.exists():
        wanted = set(json.loads(index.read_bytes())["weight_map"].values())
        assert wanted <= set(names)  # engines stop on a file that is missing
        names = [name for name in names if name in wanted]
    found: dict[str, tuple[str, list[int], bytes]] = {}
    for name in names:
        for tensor, value in raw_tensors(folder / name):
            assert len(value[2]) or not all(value[1])
            if not tensor.startswith(("mtp.", "model.layers.2.")):
                assert tensor not in found
                found[tensor] = value
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_each_step(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, base = KINDS[kind](tmp_path)
    old, target = content(here), target_of(here)
    monkeypatch.setattr(test_store, "STEPS", STEPS)
    monkeypatch.setattr(bulk, "PIECE", 1 << 19)
    with planned(here, base) as ready:
        ready.write()
        new = content(here)
        mtpfix.undo(here)
        assert content(here) == old
        ends = []
        for number in numbers(kind):
            code = in_child(lambda n=number: killed_at("any", n, ready.write))
            assert target_of(here) == target, number  # before any mtpfix command has seen it
            store.recover(here)
            files = content(here)
            assert files in (old, new), number
            ends.append(files == new)
            if files == new:
                mtpfix.undo(here)
                assert content(here) == old
            if code == 0:
                break
            assert code == -signal.SIGKILL
    assert code == 0
    assert ends == sorted(ends)
    assert number > 40


@pytest.mark.parametrize("kind", KINDS)
def test_an_undo_killed_at_each_step(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, base = KINDS[kind](tmp_path)
    old, target = content(here), target_of(here)
    monkeypatch.setattr(test_store, "STEPS", STEPS)
    with planned(here, base) as ready:
        ready.write()
        new = content(here)
        for number in numbers(kind):
            if content(here) == old:
                ready.write()
            code = in_child(lambda n=number: killed_at("any", n, lambda: mtpfix.undo(here)))
            assert target_of(here) == target, number
            store.recover(here)
            assert content(here) in (old, new)
            if code == 0:
                break
    assert code == 0
    assert content(here) == old


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [100, 5_000, 50_000, 200_000])
def test_a_limit_on_file_sizes(tmp_path: Path, kind: str, limit: int) -> None:
    here, base = KINDS[kind](tmp_path)
    old = content(here)
    with planned(here, base) as ready:

        def work() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with pytest.raises(WriteError, match="File too large"):
                ready.write()

        assert in_child(work) == 0
    assert content(here) == old


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("checked", [True, False])
def test_a_full_disk(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    """Said before anything is written; and where something else fills the disk meanwhile, nothing is left half done."""
    here, base = missing(tmp_path, shards=False)
    shutil.copytree(here, small_disk / "here")
    here = small_disk / "here"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filler").write_bytes(b"x" * (free - 200_000))
    old = content(here)
    if not checked:
        monkeypatch.setattr("mtpfix.grafting.write._require_space", lambda *_: None)
    said = "bytes are needed and" if checked else "No space left on device"
    with pytest.raises(WriteError, match=said) as caught:
        mtpfix.graft(here, base)
    assert "ree some space" in caught.value.hint
    assert content(here) == old
    (small_disk / "filler").unlink()
    mtpfix.graft(here, base)
    mtpfix.undo(here)
    assert content(here) == old


def test_a_file_system_that_is_read_only(small_disk: Path, tmp_path: Path) -> None:
    here, base = missing(tmp_path, shards=False)
    shutil.copytree(here, small_disk / "here")
    old = content(small_disk / "here")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(WriteError, match="Read-only file system") as caught:
        mtpfix.graft(small_disk / "here", base)
    assert "read-only" in caught.value.hint
    assert content(small_disk / "here") == old


def test_a_directory_without_rights() -> None:
    world = Path(tempfile.mkdtemp(prefix="mtpfix-"))
    os.chmod(world, 0o755)
    here, base = missing(world, shards=False)
    old = content(here)

    def work() -> None:
        os.environ["XDG_STATE_HOME"] = str(world / "state")
        if not os.geteuid():
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(WriteError, match="Permission denied") as caught:
            mtpfix.graft(here, base)
        assert "writable" in caught.value.hint

    try:
        (world / "state").mkdir()
        os.chmod(world / "state", 0o777)
        os.chmod(here, 0o555)
        assert in_child(work) == 0
        assert content(here) == old
    finally:
        os.chmod(here, 0o755)
        shutil.rmtree(world)


def test_an_interrupt(tmp_path: Path) -> None:
    here, base = missing(tmp_path, shards=False)
    old = content(here)
    with planned(here, base) as ready:
        count = iter(range(1000))

        def tell(_: int) -> None:
            if next(count) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ready.write(tell)
    assert content(here) == old


def test_two_grafts_at_once(tmp_path: Path) -> None:
    here, base = missing(tmp_path, shards=False)
    with planned(here, base) as one, planned(here, base) as two:
        one.write()
        with pytest.raises(WriteError, match=r"changed meanwhile|is there already"):
            two.write()
    mtpfix.undo(here)


def test_memory_does_not_grow_with_the_size(tmp_path: Path) -> None:
    """A shard of 300 MB within 60 MB on top of what planning takes. (The library would hold all of it.)"""
    made = glm4_moe()
    big: Any = {"weight": ("BF16", (1_180_000, 128))}
    here = on_disk(tmp_path / "here", made.without_draft(), "nvfp4", GLM)
    base = on_disk(tmp_path / "base", made)
    raw = (base / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    dtype, shape = big["weight"]
    end = max(row["data_offsets"][1] for row in header.values())
    header["model.layers.2.enorm.big"] = {
        "dtype": dtype, "shape": shape, "data_offsets": [end, end + 2 * shape[0] * shape[1]],
    }  # fmt: skip
    text = json.dumps(header).encode()
    with (base / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + raw[8 + length :])
        file.truncate(8 + len(text) + end + 2 * shape[0] * shape[1])
    with planned(here, base) as ready:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ready.write()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert ready.plan.layout is not None
    assert ready.plan.layout.size > 300_000_000
    assert grown < 60_000
