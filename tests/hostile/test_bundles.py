"""Bundles that nobody packed: an archive format with more in it than a bundle needs."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from mtpfix import api

from .sandbox import Sandbox, civil


def head(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("name")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def blocks(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def records(key: bytes, value: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A header that says something of the file behind it, or of all."""
    length = len(key) + len(value) + 3
    while len(text := b"%d %s=%s\n" % (length, key, value)) != length:
        length = len(text)
    return head(kind, length) + blocks(text)


def holes(count: int) -> bytes:
    """The header of a file with holes, and so many blocks that list them."""
    numbers = b"00000000001\0" * 2
    first = bytearray(head(tarfile.GNUTYPE_SPARSE, 0))
    first[386:495] = numbers * 4 + b"\1" + b"00000000777\0"
    first[148:156] = b"%06o\0 " % (sum(first[:148]) + 8 * 32 + sum(first[156:]))
    return bytes(first) + (numbers * 21 + b"\1" + bytes(7)) * count


HOSTILE = {
    "headers before headers": lambda: records(b"path", b"a") * 100_000,
    "headers for all": lambda: records(b"path", b"a", tarfile.XGLTYPE) * 100_000,
    "long names before long names": lambda: (head(tarfile.GNUTYPE_LONGNAME, 2) + blocks(b"x\0")) * 100_000,
    "a long name": lambda: head(tarfile.GNUTYPE_LONGNAME, 100_000_000) + blocks(b"x" * 100_000_000),
    "a name of 100 MB": lambda: records(b"path", b"x" * 100_000_000),
    "a name of 60,000 letters": lambda: records(b"path", b"x" * 60_000) + head(tarfile.REGTYPE, 0),
    "a map of holes": lambda: records(b"GNU.sparse.map", b"1," * 10_000_000 + b"1"),
    "blocks of holes": lambda: holes(200_000),
    "digits": lambda: head(tarfile.XHDTYPE, 1_000_000) + blocks(b"1" * 1_000_000),
    "a length of nothing": lambda: head(tarfile.XHDTYPE, 9) + blocks(b"0 path=x\n"),
    "a length that lies": lambda: head(tarfile.XHDTYPE, 10) + blocks(b"99 path=x\n"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_an_archive_that_is_no_bundle(what: str, sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    file.write_bytes(gzip.compress(HOSTILE[what]() + bytes(tarfile.RECORDSIZE), 1))
    done = sandbox.run("check", file)
    civil(done)
    assert done.code == 3
    assert "no bundle of mtpfix" in done.err


@pytest.mark.parametrize("name", ["m" * 200 + ".safetensors", "modèle-量子.safetensors", b"m\xff.safetensors"])
def test_a_name_that_a_header_has_no_room_for(name: str | bytes, place: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in place.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    bare = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    (model / "model.safetensors").rename(model / bare)
    (tmp_path / "bundle").write_bytes(api.snapshot(model))
    assert bare in {shard.name for shard in api.read(tmp_path / "bundle").shards}
