"""AutoRound: quantize to 4 bits, save, restore the draft, and let mtpfix make the config right.

python examples/exporters/export_autoround.py BASE_DIR OUT_DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from auto_round import AutoRound

import mtpfix


def export(base: Path, out: Path) -> None:
    """Write a checkpoint that engines load as it is stored."""
    rounding = AutoRound(str(base), scheme="W4A16", iters=0, disable_opt_rtn=True, device_map="cpu")
    rounding.quantize_and_save(str(out), format="auto_round")

    mtpfix.ensure(out, base=base, rewrite=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    export(Path(sys.argv[1]), Path(sys.argv[2]))
