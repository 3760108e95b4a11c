"""A disk with less and less room, mounted for the test: nothing is written, or all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import contents, qwen3_next
from writers import command, said

PAGE = 4096
LONG = bool(os.environ.get("MTPFIX_LONG"))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(disk: Path, pages: int) -> Path:
    """Leave so many pages free."""
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - pages * PAGE))
    return filler


@pytest.mark.parametrize("state", ["elsewhere", "there"])
def test_a_full_disk(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """`state`: whether the undo records lie on it too, or alone on it."""
    here = qwen3_next((tmp_path if state == "there" else disk) / "here", "mtp.layers.0*")
    if state == "there":
        monkeypatch.setenv("XDG_STATE_HOME", str(disk / "state"))
    old, ends = contents(here), set()
    for pages in range(0, 8, 1 if LONG else 2):
        filler = fill(disk, pages)
        found = said("apply", str(here), "-y")
        assert found.exit_code in (0, 3), found.stderr
        if found.exit_code:
            assert contents(here) == old, pages
            assert "No space left on device; nothing was changed" in found.stderr
            assert "Hint: " in found.stderr
        else:
            assert contents(here).keys() == old.keys()
            assert contents(here) != old
            assert command("undo", str(here)) == 0
        ends.add(found.exit_code)
        filler.unlink()
        assert command("apply", str(here), "-y") == 0
        assert command("undo", str(here)) == 0
        assert contents(here) == old
        assert not [path for path in disk.rglob("*") if path.is_file() and here not in path.parents]
    assert ends == {0, 3}


def test_a_report_keeps_the_one_of_yesterday(disk: Path, tmp_path: Path) -> None:
    here, out = qwen3_next(tmp_path / "here", "mtp.layers.0*"), disk / "out.html"
    out.write_bytes(b"of yesterday")
    fill(disk, 1)
    found = said("check", str(here), "--format", "html", "-o", str(out))
    assert found.exit_code == 3
    assert "cannot write the report: No space left on device" in found.stderr
    assert out.read_bytes() == b"of yesterday"
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "out.html"]


def test_a_disk_that_is_read_only(disk: Path) -> None:
    here = qwen3_next(disk / "here", "mtp.layers.0*")
    old = contents(here)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    found = said("apply", str(here), "-y")
    assert found.exit_code == 3
    assert "Read-only file system; nothing was changed" in found.stderr
    assert "copy" in found.stderr
    assert contents(here) == old
    assert said("check", str(here)).exit_code == 1
