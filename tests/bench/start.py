"""What a process takes before it does anything: the help, a checkpoint of one shard, the examples."""

from __future__ import annotations

import sys

from tests.bench.process import MTPFIX, ROOT, goal, in_turn, table

EXAMPLE = ROOT / "examples" / "Qwen3-Next-80B-A3B-Instruct-NVFP4"


def compare(rounds: int) -> None:
    """Measure, print."""
    runs = in_turn(
        {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import click'": [sys.executable, "-c", "import click"],
            "mtpfix --help": [*MTPFIX, "--help"],
            "mtpfix check, one shard": [*MTPFIX, "check", str(EXAMPLE)],
        },
        rounds,
    )
    print("== start")
    print(table(runs))
    print(goal("mtpfix --help", 1000 * runs["mtpfix --help"].wall, 100, " ms"))
    print(goal("mtpfix check, one shard", 1000 * runs["mtpfix check, one shard"].wall, 150, " ms") + "\n")
