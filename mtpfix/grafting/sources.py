"""Where the bytes of a base checkpoint are: in files here, or in ranges of files on the Hub. (Edge.)

What is asked of the Hub goes to a file in the user's state folder first, stretch after stretch, with a note of how far
each has come: a copy that broke off goes on from there. The revision is pinned, so that no stretch is of another file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

from mtpfix import bulk
from mtpfix.checkpoint.hub import Repository
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError, WriteError
from mtpfix.frozen import Protocol, dataclass
from mtpfix.store.files import opened, writing
from mtpfix.store.records import state_folder

Stretch = tuple[str, int, int]  # shard, start, end
_WORKERS = 8
_LONGEST = 64 << 20  # of a stretch of the Hub's: what is asked for at once
_NOTED = 32 << 20  # bytes between two notes of how far a copy has come
_KEPT_FOR = 30 * 24 * 3600.0  # seconds
_CHANGED = "The base was changed while it was read: run it again."
_STATE_HINT = "What comes from the Hub is kept there first. Set XDG_STATE_HOME to a folder with more space."


class Bytes(Protocol):
    """The bytes of a base's shards."""

    def place(self, shard: str, start: int) -> tuple[int, int]:
        """The open file that holds a byte of a shard, and where in it."""

    def check(self) -> None:
        """Raises ConflictError if a file is no longer what it was when it was opened."""


class LocalBytes:
    """Shards in a folder, opened once. Raises ConflictError if one is not as its header was read."""

    def __init__(self, folder: str, fronts: Mapping[str, bytes], stack: contextlib.ExitStack) -> None:
        self._open: dict[str, tuple[int, tuple[int, ...], str]] = {}
        for shard, front in fronts.items():
            path = os.path.join(folder, shard)
            try:
                descriptor = stack.enter_context(opened(Path(path), os.O_RDONLY))
                known = _identity(descriptor)
                same = os.pread(descriptor, len(front), 0) == front
            except OSError as error:
                raise UnreadableError(f"{path}: {error.strerror}", subject=path, hint=READ_HINT) from None
            if not same:
                raise ConflictError(f"{path} was changed while it was read", subject=path, hint=_CHANGED)
            self._open[shard] = descriptor, known, path

    def place(self, shard: str, start: int) -> tuple[int, int]:
        return self._open[shard][0], start

    def check(self) -> None:
        for descriptor, known, path in self._open.values():
            if _identity(descriptor) != known:
                raise ConflictError(f"{path} was changed while it was read", subject=path, hint=_CHANGED)


