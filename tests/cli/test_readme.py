"""The README and docs/ show what the program prints, and what the README says is modelled is what is registered.

Each ```console block is run, command by command (lines that begin with `$ `) on a fresh copy of the examples; each
```python block too, and a ```text block right after it is what that prints. `MTPFIX_SNAPSHOTS=write` writes all of it
anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hub import WRITER, Hub

from mtpfix.cli import COMMANDS, main
from mtpfix.families import REGISTRY
from mtpfix.families.loader import load
from mtpfix.formats import formats

ROOT = Path(__file__).parents[2]
PROGRESS = re.compile(r"^(?:Asking|Reading from|Waiting|Scanned) .* \.\.\.\n", re.MULTILINE)  # where it takes a second
README = ROOT / "README.md"
TEXT = README.read_text("utf-8")
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
CONSOLE = [
    pytest.param(page, block, id=f"{page.stem}: {block.partition(chr(10))[0][2:]}")
    for page in PAGES
    for block in re.findall(r"(?<=```console\n)\$ .*?(?=```)", page.read_text("utf-8"), re.DOTALL)
]
PYTHON = [
    pytest.param(page, *found, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, found in enumerate(
        re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text("utf-8"), re.DOTALL)
    )
]
NAMED = {
    "Families, one file each in `mtpfix/families/`:": [load(entry.name).title for entry in REGISTRY],
    "Formats with a list that can be edited, one file each in `mtpfix/formats/`:": [
        form.title for form in formats() if form.exclusions({})
    ],
    "Formats that are known, without a list that an engine reads:": [
        form.title for form in formats() if not form.exclusions({})
    ],
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the examples in which `mtpfix` is this one, and a Hub that has the examples as repositories."""
    shutil.copytree(ROOT / "examples", tmp_path / "here" / "examples")
    command = tmp_path / "bin" / "mtpfix"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mtpfix "$@"\n', "utf-8")
    command.chmod(0o755)
    for name in [name for name in os.environ if name.startswith("MTPFIX_") and name != "MTPFIX_SNAPSHOTS"]:
        monkeypatch.delenv(name)
    settings = {"COLUMNS": "80", "PYTHONUTF8": "1", "XDG_STATE_HOME": str(tmp_path / "state"), "FORCE_COLOR": ""}
    settings |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": WRITER}
    for name, value in {**settings, "PATH": f"{command.parent}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    with Hub() as hub:
        for config in sorted(ROOT.glob("examples/*/config.json")):
            hub.create(f"org/{config.parent.name}", config.parent)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield tmp_path / "here"


def output(folder: Path, *command: str) -> str:
    """What a command prints, on stdout and stderr in their order."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    shown = done.stdout.replace(os.environ["HF_ENDPOINT"], "http://127.0.0.1:8000")
    return PROGRESS.sub("", shown)


def same(page: Path, shown: str, printed: str) -> None:
    """Fails unless a page shows what is printed; with MTPFIX_SNAPSHOTS=write it is made to."""
    if shown != printed and os.environ.get("MTPFIX_SNAPSHOTS") == "write":
        page.write_text(page.read_text("utf-8").replace(shown, printed, 1), "utf-8")
        return
    assert shown.splitlines() == printed.splitlines()


@pytest.mark.parametrize(("page", "block"), CONSOLE)
def test_console_block(page: Path, block: str, shell: Path) -> None:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    same(page, block, "".join(f"{line}\n{output(shell, 'sh', '-c', line[2:])}" for line in commands))


@pytest.mark.parametrize(("page", "code", "shown"), PYTHON)
def test_python_block(page: Path, code: str, shown: str, shell: Path) -> None:
    text = page.read_text("utf-8")
    front = f"{code}```\n\n```text\n" if f"{code}```\n\n```text\n" in text else ""
    same(page, front + shown, front + output(shell, sys.executable, "-c", code))


@pytest.mark.parametrize(("lead", "titles"), NAMED.items())
def test_what_is_modelled(lead: str, titles: list[str]) -> None:
    shown = re.search(rf"^{re.escape(lead)}.*?\n\n", TEXT, re.DOTALL | re.MULTILINE)
    assert shown
    same(
        README, shown[0], "\n".join(textwrap.wrap(f"{lead} {', '.join(titles)}.", 120, break_on_hyphens=False)) + "\n\n"
    )


def test_the_formats_of_each_command() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| ((?:\w+, )+\w+) \|$", TEXT, re.MULTILINE))
    able: dict[str, str] = {}
    for name, _ in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            if option.name == "format" and isinstance(option.type, click.Choice):
                able[name] = ", ".join(map(str, option.type.choices))
    assert shown == able
