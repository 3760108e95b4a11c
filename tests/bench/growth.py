"""How the time of `mtpfix check` grows with the number of tensors and with the number of entries in the lists."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.local import forged
from tests.bench.process import MTPFIX, Runs, goal, in_turn, table

TIMES = 10
MOST_FOR_ENTRIES = 2
MOST_FOR_TENSORS = 1.05  # times as many times the time as the tensors: 10.5 for 10


def compare(rounds: int, layers: int, entries: int) -> None:
    """Ten times the layers, ten times the entries: whole processes, their start included."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        one = forged(str(root / "one"), "qwen3-next", layers=layers)
        many = forged(str(root / "many"), "qwen3-next", layers=TIMES * layers)
        forged(str(root / "few"), "qwen3-next", layers=layers, more_entries=entries)
        forged(str(root / "full"), "qwen3-next", layers=layers, more_entries=TIMES * entries)
        names = {
            "one": f"{one:,} tensors",
            "many": f"{many:,} tensors",
            "few": f"{one:,} tensors, {entries:,} entries",
            "full": f"{one:,} tensors, {TIMES * entries:,} entries",
        }
        found = in_turn({name: [*MTPFIX, "check", str(root / name)] for name in names}, rounds)
    print("== growth: qwen3-next of several sizes")
    print(table({names[name]: runs for name, runs in found.items()}))
    tensors = many / one
    times = _ratio(found, "many", "one")
    print(goal(f"{tensors:.1f} times the tensors, times the time", times, MOST_FOR_TENSORS * tensors))
    print(goal(f"{TIMES} times the entries, times the time", _ratio(found, "full", "few"), MOST_FOR_ENTRIES) + "\n")


def _ratio(found: dict[str, Runs], large: str, small: str) -> float:
    return found[large].cpu / found[small].cpu
