"""The floor of the benchmark: a process that reads and parses every safetensors header and does nothing else.

    python tests/bench/floor.py DIR [json|msgspec]

Prints the number of tensors. Measure the whole process, as a user would see it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def parser(name: str) -> Callable[[bytes], Any]:
    """The parser to measure, imported only here so that each pays for its own import."""
    if name == "msgspec":
        import msgspec

        return msgspec.json.decode
    import json

    return json.loads


def read_headers(folder: str, parse: Callable[[bytes], Any]) -> int:
    """How many tensors the headers of a folder list."""
    count = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse(file.read(length))
        count += len(header) - ("__metadata__" in header)
    return count


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print(read_headers(sys.argv[1], parser(sys.argv[2] if len(sys.argv) == 3 else "json")))
