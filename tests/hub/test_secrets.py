"""A token, wherever it comes from and whatever a server does with it, is in no output and no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner

from hub import OWNER, Hub
from mtpfix.cli import main

SECRET = "hf_" + "Sesame" * 6
COMMANDS = (
    ("check", "org/m"),
    ("check", "org/m", "--format", "json", "--stats"),
    ("check", "hf://org/m@main"),
    ("list", "org/m"),
    ("explain", "org/m", "mtp.**"),
    ("apply", "org/m", "--dry-run"),
    ("apply", "org/m", "--create-pr"),
    ("apply", "org/m", "--create-pr", "--dry-run"),
    ("review", "org/m", "1"),
    ("override", "org/m", "--engine", "vllm"),
    ("snapshot", "org/m", "-o", "bundle"),
    ("scan", "org"),
    ("scan", "--search", "m", "--format", "json"),
)
CODES = (400, 401, 403, 404, 412)  # what is not tried again


def echo(code: int) -> Callable[..., None]:
    """A server that repeats what it was sent, in every place of an answer that a client may quote."""

    def fault(handler: object, _go: object) -> None:
        sent = str(handler.headers.get("Authorization"))  # type: ignore[attr-defined]
        headers = {"X-Error-Message": sent, "X-Error-Code": sent, "X-Request-Id": sent}
        handler.answer(code, f'{{"error": "{sent}"}}'.encode(), headers)  # type: ignore[attr-defined]

    return fault


def by_variable(_home: Path) -> tuple[dict[str, str], list[str]]:
    return {"HF_TOKEN": SECRET}, []


def by_old_variable(_home: Path) -> tuple[dict[str, str], list[str]]:
    return {"HUGGING_FACE_HUB_TOKEN": SECRET}, []


def by_option(_home: Path) -> tuple[dict[str, str], list[str]]:
    return {}, ["--token", SECRET]


def by_login(home: Path) -> tuple[dict[str, str], list[str]]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "token").write_text(SECRET)
    return {}, []


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("way", [by_variable, by_old_variable, by_option, by_login])
@pytest.mark.parametrize("debug", [False, True])
def test_a_server_that_repeats_the_token(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    way: Callable[..., tuple[dict[str, str], list[str]]],
    debug: bool,
) -> None:
    """With every code in turn; `debug` prints tracebacks, which must not hold it either."""
    hub.create("org/m", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    monkeypatch.chdir(tmp_path)
    more, options = way(Path(os.environ["HF_HOME"]))
    for number, command in enumerate(COMMANDS):
        hub.fault(".*", echo(CODES[number % len(CODES)]), 100)
        ran = CliRunner().invoke(main, [*command, *options], env=more | ({"MTPFIX_DEBUG": "1"} if debug else {}))
        hub.faults.clear()
        assert SECRET not in ran.output + "".join(capfd.readouterr()), command
        assert ran.exit_code in (1, 2, 3), (command, ran.output)
        assert debug or "Traceback" not in ran.output
    assert any(SECRET in str(call.headers) for call in hub.calls)
    (tmp_path / "hf-home" / "token").unlink(missing_ok=True)
    assert SECRET.encode() not in files(tmp_path)


def test_a_repair_that_went_well(hub: Hub, tmp_path: Path) -> None:
    """Nothing of the token in the pull request, the bundle or the undo records."""
    repo = hub.create("org/m", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    for command in (("apply", "org/m", "--create-pr"), ("snapshot", "org/m", "-o", str(tmp_path / "bundle"))):
        ran = CliRunner().invoke(main, command, env={"HF_TOKEN": OWNER})
        assert ran.exit_code == 0, ran.output
        assert OWNER not in ran.output
    assert OWNER not in str(vars(repo))
    assert OWNER.encode() not in files(tmp_path)
