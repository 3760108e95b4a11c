"""The command line in processes of its own that are measured: time, peak memory, exit code, what they printed.

One process imports everything and forks for each run, so that hundreds of runs take seconds, and so that the memory of
whoever asks does not count. By hand, from the tests' folder: `python -m hostile.sandbox`, then `["check", "DIR"]`.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 5.0
MEGABYTES = 300.0
_HERE = Path(__file__).resolve().parent
_EXAMPLE = _HERE.parents[1] / "examples/Qwen3-Next-80B-A3B-Instruct-NVFP4"


@dataclass(frozen=True)
class Run:
    code: int  # of the exit, or minus the signal
    out: str
    err: str
    seconds: float  # of processor time
    megabytes: float  # at the peak, with what the interpreter takes


class Sandbox:
    """The process that forks; a context manager."""

    def __enter__(self) -> Sandbox:
        search = os.pathsep.join(str(folder) for folder in (_HERE.parent, _HERE.parent.parent))
        self._server = subprocess.Popen(
            [sys.executable, "-m", "hostile.sandbox"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, *args: str | os.PathLike[str]) -> Run:
        """Runs `mtpfix ARGS`. It is killed where it waits, or works for more than twice the time that is allowed."""
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps([os.fspath(arg) for arg in args]), file=self._server.stdin, flush=True)
        return Run(*json.loads(self._server.stdout.readline()))


def write_apart(file: Path, made: Callable[[], bytes]) -> None:
    """Write what takes much memory to make in a process of its own: who grows by it forks slowly from then on."""
    child = os.fork()
    if not child:
        try:
            file.write_bytes(made())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def civil(done: Run) -> None:
    """Whatever came in: a documented exit code, no traceback, no control characters, within time and memory."""
    assert done.code in (0, 1, 2, 3), (done.code, done.err[-2000:])
    assert "Traceback (most recent call last)" not in done.err, done.err[-2000:]
    if done.code == 3:
        assert done.err.startswith("Error: "), done.err[:500]
        assert "\nHint: " in done.err, done.err[:500]
    for text in (done.out, done.err):
        wild = {char for char in text if (ord(char) < 32 and char not in "\n\t") or char in "\x7f\u202e\u2066\u200f"}
        assert not wild, (wild, text[:300])
    assert len(done.err) < 20_000
    assert done.seconds < SECONDS, f"{done.seconds:.1f} s"
    assert done.megabytes < MEGABYTES, f"{done.megabytes:.0f} MB"


def serve() -> None:
    _warm_up()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(_measured(json.loads(line))), file=answers, flush=True)


def _warm_up() -> None:
    """Import and read of the program's own what each fork would have to again."""
    from mtpfix.cli import main

    shown = sys.stdout, sys.stderr
    for words in (("check",), ("check", "--format", "json"), ("apply", "--dry-run")):
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in shown)
        with suppress(SystemExit):
            main([*words, str(_EXAMPLE)], prog_name="mtpfix")
    sys.stdout, sys.stderr = shown


def _measured(args: Sequence[str]) -> tuple[int, str, str, float, float]:
    with TemporaryDirectory() as folder:
        child = os.fork()
        if not child:
            _child(Path(folder), args)
        end = time.monotonic() + 12 * SECONDS
        while not (found := os.wait4(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        used = found[2]
        out, err = ((Path(folder) / name).read_text("utf-8", "backslashreplace") for name in ("out", "err"))
    return os.waitstatus_to_exitcode(found[1]), out, err, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _child(where: Path, args: Sequence[str]) -> None:
    from mtpfix.cli import main

    code = 99
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(where / name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), "utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", write_through=True)
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * SECONDS), int(2 * SECONDS) + 1))
        main(args, prog_name="mtpfix")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 98
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
