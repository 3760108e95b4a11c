"""The Hub's HTTP side; `tests/hub/__init__.py` says how to use it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from .faults import Fault, Faults, rate_limited
from .repositories import Content, Discussion, Refused, Repository, content, now

OWNER, WRITER, OTHER, READER = "hf_owner", "hf_writer", "hf_other", "hf_reader"
Query = dict[str, list[str]]
Json = dict[str, Any]
_PAGE = 50
_MODEL = r"(?P<repo>[^/]+/[^/]+)"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True)
class User:
    """Who a token belongs to; role is `read` or `write`."""

    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A request and how it was answered; `sent` are the bytes of the answer's body that went out."""

    method: str
    path: str
    query: Query
    headers: Mapping[str, str]
    status: int
    sent: int
    received: int = 0

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.status} {self.sent}"


@dataclass(frozen=True)
class Limit:
    """So many requests in a sliding window, then 429."""

    requests: int
    seconds: float


class Hub:
    """A Hub and the server in front of it; a context manager that starts and stops it."""

    def __init__(self, port: int = 0) -> None:
        self.repositories: dict[str, Repository] = {}
        self.users: dict[str, User] = {
            OWNER: User("owner", orgs=("org",)),
            WRITER: User("writer"),
            OTHER: User("other"),
            READER: User("reader", role="read"),
        }
        self.calls: list[Call] = []
        self.faults = Faults()
        self.metadata = True
        self.redirects = True
        self.sizes = True
        self.longest: int | None = None
        self.limit: Limit | None = None
        self._recent: deque[float] = deque()
        self._lock = threading.Lock()
        self._servers = [_Server(self, port), _Server(self, 0)]
        self.url, self.cdn = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.002,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def create(
        self, repo_id: str, files: Mapping[str, bytes | Path] | Path, *, private: bool = False, gated: bool = False
    ) -> Repository:
        """A repository with one commit on main, of a folder or of these files."""
        if isinstance(files, Path):
            found = {p.relative_to(files).as_posix(): p for p in sorted(files.rglob("*")) if p.is_file()}
            # A folder may change under a test; small files are taken as they are now.
            files = {name: path.read_bytes() if path.stat().st_size < 1 << 16 else path for name, path in found.items()}
        repo = Repository(repo_id, private=private, gated=gated)
        repo.commit(files, summary="initial commit", author=repo.owner)
        self.repositories[repo_id] = repo
        return repo

    def fault(self, pattern: str, fault: Fault, times: float = 1) -> None:
        """Let the next `times` requests that match go wrong; `times=float("inf")` for all."""
        self.faults.add(pattern, fault, times)

    def count(self, method: str = "", part: str = "") -> int:
        """How many requests, by method and part of the path; without parts, all but the client's own housekeeping."""
        return sum(
            call.method.startswith(method) and part in call.path and "agent-harnesses" not in call.path
            for call in tuple(self.calls)
        )

    @property
    def sent(self) -> int:
        return sum(call.sent for call in tuple(self.calls))

    def forget(self) -> None:
        self.calls.clear()

    def over_limit(self) -> float | None:
        """Seconds to wait where the limit is reached."""
        if self.limit is None:
            return None
        with self._lock:
            moment = time.monotonic()
            while self._recent and self._recent[0] <= moment - self.limit.seconds:
                self._recent.popleft()
            if len(self._recent) >= self.limit.requests:
                return self._recent[0] + self.limit.seconds - moment
            self._recent.append(moment)
            return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, hub: Hub, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.hub = hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error."""
        import sys

        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server
    cut: int | None
    mute: bool

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_HEAD = do_GET

    def _handle(self) -> None:
        self.cut, self.mute, self.answered = None, False, False
        length = int(self.headers.get("Content-Length") or 0)
        self.payload = self.rfile.read(length)
        parts = urlsplit(self.path)
        self.route, self.query = parts.path, parse_qs(parts.query)
        wait = self.hub.over_limit()
        fault = rate_limited(round(wait, 2) + 0.01) if wait is not None else None
        fault = fault or self.hub.faults.take(f"{self.command} {self.path}")
        if fault is None:
            self._respond()
        else:
            fault(self, self._respond)

    def _respond(self) -> None:
        try:
            for method, pattern, act in ROUTES:
                found = re.fullmatch(pattern, self.route)
                if found and self.command in method.split("|"):
                    act(self, **{key: unquote(value or "") for key, value in found.groupdict().items()})
                    return
            raise Refused(404, "", "Sorry, we can't find the page you are looking for.")
        except Refused as error:
            headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
            self.answer(error.status, json.dumps({"error": error.message}).encode(), headers)

    # Answers.

    def answer(self, code: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.stream(code, len(data), [data], {"Content-Type": "application/json; charset=utf-8", **(headers or {})})

    def json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()  # as JavaScript writes it
        more = dict(headers or {})
        if len(data) > 1000 and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data, 5)
            more["Content-Encoding"] = "gzip"
        self.answer(200, data, more)

    def stream(self, code: int, size: int, pieces: Iterable[bytes], headers: Mapping[str, str]) -> None:
        """Send an answer; the call is noted before its last bytes leave, so that a client cannot be faster."""
        if self.mute:
            self._note(code, 0)
            self.hang_up()
            return
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(size))
        self.end_headers()
        sent = 0
        try:
            if self.command != "HEAD":
                for piece in pieces:
                    part = piece if self.cut is None else piece[: max(0, self.cut - sent)]
                    sent += len(part)
                    self.wfile.write(part)
        finally:
            self._note(code, sent)
        if self.cut is not None:
            self.hang_up()

    def _note(self, code: int, sent: int) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        route = unquote(self.route)
        self.hub.calls.append(Call(self.command, route, self.query, headers, code, sent, len(self.payload)))

    def hang_up(self) -> None:
        self.close_connection = True
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # Who asks, and for what.

    def user(self) -> User | None:
        given = self.headers.get("Authorization")
        if given is None:
            return None
        found = self.hub.users.get(given.removeprefix("Bearer "))
        if found is None:
            raise Refused(401, "", "Invalid credentials in Authorization header")
        return found

    def writer(self) -> User:
        found = self.user()
        if found is None:
            raise Refused(401, "", "Invalid username or password.")
        if found.role != "write":
            raise Refused(403, "", "Forbidden: you must use a write token to access to a discussions / PR")
        return found

    def repository(self, repo_id: str, *, content: bool = False) -> Repository:
        """The repository, where the user may see it (or, with `content`, its files)."""
        user, found = self.user(), self.hub.repositories.get(repo_id)
        if found is None or (found.private and not _inside(user, found)):
            raise Refused(401 if user is None else 404, "RepoNotFound", "Repository not found")
        if content and found.gated and not _inside(user, found):
            where = f"Access to model {repo_id} is restricted"
            raise Refused(401 if user is None else 403, "GatedRepo", f"{where} and you are not in the authorized list.")
        return found

    def head(self, repo: Repository, revision: str) -> str:
        try:
            return repo.head(revision)
        except KeyError:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}") from None

    def one(self, key: str, default: str = "") -> str:
        return self.query.get(key, [default])[0]

    def body(self) -> Json:
        value = json.loads(self.payload or b"{}")
        return value if isinstance(value, dict) else {}


def _inside(user: User | None, repo: Repository) -> bool:
    return user is not None and (_owns(user, repo) or user.name in repo.allowed)


def _owns(user: User, repo: Repository) -> bool:
    return repo.owner == user.name or repo.owner in user.orgs


# Reading.


def harnesses(self: Handler) -> None:
    self.json({"standardEnvVars": [], "harnesses": {}})


def whoami(self: Handler) -> None:
    user = self.user()
    if user is None:
        raise Refused(401, "", "Invalid username or password.")
    orgs = [{"type": "org", "name": name, "roleInOrg": "write"} for name in user.orgs]
    token = {"displayName": "test", "role": user.role}
    self.json({"type": "user", "name": user.name, "orgs": orgs, "auth": {"type": "access_token", "accessToken": token}})


def models(self: Handler) -> None:
    """The list of repositories: author, search, limit, full; pages by a Link header."""
    user = self.user()
    found = [
        repo
        for repo in self.hub.repositories.values()
        if self.one("author", repo.owner) == repo.owner
        and self.one("search").lower() in repo.id.lower()
        and (not repo.private or _inside(user, repo))
    ]
    size, start = int(self.one("limit", "1000")), int(self.one("cursor", "0"))
    headers = {}
    if start + size < len(found):
        query = "&".join(f"{k}={quote(v[0])}" for k, v in {**self.query, "cursor": [str(start + size)]}.items())
        headers["Link"] = f'<{self.hub.url}/api/models?{query}>; rel="next"'
    page = found[start : start + size]
    self.json([_info(repo, "main", full=bool(self.one("full")), blobs=False) for repo in page], headers)


def info(self: Handler, repo: str, revision: str = "main") -> None:
    found = self.repository(repo)
    blobs = self.hub.sizes and self.one("blobs").lower() in ("true", "1")
    self.json(_info(found, self.head(found, revision), full=True, blobs=blobs))


def _info(repo: Repository, revision: str, *, full: bool, blobs: bool) -> Json:
    commit = repo.commits[repo.head(revision)]
    value: Json = {
        "_id": commit.oid[:24],
        "id": repo.id,
        "modelId": repo.id,
        "author": repo.owner,
        "private": repo.private,
        "gated": "manual" if repo.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": ["safetensors"],
        "createdAt": commit.date,
        "lastModified": commit.date,
        "sha": commit.oid,
    }
    if full:
        value["siblings"] = [_sibling(path, file, blobs) for path, file in sorted(commit.files.items())]
    return value


def _sibling(path: str, file: Content, blobs: bool) -> Json:
    if not blobs:
        return {"rfilename": path}
    lfs = {"lfs": {"sha256": file.sha256, "size": file.size, "pointerSize": 134}} if file.lfs else {}
    return {"rfilename": path, "size": file.size, "blobId": file.oid, **lfs}


def _entry(path: str, file: Content) -> Json:
    lfs = {"lfs": {"oid": file.sha256, "size": file.size, "pointerSize": 134}} if file.lfs else {}
    return {"type": "file", "oid": file.oid, "size": file.size, "path": path, **lfs}


def tree(self: Handler, repo: str, revision: str, folder: str = "") -> None:
    found = self.repository(repo)
    files = found.files(self.head(found, revision))
    front = f"{folder.strip('/')}/" if folder.strip("/") else ""
    rows: dict[str, Json] = {}
    for path, file in sorted(files.items()):
        if not path.startswith(front):
            continue
        top, _, below = path.removeprefix(front).partition("/")
        if below:
            oid = f"{abs(hash(front + top)) % 16**40:040x}"
            rows[front + top] = {"type": "directory", "oid": oid, "size": 0, "path": front + top}
        if not below or self.one("recursive").lower() in ("true", "1"):
            rows[path] = _entry(path, file)
    if front and not rows:
        raise Refused(404, "EntryNotFound", f"{folder} does not exist on {revision!r}")
    self.json(list(rows.values()))


def paths_info(self: Handler, repo: str, revision: str) -> None:
    found = self.repository(repo)
    files = found.files(self.head(found, revision))
    if "json" in self.headers.get("Content-Type", ""):
        paths = self.body().get("paths", [])
    else:
        paths = parse_qs(self.payload.decode()).get("paths", [])
    self.json([_entry(path, files[path]) for path in paths if path in files])


def refs(self: Handler, repo: str) -> None:
    found = self.repository(repo)
    names = {name: oid for name, oid in found.branches.items() if not name.startswith("refs/")}
    pulls = [p for p in found.pulls if p.is_pull]
    value: Json = {
        "branches": [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": oid} for n, oid in names.items()],
        "tags": [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": oid} for n, oid in found.tags.items()],
        "converts": [],
    }
    if self.one("include_prs"):
        value["pullRequests"] = [
            {"name": str(p.num), "ref": p.ref, "targetCommit": found.branches[p.ref]} for p in pulls
        ]
    self.json(value)


def commits(self: Handler, repo: str, revision: str) -> None:
    found = self.repository(repo)
    self.json(
        [
            {
                "id": commit.oid,
                "title": commit.summary,
                "message": commit.description,
                "authors": [{"user": commit.author}],
                "date": commit.date,
            }
            for commit in found.history(self.head(found, revision))
        ]
    )


def resolve(self: Handler, repo: str, revision: str, path: str) -> None:
    found = self.repository(repo, content=True)
    oid = self.head(found, revision)
    file = found.files(oid).get(path)
    if file is None:
        raise Refused(404, "EntryNotFound", "Entry not found")
    headers = {"X-Repo-Commit": oid, "Accept-Ranges": "bytes", "ETag": f'"{file.etag}"'}
    if file.lfs:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        if self.hub.redirects:
            where = f"{self.hub.cdn}/cdn/{repo}/{oid}/{quote(path)}?Signature=secret"
            self.answer(302, b"", {**headers, "Location": where})
            return
    send_file(self, file, headers)


def cdn(self: Handler, repo: str, revision: str, path: str) -> None:
    """The second origin, reached by a redirect: no user is asked for, and no token may arrive."""
    if self.headers.get("Authorization"):
        raise Refused(400, "", "Only one auth mechanism allowed")
    file = self.hub.repositories[repo].files(revision)[path]
    send_file(self, file, {"Accept-Ranges": "bytes", "ETag": f'"{file.sha256}"'})


def send_file(self: Handler, file: Content, headers: Mapping[str, str]) -> None:
    """The file, or the range that was asked for."""
    span = _RANGE.match(self.headers.get("Range", ""))
    kind = {"Content-Type": "application/octet-stream" if file.lfs else "text/plain; charset=utf-8", **headers}
    if span is None or not (span[1] or span[2]):
        self.stream(200, file.size, file.pieces(0, file.size), kind)
        return
    if span[1]:
        start, end = int(span[1]), min(int(span[2] or file.size), file.size - 1) + 1
    else:
        start, end = max(0, file.size - int(span[2])), file.size
    end = min(end, start + (self.hub.longest or end))
    if start >= file.size or start >= end:
        self.answer(416, b"", {"Content-Range": f"bytes */{file.size}"})
        return
    place = {"Content-Range": f"bytes {start}-{end - 1}/{file.size}"}
    self.stream(206, end - start, file.pieces(start, end), {**kind, **place})


def metadata(self: Handler, repo: str, path: str) -> None:
    """All headers of main at once."""
    found = self.repository(repo, content=True)
    files = found.files("main")
    if not self.hub.metadata or path not in files:
        raise Refused(404, "EntryNotFound", "Entry not found")
    index = json.loads(files[path].read())
    names = sorted(set(index.pop("weight_map", {}).values()))
    if any(name not in files for name in names):
        raise Refused(500, "", "A shard of the index is missing")
    self.json({"index": index, "headers": {name: _header(files[name]) for name in names}})


def _header(file: Content) -> Any:
    length = int.from_bytes(file.read(0, 8), "little")
    return json.loads(file.read(8, 8 + length))


# Writing.


def preupload(self: Handler, repo: str, revision: str) -> None:
    user = self.writer()
    found = self.repository(repo)
    files = found.files(self.head(found, revision))
    _may_commit(self, user, found, revision)
    self.json(
        {
            "commitOid": self.head(found, revision),
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if _is_lfs(file["path"], int(file["size"])) else "regular",
                    "shouldIgnore": False,
                    "oid": files[file["path"]].etag if file["path"] in files else None,
                }
                for file in self.body()["files"]
            ],
        }
    )


def _is_lfs(path: str, size: int) -> bool:
    return content(path, b"").lfs or size > 10 * 1024 * 1024


def _may_commit(self: Handler, user: User, repo: Repository, revision: str) -> None:
    if self.one("create_pr") == "1" or _owns(user, repo):
        return
    if any(p.is_pull and p.ref == revision and p.author == user.name for p in repo.pulls):
        return
    raise Refused(403, "", "You don't have the required rights to commit to this branch: open a pull request instead")


def commit(self: Handler, repo: str, revision: str) -> None:
    user = self.writer()
    found = self.repository(repo)
    header, changes = _commit_lines(self.payload, found, revision)
    with found.lock:
        if revision not in found.branches:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        _may_commit(self, user, found, revision)
        parent = header.get("parentCommit")
        if parent is not None and parent not in found.commits:
            raise Refused(404, "RevisionNotFound", f"Invalid parent commit: {parent}")
        title, text = str(header["summary"]), str(header.get("description") or "")
        url = ""
        if self.one("create_pr") == "1":
            pull = found.open_pr(title, changes, description=text, author=user.name, base=revision, parent=parent)
            oid, url = found.head(pull.ref), f"{self.hub.url}/{repo}/discussions/{pull.num}"
        else:
            if parent is not None and parent != found.branches[revision]:
                raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
            oid = found.commit(changes, branch=revision, summary=title, description=text, author=user.name)
    value = {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "hookOutput": ""}
    self.json(value | ({"pullRequestUrl": url} if url else {}))


def _commit_lines(raw: bytes, repo: Repository, revision: str) -> tuple[Json, dict[str, bytes | Path | None]]:
    lines = [json.loads(line) for line in raw.splitlines() if line.strip()]
    if not lines or lines[0].get("key") != "header" or not lines[0]["value"].get("summary"):
        raise Refused(400, "", "The commit needs a header with a summary")
    changes: dict[str, bytes | Path | None] = {}
    for line in lines[1:]:
        path = line["value"]["path"]
        if line["key"] == "file":
            changes[path] = base64.b64decode(line["value"]["content"])
        elif line["key"] == "deletedFile":
            changes[path] = None
        elif line["key"] == "deletedFolder":
            changes |= dict.fromkeys(name for name in repo.files(revision) if name.startswith(path))
        else:
            raise Refused(501, "", f"{line['key']} is not served here")
    if not changes:
        raise Refused(400, "", "Nothing to commit")
    return lines[0]["value"], changes


def validate_yaml(self: Handler) -> None:
    self.json({"errors": [], "warnings": []})


def discussions(self: Handler, repo: str) -> None:
    self.user()
    found = self.repository(repo)
    rows = [pull for pull in reversed(found.pulls) if all(_matches(self, pull))]
    start = int(self.one("p", "0")) * _PAGE
    page = [_discussion(found, pull) for pull in rows[start : start + _PAGE]]
    self.json({"discussions": page, "count": len(rows), "start": start})


def _matches(self: Handler, pull: Discussion) -> Iterator[bool]:
    kind, state = self.one("type", "all"), self.one("status", "all")
    yield kind == "all" or (kind == "pull_request") == pull.is_pull
    yield state == "all" or (state == "open") == (pull.status in ("open", "draft"))
    yield self.one("author", pull.author) == pull.author


def _discussion(repo: Repository, pull: Discussion) -> Json:
    return {
        "num": pull.num,
        "title": pull.title,
        "author": {"name": pull.author, "type": "user"},
        "createdAt": pull.created,
        "status": pull.status,
        "repo": {"name": repo.id, "type": "model"},
        "isPullRequest": pull.is_pull,
        "numComments": sum(event["type"] == "comment" for event in pull.events),
    }


def discussion(self: Handler, repo: str, num: str) -> None:
    found = self.repository(repo)
    pull = found.discussion(int(num))
    value = {**_discussion(found, pull), "events": pull.events}
    if pull.is_pull:
        base = f"refs/heads/{pull.base}"
        value["changes"] = {"base": base} | ({"mergeCommitId": pull.merge_commit} if pull.merge_commit else {})
        value["filesWithConflicts"] = found.conflicts(pull)
        if self.one("diff"):
            value["diff"] = found.diff(pull)
    self.json(value)


def discuss(self: Handler, repo: str) -> None:
    user = self.writer()
    found = self.repository(repo)
    asked = self.body()
    if len(str(asked.get("title", ""))) < 3:
        raise Refused(400, "", "The title is too short")
    base, state = ("main", "draft") if asked.get("pullRequest") else (None, "open")
    pull = found.discuss(asked["title"], asked.get("description", ""), user.name, base=base, status=state)
    self.json({"num": pull.num, "pullRequest": pull.is_pull})


def change(self: Handler, repo: str, num: str, what: str) -> None:
    """A comment, another title or status, a merge."""
    user = self.writer()
    found = self.repository(repo)
    asked = self.body()
    with found.lock:
        pull = found.discussion(int(num))
        if what != "comment" and user.name != pull.author and not _owns(user, found):
            raise Refused(403, "", "You are not the author of this discussion")
        self.json(_CHANGES[what](found, pull, user, asked))


def _comment(_repo: Repository, pull: Discussion, user: User, asked: Json) -> Json:
    return {"newMessage": pull.comment(user.name, asked["comment"])}


def _title(_repo: Repository, pull: Discussion, user: User, asked: Json) -> Json:
    old, pull.title = pull.title, asked["title"]
    return {"newTitle": pull.add("title-change", user.name, {"from": old, "to": pull.title})}


def _status(_repo: Repository, pull: Discussion, user: User, asked: Json) -> Json:
    if asked.get("comment"):
        pull.comment(user.name, asked["comment"])
    pull.status = asked["status"]
    return {"newStatus": pull.add("status-change", user.name, {"status": pull.status})}


def _merge(repo: Repository, pull: Discussion, user: User, _asked: Json) -> Json:
    if not _owns(user, repo):
        raise Refused(403, "", "Only the owner can merge")
    return {"mergeCommitId": repo.merge(pull, user.name)}


_CHANGES: Mapping[str, Callable[[Repository, Discussion, User, Json], Json]] = {
    "comment": _comment,
    "title": _title,
    "status": _status,
    "merge": _merge,
}


def edit(self: Handler, repo: str, num: str, comment: str, what: str) -> None:
    """A comment rewritten (`edit`) or hidden (`hide`)."""
    user = self.writer()
    found = self.repository(repo)
    with found.lock:
        pull = found.discussion(int(num))
        event = next((event for event in pull.events if event["id"] == comment), None)
        if event is None:
            raise Refused(404, "", "Comment not found")
        if event["author"]["name"] != user.name:
            raise Refused(403, "", "You are not the author of this comment")
        data = event["data"]
        if what == "edit":
            text = self.body()["content"]
            data["history"].append(dict(data["latest"]))
            data["latest"] = {**data["latest"], "raw": text, "html": text, "updatedAt": now()}
            data["edited"] = True
        else:
            data["hidden"] = True
        self.json({"updatedComment": event})


_REPO = f"/api/models/{_MODEL}"
_REV = r"(?P<revision>[^/]+|refs/(?:pr/\d+|heads/[^/]+))"
ROUTES: tuple[tuple[str, str, Callable[..., None]], ...] = (
    ("GET", "/api/agent-harnesses", harnesses),
    ("GET", "/api/whoami-v2", whoami),
    ("GET", "/api/models", models),
    ("POST", "/api/validate-yaml", validate_yaml),
    ("GET", _REPO, info),
    ("GET", f"{_REPO}/revision/{_REV}", info),
    ("GET", f"{_REPO}/tree/{_REV}(?P<folder>/.*)?", tree),
    ("POST", f"{_REPO}/paths-info/{_REV}", paths_info),
    ("GET", f"{_REPO}/refs", refs),
    ("GET", f"{_REPO}/commits/{_REV}", commits),
    ("GET", f"{_REPO}/safetensors-metadata/(?P<path>.+)", metadata),
    ("POST", f"{_REPO}/preupload/{_REV}", preupload),
    ("POST", f"{_REPO}/commit/{_REV}", commit),
    ("GET", f"{_REPO}/discussions", discussions),
    ("POST", f"{_REPO}/discussions", discuss),
    ("GET", rf"{_REPO}/discussions/(?P<num>\d+)", discussion),
    ("POST", rf"{_REPO}/discussions/(?P<num>\d+)/(?P<what>comment|title|status|merge)", change),
    ("POST", rf"{_REPO}/discussions/(?P<num>\d+)/comment/(?P<comment>[0-9a-f]+)/(?P<what>edit|hide)", edit),
    ("GET|HEAD", f"/{_MODEL}/resolve/{_REV}/(?P<path>.+)", resolve),
    ("GET|HEAD", rf"/cdn/{_MODEL}/(?P<revision>[0-9a-f]+)/(?P<path>.+)", cdn),
)
