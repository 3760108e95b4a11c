"""Completion in real shells, `python -m mtpfix`, and `hf mtpfix`."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mtpfix

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it, and `mtpfix` and `hf-mtpfix` on the path."""
    for name in ("mtpfix", "hf-mtpfix"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mtpfix "$@"\n', "utf-8")
        program.chmod(0o755)
    settings = {"HOME": tmp_path, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
    for name, value in {**settings, "XDG_STATE_HOME": tmp_path / "state", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("che", ["check"]),
        ("check --for", ["--format"]),
        ("check --format s", ["sarif"]),
        ("rule mtp00", [f"MTP00{number}" for number in range(1, 10)]),
        ("rule --for", ["--format"]),
    ],
)
def test_bash(words: str, wanted: list[str]) -> None:
    script = f"""eval "$(_MTPFIX_COMPLETE=bash_source mtpfix)"
        COMP_WORDS=(mtpfix {words}); COMP_CWORD=$(({len(words.split())})); _mtpfix_completion mtpfix
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    assert run("bash", "--norc", "-c", script).split() == wanted


@pytest.mark.usefixtures("home")
def test_bash_knows_the_function_by_the_program_s_name() -> None:
    script = 'eval "$(_MTPFIX_COMPLETE=bash_source mtpfix)"; complete -p mtpfix'
    assert run("bash", "--norc", "-c", script).endswith(" -F _mtpfix_completion mtpfix\n")


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
@pytest.mark.usefixtures("home")
def test_fish() -> None:
    script = "_MTPFIX_COMPLETE=fish_source mtpfix | source; complete -C 'mtpfix che'; complete -C 'mtpfix rule MTP01'"
    shown = run("fish", "--no-config", "-c", script)
    assert [line.split("\t")[0] for line in shown.splitlines()] == ["check", *(f"MTP01{n}" for n in range(7))]
    assert "check\tSay what each engine" in shown


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
@pytest.mark.usefixtures("home")
def test_zsh() -> None:
    shown = typed(
        ["zsh", "-f", "-i"],
        "PS1='> '; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D\n",
        'eval "$(_MTPFIX_COMPLETE=zsh_source mtpfix)"; print rea""dy\n',
        "mtpfix overr\t /nowhere --engine vllm\n",
    )
    assert "mtpfix override /nowhere --engine vllm" in shown
    assert "Error: /nowhere: " in shown


def typed(command: list[str], *lines: str) -> str:
    """What a shell on a terminal shows after these keys; each line waits for what is shown to settle."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover
        os.execvp(command[0], command)
    shown = b""
    try:
        for line in lines:
            os.write(terminal, line.encode())
            shown += settled(terminal)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|.\x08|\r", "", shown.decode("utf-8", "replace"))


def settled(terminal: int) -> bytes:
    """What comes until nothing comes for some seconds."""
    shown, end = b"", time.monotonic() + 40
    while time.monotonic() < end and select.select([terminal], [], [], 4)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    return shown


@pytest.mark.usefixtures("home")
def test_python_dash_m() -> None:
    assert run(sys.executable, "-m", "mtpfix", "--version") == f"mtpfix, version {mtpfix.__version__}\n"
    assert run(sys.executable, "-m", "mtpfix", "--help").startswith("Usage: mtpfix ")


def test_hf_finds_it_as_an_extension(home: Path) -> None:
    """Installed as `hf extensions install OWNER/hf-mtpfix` leaves it; the installation itself needs GitHub."""
    script = f"""
import datetime, pathlib
from huggingface_hub.cli.extensions import ExtensionManifest, _get_extension_dir
folder = _get_extension_dir("mtpfix")
ExtensionManifest(
    owner="OWNER", repo="hf-mtpfix", repo_id="OWNER/hf-mtpfix", short_name="mtpfix",
    executable_path={str(home / "bin/hf-mtpfix")!r}, type="python",
    installed_at=datetime.datetime.now(datetime.timezone.utc),
).save(folder)
(folder / ".latest_commit").write_text("")  # asked just now: no network
"""
    run(sys.executable, "-c", script)
    hf = [sys.executable, "-m", "huggingface_hub.cli.hf", "mtpfix"]
    assert run(*hf, "--version") == f"mtpfix, version {mtpfix.__version__}\n"
    broken = subprocess.run([*hf, "check", ROOT / "examples/GLM-5.3-Flash-NVFP4", "--format", "quiet"], check=False)
    assert broken.returncode == 1
