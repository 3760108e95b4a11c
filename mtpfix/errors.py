"""Errors that reach a user: each names its subject and says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpfix.model import Report


# What to do where the system refuses.
READ_HINT = "check that the path is right and that you may read it"
WRITE_HINT = "check that the folder is there, that you may write in it, and that the disk has room"


class MtpfixError(Exception):
    """Base of all errors mtpfix raises on purpose. Message and hint hold no token, also where Python prints them.

    subject  the file, module or option at fault
    hint     what to do about it
    """

    exit_code = 3

    def __init__(self, message: str, *, subject: str = "", hint: str = "") -> None:
        from mtpfix.tokens import masked  # not for `mtpfix --help`

        super().__init__(masked(message))
        self.subject = subject
        self.hint = masked(hint)
        self._place = ""

    def __str__(self) -> str:
        return self._place + super().__str__()

    def within(self, source: str, joint: str) -> None:
        """Name the checkpoint too, as it was given, where the error names only a file in it."""
        if not self._place and self.subject not in source and not super().__str__().startswith(source):
            from mtpfix.tokens import masked

            self._place = masked(source) + joint


class UnreadableError(MtpfixError):
    """The checkpoint cannot be inspected: missing, malformed, truncated, not a checkpoint."""


class UsageError(MtpfixError):
    """An option or argument that makes no sense."""

    exit_code = 2


class WriteError(MtpfixError):
    """A repair could not be written; nothing was changed."""


class ConflictError(WriteError):
    """A file changed between reading and writing; nothing was changed."""


class RefusedError(MtpfixError):
    """A repair that would not be one: the base does not fit, or an engine would load what comes out wrongly."""

    exit_code = 1


class FindingsError(MtpfixError):
    """Errors remain that nothing safe repairs; `report` and `findings` say which."""

    exit_code = 1

    def __init__(self, report: Report) -> None:
        self.report = report
        self.findings = tuple(finding for finding in report.findings if finding.severity == "error")
        listed = "; ".join(f"{finding.rule}: {finding.message}" for finding in self.findings)
        hints = dict.fromkeys(finding.hint for finding in self.findings if finding.hint)
        super().__init__(listed or report.status, subject=report.source.id, hint=" ".join(hints))
