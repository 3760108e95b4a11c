"""Decisions that an engine's own code made, set against the model of that engine.

A vector is a row as in the published vector files: `engine`, `release`, `format`, `config`, `packed`, `mapper`,
`runtime`, `layer`, `decision`, and `error`, `safetensors`, `expert_projections` where they matter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from mtpfix.engines import compressed_tensors_lib
from mtpfix.engines.base import Engine, MatchQuery
from mtpfix.engines.registry import ENGINES
from mtpfix.errors import UnreadableError
from mtpfix.model import Answer, Layer, Mapper, Packed
from mtpfix.names import brief

Row = Mapping[str, Any]
Group = tuple[str, str, str]
REPLAYED: Mapping[str, Engine] = {**ENGINES, compressed_tensors_lib.ENGINE.name: compressed_tensors_lib.ENGINE}
"""Every model that recorded decisions can be put to, by the engine's name in a row."""

MAX_ROW = 1 << 20  # characters; the longest known one has 14,000
_KINDS = ("prefix", "substr", "suffix", "regex")
_TEXTS = ("engine", "release", "format", "runtime", "layer", "decision")
_DECISIONS = ("plain", "quantized", "error")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A row that the model answers differently. `place`: its file and line, "" where it is from none."""

    row: Row
    answer: Answer
    place: str = ""


@dataclass(slots=True)
class Totals:
    """How many rows were put to the models, by engine, format and release; rows of unknown engines are skipped."""

    rows: Counter[Group] = field(default_factory=Counter)
    wrong: Counter[Group] = field(default_factory=Counter)
    skipped: int = 0

    @property
    def checked(self) -> int:
        return self.rows.total()

    @property
    def failed(self) -> int:
        return self.wrong.total()


def parse(file: str, text: str) -> Iterator[tuple[str, Row]]:
    """The rows of a vector file, each with its place. Raises UnreadableError for a line that is no such row."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{file}:{number}"
            if len(line) > MAX_ROW:
                raise _malformed(place, f"{len(line):,} characters are above the limit of {MAX_ROW:,}")
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise _malformed(place, f"no JSON: {problem}") from problem
            fault = _fault(row)
            if fault:
                raise _malformed(place, fault)
            yield place, row


def _malformed(place: str, why: str) -> UnreadableError:
    return UnreadableError(why, subject=place, hint="each line is a recorded decision: a JSON object with engine, "
                           "release, format, config, packed, mapper, runtime, layer and decision")  # fmt: skip


def _fault(row: Any) -> str:
    """Why a value is no vector, in words; "" for one."""
    if not isinstance(row, dict):
        return "no object"
    for key in _TEXTS:
        if not isinstance(row.get(key), str):
            return f"`{key}` is missing or no text"
    if row["layer"] not in get_args(Layer):
        return f"`layer` is none of {', '.join(get_args(Layer))}: {brief(row['layer'])}"
    if row["decision"] not in _DECISIONS:
        return f"`decision` is none of {', '.join(_DECISIONS)}: {brief(row['decision'])}"
    return next((f"`{key}` {why}" for key, why, holds in _SHAPES if not holds(row.get(key))), "")


def _is_packed(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(_are_texts(shards) for shards in value.values()))


def _is_mapper(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        kind in _KINDS
        and isinstance(rules, dict)
        and all(new is None or isinstance(new, str) for new in rules.values())
        for kind, rules in value.items()
    )


def _is_dtypes(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and _are_texts(list(value.values())))


def _are_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))


_SHAPES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("config", "is missing or no object", lambda value: isinstance(value, dict)),
    ("packed", "does not map a name to a list of names", _is_packed),
    ("mapper", f"has rules other than {', '.join(_KINDS)} from text to text or null", _is_mapper),
    ("safetensors", "does not map tensors to dtypes", _is_dtypes),
    ("expert_projections", "is no list of names", _are_texts),
)


def replay(
    rows: Iterable[tuple[str, Row]], totals: Totals, engines: Mapping[str, Engine] = REPLAYED
) -> Iterator[Disagreement]:
    """The rows, each with its place, that a model answers differently; `totals` is counted up on the way."""
    for place, row in rows:
        engine = engines.get(row["engine"])
        if engine is None:
            totals.skipped += 1
            continue
        group = (row["engine"], row["format"], row["release"])
        totals.rows[group] += 1
        answer = answer_of(row, engine)
        if not agrees(row, answer):
            totals.wrong[group] += 1
            yield Disagreement(row, answer, place)


def answer_of(row: Row, engine: Engine) -> Answer:
    """The model's answer to a row."""
    matcher = engine.matcher(query_of(row))
    return matcher.decide(row["runtime"], row["layer"], tuple(row.get("expert_projections") or ()))


def query_of(row: Row) -> MatchQuery:
    """What a row says about the config object."""
    written = row.get("mapper")
    packed: Packed = {name: tuple(parts or ()) for name, parts in (row.get("packed") or {}).items()}
    return MatchQuery(
        release=row["release"],
        method=row["format"],
        config=row["config"],
        mappers=() if written is None else (mapper_of(written),),
        packed=packed,
        dtypes=row.get("safetensors"),
    )


def mapper_of(written: Mapping[str, Mapping[str, str | None]]) -> Mapper:
    """A mapper from its rules by kind."""
    return Mapper(**{kind: tuple(written.get(kind, {}).items()) for kind in _KINDS})


def agrees(row: Row, answer: Answer) -> bool:
    """Whether an answer is the row's, the exception's type included."""
    return bool(answer.decision == row["decision"] and answer.error == row.get("error", ""))
