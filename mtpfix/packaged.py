"""Data files of this package.

Read through the package's own loader, as `importlib.resources` does it. That module costs 10 ms to import.
"""

from __future__ import annotations

import os
from typing import Any


def text(path: str) -> str:
    """The text of a file of this package, `data/releases.json`, wherever the package was imported from.

    Raises OSError where there is none.
    """
    loader: Any = __spec__.loader
    raw: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), *path.split("/")))
    return raw.decode("utf-8")
