"""A repair as a pull request: opened once, whoever asks and however often.

Looked for before anything is sent: an open pull request that holds the repair already, an own one that has become
stale, a closed one. Looked for again afterwards: one that another program opened at the same moment. The lower number
stays. Nothing is sent twice: where no answer comes the list says whether it happened.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mtpfix.analysis import Scope, analyse, repaired
from mtpfix.checkpoint.hub import MAIN, git_oid
from mtpfix.errors import MtpfixError, UsageError, WriteError
from mtpfix.hub.describe import Description, describe
from mtpfix.hub.remote import OPEN, Listed, LostAnswerError, PullRequest, Remote
from mtpfix.model import Checkpoint, Report, Source
from mtpfix.rules import RULES

Kind = Literal["opened", "updated", "already-open", "already-fixed", "refused"]
_MOST_READ = 40  # open pull requests whose text is read, the newest; as many of the closed ones
_LARGER, _MORE = 4, 1 << 16  # times, and bytes, that a file with the repair in another spelling may have more
_NO_BRANCH = re.compile(r"[0-9a-f]{40}|refs/pr/\d+|refs/tags/.+")
_WAITS = (0.2, 0.5, 1.0)  # seconds before the list is asked whether a lost commit happened


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: the checkpoint as it was read, how to analyse it, and how to propose the repair.

    branch   what the pull request is against; None: the default branch
    message  the title, or None for one that says what changes
    force    open one although the same was closed
    """

    checkpoint: Checkpoint
    engines: tuple[str, ...] = ()
    scope: Scope = "mtp"
    unsafe: bool = False
    branch: str | None = None
    message: str | None = None
    force: bool = False

    def report(self, contents: Mapping[str, bytes] | None = None) -> Report:
        """The report of the checkpoint, or of the checkpoint with other contents of some files."""
        checkpoint = repaired(self.checkpoint, contents) if contents else self.checkpoint
        return analyse(checkpoint, engines=self.engines, scope=self.scope, unsafe=self.unsafe)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it.

    after  the report of what the pull request holds, or of the repository where there is none
    """

    kind: Kind
    repository: str
    revision: str
    after: Report
    pull_request: Listed | None = None
    fingerprint: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """The pull request as it would be: the wish, the reports before and after, the text."""

    wish: Wish
    before: Report
    after: Report
    text: Description

    @property
    def files(self) -> Mapping[str, bytes]:
        return self.before.plan.after

    @property
    def title(self) -> str:
        return self.wish.message or self.text.title


def require_branch(source: Source) -> Source:
    """The source. Raises UsageError where no pull request can go to it."""
    if source.kind != "hub":
        raise UsageError(
            "a pull request needs a repository on the Hub",
            subject=source.id,
            hint="write org/name; a directory is repaired without a pull request",
        )
    if source.revision is not None and _NO_BRANCH.fullmatch(source.revision):
        raise UsageError(
            f"{source.id}: {source.revision} is no branch, and a pull request goes to a branch",
            subject=source.id,
            hint="leave the revision out, or name a branch",
        )
    return source


def draft(wish: Wish) -> Draft:
    """The pull request of a checkpoint, not sent; without files where there is nothing to edit."""
    before = wish.report()
    after = wish.report(before.plan.after) if not before.plan.empty else before
    return Draft(wish, before, after, describe(before, after, RULES))


def propose(remote: Remote, wanted: Draft) -> Outcome:
    """Open the pull request, or say why it is not opened. Raises MtpfixError where the Hub does not answer."""
    me = remote.me()
    if wanted.before.plan.empty:
        return nothing(wanted)
    return _Proposal(remote, wanted, me).run()


def nothing(wanted: Draft) -> Outcome:
    """The outcome of a draft without edits."""
    clean = wanted.before.status == "clean"
    safe = "safe " if wanted.before.plan.held_back else ""
    reason = "nothing is wrong" if clean else f"no {safe}edit of the JSON files mends this"
    return _outcome(wanted, "already-fixed" if clean else "refused", reason=reason)


def _outcome(wanted: Draft, kind: Kind, found: Listed | None = None, reason: str = "") -> Outcome:
    source = wanted.before.source
    mark = "" if wanted.before.plan.empty else wanted.text.fingerprint
    after = wanted.after if kind in ("opened", "updated", "already-open") else wanted.before
    return Outcome(kind, source.id, source.revision or "", after, found, mark, reason)


@dataclass
class _Proposal:
    """One run against a repository. `seen`: the numbers of the pull requests that were there before."""

    remote: Remote
    wanted: Draft
    me: str
    sleep: Callable[[float], None] = time.sleep
    seen: set[int] = field(default_factory=set)

    @property
    def mark(self) -> str:
        return self.wanted.text.fingerprint

    def run(self) -> Outcome:
        listed = self.remote.pull_requests()
        self.seen = {row.num for row in listed}
        read = [self.remote.pull_request(row) for row in self._worth_reading(listed)]
        stale: list[PullRequest] = []
        for found in read:
            if not found.open or not self._concerns(found):
                continue
            own = self._own(found)
            if self._holds_repair(found, exactly=own):
                return self._already(found.listed)
            stale += [found] if own else []
        if stale:
            return self._update(stale[0])
        closed = [one.listed for one in read if not one.open and self.mark in one.fingerprints and self._concerns(one)]
        if closed and not self.wanted.wish.force:
            reason = f"the same repair was closed: {closed[-1].url}"
            return _outcome(self.wanted, "refused", closed[-1], reason)
        return self._open()

    def _worth_reading(self, listed: Iterable[Listed]) -> Iterable[Listed]:
        """Open ones, and closed ones, those that look like ours first; whether they are, their text says."""
        rows = list(listed)
        unmerged = [row for row in reversed(rows) if row.status == "closed"]
        unmerged.sort(key=lambda row: row.author != self.me and row.title != self.wanted.title)
        return [*[row for row in rows if row.status in OPEN][-_MOST_READ:], *reversed(unmerged[:_MOST_READ])]

    def _concerns(self, found: PullRequest) -> bool:
        """Whether it goes to the same branch and may hold the repair; where the Hub shows no diff, it may."""
        if found.base and found.base != (self.wanted.wish.branch or MAIN):
            return False
        return bool(found.fingerprints) or not found.files or not self.wanted.files.keys().isdisjoint(found.files)

    def _own(self, found: PullRequest) -> bool:
        """Whether a pull request is this program's alone, so that it may be changed."""
        return found.listed.author == self.me and bool(found.fingerprints) and set(found.authors) <= {self.me}

    def _holds_repair(self, found: PullRequest, *, exactly: bool) -> bool:
        """Whether a pull request says what this one would say, or else leaves nothing of this repair to do."""
        tree = self.remote.tree(found.ref)
        if all(tree.files.get(name) == git_oid(data) for name, data in self.wanted.files.items()):
            return True
        contents = self.remote.contents(tree, self.wanted.files)
        if contents.keys() != self.wanted.files.keys():
            return False
        if any(len(data) > _LARGER * len(self.wanted.files[name]) + _MORE for name, data in contents.items()):
            return False
        if _values(contents) == _values(self.wanted.files):
            return True
        if exactly:
            return False
        try:
            report = self.wanted.wish.report(contents)
        except MtpfixError:
            return False
        return report.plan.empty and _loading(report) >= _loading(self.wanted.after)

    def _already(self, found: Listed) -> Outcome:
        return _outcome(self.wanted, "already-open", found, f"opened by {found.author}")

    def _update(self, found: PullRequest) -> Outcome:
        """Bring an own pull request that has become stale up to date."""
        self.remote.push(self.wanted.files, self.wanted.title, "", ref=found.ref)
        if self.mark not in found.fingerprints:
            self.remote.comment(found.num, f"The repair has changed. {self.wanted.text.body}")
        self._read_back(found.num)
        return _outcome(self.wanted, "updated", found.listed, "it did not fit the branch any more")

    def _open(self) -> Outcome:
        revision = self.wanted.before.source.revision
        assert revision is not None
        try:
            num = self.remote.open(
                self.wanted.files,
                self.wanted.title,
                self.wanted.text.body,
                branch=self.wanted.wish.branch,
                parent=revision,
            )
            mine = {num}
        except LostAnswerError as error:
            mine = self._after_silence(error)
        return self._settle(mine)

    def _after_silence(self, error: LostAnswerError) -> set[int]:
        """The numbers of own new pull requests with this repair; the error again where there is none."""
        for wait in _WAITS:
            self.sleep(wait)
            if mine := {row.num for row in self._new() if row.author == self.me}:
                return mine
        raise error

    def _new(self, known: Iterable[int] = ()) -> list[Listed]:
        """Open pull requests with this repair that were not there at first, the lowest number first."""
        rows = [row for row in self.remote.pull_requests() if row.num not in self.seen and row.status in OPEN]
        return [row for row in rows if row.num in known or self.mark in self.remote.pull_request(row).fingerprints]

    def _settle(self, mine: set[int]) -> Outcome:
        """Of pull requests opened at the same moment the first one stays; then look at what it holds."""
        new = self._new(mine)
        if not new:
            raise WriteError(
                f"{self.remote.repo}: the pull request is not listed", subject=self.remote.repo, hint="look at the Hub"
            )
        first, *rest = new
        for row in rest:
            if row.num in mine:
                self.remote.close(row.num, f"The same repair was opened at the same moment: #{first.num}.")
        if first.num not in mine:
            return self._already(first)
        self._read_back(first.num)
        return _outcome(self.wanted, "opened", first)

    def _read_back(self, num: int) -> None:
        """The Hub must hold what was sent, to the byte; what was sent has been checked."""
        held = self.remote.contents(self.remote.tree(f"refs/pr/{num}"), self.wanted.files)
        if held != dict(self.wanted.files):
            raise WriteError(
                f"{self.remote.repo}: pull request {num} does not hold what was sent",
                subject=self.remote.repo,
                hint="look at it and close it",
            )


def _values(contents: Mapping[str, bytes]) -> dict[str, object]:
    """What the files say; a file that says nothing stands for itself."""
    return {name: _value(raw) for name, raw in contents.items()}


def _value(raw: bytes) -> object:
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return raw


def _loading(report: Report) -> frozenset[tuple[str, str, str]]:
    """Engine, release and part of everything that loads."""
    return frozenset(
        (row.engine, release, row.part) for row in report.engines if row.verdict == "loads" for release in row.releases
    )
