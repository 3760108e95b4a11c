"""Two names that change places at once, so that what somebody else wrote last is never overwritten unseen.

`os.rename` replaces whatever has the new name by then. Linux since 3.15 can exchange two names instead (renameat2), and
C libraries since glibc 2.28 and musl 1.2.4 offer that call; Python does not.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def exchanged(one: Path, other: Path) -> bool:
    """Whether two names have changed places; False where the system or the file system cannot. Raises OSError."""
    call = _call()
    if call is None:
        return False
    if not call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
        return True
    import ctypes

    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


@cache
def _call() -> Any:
    try:
        import ctypes  # 5 ms

        found = ctypes.CDLL(None, use_errno=True).renameat2
        found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    return found
