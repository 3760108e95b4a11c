"""A checkpoint's JSON files: bytes to values, with the spot of whatever is wrong. Pure.

Accepted as Python's own parser (which the engines use) accepts it: NaN and Infinity, any line ends, repeated keys
(the last one counts; reported as `duplicate-key`). A UTF-8 byte order mark makes the engines fail; it is reported as
`bom` and read past. Everything else that is no UTF-8 JSON object is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from mtpfix.errors import UnreadableError
from mtpfix.model import JsonFile, Problem
from mtpfix.names import beginning
from mtpfix.patch import step

CONFIG = "config.json"
DESCRIPTION = "quant_model_description.json"

# Files that say how a checkpoint is quantized; all engines read the first.
NAMES = (
    CONFIG,
    "hf_quant_config.json",  # ModelOpt
    "quantization_config.json",  # AutoRound
    "quantize_config.json",  # GPTQ, AWQ
    "quant_config.json",  # AWQ
    "quant_cfg.json",  # ModelOpt for TensorRT-LLM, mixed precision
    DESCRIPTION,  # ModelSlim
)
# The largest of real ones, with a row for each tensor of a trillion parameters, has 280,000 names in 30 MB.
MAX_JSON_BYTES = 64 * 1024 * 1024
MAX_CONFIG_BYTES = 16 * 1024 * 1024  # of a file without a row for each tensor
MAX_WIDE_BYTES = 16 * 1024 * 1024  # of a file that is not ASCII: Python takes up to four bytes for each character of it
MAX_VALUES = 420_000
MAX_ALL_BYTES = 72 * 1024 * 1024  # of all of them; the largest have an index and a description, 60 MB
MAX_ALL_VALUES = 600_000
MAX_TEXT = 1 << 20  # characters of one text in it; the longest of real ones, a chat template, has a twentieth

_FEW_BYTES = 1 << 16  # of a file whose values need not be counted
_BOM = b"\xef\xbb\xbf"
_NOT_STRICT = "JSON has no comments, no trailing commas and double quotes only; mend the spot and try again"

Repeats = list[tuple[dict[str, Any], tuple[str, ...]]]


def parse_json(name: str, raw: bytes) -> tuple[JsonFile, tuple[Problem, ...]]:
    """The file and what is odd about it.

    Raises UnreadableError, with line and column, for bytes that are no UTF-8 JSON object.
    """
    repeats: Repeats = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            times = Counter(key for key, _ in pairs)
            repeats.append((value, tuple(key for key, count in times.items() if count > 1)))
        return value

    check_size(name, raw)
    value = _load(name, raw, json.JSONDecoder(object_pairs_hook=collect))
    if not isinstance(value, dict):
        raise UnreadableError(
            f"{name}: line 1 column 1: the top level is no JSON object",
            subject=name,
            hint='the whole file is one object, {"key": value, ...}: put back the one that belongs to the checkpoint',
        )
    problems = [_repeated(name, pointer) for pointer in _pointers(value, repeats)]
    if _has_room(raw):
        _check_texts(name, value)
    if raw.startswith(_BOM):
        message = "starts with a byte order mark, which engines cannot read"
        problems.insert(0, Problem("bom", name, message, "byte 0"))
    return JsonFile(name, raw, value), tuple(problems)


def most_bytes(name: str) -> int:
    """How large a JSON file of that name may be."""
    return MAX_CONFIG_BYTES if name in NAMES and name != DESCRIPTION else MAX_JSON_BYTES


def check_size(name: str, raw: bytes) -> None:
    """Raises UnreadableError for a file that would take too long, or too much room, before anything is made of it."""
    if len(raw) <= MAX_TEXT:
        return
    most = most_bytes(name)
    kind = "a config" if most == MAX_CONFIG_BYTES else "JSON"
    if not raw.isascii():
        most, kind = MAX_WIDE_BYTES, "JSON that is not ASCII"
    if len(raw) > most:
        raise _too_large(name, f"{len(raw):,} bytes are above the limit of {most:,} for {kind}")
    values = _values(raw)
    if values > MAX_VALUES:
        raise _too_large(name, f"{values:,} values are above the limit of {MAX_VALUES:,}")


def _values(raw: bytes) -> int:
    return sum(raw.count(sign) for sign in (b",", b"[", b"{"))


class Together:
    """What the JSON files of a checkpoint hold together: each may be small enough, and all of them too much."""

    def __init__(self) -> None:
        self._configs = self._bytes = self._values = 0

    def add(self, name: str, raw: bytes) -> bytes:
        """The bytes of one more; UnreadableError where it is one too many."""
        self._bytes += len(raw)
        self._configs += len(raw) if name in NAMES and name != DESCRIPTION else 0
        self._values += _values(raw) if len(raw) > _FEW_BYTES else 0
        for count, most, what in (
            (self._configs, MAX_CONFIG_BYTES, "bytes of all configs"),
            (self._bytes, MAX_ALL_BYTES, "bytes of all JSON files"),
            (self._values, MAX_ALL_VALUES, "values of all JSON files"),
        ):
            if count > most:
                raise _too_large(name, f"with it {count:,} {what} are above the limit of {most:,}")
        return raw


def _too_large(name: str, why: str) -> UnreadableError:
    return UnreadableError(f"{name}: {why}", subject=name, hint="no model needs as much: look at what wrote the file")


def _has_room(raw: bytes) -> bool:
    """Whether one text may be longer than allowed: quotes stand too far apart, or some are escaped."""
    at, end = 0, len(raw) - MAX_TEXT
    while 0 <= at < end:
        at = raw.rfind(b'"', at + 1, at + MAX_TEXT)
    return at < 0 or (end > 0 and b'\\"' in raw)


def _check_texts(name: str, value: Any) -> None:
    """Raises UnreadableError for a text without end: matching it would take as long."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        pointer, node = todo.pop()
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            size = max(len(text) for text in (key, child, "") if isinstance(text, str))
            if size <= MAX_TEXT and not isinstance(child, (dict, list)):
                continue
            place = f"{pointer}/{step(beginning(str(key), 100))}"
            if size > MAX_TEXT:
                message = f"{name}: {place}: a text of {size} characters"
                raise UnreadableError(message, subject=name, hint="no engine has a use for it; write the file again")
            todo.append((place, child))


