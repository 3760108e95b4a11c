"""What a Hub keeps: repositories, their commits, branches, pull requests. No HTTP here."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

LFS_BYTES = 10 * 1024 * 1024
LFS_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt")
_SAMPLE = 1 << 20
_START = datetime(2026, 1, 1, tzinfo=UTC)
_ticks = itertools.count()

Upload = Mapping[str, "bytes | Path | None"]


class Refused(Exception):
    """The Hub says no: an HTTP status, its error code, and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def now() -> str:
    """The next moment of a clock that ticks once a look."""
    return (_START + timedelta(seconds=next(_ticks))).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@dataclass(frozen=True)
class Content:
    """A file's content: bytes, or a file on disk that is read in pieces (it may be a hole of many gigabytes)."""

    data: bytes | Path
    lfs: bool

    @cached_property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to `end`, without the last."""
        if isinstance(self.data, bytes):
            return self.data[start:end]
        with self.data.open("rb") as file:
            file.seek(start)
            return file.read((self.size if end is None else end) - start)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, _SAMPLE):
            yield self.read(at, min(at + _SAMPLE, end))

    @cached_property
    def sha256(self) -> str:
        """Of the whole, or of size, front and back where it is large (nobody downloads it to compare)."""
        if self.size <= 64 * _SAMPLE:
            return hashlib.sha256(self.read()).hexdigest()
        ends = self.read(0, _SAMPLE) + self.read(self.size - _SAMPLE)
        return hashlib.sha256(str(self.size).encode() + ends).hexdigest()

    @cached_property
    def oid(self) -> str:
        """The git blob's: of the content, or of its LFS pointer."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n"
        raw = pointer.encode() if self.lfs else self.read()
        return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


def content(path: str, data: bytes | Path) -> Content:
    size = len(data) if isinstance(data, bytes) else data.stat().st_size
    return Content(data, path.endswith(LFS_SUFFIXES) or size > LFS_BYTES)


@dataclass(frozen=True)
class Commit:
    """A state of all files."""

    oid: str
    parent: str | None
    files: Mapping[str, Content]
    summary: str
    description: str
    author: str
    date: str


