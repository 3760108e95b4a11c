"""Commands that read the Hub, killed and failing at system calls that write: the cache, the state of a scan, a graft.

What a command keeps for the next one is whole or as if it were not there. Like tests/cli/test_traced.py, which has the
words; the short run takes a few calls, MTPFIX_LONG=1 all, with MTPFIX_STEP=7 every seventh.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import traced
from checkpoints import glm4_moe, on_disk
from traced import Act, Call, Ended, Fail, Half, Kill, When

from hub import Hub

LONG = bool(os.environ.get("MTPFIX_LONG"))
STEP = int(os.environ.get("MTPFIX_STEP") or 1)  # of the long run: every so-manieth call alone
GLM = ("lm_head", "model.layers.0*", "model.layers.2*")
COMMANDS = {
    "graft": ("graft", "here", "--from", "org/base", "-y"),
    "check": ("check", "org/mine", "--format", "quiet"),
    "scan": ("scan", "org", "--state", "state.jsonl"),
    "scan --html": ("scan", "org/mine", "--html", "out"),
    "review -o": ("review", "org/mine", "1", "--format", "markdown", "-o", "out"),
}
YESTERDAY = b"of yesterday"
counted: Counter[str] = Counter()
Seen = tuple[dict[str, bytes], list[str], list[bytes], bytes]

pytestmark = [pytest.mark.forks, pytest.mark.skipif(bool(traced.why_not()), reason=traced.why_not() or "-")]


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    yield
    if LONG:
        print(f"\n{dict(counted)}", file=sys.__stderr__)


@pytest.fixture
def root(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_disk(tmp_path / "kept", glm4_moe().without_draft(), "nvfp4", GLM, sidecar=GLM, seed=1)
    hub.create("org/base", on_disk(tmp_path / "base", glm4_moe(), seed=2))
    mine = hub.create("org/mine", tmp_path / "kept")
    mine.open_pr("lists", {"hf_quant_config.json": (tmp_path / "kept" / "config.json").read_bytes()})
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # or the first run would make calls that the next ones do not
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fresh(root: Path) -> None:
    for name in ("here", "state", "cache"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "state.jsonl").unlink(missing_ok=True)
    for part in left_over(root):
        part.unlink()
    (root / "out").write_bytes(YESTERDAY)
    shutil.copytree(root / "kept", root / "here")


def run(command: str, want: Callable[[Call, When], Act] = traced.go_on) -> Ended:
    return traced.run([sys.executable, "-m", "mtpfix", *COMMANDS[command]], want)


def seen(root: Path) -> Seen:
    """The checkpoint, the names of the records without what is drawn, the rows of the scan, what `-o` wrote."""
    state = root / "state.jsonl"
    rows = sorted(state.read_bytes().splitlines()) if state.exists() else []
    files = {path.name: path.read_bytes() for path in (root / "here").iterdir()}
    return files, names(root / "state"), rows, (root / "out").read_bytes()


def left_over(root: Path) -> list[Path]:
    return list(root.glob(".mtpfix-*"))


def names(folder: Path) -> list[str]:
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(re.sub("[0-9a-f]{16,}", "*", name) for name in found)


def moments(root: Path, command: str, few: int) -> Iterator[tuple[Call, Ended, Seen]]:
    """Calls of a whole run that are about a file of the test, a few or all, and how such a run ends."""
    fresh(root)
    whole = run(command)
    assert whole.code in (0, 1), whole.err
    wanted = seen(root)
    calls = [call for call in whole.calls if any(str(root) in path for path in call.paths)]
    for call in calls[::STEP] if LONG else calls[len(calls) // few // 2 :: len(calls) // few][:few]:
        fresh(root)
        yield call, whole, wanted


def at(call: Call, first: Act, then: Act = None) -> Callable[[Call, When], Act]:
    """Something happens to this call; threads may make others of the same number, which is as good."""
    return lambda one, when: (first if when == "before" else then) if one.number == call.number else None


@pytest.mark.parametrize("command", COMMANDS if LONG else ("graft", "scan", "review -o"))
def test_killed(root: Path, command: str) -> None:
    for call, whole, wanted in moments(root, command, 2):
        ways = (Half(), Kill()) if "write" in call.name else (Kill(),)
        assert run(command, at(call, *ways)).code == -signal.SIGKILL
        counted["kills of " + command] += 1
        assert (root / "out").read_bytes() in (YESTERDAY, wanted[-1]), call
        after = run(command)
        assert after.code == whole.code, (call, after.err)
        assert seen(root) == wanted, call
        assert not left_over(root), call


@pytest.mark.parametrize("command", COMMANDS if LONG else ("graft", "scan"))
def test_an_error_of_the_disk(root: Path, command: str) -> None:
    """What is only kept for later stops nothing; of the rest one message tells."""
    for call, whole, wanted in moments(root, command, 1):
        found = run(command, at(call, Fail(errno.ENOSPC)))
        counted["errors of " + command] += 1
        assert (root / "out").read_bytes() in (YESTERDAY, wanted[-1]), call
        assert found.code in (whole.code, 3), (call, found.err)
        assert "Traceback" not in found.err, call
        if found.code == 3:
            assert (found.err.count("Error: "), found.err.count("Hint: ")) == (1, 1), (call, found.err)
        hit = found.calls[call.number : call.number + 1]  # threads make them in any order
        if any("/cache/" in path for one in hit for path in one.paths):
            assert found.code == whole.code, (call, found.err)
        after = run(command)
        assert after.code == whole.code, (call, after.err)
        assert seen(root) == wanted, call
