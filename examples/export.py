"""The end of an export script: write the checkpoint, then one line that makes its lists right.

    python examples/export.py OUT_DIR

The exporter here stands for any that quantizes the layers which it knows. It copies the draft (layer 2) in full
precision and, as many do, forgets to say so: without `mtpfix.ensure` engines would take the draft for NVFP4. Where
something is wrong that no safe edit mends, `ensure` raises `mtpfix.FindingsError`, and the script fails before
anything is uploaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tiny import Row, Tensors, modelopt, save_json, save_sharded, tensors

import mtpfix

LAYERS = 2


def layer(number: int, scheme: str) -> list[Row]:
    """A decoder layer of GLM-4.x MoE: attention and router plain, the MLP or the experts in a scheme."""
    front = f"model.layers.{number}"
    places = "mlp" if number == 0 else "mlp.{experts.0,experts.1,shared_experts}"
    router: list[Row] = [
        (f"{front}.mlp.gate", "bf16", (2, 32)),
        (f"{front}.mlp.gate.e_score_correction_bias", "F32", (2,)),
    ]
    return [
        (f"{front}.{{input_layernorm,post_attention_layernorm}}.weight", "BF16", (32,)),
        (f"{front}.self_attn.{{q,k,v,o}}_proj", "bf16", (32, 32)),
        *(router if number else []),
        (f"{front}.{places}.{{gate,up,down}}_proj", scheme, (32, 32)),
    ]


def quantized_model() -> Tensors:
    """What the exporter quantized."""
    rows: list[Row] = [
        ("model.embed_tokens.weight", "BF16", (64, 32)),
        *layer(0, "nvfp4"),
        *layer(1, "nvfp4"),
        ("model.norm.weight", "BF16", (32,)),
        ("lm_head", "bf16", (64, 32)),
    ]
    return tensors(rows)


def copied_draft() -> Tensors:
    """What it copied from the original: the draft, a layer after the last."""
    front = f"model.layers.{LAYERS}"
    rows: list[Row] = [
        *layer(LAYERS, "bf16"),
        (f"{front}.{{enorm,hnorm}}.weight", "BF16", (32,)),
        (f"{front}.eh_proj", "bf16", (32, 64)),
        (f"{front}.shared_head.norm.weight", "BF16", (32,)),
    ]
    return tensors(rows)


def save_config(folder: Path) -> None:
    """config.json and hf_quant_config.json; both lists stop at the last layer of the target."""
    excluded = [
        "lm_head",
        *(f"model.layers.{number}.self_attn*" for number in range(LAYERS)),
        "model.layers.1.mlp.gate",
    ]
    inside, sidecar = modelopt(excluded, "0.47.0")
    config = {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "hidden_size": 32,
        "intermediate_size": 32,
        "moe_intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_nextn_predict_layers": 1,
        "first_k_dense_replace": 1,
        "n_routed_experts": 2,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 64,
        "torch_dtype": "bfloat16",
        "quantization_config": inside,
    }
    save_json(folder / "config.json", config)
    save_json(folder / "hf_quant_config.json", sidecar, 4)


def export(folder: Path) -> None:
    """Write a checkpoint that engines load as it is stored."""
    folder.mkdir(parents=True, exist_ok=True)
    save_sharded(folder, [quantized_model(), copied_draft()])
    save_config(folder)

    mtpfix.ensure(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    export(target)
    written = json.loads((target / "hf_quant_config.json").read_text("utf-8"))
    print("excluded from quantization:", *written["quantization"]["exclude_modules"])
