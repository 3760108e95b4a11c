"""A token, wherever it comes from and whatever a server does with it, is in no output and no file."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner

from hub import OWNER, Hub
from hub.faults import with_value
from mtpfix.cli import main
from mtpfix.cli.remote import Remote

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


SIGNED = "X-Amz-Credential=AKIAsesame%2F2026&X-Amz-Signature=5e5a3e&Signature=SESAME5&Policy=eyJTZX&Key-Pair-Id=KSES"
SIGNS = ("AKIAsesame", "5e5a3e", "SESAME5", "eyJTZX", "KSES")


def sent_to(place: str) -> Callable[..., None]:
    """A redirect, as the Hub sends it for a large file."""
    return lambda handler, _go: handler.answer(302, b"", {"Location": place})


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/x", "http://[bad/", "{hub}/nowhere", "{hub}/api/models/org/m"])
def test_a_signed_address(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Where it cannot be reached, is no address, does not exist, or leads back for ever."""
    monkeypatch.setattr("mtpfix.checkpoint.http.BACKOFF", 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the Hub's own client waits for half a minute
    hub.create("org/m", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        hub.fault("POST" if "--create-pr" in command else ".*", sent_to(f"{place}?{SIGNED}".format(hub=hub.url)), 1000)
        ran = CliRunner().invoke(main, command, env={"HF_TOKEN": OWNER, "MTPFIX_DEBUG": "1"})
        hub.faults.clear()
        assert not any(sign in ran.output for sign in SIGNS), ran.output
    assert not any(sign.encode() in files(tmp_path) for sign in SIGNS)


def test_what_the_client_logs(hub: Hub, tmp_path: Path) -> None:
    """HF_DEBUG makes it log every address: with its signature, and with the Hub's own password."""
    hub.create("org/m", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    hub.fault("resolve", sent_to(f"http://127.0.0.1:9/x?{SIGNED}"), 1000)
    address = hub.url.replace("://", "://user:pa55word-of-the-hub@")
    place = os.pathsep.join(sys.path)
    env = {
        **os.environ,
        "PYTHONPATH": place,
        "HF_DEBUG": "1",
        "MTPFIX_DEBUG": "1",
        "HF_TOKEN": SECRET,
        "HF_ENDPOINT": address,
    }
    program = "import mtpfix.checkpoint.http as http; http.BACKOFF = 0; from mtpfix.cli import main; main()"
    command = [sys.executable, "-c", program, "check", "org/m"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert "curl" in ran.stderr
    assert not any(sign in ran.stdout + ran.stderr for sign in (*SIGNS, "pa55word", SECRET))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_tracebacks_that_the_client_logs(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    """It tells of what it ignores, with the Hub's words: all of it under HF_DEBUG, warnings always."""
    client = logging.getLogger("huggingface_hub.utils")
    handler = logging.StreamHandler(sys.stderr)
    client.addHandler(handler)
    before = client.level
    client.setLevel(level)
    try:
        with Remote().watched(["org/m"]):
            try:
                raise ValueError(f"401 No {SECRET}")
            except ValueError:
                client.log(level, "ignored: %s", SECRET, exc_info=True, stack_info=True)
    finally:
        client.removeHandler(handler)
        client.setLevel(before)
    told = capsys.readouterr().err
    assert "ValueError: 401 No hf_***" in told
    assert SECRET not in told


def test_the_state_of_a_scan(hub: Hub, tmp_path: Path) -> None:
    """A repository that is called like a token: its line holds none, and is found again."""
    hub.create(f"org/{SECRET}", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    state, page = tmp_path / "state.jsonl", tmp_path / "page.html"
    scan = ("scan", "org", "--search", SECRET, "--state", str(state), "--html", str(page))
    for asked in (True, False):
        hub.forget()
        ran = CliRunner().invoke(main, scan)
        assert ran.exit_code == 1, ran.output
        assert SECRET not in ran.output + state.read_text() + page.read_text()
        assert asked == (hub.count(part="resolve") > 0)


def test_a_commit_that_is_called_like_the_token(hub: Hub, tmp_path: Path) -> None:
    """Of a commit the first twelve letters are shown, which are no secret that is known any more."""
    secret = "qwzxvbnmtyuiopklasdf"
    folder = tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*")
    base = tiny.qwen3_next(tmp_path / "base", "mtp.layers.0*")
    repo = hub.create("org/m", base)
    hub.users[secret] = hub.users[OWNER]
    repo.branches[secret] = repo.head()
    hub.fault("/revision/", with_value(sha=secret), float("inf"))
    page = tmp_path / "page.html"
    index = json.dumps({"metadata": {}, "weight_map": {"mtp.fc.weight": "gone.safetensors"}})
    (folder / "model.safetensors.index.json").write_text(index)
    for command in (
        ("scan", "org", "--html", str(page)),
        ("check", "org/m"),
        ("graft", str(folder), "--from", "org/m", "--modules", "mtp.fc", "--dry-run"),
    ):
        ran = CliRunner().invoke(main, command, env={"HF_TOKEN": secret})
        assert ran.exit_code in (0, 1), ran.output
        assert secret[:6] not in ran.output
    assert "org/m" in page.read_text()
    assert secret[:6] not in page.read_text()
