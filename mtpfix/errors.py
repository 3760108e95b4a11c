"""Errors that reach a user: each names its subject and says what to do."""

from __future__ import annotations


class MtpfixError(Exception):
    """Base of all errors mtpfix raises on purpose.

    subject  the file, module or option at fault
    hint     what to do about it; may be empty
    """

    exit_code = 3

    def __init__(self, message: str, *, subject: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.hint = hint


class UnreadableError(MtpfixError):
    """The checkpoint cannot be inspected: missing, malformed, truncated, not a checkpoint."""


class UsageError(MtpfixError):
    """An option or argument that makes no sense."""

    exit_code = 2


class WriteError(MtpfixError):
    """A repair could not be written; nothing was changed."""


class ConflictError(WriteError):
    """A file changed between reading and writing; nothing was changed."""
