"""Writes the example checkpoints beside this file.

    python examples/make.py [OUT_DIR]

Each is a published model cut down to a few kB: true names, a few layers and experts, hidden size 16 to 64. The fault
of each is true to the original as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tiny import Row, modelopt, names, save_json, save_sharded, tensors

HERE = Path(__file__).parent
Json = dict[str, Any]


def expanded(*patterns: str) -> list[str]:
    """The names of several patterns, in order."""
    return [name for pattern in patterns for name in names(pattern)]


def qwen3_next(folder: Path) -> None:
    """Qwen3-Next NVFP4 by ModelOpt: the lists name `mtp.layers.0*`, and `mtp.fc` lies outside."""
    linear, full = "model.layers.0", "model.layers.1"
    rows: list[Row] = [
        ("model.embed_tokens.weight", "BF16", (64, 16)),
        ("model.layers.{0..1}.{input_layernorm,post_attention_layernorm}.weight", "BF16", (16,)),
        (f"{linear}.linear_attn.in_proj_qkvz", "bf16", (96, 16)),
        (f"{linear}.linear_attn.in_proj_ba", "bf16", (4, 16)),
        *qwen_linear_attention(linear),
        *qwen_attention(full, "bf16"),
        *qwen_experts("model.layers.{0..1}", "nvfp4"),
        ("model.norm.weight", "BF16", (16,)),
        ("lm_head", "bf16", (64, 16)),
        *qwen_draft(),
    ]
    excluded = expanded(
        "lm_head",
        "model.layers.{0..1}.mlp.gate",
        "model.layers.{0..1}.mlp.shared_expert_gate",
        "model.layers.0.linear_attn*",
        "model.layers.1.self_attn*",
        "mtp.layers.0*",
    )
    inside, sidecar = modelopt(excluded, "0.37.0")
    config: Json = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **QWEN,
        "full_attention_interval": 2,
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "intermediate_size": 32,
        "torch_dtype": "bfloat16",
        "quantization_config": inside,
    }
    save_sharded(folder, [tensors(rows)])
    save_json(folder / "config.json", config)
    save_json(folder / "hf_quant_config.json", sidecar, 4)


QWEN: Json = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "num_experts": 2,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "vocab_size": 64,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
}


def qwen_draft() -> list[Row]:
    layer = "mtp.layers.0"
    return [
        ("mtp.fc", "bf16", (16, 32)),
        ("mtp.{norm,pre_fc_norm_embedding,pre_fc_norm_hidden}.weight", "BF16", (16,)),
        (f"{layer}.{{input_layernorm,post_attention_layernorm}}.weight", "BF16", (16,)),
        *qwen_attention(layer, "bf16"),
        *qwen_experts(layer, "bf16"),
    ]


def qwen_linear_attention(layer: str) -> list[Row]:
    """All of it but the projections in, which the two models fuse in different ways."""
    return [
        (f"{layer}.linear_attn.conv1d.weight", "BF16", (64, 1, 4)),
        (f"{layer}.linear_attn.{{A_log,dt_bias}}", "BF16", (2,)),
        (f"{layer}.linear_attn.norm.weight", "BF16", (16,)),
        (f"{layer}.linear_attn.out_proj", "bf16", (16, 32)),
    ]


def qwen_attention(layer: str, scheme: str) -> list[Row]:
    """Gated attention with two heads and one key-value head."""
    return [
        (f"{layer}.self_attn.q_proj", scheme, (64, 16)),
        (f"{layer}.self_attn.{{k,v}}_proj", scheme, (16, 16)),
        (f"{layer}.self_attn.o_proj", scheme, (16, 32)),
        (f"{layer}.self_attn.{{q,k}}_norm.weight", "BF16", (16,)),
    ]


def qwen_experts(layer: str, scheme: str) -> list[Row]:
    """Two experts and a shared one, with their gates in full precision."""
    return [
        (f"{layer}.mlp.gate", "bf16", (2, 16)),
        (f"{layer}.mlp.shared_expert_gate", "bf16", (1, 16)),
        (f"{layer}.mlp.{{shared_expert,experts.0,experts.1}}.{{gate,up}}_proj", scheme, (16, 16)),
        (f"{layer}.mlp.{{shared_expert,experts.0,experts.1}}.down_proj", scheme, (16, 16)),
    ]


def qwen3_5_gptq(folder: Path) -> None:
    """Qwen3.5 MoE GPTQ-Int4: the draft is BF16, and `dynamic` has no `-:` rule for it."""
    text = "model.language_model.layers"
    rows: list[Row] = [
        ("model.language_model.embed_tokens.weight", "BF16", (64, 16)),
        (f"{text}.{{0..1}}.{{input_layernorm,post_attention_layernorm}}.weight", "BF16", (16,)),
        (f"{text}.0.linear_attn.in_proj_qkv", "bf16", (64, 16)),
        (f"{text}.0.linear_attn.in_proj_z", "bf16", (32, 16)),
        (f"{text}.0.linear_attn.in_proj_{{b,a}}", "bf16", (2, 16)),
        *qwen_linear_attention(f"{text}.0"),
        *qwen_attention(f"{text}.1", "gptq4"),
        *qwen_experts(f"{text}.{{0..1}}", "gptq4"),
        ("model.language_model.norm.weight", "BF16", (16,)),
        ("lm_head", "bf16", (64, 16)),
        *qwen_vision(),
        *qwen_draft(),
    ]
    text_config: Json = {
        "model_type": "qwen3_5_moe_text",
        **QWEN,
        "layer_types": ["linear_attention", "full_attention"],
        "full_attention_interval": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
        "attn_output_gate": True,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "mamba_ssm_dtype": "float32",
        "dtype": "bfloat16",
    }
    config: Json = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text_config,
        "vision_config": QWEN_VISION,
        "image_token_id": 60,
        "video_token_id": 61,
        "vision_start_token_id": 62,
        "vision_end_token_id": 63,
        "tie_word_embeddings": False,
        "quantization_config": {
            "bits": 4,
            "checkpoint_format": "gptq",
            "desc_act": False,
            "dynamic": {
                "-:.*linear_attn.*": {},
                "-:.*visual.*": {},
                r"-:.*mlp\.gate$": {},
                "-:.*shared_expert_gate.*": {},
            },
            "group_size": -1,
            "lm_head": False,
            "quant_method": "gptq",
            "sym": True,
        },
    }
    save_sharded(folder, [tensors(rows)])
    save_json(folder / "config.json", config)


QWEN_VISION: Json = {
    "model_type": "qwen3_5_moe",
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 1,
    "in_channels": 3,
    "patch_size": 4,
    "spatial_merge_size": 1,
    "temporal_patch_size": 2,
    "out_hidden_size": 16,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [],
    "hidden_act": "gelu_pytorch_tanh",
}


def qwen_vision() -> list[Row]:
    """A vision tower of one block."""
    block, merger = "model.visual.blocks.0", "model.visual.merger"
    return [
        ("model.visual.patch_embed.proj.weight", "BF16", (16, 3, 2, 4, 4)),
        ("model.visual.patch_embed.proj.bias", "BF16", (16,)),
        ("model.visual.pos_embed.weight", "BF16", (16, 16)),
        (f"{block}.{{norm1,norm2}}.{{weight,bias}}", "BF16", (16,)),
        (f"{block}.attn.qkv", "bf16", (48, 16)),
        (f"{block}.attn.qkv.bias", "BF16", (48,)),
        (f"{block}.attn.proj", "bf16", (16, 16)),
        (f"{block}.attn.proj.bias", "BF16", (16,)),
        (f"{block}.mlp.linear_fc1", "bf16", (32, 16)),
        (f"{block}.mlp.linear_fc1.bias", "BF16", (32,)),
        (f"{block}.mlp.linear_fc2", "bf16", (16, 32)),
        (f"{block}.mlp.linear_fc2.bias", "BF16", (16,)),
        (f"{merger}.norm.{{weight,bias}}", "BF16", (16,)),
        (f"{merger}.linear_fc1", "bf16", (16, 16)),
        (f"{merger}.linear_fc1.bias", "BF16", (16,)),
        (f"{merger}.linear_fc2", "bf16", (16, 16)),
        (f"{merger}.linear_fc2.bias", "BF16", (16,)),
    ]


def glm5_next(folder: Path) -> None:
    """GLM-5-next NVFP4 by ModelOpt: the draft is layer 45, plain, and no list names it.

    Of the 45 layers of the target only the first and the last are stored.
    """
    text = "model.language_model"
    target: list[Row] = [
        (f"{text}.embed_tokens.weight", "BF16", (32, 16)),
        (f"{text}.layers.{{0,44}}.{{input_layernorm,post_attention_layernorm}}.weight", "BF16", (16,)),
        (f"{text}.layers.{{0,44}}.{{hc_attn_fn,hc_ffn_fn}}", "F32", (8, 32)),
        (f"{text}.layers.{{0,44}}.{{hc_attn_base,hc_ffn_base}}", "F32", (8,)),
        (f"{text}.layers.{{0,44}}.{{hc_attn_scale,hc_ffn_scale}}", "F32", (3,)),
        *glm_linear_attention(f"{text}.layers.{{0,44}}"),
        (f"{text}.layers.0.mlp.{{gate,up}}_proj", "nvfp4", (32, 16)),
        (f"{text}.layers.0.mlp.down_proj", "nvfp4", (16, 32)),
        *glm_experts(f"{text}.layers.44", "nvfp4"),
        (f"{text}.norm.weight", "BF16", (16,)),
        ("lm_head", "bf16", (32, 16)),
    ]
    layer = f"{text}.layers.45"
    draft: list[Row] = [
        (f"{layer}.{{input_layernorm,post_attention_layernorm}}.weight", "BF16", (16,)),
        *glm_latent_attention(layer),
        *glm_experts(layer, "bf16"),
        (f"{layer}.{{enorm,hnorm}}.weight", "BF16", (16,)),
        (f"{layer}.eh_proj", "bf16", (16, 32)),
        (f"{layer}.shared_head.norm.weight", "BF16", (16,)),
    ]
    excluded = expanded(
        "lm_head",
        f"{text}.embed_tokens",
        f"{text}.layers.{{0..44}}.self_attn*",
        f"{text}.layers.{{1..44}}.mlp.gate",
        "model.visual*",
    )
    inside, sidecar = modelopt(excluded, "0.47.0")
    config: Json = {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": GLM_TEXT,
        "vision_config": {
            "model_type": "glm5_next_vision",
            "depth": 0,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 1,
            "patch_size": 14,
            "in_channels": 3,
            "out_hidden_size": 16,
        },
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "quantization_config": inside,
    }
    save_sharded(folder, [tensors([*target, *draft])])
    save_json(folder / "config.json", config)
    save_json(folder / "hf_quant_config.json", sidecar, 4)


GLM_LINEAR_OR_NOT = [("indexed" if layer % 4 == 3 else "linear") + "_attention" for layer in range(45)]
GLM_TEXT: Json = {
    "model_type": "glm5_next_text",
    "hidden_size": 16,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 45,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "layer_types": GLM_LINEAR_OR_NOT,
    "first_k_dense_replace": 1,
    "mlp_layer_types": ["dense"] + ["sparse"] * 44,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 0,
    "v_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 16,
    "index_kpool": 4,
    "index_kpool_always_select_tail": True,
    "index_kpool_compress": True,
    "indexer_rope_interleave": True,
    "linear_num_heads": 2,
    "linear_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "linear_lower_bound": -5.0,
    "mhc": True,
    "hc_mult": 2,
    "hc_eps": 1e-06,
    "hc_sinkhorn_iters": 20,
    "mla_use_nope": True,
    "swiglu_limit": 10.0,
    "vocab_size": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


def glm_linear_attention(layer: str) -> list[Row]:
    """The linear attention of three layers in four."""
    return [
        (f"{layer}.self_attn.{{q,k,v}}_proj", "bf16", (16, 16)),
        (f"{layer}.self_attn.{{q,k,v}}_conv1d.weight", "F32", (16, 1, 4)),
        (f"{layer}.self_attn.b_proj", "bf16", (2, 16)),
        (f"{layer}.self_attn.{{f_a,g_a}}_proj", "bf16", (8, 16)),
        (f"{layer}.self_attn.{{f_b,g_b}}_proj", "bf16", (16, 8)),
        (f"{layer}.self_attn.dt_bias", "F32", (16,)),
        (f"{layer}.self_attn.A_log", "F32", (1, 1, 2, 1)),
        (f"{layer}.self_attn.o_norm.weight", "BF16", (8,)),
        (f"{layer}.self_attn.o_proj", "bf16", (16, 16)),
    ]


def glm_latent_attention(layer: str) -> list[Row]:
    """The latent attention and its indexer."""
    return [
        (f"{layer}.self_attn.q_a_proj", "bf16", (16, 16)),
        (f"{layer}.self_attn.q_a_layernorm.weight", "BF16", (16,)),
        (f"{layer}.self_attn.q_b_proj", "bf16", (16, 16)),
        (f"{layer}.self_attn.kv_a_proj_with_mqa", "bf16", (16, 16)),
        (f"{layer}.self_attn.kv_a_layernorm.weight", "BF16", (16,)),
        (f"{layer}.self_attn.kv_b_proj", "bf16", (32, 16)),
        (f"{layer}.self_attn.o_proj", "bf16", (16, 16)),
        (f"{layer}.self_attn.indexer.index_kpool_compress_ape", "F32", (4, 16)),
        (f"{layer}.self_attn.indexer.index_kpool_compress_gate", "BF16", (16, 16)),
        (f"{layer}.self_attn.indexer.wq_b", "bf16", (32, 16)),
        (f"{layer}.self_attn.indexer.wk", "bf16", (16, 16)),
        (f"{layer}.self_attn.indexer.weights_proj", "bf16", (2, 16)),
        (f"{layer}.self_attn.indexer.k_norm.{{weight,bias}}", "F32", (16,)),
    ]


def glm_experts(layer: str, scheme: str) -> list[Row]:
    """Two experts and a shared one; the router is plain."""
    return [
        (f"{layer}.mlp.gate", "bf16", (2, 16)),
        (f"{layer}.mlp.gate.e_score_correction_bias", "F32", (2,)),
        (f"{layer}.mlp.{{experts.0,experts.1,shared_experts}}.{{gate,up}}_proj", scheme, (16, 16)),
        (f"{layer}.mlp.{{experts.0,experts.1,shared_experts}}.down_proj", scheme, (16, 16)),
    ]


def gemma4_assistant(folder: Path, scheme: str = "nvfp4") -> None:
    """The Gemma 4 assistant in NVFP4: two projections are packed that must stay in full precision. No list mends it."""
    layer = "model.layers.{0..1}"
    norms = "input_layernorm,post_attention_layernorm,pre_feedforward_layernorm,post_feedforward_layernorm"
    rows: list[Row] = [
        ("model.embed_tokens.weight", "BF16", (64, 32)),
        ("pre_projection", scheme, (32, 128)),
        ("post_projection", scheme, (64, 32)),
        (f"{layer}.{{{norms}}}.weight", "BF16", (32,)),
        (f"{layer}.layer_scalar", "BF16", (1,)),
        (f"{layer}.self_attn.q_proj", scheme, (32, 32)),
        (f"{layer}.self_attn.o_proj", scheme, (32, 32)),
        (f"{layer}.self_attn.q_norm.weight", "BF16", (16,)),
        (f"{layer}.mlp.{{gate,up}}_proj", scheme, (64, 32)),
        (f"{layer}.mlp.down_proj", scheme, (32, 64)),
        ("model.norm.weight", "BF16", (32,)),
    ]
    text_config: Json = {
        "model_type": "gemma4_text",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "enable_moe_block": False,
        "use_double_wide_mlp": False,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 64,
        "vocab_size": 64,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-06,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "dtype": "bfloat16",
    }
    inside, sidecar = modelopt(["lm_head", "model.embed_tokens"], "0.45.0")
    config: Json = {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": 64,
        "use_ordered_embeddings": False,
        "tie_word_embeddings": True,
        "text_config": text_config,
        "dtype": "bfloat16",
        **({"quantization_config": inside} if scheme == "nvfp4" else {}),
    }
    save_sharded(folder, [tensors(rows)])
    save_json(folder / "config.json", config)
    if scheme == "nvfp4":
        save_json(folder / "hf_quant_config.json", sidecar, 4)


def gemma4_assistant_base(folder: Path) -> None:
    """What it was quantized from."""
    gemma4_assistant(folder, "bf16")


EXAMPLES: Mapping[str, Callable[[Path], None]] = {
    "Qwen3-Next-80B-A3B-Instruct-NVFP4": qwen3_next,
    "GLM-5.3-Flash-NVFP4": glm5_next,
    "Qwen3.5-35B-A3B-GPTQ-Int4": qwen3_5_gptq,
    "gemma-4-31B-it-assistant-NVFP4": gemma4_assistant,
    "base/gemma-4-31B-it-assistant": gemma4_assistant_base,
}


def make(out: Path) -> None:
    """Write every example into a folder."""
    for name, write in EXAMPLES.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
