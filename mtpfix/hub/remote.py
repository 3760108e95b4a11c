"""A repository on the Hub as far as pull requests go: the only code that writes there.

Everything goes through the official client. What it raises becomes an error of ours, without the token in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mtpfix
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.http import Session
from mtpfix.checkpoint.jsonfiles import MAX_JSON_BYTES
from mtpfix.errors import ConflictError, MtpfixError, UnreadableError, UsageError, WriteError
from mtpfix.frozen import dataclass
from mtpfix.hub.describe import marks

if TYPE_CHECKING:
    from huggingface_hub import HfApi

OPEN = frozenset({"open", "draft"})
_FILES = re.compile(r"^(?:diff --git a/(?P<old>.+?) b/.+|\+\+\+ b/(?P<new>.+?))\s*$", re.MULTILINE)
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
    """

    listed: Listed
    fingerprints: tuple[str, ...]
    files: tuple[str, ...]
    authors: tuple[str, ...]

    @property
    def num(self) -> int:
        return self.listed.num

    @property
    def open(self) -> bool:
        return self.listed.status in OPEN

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit and its files, each with the hash of its content."""

    commit: str
    files: Mapping[str, str]


def token_or_refusal(token: str | None) -> str:
    """The token to write with: this one, or the stored one. Raises UsageError where there is none."""
    from huggingface_hub import get_token

    found = token or get_token()
    if not found:
        raise UsageError("opening a pull request needs a token, and there is none", subject="token", hint=_LOGIN)
    return found


class Remote:
    """A model repository, with a token or without."""

    def __init__(self, repo: str, token: str | None = None) -> None:
        from huggingface_hub import HfApi

        self.repo = repo
        self._token = token
        self._api: HfApi = HfApi(
            endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None,
            token=token or False,
            library_name="mtpfix",
            library_version=mtpfix.__version__,
        )

    def me(self) -> str:
        """The name of the token's owner. Raises UsageError for a token that is invalid or may only read."""
        with self._guard("cannot ask who the token belongs to"):
            try:
                found = self._api.whoami()
            except Exception as error:
                if _status(error) == 401:
                    raise UsageError("the Hub does not know the token", subject="token", hint=_LOGIN) from None
                raise
        role = ((found.get("auth") or {}).get("accessToken") or {}).get("role")
        if role == "read":
            raise UsageError("the token may only read", subject="token", hint=_LOGIN)
        return str(found.get("name", ""))

    def pull_requests(self) -> tuple[Listed, ...]:
        """Every pull request, whoever opened it and whatever became of it, oldest first."""
        with self._guard("cannot list the pull requests"):
            found = self._api.get_repo_discussions(self.repo, discussion_type="pull_request", repo_type="model")
            rows = [Listed(one.num, one.title, one.author, one.status, one.url) for one in found]
        return tuple(sorted(rows, key=lambda row: row.num))

    def pull_request(self, listed: Listed | int) -> PullRequest:
        """One of them with its text and the files that it changes. UnreadableError where it is none."""
        num = listed if isinstance(listed, int) else listed.num
        with self._guard(f"cannot read pull request {num}"):
            found = self._api.get_discussion_details(self.repo, num, repo_type="model")
        if not found.is_pull_request:
            raise UnreadableError(f"{self.repo}: discussion {num} is no pull request", subject=self.repo)
        own = [event for event in found.events if event.type == "comment" and event.author == found.author]
        text = [str(getattr(event, "content", "")) for event in own]
        files = dict.fromkeys(match["old"] or match["new"] for match in _FILES.finditer(found.diff or ""))
        return PullRequest(
            Listed(found.num, found.title, found.author, found.status, found.url),
            tuple(one for body in text for one in marks(body)),
            tuple(files),
            tuple(dict.fromkeys(event.author for event in found.events if event.type == "commit")),
        )

    def contents(self, tree: Tree, names: Iterable[str]) -> dict[str, bytes]:
        """These files at one commit; one that is not there is left out. Raises UnreadableError."""
        session = Session(Access(token=self._token), self._api.endpoint, self.repo)
        return {
            name: session.get(f"/{self.repo}/resolve/{tree.commit}/{quote(name)}", limit=MAX_JSON_BYTES).data
            for name in names
            if name in tree.files
        }

    def tree(self, revision: str | None) -> Tree:
        """The commit that a revision names now, and its files. None: the default branch."""
        with self._guard(f"cannot read {revision or 'the repository'}"):
            info = self._api.model_info(self.repo, revision=revision, files_metadata=True)
        files = {one.rfilename: (one.lfs.sha256 if one.lfs else one.blob_id) or "" for one in info.siblings or ()}
        return Tree(str(info.sha), files)

    def open(self, files: Mapping[str, bytes], title: str, body: str, *, branch: str | None, parent: str) -> int:
        """Open a pull request against a branch, with one commit on `parent`; its number.

        Raises LostAnswerError where no answer came.
        """
        info = self._commit(files, title, body, revision=branch, parent=parent, create_pr=True)
        if info.pr_num is None:
            raise WriteError(f"{self.repo}: the Hub made a commit and no pull request", subject=self.repo)
        return int(info.pr_num)

    def push(self, files: Mapping[str, bytes], title: str, body: str, *, ref: str) -> None:
        """Add a commit to a pull request. Raises ConflictError where somebody else is faster."""
        self._commit(files, title, body, revision=ref, parent=self.tree(ref).commit, create_pr=False)

    def _commit(
        self, files: Mapping[str, bytes], title: str, body: str, *, revision: str | None, parent: str, create_pr: bool
    ) -> Any:
        from huggingface_hub import CommitOperationAdd

        with self._guard("cannot commit"):
            return self._api.create_commit(
                self.repo,
                [CommitOperationAdd(name, data) for name, data in files.items()],
                commit_message=title,
                commit_description=body,
                repo_type="model",
                revision=revision,
                create_pr=create_pr,
                parent_commit=parent,
            )

    def comment(self, num: int, text: str) -> None:
        """Add a comment to a pull request."""
        with self._guard(f"cannot comment on pull request {num}"):
            self._api.comment_discussion(self.repo, num, comment=text, repo_type="model")

    def close(self, num: int, why: str) -> None:
        """Close a pull request."""
        with self._guard(f"cannot close pull request {num}"):
            self._api.change_discussion_status(self.repo, num, "closed", comment=why, repo_type="model")

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Errors of the client and the network as errors of ours."""
        try:
            yield
        except MtpfixError:
            raise
        except Exception as error:
            raise self._told(what, error) from None

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
            return UnreadableError(message, subject=self.repo, hint="the Hub limits the rate: wait and run it again")
        if status >= 500 or isinstance(error, (http.HTTPError, OSError)):
            return LostAnswerError(message, subject=self.repo, hint="run it again: a repair is never opened twice")
        if status:
            return WriteError(message, subject=self.repo)
        raise error

    def _scrubbed(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = " ".join(lines[:4]) or type(error).__name__
        return text.replace(self._token, "***") if self._token else text


def _status(error: Exception) -> int:
    """The HTTP status of an error of the client, or 0."""
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)
