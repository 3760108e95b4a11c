"""Every command that writes: a world to run it in, what it makes of it, and what may be found there afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import traced
from checkpoints import INDEX, deepseek_v3, glm4_moe, on_disk, qwen3_5
from click.testing import CliRunner, Result
from test_unsafe import make as deepseek
from tiny import qwen3_next

from mtpfix.checkpoint.headers import decode
from mtpfix.cli import main

Contents = dict[str, bytes | str]
GLM = ("lm_head", "model.layers.0*", "model.layers.2*")
QWEN = ("lm_head", "*linear_attn*", "*.mlp.gate", "*.mlp.shared_expert_gate")
VLLM = ("--engine", "vllm==0.33.0")
UNSAFE = ("apply", "here", *VLLM, "--unsafe-fixes", "-y")
GRAFT = ("graft", "here", "--from", "base", "-y")


@dataclass(frozen=True)
class Writer:
    """A command, the world that it finds, and, where it is no command line, the Python that is run instead.

    changes  whether it changes the checkpoint, so that undo has something to take back
    """

    make: Callable[[Path], object]
    words: tuple[str, ...]
    changes: bool = True
    python: str = ""


def command(*words: str) -> int:
    """Run a command in this process, in the folder it is in; its exit code."""
    return said(*words).exit_code


def said(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="mtpfix")


def _apply(root: Path) -> Path:
    return qwen3_next(root / "here", "mtp.layers.0*")


def _one_file(root: Path) -> None:
    (_apply(root) / "hf_quant_config.json").unlink()


def _index(root: Path) -> None:
    here = qwen3_next(root / "here", "mtp.fc", "mtp.layers.0*")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model.safetensors", "a.weight": "model.safetensors"}}
    (here / INDEX).write_text(json.dumps(index, indent=2))


def _renames(root: Path) -> None:
    deepseek(root / "here", "fp8-block-ct")


def _renames_in_new_files(root: Path) -> None:
    """A shard with a second name is copied, not written over."""
    deepseek(root / "here", "fp8-block-ct", index="omits")
    os.link(root / "here" / "mtp.safetensors", root / "other name")


def _cached(root: Path) -> None:
    """As the Hub's cache is laid out: relative links from a snapshot to blobs."""
    made = qwen3_next(root / "made", "mtp.layers.0*")
    (root / "blobs").mkdir()
    (root / "snapshots" / "0a1b").mkdir(parents=True)
    for number, path in enumerate(sorted(made.iterdir())):
        path.rename(root / "blobs" / f"{number:064x}")
        (root / "snapshots" / "0a1b" / path.name).symlink_to(f"../../blobs/{number:064x}")
    made.rmdir()
    (root / "here").symlink_to("snapshots/0a1b")


def _applied(root: Path) -> None:
    _apply(root)
    assert command("apply", "here", "-y") == 0


def _edited(root: Path) -> None:
    _applied(root)
    config = root / "here" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 128', '"hidden_size": 256'))


def _cached_and_applied(root: Path) -> None:
    _cached(root)
    assert command("apply", "here", "-y") == 0


def _renamed(root: Path) -> None:
    _renames(root)
    assert command(*UNSAFE) == 0


def _lacking(root: Path) -> None:
    on_disk(root / "base", glm4_moe(), seed=2)
    on_disk(root / "here", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)


def _grafted(root: Path) -> None:
    _lacking(root)
    assert command(*GRAFT) == 0


def _packed(root: Path) -> None:
    made = qwen3_5()
    stored = {"mtp.fc": "nvfp4", **dict.fromkeys(made.draft, "nvfp4")}
    on_disk(root / "here", made, "nvfp4", QWEN, sidecar=QWEN, stored=stored)
    on_disk(root / "base", made)


def _rewritten(root: Path) -> None:
    _packed(root)
    assert command(*GRAFT, "--rewrite") == 0


def _fp8_base(root: Path) -> None:
    made = deepseek_v3()
    on_disk(root / "here", made.without_draft(), "nvfp4", GLM)
    on_disk(root / "base", made, "fp8-block", (), stored=dict.fromkeys(made.draft, "fp8-block"))


def _written_before(root: Path) -> None:
    _apply(root)
    (root / "out").write_bytes(b"of yesterday")


_ENSURE = "import mtpfix; mtpfix.ensure('here', engines=['vllm'])"
_FIX = "import mtpfix; mtpfix.apply(mtpfix.plan(mtpfix.check('here')))"

_OVERRIDE = ("override", "here", "--engine", "vllm", "--format", "json")

