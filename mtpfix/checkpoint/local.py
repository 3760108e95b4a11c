"""A checkpoint in a folder: the only code that reads a disk.

Nothing here can block or be led astray by what a folder holds: only regular files (links to them too, as in a Hub
cache) are opened, and of a weight file nothing but its header is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mtpfix.checkpoint.headers import LENGTH_BYTES, broken, header_length
from mtpfix.checkpoint.index_text import Pieces
from mtpfix.checkpoint.jsonfiles import MAX_JSON_BYTES
from mtpfix.checkpoint.reading import HeaderRow, read_checkpoint
from mtpfix.checkpoint.stand import WITHOUT_WAITING
from mtpfix.errors import READ_HINT, UnreadableError
from mtpfix.model import Checkpoint, Source

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_local(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in a folder.

    Raises UnreadableError where the folder or a file in it cannot be read; the message names file and place.
    """
    root = os.fsdecode(path)
    return read_checkpoint(Source("local", root), Folder(root))


class Folder:
    """The files of a folder."""

    def __init__(self, root: str) -> None:
        self._root = root

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._root))
        except FileNotFoundError:
            raise _unreadable(self._root, "no such folder", "check the spelling of the path") from None
        except NotADirectoryError:
            raise _unreadable(
                self._root, "a file, not a folder", "give the folder that holds config.json and the weights"
            ) from None
        except (OSError, ValueError) as error:
            raise _failed(self._root, error) from None

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._root, name))

    def json_bytes(self, name: str) -> bytes:
        with self.json_pieces(name) as pieces:
            return pieces[:]

    @contextmanager
    def json_pieces(self, name: str) -> Iterator[Pieces]:
        """The same, to be read where it is looked at."""
        with self._opened(name) as (file, size):
            if size > MAX_JSON_BYTES:
                raise _unreadable(
                    name, f"{size} bytes are above the limit of {MAX_JSON_BYTES} for JSON", "look at what wrote it"
                )
            yield _Pieces(file, size)

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        for name in names:
            with self._opened(name) as (file, size):
                length = header_length(_exactly(file, LENGTH_BYTES), size, name)
                header = _exactly(file, length)
            if len(header) < length:
                raise broken(name, f"byte {LENGTH_BYTES + len(header)}: the file ends inside its header")
            yield name, header, size

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, int]]:
        """The descriptor of a file, open meanwhile, and the file's size."""
        path = os.path.join(self._root, name)
        try:
            _require_regular(name, os.stat(path).st_mode)  # before opening: opening a device may already act
            file = os.open(path, WITHOUT_WAITING)
            try:
                status = os.fstat(file)
                _require_regular(name, status.st_mode)
                yield file, status.st_size
            finally:
                os.close(file)
        except FileNotFoundError:
            raise _unreadable(name, "a link to a file that is missing", "download the file again") from None
        except OSError as error:
            raise _failed(name, error) from None


class _Pieces:
    """The bytes of an open file, read where they are looked at; fewer where it has become shorter."""

    def __init__(self, file: int, size: int) -> None:
        self._file, self._size = file, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, stop, _ = place.indices(self._size)
        os.lseek(self._file, start, os.SEEK_SET)
        return _exactly(self._file, max(stop - start, 0))


def _exactly(file: int, count: int) -> bytes:
    """So many bytes, or all that are left."""
    data = os.read(file, count)
    while len(data) < count:
        more = os.read(file, count - len(data))
        if not more:
            break
        data += more
    return data


def _require_regular(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((word for test, word in _KINDS if test(mode)), "no regular file")
        raise _unreadable(name, f"{kind}, not a file", "move it out of the folder")


def _failed(subject: str, error: OSError | ValueError) -> UnreadableError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _unreadable(subject, why, READ_HINT)


def _unreadable(subject: str, why: str, hint: str) -> UnreadableError:
    return UnreadableError(f"{subject}: {why}", subject=subject, hint=hint)
