"""How long `mtpfix check` takes on a very large checkpoint, against a process that only parses its headers.

    python -m tests.bench.run            180,000 tensors in 162 shards, 9 rounds
    python -m tests.bench.run --quick    a tenth of that, 3 rounds

From the root of the repository. The checkpoint is forged in a temporary folder (sparse: 40 MB of disk). Each round
runs every process once, so that what else the machine does meets all of them alike. Whole processes are measured, as a
user sees them: wall time, processor time (user + system) and peak memory, from `wait4`. The goal, twice the floor with
the standard library's parser and 100 MB, is reported, never enforced: the exit code is 0 as long as the processes run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
RATIO, MEGABYTES = 2.0, 100
FORGE = (
    "import sys; from tests.bench.forge_large import forge; "
    "print(forge(sys.argv[1], int(sys.argv[2]), layers=int(sys.argv[3])))"
)
CHECK, FLOOR = "mtpfix check", "floor, json"


@dataclass(frozen=True, slots=True)
class Size:
    """How large the checkpoint is and how often everything runs."""

    layers: int
    shards: int
    rounds: int


FULL, QUICK = Size(61, 162, 9), Size(8, 16, 3)


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds of wall time and of processor time, peak memory in MB."""

    wall: float
    cpu: float
    memory: float


def forged(folder: str, size: Size) -> int:
    """Forge the checkpoint in a process of its own; the number of tensors is returned."""
    command = [sys.executable, "-c", FORGE, folder, str(size.shards), str(size.layers)]
    return int(subprocess.run(command, cwd=HERE.parents[1], check=True, capture_output=True, text=True).stdout)


def measured(command: list[str]) -> Run:
    """Run a process to its end. This one stays small: a child's peak memory counts from its parent's at the start."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
    unit = 1_000_000 if sys.platform == "darwin" else 1_000  # bytes there, kilobytes elsewhere
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def commands(folder: str) -> dict[str, list[str]]:
    """What is measured, by name."""
    floor = [sys.executable, str(HERE / "floor.py"), folder]
    found = {CHECK: [sys.executable, "-m", "mtpfix", "check", folder], FLOOR: [*floor, "json"]}
    if find_spec("msgspec"):
        found["floor, msgspec"] = [*floor, "msgspec"]
    return found


def rounds(folder: str, count: int) -> dict[str, list[Run]]:
    """Every process once to warm up (bytecode, page cache), then `count` times, in turn."""
    chosen = commands(folder)
    for command in chosen.values():
        measured(command)
    found: dict[str, list[Run]] = {name: [] for name in chosen}
    for _ in range(count):
        for name, command in chosen.items():
            found[name].append(measured(command))
    return found


def table(runs: Mapping[str, Sequence[Run]]) -> str:
    """Least and median time, and the most memory, of each process."""
    lines = [f"{'':16}{'wall s, min':>12}{'median':>8}{'cpu s, min':>12}{'median':>8}{'MB, max':>9}"]
    for name, found in runs.items():
        wall, cpu = [run.wall for run in found], [run.cpu for run in found]
        memory = max(run.memory for run in found)
        lines.append(f"{name:16}{min(wall):12.2f}{median(wall):8.2f}{min(cpu):12.2f}{median(cpu):8.2f}{memory:9.0f}")
    return "\n".join(lines)


def goals(runs: Mapping[str, Sequence[Run]]) -> str:
    """The ratios to the floor and whether the goals are met; the least processor time counts, it hears least noise."""
    check, floor = runs[CHECK], runs[FLOOR]
    cpu = min(run.cpu for run in check) / min(run.cpu for run in floor)
    wall = min(run.wall for run in check) / min(run.wall for run in floor)
    memory = max(run.memory for run in check)
    return (
        f"ratio to the floor (json): cpu {cpu:.2f}, wall {wall:.2f}; goal {RATIO:g}: {_met(cpu <= RATIO)}\n"
        f"peak memory: {memory:.0f} MB; goal {MEGABYTES}: {_met(memory <= MEGABYTES)}"
    )


def _met(true: bool) -> str:
    return "met" if true else "not met"


def main() -> None:
    """Forge, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller checkpoint and fewer rounds")
    parser.add_argument("--rounds", type=int, help="how often everything runs")
    chosen = parser.parse_args()
    size = QUICK if chosen.quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        count = forged(folder, size)
        runs = rounds(folder, chosen.rounds or size.rounds)
        load = os.getloadavg()[0]
    version = sys.version.split()[0]
    print(
        f"{count:,} tensors in {size.shards} shards; Python {version}; load {load:.1f} on {os.cpu_count()} processors"
    )
    print(table(runs))
    print(goals(runs))


if __name__ == "__main__":
    main()
