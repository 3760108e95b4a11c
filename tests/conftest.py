"""Puts this folder on the path, for the modules that several test folders share, and keeps bytecode."""

import os
import sys

# Its plugins look for who refers to their generators, and would find nobody once a command that was run in this process
# has frozen what is there.
import hypothesis  # noqa: F401

# The tests start hundreds of processes: without it each would compile the program and read all families' TOML again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
