"""Tries every example: check, dry run, apply, apply again, undo, `mtpfix.ensure`, and the export script.

    python examples/try_all.py

Works on copies. Exit code 1, and a line that says what, where an outcome is not as it should be.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from make import EXAMPLES, HERE

import mtpfix
from mtpfix.checkpoint.local import read_local

BOTH = ("config.json", "hf_quant_config.json")


@dataclass(frozen=True, slots=True)
class Expected:
    """What mtpfix should say about an example. `entries`: what the plan adds to each file of `changed`."""

    status: str
    errors: tuple[str, ...]
    changed: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()


EXPECTED = {
    "Qwen3-Next-80B-A3B-Instruct-NVFP4": Expected("fixable", ("MTP001",), BOTH, ("mtp.fc",)),
    "GLM-5.3-Flash-NVFP4": Expected(
        "fixable", ("MTP001",), BOTH, ("model.language_model.layers.45*", "model.layers.45*")
    ),
    "Qwen3.5-35B-A3B-GPTQ-Int4": Expected("fixable", ("MTP001",), ("config.json",), (r"-:^mtp\\..*",)),
    "gemma-4-31B-it-assistant-NVFP4": Expected("not-fixable", ("MTP007",)),
}
PACKED, BASE = "gemma-4-31B-it-assistant-NVFP4", "base/gemma-4-31B-it-assistant"


class Failed(Exception):
    """An outcome that is not as it should be."""


def must(true: bool, what: str) -> None:
    """Raise Failed unless something is true."""
    if not true:
        raise Failed(what)


def run(*args: str | Path, code: int) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and hold it to an exit code."""
    done = subprocess.run([sys.executable, *map(str, args)], capture_output=True, text=True, check=False)
    must(done.returncode == code, f"{' '.join(map(str, args))}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def command(*args: str | Path, code: int) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return run("-m", "mtpfix", *args, code=code)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Name -> mode and bytes of every file."""
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in sorted(folder.iterdir())}


def report(folder: Path, code: int) -> dict[str, Any]:
    """What `check` says, as JSON."""
    answer: dict[str, Any] = json.loads(command("check", folder, "--format", "json", code=code).stdout)
    return answer


def try_example(folder: Path, want: Expected) -> None:
    """Check an example and then take the way that its status calls for."""
    first = report(folder, 1)
    errors = tuple(sorted({one["rule"] for one in first["findings"] if one["severity"] == "error"}))
    must(first["status"] == want.status, f"status {first['status']}, not {want.status}")
    must(errors == want.errors, f"errors {errors}, not {want.errors}")
    (try_repair if want.changed else try_refusal)(folder, want)


def try_repair(folder: Path, want: Expected) -> None:
    """The dry run shows the entries and writes nothing; apply mends; undo gives the first bytes back."""
    before = contents(folder)
    shown = command("apply", folder, "--dry-run", code=1).stdout
    for entry in want.entries:
        lines = [line for line in shown.splitlines() if line.startswith("+") and f'"{entry}"' in line]
        must(len(lines) == len(want.changed), f"the diff adds {entry!r} {len(lines)} times")
    must(contents(folder) == before, "the dry run changed a file")
    command("apply", folder, code=0)
    after = contents(folder)
    changed = tuple(name for name in after if after[name] != before.get(name))
    must(after.keys() == before.keys() and changed == want.changed, f"apply changed {changed}")
    must(report(folder, 0)["status"] == "clean", "not clean after apply")
    command("apply", folder, code=0)
    must(contents(folder) == after, "a second apply changed a file")
    command("undo", folder, code=0)
    must(contents(folder) == before, "undo did not give the first bytes back")
    must(mtpfix.ensure(folder).status == "clean", "not clean after ensure")
    must(contents(folder) == after, "ensure wrote something else than apply")


def try_refusal(folder: Path, want: Expected) -> None:
    """What no metadata mends stays untouched, and `ensure` says so."""
    before = contents(folder)
    command("apply", folder, code=1)
    command("undo", folder, code=2)
    try:
        mtpfix.ensure(folder)
    except mtpfix.FindingsError as error:
        found = tuple(sorted({finding.rule for finding in error.findings}))
        must(found == want.errors, f"ensure raised for {found}")
    else:
        raise Failed("ensure did not raise")
    must(contents(folder) == before, "a file changed")


def try_graft(folder: Path, base: Path) -> None:
    """What a graft from the base mends is clean; undo gives the first bytes back."""
    before = contents(folder)
    command("graft", folder, "--from", base, code=1)
    must(contents(folder) == before, "a graft that leaves old copies was not refused")
    command("graft", folder, "--from", base, "--rewrite", code=0)
    must(report(folder, 0)["status"] == "clean", "not clean after the graft")
    command("undo", folder, code=0)
    must(contents(folder) == before, "undo did not give the first bytes back")


def try_export(scratch: Path) -> None:
    """The export script writes a checkpoint that is clean from the start, though its own lists lack the draft."""
    out = run(HERE / "export.py", scratch / "export", code=0).stdout
    must("model.layers.2" in out, "the export script's lists lack the draft")
    must(report(scratch / "export", 0)["status"] == "clean", "the export is not clean")


def try_made(folder: Path, scratch: Path) -> None:
    """The committed example is the one that make.py writes."""
    fresh = scratch / "made" / folder.name
    fresh.mkdir(parents=True)
    EXAMPLES[folder.name](fresh)
    for path in (*folder.glob("*.json"), *fresh.glob("*.json")):
        must(path.read_bytes() == (fresh / path.name).read_bytes(), f"{path.name} is not what make.py writes")
    must(read_local(folder).modules == read_local(fresh).modules, "the tensors are not those that make.py writes")


def attempt(name: str, trial: Callable[[], None]) -> bool:
    """Run a trial, print its outcome in a line; whether it passed."""
    try:
        trial()
    except Failed as failure:
        print(f"FAILED  {name}: {failure}")
        return False
    print(f"ok      {name}")
    return True


def trials(scratch: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every trial and its name."""
    for name, want in EXPECTED.items():
        copy = shutil.copytree(HERE / name, scratch / name)
        yield name, partial(try_example, copy, want)
        yield f"{name}, as made", partial(try_made, HERE / name, scratch)
    yield "graft", partial(try_graft, scratch / PACKED, shutil.copytree(HERE / BASE, scratch / BASE))
    yield "export.py", partial(try_export, scratch)


def main() -> int:
    """Try everything; the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        os.environ["XDG_STATE_HOME"] = str(scratch / "state")
        passed = [attempt(name, trial) for name, trial in trials(scratch)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
