"""What is fuzzed: functions of bytes that raise where mtpfix is wrong. Each has a referee that is not mtpfix.

headers   the safetensors library, about the same bytes
configs   only errors that mtpfix raises on purpose, from bytes to report
splices   json.loads and jsonpatch, about an edited text
matchers  fnmatch, re and the list walks as the engines do them, entry by entry
regexes   re, for patterns that are not refused
"""

from __future__ import annotations

import fnmatch
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import jsonpatch
from safetensors import SafetensorError, deserialize
from tiny import qwen3_next

from mtpfix.analysis import analyse
from mtpfix.checkpoint.canonical import Tails, fold
from mtpfix.checkpoint.headers import decode, header_length
from mtpfix.checkpoint.local import Folder
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.engines import listing
from mtpfix.engines.vllm import matching
from mtpfix.engines.vllm.entries import read
from mtpfix.errors import MtpfixError, UnreadableError
from mtpfix.model import Edit, Source
from mtpfix.names import tensor_name
from mtpfix.patch import ops, pointer
from mtpfix.regexes import TooCostly, compiled
from mtpfix.splice import splice

T = TypeVar("T")
LAYER = (
    "model",
    "layers",
    "0",
    "10",
    "mtp",
    "fc",
    "mlp",
    "experts",
    "up_proj",
    "*",
    "?",
    "[0-9]",
    "re:",
    "",
    "lm_head",
)


class Cursor:
    """Reads decisions off some bytes; past their end everything is zero."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, limit: int) -> int:
        return next(self._bytes, 0) % limit

    def one(self, rows: Sequence[T]) -> T:
        return rows[self.below(len(rows))]

    def name(self) -> str:
        """A dotted name of a model's own words, now and then with a stray character."""
        steps = [self.one(LAYER) for _ in range(self.below(7))]
        stray = chr(self.below(128)) if self.below(8) == 1 else ""
        return ".".join(steps) + stray

    def value(self, depth: int = 0) -> Any:
        kind = self.below(8 if depth < 4 else 6)
        if kind == 7:
            return {self.name(): self.value(depth + 1) for _ in range(self.below(4))}
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.below(4))]
        return (None, True, self.below(256) - 128, self.below(256) / 7, self.name(), "")[kind]


def headers(data: bytes) -> None:
    """The library and both ways of reading agree: refused, or the same tensors."""
    try:
        theirs: Any = {(name, body["dtype"], tuple(body["shape"])) for name, body in deserialize(data)}
    except SafetensorError:
        theirs = None
    try:
        length = header_length(data[:8], len(data), "f")
        header, rest = data[8 : 8 + length], len(data) - 8 - length
        ours: Any = {(entry.name, entry.dtype, entry.shape) for entry in decode(header, rest, "f")}
        quick = fold(header, rest, Tails())
    except UnreadableError:
        ours = quick = None
    assert ours == theirs
    if quick is not None:
        assert ours == {
            (tensor_name(name, cell[0]), cell[1], cell[2]) for name, row in quick[1].items() for cell in row
        }


class _Fuzzed(Folder):
    """A sound checkpoint but for one file."""

    def __init__(self, root: str, name: str, raw: bytes) -> None:
        super().__init__(root)
        self._name, self._raw = name, raw

    def names(self) -> list[str]:
        return sorted({*super().names(), self._name})

    def json_bytes(self, name: str) -> bytes:
        return self._raw if name == self._name else super().json_bytes(name)


PLACE = qwen3_next(Path(mkdtemp(prefix="mtpfix-fuzz-")), "mtp.layers.0*")
FILES = ("config.json", "hf_quant_config.json", "model.safetensors.index.json")


def configs(data: bytes) -> None:
    """Any bytes as a JSON file, or odd values in the places that count: a report, or an error that is meant."""
    cursor = Cursor(data[1:])
    file = FILES[data[0] % 3] if data else FILES[0]
    raw = data[2:] if data[1:2] < b"\x20" else json.dumps(_changed(cursor, file)).encode()
    try:
        analyse(read_checkpoint(Source("local", "fuzzed"), _Fuzzed(str(PLACE), file, raw)), scope="all")
    except MtpfixError:
        return


