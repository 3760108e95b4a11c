"""Hostile config files, indexes and folders: a clear answer within the time and memory that `civil` allows.

Every seventh case in the short run, all of them with MTPFIX_LONG=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from .configs import CONFIGS, indexes
from .sandbox import Sandbox, civil

STEP = 1 if os.environ.get("MTPFIX_LONG") else 7
COMMANDS = (("check",), ("check", "--format", "json"), ("apply", "--dry-run"))
PARTS = [maker.__name__ for maker in CONFIGS]


def tried(sandbox: Sandbox, file: Path, cases: Iterable[tuple[str, bytes]], offset: int = 0) -> None:
    for number, (what, raw) in enumerate(cases):
        if number % STEP != offset % STEP:
            continue
        file.write_bytes(raw)
        command = COMMANDS[number // STEP % len(COMMANDS)]
        done = sandbox.run(*command, file.parent)
        try:
            civil(done)
        except AssertionError as error:
            raise AssertionError(f"{what}, {' '.join(command)}: {error}") from error


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json"])
def test_configs(place: Path, config: dict[str, object], sandbox: Sandbox, part: str, name: str) -> None:
    """Beside a sound sidecar, or as the sidecar of a sound config."""
    sound = (place / name).read_bytes()
    try:
        tried(sandbox, place / name, CONFIGS[PARTS.index(part)](config), offset=name.startswith("hf"))
    finally:
        (place / name).write_bytes(sound)


def test_indexes(place: Path, sandbox: Sandbox) -> None:
    index = place / "model.safetensors.index.json"
    tried(sandbox, index, indexes())
    index.unlink()


def test_pipes_loops_and_devices(place: Path, sandbox: Sandbox) -> None:
    """They are never opened, or refused: nothing waits."""
    os.mkfifo(place / "pipe.safetensors")
    (place / "loop.safetensors").symlink_to("loop.safetensors")
    (place / "zero.safetensors").symlink_to("/dev/zero")
    for name in ("loop", "pipe", "zero"):  # in the order in which they are met
        done = sandbox.run("check", place)
        civil(done)
        assert done.code == 3
        assert f"{name}.safetensors" in done.err
        (place / f"{name}.safetensors").unlink()
    assert sandbox.run("check", place).code == 1
