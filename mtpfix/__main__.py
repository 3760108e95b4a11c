"""The program: `python -m mtpfix`, and what the script `mtpfix` calls."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def run(name: str | None = None) -> None:
    """The command line as a process, which ends with it: raises SystemExit, or does not come back.

    To take a large checkpoint apart object by object takes a thirtieth of the time; the system does that at once.
    Where anything else may be left to be done (threads, temporary files) Python does it all.
    """
    try:
        from mtpfix.cli import main  # here, so that Ctrl-C meanwhile has no traceback

        main(prog_name=name)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except SystemExit as end:
        _end(end.code)
        raise


def _end(code: object) -> None:
    """Ends the process where nothing else is left to be done."""
    import threading
    from contextlib import suppress

    if type(code) is int and threading.active_count() == 1 and "tempfile" not in sys.modules:
        with suppress(OSError, ValueError):  # Python says what stdout does not take
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code)


if __name__ == "__main__":
    run("mtpfix")
