"""JSON edited as text: outside the entries that an edit names not one byte changes.

A document is scanned once, which checks its grammar and notes where each bracket closes. Only the
containers that an edit reaches are split into entries. An edit then changes a list of entries, not
the text; at the end each touched container says which stretches of the text to exchange. New
separators, line breaks and indentation are copied from the neighbours of the new entry.

What cannot be told afterwards: `[]` and an empty array that holds one line break and some indentation
both become the same lines when an entry is added, and `[]` when it is removed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from mtpfix import patch
from mtpfix.errors import UnreadableError, WriteError
from mtpfix.frozen import NamedTuple
from mtpfix.model import Edit
from mtpfix.splice.document import HINT, Document
from mtpfix.splice.style import Miss

_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)


def splice(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes of a JSON file after RFC 6902 operations, which all name that one file.

    An added object member goes behind its siblings, or before them all or one where the edit says so. A
    pointer to a member that occurs twice means the last one, as it does for every parser; removing it
    removes all of them. Raises UnreadableError if `raw` is not JSON and WriteError if an edit does not fit.
    """
    if not edits:
        return raw
    file = edits[0].file
    if any(edit.file != file for edit in edits):
        raise ValueError("edits of several files")
    bom, encoding, text = _decoded(raw, file)
    document = Document(text, file)
    for edit in edits:
        document = document.edited(edit)
    return bom + document.render().encode(encoding, "surrogatepass")


def stretches(raw: bytes, file: str, pointers: Iterable[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a JSON file, without its byte order mark, and where each pointer's entry starts and ends in it.

    A member of an object starts with its key. A pointer that leads nowhere gives the last entry on its way that is
    there. Raises UnreadableError if `raw` is not JSON.
    """
    text = _decoded(raw, file)[2]
    document = Document(text, file)
    return text, [document.stretch(patch.tokens(pointer)) for pointer in pointers]


class Renamed(NamedTuple):
    """A member that gets another name: where the bytes of its name are, up to its colon, and those of the new one."""

    start: int
    end: int
    colon: int
    new: bytes


def renamed_members(raw: bytes, names: Mapping[str, str], file: str) -> tuple[Renamed, ...]:
    """Where a JSON object has the names of some members that get others, in the order of the text.

    Raises UnreadableError if `raw` is not JSON, WriteError if a member is not there exactly once or the new name is.
    """
    bom, encoding, text = _decoded(raw, file)
    try:
        root = Document(text, file).outermost()
        rows = sorted(root.renaming(old, new) for old, new in names.items())
    except Miss as error:
        raise WriteError(f"{file}: cannot rename: {error}", subject=file, hint=HINT) from error
    out: list[Renamed] = []
    at, done = len(bom), 0
    for start, end, colon, new in rows:
        first, name, gap = (
            len(part.encode(encoding, "surrogatepass")) for part in (text[done:start], text[start:end], text[end:colon])
        )
        out.append(
            Renamed(at + first, at + first + name, at + first + name + gap, new.encode(encoding, "surrogatepass"))
        )
        at, done = at + first + name + gap, colon
    return tuple(out)


def _decoded(raw: bytes, file: str) -> tuple[bytes, str, str]:
    """Byte order mark, encoding and text, told apart as `json.loads` does."""
    bom, encoding = next((row for row in _BOMS if raw.startswith(row[0])), (b"", json.detect_encoding(raw)))
    try:
        return bom, encoding, raw[len(bom) :].decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        message = f"{file} is not {encoding} text: {error.reason} at byte {error.start}"
        raise UnreadableError(message, subject=file, hint="Save the file as UTF-8.") from error