def _changed(cursor: Cursor, file: str) -> Any:
    path = PLACE / file
    value = json.loads(path.read_text()) if path.exists() else {"weight_map": {"mtp.fc.weight": "model.safetensors"}}
    for _ in range(1 + cursor.below(3)):
        holder = value
        while True:
            key = cursor.one([*holder, "modules_to_not_convert", "exclude", "dynamic", "config_groups", "quant_method"])
            inner = holder.get(key)
            if not isinstance(inner, dict) or not inner or cursor.below(4) == 0:
                break
            holder = inner
        if isinstance(inner, list) and cursor.below(2):
            inner.insert(cursor.below(len(inner) + 1), cursor.value(2))
        else:
            holder[key] = cursor.one(("modelopt", "fp8", "compressed-tensors", "awq", "gptq", "quark", cursor.value()))
    return value


def splices(data: bytes) -> None:
    """Laws 5 and 6: the edited text says what the patch makes of the value, and the rest stays to the byte."""
    cursor = Cursor(data)
    value = {"a": cursor.value(), "ignore": [cursor.value(3) for _ in range(cursor.below(5))], "z": {}}
    text = json.dumps(value, indent=cursor.one((None, 0, 2, "\t")), ensure_ascii=bool(cursor.below(2)))
    if cursor.below(2):
        text = text.replace("\n", "\r\n") + "\n"
    edits, state = [], value
    for _ in range(1 + cursor.below(3)):
        edits.append(_edit(cursor, state))
        state = jsonpatch.apply_patch(state, ops(edits[-1:])["c.json"])
    edited = splice(text.encode(), edits)
    assert json.loads(edited) == state
    back = list(jsonpatch.make_patch(state, value))
    if not back:
        assert edited == text.encode()


def _edit(cursor: Cursor, value: Any) -> Edit:
    path: list[str | int] = []
    while True:
        steps = list(value) if isinstance(value, dict) else list(range(len(value)))
        inner = [step for step in steps if isinstance(value[step], (dict, list))]
        if not inner or cursor.below(3) == 0:
            break
        path.append(cursor.one(inner))
        value = value[path[-1]]
    if not steps or cursor.below(2):
        new = cursor.name() if isinstance(value, dict) else cursor.below(len(value) + 1)
        return Edit("c.json", "add", pointer(*path, new), cursor.value())
    kind = cursor.one(("remove", "replace"))
    return Edit("c.json", kind, pointer(*path, cursor.one(steps)), cursor.value() if kind == "replace" else None)


def matchers(data: bytes) -> None:
    """Compiled tables find what a walk over the entries finds first."""
    cursor = Cursor(data)
    texts = [cursor.name() for _ in range(1 + cursor.below(12))]
    name = cursor.name()
    entries = read(texts, "")
    for table, walk in _TABLES:
        found = table(entries).find(name)
        wanted = next((entry for entry in entries if walk(name, entry.name)), None)
        assert (found and found.name) == (wanted and wanted.name), (table.__name__, texts, name, found, wanted)
    for make, walk in _LISTED:
        place = make(texts).first(name)
        assert place == next((at for at, text in enumerate(texts) if walk(name, text)), None), (
            make,
            texts,
            name,
            place,
        )


def _in_components(name: str, text: str) -> bool:
    return f".{text}." in f".{name}."


_TABLES: tuple[tuple[Any, Callable[[str, str], bool]], ...] = (
    (matching.Exact, str.__eq__),
    (matching.Contained, lambda name, text: text in name),
    (matching.Globs, fnmatch.fnmatchcase),
)
_LISTED: tuple[tuple[Any, Callable[[str, str], bool]], ...] = (
    (listing.Within, lambda name, text: text in name),
    (listing.Runs, _in_components),
)


def regexes(data: bytes) -> None:
    """A pattern is refused, or does what re does, soon."""
    pattern, _, text = data.decode("latin-1").partition("\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        theirs = None
    try:
        ours = compiled(pattern)
    except re.error:
        assert theirs is None
        return
    except TooCostly:
        return
    assert theirs is not None
    for kind in ("match", "fullmatch", "search"):
        try:
            found = getattr(ours, kind)(text)
            ours._affordable(text, 1 + len(text))  # else only a missing literal was looked for, and re would hang
        except TooCostly:
            continue
        assert found == bool(getattr(theirs, kind)(text)), (kind, pattern, text)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (headers, configs, splices, matchers, regexes)
}


def seeds(name: str) -> Iterator[bytes]:
    """What fuzzing starts from, and what it found once: the files beside this one."""
    for path in sorted((Path(__file__).parent / "corpus" / name).glob("*")):
        yield path.read_bytes()
