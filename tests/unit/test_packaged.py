"""Data files are found however the package was imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import mtpfix
from mtpfix import packaged


def test_the_text_is_that_of_the_file() -> None:
    assert packaged.text("data/releases.json") == (resources.files(mtpfix) / "data/releases.json").read_text("utf-8")


def test_from_a_zip(tmp_path: Path) -> None:
    root = Path(mtpfix.__file__).parent
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("__init__.py", "packaged.py", "data/releases.json"):
            archive.write(root / name, f"mtpfix/{name}")
    code = "import mtpfix.packaged as p; assert '.zip' in p.__file__; print(p.text('data/releases.json'))"
    run = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'all.zip')!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == packaged.text("data/releases.json") + "\n"
