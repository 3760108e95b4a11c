"""`mtpfix scan --dask` on a cluster of processes of its own: the same rows, whatever happens to a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner
from documents import valid

import mtpfix
from hub import OWNER, Hub, slow
from mtpfix.checkpoint.access import Access
from mtpfix.cli import main
from mtpfix.errors import UsageError
from mtpfix.hub import cluster as module

pytest.importorskip("distributed", reason="Dask is not installed (it is in mtpfix[dask])")

VERSION = mtpfix.__version__
ENGINE = ("--engine", "vllm==0.24.0")


class Cluster:
    """A scheduler and its workers, each a process, known by a file that the scheduler writes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text("utf-8"))["address"])

    def start(self, *args: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *args, "--scheduler-file", str(self.file), "--no-dashboard"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env={**os.environ, **env},
        )
        self.processes.append(process)
        return process

    def ready(self, workers: int) -> None:
        """Wait until so many workers are there."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)

    def work(self, **env: str) -> subprocess.Popen[bytes]:
        """A worker with two threads."""
        return self.start("distributed.cli.dask_worker", "--nthreads", "2", "--no-nanny", **env)


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        cluster.start("distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1")
        end = time.monotonic() + 60
        while not cluster.file.exists() or not cluster.file.read_bytes():
            assert time.monotonic() < end
            time.sleep(0.05)
        yield cluster
    finally:
        for process in cluster.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with started(folder) as found:
        yield found


@pytest.fixture
def org(hub: Hub, tmp_path: Path) -> Hub:
    hub.create("org/wrong", tiny.qwen3_next(tmp_path / "wrong", "mtp.layers.0*"))
    hub.create("org/secret", tiny.qwen3_next(tmp_path / "right", "mtp*"), private=True)
    hub.create("org/text", {"README.md": b"# nothing"})
    return hub


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "mtpfix", "scan", *ENGINE, *args]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), capture_output=True, encoding="utf-8", timeout=120, check=False)


def rows(text: str) -> dict[str, Any]:
    found = [valid(line, "unreadable_row" if '"error"' in line else "scan_row") for line in text.splitlines(True)]
    return {row["repository"]: row for row in found}


def test_the_same_rows_as_here(org: Hub, cluster: Cluster, tmp_path: Path) -> None:
    """The workers look at the Hub that the scan is about, with the token given here; what they ask is counted."""
    elsewhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path / "other"), "HF_TOKEN": ""}
    cluster.work(**elsewhere)
    cluster.work(**elsewhere)
    state = str(tmp_path / "state.jsonl")
    given = ("org", "--token", OWNER, "--stats")
    found = run(*given, "--dask", cluster.address, "--state", state)
    sent = org.count()
    assert (found.returncode, f"{sent} requests, " in found.stderr, OWNER in found.stderr) == (1, True, False)
    assert rows(found.stdout) == rows(run(*given).stdout)
    assert {name: row["status"] for name, row in rows(found.stdout).items()} == {
        "org/wrong": "fixable",
        "org/secret": "clean",
        "org/text": "unreadable",
    }
    again = run(*given, "--dask", cluster.address, "--state", state)
    assert (again.returncode, again.stdout) == (1, "")


def test_a_worker_that_is_killed_costs_nothing(hub: Hub, cluster: Cluster, tmp_path: Path) -> None:
    for number in range(30):
        hub.create(f"org/{number}", {"README.md": b"x"})
    hub.fault("GET /api/models/org/", slow(0.1), float("inf"))
    state = tmp_path / "state.jsonl"
    first = cluster.work()
    scan = subprocess.Popen(
        command("org", "--dask", cluster.address, "--state", str(state)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    while scan.poll() is None and (not state.exists() or state.read_bytes().count(b"\n") < 10):
        time.sleep(0.01)
    cluster.work()
    first.send_signal(signal.SIGKILL)
    out, said = scan.communicate(timeout=120)
    names = [json.loads(line)["repository"] for line in out.splitlines()]
    assert (len(names), len(set(names))) == (30, 30), said
    assert all("no config.json" in row["error"] for row in rows(out).values())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x", "x"])
def test_a_cluster_that_is_none(hub: Hub, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    found = CliRunner().invoke(main, ["scan", "org/a", "--dask", address])
    assert (found.exit_code, found.stdout) == (3, "")
    assert "Error: --dask: no Dask cluster answers there" in found.stderr


def test_workers_with_another_release_are_refused(hub: Hub, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.work()
    cluster.ready(1)
    monkeypatch.setattr(mtpfix, "__version__", "99.0")
    with pytest.raises(UsageError, match=f"workers of the cluster have {VERSION}"):
        list(module.scan_on(cluster.address, ["org/a"], module.Look(Access())))
    assert hub.count() == 0


def test_without_dask_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    found = CliRunner().invoke(main, ["scan", "org/a", "--dask", "tcp://127.0.0.1:9"])
    assert (found.exit_code, "pip install 'mtpfix[dask]'" in found.stderr) == (2, True)
