"""The state folder of a directory, and the undo records in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from pathlib import Path

from mtpfix.errors import UnreadableError, WriteError
from mtpfix.store.files import bytes_of, drop, reading, sync_folder, write_new, writing
from mtpfix.store.packing import MALFORMED, packed_changes, unpacked_changes
from mtpfix.store.states import UndoRecord

RECORD = re.compile(r"([0-9]{6})-[0-9a-f]{16}\.json")
STATE_HINT = "Undo records are kept there. Set XDG_STATE_HOME to a folder outside the checkpoint that can be written."


def state_folder(place: Path) -> Path:
    """Where the undo records of a directory are; WriteError if that is in the directory itself."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    folder = Path(os.path.realpath(base)) / "mtpfix" / "undo"
    if not os.path.isabs(base) or place == folder or place in folder.parents:
        raise WriteError(f"the state folder {folder} cannot be used", subject=str(folder), hint=STATE_HINT)
    return folder / hashlib.sha256(os.fsencode(place)).hexdigest()[:32]


def made_state_folder(place: Path) -> Path:
    """The same folder, which is there now."""
    folder = state_folder(place)
    with writing(folder, STATE_HINT):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        sync_folder(folder.parent)
    return folder


def records_of(place: Path) -> list[Path]:
    """The undo records of a directory, oldest first."""
    folder = state_folder(place)
    with reading(folder):
        try:
            return [folder / name for name in sorted(os.listdir(folder)) if RECORD.fullmatch(name)]
        except FileNotFoundError:
            return []


def next_record(place: Path) -> Path:
    """A file for the next record, in a folder that is there."""
    folder = made_state_folder(place)
    last = [int(path.name[:6]) for path in records_of(place)[-1:]]
    return folder / f"{sum(last) + 1:06d}-{secrets.token_hex(8)}.json"


def write_record(record: UndoRecord) -> None:
    """Writes an undo record, down to the disk."""
    value = {
        "mtpfix_undo": 1,
        "directory": record.directory,
        "time": record.time,
        "changes": packed_changes(record.changes),
    }
    draft = _draft_of(record.path)
    with writing(record.path, STATE_HINT):
        try:
            write_new(draft, json.dumps(value).encode(), 0o600)
            os.replace(draft, record.path)
        finally:
            drop(draft)
        sync_folder(record.path.parent)


def data_of(path: Path) -> Path:
    """Where the bytes are that a record has saved."""
    return path.with_suffix(".data")


def _draft_of(path: Path) -> Path:
    """Where a record is written before it has its name."""
    return path.with_suffix(".tmp")


def drop_record(path: Path) -> None:
    """Removes a record with all that was saved for it."""
    for part in (path, data_of(path), _draft_of(path)):
        drop(part)


def read_record(path: Path) -> UndoRecord:
    """An undo record as it was written. Raises UnreadableError for a damaged one."""
    try:
        value = json.loads(bytes_of(path.parent, path.name) or b"")
        return UndoRecord(str(value["directory"]), path, str(value["time"]), unpacked_changes(value["changes"]))
    except (OSError, RecursionError, *MALFORMED) as error:
        hint = "Without it the change cannot be undone; delete it to undo the one before."
        raise UnreadableError(f"the undo record {path} is damaged", subject=str(path), hint=hint) from error
