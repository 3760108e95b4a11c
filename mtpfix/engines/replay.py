"""Decisions that an engine's own code made, set against the model of that engine.

A vector is a row as in the published vector files: `engine`, `release`, `format`, `config`, `packed`, `mapper`,
`runtime`, `layer`, `decision`, and `error`, `safetensors`, `expert_projections` where they matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mtpfix.engines.base import Engine, MatchQuery
from mtpfix.model import Answer, Mapper, Packed


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A row that the model answers differently."""

    row: Mapping[str, Any]
    answer: Answer


@dataclass(slots=True)
class Totals:
    """How many rows were put to the models, by engine, format and release; rows of unknown engines are skipped."""

    rows: dict[tuple[str, str, str], int] = field(default_factory=dict)
    wrong: dict[tuple[str, str, str], int] = field(default_factory=dict)
    skipped: int = 0

    @property
    def checked(self) -> int:
        return sum(self.rows.values())

    @property
    def failed(self) -> int:
        return sum(self.wrong.values())


def replay(rows: Iterable[Mapping[str, Any]], engines: Mapping[str, Engine], totals: Totals) -> Iterator[Disagreement]:
    """Every row that an engine of the mapping answers differently; `totals` is counted up on the way."""
    for row in rows:
        engine = engines.get(row["engine"])
        if engine is None:
            totals.skipped += 1
            continue
        group = (row["engine"], row["format"], row["release"])
        totals.rows[group] = totals.rows.get(group, 0) + 1
        answer = answer_of(row, engine)
        if not agrees(row, answer):
            totals.wrong[group] = totals.wrong.get(group, 0) + 1
            yield Disagreement(row, answer)


def answer_of(row: Mapping[str, Any], engine: Engine) -> Answer:
    """The model's answer to a row."""
    matcher = engine.matcher(query_of(row))
    return matcher.decide(row["runtime"], row["layer"], tuple(row.get("expert_projections", ())))


def query_of(row: Mapping[str, Any]) -> MatchQuery:
    """What a row says about the config object."""
    written = row.get("mapper")
    packed: Packed = {name: tuple(parts) for name, parts in row.get("packed", {}).items()}
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
    kinds = ("prefix", "substr", "suffix", "regex")
    return Mapper(**{kind: tuple(written.get(kind, {}).items()) for kind in kinds})


def agrees(row: Mapping[str, Any], answer: Answer) -> bool:
    """Whether an answer is the row's, the exception's type included."""
    return bool(answer.decision == row["decision"] and answer.error == row.get("error", ""))
