"""Where the processor time of `mtpfix check` goes: imports, reading, analysis, writing the answer.

    python -m tests.bench.steps DIR

In one process and without the command line; the interpreter's own start is not in it.
"""

from __future__ import annotations

import sys
from time import process_time


def main(folder: str) -> None:
    """Do what `check` does, one step after the other, and print what each took."""
    times = [process_time()]
    from mtpfix import analysis
    from mtpfix.checkpoint.local import read_local
    from mtpfix.output import human
    from mtpfix.output.base import CheckResult, Page
    from mtpfix.rules import RULES

    times.append(process_time())
    checkpoint = read_local(folder)
    times.append(process_time())
    report = analysis.analyse(checkpoint, engines=(), scope="mtp", unsafe=False)
    times.append(process_time())
    human.check_text(CheckResult((report,), {rule.code: rule for rule in RULES}, False), Page())
    times.append(process_time())
    for name, start, end in zip(("imports", "reading", "analysis", "answer"), times, times[1:], strict=False):
        print(f"{name:9}{end - start:6.2f} s")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
