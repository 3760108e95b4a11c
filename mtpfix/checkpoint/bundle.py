"""A header bundle: one file that stands for a checkpoint, without a byte of its weights.

A gzipped tar of `mtpfix-bundle.json` (origin, and the size and hash of every file), the JSON files byte for byte, and
each safetensors file cut off after its header; so `tar xzf` and any reader of headers understand it. The same files
give the same bundle, byte for byte. It holds no token, and of a local checkpoint only the folder's own name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, BinaryIO

from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.headers import LENGTH_BYTES, beyond, broken, header_length, prefix
from mtpfix.checkpoint.index import MOST_FILES, SUFFIX, consolidated_beside, index_name, read_index, shard_names
from mtpfix.checkpoint.jsonfiles import MAX_JSON_BYTES, NAMES, Together
from mtpfix.checkpoint.reading import Files, HeaderRow
from mtpfix.errors import UnreadableError
from mtpfix.model import Source
from mtpfix.tokens import holds_secret, masked

MANIFEST = "mtpfix-bundle.json"
FORMAT = 1
MAX_BYTES = 1 << 27  # of a bundle, unpacked; a trillion parameters make half of it
MAX_MANIFEST = 1 << 23
MAX_MEMBERS = MOST_FILES + 20  # shards, and what lies beside them
_LEVEL, _QUICK = 6, 1  # of compression, and for more than `_MUCH` bytes: four times as fast
_MUCH = 1 << 25
_GZIP = 31  # zlib's sign for gzip with the widest window
_PIECE = 1 << 20
_LONGEST = 4096  # bytes of a name, as the systems have it
_MOST_RECORDS = 1 << 14  # bytes before a file's header that tell its name where that has no room for it
_RECORD = re.compile(rb"([0-9]{1,5}) ([A-Za-z.]{1,40})=")
_TOLD = (b"path", b"hdrcharset", b"mtime", b"atime", b"ctime")  # what such records may tell

Held = Mapping[str, tuple[bytes, ...]]  # name -> the parts of what is packed of a file


def pack(source: Source, files: Files) -> bytes:
    """The bundle of a checkpoint. Raises UnreadableError where a file of it cannot be read or is malformed."""
    names = tuple(files.names())
    shards = shard_names(names)
    together = Together()
    held: dict[str, tuple[bytes, ...]] = {
        name: (together.add(name, files.json_bytes(name)),) for name in (*NAMES, index_name(shards)) if name in names
    }
    sizes: dict[str, int] = {}
    own, beside = Collector(), Collector()
    total = sum(map(_size, held.values()))
    aside = consolidated_beside(names)
    for name, header, size in files.headers((*shards, *aside, *_below(held, shards, files))):
        (beside if name in aside else own).add_header(name, header, size)
        sizes[name] = size
        held[name] = prefix(header), header
        total += len(header)
        if len(held) >= MAX_MEMBERS:
            raise beyond(name, f"a bundle would hold more than {MAX_MEMBERS:,} files")
        if total > MAX_BYTES:
            raise beyond(name, f"with its header a bundle would hold more than {MAX_BYTES:,} bytes")
    for name, parts in held.items():
        if holds_secret(parts[-1]) or holds_secret(os.fsencode(name)):
            raise UnreadableError(
                f"{name}: it holds a token, a password or a signature", subject=name, hint="take it out, and revoke it"
            )
    table = {name: _row(parts, sizes.get(name)) for name, parts in sorted(held.items())}
    manifest = {"format": FORMAT, "source": _origin(source), "files": table}
    head = json.dumps(manifest, indent=1, ensure_ascii=True).encode() + b"\n"
    return _zipped({MANIFEST: (head,), **dict(sorted(held.items()))}, _LEVEL if total < _MUCH else _QUICK)


def _below(held: Held, shards: Sequence[str], files: Files) -> list[str]:
    """The shards in folders that the index names, as far as they exist."""
    name = index_name(shards)
    try:
        weight_map = read_index(name, held[name][0])[0] if name in held else {}
    except UnreadableError:
        return []
    return sorted(n for n in {*weight_map.values()}.difference(shards) if n.endswith(SUFFIX) and files.has(n))


def _size(parts: Iterable[bytes]) -> int:
    return sum(map(len, parts))


def _row(parts: Sequence[bytes], size: int | None) -> dict[str, Any]:
    """What the manifest says of a file: its true size, and the hash of what the bundle holds of it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return {"size": _size(parts) if size is None else size, "sha256": digest.hexdigest()}


def _origin(source: Source) -> dict[str, Any]:
    kept = source.id if source.kind == "hub" else PurePath(os.path.abspath(source.id)).name
    revision = None if source.revision is None else masked(source.revision)
    return {"kind": source.kind, "id": masked(kept), "revision": revision}


def _zipped(held: Held, level: int) -> bytes:
    """The files as a gzipped tar. They are compressed piece by piece, as no second copy of them fits in memory."""
    packer = zlib.compressobj(level, wbits=_GZIP)
    out = io.BytesIO()
    for part in _tar(held):
        for at in range(0, len(part), _PIECE):
            out.write(packer.compress(part[at : at + _PIECE]))
    out.write(packer.flush())
    return out.getvalue()


def _tar(held: Held) -> Iterator[bytes]:
    """A tar of the files, in parts, as the tarfile module writes it."""
    written = 0
    for name, parts in held.items():
        info = tarfile.TarInfo(name)
        info.size = _size(parts)
        for part in (info.tobuf(tarfile.PAX_FORMAT), *parts, bytes(-info.size % tarfile.BLOCKSIZE)):
            written += len(part)
            yield part
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(written + end) % tarfile.RECORDSIZE)


