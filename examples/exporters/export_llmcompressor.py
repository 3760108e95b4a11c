"""llm-compressor: quantize to NVFP4 weights, save, restore the draft, and let mtpfix make the list right.

    python examples/exporters/export_llmcompressor.py BASE_DIR OUT_DIR

llm-compressor copies the draft by itself for models that count it as `mtp_num_hidden_layers`, and lists it. For those
that count it as `num_nextn_predict_layers`, `mtpfix.ensure` restores it from the base model, and lists it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

import mtpfix


def export(base: Path, out: Path) -> None:
    """Write a checkpoint that engines load as it is stored."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    recipe = QuantizationModifier(targets="Linear", scheme="NVFP4A16", ignore=["lm_head", r"re:.*mlp\.gate$"])
    oneshot(model=model, recipe=recipe)
    model.save_pretrained(out, save_compressed=True)
    AutoTokenizer.from_pretrained(base).save_pretrained(out)

    mtpfix.ensure(out, base=base)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    export(Path(sys.argv[1]), Path(sys.argv[2]))
