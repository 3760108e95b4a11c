"""The program: `python -m mtpfix`, and what the script `mtpfix` calls."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

from mtpfix.cli import main


def run(name: str | None = None) -> None:
    """The command line as a process, which ends with it: raises SystemExit, or does not come back.

    To take a large checkpoint apart object by object takes a thirtieth of the time; the system does that at once.
    Where anything else may be left to be done (threads, temporary files) Python does it all.
    """
    try:
        main(prog_name=name)
    except SystemExit as end:
        if type(end.code) is int and threading.active_count() == 1 and "tempfile" not in sys.modules:
            with suppress(OSError, ValueError):  # Python says what stdout does not take
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
                os._exit(end.code)
        raise


if __name__ == "__main__":
    run("mtpfix")
