"""Header bundles."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from shards import write_checkpoint, write_index

from mtpfix import api
from mtpfix.checkpoint import bundle
from mtpfix.errors import UnreadableError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.qwen3_next(tmp_path / "model", "mtp.layers.0*")


def packed(model: Path) -> Path:
    path = model.parent / "bundle.tar.gz"
    path.write_bytes(api.snapshot(model))
    return path


def test_a_bundle_stands_for_the_checkpoint(model: Path) -> None:
    (model / "weights.bin").write_bytes(b"1" * 1000)
    (model / "README.md").write_text("hf_secret", "utf-8")
    path = packed(model)
    assert path.stat().st_size < 5000
    here, there = api.check(model), api.check(path)
    assert (there.source.kind, there.source.id) == ("bundle", str(path))
    assert (there.findings, there.engines, there.plan.after) == (here.findings, here.engines, here.plan.after)
    assert there.tensors == here.tensors
    assert api.snapshot(path) != b""


def test_the_same_state_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    first = api.snapshot(model)
    for path in model.iterdir():
        path.touch()
    assert api.snapshot(model) == first
    assert api.snapshot(f"{model}/") == first
    assert str(tmp_path).encode() not in gzip.decompress(first)


def test_it_is_a_tar_of_json_files_and_headers(model: Path) -> None:
    with tarfile.open(packed(model)) as tar:
        names = tar.getnames()
        manifest = json.loads(tar.extractfile(bundle.MANIFEST).read())  # type: ignore[union-attr]
    assert names == [bundle.MANIFEST, "config.json", "hf_quant_config.json", "model.safetensors"]
    assert manifest["files"]["model.safetensors"]["size"] == (model / "model.safetensors").stat().st_size
    assert manifest["source"] == {"kind": "local", "id": "model", "revision": None}


def test_shards_in_folders_below(tmp_path: Path) -> None:
    shards = {
        "model-1.safetensors": {"a.weight": ("BF16", (4, 4))},
        "sub/m.safetensors": {"b.weight": ("BF16", (4, 4))},
    }
    folder = write_checkpoint(tmp_path / "m", shards, index=False)
    write_index(
        folder, {"a.weight": "model-1.safetensors", "b.weight": "sub/m.safetensors", "c.weight": "gone.safetensors"}
    )
    (tmp_path / "b").write_bytes(api.snapshot(folder))
    here, there = api.read(folder), api.read(tmp_path / "b")
    assert (there.modules, there.index, there.shards) == (here.modules, here.index, here.shards)


def retarred(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """The bundle packed again with other members."""
    with tarfile.open(path) as tar:
        held = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    change(held)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in held.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.pop("config.json"),
        lambda held: held.update({"config.json": b"{}"}),
        lambda held: held.update({"more.json": b"{}"}),
        lambda held: held.update({"../../evil": b"{}"}),
        lambda held: held.pop(bundle.MANIFEST),
        lambda held: held.update({bundle.MANIFEST: b"[" * 100_000}),
        lambda held: held.update({bundle.MANIFEST: b'{"format": 1, "source": {}, "files": []}'}),
        lambda held: held.update({bundle.MANIFEST: held[bundle.MANIFEST].replace(b'"format": 1', b'"format": 2')}),
    ],
)
def test_tampered(model: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    path = packed(model)
    retarred(path, change)
    with pytest.raises(UnreadableError, match="bundle"):
        api.check(path)


def test_damaged(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(model)
    raw = path.read_bytes()
    for data in (raw[:-9], raw[:40], raw[:2], raw + b"x", raw[:30] + b"\0\0\0\0" + raw[34:], gzip.compress(b"no tar")):
        path.write_bytes(data)
        with pytest.raises(UnreadableError):
            api.check(path)
    monkeypatch.setattr(bundle, "MAX_BYTES", 10_000)
    path.write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(UnreadableError, match="unpacks to more"):
        api.check(path)


def test_a_broken_config_can_be_packed(model: Path) -> None:
    (model / "config.json").write_text("{oops", "utf-8")
    with pytest.raises(UnreadableError, match=r"config\.json: line 1"):
        api.check(packed(model))


def test_what_the_safetensors_library_refuses_is_not_packed(model: Path) -> None:
    shard = next(model.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes() + b"more than the header covers")
    with pytest.raises(UnreadableError, match="not a valid safetensors file"):
        api.snapshot(model)


def test_a_bundle_of_more_than_a_model_needs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither made nor read; no member is held that is longer than all may be."""
    path = packed(model)
    retarred(path, lambda held: held.update({bundle.MANIFEST: b" " * (bundle.MAX_MANIFEST + 1)}))
    with pytest.raises(UnreadableError, match="no bundle"):
        api.check(path)
    path = packed(model)
    retarred(path, lambda held: held.update({f"{at}.json": b"" for at in range(bundle.MAX_MEMBERS)}))
    with pytest.raises(UnreadableError, match="no bundle"):
        api.check(path)
    monkeypatch.setattr(bundle, "MAX_MEMBERS", 2)
    with pytest.raises(UnreadableError, match="more than 2 files"):
        api.snapshot(model)
    monkeypatch.setattr(bundle, "MAX_MEMBERS", 20)
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    with pytest.raises(UnreadableError, match="more than 1,000 bytes"):
        api.snapshot(model)
