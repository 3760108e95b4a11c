"""Many repositories, a few at a time, each of them a row; what is done is kept in a file, so that a killed run goes on.

The state file is JSON Lines: the first line says what is scanned and how, every other one is a finished row. A row is
on the disk before it is given out; a last line that a kill cut off is dropped, and its repository is looked at again.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import IO, Any
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

from mtpfix.analysis import Scope, analyse
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.http import Query, Session, value_of
from mtpfix.checkpoint.hub import read_hub
from mtpfix.checkpoint.room import Room
from mtpfix.checkpoint.source import parse
from mtpfix.errors import WRITE_HINT, ConflictError, MtpfixError, UnreadableError, UsageError, WriteError
from mtpfix.frozen import dataclass, replace
from mtpfix.names import brief
from mtpfix.output import json_v1
from mtpfix.tokens import masked

Row = dict[str, Any]
UNREADABLE = "unreadable"
_VERSION = 1
_UNREAD: Mapping[str, Any] = {"repository": str, "status": str, "error": str, "hint": str}
_READ: Mapping[str, Any] = {
    "repository": str, "status": str, "family": str | None, "format": str | None, "findings": dict, "engines": dict,
    "entries": dict,
}  # fmt: skip
_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 1 << 20  # of `mallopt`
_SWEPT = 50  # repositories, whose values know each other: left to itself Python looks for garbage among them too rarely
_MOST_PAGES = 1_000
_MOST_BYTES = 1 << 24  # of one page, of 1,000 repositories; real ones have 2 MB
_MOST_IN_ALL = 1 << 28
_LONGEST_NAME = 500  # characters; a repository has up to 193
_LONGEST_ROW = 1 << 22  # bytes; one has some hundreds
_MOST_FOUND = 200_000
_NEXT = re.compile(r'<([^<>]{1,4096})>\s*;[^,<]{0,200}?\brel="?next"?')


@dataclass(frozen=True, slots=True)
class Look:
    """How every repository is looked at."""

    access: Access
    engines: tuple[str, ...] = ()
    scope: Scope = "mtp"

    def __call__(self, repository: str) -> Row:
        """The row of one repository; whatever goes wrong with it is a row too."""
        stay = self.access.traffic.stay()
        try:
            return self._row(repository, replace(self.access, revision=None, stay=stay))
        finally:
            if stay.left is None:  # what took much room goes before another one takes it
                gc.collect()
            stay.end()

    def _row(self, repository: str, access: Access) -> Row:
        try:
            source = parse(repository)
            if source.kind != "hub":
                raise UsageError(
                    f"{repository}: no name of a repository", subject=repository, hint="write org/name, one a line"
                )
            checkpoint = read_hub(source, access)
            return {**json_v1.scan_row(repository, analyse(checkpoint, engines=self.engines, scope=self.scope))}
        except MtpfixError as error:
            return failed(repository, str(error), error.hint)
        except Exception as error:  # of one repository among thousands: the others go on
            what = f"unexpected {type(error).__name__}"
            return failed(repository, what, "this is a fault of mtpfix: please report it")


def failed(repository: str, error: str, hint: str) -> Row:
    """The row of a repository that could not be inspected."""
    return {**json_v1.unreadable_row(repository, error, hint)}


def scan(repositories: Iterable[str], look: Callable[[str], Row], *, jobs: int) -> Iterator[Row]:
    """A row for every repository, in the order in which they are done, at most `jobs` at once.

    No more than that are taken from the list in advance. A caller that stops early waits for what has begun only.
    """
    _give_back()
    names = iter(dict.fromkeys(repositories))
    with ThreadPoolExecutor(jobs, thread_name_prefix="mtpfix-scan") as pool:
        finished = 0
        running: set[Future[Row]] = {pool.submit(look, name) for name in islice(names, jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(look, name) for name in islice(names, len(done))}
            yield from (future.result() for future in done)
            finished += len(done)
            if finished >= _SWEPT:
                finished = 0
                gc.collect()


def _give_back() -> None:
    """Let glibc give large blocks back to the system at once, as it does until the first one of up to 32 MB is freed:
    from then on each thread keeps what its largest repository took. Elsewhere nothing happens."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)


# --- what is scanned --------------------------------------------------------------------------------------------------


def listed_on_the_hub(
    access: Access, *, author: str | None = None, search: str | None = None, limit: int | None = None
) -> tuple[str, ...]:
    """The model repositories of an author, or that a search finds, as many as there are or `limit`.

    Raises UnreadableError, also for more than anybody can wait for.
    """
    wanted = {"author": author, "search": search, "limit": None if limit is None else str(limit)}
    what = author or search or ""
    session, room = Session(access, what), Room(_MOST_IN_ALL, what, "its lists of repositories")
    query: Query = {key: value for key, value in wanted.items() if value is not None}
    found: dict[str, None] = {}
    path = "/api/models"
    for _ in range(_MOST_PAGES):
        answer, known = session.get(path, query=query, limit=_MOST_BYTES), len(found)
        room.take(len(answer.data))
        found |= dict.fromkeys(_ids(answer.data, what))
        following = _following(session.hub, answer.headers.get("link", ""))
        if (limit and len(found) >= limit) or following is None or known == len(found):
            break
        if len(found) > _MOST_FOUND:
            raise _endless(what)
        path, query = following
    else:
        raise _endless(what)
    return tuple(islice(found, limit))


def _endless(what: str) -> UnreadableError:
    most = f"{_MOST_FOUND:,} repositories or {_MOST_PAGES:,} pages"
    return UnreadableError(
        f"{what}: the Hub lists more than {most}", subject=what, hint="take the first ones: --limit N"
    )


