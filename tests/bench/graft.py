"""How fast `mtpfix graft` copies a draft of true size, side by side with `cp` of the same bytes, both down to the disk.

    python -m tests.bench.graft FOLDER EXPERTS ROUNDS

The draft of Qwen3-Next (experts of 3 × 2 MB in BF16) is filled with random numbers, so that nothing is a hole. Each
round copies the new shard with `cp` and `sync`, grafts it as a whole process, and carries out a planned graft in a
process that says how long that alone took; then all is taken back.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tests.bench.process import ENVIRONMENT, MTPFIX, ROOT, ours

SHARE, MEGABYTES = 0.8, 200
_LAYERS = 4


def main() -> None:
    """Forge, measure, print."""
    folder, experts, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.environ["XDG_STATE_HOME"] = ENVIRONMENT["XDG_STATE_HOME"] = str(folder / "state")
    here, base = _forged(folder, experts)
    graft = [*MTPFIX, "graft", str(here), "--from", str(base)]
    ours(graft)
    shard = next(here.glob("*_mtp*.safetensors"))
    size = shard.stat().st_size
    shutil.copyfile(shard, folder / "bytes")
    undo = [*MTPFIX, "undo", str(here)]
    ours(undo)
    copied, alone, whole, memory = [], [], [], 0.0
    for _ in range(rounds):
        copied.append(_copied(folder))
        alone.append(_alone(here, base))
        ours(undo)
        run = ours(graft)
        whole.append(run.wall)
        memory = max(memory, run.memory)
        ours(undo)
    print("== graft")
    print(f"{size / 1e6:.0f} MB in one shard; MB/s, best and median of {rounds}")
    for name, found in (("cp and sync", copied), ("graft, once planned", alone), ("graft, whole process", whole)):
        print(f"{name:24}{size / min(found) / 1e6:8.0f}{size / median(found) / 1e6:8.0f}")
    share = median(copied) / median(alone)
    print(f"share of cp (medians): {share:.0%}, goal {SHARE:.0%}: {'met' if share >= SHARE else 'NOT MET'}")
    print(f"peak memory: {memory:.0f} MB, goal {MEGABYTES}: {'met' if memory <= MEGABYTES else 'NOT MET'}\n")


def _forged(folder: Path, experts: int) -> tuple[Path, Path]:
    """A checkpoint without its draft, and a base whose draft is no hole. In a process of its own: this one stays
    small, since a child's peak memory counts from its parent's."""
    here, base = folder / "here", folder / "base"
    code = f"from tests.bench.graft import forge; forge({str(here)!r}, {str(base)!r}, {experts})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, check=True)
    return here, base


def forge(here: str, base: str, experts: int) -> None:
    """Write both checkpoints."""
    from dataclasses import replace

    from tests.bench import forge_large

    forge_large.forge(base, "qwen3-next", layers=_LAYERS, experts=experts, shards=2)
    for path in Path(base).glob("*.safetensors"):
        _fill(path)
    whole = forge_large.MODELS["qwen3-next"]
    bare = replace(whole, draft=lambda _layers, _experts: {})
    forge_large.MODELS = {"qwen3-next": bare}
    forge_large.forge(here, "qwen3-next", layers=_LAYERS, experts=experts, shards=2)


def _fill(path: Path) -> None:
    block = random.Random(path.name).randbytes(1 << 20)
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        for name, row in header.items():
            if name.startswith("mtp."):
                start, end = row["data_offsets"]
                file.seek(8 + length + start)
                for at in range(start, end, len(block)):
                    file.write(block[: min(len(block), end - at)])


def _copied(folder: Path) -> float:
    (folder / "copy").unlink(missing_ok=True)
    start = time.perf_counter()
    subprocess.run(["cp", "--sparse=never", str(folder / "bytes"), str(folder / "copy")], check=True)
    descriptor = os.open(folder / "copy", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    spent = time.perf_counter() - start
    (folder / "copy").unlink()
    return spent


def _alone(here: Path, base: Path) -> float:
    """Seconds that carrying out a planned graft takes."""
    code = (
        "import sys, time; from mtpfix import api\n"
        "with api.grafting(sys.argv[1], sys.argv[2]) as ready:\n"
        "    start = time.perf_counter(); ready.write(); print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", code, str(here), str(base)]
    return float(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
