"""Forge checkpoints of true size: real names, dtypes and shapes, holes for weights.

    python tests/bench/forge_large.py OUT_DIR [deepseek-v3 | qwen3-next]

    deepseek-v3  61 layers of 256 experts, 162 shards: 180,000 tensors; no list names its draft
    qwen3-next   48 layers of 512 experts, 11 shards: 300,000 tensors; the lists leave out mtp.fc, as NVIDIA's own did

Both are NVFP4 by ModelOpt with a BF16 draft. The data is a sparse hole: 413 GB take about 40 MB of disk. Tensors are
laid out as the safetensors library writes them: each shard sorted by element size, then by name. Standard library only.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}
WRITE_ORDER = {"F32": 0, "BF16": 1, "F8_E4M3": 2, "U8": 3}

Spec = tuple[str, list[int]]
Module = dict[str, Spec]
Row = tuple[str, Spec]


@dataclass(frozen=True, slots=True)
class Model:
    """What is forged: true numbers of layers, experts and shards, and how a layer and the rest are made.

    layer    (number, experts) -> modules of a decoder layer
    draft    (layers, experts) -> modules of the draft, with whole names
    facts    keys of config.json, besides the numbers of layers and experts
    count    the key that counts the experts
    entries  layers -> the exclusion list
    """

    layers: int
    experts: int
    shards: int
    hidden: int
    vocabulary: int
    layer: Callable[[int, int], dict[str, Module]]
    draft: Callable[[int, int], dict[str, Module]]
    facts: Mapping[str, Any]
    count: str
    entries: Callable[[int], list[str]]


def nvfp4(out: int, in_: int) -> Module:
    """The four tensors of a ModelOpt NVFP4 linear."""
    return {
        "weight": ("U8", [out, in_ // 2]),
        "weight_scale": ("F8_E4M3", [out, in_ // 16]),
        "weight_scale_2": ("F32", []),
        "input_scale": ("F32", []),
    }


def bf16(*shape: int) -> Module:
    """A plain parameter."""
    return {"weight": ("BF16", list(shape))}


def mlp(prefix: str, hidden: int, inter: int, *, plain: bool) -> dict[str, Module]:
    """Gate, up and down projections under `prefix`."""
    make = bf16 if plain else nvfp4
    return {
        f"{prefix}.gate_proj": make(inter, hidden),
        f"{prefix}.up_proj": make(inter, hidden),
        f"{prefix}.down_proj": make(hidden, inter),
    }


# --- DeepSeek-V3 ------------------------------------------------------------------------------------------------------

DS_HIDDEN, DS_VOCABULARY, DS_DENSE = 7168, 129280, 3


def deepseek_layer(number: int, experts: int, *, plain: bool = False) -> dict[str, Module]:
    """Latent attention in BF16, as NVIDIA's own exports leave it; the first three layers have no experts."""
    body = {
        "self_attn.q_a_proj": bf16(1536, DS_HIDDEN),
        "self_attn.q_a_layernorm": bf16(1536),
        "self_attn.q_b_proj": bf16(24576, 1536),
        "self_attn.kv_a_proj_with_mqa": bf16(576, DS_HIDDEN),
        "self_attn.kv_a_layernorm": bf16(512),
        "self_attn.kv_b_proj": bf16(32768, 512),
        "self_attn.o_proj": bf16(DS_HIDDEN, 16384),
        "input_layernorm": bf16(DS_HIDDEN),
        "post_attention_layernorm": bf16(DS_HIDDEN),
    }
    if number < DS_DENSE:
        return body | mlp("mlp", DS_HIDDEN, 18432, plain=False)
    body["mlp.gate"] = bf16(experts, DS_HIDDEN) | {"e_score_correction_bias": ("F32", [experts])}
    body |= mlp("mlp.shared_experts", DS_HIDDEN, 2048, plain=plain)
    for expert in range(experts):
        body |= mlp(f"mlp.experts.{expert}", DS_HIDDEN, 2048, plain=plain)
    return body


