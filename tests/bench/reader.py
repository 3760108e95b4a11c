"""What is compared with: a process that reads the headers of a checkpoint in one way and does nothing else.

    python tests/bench/reader.py DIR json | msgspec | orjson | safe_open | huggingface_hub [nogc]

The first three open each file and parse its header: the floor. `safe_open` is the safetensors library's own reader,
`huggingface_hub` its reader of a local checkpoint. With `nogc` Python looks for no garbage meanwhile. Prints the number
of tensors.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

PARSERS = {"json": ("json", "loads"), "msgspec": ("msgspec.json", "decode"), "orjson": ("orjson", "loads")}


def parser(name: str) -> Callable[[bytes], Any]:
    """The parser to measure, imported only here so that each pays for its own import."""
    module, function = PARSERS[name]
    found: Callable[[bytes], Any] = getattr(import_module(module), function)
    return found


def parsed(folder: str, name: str) -> int:
    """How many tensors the headers of a folder list."""
    parse = parser(name)
    count = 0
    for path in shards(folder):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse(file.read(length))
        count += len(header) - ("__metadata__" in header)
    return count


def shards(folder: str) -> list[str]:
    """The safetensors files of a folder."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]


def safe_opened(folder: str) -> int:
    """The same by the safetensors library."""
    from safetensors import safe_open

    count = 0
    for path in shards(folder):
        with safe_open(path, framework="numpy") as file:
            count += len(list(file.keys()))
    return count


def by_the_hub(folder: str) -> int:
    """The same by huggingface_hub."""
    from huggingface_hub import get_local_safetensors_metadata

    files = get_local_safetensors_metadata(folder).files_metadata
    return sum(len(file.tensors) for file in files.values())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["nogc"]):
        sys.exit(__doc__)
    folder, way, *without = sys.argv[1:]
    if without:
        gc.disable()
    print({"safe_open": safe_opened, "huggingface_hub": by_the_hub}.get(way, lambda path: parsed(path, way))(folder))
