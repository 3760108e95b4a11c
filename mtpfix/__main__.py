"""`python -m mtpfix`."""

from __future__ import annotations

from mtpfix.cli import main

if __name__ == "__main__":
    main(prog_name="mtpfix")
