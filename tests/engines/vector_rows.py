"""Rows of the shared ignore-list vectors, where the folder is at hand: MTPFIX_SHARED, or `shared` beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mtpfix.engines.base import Engine, MatchQuery
from mtpfix.model import Answer, Mapper

FOLDER = Path(os.environ.get("MTPFIX_SHARED") or Path(__file__).parents[2].parent / "shared") / "vectors"
Row = dict[str, Any]


def files(*patterns: str) -> list[Any]:
    """The vector files that fit a pattern; one skipped parameter where the folder is absent."""
    found = sorted(path for pattern in patterns for path in FOLDER.glob(pattern))
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no vectors in {FOLDER}"), id="absent")
    return [pytest.param(path, id=path.stem) for path in found] or [absent]


def rows(path: Path) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def query(row: Row) -> MatchQuery:
    """A row as a question to a matcher."""
    kinds = {kind: tuple(rules.items()) for kind, rules in (row["mapper"] or {}).items()}
    return MatchQuery(
        release=row["release"],
        method=row["format"],
        config=row["config"],
        mappers=(Mapper(**kinds),) if kinds else (),
        packed={name: tuple(shards) for name, shards in row["packed"].items()},
        dtypes=row.get("safetensors"),
    )


def answered(engine: Engine, row: Row) -> Answer:
    """The engine model's answer to a row."""
    names = tuple(row.get("expert_projections") or ())
    return engine.matcher(query(row)).decide(row["runtime"], row["layer"], names)


def wrong(engine: Engine, path: Path) -> list[str]:
    """The rows of a file that the model answers otherwise, in words."""
    out = []
    for number, row in enumerate(rows(path), 1):
        answer = answered(engine, row)
        if (answer.decision, answer.error) != (row["decision"], row.get("error", "")):
            said = f"{answer.decision} {answer.error} {answer.cause}"
            out.append(f"{path.name}:{number} {row['release']} {row['runtime']}: {row['decision']}, not {said}")
    return out