def deepseek_draft(layers: int, experts: int) -> dict[str, Module]:
    """A decoder layer behind the last, with the projection before it and a copy of both embeddings."""
    body = deepseek_layer(DS_DENSE, experts, plain=True) | {
        "eh_proj": bf16(DS_HIDDEN, 2 * DS_HIDDEN),
        "enorm": bf16(DS_HIDDEN),
        "hnorm": bf16(DS_HIDDEN),
        "shared_head.norm": bf16(DS_HIDDEN),
        "shared_head.head": bf16(DS_VOCABULARY, DS_HIDDEN),
        "embed_tokens": bf16(DS_VOCABULARY, DS_HIDDEN),
    }
    return {f"model.layers.{layers}.{name}": module for name, module in body.items()}


def deepseek_entries(layers: int) -> list[str]:
    """Attention and routers; nothing of the draft."""
    attention = [f"model.layers.{number}.self_attn*" for number in range(layers)]
    return ["lm_head", *attention, *(f"model.layers.{number}.mlp.gate" for number in range(DS_DENSE, layers))]


DEEPSEEK_V3 = Model(
    layers=61,
    experts=256,
    shards=162,
    hidden=DS_HIDDEN,
    vocabulary=DS_VOCABULARY,
    layer=deepseek_layer,
    draft=deepseek_draft,
    facts={
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": DS_DENSE,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_nextn_predict_layers": 1,
    },
    count="n_routed_experts",
    entries=deepseek_entries,
)

# --- Qwen3-Next-80B-A3B -----------------------------------------------------------------------------------------------

QN_HIDDEN, QN_VOCABULARY, QN_EVERY = 2048, 151936, 4


def qwen_attention() -> dict[str, Module]:
    """Full attention with a gated query, in every fourth layer and in the draft."""
    return {
        "self_attn.q_proj": bf16(8192, QN_HIDDEN),
        "self_attn.k_proj": bf16(512, QN_HIDDEN),
        "self_attn.v_proj": bf16(512, QN_HIDDEN),
        "self_attn.o_proj": bf16(QN_HIDDEN, 4096),
        "self_attn.q_norm": bf16(256),
        "self_attn.k_norm": bf16(256),
    }


def qwen_linear_attention() -> dict[str, Module]:
    """Gated delta net, in all other layers."""
    return {
        "linear_attn": {"A_log": ("BF16", [32]), "dt_bias": ("BF16", [32])},
        "linear_attn.conv1d": bf16(8192, 1, 4),
        "linear_attn.in_proj_ba": bf16(64, QN_HIDDEN),
        "linear_attn.in_proj_qkvz": bf16(12288, QN_HIDDEN),
        "linear_attn.norm": bf16(128),
        "linear_attn.out_proj": bf16(QN_HIDDEN, 4096),
    }


def qwen_layer(number: int, experts: int, *, plain: bool = False) -> dict[str, Module]:
    """Attention in BF16; a shared expert with a gate, and experts, in every layer."""
    full = plain or number % QN_EVERY == QN_EVERY - 1
    body = {"input_layernorm": bf16(QN_HIDDEN), "post_attention_layernorm": bf16(QN_HIDDEN)}
    body |= qwen_attention() if full else qwen_linear_attention()
    body |= {"mlp.gate": bf16(experts, QN_HIDDEN), "mlp.shared_expert_gate": bf16(1, QN_HIDDEN)}
    body |= mlp("mlp.shared_expert", QN_HIDDEN, 512, plain=plain)
    for expert in range(experts):
        body |= mlp(f"mlp.experts.{expert}", QN_HIDDEN, 512, plain=plain)
    return body


def qwen_draft(_layers: int, experts: int) -> dict[str, Module]:
    """A decoder layer with full attention, and the projection before it, under `mtp`."""
    body = {f"mtp.layers.0.{name}": module for name, module in qwen_layer(0, experts, plain=True).items()}
    norms = ("mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden")
    return body | {"mtp.fc": bf16(QN_HIDDEN, 2 * QN_HIDDEN)} | {name: bf16(QN_HIDDEN) for name in norms}


def qwen_entries(layers: int) -> list[str]:
    """As ModelOpt wrote them: the draft's layer, but not `mtp.fc`."""
    found = ["lm_head", "mtp.layers.0*"]
    for number in range(layers):
        kind = "self_attn" if number % QN_EVERY == QN_EVERY - 1 else "linear_attn"
        found += [f"model.layers.{number}.{name}" for name in (f"{kind}*", "mlp.gate", "mlp.shared_expert_gate")]
    return found