@dataclass
class Discussion:
    """A discussion, or a pull request: then `base` is the branch it goes to. `events` are as the API gives them."""

    num: int
    title: str
    author: str
    status: str
    base: str | None
    created: str
    events: list[dict[str, Any]] = field(default_factory=list)
    merge_commit: str | None = None

    @property
    def is_pull(self) -> bool:
        return self.base is not None

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"

    @property
    def description(self) -> str:
        """The first comment as it reads now."""
        return next((str(e["data"]["latest"]["raw"]) for e in self.events if e["type"] == "comment"), "")

    def add(self, kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
        number = f"{self.num:08x}{len(self.events):08x}".rjust(24, "0")
        event = {"id": number, "type": kind, "createdAt": now(), "author": {"name": author}, "data": data}
        self.events.append(event)
        return event

    def comment(self, author: str, text: str) -> dict[str, Any]:
        latest = {"raw": text, "html": text, "updatedAt": now(), "author": {"name": author}}
        return self.add("comment", author, {"edited": False, "hidden": False, "latest": latest, "history": []})


@dataclass
class Repository:
    """A model repository. Every method that changes it holds its lock."""

    id: str
    private: bool = False
    gated: bool = False
    allowed: set[str] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: list[Discussion] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def owner(self) -> str:
        return self.id.split("/")[0]

    def head(self, revision: str = "main") -> str:
        """The commit that a branch, tag, `refs/pr/N` or oid names; KeyError where none does."""
        for table in (self.branches, self.tags):
            if revision in table:
                return table[revision]
        return self.commits[revision].oid

    def files(self, revision: str = "main") -> Mapping[str, Content]:
        return self.commits[self.head(revision)].files

    def tag(self, name: str, revision: str = "main") -> None:
        self.tags[name] = self.head(revision)

    def history(self, revision: str) -> list[Commit]:
        """Newest first."""
        found: list[Commit] = []
        oid: str | None = self.head(revision)
        while oid is not None:
            found.append(self.commits[oid])
            oid = self.commits[oid].parent
        return found

    def commit(
        self,
        changes: Upload,
        *,
        branch: str = "main",
        summary: str = "commit",
        description: str = "",
        author: str = "owner",
        parent: str | None = None,
    ) -> str:
        """Put a commit on a branch (a new branch starts at main); the oid. `parent`: where else it starts."""
        with self.lock:
            start = parent or self.branches.get(branch) or self.branches.get("main")
            files = dict(self.commits[start].files) if start else {}
            for path, data in changes.items():
                if data is None:
                    files.pop(path)
                else:
                    files[path] = content(path, data)
            seed = f"{self.id} {start} {summary} {len(self.commits)} {sorted((p, c.oid) for p, c in files.items())}"
            oid = hashlib.sha1(seed.encode()).hexdigest()
            self.commits[oid] = Commit(oid, start, files, summary, description, author, now())
            self.branches[branch] = oid
            for pull in self.pulls:
                if pull.is_pull and pull.ref == branch:
                    pull.add("commit", author, {"subject": summary, "oid": oid})
            return oid

    def discussion(self, num: int) -> Discussion:
        found = next((pull for pull in self.pulls if pull.num == num), None)
        if found is None:
            raise Refused(404, "EntryNotFound", f"Discussion {num} not found")
        return found

    def discuss(
        self, title: str, text: str, author: str, *, base: str | None = None, status: str = "open"
    ) -> Discussion:
        with self.lock:
            found = Discussion(len(self.pulls) + 1, title, author, status, base, now())
            found.comment(author, text)
            self.pulls.append(found)
            if base is not None:
                self.branches[found.ref] = self.head(base)
            return found

    def open_pr(
        self,
        title: str,
        changes: Upload,
        *,
        description: str = "",
        author: str = "someone",
        base: str = "main",
        parent: str | None = None,
    ) -> Discussion:
        """A pull request with one commit, on `parent` or else on the head of `base`."""
        with self.lock:
            pull = self.discuss(title, description, author, base=base)
            start = parent or self.head(base)
            self.commit(changes, branch=pull.ref, summary=title, description=description, author=author, parent=start)
            return pull

    def conflicts(self, pull: Discussion) -> list[str]:
        """Files that both the base and the pull request changed since they parted."""
        base = self.history(pull.base or "main")
        known = {commit.oid: commit for commit in base}
        root = next((commit for commit in self.history(pull.ref) if commit.oid in known), None)
        if root is None:
            return []
        ours, theirs = self.files(pull.base or "main"), self.files(pull.ref)
        return sorted(
            path
            for path in {*ours, *theirs}
            if ours.get(path) != root.files.get(path)
            and theirs.get(path) != root.files.get(path)
            and ours.get(path) != theirs.get(path)
        )

    def merge(self, pull: Discussion, author: str) -> str:
        with self.lock:
            if self.conflicts(pull):
                raise Refused(409, "", "The pull request has conflicts")
            base = pull.base or "main"
            known = {commit.oid for commit in self.history(base)}
            root = next(commit for commit in self.history(pull.ref) if commit.oid in known)
            theirs = self.files(pull.ref)
            changes = {path: c.data for path, c in theirs.items() if root.files.get(path) != c}
            gone = dict.fromkeys(path for path in root.files if path not in theirs)
            oid = self.commit({**changes, **gone}, branch=base, summary=f"{pull.title} (#{pull.num})", author=author)
            pull.status, pull.merge_commit = "merged", oid
            pull.add("status-change", author, {"status": "merged"})
            return oid

    def diff(self, pull: Discussion) -> str:
        """As `git diff` prints it, from where the pull request parted to what it is now."""
        known = {commit.oid for commit in self.history(pull.base or "main")}
        old = next((c.files for c in self.history(pull.ref) if c.oid in known), {})
        new = self.files(pull.ref)
        out: list[str] = []
        for path in sorted(path for path in {*old, *new} if old.get(path) != new.get(path)):
            out.append(f"diff --git a/{path} b/{path}\n")
            before, after = _lines(old.get(path)), _lines(new.get(path))
            out += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
        return "".join(out)


def _lines(found: Content | None) -> list[str]:
    if found is None or found.lfs:
        return []
    text = found.read().decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([text.split("\n")[-1]] if text[-1:] != "\n" else [])
