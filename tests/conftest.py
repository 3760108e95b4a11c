"""Puts this folder on the path, for the modules that several test folders share; keeps bytecode; says what is first."""

import os
import sys

# Its plugins look for who refers to their generators, and would find nobody once a command that was run in this process
# has frozen what is there.
import hypothesis  # noqa: F401
import pytest

# The tests start hundreds of processes: without it each would compile the program and read all families' TOML again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What forks this process hundreds of times comes first, while it is small: it takes longer the more it holds."""
    items.sort(key=lambda item: item.get_closest_marker("forks") is None)
