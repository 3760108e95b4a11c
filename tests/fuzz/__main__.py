"""Fuzzes with atheris: `python -m tests.fuzz headers --seconds 600`, without a name every target in turn.

New inputs that reach new code are kept in MTPFIX_FUZZ_CORPUS/NAME if that is set, and forgotten otherwise. An input
that fails is written beside them, and its traceback shown. Put it into tests/fuzz/corpus/NAME: the tests try it ever
after.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What is fuzzed is watched for new branches; watching everything else as well makes each input three times as dear.
WATCHED = {
    "headers": ["mtpfix.checkpoint", "mtpfix.names"],
    "configs": ["mtpfix.checkpoint", "mtpfix.decisions", "mtpfix.engines", "mtpfix.formats", "mtpfix.world"],
    "splices": ["mtpfix.splice", "mtpfix.patch"],
    "matchers": ["mtpfix.engines"],
    "regexes": ["mtpfix.regexes"],
}
# libFuzzer's own limit counts seconds of the clock, which another process may have; `timed` counts the processor's.
HANGS = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]
    if chosen.child:
        return fuzz(chosen.target, chosen.child, chosen.seconds)
    names = [chosen.target] if chosen.target else ["headers", "configs", "splices", "matchers", "regexes"]
    return max(run(name, chosen.seconds) for name in names)


def run(name: str, seconds: int) -> int:
    """One target in a process of its own, which ends with the first input that fails."""
    kept = os.environ.get("MTPFIX_FUZZ_CORPUS")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(kept or scratch) / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(seconds), "--child", str(folder)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=HERE.parent.parent, stderr=subprocess.PIPE, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = done.stderr.splitlines()
    executed = [line for line in lines if line.startswith(("Done", "stat::number_of_executed_units"))]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    executed.append(f"{used:.0f} s of the processor")
    print(f"{name}: {'; '.join(executed) if not done.returncode else done.stderr[-4000:]}", flush=True)
    return done.returncode


def fuzz(name: str, folder: str, seconds: int) -> int:
    import atheris

    with atheris.instrument_imports(include=WATCHED[name]):
        from fuzz.targets import TARGETS, timed
    kept = [str(path) for path in [HERE / "corpus" / name] if path.is_dir()]
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={HANGS}",
        "-rss_limit_mb=2048",
        f"-artifact_prefix={folder}/failed-",
    ]
    atheris.Setup([sys.argv[0], *options, "-print_final_stats=1", folder, *kept], timed(TARGETS[name]))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
