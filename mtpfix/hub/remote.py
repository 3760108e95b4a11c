"""A repository on the Hub as far as pull requests go: the only code that writes there.

What is written goes through the official client, what is read through its session. What they raise becomes an error of
ours, without the token in it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mtpfix
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.http import (
    DEADLINE,
    MAX_WAIT,
    NotInTime,
    Session,
    StatusError,
    in_time,
    metered,
    require_client,
    value_of,
    wait_of,
)
from mtpfix.checkpoint.hub import MAIN, Tree, pinned, tree
from mtpfix.checkpoint.jsonfiles import MAX_JSON_BYTES, Together, most_bytes
from mtpfix.checkpoint.room import Room
from mtpfix.errors import ConflictError, MtpfixError, UnreadableError, UsageError, WriteError
from mtpfix.frozen import dataclass
from mtpfix.hub.describe import marks
from mtpfix.names import brief
from mtpfix.tokens import masked

if TYPE_CHECKING:
    from huggingface_hub import HfApi

OPEN = frozenset({"open", "draft"})
_FILES = re.compile(
    r"^(?:diff --git a/(.{1,4096}?) b/.*|\+\+\+ b/(.{1,4096})|(?:rename|copy) (?:from|to) (.{1,4096}))$", re.MULTILINE
)
_MOST_FILES = 100_000  # that one changes
_MOST_PAGES, _MOST_ROWS = 200, 10_000
_MOST_BYTES = 1 << 22  # of a page of 50 pull requests
_MOST_IN_ALL = 1 << 27  # of all lists, and of all pull requests, that are read
_LONGEST = 1_000  # characters of a title or a name
_MOST_LIMITED = 20  # times that a write is sent again because the Hub limits the rate
_LATER = "the Hub limits the rate: wait and run it again"
_TWICE = "run it again: a repair is never opened twice"
_ODD = "check HF_ENDPOINT"
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN, with a token that may write"


class LostAnswerError(WriteError):
    """Something was sent and no answer came: it may have happened."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A pull request as the list shows it."""

    num: int
    title: str
    author: str
    status: str
    url: str


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request with its text.

    fingerprints  those that its author put into it
    files         what it changes
    authors       who committed to it
    base          the branch that it goes to; "" where the Hub does not say
    """

    listed: Listed
    fingerprints: tuple[str, ...]
    files: tuple[str, ...]
    authors: tuple[str, ...]
    base: str = ""

    @property
    def num(self) -> int:
        return self.listed.num

    @property
    def open(self) -> bool:
        return self.listed.status in OPEN

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"


def token_or_refusal(token: str | None) -> str:
    """The token to write with: this one, or the stored one. Raises UsageError where there is none."""
    require_client()
    from huggingface_hub import get_token

    found = token or get_token()
    if not found:
        raise UsageError("opening a pull request needs a token, and there is none", subject="token", hint=_LOGIN)
    return found


class Remote:
    """A model repository, with a token or without."""

    def __init__(self, repo: str, access: Access | None = None) -> None:
        self.repo = repo
        self._access = access or Access()
        self._session = Session(self._access, repo)
        self._room = Room(_MOST_IN_ALL, repo, "its pull requests")

    def me(self) -> str:
        """The name of the token's owner; "" where the Hub does not tell. WriteError for a token that may only read."""
        try:
            found = self._json("/api/whoami-v2")
        except StatusError as error:
            if error.status in (404, 405, 501):
                return ""
            raise
        if _at(found, "auth", "accessToken", "role") == "read":
            raise WriteError("the token may only read", subject="token", hint=_LOGIN)
        return _text(found.get("name"))

    def pull_requests(self) -> tuple[Listed, ...]:
        """Every pull request, whoever opened it and whatever became of it, oldest first."""
        rows: dict[int, Listed | None] = {}
        for page in range(_MOST_PAGES):
            asked = {"type": "pull_request", "p": str(page)}
            found = self._json(f"/api/models/{self.repo}/discussions", asked, limit=_MOST_BYTES)
            new = [item for item in _list(found.get("discussions")) if isinstance(item, dict)]
            known = len(rows)
            rows |= {_number(item.get("num")): self._listed(item) for item in new}
            if not known < len(rows) < _MOST_ROWS:
                break
            if _number(found.get("start")) + len(new) >= _number(found.get("count"), 1 << 60):
                break
        return tuple(sorted((row for row in rows.values() if row is not None), key=lambda row: row.num))

    def _listed(self, item: Mapping[str, Any]) -> Listed | None:
        """A row of the list; None where it is no pull request."""
        num = item.get("num")
        if type(num) is not int or num < 1 or item.get("isPullRequest") is False:
            return None
        url = f"{self._session.hub}/{self.repo}/discussions/{num}"
        author = _by(item) or "deleted"
        title, status = (brief(_text(item.get(key)), _LONGEST) for key in ("title", "status"))
        return Listed(num, title, author, status, url)

    def pull_request(self, listed: Listed | int) -> PullRequest:
        """One of them with its text and the files that it changes. UnreadableError where it is none."""
        num = listed if isinstance(listed, int) else listed.num
        found = self._json(f"/api/models/{self.repo}/discussions/{num}", {"diff": "1"}, what=f"pull request {num}")
        row = self._listed({**found, "num": num}) if found.get("num", num) == num else None
        if row is None:
            raise UnreadableError(
                f"{self.repo}: discussion {num} is no pull request",
                subject=self.repo,
                hint="give the number of a pull request",
            )
        events = [event for event in _list(found.get("events")) if isinstance(event, dict)]
        own = [event for event in events if event.get("type") == "comment" and _by(event) in (row.author, "")]
        return PullRequest(
            row,
            tuple(mark for event in own for mark in marks(_text(_at(event, "data", "latest", "raw")))),
            self._changed(_text(found.get("diff"))),
            tuple(dict.fromkeys(_by(event) for event in events if event.get("type") == "commit" and _by(event))),
            _text(_at(found, "changes", "base")).removeprefix("refs/heads/"),
        )

    def _changed(self, diff: str) -> tuple[str, ...]:
        """The files that a diff names, old names and new ones. Raises UnreadableError for more than any has."""
        found: dict[str, None] = {}
        for match in _FILES.finditer(diff):
            found[(match[1] or match[2] or match[3]).rstrip()] = None
            if len(found) > _MOST_FILES:
                raise UnreadableError(
                    f"{self.repo}: a pull request changes more than {_MOST_FILES:,} files",
                    subject=self.repo,
                    hint="nobody can look at as many: close it",
                )
        return tuple(found)

    def contents(self, tree: Tree, names: Iterable[str]) -> dict[str, bytes]:
        """These files at one commit; one that is not there is left out. Raises UnreadableError."""
        together = Together()
        found = {}
        for name in names:
            if name in tree.files:
                path = f"/{self.repo}/resolve/{tree.commit}/{quote(name)}"
                found[name] = together.add(name, self._session.get(path, limit=most_bytes(name)).data)
        return found

    def tree(self, revision: str | None) -> Tree:
        """The commit that a revision names now, and its files. None: the default branch."""
        commit, files = pinned(self._session, self.repo, revision or MAIN)
        return tree(commit, files)

    def _json(
        self, path: str, query: Mapping[str, str] | None = None, *, what: str = "", limit: int = MAX_JSON_BYTES
    ) -> dict[str, Any]:
        """The object that the Hub answers with; `what` is what is missing where it says 404."""
        try:
            data = self._session.get(path, query=query or {}, limit=limit).data
            self._room.take(len(data))
            value = value_of(data, self.repo)
        except StatusError as error:
            if what and error.status == 404:
                raise UnreadableError(
                    f"{self.repo}: no {what} that can be seen", subject=self.repo, hint="check the name and the number"
                ) from None
            raise
        if not isinstance(value, dict):
            raise UnreadableError(f"{self.repo}: the Hub's answer is no JSON object", subject=self.repo, hint=_ODD)
        return value

    def open(self, files: Mapping[str, bytes], title: str, body: str, *, branch: str | None, parent: str) -> int:
        """Open a pull request against a branch, with one commit on `parent`; its number.

        Raises LostAnswerError where no answer came.
        """
        info = self._commit(files, title, body, revision=branch, parent=parent, create_pr=True)
        if info.pr_num is None:
            raise WriteError(
                f"{self.repo}: the Hub made a commit and no pull request",
                subject=self.repo,
                hint="look at the history of the repository before you try again",
            )
        return int(info.pr_num)

    def push(self, files: Mapping[str, bytes], title: str, body: str, *, ref: str) -> None:
        """Add a commit to a pull request. Raises ConflictError where somebody else is faster."""
        self._commit(files, title, body, revision=ref, parent=self.tree(ref).commit, create_pr=False)

    def _commit(
        self, files: Mapping[str, bytes], title: str, body: str, *, revision: str | None, parent: str, create_pr: bool
    ) -> Any:
        from huggingface_hub import CommitOperationAdd

        return self._sent(
            "cannot commit",
            "create_commit",
            operations=[CommitOperationAdd(name, data) for name, data in files.items()],
            commit_message=masked(title),
            commit_description=masked(body),
            revision=revision,
            create_pr=create_pr,
            parent_commit=parent,
        )

    def comment(self, num: int, text: str) -> None:
        """Add a comment to a pull request."""
        self._sent(
            f"cannot comment on pull request {num}", "comment_discussion", discussion_num=num, comment=masked(text)
        )

    def close(self, num: int, why: str) -> None:
        """Close a pull request."""
        what = f"cannot close pull request {num}"
        self._sent(what, "change_discussion_status", discussion_num=num, new_status="closed", comment=masked(why))

    def _sent(self, what: str, function: str, **values: Any) -> Any:
        """What a function of the client returns that writes; again where the Hub says when to come again."""
        for _ in range(_MOST_LIMITED):
            time.sleep(max(0.0, self._access.traffic.pause))
            try:
                return in_time(partial(self._send, function, values), DEADLINE)
            except NotInTime:
                odd = f"{self.repo}: {what}: no answer came in {DEADLINE:.0f} seconds"
                raise LostAnswerError(odd, subject=self.repo, hint=_TWICE) from None
            except Exception as error:
                wait = wait_of(error.response.headers) if _status(error) == 429 else None  # type: ignore[attr-defined]
                if wait is None or wait > MAX_WAIT:
                    raise self._told(what, error) from None
                self._access.traffic.hold(wait)  # a request that is refused so has not acted
        raise UnreadableError(f"{self.repo}: {what}: the Hub's rate limit", subject=self.repo, hint=_LATER)

    def _send(self, function: str, values: Mapping[str, Any]) -> Any:
        with metered(self._access):
            return getattr(self._client(), function)(self.repo, repo_type="model", **values)

    def _client(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(
            endpoint=self._access.hub,
            token=self._access.token or False,
            library_name="mtpfix",
            library_version=mtpfix.__version__,
        )

    def _told(self, what: str, error: Exception) -> MtpfixError:
        from huggingface_hub import get_session

        http: Any = sys.modules[type(get_session()).__module__.partition(".")[0]]  # httpx or httpx2
        status = _status(error)
        message = f"{self.repo}: {what}: {self._scrubbed(error)}"
        if status == 412:
            return ConflictError(
                f"{self.repo}: the revision moved meanwhile", subject=self.repo, hint="run the command again"
            )
        if status in (401, 404):
            return UnreadableError(message, subject=self.repo, hint="check the name and the revision; " + _LOGIN)
        if status == 403:
            return WriteError(message, subject=self.repo, hint="the token has no right to do this in this repository")
        if status == 429:
            return UnreadableError(message, subject=self.repo, hint=_LATER)
        if status >= 500 or isinstance(error, (http.HTTPError, OSError)):
            return LostAnswerError(message, subject=self.repo, hint=_TWICE)
        if status:
            return WriteError(
                message, subject=self.repo, hint="the Hub refused it: look at the repository, then run it again"
            )
        if isinstance(error, MtpfixError):
            return LostAnswerError(f"{self.repo}: {what}: {error}", subject=self.repo, hint=error.hint)
        # The client takes an answer apart without a look at it: what it raises says that it was none of the Hub's.
        odd = f"{self.repo}: {what}: the Hub's answer is none that its client knows ({type(error).__name__})"
        return LostAnswerError(odd, subject=self.repo, hint=_ODD)

    def _scrubbed(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = (" ".join(lines[:4]) or type(error).__name__).replace(self._access.hub, self._access.address)
        return masked(text)


def _at(value: object, *path: str) -> object:
    """What an answer holds at a place, or None."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _by(event: Mapping[str, Any]) -> str:
    """Who caused an event, or opened a discussion; "" where the Hub does not say."""
    return brief(_text(_at(event, "author", "name")), _LONGEST)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object, other: int = 0) -> int:
    return value if type(value) is int else other


def _status(error: Exception) -> int:
    """The HTTP status of an error of the client, or 0."""
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)
