"""Forge a DeepSeek-V3-like NVFP4 checkpoint at full size: real names, dtypes and shapes, holes for weights.

    python tests/bench/forge_large.py OUT_DIR [SHARDS]

61 layers of 256 experts in NVFP4 and a BF16 MTP layer make 180,000 tensors; the data is a sparse hole, so
413 GB take about 40 MB of disk. Tensors are laid out as the safetensors library writes them: each shard sorted
by element size, then by name. Standard library only.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

HIDDEN, INTER, MOE_INTER, VOCAB = 7168, 18432, 2048, 129280
LAYERS, DENSE_LAYERS, EXPERTS = 61, 3, 256
SIZE = {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}
WRITE_ORDER = {"F32": 0, "BF16": 1, "F8_E4M3": 2, "U8": 3}

Spec = tuple[str, list[int]]


def nvfp4(out: int, in_: int) -> dict[str, Spec]:
    """The four tensors of a ModelOpt NVFP4 linear."""
    return {
        "weight": ("U8", [out, in_ // 2]),
        "weight_scale": ("F8_E4M3", [out, in_ // 16]),
        "weight_scale_2": ("F32", []),
        "input_scale": ("F32", []),
    }


def bf16(*shape: int) -> dict[str, Spec]:
    """A plain parameter."""
    return {"weight": ("BF16", list(shape))}


def attention() -> dict[str, dict[str, Spec]]:
    """MLA attention, left in BF16 as NVIDIA's own exports do."""
    return {
        "self_attn.q_a_proj": bf16(1536, HIDDEN),
        "self_attn.q_a_layernorm": bf16(1536),
        "self_attn.q_b_proj": bf16(24576, 1536),
        "self_attn.kv_a_proj_with_mqa": bf16(576, HIDDEN),
        "self_attn.kv_a_layernorm": bf16(512),
        "self_attn.kv_b_proj": bf16(32768, 512),
        "self_attn.o_proj": bf16(HIDDEN, 16384),
        "input_layernorm": bf16(HIDDEN),
        "post_attention_layernorm": bf16(HIDDEN),
    }


def mlp(prefix: str, inter: int, *, plain: bool) -> dict[str, dict[str, Spec]]:
    """Gate, up and down projections under `prefix`."""
    make = bf16 if plain else nvfp4
    return {
        f"{prefix}.gate_proj": make(inter, HIDDEN),
        f"{prefix}.up_proj": make(inter, HIDDEN),
        f"{prefix}.down_proj": make(HIDDEN, inter),
    }


def layer(number: int, experts: int) -> dict[str, dict[str, Spec]]:
    """One decoder layer, module -> its tensors; number `LAYERS` is the MTP layer, all of it BF16."""
    plain = number >= LAYERS
    body = attention()
    if number < DENSE_LAYERS:
        body |= mlp("mlp", INTER, plain=False)
        return body
    body["mlp.gate"] = bf16(256, HIDDEN) | {"e_score_correction_bias": ("F32", [256])}
    body |= mlp("mlp.shared_experts", MOE_INTER, plain=plain)
    for expert in range(experts):
        body |= mlp(f"mlp.experts.{expert}", MOE_INTER, plain=plain)
    if plain:
        body |= {"eh_proj": bf16(HIDDEN, 2 * HIDDEN), "enorm": bf16(HIDDEN), "hnorm": bf16(HIDDEN)}
        body |= {"shared_head.norm": bf16(HIDDEN), "shared_head.head": bf16(VOCAB, HIDDEN)}
        body["embed_tokens"] = bf16(VOCAB, HIDDEN)
    return body


def tensors(layers: int = LAYERS, experts: int = EXPERTS) -> Iterator[tuple[str, Spec]]:
    """Every tensor of the checkpoint, layer by layer, the MTP layer last."""
    yield "model.embed_tokens.weight", ("BF16", [VOCAB, HIDDEN])
    for number in [*range(layers), LAYERS]:
        for module, parts in layer(number, experts).items():
            for suffix, spec in parts.items():
                yield f"model.layers.{number}.{module}.{suffix}", spec
    yield "model.norm.weight", ("BF16", [HIDDEN])
    yield "lm_head.weight", ("BF16", [VOCAB, HIDDEN])


def write_shard(path: Path, rows: list[tuple[str, Spec]]) -> int:
    """A safetensors file whose data is a hole; the number of data bytes is returned."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in sorted(rows, key=lambda row: (WRITE_ORDER[row[1][0]], row[0])):
        end = offset + SIZE[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + offset)
    return offset


def config(layers: int) -> tuple[dict[str, object], dict[str, object]]:
    """config.json and hf_quant_config.json as ModelOpt writes them; neither knows of the MTP layer."""
    excluded = ["lm_head", *(f"model.layers.{n}.self_attn*" for n in range(layers))]
    excluded += [f"model.layers.{n}.mlp.gate" for n in range(DENSE_LAYERS, layers)]
    body: dict[str, object] = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "moe_intermediate_size": MOE_INTER,
        "num_hidden_layers": layers,
        "first_k_dense_replace": DENSE_LAYERS,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_nextn_predict_layers": 1,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "config_groups": {
                "group_0": {
                    "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                    "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                    "targets": ["Linear"],
                }
            },
            "ignore": excluded,
            "quant_algo": "NVFP4",
            "producer": {"name": "modelopt", "version": "0.47.0"},
            "quant_method": "modelopt",
        },
    }
    sidecar: dict[str, object] = {
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": 16,
            "exclude_modules": excluded,
        },
    }
    return body, sidecar


def forge(path: str | Path, shards: int = 162, *, layers: int = LAYERS, experts: int = EXPERTS) -> int:
    """Write the checkpoint into `path` (made if absent); the number of tensors is returned."""
    out = Path(path)
    out.mkdir(parents=True, exist_ok=True)
    rows = list(tensors(layers, experts))
    per_shard = -(-len(rows) // shards)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = rows[number * per_shard : (number + 1) * per_shard]
        total += write_shard(out / name, part)
        weight_map.update((tensor, name) for tensor, _ in part)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    body, sidecar = config(layers)
    (out / "config.json").write_text(json.dumps(body, indent=2) + "\n")
    (out / "hf_quant_config.json").write_text(json.dumps(sidecar, indent=4))
    return len(rows)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print(forge(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 162), "tensors")
