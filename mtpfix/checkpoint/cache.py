"""What was read from the Hub before, by its content: a shard's header, a JSON file.

A key is the content's own hash as the Hub lists it, so an entry never goes stale and the same file in another commit
or repository is the same entry. Entries are compressed; what cannot be read or written is as if it were not there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mtpfix.checkpoint.room import joined

FOLDER = "mtpfix/hub"
MAX_AGE = 60 * 24 * 3600.0  # seconds since an entry was last used
_PRUNED = ".pruned"
_PRUNE_EVERY = 24 * 3600.0
_CHECK = 32
_AT_ONCE = 1 << 20


class Cache:
    """Entries below XDG_CACHE_HOME."""

    def __init__(self) -> None:
        root = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(root) if os.path.isabs(root) else Path(os.path.expanduser("~/.cache"))
        self._root = base / FOLDER

    def has(self, key: str) -> bool:
        """Whether there is an entry, which may still turn out unreadable."""
        return self._path(key).exists()

    def get(
        self, key: str, limit: int, front: int = 0, before: Callable[[bytes], object] = bytes
    ) -> tuple[bytes, bytes] | None:
        """The first bytes of an entry and the others, or None; never more than `limit` of these.

        before  is given the first bytes before the others are read, and may raise
        """
        path = self._path(key)
        try:
            raw = path.read_bytes()
            inflate = zlib.decompressobj()
            first = inflate.decompress(raw[_CHECK:], front) if front else b""
            before(first)
            data = joined(_inflated(inflate, inflate.unconsumed_tail if front else raw[_CHECK:], limit))
            found = hashlib.sha256(first)
            found.update(data)
            if not inflate.eof or found.digest() != raw[:_CHECK]:
                return None
            os.utime(path)
        except (OSError, zlib.error):
            return None
        return first, data

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Keep an entry that is put together of pieces, all of it or nothing."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                temporary = Path(file.name)
                try:
                    file.write(bytes(_CHECK))
                    found = hashlib.sha256()
                    deflate = zlib.compressobj(1)
                    for piece in pieces:  # one by one: they may be 100 MB
                        found.update(piece)
                        file.write(deflate.compress(piece))
                    file.write(deflate.flush())
                    file.seek(0)
                    file.write(found.digest())
                    file.close()
                    temporary.replace(path)
                except OSError:
                    temporary.unlink(missing_ok=True)
        except OSError:
            return

    def prune(self) -> None:
        """Once a day, drop what was not used for long, and what a killed process has not brought to its end."""
        stamp = self._root / _PRUNED
        try:
            if stamp.exists() and stamp.stat().st_mtime > time.time() - _PRUNE_EVERY:
                return
            stamp.touch()
            for path in self._root.glob("??/*"):
                age = _PRUNE_EVERY if path.name.startswith(tempfile.gettempprefix()) else MAX_AGE
                if path.stat().st_mtime < time.time() - age:
                    path.unlink()
        except OSError:
            return

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._root / name[:2] / name[2:]


def _inflated(inflate: Any, packed: bytes, limit: int) -> Iterator[bytes]:
    """What is packed, piece by piece: `limit` bytes, and one more where there are more."""
    left = limit + 1
    while left > 0 and not inflate.eof and (piece := inflate.decompress(packed, min(left, _AT_ONCE))):
        yield piece
        left -= len(piece)
        packed = inflate.unconsumed_tail
