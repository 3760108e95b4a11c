"""The published ignore-list vectors, where they are at hand: in MTPFIX_SHARED, or in `shared` beside the repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mtpfix.engines.base import Engine
from mtpfix.engines.replay import Totals, parse, replay

FOLDER = Path(os.environ.get("MTPFIX_SHARED") or Path(__file__).parents[2].parent / "shared") / "vectors"


def files(*patterns: str) -> list[Any]:
    """The vector files that fit a pattern; one skipped parameter where the folder is absent."""
    found = sorted(path for pattern in patterns for path in FOLDER.glob(pattern))
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no vectors in {FOLDER}"), id="absent")
    return [pytest.param(path, id=path.stem) for path in found] or [absent]


def disagreements(engine: Engine, path: Path) -> list[str]:
    """The rows of a file that the model answers otherwise than the engine did, in words."""
    rows = list(parse(path.name, path.read_text("utf-8")))
    totals = Totals()
    found = [
        f"{row.row['release']} {row.row['runtime']}: {row.row['decision']}, not {row.answer}"
        for row in replay(rows, totals, {engine.name: engine})
    ]
    assert totals.checked == len(rows) > 0
    return found
