"""The scripts of examples/ and the Hub of the README, as somebody starts them who has not read how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = (
    "import runpy, sys; sys.modules['safetensors'] = None; sys.path.insert(0, 'examples'); "
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)


@pytest.mark.parametrize("script", ["export.py", "make.py", "try_all.py"])
def test_what_a_script_lacks_is_said(script: str) -> None:
    """mtpfix does without the safetensors library; who has installed nothing else meets this first."""
    command = [sys.executable, "-c", WITHOUT, f"examples/{script}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "The scripts of examples/ write safetensors files: pip install safetensors\n"


def test_a_hub_of_nothing_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hub", "examples", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(f"error: no checkpoint in {tmp_path / 'nowhere'}\n")
