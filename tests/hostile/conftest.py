"""One process for all hostile runs, and a sound checkpoint for cases to spoil."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import qwen3_next

from .sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound checkpoint; who changes a file of it puts it back."""
    return qwen3_next(tmp_path_factory.mktemp("hostile") / "model", "mtp.layers.0*")


@pytest.fixture(scope="module")
def config(place: Path) -> dict[str, object]:
    """Its config.json."""
    value: dict[str, object] = json.loads((place / "config.json").read_text())
    return value
