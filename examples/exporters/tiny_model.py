"""A tiny GLM-4.x MoE with a draft, as a publisher of a base model would have it: to try the export scripts on a CPU.

    python examples/exporters/tiny_model.py BASE_DIR

Random weights, 0.9 MB. transformers builds no draft, so layer 2 is written beside the model, as published ones hold it.
Needs torch and transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM, PreTrainedTokenizerFast

LAYERS = 2


def tokenizer() -> PreTrainedTokenizerFast:
    """Words as tokens: enough for calibration code that wants a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "[PAD]": 1, **{f"w{number}": number for number in range(2, 128)}}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]")


def config() -> Glm4MoeConfig:
    return Glm4MoeConfig(
        vocab_size=128,
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_nextn_predict_layers=1,
        first_k_dense_replace=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        n_group=1,
        topk_group=1,
    )


def draft(layer: dict[str, torch.Tensor], hidden: int) -> dict[str, torch.Tensor]:
    """Layer 2: a decoder layer like the last one, and what a draft has besides."""
    front = f"model.layers.{LAYERS}."
    own = {
        "enorm.weight": torch.ones(hidden),
        "hnorm.weight": torch.ones(hidden),
        "eh_proj.weight": torch.randn(hidden, 2 * hidden),
        "shared_head.norm.weight": torch.ones(hidden),
    }
    tensors = {f"{front}{name}": tensor.to(torch.bfloat16) for name, tensor in own.items()}
    return {**tensors, **{f"{front}{name}": tensor.clone() for name, tensor in layer.items()}}


def write(folder: Path) -> None:
    """The model as transformers writes it, its draft in a shard of its own, and an index over both."""
    torch.manual_seed(0)
    settings = config()
    Glm4MoeForCausalLM(settings).to(torch.bfloat16).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "model-00001.safetensors")
    own = load_file(folder / "model-00001.safetensors")
    last = f"model.layers.{LAYERS - 1}."
    layer = {name.removeprefix(last): tensor for name, tensor in own.items() if name.startswith(last)}
    tensors = draft(layer, settings.hidden_size)
    save_file(tensors, folder / "mtp.safetensors", metadata={"format": "pt"})
    places = {**dict.fromkeys(own, "model-00001.safetensors"), **dict.fromkeys(tensors, "mtp.safetensors")}
    size = sum(tensor.nbytes for tensor in (*own.values(), *tensors.values()))
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
