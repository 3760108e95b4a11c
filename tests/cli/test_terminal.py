"""What the terminal at the other end can show."""

from __future__ import annotations

import io
import sys

import pytest

from mtpfix.cli import terminal


class Stream(io.TextIOWrapper):
    """A terminal of an encoding."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(("columns", "width"), [("40", 60), ("60", 60), ("137", 137), ("200", 200), ("500", 200)])
def test_the_width_is_the_terminals_within_limits(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.page(Stream()).width == width


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.page(Stream()).colour
    assert not terminal.page(Stream(tty=False)).colour
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert terminal.page(Stream(tty=False)).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.page(Stream()).colour


TEXT = "14 of 38 files, 3.2 MB ..."


@pytest.mark.parametrize(
    ("columns", "encoding", "done", "total", "line"),
    [
        ("80", "utf-8", 6, 24, f"{'█' * 6}{'░' * 18}  {TEXT}"),
        ("80", "ascii", 24, 24, f"{'#' * 24}  {TEXT}"),
        ("80", "ascii", 30, 24, f"{'#' * 24}  {TEXT}"),
        ("80", "utf-8", 3, 0, TEXT),
        ("40", "utf-8", 1, 2, f"{'█' * 5}{'░' * 6}  {TEXT}"),
        ("30", "utf-8", 1, 2, TEXT),
        ("20", "utf-8", 1, 2, TEXT[:19]),
    ],
)
def test_progress_fits_on_a_line(
    monkeypatch: pytest.MonkeyPatch, columns: str, encoding: str, done: int, total: int, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stderr", Stream(encoding))
    shown = terminal.gauge(TEXT, done, total)
    assert shown == line
    assert len(shown) < int(columns)