WRITERS: dict[str, Writer] = {
    "apply": Writer(_apply, ("apply", "here", "-y")),
    "apply, one file": Writer(_one_file, ("apply", "here", "-y")),
    "apply, a Hub cache": Writer(_cached, ("apply", "here", "-y")),
    "apply --unsafe-fixes, index": Writer(_index, ("apply", "here", "-y", "--unsafe-fixes")),
    "apply --unsafe-fixes, headers in place": Writer(_renames, UNSAFE),
    "apply --unsafe-fixes, headers in new files": Writer(_renames_in_new_files, UNSAFE),
    "undo": Writer(_applied, ("undo", "here")),
    "undo, a Hub cache": Writer(_cached_and_applied, ("undo", "here")),
    "undo, headers in place": Writer(_renamed, ("undo", "here")),
    "undo --keep-edits": Writer(_edited, ("undo", "here", "--keep-edits")),
    "undo --force": Writer(_edited, ("undo", "here", "--force")),
    "undo of a graft": Writer(_grafted, ("undo", "here")),
    "undo of a rewriting graft": Writer(_rewritten, ("undo", "here")),
    "graft": Writer(_lacking, GRAFT),
    "graft --rewrite": Writer(_packed, (*GRAFT, "--rewrite")),
    "graft --dequantize": Writer(_fp8_base, (*GRAFT, "--dequantize")),
    "hook --fix": Writer(_apply, ("hook", "--fix", "here/config.json")),
    "ensure": Writer(_apply, ("apply", "here", "-y", "--engine", "vllm"), python=_ENSURE),
    "plan and apply from Python": Writer(_apply, ("apply", "here", "-y"), python=_FIX),
    "check -o": Writer(_written_before, ("check", "here", "--format", "html", "-o", "out"), changes=False),
    "check -o, a new file": Writer(_apply, ("check", "here", "--format", "json", "-o", "out"), changes=False),
    "explain -o": Writer(_written_before, ("explain", "here", "mtp.**", "-o", "out"), changes=False),
    "list -o": Writer(_written_before, ("list", "here", "-o", "out"), changes=False),
    "override -o": Writer(_written_before, (*_OVERRIDE, "-o", "out"), changes=False),
    "snapshot -o": Writer(_written_before, ("snapshot", "here", "-o", "out"), changes=False),
}


class World:
    """A folder that is put back as it was before each run. This process stands in it."""

    def __init__(self, root: Path, writer: Writer) -> None:
        self.root, self.writer = root, writer
        self.words = (sys.executable, *(("-c", writer.python) if writer.python else ("-m", "mtpfix", *writer.words)))
        root.mkdir()
        os.chdir(root)
        writer.make(root)
        self._kept = root.with_name("kept")
        shutil.copytree(root, self._kept, symlinks=True)
        self.old, self.old_records = self.content(), self.records()
        self.whole = traced.run(self.words)
        self.new, self.new_records = self.content(), self.records()

    def reset(self) -> None:
        """Put it back, times too; links to one file stay that."""
        os.chdir(self.root.parent)
        shutil.rmtree(self.root)
        _copied(self._kept, self.root)
        os.chdir(self.root)

    def content(self) -> Contents:
        """Every file and link but the records."""
        found = {str(path.relative_to(self.root)): path for path in self.root.rglob("*")}
        return {
            name: os.readlink(path) if path.is_symlink() else path.read_bytes()
            for name, path in found.items()
            if (path.is_symlink() or path.is_file()) and not name.startswith(("state/", "cache/"))
        }

    def records(self) -> list[str]:
        """The names in the state folder, without what is drawn."""
        state = self.root / "state"
        names = (str(path.relative_to(state)) for path in state.rglob("*") if path.is_file())
        return sorted(re.sub("[0-9a-f]{16,}", "*", name) for name in names)

    def seen(self) -> list[str]:
        """What an engine would find that is neither old nor new; a header may be both, a name at a time."""
        return [
            name
            for name, found in self.content().items()
            if found not in (self.old.get(name), self.new.get(name)) and not self._is_ours(name, found)
        ] + [name for name in self.old if name in self.new and not os.path.lexists(self.root / name)]

    def _is_ours(self, name: str, found: bytes | str) -> bool:
        if os.path.basename(name).startswith(".mtpfix-"):
            return True
        old, new = self.old.get(name), self.new.get(name)
        if not isinstance(old, bytes) or not isinstance(new, bytes) or not isinstance(found, bytes):
            return False
        return name.endswith(".safetensors") and len(old) == len(new) == len(found) and _mixed(old, new, found)


def _mixed(old: bytes, new: bytes, found: bytes) -> bool:
    """Whether each tensor has its old or its new name and is what it was."""
    rows = [_rows(data) for data in (old, new, found)]
    return all(row in pair for row, pair in zip(rows[2], zip(rows[0], rows[1], strict=True), strict=True))


def _rows(data: bytes) -> Sequence[object]:
    length = int.from_bytes(data[:8], "little")
    return sorted(decode(data[8 : 8 + length], len(data) - 8 - length, "x"), key=lambda row: (row.start, row.end))


def _copied(source: Path, target: Path) -> None:
    names: dict[tuple[int, int], str] = {}

    def copy(old: str, new: str) -> None:
        found = os.stat(old)
        first = names.setdefault((found.st_dev, found.st_ino), new)
        if first == new:
            shutil.copy2(old, new)
        else:
            os.link(first, new)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)
