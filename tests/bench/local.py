"""`mtpfix check` of a true-size checkpoint, side by side with everything that reads the same headers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.bench.process import MTPFIX, READER, ROOT, Command, goal, in_turn, table

CHECK, FLOOR = "mtpfix check", "floor: "
RATIO, MEGABYTES = 1.5, 120
LARGE = 100_000  # tensors; beside those of a smaller checkpoint the start of a process counts
FORGE = (
    "import json, sys; from tests.bench.forge_large import forge; "
    "print(forge(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3])))"
)
# Inspectors from PyPI, with what they are given: the folder, its first shard, all its shards.
PEERS: dict[str, tuple[str, ...]] = {
    "grit-scan (grit-datatype)": ("grit-scan", "{folder}"),
    "modelinfo (modelinfo-cli)": ("modelinfo", "{first}"),
    "safetensors-arch": ("safetensors-arch", "{folder}"),
    "sft ls (sft-cli)": ("sft", "ls", "{shards}"),
}


def forged(folder: str, name: str, **size: int) -> int:
    """Forge a checkpoint in a process of its own, to keep this one small; the number of tensors is returned."""
    command = [sys.executable, "-c", FORGE, folder, name, json.dumps(size)]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def compare(name: str, rounds: int, **size: int) -> None:
    """Forge a checkpoint, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        count = forged(folder, name, **size)
        spelled = ", as a script spells it" if size.get("scripted") else ""
        print(f"== {name}: {count:,} tensors in {len(_shards(folder))} shards{spelled}")
        runs = in_turn(dict(_commands(folder)), rounds)
        print(table(runs))
        check = runs[CHECK]
        for name in (name for name in runs if name.startswith(FLOOR)):
            wall, cpu = check.wall / runs[name].wall, check.cpu / runs[name].cpu
            said = (
                goal(f"wall time, times {name}", wall, RATIO)
                if count > LARGE
                else f"wall time, times {name}: {wall:.3g}"
            )
            print(f"{said}; processor time: {cpu:.3g}")
        print(goal("peak memory", check.memory, MEGABYTES, " MB") + "\n")


def _commands(folder: str) -> Iterator[tuple[str, Command]]:
    yield CHECK, [*MTPFIX, "check", folder]
    for parser in ("json", "msgspec", "orjson"):
        if find_spec(parser):
            yield f"{FLOOR}{parser}", [*READER, folder, parser]
            yield f"{FLOOR}{parser}, gc off", [*READER, folder, parser, "nogc"]
    if find_spec("safetensors"):
        yield "safetensors.safe_open", [*READER, folder, "safe_open"]
    yield "huggingface_hub, local", [*READER, folder, "huggingface_hub"]
    shards = _shards(folder)
    for name, (program, *given) in PEERS.items():
        place = shutil.which(program, path=os.environ.get("MTPFIX_BENCH_PEERS", "") + os.pathsep + os.environ["PATH"])
        if place:
            yield name, [place, *_filled(given, folder, shards)]


def _filled(given: list[str], folder: str, shards: list[str]) -> Iterator[str]:
    for word in given:
        yield from shards if word == "{shards}" else [word.format(folder=folder, first=shards[0])]


def _shards(folder: str) -> list[str]:
    return sorted(map(str, Path(folder).glob("*.safetensors")))
