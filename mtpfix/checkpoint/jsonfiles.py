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

CONFIG = "config.json"

# Files that say how a checkpoint is quantized; all engines read the first.
NAMES = (
    CONFIG,
    "hf_quant_config.json",  # ModelOpt
    "quantization_config.json",  # AutoRound
    "quantize_config.json",  # GPTQ, AWQ
    "quant_config.json",  # AWQ
    "quant_cfg.json",  # ModelOpt for TensorRT-LLM, mixed precision
    "quant_model_description.json",  # ModelSlim
)
MAX_JSON_BYTES = 128 * 1024 * 1024
MAX_TEXT = 1 << 20  # characters of one text in it; the longest of real ones, a chat template, has a twentieth

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

    value = _load(name, raw, json.JSONDecoder(object_pairs_hook=collect))
    if not isinstance(value, dict):
        raise UnreadableError(
            f"{name}: line 1 column 1: the top level is no JSON object", subject=name, hint="wrap it in braces"
        )
    problems = [_repeated(name, pointer) for pointer in _pointers(value, repeats)]
    if len(raw) > MAX_TEXT:
        _check_texts(name, value)
    if raw.startswith(_BOM):
        message = "starts with a byte order mark, which engines cannot read"
        problems.insert(0, Problem("bom", name, message, "byte 0"))
    return JsonFile(name, raw, value), tuple(problems)


def _check_texts(name: str, value: Any) -> None:
    """Raises UnreadableError for a text without end: matching it would take as long."""
    todo = [("", value)]
    while todo:
        pointer, node = todo.pop()
        if isinstance(node, str) and len(node) > MAX_TEXT:
            message = f"{name}: {pointer}: a text of {len(node)} characters"
            raise UnreadableError(message, subject=name, hint="no engine has a use for it; write the file again")
        if isinstance(node, dict):
            todo += [(f"{pointer}/{_escape(key[:100])}", child) for key, child in node.items()]
            todo += [(pointer, key) for key in node]
        elif isinstance(node, list):
            todo += [(f"{pointer}/{at}", child) for at, child in enumerate(node)]


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
        found += [f"{pointer}/{_escape(key)}" for key in keys.get(id(node), ())]
        if isinstance(node, dict):
            todo += [(f"{pointer}/{_escape(key)}", child) for key, child in node.items()]
        elif isinstance(node, list):
            todo += [(f"{pointer}/{at}", child) for at, child in enumerate(node)]
    return sorted(found)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
