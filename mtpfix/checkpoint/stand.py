"""How the files of a folder stand, so that who has read them knows whether somebody wrote meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress

FILES = (".json", ".safetensors")
JOURNAL = ".mtpfix-journal.json"  # of a write that is under way, or was killed

WITHOUT_WAITING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""How a file is opened, and read, that may be a pipe or a device: `os.open` returns at once."""

Stand = list[tuple[str, int, int, int]]


def stand_of(folder: str) -> Stand:
    """What tells whether a file of a folder was replaced or written: name, inode, size and time of each."""
    found = []
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(FILES):
                with suppress(OSError):
                    status = os.stat(entry.path)
                    found.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return sorted(found)


def has_journal(folder: str) -> bool:
    """Whether a write in a folder is under way, or was killed."""
    return os.path.lexists(os.path.join(folder, JOURNAL))