def _ids(raw: bytes, what: str) -> list[str]:
    found = value_of(raw, what)
    if not isinstance(found, list):
        raise UnreadableError(f"{what}: the Hub's answer is no list of repositories", subject=what, hint="try again")
    ids = [item.get("id") or item.get("modelId") for item in found if isinstance(item, dict)]
    return [brief(name, _LONGEST_NAME) for name in ids if isinstance(name, str)]


def _following(hub: str, link: str) -> tuple[str, Query] | None:
    """Path and query of the next page, which is asked of the same Hub whatever the link says.

    Raises UnreadableError where it leads nowhere.
    """
    found = _NEXT.search(link)
    if found is None:
        return None
    front = urlsplit(hub).path
    try:
        address = urlsplit(urljoin(f"{hub}/api/models", found[1]))
    except ValueError:
        what = f"{hub}: the next page of a list is no address"
        raise UnreadableError(what, subject=hub, hint="check HF_ENDPOINT") from None
    return unquote(address.path.removeprefix(front)), parse_qsl(address.query)


def listed_in(text: str) -> tuple[str, ...]:
    """The repositories that a text names, one a line; `#` begins a remark."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


# --- state ------------------------------------------------------------------------------------------------------------


class State:
    """A file of finished rows; a context manager that holds it open, and locked, for this run alone.

    rows  by repository, the last one of each
    """

    def __init__(self, path: str, about: Mapping[str, Any]) -> None:
        self._path = path
        self._head = {"scan": {"version": _VERSION, **about}}
        self.rows: dict[str, Row] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> State:
        try:
            if os.path.exists(self._path) and not os.path.isfile(self._path):  # a pipe would be read for ever
                raise _no_state(self._path)
            self._file = open(self._path, "a+b")
            _lock(self._file, self._path)
            self._take_in(self._file)
        except OSError as error:
            self._close()
            raise WriteError(f"cannot keep the state: {error.strerror}", subject=self._path, hint=WRITE_HINT) from error
        except MtpfixError:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def done(self, *, again: bool = False) -> frozenset[str]:
        """The repositories that have a row; with `again` only those that could be inspected."""
        return frozenset(name for name, row in self.rows.items() if not again or row["status"] != UNREADABLE)

    def add(self, row: Row) -> None:
        """Put a row on the disk."""
        self._write(row)
        self.rows[row["repository"]] = row

    def _take_in(self, file: IO[bytes]) -> None:
        """The rows of an earlier run; what was cut off is dropped. UsageError for another scan's file."""
        file.seek(0)
        begun, whole, line = False, 0, b""
        for line in _lines(file, self._path):
            if line.endswith(b"\n"):
                whole += len(line)
                begun = self._taken(line, begun=begun)
        cut = b"" if line.endswith(b"\n") else line
        if not begun and not _line(self._head).startswith(cut):  # nothing that was cut off: somebody's file
            raise _no_state(self._path)
        if cut or not begun:
            file.truncate(whole if begun else 0)
        if not begun:
            self._write(self._head)

    def _taken(self, line: bytes, *, begun: bool) -> bool:
        """Take in a line that is whole; whether the first one has been."""
        if line == b"\n":
            return begun
        document = _document(line, self._path)
        if not begun and document != json.loads(masked(json.dumps(self._head))):
            raise UsageError(
                "this is the state of another scan", subject=self._path, hint="name another file, or remove this one"
            )
        if begun and not _is_row(document):
            raise _no_state(self._path)
        if begun:
            self.rows[document["repository"]] = document
        return True

    def _write(self, document: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            self._file.write(_line(document))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise WriteError(f"cannot keep the state: {error.strerror}", subject=self._path, hint=WRITE_HINT) from error

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what could not be written was said before
                self._file.close()


def _lock(file: IO[bytes], path: str) -> None:
    """Nobody else may add to the file meanwhile; where the system has no such locks, that is the user's care."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConflictError("another scan is at work on this file", subject=path, hint="wait for it") from None
    except OSError:
        return


def _line(document: Mapping[str, Any]) -> bytes:
    return masked(json.dumps(document, ensure_ascii=True)).encode() + b"\n"


def _no_state(path: str) -> UsageError:
    return UsageError("this is no state of a scan", subject=path, hint="name another file")


def _lines(file: IO[bytes], path: str) -> Iterator[bytes]:
    """The lines of a state, one at a time: somebody's file may have one of any length."""
    while line := file.readline(_LONGEST_ROW + 1):
        if len(line) > _LONGEST_ROW:
            raise _no_state(path)
        yield line


def _document(line: bytes, path: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _no_state(path)
    return found


def _is_row(row: Row) -> bool:
    """Whether a row of a state is one that a scan has written, so that whoever shows it finds what it looks for."""
    kinds = _UNREAD if row.get("status") == UNREADABLE else _READ
    if any(not isinstance(row.get(key), kind) for key, kind in kinds.items()):
        return False
    engines, counts = row.get("engines", {}), {**row.get("findings", {}), **row.get("entries", {})}
    return all(isinstance(parts, dict) for parts in engines.values()) and {*map(type, counts.values())} <= {int}


# --- summary ----------------------------------------------------------------------------------------------------------


def tally(rows: Sequence[Row]) -> dict[str, int]:
    """How many repositories have which status, the best first."""
    counts = Counter(str(row["status"]) for row in rows)
    order = ("clean", "fixable", "partly-fixable", "not-fixable", UNREADABLE)
    return {status: counts[status] for status in order if counts[status]}
