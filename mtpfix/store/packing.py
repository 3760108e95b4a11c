"""Changes as JSON, in which form journals and undo records hold them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from mtpfix.store.states import JSON, SUFFIX, Blob, Change, Content, Head, Piece, Stamp, State, is_plain

_MOST_DATA = 1 << 27  # of what a file has changed in it; a header has 100 MB at most, a JSON file less
MALFORMED = (ValueError, TypeError, KeyError, OverflowError, zlib.error)


def packed_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Changes as values of JSON."""
    return [{"name": row.name, "old": _packed_state(row.old), "new": _packed_state(row.new)} for row in changes]


def _packed_state(state: State) -> dict[str, Any] | None:
    if state is None:
        return None
    if isinstance(state, Blob):
        return {"stamp": state.stamp, "mode": state.mode, "link": state.link, "back": state.back}
    if isinstance(state, Head):
        return {
            "start": state.start,
            "data": _packed_data(state.data),
            "size": state.size,
            "mtime_ns": state.mtime_ns,
        }
    return {"data": _packed_data(state.data), "mode": state.mode, "link": state.link}


def _packed_data(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def unpacked_changes(rows: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """The changes as they were packed; ValueError and the like if they were not."""
    changes = tuple(Change(str(row["name"]), _unpacked_state(row["old"]), _unpacked_state(row["new"])) for row in rows)
    if not changes or not all(_is_sound(change) for change in changes):
        raise ValueError("not the changes of a checkpoint")
    return changes


def _is_sound(change: Change) -> bool:
    """Whether a change is of a file that mtpfix changes."""
    if isinstance(change.old, Head) or isinstance(change.new, Head):
        return _is_sound_overwrite(change.old, change.new) and is_plain(change.name, SUFFIX)
    large = isinstance(change.old, Blob) or isinstance(change.new, Blob)
    small = isinstance(change.old, Content) or isinstance(change.new, Content)
    return large != small and is_plain(change.name, SUFFIX if large else JSON)


def _is_sound_overwrite(old: State, new: State) -> bool:
    """Whether the same bytes of a file change, and they are inside of it."""
    if not isinstance(old, Head) or not isinstance(new, Head):
        return False
    alike = (old.start, len(old.data), old.size) == (new.start, len(new.data), new.size)
    return alike and 0 <= old.start <= old.size - len(old.data)


def _unpacked_data(text: str) -> bytes:
    packed = zlib.decompressobj()
    data = packed.decompress(base64.b64decode(text), _MOST_DATA)
    if not packed.eof:
        raise ValueError("cut short, or too long")
    return data


def _unpacked_state(row: Mapping[str, Any] | None) -> State:
    if row is None:
        return None
    if "start" in row:
        written = row["mtime_ns"]
        data = _unpacked_data(row["data"])
        return Head(int(row["start"]), data, int(row["size"]), None if written is None else int(written))
    link, mode = row["link"], int(row["mode"]) & 0o7777
    link = None if link is None else str(link)
    if "stamp" in row:
        size, time_ns = row["stamp"]
        back = tuple(Piece(bool(saved), int(start), int(end)) for saved, start, end in row["back"])
        return Blob(Stamp(int(size), int(time_ns)), mode, link, back)
    return Content(_unpacked_data(row["data"]), mode, link)
