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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import jsonpatch
from checkpoints import FORMATS, INDEX, MODELS, Memory, header, parts, right_list
from safetensors import SafetensorError, deserialize

from mtpfix.analysis import analyse
from mtpfix.checkpoint.canonical import Tails, fold
from mtpfix.checkpoint.headers import decode, header_length
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.decisions import judges, tables
from mtpfix.engines import listing
from mtpfix.engines.registry import ENGINES as ENGINE_MODELS
from mtpfix.engines.vllm import matching
from mtpfix.engines.vllm.entries import read
from mtpfix.errors import MtpfixError, UnreadableError
from mtpfix.model import Edit, Source
from mtpfix.names import tensor_name
from mtpfix.patch import ops, pointer
from mtpfix.regexes import TooCostly, compiled
from mtpfix.splice import splice
from mtpfix.verdicts import mismatches
from mtpfix.world import world_of

T = TypeVar("T")
MOST_SECONDS = 5.0
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
            (tensor_name(name, cell[0]), cell[1], cell[2]) for name, row in quick.modules.items() for cell in row
        }


PLACES = tuple((family, fmt) for family in ("qwen3_next", "glm4_moe", "qwen3_5", "gemma4_assistant") for fmt in FORMATS)
KEYS = (
    "modules_to_not_convert", "ignored_layers", "ignore", "exclude", "exclude_modules", "dynamic", "extra_config",
    "config_groups", "targets", "weights", "quant_method", "quant_algo", "quantized_layers", "quantization_config",
    "quantization", "text_config", "compression_config", "layer_quant_config", "global_quant_config", "producer",
    "weight_block_size", "block_name_to_quantize", "num_hidden_layers", "num_nextn_predict_layers", "layer_types",
    "architectures", "model_type", "weight_map", "metadata", "bits", "format",
)  # fmt: skip
METHODS = (
    "modelopt", "fp8", "compressed-tensors", "awq", "gptq", "quark", "auto-round", "mxfp4", "mxfp8", "torchao",
    "bitsandbytes", "hqq", "w8a8_int8", "blockwise_int8", "fbgemm_fp8", "inc", "NVFP4", "FP8", "MIXED_PRECISION",
)  # fmt: skip
ENGINES = ("vllm", "sglang", "tensorrt-llm", "transformers", "vllm==0.33.0", "sglang==0.5.23", "vllm<0.14")


@cache
def place(family: str, fmt: str) -> tuple[Mapping[str, Any], Memory]:
    """A small sound checkpoint of a family in a format: its JSON files, and the place that they are read from."""
    full = MODELS[family](layers=1, experts=1)
    made = replace(full, kept=dict(list(full.kept.items())[:2]), body=dict(list(full.body.items())[:4]))
    kept = right_list(made, fmt)
    files, shards = parts(made, fmt, kept, sidecar=kept)
    rows = {name: header(name, tensors) for name, tensors in shards.items()}
    weights = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    values = {name: json.loads(value) for name, value in files.items() if isinstance(value, bytes)}
    values |= {name: value for name, value in files.items() if not isinstance(value, bytes)}
    texts = {name: json.dumps(value).encode() for name, value in values.items()}
    return {**values, INDEX: {"metadata": {}, "weight_map": weights}}, Memory(texts, rows)


def configs(data: bytes) -> None:
    """A sound checkpoint of some format with one JSON file changed here and there: a report, or an error that is meant.

    One in sixteen is worked out to the plan; the rest are read and decided, each by one engine in all its releases.
    """
    cursor = Cursor(data)
    values, files = place(*cursor.one(PLACES))
    name, whole, torn = cursor.one(tuple(values)), cursor.below(16) == 15, cursor.below(8) == 7
    engine = cursor.one(ENGINES)
    value = _mutated(cursor, values[name])
    raw = json.dumps(value).encode()
    texts = {**files.texts, name: _torn(cursor, raw) if torn else raw}
    try:
        checkpoint = read_checkpoint(Source("local", "fuzzed"), Memory(texts, files.shards))
        if whole:
            analyse(checkpoint, scope="all", engines=[engine])
        else:
            world = world_of(checkpoint)
            for table in tables(world, judges(world, [ENGINE_MODELS[engine.partition("=")[0].partition("<")[0]]])):
                list(mismatches(world, table))
    except MtpfixError:
        return


