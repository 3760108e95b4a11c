"""A checkpoint on a Hub that takes 40 ms for each request: requests, bytes and time against huggingface_hub's reader.

    python -m tests.bench.remote FOLDER

Run by `tests.bench.run`, as a process of its own: the loopback Hub of tests/hub is in it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.process import MTPFIX, Command, goal, on_hub, ours
from tests.hub import Hub, slow
from tests.hub.repositories import LFS_BYTES

DELAY = 0.04
FEWER = 5.0
REPOSITORY = "org/model"
# All headers, and the commit again: this answer is of the branch as it is, whatever commit was asked for.
ANSWER = 2
THEIRS = "import sys; from huggingface_hub import get_safetensors_metadata; get_safetensors_metadata(sys.argv[1])"
# The same requests, as many at once, and nothing done with the answers: what this Hub takes, and a client at least.
FLOOR = """
import json, os, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor

def get(path, **headers):
    asked = urllib.request.Request(os.environ["HF_ENDPOINT"] + path, headers=headers)
    with urllib.request.urlopen(asked) as answer:
        return answer.read()

repo, longest = sys.argv[1], int(sys.argv[2])
info = json.loads(get(f"/api/models/{repo}/revision/main?blobs=true"))
names = [file["rfilename"] for file in info["siblings"]]
with ThreadPoolExecutor(16) as pool:
    jobs = [pool.submit(get, f"/{repo}/resolve/{info['sha']}/{name}") for name in names if name.endswith(".json")]
    if longest:
        span = {"Range": f"bytes=0-{longest - 1}"}
        shards = [name for name in names if name.endswith(".safetensors")]
        jobs += [pool.submit(get, f"/{repo}/resolve/{info['sha']}/{name}", **span) for name in shards]
    else:
        all_headers = f"/api/models/{repo}/safetensors-metadata/model.safetensors.index.json"
        jobs.append(pool.submit(get, all_headers, **{"Accept-Encoding": "gzip"}))
    for job in jobs:
        job.result()
"""
HEAD = f"{'':44}{'requests':>9}{'MB':>8}{'wall s':>8}{'cpu s':>8}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one process asked the Hub for."""

    requests: int
    megabytes: float
    wall: float
    cpu: float

    @property
    def line(self) -> str:
        return f"{self.requests:9}{self.megabytes:8.2f}{self.wall:8.2f}{self.cpu:8.2f}"


def compare(folder: Path) -> None:
    """Check the repository with and without the answer that holds all headers, anew and again; then their reader."""
    shards = len(list(folder.glob("*.safetensors")))
    headers = sum(_header(path) for path in folder.glob("*.safetensors")) / 1e6
    check = [*MTPFIX, "check", REPOSITORY]
    with Hub() as hub:
        hub.create(REPOSITORY, folder)
        hub.fault("", slow(DELAY), float("inf"))
        print(f"== remote: {shards} shards, {headers:.1f} MB of headers, {DELAY * 1000:.0f} ms a request")
        print(HEAD)
        found: dict[str, Asked] = {}
        for way, offered in (("all headers in one answer", True), ("a range a shard", False)):
            hub.metadata = offered
            with tempfile.TemporaryDirectory() as cache:
                for name in (f"mtpfix check, {way}", f"mtpfix check, {way}, again"):
                    found[name] = _ask(hub, check, cache)
                    print(f"{name:44}{found[name].line}", flush=True)
                longest = 0 if offered else int(1e6 * headers / shards)
                floor = _ask(hub, [sys.executable, "-c", FLOOR, REPOSITORY, str(longest)], cache)
                print(f"{'urllib alone, the same requests':44}{floor.line}", flush=True)
        with tempfile.TemporaryDirectory() as cache:
            hub.metadata = True
            found["theirs"] = _ask(hub, [sys.executable, "-c", THEIRS, REPOSITORY], cache)
            print(f"{'huggingface_hub.get_safetensors_metadata':44}{found['theirs'].line}")
    _goals(found, _least(folder), shards, headers)


def _least(folder: Path) -> int:
    """The commit, two JSON files and the index, which the Hub redirects to its store where it is large."""
    return 4 + ((folder / "model.safetensors.index.json").stat().st_size > LFS_BYTES)


def _goals(found: Mapping[str, Asked], least: int, shards: int, headers: float) -> None:
    one, ranges = found["mtpfix check, all headers in one answer"], found["mtpfix check, a range a shard"]
    theirs = found["theirs"]
    print(goal("requests with all headers in one answer", one.requests, least + ANSWER))
    # Shards are redirected too: two requests for a range. One more finds out that there is no answer for all.
    print(goal("requests with a range a shard", ranges.requests, least + 1 + 2 * shards))
    print(f"bytes of the ranges: {ranges.megabytes:.1f} MB with the index, for {headers:.1f} MB of headers")
    most = max(theirs.requests / one.requests, theirs.megabytes / one.megabytes)
    print(f"fewer requests or bytes than huggingface_hub: {most:.0f} times, goal {FEWER:g}: ", end="")
    print("met\n" if most >= FEWER else "NOT MET\n")


def _header(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def _ask(hub: Hub, command: Command, cache: str) -> Asked:
    hub.forget()
    run = ours(command, on_hub(hub.url, cache))
    return Asked(hub.count(), hub.sent / 1e6, run.wall, run.cpu)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    compare(Path(sys.argv[1]))