def _identity(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class KeptBytes:
    """Stretches of shards that lie one after the other in a file."""

    def __init__(self, descriptor: int, stretches: Sequence[Stretch]) -> None:
        self._descriptor = descriptor
        self._starts: dict[str, list[tuple[int, int, int]]] = {}
        at = 0
        for shard, start, end in stretches:
            self._starts.setdefault(shard, []).append((start, end, at))
            at += end - start

    def place(self, shard: str, start: int) -> tuple[int, int]:
        for begin, end, at in self._starts[shard]:
            if begin <= start < end or begin == start == end:
                return self._descriptor, at + start - begin
        raise AssertionError(f"{shard}: byte {start} was not asked for")

    def check(self) -> None:
        """Nobody else writes this file."""


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Stretches in the order of their files, those joined that touch."""
    out: list[Stretch] = []
    for shard, start, end in sorted(stretches):
        if out and out[-1][0] == shard and start <= out[-1][2]:
            out[-1] = (shard, out[-1][1], max(end, out[-1][2]))
        else:
            out.append((shard, start, end))
    return tuple(stretch for stretch in out if stretch[1] < stretch[2])


def kept_size(stretches: Iterable[Stretch]) -> int:
    """Their bytes."""
    return sum(end - start for _, start, end in stretches)


@dataclass(frozen=True, slots=True)
class Kept:
    """The file that holds stretches of a repository, and the note beside it."""

    data: Path
    note: Path

    def drop(self) -> None:
        """Removes both, as far as that can be done: later grafts look for what nobody needs any more."""
        for path in (self.data, self.note, _draft(self.note)):
            with contextlib.suppress(OSError):
                path.unlink()


def _draft(note: Path) -> Path:
    return note.with_suffix(".tmp")


def drop_kept(directory: str) -> None:
    """Removes what has come for grafts on a checkpoint that needs none: one that was made, and killed before this."""
    with contextlib.suppress(OSError):
        for path in (state_folder(Path(os.path.realpath(directory))) / "graft").iterdir():
            path.unlink()


def kept_file(place: Path, source: str, stretches: Sequence[Stretch]) -> Kept:
    """Where stretches of a pinned repository are kept for a checkpoint. Raises WriteError if no folder can be made."""
    folder = state_folder(place) / "graft"
    with writing(folder, _STATE_HINT):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _prune(folder)
    name = hashlib.sha256(json.dumps([source, stretches]).encode()).hexdigest()[:32]
    return Kept(folder / f"{name}.part", folder / f"{name}.json")


def _prune(folder: Path) -> None:
    """Removes what came for a graft that nobody has ended for long."""
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - _KEPT_FOR:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def held(kept: Kept) -> Iterator[int]:
    """The file, open and this process's alone. Raises ConflictError if another graft is filling it."""
    with writing(kept.data, _STATE_HINT):
        descriptor = os.open(kept.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = "another graft of this checkpoint from this base is under way"
                raise ConflictError(message, subject=str(kept.data), hint="Wait for it, then run it again.") from None
        yield descriptor
    finally:
        os.close(descriptor)


def fetched(
    repository: Repository,
    stretches: Sequence[Stretch],
    fronts: Mapping[str, tuple[bytes, int]],
    kept: Kept,
    descriptor: int,
    tell: bulk.Tell | None,
) -> None:
    """Brings stretches of a repository to the disk; goes on where an earlier attempt broke off.

    Raises UnreadableError where the Hub does not give them, WriteError where they cannot be written. What has come so
    far stays for the next attempt.
    """
    jobs = list(_jobs(stretches))
    with writing(kept.data, _STATE_HINT):
        notes = _Notes(kept, descriptor, len(jobs))
        for number, (_, start, end, _) in enumerate(jobs):
            if tell:
                tell(min(notes.done[number], end - start))
        name = str(kept.data)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="mtpfix-graft") as pool:
            run = partial(_fetch, repository, lambda: bulk.Target(descriptor, name, tell), notes)
            waiting = [pool.submit(run, number, job) for number, job in enumerate(jobs)]
            try:
                for job in waiting:
                    job.result()
            except BaseException:
                repository.stop()
                pool.shutdown(cancel_futures=True)
                with contextlib.suppress(OSError):
                    notes.write()
                raise
        notes.write()
        _check_whole(repository, stretches, fronts, descriptor, kept)


def _jobs(stretches: Iterable[Stretch]) -> Iterator[tuple[str, int, int, int]]:
    """Stretches in pieces that are asked for at once, with their places in the file."""
    at = 0
    for shard, start, end in stretches:
        for begin in range(start, end, _LONGEST):
            stop = min(end, begin + _LONGEST)
            yield shard, begin, stop, at
            at += stop - begin


def _fetch(
    repository: Repository,
    new_target: Callable[[], bulk.Target],
    notes: _Notes,
    number: int,
    job: tuple[str, int, int, int],
) -> None:
    shard, start, end, at = job
    target, done = new_target(), notes.done[number]
    for piece in repository.pieces(shard, start + done, end) if start + done < end else ():
        target.put(piece, at + done)
        done += len(piece)
        notes.came(number, done, len(piece))


class _Notes:
    """How far each piece has come. What is noted is on the disk."""

    def __init__(self, kept: Kept, descriptor: int, count: int) -> None:
        self._kept, self._descriptor = kept, descriptor
        self._lock = Lock()
        self._since = 0
        self.done = self._read(count)

    def _read(self, count: int) -> list[int]:
        try:
            done = json.loads(self._kept.note.read_bytes())
            sound = isinstance(done, list) and len(done) == count and all(type(row) is int and row >= 0 for row in done)
        except (OSError, ValueError, RecursionError):
            sound = False
        return done if sound else [0] * count

    def came(self, number: int, done: int, count: int) -> None:
        """Take note of more that has come."""
        with self._lock:
            self.done[number] = done
            self._since += count
            if self._since < _NOTED:
                return
            self._since = 0
            self.write()

    def write(self) -> None:
        """Bring what has come to the disk, then the note of it."""
        done = list(self.done)
        bulk.sync(self._descriptor)
        draft = _draft(self._kept.note)
        draft.write_text(json.dumps(done))
        os.replace(draft, self._kept.note)


def _check_whole(
    repository: Repository,
    stretches: Sequence[Stretch],
    fronts: Mapping[str, tuple[bytes, int]],
    descriptor: int,
    kept: Kept,
) -> None:
    """Holds the data of every file that has come as a whole against the hash that the Hub lists for it."""
    at = 0
    for shard, start, end in stretches:
        front, size = fronts[shard]
        if start == len(front) and end == size and (wanted := repository.sha256_of(shard)):
            found = hashlib.sha256(front)
            for begin in range(0, end - start, bulk.PIECE):
                found.update(os.pread(descriptor, min(bulk.PIECE, end - start - begin), at + begin))
            if found.hexdigest() != wanted:
                kept.drop()
                raise UnreadableError(
                    f"{shard}: what came has another hash than the Hub lists", subject=shard, hint="run it again"
                )
        at += end - start


def require_space(wanted: Mapping[Path, int]) -> None:
    """Raises WriteError where a file system has less room than is needed. `wanted`: folder -> bytes."""
    needed: dict[int, tuple[Path, int]] = {}
    for folder, count in wanted.items():
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        device = os.stat(there).st_dev
        first, so_far = needed.get(device, (there, 0))
        needed[device] = first, so_far + count
    for folder, count in needed.values():
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize
        if free < count:
            raise WriteError(
                f"{folder}: {count} bytes are needed and {free} are free; nothing was changed",
                subject=str(folder),
                hint="Free some space there, then run it again.",
            )