def _load(name: str, raw: bytes, decoder: json.JSONDecoder) -> Any:
    text = _text(name, raw)
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        message = f"{name}: line {error.lineno} column {error.colno}: {error.msg}"
        raise UnreadableError(message, subject=name, hint=_NOT_STRICT) from None
    except RecursionError:
        raise UnreadableError(
            f"{name}: nests too deeply to be read", subject=name, hint="no engine can read it; write it again"
        ) from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise UnreadableError(f"{name}: {error}", subject=name, hint="no engine can read it; write it again") from None


def _text(name: str, raw: bytes) -> str:
    try:
        return raw.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"{name}: line {line}, byte {error.start}: not UTF-8", subject=name, hint="save the file as UTF-8"
        ) from None


def _repeated(name: str, pointer: str) -> Problem:
    return Problem("duplicate-key", name, "the key stands twice in one object; the last one counts", pointer)


def _pointers(value: dict[str, Any], repeats: Repeats) -> list[str]:
    if not repeats:
        return []
    keys = {id(node): names for node, names in repeats}
    found: list[str] = []
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        pointer, node = todo.pop()
        found += [f"{pointer}/{step(key)}" for key in keys.get(id(node), ())]
        if isinstance(node, dict):
            todo += [(f"{pointer}/{step(key)}", child) for key, child in node.items()]
        elif isinstance(node, list):
            todo += [(f"{pointer}/{at}", child) for at, child in enumerate(node)]
    return sorted(found)
