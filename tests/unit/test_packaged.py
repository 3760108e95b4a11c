"""Data files are found however the package was imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The package's module for data files, and one file, with nothing kept of it yet."""
    package = tmp_path / "mtpfix"
    (package / "families").mkdir(parents=True)
    shutil.copy(Path(mtpfix.__file__).parent / "packaged.py", package)
    (package / "__init__.py").touch()
    (package / "families" / "some.toml").write_bytes(b'name = "one" # \xc3\xa9\r\n')
    return package


def read(package: Path, *flags: str) -> tuple[dict[str, object], bool]:
    """What the file says to a process of its own, and whether that had to parse TOML."""
    code = "import json, sys, mtpfix.packaged as p; said = p.table('families/some'), 'tomllib' in sys.modules\n"
    code += "print(json.dumps(said))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run = subprocess.run(
        [sys.executable, *flags, "-c", code], cwd=package.parent, env=environment, capture_output=True, check=True
    )
    said, parsed = json.loads(run.stdout)
    return said, parsed


def kept(package: Path) -> list[Path]:
    return [path for path in package.rglob("*.json*") if path.is_file()]


class TestTables:
    def test_every_file_is_what_its_toml_says(self) -> None:
        for path in sorted(Path(mtpfix.__file__).parent.glob("*/*.toml")):
            name = f"{path.parent.name}/{path.stem}"
            assert packaged.table(name) == packaged.table(name) == tomllib.loads(path.read_text("utf-8"))

    def test_toml_is_parsed_once(self, tree: Path) -> None:
        assert [read(tree), read(tree)] == [({"name": "one"}, True), ({"name": "one"}, False)]
        assert [path.parent.name for path in kept(tree)] == ["__pycache__"]

    def test_an_edit_of_the_same_length_and_time_counts_at_once(self, tree: Path) -> None:
        read(tree)
        path = tree / "families" / "some.toml"
        before = path.stat()
        path.write_bytes(path.read_bytes().replace(b"one", b"two"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert [read(tree), read(tree)] == [({"name": "two"}, True), ({"name": "two"}, False)]

    @pytest.mark.parametrize("damage", [lambda raw: raw[:-3], lambda raw: b"", lambda raw: raw + b"x"])
    def test_what_is_kept_and_damaged_is_made_anew(self, tree: Path, damage: Callable[[bytes], bytes]) -> None:
        read(tree)
        (place,) = kept(tree)
        place.write_bytes(damage(place.read_bytes()))
        assert [read(tree), read(tree)] == [({"name": "one"}, True), ({"name": "one"}, False)]

    def test_where_python_keeps_no_bytecode_nothing_is_kept(self, tree: Path) -> None:
        assert read(tree, "-B") == ({"name": "one"}, True)
        assert kept(tree) == []

    def test_a_place_that_cannot_be_written_to(self, tree: Path) -> None:
        (tree / "families" / "__pycache__").write_text("a file")
        assert [read(tree), read(tree)] == [({"name": "one"}, True)] * 2

    def test_a_wheel_holds_json(self, tree: Path) -> None:
        (tree / "families" / "some.json").write_text('{"name": "made by the build"}')
        assert read(tree) == ({"name": "made by the build"}, False)

    def test_no_such_file(self) -> None:
        with pytest.raises(OSError, match="nowhere"):
            packaged.table("families/nowhere")
