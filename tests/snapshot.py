"""Texts compared with files of tests/snapshots; MTPFIX_SNAPSHOTS=write writes them anew."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def same_as_snapshot(text: str, name: str) -> None:
    """Fails with a diff where the text is not the file's."""
    path = FOLDER / name
    if os.environ.get("MTPFIX_SNAPSHOTS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
    kept = path.read_text("utf-8") if path.exists() else ""
    if text != kept:
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), f"snapshots/{name}", "now", lineterm="")
        raise AssertionError("\n".join(["the output is not the one kept", *lines, "MTPFIX_SNAPSHOTS=write keeps it"]))
