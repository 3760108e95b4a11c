"""Regular expressions that are compiled when they are first used.

Compiling takes up to 0.4 ms each, and of a hundred a checkpoint with one shard needs sixty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["pattern"]

if TYPE_CHECKING:
    from re import compile as pattern
else:

    class pattern:
        """`re.compile`, later: what is asked of it is asked of the compiled expression, once, and kept."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self._text, self._flags = text, flags

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(self._text, self._flags), name)
            setattr(self, name, found)
            return found
