"""Regular expressions that are compiled when they are first used.

Compiling takes up to 0.4 ms each, and of a hundred a checkpoint with one shard needs sixty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["pattern", "possessive"]

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


def possessive(body: str, times: str) -> str:
    """An expression for another as often as it fits (`*`, `?`, `{0,50}`), which is never gone back into.

    Before 3.11.5 Python goes on from where the last, failing round of a group came to a halt, not from where it began
    (python/cpython#106052): half of a member then counts. A way that fails at once puts that right, as the ways of a
    choice all begin at its start.
    """
    return f"(?:{body}|(?!)){times}+"