class Bundle:
    """The files in a bundle. Raises UnreadableError where it is none, is damaged, or unpacks to too much."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = _members(path)
        manifest = self._manifest()
        self._sizes: dict[str, int] = {name: row["size"] for name, row in manifest["files"].items()}
        self._fronts: dict[str, bytes] = {}
        for name in [name for name in self._held if name.endswith(SUFFIX)]:  # cut once: a header may be 100 MB long
            data = self._held.pop(name)
            self._fronts[name], self._held[name] = data[:LENGTH_BYTES], data[LENGTH_BYTES:]
            del data
        self.source = Source("bundle", path, manifest["source"]["revision"])

    def names(self) -> list[str]:
        return sorted(name for name in self._held if "/" not in name)

    def has(self, name: str) -> bool:
        return name in self._held

    def json_bytes(self, name: str) -> bytes:
        data = self._held[name]
        if len(data) > MAX_JSON_BYTES:
            raise _unfit(self._path, f"{name}: {len(data)} bytes are above the limit of {MAX_JSON_BYTES} for JSON")
        return data

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        for name in names:
            header, size = self._held[name], self._sizes[name]
            if len(header) != header_length(self._fronts[name], size, name):
                raise broken(name, f"byte {len(header)}: the bundle does not hold its header")
            yield name, header, size

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads(self._held.pop(MANIFEST))
            revision = manifest["source"]["revision"]
            rows = {name: (row["size"], row["sha256"]) for name, row in manifest["files"].items()}
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise _unfit(self._path, "no bundle of mtpfix") from None
        if manifest.get("format") != FORMAT:
            raise _unfit(self._path, "a bundle of another version of mtpfix", "use a newer mtpfix")
        for name, (size, digest) in rows.items():
            held = self._held.get(name)
            if held is None or type(size) is not int or hashlib.sha256(held).hexdigest() != digest:
                raise _unfit(self._path, f"{name}: not as it was packed")
        if rows.keys() != self._held.keys() or not isinstance(revision, str | None):
            raise _unfit(self._path, "holds files that its own list does not know")
        assert isinstance(manifest, dict)
        return manifest


class _Unzipped(io.RawIOBase):
    """What a gzip file unpacks to, as it is read, so that no copy of all is held. Raises UnreadableError."""

    def __init__(self, path: str, file: io.BufferedIOBase) -> None:
        self._path, self._file, self._read = path, file, 0
        self._inflate = zlib.decompressobj(wbits=_GZIP)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._file.read(_PIECE)
            if not packed:
                raise _unfit(self._path, "damaged: it ends too early, or too late")
            data = self._inflate.decompress(packed, min(len(room), _PIECE))
        room[: len(data)] = data
        self._read += len(data)
        if self._read > MAX_BYTES:
            raise _unfit(self._path, f"unpacks to more than {MAX_BYTES} bytes")
        return len(data)

    def end(self) -> None:
        """Reads what is left, which has to end where the file does."""
        while self.read(_PIECE):
            pass
        if self._inflate.unused_data or self._file.read(1):
            raise _unfit(self._path, "damaged: it ends too early, or too late")


def _members(path: str) -> dict[str, bytes]:
    """The files in a bundle."""
    held: dict[str, bytes] = {}
    try:
        with open(path, "rb") as file:
            unzipped = _Unzipped(path, file)
            tar = io.BufferedReader(unzipped, _PIECE)
            for name, size in _heads(tar):
                if name in held or len(held) > MAX_MEMBERS or not 0 <= size <= _most(name):
                    raise ValueError
                held[name] = _blocks(tar, size)
            unzipped.end()
    except zlib.error:
        raise _unfit(path, "damaged: it cannot be unpacked") from None
    except (tarfile.TarError, ValueError):
        raise _unfit(path, "no bundle of mtpfix") from None
    except OSError as error:
        raise _unfit(path, error.strerror or str(error), "check that you may read it") from None
    return held


def _blocks(tar: BinaryIO, size: int) -> bytes:
    """The next bytes, so many of them; the rest of their last block goes. Raises ValueError where there are fewer."""
    data = tar.read(size)
    if len(data) < size or len(tar.read(-size % tarfile.BLOCKSIZE)) != -size % tarfile.BLOCKSIZE:
        raise ValueError
    return data


def _heads(tar: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each file of a tar, whose data the caller takes before the next one.

    Raises ValueError or TarError for what no bundle holds. tarfile's own reader takes in headers that announce further
    ones without end, one call deep each, and lists of holes of any length.
    """
    name = ""
    while any(block := _blocks(tar, tarfile.BLOCKSIZE)):
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if info.type == tarfile.XHDTYPE and not name and 0 < info.size <= _MOST_RECORDS:
            name = _long_name(_blocks(tar, info.size))
        elif info.type == tarfile.REGTYPE:
            yield name or info.name, info.size
            name = ""
        else:
            raise ValueError


def _long_name(records: bytes) -> str:
    """The name that the records before a file's header give it. Raises ValueError where they give none."""
    at, name = 0, b""
    while at < len(records):
        found = _RECORD.match(records, at)
        end = at + int(found[1]) if found else 0
        if found is None or not found.end() < end <= len(records) or found[2] not in _TOLD:
            raise ValueError
        if found[2] == b"path":
            name = records[found.end() : end - 1]
        at = end
    if not 0 < len(name) <= _LONGEST:
        raise ValueError
    return name.decode("utf-8", "surrogateescape")


def _most(name: str) -> int:
    """How long a file of a bundle may be."""
    return MAX_BYTES if name != MANIFEST else MAX_MANIFEST


def _unfit(path: str, what: str, hint: str = "make it again with `mtpfix snapshot SOURCE -o FILE`") -> UnreadableError:
    return UnreadableError(f"{path}: {what}", subject=path, hint=hint)
