"""Lists of up to a million entries: read or refused within the time and memory that `civil` allows.

In the short run `check` meets some of what is beyond the limits and of the longest within them; with MTPFIX_LONG=1
every command that reads meets all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from .large import Case, beyond, within
from .sandbox import Sandbox, civil, write_apart

LONG = bool(os.environ.get("MTPFIX_LONG"))
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "DIR"),
    ("apply", "DIR", "--dry-run"),
    ("list", "DIR"),
    ("explain", "DIR", "mtp.**"),
    ("override", "DIR", "--engine", "vllm"),
    ("check", "DIR", "--format", "json"),
    ("snapshot", "DIR", "-o", "BUNDLE"),
)


def tried(sandbox: Sandbox, place: Path, case: Case, commands: tuple[tuple[str, ...], ...]) -> list[int]:
    """The exit code of each command, all of them within bounds; what was there is put back."""
    what, name, made = case
    file, bundle = place / name, place.parent / "bundle"
    sound = file.read_bytes() if file.exists() else None
    write_apart(file, made)
    codes = []
    try:
        for command in commands:
            done = sandbox.run(*({"DIR": str(place), "BUNDLE": str(bundle)}.get(word, word) for word in command))
            bundle.unlink(missing_ok=True)
            try:
                civil(done)
            except AssertionError as error:
                raise AssertionError(f"{what}, {' '.join(command)}: {error}") from error
            codes.append(done.code)
            assert done.code != 3 or name in done.err, (what, done.err)
    finally:
        file.unlink() if sound is None else file.write_bytes(sound)
    return codes


def test_what_is_beyond_the_limits_is_refused(place: Path, config: dict[str, object], sandbox: Sandbox) -> None:
    for number, case in enumerate(beyond(config)):
        if LONG or number % 9 == 0:
            codes = tried(sandbox, place, case, COMMANDS[:6] if LONG else COMMANDS[:1])
            assert set(codes) == {3}, (case[0], codes)


def test_the_longest_within_them_are_read(place: Path, config: dict[str, object], sandbox: Sandbox) -> None:
    for number, case in enumerate(within(config)):
        if LONG or number % 9 == 4:
            codes = tried(sandbox, place, case, COMMANDS if LONG else COMMANDS[:1])
            assert 3 not in codes, (case[0], codes)
