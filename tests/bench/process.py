"""Whole processes, measured as a user sees them: wall time, processor time and peak memory, from `wait4`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
MTPFIX = (sys.executable, "-c", "from mtpfix.__main__ import run; run('mtpfix')")  # as the script does
READER = (sys.executable, str(Path(__file__).with_name("reader.py")))
# As it runs once it is installed: with its bytecode kept, and this tree's mtpfix before any other.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

Command = Sequence[str]


def on_hub(url: str, cache: str) -> dict[str, str]:
    """The environment of a process that knows no Hub but this one, and starts with what is in `cache`."""
    own = {"HF_ENDPOINT": url, "HF_HOME": f"{cache}/home", "XDG_CACHE_HOME": cache, "HF_HUB_DISABLE_TELEMETRY": "1"}
    foreign = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {name: value for name, value in ENVIRONMENT.items() if name.upper() not in foreign}
    return {**kept, **own}


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds of wall time and of processor time, peak memory in MB, exit code."""

    wall: float
    cpu: float
    memory: float
    code: int


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one command: least and median times, most memory."""

    found: tuple[Run, ...]

    @property
    def wall(self) -> float:
        return min(run.wall for run in self.found)

    @property
    def cpu(self) -> float:
        return min(run.cpu for run in self.found)

    @property
    def memory(self) -> float:
        return max(run.memory for run in self.found)

    @property
    def line(self) -> str:
        """The numbers, under `HEAD`."""
        walls, cpus = [run.wall for run in self.found], [run.cpu for run in self.found]
        times = f"{self.wall:9.3f}{median(walls):9.3f}{self.cpu:9.3f}{median(cpus):9.3f}"
        return f"{times}{self.memory:7.0f}"


HEAD = f"{'wall s':>9}{'median':>9}{'cpu s':>9}{'median':>9}{'MB':>7}"


def measured(command: Command, environment: Mapping[str, str] = ENVIRONMENT) -> Run:
    """Run a process to its end, its output thrown away.

    This process has to be small: a child's peak memory counts from its parent's at the start.
    """
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    start = time.perf_counter()
    child = os.posix_spawn(command[0], list(command), environment, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    unit = 1_000_000 if sys.platform == "darwin" else 1_000  # bytes there, kilobytes elsewhere
    code = os.waitstatus_to_exitcode(status)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit, code)


def ours(command: Command, environment: Mapping[str, str] = ENVIRONMENT) -> Run:
    """The same for mtpfix and the floors, which have to succeed (or find errors)."""
    run = measured(command, environment)
    if run.code not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {run.code}")
    return run


def in_turn(commands: Mapping[str, Command], rounds: int) -> dict[str, Runs]:
    """Every command once to warm up (bytecode, page cache), then `rounds` times, in turn.

    So what else the machine does meets all of them alike. A command that fails at first is left out; one that fails
    later, and mtpfix at any time, ends it.
    """
    able = {name: command for name, command in commands.items() if _works(name, command)}
    found: dict[str, list[Run]] = {name: [] for name in able}
    for _ in range(rounds):
        for name, command in able.items():
            run = measured(command)
            if run.code not in _done(command):
                sys.exit(f"{name}: exit {run.code}")
            found[name].append(run)
    return {name: Runs(tuple(runs)) for name, runs in found.items()}


def _works(name: str, command: Command) -> bool:
    if _is_mtpfix(command):
        ours(command)
        return True
    code = measured(command).code
    if code not in _done(command):
        print(f"{name}: exit {code}, left out")
    return code in _done(command)


def _done(command: Command) -> tuple[int, ...]:
    """The exit codes by which a command has done its work; what inspectors say by 1 to 3 differs."""
    if _is_mtpfix(command):
        return 0, 1
    return (0,) if command[0] == sys.executable else (0, 1, 2, 3)


def _is_mtpfix(command: Command) -> bool:
    return tuple(command[: len(MTPFIX)]) == MTPFIX


def table(runs: Mapping[str, Runs], wide: int = 30) -> str:
    """A row for each command."""
    rows = [f"{name:{wide}}{each.line}" for name, each in runs.items()]
    return "\n".join([f"{'':{wide}}{HEAD}", *rows])


def goal(what: str, value: float, most: float, unit: str = "") -> str:
    """A line that says whether a goal is met."""
    return f"{what}: {value:.3g}{unit}, goal {most:g}{unit}: {'met' if value <= most else 'NOT MET'}"
