"""A checkpoint on the Hub: its JSON files and headers, never its weights.

One request pins the commit and lists the files with their sizes and hashes; everything else is read at that commit.
Of a shard only the front is asked for, as long as its header should be: the index tells the names that it holds. On
main the Hub offers the headers of all shards at once, which is used where it answers and main has not moved since.
What was read before is taken from a cache by the hashes of the list.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any
from urllib.parse import quote

from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.cache import Cache
from mtpfix.checkpoint.headers import (
    ALIGNED,
    LENGTH_BYTES,
    MAX_ALL_BYTES,
    MAX_HEADER_BYTES,
    broken,
    header_length,
)
from mtpfix.checkpoint.http import MAX_VALUES, MAX_WIDE_BYTES, Answer, Session, value_of
from mtpfix.checkpoint.index import INDEX, SUFFIX, WEIGHT_MAP, index_name, shard_names
from mtpfix.checkpoint.jsonfiles import CONFIG, MAX_JSON_BYTES, NAMES, most_bytes
from mtpfix.checkpoint.jsonfiles import MAX_ALL_BYTES as MAX_ALL_JSON
from mtpfix.checkpoint.reading import HeaderRow, read_checkpoint
from mtpfix.checkpoint.room import Room
from mtpfix.errors import UnreadableError
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Checkpoint, Source
from mtpfix.names import MAX_NAME

MAIN = "main"
WORKERS = 16
MAX_LIST_BYTES = 64 * 1024 * 1024
MAX_SHARDS = 10_000
MAX_ANSWER = 3 << 25  # of them in one answer
_MAX_SIZE = 1 << 60
_MOST_PIECES = 20  # that a header comes in
GUESS = 1 << 17  # bytes asked of a shard that no index describes: a header of 1,000 tensors
_SHARE = 32  # but no more than this part of a small one, since what comes after the header are weights
_LEAST = 1 << 10
_ENTRY = 64  # of a tensor in a header, but for its name and two offsets: 46, its dtype and its shape
_SPARE = 256
_RETOLD = "as the endpoint tells it: "  # before the cache's key of a header that is not the file's to the byte
_SHA256 = 64  # digits; a blob's own hash has 40
_SHA = re.compile(r"[0-9A-Za-z]{6,64}")
_HEADERS = re.compile(r'"headers"[ \t\r\n]*:[ \t\r\n]*\{')
_MEMBER = re.compile(r'[ \t\r\n]*,?[ \t\r\n]*"([^"\\\x00-\x1f]+)"[ \t\r\n]*:[ \t\r\n]*')
_LAST = "}}"
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as the Hub lists it. `key` names its content; "" where the Hub does not say."""

    name: str
    size: int | None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit and its files, each with the hash of its content, or "" where the Hub does not say."""

    commit: str
    files: Mapping[str, str]


def tree(commit: str, files: Iterable[Listed]) -> Tree:
    """The tree of a commit by its list of files."""
    return Tree(commit, {file.name: file.key for file in files})


def read_hub(source: Source, access: Access) -> Checkpoint:
    """The checkpoint in a repository; its source's revision is the commit that was read.

    Raises UnreadableError where the repository or a file in it cannot be read.
    """
    with Repository(source, access) as files:
        checkpoint = read_checkpoint(files.source, files)
        files.keep()
    return checkpoint


def pinned(session: Session, repo: str, revision: str) -> tuple[str, tuple[Listed, ...]]:
    """The commit that a revision names now, and its files. Raises UnreadableError."""
    value = _repository_info(session, repo, revision, {"blobs": "true"})
    listed = value.get("siblings")
    files = [_listed(item) for item in listed] if isinstance(listed, list) else []
    return value["sha"], tuple(_told_apart([file for file in files if file is not None]))


def _repository_info(session: Session, repo: str, revision: str, query: Mapping[str, str]) -> dict[str, Any]:
    answer = session.get(f"/api/models/{repo}/revision/{quote(revision, safe='')}", query=query, limit=MAX_LIST_BYTES)
    value = value_of(answer.data, repo)
    sha = value.get("sha") if isinstance(value, dict) else None
    if not isinstance(sha, str) or not _SHA.fullmatch(sha):
        raise UnreadableError(f"{repo}: the Hub's answer names no commit", subject=repo, hint="check HF_ENDPOINT")
    assert isinstance(value, dict)
    return value


class Repository:
    """The files of a repository at one commit."""

    def __init__(self, source: Source, access: Access, *, exact: bool = False) -> None:
        """`exact`: headers to the byte, which the endpoint for all of them does not give."""
        self._id = source.id
        self._on_main = source.revision in (None, MAIN)
        self._traffic = access.traffic
        self._stay = access.stay
        self._room = Room(MAX_ALL_BYTES, source.id, "its headers")
        self._json_room = Room(MAX_ALL_JSON, source.id, "its JSON files")
        self._cache = Cache()
        self._fresh: dict[str, tuple[bytes, ...]] = {}
        self._exact = exact
        self._session = Session(access, source.id)
        self._sha, files = pinned(self._session, source.id, source.revision or MAIN)
        self._files = {file.name: file for file in files}
        self.source = Source("hub", source.id, self._sha)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="mtpfix-hub")
        self._json: dict[str, Future[bytes]] = {}

    def __enter__(self) -> Repository:
        top = self.names()
        if CONFIG in top:  # all are needed: they are asked for together
            for name in (*NAMES, index_name(shard_names(top))):
                if name in top:
                    self._json[name] = self._pool.submit(self._read_json, name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()
        self._pool.shutdown(cancel_futures=True)

    @property
    def tree(self) -> Tree:
        """The commit that is read, and its files."""
        return tree(self._sha, self._files.values())

    def names(self) -> list[str]:
        return sorted(name for name in self._files if "/" not in name)

    def has(self, name: str) -> bool:
        return name in self._files

    def json_bytes(self, name: str) -> bytes:
        if name not in self._json:
            self._json[name] = self._pool.submit(self._read_json, name)
        return self._json[name].result()

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        if len(names) > MAX_SHARDS:
            raise self._fault(f"{len(names)} *.safetensors are above the limit of {MAX_SHARDS}")
        self._traffic.add(wanted=len(names))
        known: dict[str, tuple[bytes, int]] = {}
        missing = [name for name in names if not any(map(self._cache.has, self._header_keys(name)))]
        most = len(missing) > 1 and 2 * len(missing) >= len(names)
        if most and self._on_main and not self._exact and INDEX in self._files:
            known = self._all_at_once(missing)
            missing = [name for name in missing if name not in known]
        lengths = self._predicted(missing) if missing else {}
        jobs = {name: self._pool.submit(self._header, name, lengths.get(name) or self._guess(name)) for name in missing}
        for name in names:
            if name in jobs:
                header, size = jobs.pop(name).result()
            elif name in known:
                header, size = known.pop(name)
            else:
                header, size = self._cached(name) or self._header(name, self._guess(name))
            self._traffic.add(files=1)
            yield name, header, size

    def pieces(self, shard: str, start: int, end: int) -> Iterator[bytes]:
        """Bytes [start, end) of a shard, as they come. Raises UnreadableError."""
        return self._session.pieces(self._path(shard), start, end)

    def sha256_of(self, shard: str) -> str:
        """The SHA-256 that the Hub lists for a file that it stores as a large one; "" for any other."""
        key = self._files[shard].key
        return key if len(key) == _SHA256 else ""

    def stop(self) -> None:
        """No request is sent or repeated from now on."""
        self._session.close()

    def keep(self) -> None:
        """Put what was read into the cache: called once all of it has proved readable."""
        fresh, self._fresh = self._fresh, {}
        for key, pieces in fresh.items():
            self._cache.put(key, pieces)
        if fresh:
            self._cache.prune()

    def _path(self, name: str) -> str:
        return f"/{self._id}/resolve/{self._sha}/{quote(name)}"

    def _fault(self, what: str, hint: str = "look at what wrote it") -> UnreadableError:
        return UnreadableError(f"{self._id}: {what}", subject=self._id, hint=hint)

    # JSON files.

    def _read_json(self, name: str) -> bytes:
        file = self._files[name]
        self._traffic.add(wanted=1)
        key = next(filter(self._cache.has, (self._key(file), self._place(file))), "")
        data = self._kept(file, key) if key else None
        if data is None:
            data = self._asked(file)
            true = file.key in (git_oid(data), hashlib.sha256(data).hexdigest())
            self._fresh[self._key(file) if true else self._place(file)] = (data,)
        self._traffic.add(files=1)
        return data

    def _kept(self, file: Listed, key: str) -> bytes | None:
        """A JSON file as it was read before."""
        if self._stay:
            self._stay.grow(MAX_JSON_BYTES if file.size is None else file.size)
        found = self._cache.get(key, MAX_JSON_BYTES)
        if found is None:
            return None
        self._json_room.take(len(found[1]))
        return found[1]

    def _asked(self, file: Listed) -> bytes:
        """A JSON file as the Hub gives it: not larger than it is listed, nor than such a file may be."""
        most = most_bytes(file.name)
        if (file.size or 0) > most:
            raise self._fault(f"{file.name}: {file.size} bytes are above the limit of {most} for JSON")
        if file.size is None:
            data = self._session.get(self._path(file.name), limit=most).data
            self._json_room.take(len(data))
            return data
        self._json_room.take(file.size)
        if self._stay:
            self._stay.grow(file.size)
        return self._session.get(self._path(file.name), limit=file.size, counted=True).data

    def _key(self, file: Listed) -> str:
        """Where the cache keeps it: by content, else by commit and name."""
        return f"{file.key} {file.size}" if file.key else self._place(file)

    def _place(self, file: Listed) -> str:
        return f"{self._session.hub}/{self._id}@{self._sha}/{file.name}"

    # Headers.

    def _cached(self, name: str) -> tuple[bytes, int] | None:
        """A header read before, with the size of its file."""
        for key in self._header_keys(name):
            found = self._cache.get(key, MAX_HEADER_BYTES, len(_numbers(0, 0)), self._hold_kept)
            if found is not None:
                return found[1], int.from_bytes(found[0][:LENGTH_BYTES], "little")
        return None

    def _header_keys(self, name: str) -> tuple[str, ...]:
        """Where the cache may keep a header."""
        key = self._header_key(name)
        return (key,) if self._exact else (key, _RETOLD + key)

    def _header_key(self, name: str) -> str:
        """Of this Hub's: that a header is the one of a hash only the Hub can say, and another one may lie."""
        return f"{self._session.hub} {self._key(self._files[name])}"

    def _keep_header(self, name: str, header: bytes, size: int, prefix: str = "") -> None:
        self._fresh[prefix + self._header_key(name)] = _numbers(size, len(header)), header

    def _hold_kept(self, numbers: bytes) -> None:
        """As much as a header has that was kept behind these numbers."""
        self._hold(int.from_bytes(numbers[LENGTH_BYTES:], "little"))

    def _header(self, name: str, length: int) -> tuple[bytes, int]:
        """One shard's header: the front of the file, and what is missing of it where the front was too short."""
        file = self._files[name]
        if file.size is not None and file.size < LENGTH_BYTES:
            raise broken(name, f"byte 0: {file.size} bytes are too few for a header length")
        asked = length if file.size is None else min(length, file.size)
        self._hold(asked)
        front = self._front(file, 0, asked)
        size = front.size if file.size is None else file.size
        if size is None:
            raise self._fault(f"{name}: the Hub does not say how large it is")
        end = LENGTH_BYTES + header_length(front.data[:LENGTH_BYTES], size, name)
        self._hold(end - asked)
        header = self._whole(file, front.data[LENGTH_BYTES:end], end)
        self._keep_header(name, header, size)
        return header, size

    def _whole(self, file: Listed, header: bytes, end: int) -> bytes:
        """A header that ends at a byte of its file, of which the first ones are there."""
        for _ in range(_MOST_PIECES):
            at = LENGTH_BYTES + len(header)
            if at == end:
                return header
            header = self._front(file, at, end, header).data
            if LENGTH_BYTES + len(header) == at:
                raise broken(file.name, f"byte {at}: the file ends inside its header")
        raise self._fault(f"{file.name}: its header comes in more than {_MOST_PIECES} pieces", "check HF_ENDPOINT")

    def _hold(self, count: int) -> None:
        """So many more bytes of headers will be held, or less. Raises UnreadableError where that is too much."""
        if count < 0:
            self._room.give(-count)
            return
        self._room.take(count)
        if self._stay:
            self._stay.grow(count)

    def _guess(self, name: str) -> int:
        size = self._files[name].size
        return GUESS // 4 if size is None else min(GUESS, max(_LEAST, size // _SHARE))

    def _front(self, file: Listed, start: int, end: int, after: bytes = b"") -> Answer:
        answer = self._session.get(self._path(file.name), span=(start, end), limit=end, counted=True, after=after)
        if file.size is not None and answer.size is not None and answer.size != file.size:
            raise broken(file.name, f"the Hub lists {file.size} bytes and holds {answer.size}")
        return answer

    def _predicted(self, missing: Sequence[str]) -> dict[str, int]:
        """How many bytes each shard's header should take with what stands before it, by the index."""
        if INDEX not in self._files:
            return {}
        try:
            weight_map = json.loads(self.json_bytes(INDEX))[WEIGHT_MAP]
            pairs = weight_map.items()
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return {}  # the reader will say what is wrong with it
        wanted = set(missing)
        lengths: dict[str, int] = {}
        entry = {name: _ENTRY + 2 * len(str(self._files[name].size or 10**10)) for name in missing}
        for tensor, shard in pairs:
            if isinstance(shard, str) and shard in wanted:
                lengths[shard] = lengths.get(shard, _SPARE) + len(tensor) + entry[shard]
        return lengths

    def _all_at_once(self, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        """The headers that the Hub gives in one answer; {} where it does not, or where main is not what was pinned."""
        path = f"/api/models/{self._id}/safetensors-metadata/{INDEX}"
        try:
            answer = self._session.get(path, limit=MAX_ANSWER, attempts=2)
            commit = answer.headers.get("x-repo-commit")
            if (commit or _repository_info(self._session, self._id, MAIN, {})["sha"]) != self._sha:
                return {}
        except UnreadableError:
            return {}
        wanted, found = set(names), {}
        try:
            for name, header, text in _headers_of(answer.data):
                if name in wanted:
                    found[name] = _fitted(self._files[name], header, text)
        except (ValueError, RecursionError):
            return {}
        fitting = {name: pair for name, pair in found.items() if pair}
        for name, pair in fitting.items():
            self._keep_header(name, *pair, _RETOLD)
        return fitting


def _numbers(size: int, length: int) -> bytes:
    """What stands before a header that is kept: the size of its file, and its own."""
    return size.to_bytes(LENGTH_BYTES, "little") + length.to_bytes(LENGTH_BYTES, "little")


def _headers_of(data: bytes) -> Iterator[tuple[str, Any, str]]:
    """Each shard in the answer for all, with its header and the text of that; one at a time, since all are large.

    Raises ValueError or RecursionError, at the end where the answer is no JSON with `headers`, or a name is escaped;
    before that for a header of more values than any has.
    """
    if len(data) > MAX_WIDE_BYTES and not data.isascii():
        raise ValueError
    text = data.decode()
    begin = _HEADERS.search(text)
    at = begin.end() if begin else len(text)
    while member := _MEMBER.match(text, at):
        header, at = _header_at(text, member.end())
        yield member[1], header, text[member.end() : at]
    # What is left without them says whether they stood where they should.
    front = begin.end() if begin else 0
    _check_room(text, 0, front)
    _check_room(text, at, len(text))
    rest = json.loads(text[:front] + text[at:]) if begin else None
    if not isinstance(rest, dict) or rest.get("headers") != {}:
        raise ValueError


def _header_at(text: str, begin: int) -> tuple[Any, int]:
    """The header that begins at a place of an answer, and where it ends. Raises ValueError or RecursionError.

    It ends with the first two brackets, unless a text in its metadata holds such: then twice as much is tried.
    """
    decode, stop = json.JSONDecoder().raw_decode, begin
    while True:
        end = text.find(_LAST, stop)
        stop = end + len(_LAST) if end >= 0 else len(text)
        _check_room(text, begin, stop)
        try:
            header, length = decode(text[begin:stop])
        except ValueError:
            if stop == len(text):
                raise
            stop += stop - begin
        else:
            return header, begin + length


def _check_room(text: str, begin: int, end: int) -> None:
    """Raises ValueError for a part of an answer of more values than one header, or the index, has."""
    if sum(text.count(sign, begin, end) for sign in ",[{") > MAX_VALUES:
        raise ValueError


def _fitted(file: Listed, header: Any, text: str) -> tuple[bytes, int] | None:
    """The header as a file of the listed size must hold it; None where it cannot be that file's.

    Its length follows from where its data ends. The library writes it without blanks, but fills it up with spaces to a
    multiple of eight.
    """
    if not isinstance(header, dict):
        return None
    try:
        data = int(max((cell["data_offsets"][1] for name, cell in header.items() if name != "__metadata__"), default=0))
        compact = json.dumps(header, separators=(",", ":"), ensure_ascii=False) if '": ' in text else text
        raw = compact.encode()
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    size = LENGTH_BYTES + len(raw) + -len(raw) % ALIGNED + data if file.size is None else file.size
    length = size - LENGTH_BYTES - data
    return (raw.ljust(length), size) if 0 <= length - len(raw) < ALIGNED and size < _MAX_SIZE else None


def _listed(item: Any) -> Listed | None:
    """A file of the list; None for what is none, would lead out of the repository, or has a name without end."""
    name = item.get("rfilename") if isinstance(item, dict) else None
    if not isinstance(name, str) or len(name) > MAX_NAME or any("\ud800" <= letter <= "\udfff" for letter in name):
        return None
    if any(step in ("", ".", "..") for step in name.split("/")):
        return None
    size, blob, lfs = item.get("size"), item.get("blobId"), item.get("lfs")
    if isinstance(lfs, dict):
        blob = lfs.get("sha256") or lfs.get("oid")  # the list of a folder calls it otherwise
        size = lfs.get("size") if size is None else size
    known = type(size) is int and 0 <= size < _MAX_SIZE
    hashed = known and isinstance(blob, str) and _DIGEST.fullmatch(blob)
    return Listed(name, size if known else None, blob if hashed else "")


def _told_apart(files: Sequence[Listed]) -> Iterator[Listed]:
    """The files, without the hash where shards share one: it may be a Hub's that does not hash."""
    shared = Counter(file.key for file in files if file.name.endswith(SUFFIX))
    return (replace(file, key="") if shared[file.key] > 1 else file for file in files)


def git_oid(data: bytes) -> str:
    """The hash by which git, and the list of files, know a small file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