def _mutated(cursor: Cursor, value: Any) -> Any:
    """The value with some of its keys, list entries and types changed, or with parts of another file put in."""
    value = json.loads(json.dumps(value))
    for _ in range(1 + cursor.below(4)):
        path = _walk(cursor, value)
        held = value
        for step in path[:-1]:
            held = held[step]
        new = deepcopy(_odd(cursor))  # what is put in is changed in its turn, and must not be its own part
        if not path:
            value = new if cursor.below(16) == 15 else value
        elif isinstance(held, list) and cursor.below(2):
            held.insert(path[-1], new)
        elif isinstance(held, dict) and cursor.below(2):
            held[cursor.one(KEYS)] = new
        elif cursor.below(4) == 3:
            del held[path[-1]]
        else:
            held[path[-1]] = new
    return value


def _walk(cursor: Cursor, value: Any) -> list[Any]:
    """A path into a value, as deep as the bytes say."""
    path: list[Any] = []
    while isinstance(value, (dict, list)) and value and (not path or cursor.below(5)):
        steps = list(value) if isinstance(value, dict) else range(len(value))
        path.append(steps[cursor.below(256) % len(steps)])
        value = value[path[-1]]
    return path


def _odd(cursor: Cursor) -> Any:
    kind = cursor.below(8)
    if kind == 0:
        return cursor.one(METHODS)
    if kind == 1:
        values = place(*cursor.one(PLACES))[0]
        found: Any = values[cursor.one(tuple(values))]
        for step in _walk(cursor, found):
            found = found[step]
        return found
    if kind == 2:
        return cursor.one(
            (10**30, -1, 0, 1e308, 2**63, "x" * 300, "\x00\n\u202e", "\ud800", "(a+)+$", "re:(", "re:.*", [])
        )
    if kind == 3:
        return [cursor.name() for _ in range(cursor.below(6))]
    if kind == 4:
        return {cursor.one(KEYS): cursor.value(2) for _ in range(cursor.below(3))}
    return cursor.value()


def _torn(cursor: Cursor, raw: bytes) -> bytes:
    """The text with some bytes gone or replaced."""
    at = cursor.below(256) * 256 + cursor.below(256)
    at %= len(raw) + 1
    return raw[:at] + bytes(cursor.below(256) for _ in range(cursor.below(4))) + raw[at + cursor.below(4) :]


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
        assert (found and found.name) == (wanted and wanted.name), (table, texts, name, found, wanted)
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


def _ancestors(entries: Iterable[listing.Entry]) -> matching.Ancestors:
    return matching.Ancestors(matching.Exact(entries))


_TABLES: tuple[tuple[Any, Callable[[str, str], bool]], ...] = (
    (matching.Exact, str.__eq__),
    (matching.Contained, lambda name, text: text in name),
    (lambda entries: matching.Globs(matching.Exact(entries)), fnmatch.fnmatchcase),
    (_ancestors, lambda name, text: text.startswith(f"{name}.")),
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


def timed(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The target, which fails too where an input takes too many seconds of the processor."""

    def run(data: bytes) -> None:
        before = process_time()
        target(data)
        assert process_time() - before < MOST_SECONDS, f"{process_time() - before:.1f} s"

    return run


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (headers, configs, splices, matchers, regexes)
}


def seeds(name: str) -> Iterator[bytes]:
    """What fuzzing starts from, and what it found once: the files beside this one."""
    for path in sorted((Path(__file__).parent / "corpus" / name).glob("*")):
        yield path.read_bytes()
