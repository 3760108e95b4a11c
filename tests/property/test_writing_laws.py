"""Laws 4, 5 and 7 on disk: what `apply` and `undo` make of the files of generated checkpoints.

The folder is a plain one, or a snapshot of a Hub cache: links to blobs, which stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from checkpoints import header, parts
from drawn import DUMPS, Case, cases
from hypothesis import event, given
from hypothesis import strategies as st
from lengths import many

import mtpfix

Held = dict[str, tuple[bytes, int, int]]  # name -> content, time of change and inode


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def written(case: Case, folder: Path, blobs: Path | None) -> Path:
    """The checkpoint as files whose weights are holes; `blobs`: where they lie if the folder holds links."""
    files, shards = parts(
        case.made, case.fmt, case.ignore, sidecar=case.sidecar, stored=case.stored, dump=DUMPS[case.style]
    )
    folder.mkdir(parents=True)
    for name, value in files.items():
        assert isinstance(value, bytes)
        _at(folder, name, blobs).write_bytes(value)
    for name, tensors in shards.items():
        _, raw, size = header(name, tensors)
        with _at(folder, name, blobs).open("wb") as file:
            file.write(len(raw).to_bytes(8, "little") + raw)
            file.truncate(size)
    return folder


def _at(folder: Path, name: str, blobs: Path | None) -> Path:
    if blobs is None:
        return folder / name
    blobs.mkdir(exist_ok=True)
    blob = blobs / hashlib.sha256(name.encode()).hexdigest()
    (folder / name).symlink_to(os.path.relpath(blob, folder))
    return blob


def held(folder: Path) -> Held:
    """Everything in a folder; of weights the header alone is read."""
    found = {}
    for path in folder.iterdir():
        stat = path.stat()
        with path.open("rb") as file:
            found[path.name] = file.read(1 << 20), stat.st_mtime_ns, stat.st_ino
    return found


def contents(found: Held) -> dict[str, bytes]:
    return {name: content for name, (content, _, _) in found.items()}


@many(15)
@given(cases(), st.booleans())
def test_apply_and_undo(case: Case, cached: bool) -> None:
    world = Path(tempfile.mkdtemp(prefix="mtpfix-"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(world / "state"))
            blobs = world / "blobs" if cached else None
            folder = written(case, world / "snapshots" / "main", blobs)
            _holds(folder, blobs)
    finally:
        shutil.rmtree(world)


def _holds(folder: Path, blobs: Path | None) -> None:
    before, below = held(folder), held(blobs) if blobs else {}
    report = mtpfix.check(folder, scope="all")
    assert held(folder) == before
    mtpfix.apply(report)
    event("edited" if report.plan.edits else "nothing to edit")
    after = held(folder)
    assert contents(after) == {**contents(before), **report.plan.after}
    untouched = before.keys() - report.plan.after.keys()
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    again = mtpfix.check(folder, scope="all")
    mtpfix.apply(again)
    assert contents(held(folder)) == contents(after)
    if report.plan.edits:
        mtpfix.undo(folder)
    assert contents(held(folder)) == contents(before)
    assert (held(blobs) if blobs else {}) == below
