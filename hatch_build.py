"""The build's own step: a wheel holds the family files as JSON too, which takes a thirtieth of the time to read.

A tree without them (a clone, an editable install) reads the TOML, so that an edit counts at once, and keeps what it
read beside Python's bytecode (mtpfix/packaged.py).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FAMILIES = "mtpfix/families"


class FamiliesAsJson(BuildHookInterface):  # type: ignore[type-arg]
    """`mtpfix/families/NAME.json` for each `NAME.toml`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.folder = Path(tempfile.mkdtemp())
        for path in sorted(Path(self.root, FAMILIES).glob("*.toml")):
            made = self.folder / f"{path.stem}.json"
            made.write_text(json.dumps(tomllib.loads(path.read_text("utf-8")), separators=(",", ":")), "utf-8")
            build_data["force_include"][str(made)] = f"{FAMILIES}/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self.folder)
