"""The journal of a change that is under way, and the names beside the files that it is made by."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, Literal

from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.frozen import dataclass
from mtpfix.store.files import bytes_of, opened, reading
from mtpfix.store.packing import MALFORMED, packed_changes, unpacked_changes
from mtpfix.store.records import RECORD, state_folder
from mtpfix.store.states import Change

_TOKEN = re.compile(r"[0-9a-f]{16}")
_MOST = 1 << 29  # bytes of a journal
_FEW = 1 << 20  # bytes of a journal that is read before it is known to be of this directory
_HEAD = re.compile(
    rb'\{"mtpfix_journal": 1, "inode": ([0-9]{1,20}), "kind": "[a-z]+", "record": "([0-9]{6}-[0-9a-f]{16}\.json)"'
)


@dataclass(frozen=True, slots=True)
class Journal:
    """What is under way: its undo record's file name, the token in the names of its siblings, the files."""

    kind: Literal["apply", "undo"]
    record: str
    token: str
    changes: tuple[Change, ...]


def sibling_of(place: Path, journal: Journal, number: int) -> Path:
    """Where the new contents of a file are until they are put in place."""
    return place / f".mtpfix-{journal.token}-{number}"


def outgoing_of(place: Path, journal: Journal, number: int) -> Path:
    """Where a file that gives way is until the change is done."""
    return place / f".mtpfix-{journal.token}-{number}-old"


def next_journal_of(place: Path, journal: Journal) -> Path:
    """Where a journal is written that takes the place of the first one."""
    return place / f".mtpfix-{journal.token}-journal"


def journal_text(place: Path, journal: Journal) -> bytes:
    """A journal as it is written."""
    value = {
        "mtpfix_journal": 1,
        "inode": os.stat(place).st_ino,
        "kind": journal.kind,
        "record": journal.record,
        "token": journal.token,
        "changes": packed_changes(journal.changes),
    }
    return json.dumps(value).encode()


def read_journal(place: Path) -> Journal | Literal["none", "torn", "foreign"]:
    """The journal in a directory. A torn one was cut short itself, so that nothing came after it."""
    try:
        found = os.lstat(place / JOURNAL)
    except FileNotFoundError:
        return "none"
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
        return "foreign"
    if found.st_size > _FEW and not _begins_here(place):
        return "foreign"  # what somebody else made up is not read, however large
    raw = bytes_of(place, JOURNAL)
    try:
        value = json.loads(raw or b"")
    except (ValueError, RecursionError):
        return "torn"
    try:
        return _trusted(place, value)
    except MALFORMED:
        return "foreign"


def _begins_here(place: Path) -> bool:
    """Whether a journal begins as one of this directory does."""
    with reading(place / JOURNAL), opened(place / JOURNAL, os.O_RDONLY) as descriptor:
        head = _HEAD.match(os.read(descriptor, 1 << 10))
    return head is not None and _is_of(place, int(head[1]), head[2].decode())


def _is_of(place: Path, inode: Any, record: str) -> bool:
    """Whether a journal with this inode and this record was written in a directory, as it is or before it was moved."""
    return inode == os.stat(place).st_ino or os.path.lexists(state_folder(place) / record)


def _trusted(place: Path, value: Any) -> Journal:
    """A journal that was written here; ValueError and the like if it was not."""
    record, token, kind = str(value["record"]), str(value["token"]), value["kind"]
    if not RECORD.fullmatch(record) or not _TOKEN.fullmatch(token) or kind not in ("apply", "undo"):
        raise ValueError("not a journal")
    if not _is_of(place, value["inode"], record):
        raise ValueError("of another directory")
    return Journal(kind, record, token, unpacked_changes(value["changes"]))
