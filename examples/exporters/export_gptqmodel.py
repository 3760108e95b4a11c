"""GPTQModel: quantize to 4 bits, save, and let mtpfix make the config right.

    python examples/exporters/export_gptqmodel.py BASE_DIR OUT_DIR

GPTQModel copies the draft of the models it knows into `mtp.safetensors`, in full precision, and leaves `dynamic`, where
exclusions stand, as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gptqmodel import GPTQModel, QuantizeConfig

import mtpfix

TEXTS = [" ".join(f"w{(at * 7 + number) % 126 + 2}" for number in range(64)) for at in range(8)]


def export(base: Path, out: Path) -> None:
    """Write a checkpoint that engines load as it is stored. A real script calibrates with some hundred texts."""
    model = GPTQModel.load(str(base), QuantizeConfig(bits=4, group_size=32))
    model.quantize(TEXTS, batch_size=1)
    model.save(str(out))

    mtpfix.ensure(out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    export(Path(sys.argv[1]), Path(sys.argv[2]))
