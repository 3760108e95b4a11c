"""What callers hand to the library that is no source, no engine, no report: an error of its own, with a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner

import mtpfix
from mtpfix.cli import main
from mtpfix.testing import assert_loads

NO_PATHS = (
    None,
    0,
    1.5,
    [],
    ["."],
    {},
    object(),
    (name for name in "a"),
    bytearray(b"x"),
    "a\0b",
    b"a\0",
    "\ud800",
    "",
)
MISSING = (Path("nowhere"), b"nowhere", b"\xff", "x" * 5000, Path("a" * 5000))
NO_TEXTS = (None, 7, [None], [b"vllm"], b"vllm", {1: 2}, object(), [["vllm"]])


def named(value: object) -> str:
    """What a test is called: without the address of an object, which is another in each process."""
    return ascii(value)[:30].partition(" at ")[0]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tiny.qwen3_next(tmp_path / "model", "mtp.layers.0*")


def refused(call: Callable[[], object]) -> mtpfix.MtpfixError:
    with pytest.raises((mtpfix.UsageError, mtpfix.UnreadableError)) as caught:
        call()
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("path", [*NO_PATHS, *MISSING], ids=named)
def test_a_source_that_is_none(path: Any, model: Path) -> None:
    for call in (mtpfix.check, mtpfix.undo, mtpfix.ensure, assert_loads):
        error = refused(lambda call=call: call(path))  # type: ignore[misc]
        assert path in MISSING or isinstance(error, mtpfix.UsageError)
    refused(lambda: mtpfix.graft(path, model))
    if path is not None:
        refused(lambda: mtpfix.ensure(model, base=path))


@pytest.mark.parametrize("texts", NO_TEXTS, ids=named)
def test_engines_that_are_none(texts: Any, model: Path) -> None:
    error = refused(lambda: mtpfix.check(model, engines=texts))
    assert isinstance(error, mtpfix.UsageError)
    assert "engines" in str(error)
    refused(lambda: mtpfix.ensure(model, engines=texts))
    refused(lambda: assert_loads(model, texts))
    refused(lambda: mtpfix.graft(model, model.parent, modules=texts))


@pytest.mark.parametrize("value", [None, "", "model", Path("model"), {}, object])
def test_a_plan_of_no_report(value: Any) -> None:
    for call in (mtpfix.plan, mtpfix.apply):
        assert isinstance(refused(lambda call=call: call(value)), mtpfix.UsageError)  # type: ignore[misc]


def test_a_path_in_bytes_is_one(model: Path) -> None:
    assert mtpfix.check(bytes(model)).findings == mtpfix.check(model).findings  # type: ignore[arg-type]


def test_a_variable_that_is_empty_means_no_folder(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mtpfix undo "$DIR"`: not the working folder."""
    mtpfix.apply(mtpfix.check(model))
    changed = (model / "config.json").read_bytes()
    monkeypatch.chdir(model)
    for command in (("undo", ""), ("apply", "-y", ""), ("check", ""), ("hook", "--fix", "")):
        ran = CliRunner().invoke(main, command)
        assert ran.exit_code in (2, 3), (command, ran.output)
    assert (model / "config.json").read_bytes() == changed