QWEN3_NEXT = Model(
    layers=48,
    experts=512,
    shards=11,
    hidden=QN_HIDDEN,
    vocabulary=QN_VOCABULARY,
    layer=qwen_layer,
    draft=qwen_draft,
    facts={
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "intermediate_size": 5120,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "full_attention_interval": QN_EVERY,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_experts_per_tok": 10,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "tie_word_embeddings": False,
    },
    count="num_experts",
    entries=qwen_entries,
)
MODELS: Mapping[str, Model] = {"deepseek-v3": DEEPSEEK_V3, "qwen3-next": QWEN3_NEXT}

# --- writing ----------------------------------------------------------------------------------------------------------


def tensors(model: Model, layers: int, experts: int) -> Iterator[Row]:
    """Every tensor of the checkpoint, layer by layer, the draft last."""
    yield "model.embed_tokens.weight", ("BF16", [model.vocabulary, model.hidden])
    for number in range(layers):
        yield from _rows(f"model.layers.{number}.", model.layer(number, experts))
    yield "model.norm.weight", ("BF16", [model.hidden])
    yield "lm_head.weight", ("BF16", [model.vocabulary, model.hidden])
    yield from _rows("", model.draft(layers, experts))


def _rows(prefix: str, modules: Mapping[str, Module]) -> Iterator[Row]:
    for name, parts in modules.items():
        for suffix, spec in parts.items():
            yield f"{prefix}{name}.{suffix}", spec


def write_shard(path: Path, rows: list[Row], *, scripted: bool = False) -> int:
    """A safetensors file whose data is a hole; the number of data bytes is returned."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in rows if scripted else sorted(rows, key=_as_the_library):
        end = offset + SIZE[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header, separators=None if scripted else (",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + offset)
    return offset


def _as_the_library(row: Row) -> tuple[int, str]:
    return WRITE_ORDER[row[1][0]], row[0]


def config(model: Model, layers: int, experts: int, excluded: list[str]) -> tuple[dict[str, object], dict[str, object]]:
    """config.json and hf_quant_config.json as ModelOpt writes them."""
    group = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    producer = {"name": "modelopt", "version": "0.47.0"}
    body: dict[str, object] = {
        **model.facts,
        model.count: experts,
        "hidden_size": model.hidden,
        "num_hidden_layers": layers,
        "vocab_size": model.vocabulary,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "config_groups": {"group_0": {"input_activations": group, "weights": group, "targets": ["Linear"]}},
            "ignore": excluded,
            "quant_algo": "NVFP4",
            "producer": producer,
            "quant_method": "modelopt",
        },
    }
    sidecar: dict[str, object] = {
        "producer": producer,
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": 16,
            "exclude_modules": excluded,
        },
    }
    return body, sidecar


def forge(
    path: str | Path,
    name: str = "deepseek-v3",
    *,
    shards: int = 0,
    layers: int = 0,
    experts: int = 0,
    more_entries: int = 0,
    scripted: bool = False,
) -> int:
    """Write a checkpoint into `path` (made if absent); the number of tensors is returned. 0: the true number.

    `more_entries` are added to both lists: names of a vision tower that is not there, as lists of other checkpoints
    hold by the hundred.

    scripted  headers and index as a script writes them: in the order of the tensors, by `json.dumps` as it is
    """
    model = MODELS[name]
    layers, shards = layers or model.layers, shards or model.shards
    out = Path(path)
    out.mkdir(parents=True, exist_ok=True)
    experts = experts or model.experts
    rows = list(tensors(model, layers, experts))
    per_shard = -(-len(rows) // shards)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = rows[number * per_shard : (number + 1) * per_shard]
        total += write_shard(out / file, part, scripted=scripted)
        weight_map.update((tensor, file) for tensor, _ in part)
    names = weight_map if scripted else dict(sorted(weight_map.items()))
    index = json.dumps({"metadata": {"total_size": total}, "weight_map": names}, indent=None if scripted else 2)
    (out / "model.safetensors.index.json").write_text(index + "\n")
    tower = [f"model.visual.blocks.{number}.attn.qkv" for number in range(more_entries)]
    body, sidecar = config(model, layers, experts, [*model.entries(layers), *tower])
    (out / "config.json").write_text(json.dumps(body, indent=2) + "\n")
    (out / "hf_quant_config.json").write_text(json.dumps(sidecar, indent=4))
    return len(rows)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print(forge(*sys.argv[1:]), "tensors")
