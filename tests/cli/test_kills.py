"""Every command that writes, killed (SIGKILL) at each call that writes: the old bytes or the new ones, of all files.

A child counts its calls of what changes a disk and kills itself at the n-th, for every n until it comes through, or in
the midst of a write. Then the next command is run, and what is there has to be all old or all new. The short run kills
at every seventh call; MTPFIX_LONG=1 kills at each, also half way through each write, and says how often.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoints import INDEX, glm4_moe, on_disk
from tiny import qwen3_next

from mtpfix import store
from mtpfix.cli import main

pytestmark = pytest.mark.forks

LONG = bool(os.environ.get("MTPFIX_LONG"))
CALLS = ("open", "write", "pwrite", "sendfile", "copy_file_range", "fsync", "fdatasync", "replace", "rename", "link",
         "symlink", "unlink", "fchmod", "chmod", "fchown", "utime", "mkdir", "rmdir", "ftruncate")  # fmt: skip
GLM = ["lm_head", "model.layers.0*", "model.layers.2*"]
Contents = dict[str, bytes]
killed: dict[str, int] = {}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    """How many kills there were, in the long run."""
    yield
    if LONG:
        print(f"\n{sum(killed.values())} kills: {killed}", file=sys.__stderr__)


def content(folder: Path) -> Contents:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def dying(number: int, half: bool) -> None:
    """From now on, kill this process at its n-th call that writes; `half`: with half of the bytes written."""
    calls = iter(range(1_000_000))

    def patched(function: Callable[..., Any], writes: bool) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(calls) == number:
                if half and writes:
                    function(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    for name in ("write", "pwrite") if half else CALLS:
        setattr(os, name, patched(getattr(os, name), name in ("write", "pwrite")))


def command(*words: str) -> Callable[[], None]:
    def work() -> None:
        sys.stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
        sys.stderr = io.TextIOWrapper(io.BytesIO(), "utf-8")
        main(words, prog_name="mtpfix")

    return work


def child(work: Callable[[], None], number: int, half: bool) -> int:
    """The exit code of some work in a process of its own, or minus the signal that ended it."""
    one = os.fork()
    if not one:
        code = 99
        try:
            dying(number, half)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(one, 0)[1])


def kill_all_over(what: str, start: Callable[[], Path], work: Callable[[Path], Callable[[], None]]) -> None:
    """Runs some work from the same start again and again, killed one call later each time."""
    place = start()
    old = content(place)
    assert child(work(place), 1_000_000, False) in (0, 1)
    new = content(place)
    assert new != old, what
    for half in (False, True) if LONG else (False,):
        ends = set()
        for number in range(0, 100_000, 1 if LONG else 7):
            place = start()
            assert content(place) == old
            code = child(work(place), number, half)
            store.recover(place)
            found = {name: data for name, data in content(place).items() if not name.endswith(".part")}
            assert found in (old, new), (what, number, half, sorted(found))
            ends.add(found == new)
            if code != -signal.SIGKILL:
                assert found == new
                break
            killed[what] = killed.get(what, 0) + 1
        assert ends == {True, False} or half


def restored(folder: Path, made: Callable[[], Any]) -> Callable[[], Path]:
    """Puts a checkpoint back as it was made, with its records."""
    made()
    kept = folder.parent / "kept"
    state = Path(os.environ["XDG_STATE_HOME"])
    shutil.copytree(folder, kept / "here")
    if state.exists():
        shutil.copytree(state, kept / "state")

    def start() -> Path:
        for name, data in content(kept / "here").items():
            if not (folder / name).exists() or (folder / name).read_bytes() != data:
                (folder / name).write_bytes(data)
        for name in content(folder).keys() - content(kept / "here").keys():
            (folder / name).unlink()
        shutil.rmtree(state, ignore_errors=True)
        if (kept / "state").exists():
            shutil.copytree(kept / "state", state)
        return folder

    return start


def test_apply(tmp_path: Path) -> None:
    here = tmp_path / "here"
    start = restored(here, lambda: qwen3_next(here, "mtp.layers.0*"))
    kill_all_over("apply", start, lambda place: command("apply", str(place), "-y"))


def test_undo(tmp_path: Path) -> None:
    here = tmp_path / "here"

    def made() -> None:
        qwen3_next(here, "mtp.layers.0*")
        assert child(command("apply", str(here), "-y"), 1_000_000, False) == 0

    kill_all_over("undo", restored(here, made), lambda place: command("undo", str(place)))


def test_the_index_rebuilt(tmp_path: Path) -> None:
    here = tmp_path / "here"

    def made() -> None:
        qwen3_next(here, "mtp.fc", "mtp.layers.0*")
        index = {"metadata": {}, "weight_map": {"lm_head.weight": "model.safetensors", "a.weight": "model.safetensors"}}
        (here / INDEX).write_text(json.dumps(index, indent=2))

    start = restored(here, made)
    kill_all_over(
        "apply --unsafe-fixes, index", start, lambda place: command("apply", str(place), "-y", "--unsafe-fixes")
    )


def test_a_graft(tmp_path: Path) -> None:
    here, base = tmp_path / "here", on_disk(tmp_path / "base", glm4_moe(), seed=2)
    start = restored(here, lambda: on_disk(here, glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1))
    kill_all_over("graft", start, lambda place: command("graft", str(place), "--from", str(base), "-y"))


@pytest.mark.parametrize(
    "words", [("override", "--engine", "vllm", "--format", "json"), ("snapshot",), ("check", "--format", "html")]
)
def test_a_file_that_is_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    """What stood in the file before stays until all of the new text is there."""
    source, here = qwen3_next(tmp_path / "source", "mtp.layers.0*"), tmp_path / "here"

    def made() -> None:
        here.mkdir()
        (here / "out").write_bytes(b"of yesterday")

    name, *rest = words
    work = command(name, str(source), *rest, "-o", str(here / "out"))
    kill_all_over(f"{name} -o", restored(here, made), lambda _: work)
