"""How the time of `mtpfix check` grows with the number of tensors and with the number of entries in the lists."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.local import forged
from tests.bench.process import MTPFIX, Runs, goal, in_turn, table

TIMES = 10
MOST = 1.15 * TIMES


def compare(rounds: int, layers: int, entries: int) -> None:
    """Ten times the layers, ten times the entries; what a process takes at its least is taken off."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        start = forged(str(root / "start"), "qwen3-next", layers=4, experts=2, shards=1)
        one = forged(str(root / "one"), "qwen3-next", layers=layers)
        many = forged(str(root / "many"), "qwen3-next", layers=TIMES * layers)
        forged(str(root / "few"), "qwen3-next", layers=layers, more_entries=entries)
        forged(str(root / "full"), "qwen3-next", layers=layers, more_entries=TIMES * entries)
        names = {
            "start": f"{start:,} tensors",
            "one": f"{one:,} tensors",
            "many": f"{many:,} tensors",
            "few": f"{one:,} tensors, {entries:,} entries",
            "full": f"{one:,} tensors, {TIMES * entries:,} entries",
        }
        found = in_turn({name: [*MTPFIX, "check", str(root / name)] for name in names}, rounds)
    print("== growth: qwen3-next of several sizes")
    print(table({names[name]: runs for name, runs in found.items()}))
    print(goal(f"{many / one:.1f} times the tensors, times the time", _ratio(found, "many", "one", "start"), MOST))
    print(goal(f"{TIMES} times the entries, times the time", _ratio(found, "full", "few", "one"), MOST) + "\n")


def _ratio(found: dict[str, Runs], large: str, small: str, base: str) -> float:
    least = found[base].cpu
    return (found[large].cpu - least) / max(found[small].cpu - least, 1e-3)
