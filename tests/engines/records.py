"""Recorded engine behaviour: one JSON file a checkpoint, with its headers, its JSON files and what the engines did.

    {"name", "origin",
     "files":  {"config.json": {...}, ...},
     "shards": {"model.safetensors": {"BF16 256 128": ["a.{0..3}.weight", ...]}},      # dtype and shape -> names
     "index":  {"unlisted": [...], "ghosts": {...}},          # only where it contradicts the headers
     "runs":   [{"engine", "version", "part", "method", "class", "verdict", "stage", "error", "never_written",
                 "asked": [[prefix, layer, decision, method]], "unasked": [[prefix, layer]],
                 "packed", "mapper"     # vLLM: the class's own, as applied
                 "casts"}]}             # SGLang: quantized bytes read as plain numbers ("float8_e4m3fn -> bfloat16")

`verdict`: loads, fails, degrades, or "" where the load says nothing; `decision`: plain, quantized, error.
`never_written`: parameters that no tensor of the checkpoint reached. Runs of numbers in names are written `{0..3}`.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ASKS = Path(__file__).parent / "asks"
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2}
INDEX = "model.safetensors.index.json"
Header = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Run:
    """What one engine did with one part."""

    engine: str
    version: str
    part: str
    method: str
    verdict: str
    error: str
    stage: str
    never_written: tuple[str, ...]
    asked: tuple[tuple[str, str, str, str], ...]
    unasked: tuple[tuple[str, str], ...]
    packed: Mapping[str, list[str]] | None = None
    mapper: Mapping[str, Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded checkpoint. `shards`: file -> tensor name -> (dtype, shape)."""

    name: str
    origin: str
    files: Mapping[str, Any]
    shards: Mapping[str, Header]
    index: Mapping[str, Any]
    runs: tuple[Run, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        return self.files["config.json"]  # type: ignore[no-any-return]

    def tensors(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of every tensor."""
        for header in self.shards.values():
            for name, (dtype, shape) in header.items():
                yield name, dtype, shape


@cache
def load_record(path: Path) -> Record:
    """A record file; whoever asks again gets the same."""
    raw = json.loads(path.read_text("utf-8"))
    shards = {file: unpack(rows) for file, rows in raw["shards"].items()}
    runs = tuple(_run(run) for run in raw["runs"])
    return Record(raw["name"], raw["origin"], raw["files"], shards, raw.get("index", {}), runs)


def _run(raw: Mapping[str, Any]) -> Run:
    return Run(
        raw["engine"], raw["version"], raw["part"], raw["method"], raw["verdict"], raw["error"], raw["stage"],
        tuple(name for text in raw["never_written"] for name in expand(text)),
        tuple((name, *rest) for text, *rest in raw["asked"] for name in expand(text)),
        tuple((name, kind) for text, kind in raw["unasked"] for name in expand(text)),
        raw.get("packed"), raw.get("mapper"),
    )  # fmt: skip


def load_all() -> list[Record]:
    """Every record, by name."""
    return [load_record(path) for path in sorted(ASKS.glob("*.json"))]


def unpack(rows: Mapping[str, Iterable[str]]) -> Header:
    """`{"BF16 2 3": ["a.{0..1}"]}` -> `{"a.0": ("BF16", (2, 3)), ...}`."""
    header: Header = {}
    for spec, names in rows.items():
        dtype, *shape = spec.split()
        header.update({name: (dtype, tuple(map(int, shape))) for text in names for name in expand(text)})
    return header


def pack(header: Header) -> dict[str, list[str]]:
    """The opposite of `unpack`."""
    groups: dict[str, list[str]] = {}
    for name, (dtype, shape) in header.items():
        groups.setdefault(" ".join([dtype, *map(str, shape)]), []).append(name)
    return {spec: compress(names) for spec, names in groups.items()}


def expand(text: str) -> list[str]:
    """`a.{0..2}.b` -> the three names."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", text)
    if not found:
        return [sys.intern(text)]  # most names are in many records
    head, tail = text[: found.start()], text[found.end() :]
    return [name for number in range(int(found[1]), int(found[2]) + 1) for name in expand(f"{head}{number}{tail}")]


def compress(names: Iterable[str]) -> list[str]:
    """Names that differ in one number become one for each unbroken run of numbers."""
    out = list(dict.fromkeys(names))
    for back in range(max((name.count(".") for name in out), default=0) + 1):
        groups: dict[tuple[str, ...], list[int]] = {}
        for name in out:
            parts = name.split(".")
            at = len(parts) - 1 - back
            if at >= 0 and parts[at].isdecimal():
                groups.setdefault((*parts[:at], "#", *parts[at + 1 :]), []).append(int(parts[at]))
            else:
                groups[tuple(parts)] = []
        out = [name for parts, numbers in groups.items() for name in _spell(parts, numbers)]
    return out


def fold(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    """Rows that differ only in numbers of their first field become one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for first, *rest in rows:
        groups.setdefault(tuple(rest), []).append(first)
    return [[name, *rest] for rest, names in groups.items() for name in compress(names)]


def _spell(parts: tuple[str, ...], numbers: list[int]) -> list[str]:
    if not numbers:
        return [".".join(parts)]
    texts = [f"{{{first}..{last}}}" if last > first else str(first) for first, last in _runs(sorted(numbers))]
    return [".".join(text if part == "#" else part for part in parts) for text in texts]


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """`files`, `shards` and `index` of a checkpoint directory."""
    files = {
        path.name: json.loads(path.read_text("utf-8-sig"))
        for path in sorted(folder.glob("*.json"))
        if path.name not in (INDEX, "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    }
    headers = {path.name: _header(path) for path in sorted(folder.glob("*.safetensors"))}
    return {
        "files": files,
        "shards": {file: pack(header) for file, header in headers.items()},
        "index": _contradictions(folder / INDEX, headers),
    }


def _header(path: Path) -> Header:
    with path.open("rb") as file:
        raw = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: (row["dtype"], tuple(row["shape"])) for name, row in raw.items() if name != "__metadata__"}


def _contradictions(path: Path, headers: Mapping[str, Header]) -> dict[str, Any]:
    if not path.exists():
        return {}
    listed = json.loads(path.read_text("utf-8"))["weight_map"]
    held = {name for header in headers.values() for name in header}
    unlisted = compress(sorted(held - set(listed)))
    ghosts = {name: file for name, file in listed.items() if name not in held}
    return {"unlisted": unlisted, "ghosts": ghosts} if unlisted or ghosts else {}


def write_checkpoint(record: Record, folder: Path) -> Path:
    """A checkpoint directory like the recorded one: true headers, zero weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in record.files.items():
        (folder / name).write_text(json.dumps(body, indent=2), "utf-8")
    weight_map = {name: file for file, header in record.shards.items() for name in header}
    for file, header in record.shards.items():
        _write_shard(folder / file, header)
    unlisted = {name for text in record.index.get("unlisted", ()) for name in expand(text)}
    listed = {name: file for name, file in weight_map.items() if name not in unlisted} | record.index.get("ghosts", {})
    if len(record.shards) > 1 or record.index:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": listed}, indent=2), "utf-8")
    return folder


def _write_shard(path: Path, header: Header) -> None:
    body: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in header.items():
        start, end = end, end + SIZES.get(dtype, 1) * math.prod(shape)
        body[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(body).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
