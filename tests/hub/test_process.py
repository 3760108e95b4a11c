"""mtpfix as a process against a Hub: what is printed where, exit codes, progress, and that no token gets out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner, Result

from hub import OWNER, Hub, slow, status
from mtpfix.cli import main

MTPFIX = (sys.executable, "-m", "mtpfix")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return tiny.qwen3_next(tmp_path / "single", "mtp.layers.0*")


def run(*args: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MTPFIX")}
    env |= {"HF_TOKEN": token} if token else {}
    return subprocess.run([*MTPFIX, *args], capture_output=True, encoding="utf-8", env=env, timeout=60, check=False)


def test_check_with_stats(hub: Hub, single: Path) -> None:
    repo = hub.create("org/m", single, private=True)
    found = run("check", "org/m", "--format", "json", "--stats", token=OWNER)
    assert found.returncode == 1
    value = json.loads(found.stdout)
    assert value["source"] == {"kind": "hub", "id": "org/m", "revision": repo.head()}
    assert found.stderr.endswith(f"{hub.count()} requests, {hub.sent} bytes received\n")
    assert hub.count() == 5
    hub.forget()
    again = run("check", "hf://org/m", "--stats", "--token", OWNER)
    assert "\n1 request, " in f"\n{again.stderr}"
    assert OWNER not in f"{found.stdout}{found.stderr}{again.stdout}{again.stderr}"


def test_every_command_takes_it(hub: Hub, single: Path, tmp_path: Path) -> None:
    def run(*args: str) -> Result:
        return CliRunner().invoke(main, args)

    hub.create("org/m", single)
    bundle = str(tmp_path / "bundle.tar.gz")
    assert run("snapshot", f"{hub.url}/org/m", "-o", bundle).exit_code == 0
    for source in ("org/m", bundle, str(single)):
        listed, explained = run("list", source), run("explain", source, "mtp.fc", "--format", "json")
        assert (listed.exit_code, explained.exit_code) == (0, 0)
        assert "mtp.fc" in listed.stdout
        shown = run("apply", source, "--dry-run")
        assert shown.exit_code == 1
        assert '+      "mtp.fc' in shown.stdout
    refused = run("apply", "org/m", "--yes")
    assert (refused.exit_code, "only a directory" in refused.stderr) == (2, True)


def test_errors(hub: Hub, single: Path) -> None:
    hub.create("org/m", single)
    gone = run("check", "org/gone", token=OWNER)
    assert (gone.returncode, gone.stdout) == (3, "")
    assert re.match(r"Error: org/gone: .*\nHint: .*", gone.stderr)
    assert run("check", "org/m", "--revision", "none").returncode == 3
    assert run("check", str(single), "--revision", "v1").returncode == 2
    wrong = run("check", "org/m", "--token", "hf_bad\nX-Evil: 1")
    assert (wrong.returncode, "hf_bad" in wrong.stderr) == (2, False)
    hub.fault("revision", status(403, {"X-Error-Message": f"no \x1b[31m{OWNER}"}))
    denied = run("check", "org/m", token=OWNER)
    assert (denied.returncode, OWNER in denied.stderr, "\x1b" in denied.stderr) == (3, False, False)


def test_progress_after_a_second(hub: Hub, single: Path) -> None:
    hub.create("org/m", single)
    hub.fault("config.json", slow(2))
    assert re.search("(Reading from|Asking) the Hub", run("check", "org/m").stderr)


def test_progress_of_a_pull_request(hub: Hub, single: Path) -> None:
    hub.create("org/m", single)
    run("check", "org/m")
    hub.fault("preupload", slow(2))
    found = run("apply", "org/m", "--create-pr", "-y", token=OWNER)
    assert (found.returncode, "Asking the Hub ..." in found.stderr) == (0, True)


def test_the_server_by_hand(single: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.hub", str(single.parent)], stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "org/single\n"
        assert server.stdout.readline() == "\n"
        assert server.stdout.readline().startswith("export HF_ENDPOINT=http://127.0.0.1:")
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_ENDPOINT", "http://[::1"),
        ("HF_ENDPOINT", "http://127.0.0.1:99999"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "abc"),
        ("https_proxy", "://"),
        ("all_proxy", "socks9://x"),
    ],
)
@pytest.mark.parametrize("command", [("check", "org/m"), ("apply", "org/m", "--create-pr"), ("scan", "org")])
def test_a_variable_that_the_client_does_not_take(command: tuple[str, ...], name: str, value: str) -> None:
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_none", name: value}
    done = subprocess.run(
        [sys.executable, "-m", "mtpfix", *command], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "does not take a variable" in done.stderr
