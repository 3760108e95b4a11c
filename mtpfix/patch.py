"""A patch as a value: RFC 6902 operations built, applied, taken back and printed.

The jsonpatch library does the applying; it is imported only when it is needed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mtpfix import late
from mtpfix.errors import WriteError
from mtpfix.model import Edit

Op = dict[str, Any]

_TOO_DEEP = "No engine needs such a value in a config file; write the file again without it."
_NO_FIT = "Make the patch again from the files as they are."
_MANY = 16
_FLAT = frozenset({str, int, float, bool, type(None)})
_BAD_ESCAPE = late.pattern(r"~(?![01])")


def pointer(*tokens: str | int) -> str:
    """The JSON pointer (RFC 6901) of a path: `pointer("a/b", 0)` is `/a~1b/0`."""
    return "".join("/" + step(str(token)) for token in tokens)


def step(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def tokens(text: str) -> list[str]:
    """The path of a JSON pointer; ValueError if `text` is none."""
    if text and not text.startswith("/"):
        raise ValueError("a JSON pointer starts with a slash")
    if "~" in text and _BAD_ESCAPE.search(text):
        raise ValueError("a tilde in a JSON pointer is written ~0")
    return [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:]]


def put(value: Any, path: Sequence[str], new: Any) -> Any:
    """A copy of an object with another value at the end of a path; what is missing on the way is an object."""
    return {**value, path[0]: put(value.get(path[0], {}), path[1:], new)} if path else new


def ops(edits: Iterable[Edit]) -> dict[str, list[Op]]:
    """The RFC 6902 documents of some edits: file name -> operations in their order."""
    documents: dict[str, list[Op]] = {}
    for edit in edits:
        op: Op = {"op": edit.op, "path": edit.pointer}
        if edit.op != "remove":
            op["value"] = edit.value
        documents.setdefault(edit.file, []).append(op)
    return documents


def apply_value(value: Any, operations: Sequence[Op]) -> Any:
    """A patched copy of `value`; WriteError if an operation does not fit. Neither argument changes."""
    return _patched(_copied(value), operations)


def invert(value: Any, operations: Sequence[Op]) -> list[Op]:
    """The operations that lead from the patched value back to `value`; WriteError if an operation does not fit.

    Every operation is taken back by its own opposite, the last one first, so that what the patch does
    not touch is not touched by the inverse either.
    """
    inverse: list[Op] = []
    state = _copied(value)
    for op in operations:
        inverse.append(_copied(_opposite(state, op)))
        state = _patched(state, [op])
    return inverse[::-1]


def text(operations: Sequence[Op]) -> str:
    """A patch as JSON text, one operation a line: a document that any RFC 6902 tool applies."""
    if not operations:
        return "[]\n"
    lines = ",\n".join("  " + json.dumps(op, ensure_ascii=False) for op in operations)
    return f"[\n{lines}\n]\n"


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value, {id(found): found.copy() for found in _flat_in(value, 3)})
    except RecursionError as error:
        raise WriteError("the patch cannot be applied: a value is nested too deep", hint=_TOO_DEEP) from error


def _flat_in(value: Any, depth: int) -> Iterator[list[str] | dict[str, Any]]:
    """The lists of nothing but texts down to some depth, and tables that hold no other: they are copied as a whole."""
    if type(value) is dict and _FLAT.issuperset(map(type, value.values())):
        yield value
    elif isinstance(value, dict) and depth:
        for held in value.values():
            yield from _flat_in(held, depth - 1)
    elif type(value) is list and len(value) > _MANY and set(map(type, value)) == {str}:
        yield value


def _patched(state: Any, operations: Sequence[Op]) -> Any:
    """`state` itself, changed; the operations are copied, since jsonpatch puts their values into the state."""
    import jsonpatch

    try:
        return jsonpatch.apply_patch(state, _copied(list(operations)), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise WriteError(f"the patch does not fit: {error}", hint=_NO_FIT) from error


def _opposite(state: Any, op: Op) -> Op:
    """What takes back `op` where it is applied to `state`."""
    path = tokens(op["path"])
    parent = _resolve(state, path[:-1])
    if isinstance(parent, list) and op["op"] == "add" and path:
        index = len(parent) if path[-1] == "-" else path[-1]
        return {"op": "remove", "path": pointer(*path[:-1], index)}
    if isinstance(parent, dict) and op["op"] == "add" and path and path[-1] not in parent:
        return {"op": "remove", "path": op["path"]}
    back = "add" if op["op"] == "remove" else "replace"
    return {"op": back, "path": op["path"], "value": _resolve(state, path)}


def _resolve(state: Any, path: Sequence[str]) -> Any:
    """What a path leads to; WriteError if it leads nowhere."""
    import jsonpointer

    try:
        return jsonpointer.JsonPointer.from_parts(path).resolve(state)
    except jsonpointer.JsonPointerException as error:
        raise WriteError(f"the patch does not fit: {error}", hint=_NO_FIT) from error
