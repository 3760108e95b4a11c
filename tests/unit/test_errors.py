"""What a user is told: every error that mtpfix raises says what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mtpfix
from mtpfix import errors

ROOT = Path(mtpfix.__file__).parent
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.MtpfixError)}
MADE = KINDS - {"FindingsError"}  # which takes its advice from the findings


def raised(path: Path) -> Iterator[ast.Call]:
    """Where a file makes an error of ours; click's UsageError is another class."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MADE:
            yield node


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_error_has_a_hint(path: Path) -> None:
    for call in raised(path):
        hints = [word.value for word in call.keywords if word.arg == "hint"]
        told = bool(hints) and not (isinstance(hints[0], ast.Constant) and not hints[0].value)
        assert told, f"line {call.lineno}: {ast.unparse(call)}"


def test_there_are_some() -> None:
    assert sum(1 for path in ROOT.rglob("*.py") for _ in raised(path)) > 100
