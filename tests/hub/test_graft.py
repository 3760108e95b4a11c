"""Grafts from a base on the Hub: only the bytes that are needed, whatever goes wrong on the way, and on from there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoints import deepseek_v3, glm4_moe, on_disk

import mtpfix
from hub import Hub, cut, dropped, lost, status, whole
from hub.faults import before
from mtpfix import api
from mtpfix.checkpoint import http
from mtpfix.errors import ConflictError, UnreadableError, UsageError, WriteError
from mtpfix.grafting import sources
from mtpfix.store.records import state_folder

GLM = ("lm_head", "model.layers.1.mlp.gate")
SHARDS = {
    "shard_of": lambda name: "draft.safetensors" if "layers.2." in name else f"part{'layers.1' in name}.safetensors"
}
MIXED = {"shard_of": lambda name: f"part{'gate' in name}.safetensors"}
FOREVER = float("inf")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(http, "BACKOFF", 0.01)
    monkeypatch.setattr(http, "TIMEOUT", 2.0)
    monkeypatch.setattr(sources, "_LONGEST", 100_000)
    monkeypatch.setattr(sources, "_NOTED", 20_000)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return on_disk(tmp_path / "here", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)


@pytest.fixture(params=["a shard of its own", "scattered"])
def base(request: pytest.FixtureRequest, tmp_path: Path, hub: Hub) -> Path:
    made = on_disk(tmp_path / "base", glm4_moe(), seed=2, **(SHARDS if request.param != "scattered" else MIXED))
    hub.create("org/base", made)
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def by_hand(tmp_path: Path, base: Path) -> dict[str, bytes]:
    """What the same graft from the folder makes."""
    other = on_disk(tmp_path / "other", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)
    mtpfix.graft(other, base)
    return content(other)


def kept(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "state").rglob("*") if path.suffix in (".part", ".tmp")]


def test_the_same_as_from_the_folder_and_only_its_bytes(hub: Hub, tmp_path: Path, here: Path, base: Path) -> None:
    old = content(here)
    mtpfix.graft(here, "org/base", dry_run=True)
    hub.forget()
    found = mtpfix.graft(here, "org/base")
    assert content(here) == by_hand(tmp_path, base)
    assert found.layout is not None
    assert found.base.revision == hub.repositories["org/base"].head()
    data = sum(origin.end - origin.start for origin in found.origins)
    assert data <= hub.sent <= data + 20_000  # the list of files
    assert not kept(tmp_path)
    mtpfix.undo(here)
    assert content(here) == old


@pytest.mark.parametrize("fault", [cut(30_000), cut(0), dropped, lost, status(503), whole])
def test_what_goes_wrong_once(hub: Hub, tmp_path: Path, here: Path, base: Path, fault: Any) -> None:
    hub.fault(r"/resolve/.*safetensors|/cdn/", fault, times=3)
    mtpfix.graft(here, "org/base")
    assert content(here) == by_hand(tmp_path, base)


def test_a_copy_that_broke_off_goes_on(hub: Hub, tmp_path: Path, here: Path, base: Path) -> None:
    old = content(here)
    mtpfix.graft(here, "org/base", dry_run=True)
    hub.fault("/cdn/", cut(60_000), times=2)
    hub.fault("/cdn/", status(503), times=FOREVER)
    with pytest.raises(UnreadableError, match="503"):
        mtpfix.graft(here, "org/base")
    assert content(here) == old
    assert len(kept(tmp_path)) == 1
    hub.faults.clear()
    hub.forget()
    found = mtpfix.graft(here, "org/base")
    assert hub.sent < sum(origin.end - origin.start for origin in found.origins) - 20_000
    assert content(here) == by_hand(tmp_path, base)
    assert not kept(tmp_path)


def test_killed_on_the_way(hub: Hub, tmp_path: Path, here: Path, base: Path) -> None:
    """Only what a note on the disk says is taken up again, whatever else is in the file."""
    mtpfix.graft(here, "org/base", dry_run=True)
    real = sources.os.replace  # type: ignore[attr-defined]
    notes: list[bytes] = []

    def noted(draft: Any, note: Any) -> None:
        real(draft, note)
        if str(note).endswith(".json") and "graft" in str(note):
            notes.append(Path(note).read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", noted)
        hub.fault("/cdn/", before(lambda: None), times=2)
        hub.fault("/cdn/", status(503), times=FOREVER)
        with pytest.raises(UnreadableError):
            mtpfix.graft(here, "org/base")
    hub.faults.clear()
    (part,) = (tmp_path / "state").rglob("*.part")
    for note in (notes[0], b"", b"[1", b"[]", b'["x"]', b"[-1]"):
        part.with_suffix(".json").write_bytes(note)
        mtpfix.graft(here, "org/base")
        assert content(here) == by_hand(tmp_path, base)
        mtpfix.undo(here)
        shutil.rmtree(tmp_path / "other")


def test_a_file_that_has_another_hash(hub: Hub, tmp_path: Path, here: Path) -> None:
    base = on_disk(tmp_path / "base", glm4_moe(), seed=2, **SHARDS)
    repo = hub.create("org/base", base)
    mtpfix.graft(here, "org/base", dry_run=True)
    path = base / "draft.safetensors"
    raw = path.read_bytes()
    assert repo.files("main")["draft.safetensors"].sha256  # known before it changes
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    old = content(here)
    if isinstance(repo.files("main")["draft.safetensors"].data, bytes):
        pytest.skip("the Hub of the tests holds small files in memory")
    with pytest.raises(UnreadableError, match="another hash"):
        mtpfix.graft(here, "org/base")
    assert content(here) == old
    assert not kept(tmp_path)


def test_no_space_for_what_comes(
    hub: Hub, tmp_path: Path, here: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, real = content(here), os.pwrite

    def full(descriptor: int, data: Any, at: int) -> int:
        if at > 50_000:
            raise OSError(28, os.strerror(28))
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WriteError, match="No space left") as caught:
        mtpfix.graft(here, "org/base")
    assert "XDG_STATE_HOME" in caught.value.hint
    assert content(here) == old


def test_two_at_once(hub: Hub, tmp_path: Path, here: Path, base: Path) -> None:
    with api.grafting(here, "org/base") as one, api.grafting(here, "org/base") as two:
        refused: list[str] = []

        def other(_: int) -> None:
            if not refused:
                with pytest.raises(ConflictError, match="another graft of this checkpoint"):
                    two.write()
                refused.append("yes")

        one.write(other)
    assert refused
    assert content(here) == by_hand(tmp_path, base)


def test_fp8_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    made = deepseek_v3()
    base = on_disk(tmp_path / "base", made, "fp8-block", (), stored=dict.fromkeys(made.draft, "fp8-block"), seed=2)
    hub.create("org/base", base)
    first, second = (on_disk(tmp_path / name, made.without_draft(), "nvfp4", GLM, seed=1) for name in ("one", "two"))
    mtpfix.graft(first, "org/base", dequantize=True)
    mtpfix.graft(second, base, dequantize=True)
    assert content(first) == content(second)


def test_no_such_base(hub: Hub, here: Path) -> None:
    with pytest.raises(UnreadableError, match="no repository on the Hub"):
        mtpfix.graft(here, "org/nothing")
    with pytest.raises(UsageError, match="only a directory"):
        mtpfix.graft("org/nothing", here)


def test_what_nobody_ended_goes_after_a_while(hub: Hub, tmp_path: Path, here: Path, base: Path) -> None:
    folder = state_folder(Path(os.path.realpath(here))) / "graft"
    folder.mkdir(parents=True)
    for name, age in (("old.part", 40), ("new.part", 1)):
        (folder / name).write_bytes(b"")
        when = (folder / name).stat().st_mtime - age * 24 * 3600
        os.utime(folder / name, (when, when))
    mtpfix.graft(here, "org/base")
    assert [path.name for path in folder.iterdir()] == ["new.part"]
