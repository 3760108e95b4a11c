"""The corpus of reported checkpoints, where it is at hand: every command answers, in its published shape."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from documents import validator

from mtpfix.cli import main

SHARED = Path(os.environ.get("MTPFIX_SHARED") or Path(__file__).parents[3] / "shared")
CASES = sorted((SHARED / "corpus" / "cases").glob("*.json"))
CHOSEN = [path for path in CASES if "full" not in path.stem][::11]

pytestmark = pytest.mark.skipif(not CASES, reason="the corpus is not at hand")


def of_each_kind(document: dict[str, Any]) -> dict[str, Any]:
    """With one row of those that differ in names alone: there are thousands."""
    for key in document.keys() & {"decisions", "tensors"}:
        document[key] = list({str([_kind(*field) for field in row.items()]): row for row in document[key]}.values())
    return document


def _kind(key: str, value: Any) -> tuple[str, Any]:
    return key, type(value) if key in ("module", "name", "runtime_name") else value


@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SHARED / "corpus"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forge = __import__("forge").forge
    folder = tmp_path / "m"
    forge(json.loads(path.read_text("utf-8")), folder)
    for args in (["check", str(folder)], ["explain", str(folder), "**"], ["list", str(folder)]):
        for form in ("human", "json"):
            result = CliRunner().invoke(main, [*args, "--format", form])
            assert result.exit_code in (0, 1), result.stderr
            if form == "json":
                validator("").validate(of_each_kind(json.loads(result.stdout)))
            else:
                assert all(len(line) <= 80 for line in result.stdout.splitlines())
    result = CliRunner().invoke(main, ["apply", str(folder), "--dry-run"])
    assert result.exit_code in (0, 1), result.stderr
