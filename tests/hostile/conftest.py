"""One process for all hostile runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running
