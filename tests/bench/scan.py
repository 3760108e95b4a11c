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


def repositories(folder: Path, count: int) -> Iterator[Path]:
    """So many checkpoints, half of them right; no two files are alike, so that no cache helps.

    On disk, weights as holes: this process has to stay small (see `tests.bench.process.measured`).
    """
    lists = {"wrong": "mtp.layers.0*", "right": "mtp*"}
    kinds = [tiny.qwen3_next(folder / name, entry) for name, entry in lists.items()]
    for number in range(count):
        place = folder / f"m{number:05}"
        place.mkdir()
        for path in kinds[number % 2].iterdir():
            _mark(path, place / path.name, number)
        yield place


def _mark(path: Path, copy: Path, number: int) -> None:
    """Copy a file with a number in it."""
    if path.suffix != ".safetensors":
        copy.write_text(json.dumps({**json.loads(path.read_bytes()), "number": number}))
        return
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(length))
    header = json.dumps({"__metadata__": {"number": str(number)}, **tensors}, separators=(",", ":")).encode()
    with copy.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + path.stat().st_size - 8 - length)


def compare(count: int) -> None:
    """Scan a tenth of them, then all; print how fast and how large."""
    runs: dict[int, Run] = {}
    with tempfile.TemporaryDirectory() as folder, Hub() as hub:
        for place in repositories(Path(folder), count):
            hub.create(f"org/{place.name}", place)
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
