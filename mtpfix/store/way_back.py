"""The way back from what is there to what was, also where a file was edited since."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from mtpfix.checkpoint.stand import JOURNAL
from mtpfix.errors import ConflictError, UnreadableError
from mtpfix.frozen import replace
from mtpfix.merging import taken_back
from mtpfix.output.text import listed
from mtpfix.store.files import bytes_of, drop, is_in, mode_of, write_new, writing
from mtpfix.store.records import STATE_HINT, state_folder
from mtpfix.store.states import Change, Content, UndoRecord

Way = Literal["exact", "keep-edits", "force"]
_EDITED_HINT = "`mtpfix undo {place} --keep-edits` takes back only what mtpfix did; with --dry-run it shows the diff."
_FORCE_HINT = (
    "`mtpfix undo {place} --force` makes it what it was before mtpfix and keeps what is there now in {folder}; with "
    "--dry-run it shows the diff."
)
_LARGE_HINT = "Put back the file that mtpfix wrote, then run it again; or download the checkpoint again."


def way_back(place: Path, record: UndoRecord, way: Way) -> tuple[Change, ...]:
    """From what is there to what was, the last change first."""
    edited = [row for row in record.changes if not (is_in(place, row.name, row.new) or is_in(place, row.name, row.old))]
    if edited:
        _require_way(place, record, edited, way)
    rows = (
        _resolved(place, row, way) if row in edited else Change(row.name, row.new, row.old)
        for row in reversed(record.changes)
        if row in edited or not is_in(place, row.name, row.old)
    )
    return tuple(row for row in rows if row.old != row.new)  # of an edited file all may be taken back already


def _require_way(place: Path, record: UndoRecord, edited: Sequence[Change], way: Way) -> None:
    """Refuses where the way does not lead back; says which does."""
    large = [row.name for row in edited if not _is_json(row)]
    names = listed([row.name for row in edited])
    if way == "exact" or large:
        since = record.time.replace("T", " ").replace("+00:00", " UTC")
        raise ConflictError(
            f"{place}: {listed(large) or names} changed since mtpfix wrote there ({since}); nothing was taken back",
            subject=str(place),
            hint=_LARGE_HINT if large else _EDITED_HINT.format(place=shlex.quote(str(place))),
        )


def _resolved(place: Path, change: Change, way: Way) -> Change:
    """The way back of a JSON file that was changed since."""
    now = _present(place, change.name)
    if way == "force":
        return Change(change.name, now, change.old)
    if not isinstance(now, Content) or not isinstance(change.old, Content) or not isinstance(change.new, Content):
        raise _no_merge(place, change.name, "it is gone" if now is None else "it is a file that mtpfix made")
    try:
        merged = taken_back(change.name, change.old.data, change.new.data, now.data)
    except UnreadableError as error:
        raise _no_merge(place, change.name, str(error)) from error
    if merged.conflicts:
        raise _no_merge(place, change.name, f"it was edited where mtpfix did: {', '.join(merged.conflicts)}")
    return Change(change.name, now, now if merged.data == now.data else Content(merged.data, now.mode))


def _no_merge(place: Path, name: str, why: str) -> ConflictError:
    return ConflictError(
        f"{place / name}: {why}; nothing was taken back",
        subject=str(place / name),
        hint=_FORCE_HINT.format(place=shlex.quote(str(place)), folder=state_folder(place)),
    )


def _present(place: Path, name: str) -> Content | None:
    """A JSON file as it is now."""
    data = bytes_of(place, name)
    if data is None:
        if os.path.lexists(place / name):
            raise _no_merge(place, name, "it is no regular file any more")
        return None
    return Content(data, mode_of(place / name), os.readlink(place / name) if (place / name).is_symlink() else None)


def _is_json(change: Change) -> bool:
    return all(state is None or isinstance(state, Content) for state in (change.old, change.new))


@contextlib.contextmanager
def keeping(place: Path, record: UndoRecord, undone: UndoRecord, way: Way) -> Iterator[UndoRecord]:
    """Keeps, beside the records, the files that are there and that mtpfix did not write, if the way is forced; the
    record that says where. What was kept for an undo that did not come to its end goes."""
    written = {row.name: row.new for row in record.changes}
    paths = {row.name: state_folder(place) / f"kept-{record.path.stem}-{row.name}" for row in undone.changes}
    kept: list[tuple[str, Path]] = []
    try:
        for row in undone.changes:
            with writing(paths[row.name], STATE_HINT):
                drop(paths[row.name])
                if way == "force" and isinstance(row.new, Content) and not is_in(place, row.name, written[row.name]):
                    write_new(paths[row.name], row.new.data, 0o600)
                    kept.append((row.name, paths[row.name]))
        yield replace(undone, kept=tuple(kept))
    except BaseException:
        if record.path.exists() and not os.path.lexists(place / JOURNAL):  # neither done nor to be ended
            with contextlib.suppress(OSError):
                for path in paths.values():
                    drop(path)
        raise
