"""The benchmark: how long mtpfix takes, side by side with what else reads the same headers.

    python -m tests.bench.run            true sizes, everything: some minutes
    python -m tests.bench.run --quick    small sizes, fewer rounds: under a minute, what CI runs
    python -m tests.bench.run --part start --part local

From the root of the repository. Checkpoints are forged in a temporary folder (sparse: 100 MB of disk). Goals are
reported, never enforced: the exit code is 0 as long as the processes run. docs/benchmark.md says what is measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from tests.bench import growth, local, start
from tests.bench.process import ENVIRONMENT, ROOT


@dataclass(frozen=True, slots=True)
class Size:
    """How large everything is and how often it runs."""

    rounds: int
    starts: int
    models: tuple[tuple[str, dict[str, int]], ...]
    layers: int
    entries: int
    remote: dict[str, int]
    repositories: int
    grafted: int  # experts of the draft that is copied


FULL = Size(
    9, 25, (("qwen3-next", {}), ("deepseek-v3", {}), ("deepseek-v3", {"scripted": True})), 4, 500, {}, 1000, 256
)
SMALL = {"layers": 8, "shards": 16}
QUICK = Size(3, 5, (("deepseek-v3", SMALL),), 2, 500, {**SMALL, "experts": 32}, 60, 32)


def _local(size: Size) -> None:
    for name, chosen in size.models:
        local.compare(name, size.rounds, **chosen)


def _remote(size: Size) -> None:
    with tempfile.TemporaryDirectory() as folder:
        local.forged(folder, "deepseek-v3", **size.remote)
        _apart("tests.bench.remote", folder)


def _graft(size: Size) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _apart("tests.bench.graft", folder, str(size.grafted), str(size.rounds))


def _apart(module: str, *arguments: str) -> None:
    """A part that measures memory or has a Hub in it, as a process of its own; what it prints is passed on."""
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, env=ENVIRONMENT, check=True)


TOOLS = ("click", "huggingface_hub", "safetensors", "msgspec", "orjson")
PARTS: Mapping[str, Callable[[Size], None]] = {
    "start": lambda size: start.compare(size.starts),
    "local": _local,
    "growth": lambda size: growth.compare(size.rounds, size.layers, size.entries),
    "remote": _remote,
    "graft": _graft,
    "scan": lambda size: _apart("tests.bench.scan", str(size.repositories)),
}


def main() -> None:
    """Run the parts, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--rounds", type=int, help="how often the large checkpoints are read")
    chosen = parser.parse_args()
    size = QUICK if chosen.quick else FULL
    size = replace(size, rounds=chosen.rounds or size.rounds)
    for name in chosen.part or PARTS:
        PARTS[name](size)
    tools = ", ".join(f"{name} {_version(name)}" for name in TOOLS)
    python = sys.version.split()[0]
    print(f"Python {python}; {tools}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
