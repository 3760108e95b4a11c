"""ModelOpt: quantize to NVFP4, export, restore the draft, and let mtpfix make the lists right.

    python examples/exporters/export_modelopt.py BASE_DIR OUT_DIR

`export_hf_checkpoint` writes what transformers loaded, which leaves the draft out. `mtpfix.ensure` restores it from the
base model in full precision and lists it in both files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForCausalLM

import mtpfix


def calibrate(model: torch.nn.Module) -> None:
    """A few tokens. A real script runs a few hundred samples of text."""
    with torch.no_grad():
        for _ in range(4):
            model(torch.randint(2, 128, (2, 32)))


def export(base: Path, out: Path) -> None:
    """Write a checkpoint that engines load as it is stored."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    model = mtq.quantize(model, mtq.NVFP4_DEFAULT_CFG, calibrate)
    export_hf_checkpoint(model, export_dir=out)

    mtpfix.ensure(out, base=base)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    export(Path(sys.argv[1]), Path(sys.argv[2]))
