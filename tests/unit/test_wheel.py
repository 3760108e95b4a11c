"""What is installed: the wheel, whose family files are JSON besides TOML, says what the tree says."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAMILIES = ROOT / "mtpfix" / "families"
EXAMPLE = ROOT / "examples" / "Qwen3-Next-80B-A3B-Instruct-NVFP4"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_the_json_is_the_toml(installed: Path) -> None:
    names = {path.stem for path in FAMILIES.glob("*.toml")}
    assert {path.stem for path in (installed / "mtpfix" / "families").glob("*.json")} == names
    for name in names:
        made = json.loads((installed / "mtpfix" / "families" / f"{name}.json").read_text("utf-8"))
        assert made == tomllib.loads((FAMILIES / f"{name}.toml").read_text("utf-8"))


def checked(tree: Path) -> tuple[str, str]:
    """What `check` says, run from a tree, and whether it has read any TOML."""
    code = (
        f"import sys; sys.path.insert(0, {str(tree)!r}); from mtpfix.cli import main; "
        "main(['check', sys.argv[1]], standalone_mode=False); "
        "print('tomllib' in sys.modules, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE)], capture_output=True, text=True, check=True, cwd=tree
    )
    return run.stdout, run.stderr


def test_an_installed_mtpfix_says_the_same_and_reads_no_toml(installed: Path) -> None:
    found, read_toml = checked(installed)
    assert found == checked(ROOT)[0] != ""
    assert read_toml == "False\n"
