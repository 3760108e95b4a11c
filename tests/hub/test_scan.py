"""`mtpfix scan` over the loopback Hub: every repository a row, nothing twice, killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner, Result
from documents import valid

from hub import Hub, Limit, body, rate_limited, status
from mtpfix.cli import main
from mtpfix.errors import ConflictError, UsageError
from mtpfix.hub.scan import State, listed_in, scan

ROWS = ("scan_row", "unreadable_row")
ENGINE = ("--engine", "vllm==0.33.0")


@pytest.fixture
def org(hub: Hub, tmp_path: Path) -> Hub:
    """Two checkpoints, one of them wrong in old releases, and one repository that is no checkpoint."""
    hub.create("org/wrong", tiny.qwen3_next(tmp_path / "wrong", "mtp.layers.0*"))
    hub.create("org/right", tiny.qwen3_next(tmp_path / "right", "mtp*"))
    hub.create("org/text", {"README.md": b"# nothing"})
    hub.create("other/right", tiny.qwen3_next(tmp_path / "other", "mtp*"))
    return hub


def run(*args: str, engine: str = "vllm==0.24.0") -> Result:
    return CliRunner().invoke(main, ("scan", "--engine", engine, *args))


def rows(result: Result) -> dict[str, Any]:
    found = [valid(line, ROWS[' "unreadable"' in line]) for line in result.stdout.splitlines(keepends=True)]
    return {row["repository"]: row for row in found}


@pytest.mark.usefixtures("org")
def test_an_organisation() -> None:
    result = run("org")
    found = rows(result)
    assert {name: row["status"] for name, row in found.items()} == {
        "org/wrong": "fixable",
        "org/right": "clean",
        "org/text": "unreadable",
    }
    assert found["org/wrong"]["findings"] == {"MTP001": 1}
    assert found["org/wrong"]["engines"]["vllm"] == {"target": "loads", "draft": "fails"}
    assert result.exit_code == 1
    assert "3 repositories: 1 clean, 1 fixable, 1 unreadable." in result.stderr


@pytest.mark.usefixtures("org")
def test_a_search_and_a_list(tmp_path: Path) -> None:
    assert set(rows(run("--search", "right"))) == {"org/right", "other/right"}
    listed = tmp_path / "list.txt"
    listed.write_text("other/right  # fine\n\norg/gone\nother/right\nnot a name\n")
    found = rows(run("--file", str(listed)))
    assert {name: row["status"] for name, row in found.items()} == {
        "other/right": "clean",
        "org/gone": "unreadable",
        "not a name": "unreadable",
    }


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 2),
        (("org", "--revision", "x"), 2),
        (("org", "-e"), 0),
        (("org/text",), 3),
        (("org/right",), 0),
        (("no",), 3),
        (("--search", "no-such-name"), 0),
        ((".",), 2),
        (("/org",), 2),
    ],
)
@pytest.mark.usefixtures("org")
def test_exit_codes(args: tuple[str, ...], code: int) -> None:
    assert run(*args).exit_code == code


@pytest.mark.usefixtures("org")
def test_a_wrong_engine_is_said_once() -> None:
    result = run("org", engine="vlm")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("front", ["", "http://127.0.0.1:9"])
def test_pages_are_asked_of_the_same_hub(org: Hub, front: str) -> None:
    """A link may be relative, and may lead elsewhere, where the token must not go."""
    link = {"Link": f'<{front}/api/models?author=org&cursor=0&limit=9>; rel="next"'}
    org.fault(r"GET /api/models\?", body(b'[{"id": "org/right"}]', link))
    assert set(rows(run("org"))) == {"org/right", "org/text", "org/wrong"}
    org.fault(r"GET /api/models\?", body(b'[{"id": "org/right"}]', link), float("inf"))
    assert set(rows(run("org"))) == {"org/right"}


@pytest.mark.parametrize("raw", [b"{}", b"<html>", b"[" * 100_000])
def test_a_list_that_is_none(org: Hub, raw: bytes) -> None:
    org.fault(r"GET /api/models\?", body(raw))
    assert run("org").exit_code == 3


def test_a_wait_holds_for_all_repositories(org: Hub) -> None:
    for number in range(8):
        org.create(f"many/{number}", {"README.md": b"x"})
    org.fault("GET /api/models/many/", rate_limited(0.5))
    assert len(rows(run("many", "-j", "2"))) == 8
    assert sum(call.status == 429 for call in org.calls) == 1


def test_a_hub_that_refuses_is_asked_less(org: Hub) -> None:
    """Not everyone that waits rushes in when the wait is over, which would be a refusal a repository."""
    for number in range(60):
        org.create(f"many/{number}", {"README.md": b"x"})
    org.limit = Limit(20, 0.5)
    assert len(rows(run("many", "-j", "16"))) == 60
    assert sum(call.status == 429 for call in org.calls) < 45


def test_a_hub_that_does_not_list_is_an_error(org: Hub) -> None:
    org.fault("GET /api/models\\?", status(404), float("inf"))
    assert run("org").exit_code == 3


def test_a_second_run_does_nothing_twice(org: Hub, tmp_path: Path) -> None:
    state = str(tmp_path / "state.jsonl")
    first = run("org", "--state", state)
    org.forget()
    second = run("org", "--state", state)
    assert len(rows(first)) == 3
    assert (second.stdout, second.exit_code) == ("", 1)
    assert "3 repositories" in second.stderr
    assert org.count() == 1


def test_the_state_of_another_scan_is_refused(org: Hub, tmp_path: Path) -> None:
    state = str(tmp_path / "state.jsonl")
    run("org/right", "--state", state)
    assert run("org/wrong", "--state", state).exit_code == 2
    Path(state).write_text("something else\n")
    assert run("org/right", "--state", state).exit_code == 2
    assert Path(state).read_text() == "something else\n"


@pytest.mark.parametrize("text", ["a line without an end", '{"scam', '{"a": 1}\n{"repo'])
def test_a_file_that_is_no_state_stays_as_it_is(org: Hub, tmp_path: Path, text: str) -> None:
    """Its last line is not taken for one that a kill has cut off."""
    path = tmp_path / "notes"
    path.write_text(text)
    result = run("org/right", "--state", str(path))
    assert (result.exit_code, path.read_text()) == (2, text), result.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"status": 7}, {"status": None}, {"repository": None}, {"findings": []}, {"findings": {"MTP001": "x"}},
        {"engines": {"vllm": 3}}, {"entries": None},
        {"status": "unreadable", "error": "e"}, {"scan": {}, "repository": 1},
    ],
    ids=str,
)  # fmt: skip
def test_rows_that_no_scan_has_written_are_refused(org: Hub, tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "state"
    assert run("org/right", "--state", str(path), "--html", str(tmp_path / "page")).exit_code == 0
    head, row = path.read_text().splitlines()
    path.write_text(f"{head}\n{row}\n")
    assert run("org/right", "--state", str(path), "--html", str(tmp_path / "page")).exit_code == 0
    path.write_text(f"{head}\n{json.dumps({**json.loads(row), **change})}\n")
    result = run("org/right", "--state", str(path), "--html", str(tmp_path / "page"))
    assert (result.exit_code, "no state of a scan" in result.stderr) == (2, True), result.stderr


def test_a_state_is_no_pipe_and_no_device(org: Hub, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/zero")):
        result = run("org/right", "--state", str(path))
        assert (result.exit_code, "no state of a scan" in result.stderr) == (2, True), result.stderr


def row(name: str) -> dict[str, Any]:
    """A row as a scan writes it."""
    return {"repository": name, "status": "clean", "family": None, "format": None} | {
        key: {} for key in ("findings", "engines", "entries")
    }


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    with State(str(path), {}) as state:
        state.add(row("a/b"))
        state.add(row("c/d"))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with State(str(path), {}) as state:
            assert state.done() in (frozenset(), {"a/b"})
            state.add(row("e/f"))
        with State(str(path), {}) as state:
            assert "e/f" in state.done()
    with State(str(path), {}), pytest.raises(ConflictError), State(str(path), {}):
        pass
    with pytest.raises(UsageError), State(str(path), {"other": 1}):
        pass


def test_no_more_at_once_than_asked_for() -> None:
    now, most, lock = 0, 0, threading.Lock()
    taken: list[int] = []

    def names() -> Any:
        for number in range(40):
            taken.append(number)
            yield f"org/{number}"

    def look(name: str) -> dict[str, Any]:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.002)
        with lock:
            now -= 1
        return {"repository": name}

    found = [row["repository"] for row in scan(names(), look, jobs=3)]
    assert (len(found), len(set(found))) == (40, 40)
    assert most <= 3


def test_lists_have_remarks() -> None:
    assert listed_in("# all\na/b # one\n\n  c/d\na/b\n") == ("a/b", "c/d")


def test_of_500_killed_in_the_middle_it_goes_on(hub: Hub, tmp_path: Path) -> None:
    """kill -9 with rows on their way: none is lost, none comes twice, and hardly one is asked for twice."""
    checkpoint = tiny.qwen3_next(tmp_path / "checkpoint", "mtp*")
    for number in range(500):
        hub.create(f"org/{number}", checkpoint if number % 50 == 0 else {"README.md": b"x"})
    state, out = tmp_path / "state.jsonl", tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "mtpfix", "scan", "org", "--state", str(state), "-j", "4", *ENGINE]
    with out.open("ab") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env=dict(os.environ))
        while process.poll() is None and (not state.exists() or state.read_bytes().count(b"\n") < 200):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = state.read_bytes().count(b"\n") - 1
        assert 199 <= kept < 500
        hub.forget()
        subprocess.run(command, stdout=stdout, stderr=subprocess.DEVNULL, env=dict(os.environ), check=False)
    rows = [json.loads(line) for line in state.read_bytes().splitlines()[1:]]
    assert (len(rows), len({row["repository"] for row in rows})) == (500, 500)
    assert sum(row["status"] == "clean" for row in rows) == 10
    told = [json.loads(line)["repository"] for line in out.read_bytes().splitlines()]
    assert len(told) == len(set(told)) >= 499  # a row is kept before it is told
    asked = Counter(call.path for call in hub.calls if call.path.endswith("/revision/main"))
    assert sum(asked.values()) == len(asked) == 500 - kept


@pytest.mark.usefixtures("org")
def test_what_could_not_be_inspected_is_looked_at_again_on_request(org: Hub, tmp_path: Path) -> None:
    state = str(tmp_path / "state.jsonl")
    org.fault("GET /api/models/org/wrong", status(403), float("inf"))
    assert rows(run("org", "--state", state))["org/wrong"]["status"] == "unreadable"
    org.faults.clear()
    assert set(rows(run("org", "--state", state, "--again"))) == {"org/wrong", "org/text"}
    result = run("org", "--state", state)
    assert (result.stdout, "1 clean, 1 fixable, 1 unreadable" in result.stderr) == ("", True)
    assert run("org", "--again").exit_code == 2


def test_the_page_shows_every_row_and_loads_nothing(org: Hub, tmp_path: Path) -> None:
    listed, page = tmp_path / "list.txt", tmp_path / "page.html"
    listed.write_text("org/wrong\norg/right\n<script>alert(1)</script>\norg/a\u202eb\n", "utf-8")
    org.fault("org/right/resolve", status(403, {"X-Error-Message": "<img src=x onerror=y>"}), float("inf"))
    run("--file", str(listed), "--html", str(page))
    text = page.read_text("utf-8")
    tags = Tags(text)
    assert {"script", "img", "link", "iframe"}.isdisjoint(tags.names)
    assert tags.names.count("details") == 2
    assert f"{org.url}/org/wrong/tree/{org.repositories['org/wrong'].head()}" in tags.links
    assert "default-src 'none'" in text
    assert "\u202e" not in text
    for shown in ("org/wrong", "MTP001", "draft fails", "&lt;img src=x", "&lt;script&gt;alert(1)", "1 fixable"):
        assert shown in text


def test_a_page_of_nothing(hub: Hub, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("--search", "nothing-like-it", "--html", str(page)).exit_code == 0
    assert "0 repositories" in page.read_text("utf-8")
    assert run("nobody", "--html", str(tmp_path / "no" / "page.html")).exit_code == 3


class Tags(HTMLParser):
    """The elements of a page and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value for name, value in attrs if name == "href"]


def test_an_owner_of_nothing(hub: Hub) -> None:
    """A name that is misspelt looks like one without repositories, the Hub does not tell them apart: a job that is
    meant to watch an organisation must not go on in peace. A search may find nothing."""
    result = CliRunner().invoke(main, ["scan", "nobody"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert CliRunner().invoke(main, ["scan", "nobody", "--exit-zero"]).exit_code == 3
    assert "0 repositories: none can be seen; check the name" in " ".join(result.stderr.split())
