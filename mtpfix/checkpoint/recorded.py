"""The files of a checkpoint as they were read, kept, so that a changed version of them can be read again. Pure.

Headers are kept compressed: those of a large checkpoint take 25 MB, and one as they are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtpfix.checkpoint.headers import front
from mtpfix.checkpoint.reading import Files, HeaderRow
from mtpfix.errors import UnreadableError
from mtpfix.frozen import NamedTuple, dataclass, replace


class Packed(NamedTuple):
    """A shard's header, compressed, and the size of its file."""

    packed: bytes
    size: int

    @property
    def header(self) -> bytes:
        return zlib.decompress(self.packed)


def packed(header: bytes, size: int) -> Packed:
    """A header as it is kept."""
    return Packed(zlib.compress(header, 1), size)


@dataclass(frozen=True, slots=True)
class Held:
    """The files of a checkpoint in memory: names of the top folder, JSON files, headers with the sizes of the files."""

    listed: tuple[str, ...]
    jsons: Mapping[str, bytes]
    shards: Mapping[str, Packed]

    def names(self) -> Iterable[str]:
        return self.listed

    def has(self, name: str) -> bool:
        return name in self.listed or name in self.shards or name in self.jsons

    def json_bytes(self, name: str) -> bytes:
        return self.jsons[name]

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        for name in names:
            if name not in self.shards:
                raise UnreadableError(
                    f"{name}: its header was not read",
                    subject=name,
                    hint="run it again: the checkpoint changed meanwhile",
                )
            yield name, self.shards[name].header, self.shards[name].size

    def changed(self, jsons: Mapping[str, bytes], shards: Mapping[str, Packed | None]) -> Held:
        """The files with other contents of some; None: the file goes."""
        held = {**self.shards, **shards}
        kept = {name: value for name, value in held.items() if value is not None}
        gone = {name for name, value in shards.items() if value is None}
        names = sorted({*self.listed, *jsons, *kept} - gone)
        top = tuple(name for name in names if "/" not in name)
        return replace(self, listed=top, jsons={**self.jsons, **jsons}, shards=kept)

    def front(self, shard: str) -> bytes:
        """The first bytes of a shard: the length of its header, and the header."""
        return front(self.shards[shard].header)


class Recorder:
    """Files that remember what was read of them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._names: tuple[str, ...] | None = None
        self._jsons: dict[str, bytes] = {}
        self._shards: dict[str, Packed] = {}

    def names(self) -> Iterable[str]:
        if self._names is None:
            self._names = tuple(self._files.names())
        return self._names

    def has(self, name: str) -> bool:
        return self._files.has(name)

    def json_bytes(self, name: str) -> bytes:
        if name not in self._jsons:
            self._jsons[name] = self._files.json_bytes(name)
        return self._jsons[name]

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        for name, header, size in self._files.headers(names):
            self._shards[name] = packed(header, size)
            yield name, header, size

    def held(self) -> Held:
        """What was read."""
        return Held(tuple(self.names()), dict(self._jsons), dict(self._shards))
