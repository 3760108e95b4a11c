"""A Hub whose answers do not end, and one that leads somewhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner

from hub import OWNER, Hub
from hub.faults import dripping
from mtpfix.checkpoint import http
from mtpfix.checkpoint.access import Access
from mtpfix.cli import main

BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
WHOLE = BEGUN + b"Content-Length: 1000000\r\n\r\n"
HEADS = {
    "a status line": (b"HTTP/1.1 200 " + b"O" * 100_000, b""),
    "a head": (BEGUN + b"X-A: b\r\n" * 100_000, b""),
    "a body": (WHOLE, b" " * 1_000_000),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 1000000\r\n\r\n", b" " * 1_000_000),
}
READING = (("check", "org/m"), ("list", "org/m"), ("scan", "org"), ("review", "org/m", "1"))
WRITING = ("apply", "org/m", "--create-pr")


@pytest.fixture
def model(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub that holds a checkpoint to be repaired, and times that are short."""
    hub.create("org/m", tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*"))
    for name in ("HEAD", "DEADLINE"):
        monkeypatch.setattr(http, name, 0.8)
    monkeypatch.setattr(http, "BACKOFF", 0.0)
    monkeypatch.setattr("mtpfix.hub.remote.DEADLINE", 2.0)
    return hub


def byte_by_byte(what: str) -> Callable[..., None]:
    head, body = HEADS[what]
    return dripping(body, head) if body else dripping(head)


def ran(command: tuple[str, ...], token: str = "") -> tuple[int, str]:
    found = CliRunner().invoke(main, [*command, *(("--token", token) if token else ())])
    return found.exit_code, found.output


@pytest.mark.parametrize("what", HEADS)
@pytest.mark.parametrize("command", READING)
def test_an_answer_byte_by_byte(model: Hub, command: tuple[str, ...], what: str) -> None:
    model.fault(".*", byte_by_byte(what), 100)
    begun = time.monotonic()
    code, text = ran(command)
    assert code == 3, text
    assert "too long" in text
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("what", HEADS)
def test_an_answer_to_what_is_written_byte_by_byte(model: Hub, what: str) -> None:
    """It may have been done: the list is asked, which says that it was not."""
    model.fault("POST .*/commit/", byte_by_byte(what), 100)
    begun = time.monotonic()
    code, text = ran(WRITING, OWNER)
    assert code == 3, text
    assert time.monotonic() - begun < 20
    assert "unexpected" not in text
    assert model.count("POST", "/commit/") == 0


def to(place: str, code: int, body: bytes = b"") -> Callable[..., None]:
    return lambda handler, _go: handler.answer(code, body, {"Location": place})


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_what_is_written_stays_on_its_host(model: Hub, code: int) -> None:
    """The client would send the files on, after 307 and 308, or take the other host's answer for the Hub's."""
    with Hub() as other:
        model.fault("POST .*/commit/", to(f"{other.url}/api/models/org/m/commit/main?create_pr=1", code), 100)
        found, text = ran(WRITING, OWNER)
        assert other.calls == []
    assert found == 3, text
    assert "another host, 127.0.0.1:" in text


def test_what_is_written_is_led_on_within_its_host(model: Hub) -> None:
    """As the Hub does for a repository that has another name now."""
    model.fault("POST .*/commit/", lambda handler, _go: handler.answer(307, b"", {"Location": handler.path}), 1)
    code, text = ran(WRITING, OWNER)
    assert code == 0, text
    assert model.count("POST", "/commit/") == 2


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_the_token_stays_on_its_host(model: Hub, code: int) -> None:
    with Hub() as other:
        model.fault("resolve", lambda handler, go: to(f"{other.url}{handler.path}", code)(handler, go), 100)
        found, text = ran(("check", "org/m"), OWNER)
        assert other.calls
        assert not any("authorization" in call.headers or OWNER in str(call) for call in other.calls)
    assert found == 3, text


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//", "http://[", "javascript:1", "/a b\0"]
)
def test_a_redirect_to_no_web_address(model: Hub, place: str) -> None:
    model.fault("resolve", to(place, 302), 100)
    code, text = ran(("check", "org/m"))
    assert code == 3, text
    assert "unexpected" not in text


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_without_end(model: Hub, code: int) -> None:
    model.fault("resolve", lambda handler, go: to(handler.path, code)(handler, go), 10_000)
    found, text = ran(("check", "org/m"))
    assert found == 3, text
    assert "from address to address" in text


def test_a_connection_is_used_again_after_a_redirect(model: Hub) -> None:
    ports = set()

    def note(handler: object, go: Callable[[], None]) -> None:
        ports.add(handler.client_address)  # type: ignore[attr-defined]
        go()

    session = http.Session(Access(), "org/m")
    for _ in range(3):
        model.fault("resolve", lambda handler, _go: to("/api/models/org/m", 302, b"x" * 100)(handler, _go), 1)
        model.fault("api/models/org/m", note, 1)
        session.get("/org/m/resolve/main/config.json", limit=1 << 20)
    assert len(ports) == 1
