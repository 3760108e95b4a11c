"""`mtpfix scan` of many repositories on a loopback Hub: how many a minute, and whether its memory stays.

    python -m tests.bench.scan REPOSITORIES

Run by `tests.bench.run`, as a process of its own: the Hub is in it and takes its share of the processors.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import tiny
from tests.bench.process import MTPFIX, Run, goal, on_hub, ours
from tests.hub import Hub

GROWTH = 15  # MB that the larger scan may take more than the smaller: a row of its summary is a kilobyte


def repositories(folder: Path, count: int) -> Iterator[dict[str, bytes]]:
    """Files of so many checkpoints, half of them right; no two files are alike, so that no cache helps."""
    lists = {"wrong": "mtp.layers.0*", "right": "mtp*"}
    kinds = [_files(tiny.qwen3_next(folder / name, entry)) for name, entry in lists.items()]
    for number in range(count):
        yield {name: _marked(name, raw, number) for name, raw in kinds[number % 2].items()}


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _marked(name: str, raw: bytes, number: int) -> bytes:
    """The file with a number in it."""
    if not name.endswith(".safetensors"):
        return json.dumps({**json.loads(raw), "number": number}).encode()
    length = int.from_bytes(raw[:8], "little")
    header = json.dumps({"__metadata__": {"number": str(number)}, **json.loads(raw[8 : 8 + length])}).encode()
    return struct.pack("<Q", len(header)) + header + raw[8 + length :]


def compare(count: int) -> None:
    """Scan a tenth of them, then all; print how fast and how large."""
    runs: dict[int, Run] = {}
    with tempfile.TemporaryDirectory() as folder, Hub() as hub:
        for number, files in enumerate(repositories(Path(folder), count)):
            hub.create(f"org/m{number:05}", files)
        print(f"== scan: {count:,} repositories")
        print(f"{'repositories':>12}{'wall s':>9}{'a minute':>10}{'cpu s':>8}{'MB':>6}{'requests':>10}")
        for limit in (count // 10, count):
            hub.forget()
            runs[limit] = _scan(hub, limit, f"{folder}/{limit}")
            run = runs[limit]
            speed = f"{run.wall:9.1f}{60 * limit / run.wall:10,.0f}{run.cpu:8.1f}"
            print(f"{limit:12,}{speed}{run.memory:6.0f}{hub.count():10,}")
    more = runs[count].memory - runs[count // 10].memory
    print(goal("more memory for ten times the repositories", more, GROWTH, " MB") + "\n")


def _scan(hub: Hub, limit: int, cache: str) -> Run:
    return ours([*MTPFIX, "scan", "org", "--limit", str(limit)], on_hub(hub.url, cache))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    compare(int(sys.argv[1]))
