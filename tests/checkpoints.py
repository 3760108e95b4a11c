"""Small checkpoints in memory: true names and layouts of a model family, quantized by one of the formats.

    build(model("qwen3_next"), "nvfp4", ignore=["lm_head"])   what read_local gives for such a folder, without a folder

The target is stored as the format quantizes it, except for what every exporter leaves alone (`Model.kept`); the
draft is
stored plain. `stored=` names modules that are stored otherwise.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from mtpfix.checkpoint.headers import DTYPE_BITS
from mtpfix.checkpoint.reading import HeaderRow, read_checkpoint
from mtpfix.model import Checkpoint, Source

Spec = tuple[str, tuple[int, ...]]
Tensors = dict[str, Spec]
Shape = tuple[int, int]
Json = dict[str, Any]
INDEX = "model.safetensors.index.json"


def _up(size: int, by: int) -> int:
    return -(-size // by)


def _nvfp4(out: int, in_: int) -> Tensors:
    return {
        "weight": ("U8", (out, in_ // 2)),
        "weight_scale": ("F8_E4M3", (out, in_ // 16)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


def _gptq(out: int, in_: int) -> Tensors:
    return {
        "qweight": ("I32", (in_ // 8, out)),
        "qzeros": ("I32", (_up(in_, 128), out // 8)),
        "scales": ("F16", (_up(in_, 128), out)),
    }


def _awq(out: int, in_: int) -> Tensors:
    groups = _up(in_, 128)
    return {
        "qweight": ("I32", (in_, out // 8)),
        "qzeros": ("I32", (groups, out // 8)),
        "scales": ("F16", (groups, out)),
    }


def _bnb4(out: int, in_: int) -> Tensors:
    half = out * in_ // 2
    return {
        "weight": ("U8", (half, 1)),
        "weight.absmax": ("U8", (_up(half, 32),)),
        "weight.quant_map": ("F32", (16,)),
        "weight.nested_absmax": ("F32", (_up(half, 8192),)),
        "weight.nested_quant_map": ("F32", (256,)),
        "weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
    }


def _ct_w4a16(out: int, in_: int) -> Tensors:
    scale: Spec = ("BF16", (out, _up(in_, 128)))
    return {"weight_packed": ("I32", (out, in_ // 8)), "weight_scale": scale, "weight_shape": ("I64", (2,))}


def _ct_nvfp4(out: int, in_: int) -> Tensors:
    return {
        "weight_packed": ("U8", (out, in_ // 2)),
        "weight_scale": ("F8_E4M3", (out, in_ // 16)),
        "weight_global_scale": ("F32", (1,)),
        "input_global_scale": ("F32", (1,)),
    }


# The layouts of mtpfix/storage/schemes.py, one function each: (out, in) -> tensors by suffix.
SCHEMES: Mapping[str, Callable[[int, int], Tensors]] = {
    "bf16": lambda out, in_: {"weight": ("BF16", (out, in_))},
    "nvfp4": _nvfp4,
    "nvfp4-w4a16": lambda out, in_: {name: cell for name, cell in _nvfp4(out, in_).items() if name != "input_scale"},
    "fp8": lambda out, in_: {
        "weight": ("F8_E4M3", (out, in_)), "weight_scale": ("F32", ()), "input_scale": ("F32", ()),
    },
    "fp8-channel": lambda out, in_: {"weight": ("F8_E4M3", (out, in_)), "weight_scale": ("F32", (out, 1))},
    "fp8-block": lambda out, in_: {
        "weight": ("F8_E4M3", (out, in_)), "weight_scale_inv": ("F32", (_up(out, 128), _up(in_, 128))),
    },
    "fp8-block-ct": lambda out, in_: {
        "weight": ("F8_E4M3", (out, in_)), "weight_scale": ("F32", (_up(out, 128), _up(in_, 128))),
    },
    "mxfp8": lambda out, in_: {"weight": ("F8_E4M3", (out, in_)), "weight_scale": ("U8", (out, in_ // 32))},
    "mxfp4": lambda out, in_: {"weight": ("U8", (out, in_ // 2)), "weight_scale": ("U8", (out, in_ // 32))},
    "ct-nvfp4": _ct_nvfp4,
    "ct-w4a16": _ct_w4a16,
    "gptq4": _gptq,
    "awq4": _awq,
    "ct-w8a8": lambda out, in_: {"weight": ("I8", (out, in_)), "weight_scale": ("F32", (out, 1))},
    "int8-block": lambda out, in_: {
        "weight": ("I8", (out, in_)), "weight_scale_inv": ("F32", (_up(out, 128), _up(in_, 128))),
    },
    "modelslim-w8a8": lambda out, in_: {
        "weight": ("I8", (out, in_)), "weight_scale": ("F32", (out, 1)), "weight_offset": ("F32", (out, 1)),
    },
    "w4afp8": lambda out, in_: {
        "weight": ("I8", (out, in_ // 2)), "weight_scale_inv": ("F32", (out, _up(in_, 128))),
    },
    "bnb4": _bnb4,
    "hqq": lambda out, in_: {
        "W_q": ("U8", (out * in_ // 2, 1)),
        **dict.fromkeys(("scale", "zero"), ("F16", (out * in_ // 64, 1))),
    },
    "torchao": lambda out, in_: {"weight:qdata": ("I8", (out, in_)), "weight:scale": ("F32", (out, 1))},
    "mlx4": lambda out, in_: {
        "weight": ("U32", (out, in_ // 8)), "scales": ("BF16", (out, in_ // 64)), "biases": ("BF16", (out, in_ // 64)),
    },
    "stacked": lambda out, _: {
        "gate_up_proj": ("BF16", (2, 2 * out, out)), "down_proj": ("BF16", (2, out, out)),
    },
    "dsv4-fp8": lambda out, in_: {
        "weight": ("F8_E4M3", (out, in_)), "scale": ("F8_E8M0", (_up(out, 128), _up(in_, 128))),
    },
    "dsv4-fp4": lambda out, in_: {"weight": ("I8", (out, in_ // 2)), "scale": ("F8_E8M0", (out, in_ // 32))},
}  # fmt: skip


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A model: its config.json without quantization, and its modules with their logical shapes.

    body, kept  the target's modules: what exporters quantize, and what they leave in full precision
    draft, bare the draft's modules: what an exporter may quantize, and what every right exporter leaves alone
    listless    modules that no list has to name (embeddings; the draft's where exporters drop them)
    """

    config: Json
    body: Mapping[str, Shape] = field(default_factory=dict)
    kept: Mapping[str, Shape] = field(default_factory=dict)
    draft: Mapping[str, Shape] = field(default_factory=dict)
    bare: Mapping[str, Shape] = field(default_factory=dict)
    listless: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, Shape]:
        return {**self.listless, **self.kept, **self.body, **self.bare, **self.draft}

    def without_draft(self) -> Model:
        """The model as an exporter leaves it that drops the draft."""
        return replace(self, draft={}, bare={})


H = 128
Parts = Mapping[str, Shape]


def _named(front: str, *groups: Parts) -> dict[str, Shape]:
    return {f"{front}.{name}": shape for group in groups for name, shape in group.items()}


def _experts(count: int, inner: int = H) -> dict[str, Shape]:
    projections = {"gate_proj": (inner, H), "up_proj": (inner, H), "down_proj": (H, inner)}
    return {f"mlp.experts.{e}.{name}": shape for e in range(count) for name, shape in projections.items()}


def _mlp(front: str) -> dict[str, Shape]:
    return {f"{front}.gate_proj": (H, H), f"{front}.up_proj": (H, H), f"{front}.down_proj": (H, H)}


_QKV = {f"self_attn.{name}_proj": (H, H) for name in "qkvo"}
_MLA = {
    "self_attn.q_a_proj": (H, H),
    "self_attn.q_b_proj": (H, H),
    "self_attn.kv_a_proj_with_mqa": (H, H),
    "self_attn.kv_b_proj": (H, H),
    "self_attn.o_proj": (H, H),
}
_INDEXER = {"self_attn.indexer.wq_b": (H, H), "self_attn.indexer.wk": (H, H)}
_LINEAR_NEXT = {
    "linear_attn.in_proj_qkvz": (4 * H, H), "linear_attn.in_proj_ba": (16, H), "linear_attn.out_proj": (H, H),
}  # fmt: skip
_LINEAR_35 = {
    "linear_attn.in_proj_qkv": (H, H), "linear_attn.in_proj_z": (H, H), "linear_attn.in_proj_a": (16, H),
    "linear_attn.in_proj_b": (16, H), "linear_attn.out_proj": (H, H),
}  # fmt: skip
_HEAD = {"lm_head": (H, H)}
_NORMS = ("input_layernorm", "post_attention_layernorm")


def _qwen(config: Json, front: str, linear: Parts, experts: int, drafts: int, *, dense: bool = False) -> Model:
    """Qwen3-Next's and Qwen3.5's plan: linear attention in all layers but every second one, one kind of MLP."""
    mlp = _mlp("mlp") if dense else {**_experts(experts), **_mlp("mlp.shared_expert")}
    gates = {} if dense else {"mlp.gate": (experts, H), "mlp.shared_expert_gate": (1, H)}
    body, kept = {}, dict(_HEAD)
    for layer in range(config["num_hidden_layers"]):
        at = f"{front}.layers.{layer}"
        body |= _named(at, _QKV if layer % 2 else {}, mlp)
        kept |= _named(at, {} if layer % 2 else linear, gates)
    draft, bare = {}, {"mtp.fc": (H, 2 * H)} if drafts else {}
    for layer in range(drafts):
        draft |= _named(f"mtp.layers.{layer}", _QKV, mlp)
        bare |= _named(f"mtp.layers.{layer}", gates)
    return Model(config, body, kept, draft, bare, {f"{front}.embed_tokens": (H, H)})


def qwen3_next(layers: int = 2, experts: int = 2, drafts: int = 1) -> Model:
    config = {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": H,
        "num_hidden_layers": layers, "num_experts": experts, "num_nextn_predict_layers": drafts,
    }  # fmt: skip
    return _qwen(config, "model", _LINEAR_NEXT, experts, drafts)


def qwen3_5(layers: int = 2, experts: int = 2, drafts: int = 1, *, dense: bool = False, text: bool = False) -> Model:
    """With a vision tower's config and the wrapper that comes with it, or (`text`) the text model alone."""
    kind = "qwen3_5" if dense else "qwen3_5_moe"
    inner = {
        "model_type": f"{kind}_text", "hidden_size": H, "num_hidden_layers": layers, "num_experts": experts,
        "mtp_num_hidden_layers": drafts,
    }  # fmt: skip
    front = "model" if text else "model.language_model"
    made = _qwen(inner, front, _LINEAR_35, experts, drafts, dense=dense)
    if text:
        name = "Qwen3_5ForCausalLM" if dense else "Qwen3_5MoeForCausalLM"
        return replace(made, config={**inner, "architectures": [name]})
    name = "Qwen3_5ForConditionalGeneration" if dense else "Qwen3_5MoeForConditionalGeneration"
    return replace(made, config={"architectures": [name], "model_type": kind, "text_config": inner})


def _appended(
    config: Json, front: str, experts: int, drafts: int, attention: Parts, *, head: bool, dense_first: bool = True
) -> Model:
    """DeepSeek's and GLM's plan: draft layers behind the target's, with a projection of their own."""
    count = config["num_hidden_layers"]
    moe = {**_experts(experts), **_mlp("mlp.shared_experts")}
    body, kept = {}, dict(_HEAD)
    for layer in range(count):
        dense = dense_first and layer == 0
        body |= _named(f"{front}.layers.{layer}", attention, _mlp("mlp") if dense else moe)
        kept |= {} if dense else {f"{front}.layers.{layer}.mlp.gate": (experts, H)}
    draft, bare = {}, {}
    for layer in range(count, count + drafts):
        draft |= _named(f"{front}.layers.{layer}", attention, moe)
        bare |= _named(f"{front}.layers.{layer}", {"eh_proj": (H, 2 * H), "mlp.gate": (experts, H)})
        bare |= {f"{front}.layers.{layer}.shared_head.head": (H, H)} if head else {}
    return Model(config, body, kept, draft, bare, {f"{front}.embed_tokens": (H, H)})


def glm4_moe(layers: int = 2, experts: int = 2, drafts: int = 1, *, head: bool = True) -> Model:
    config = {
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": H,
        "num_hidden_layers": layers, "n_routed_experts": experts, "num_nextn_predict_layers": drafts,
    }  # fmt: skip
    return _appended(config, "model", experts, drafts, _QKV, head=head)


def deepseek_v3(layers: int = 2, experts: int = 2, drafts: int = 1, *, head: bool = True) -> Model:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": H,
        "num_hidden_layers": layers, "n_routed_experts": experts, "num_nextn_predict_layers": drafts,
    }  # fmt: skip
    return _appended(config, "model", experts, drafts, _MLA, head=head)


def glm_moe_dsa(layers: int = 2, experts: int = 2, drafts: int = 1, *, head: bool = True) -> Model:
    config = {
        "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": H,
        "num_hidden_layers": layers, "n_routed_experts": experts, "num_nextn_predict_layers": drafts,
    }  # fmt: skip
    return _appended(config, "model", experts, drafts, {**_MLA, **_INDEXER}, head=head)


def glm5_next(layers: int = 2, experts: int = 2, drafts: int = 1) -> Model:
    """Attention stays in full precision, as in the exports that exist."""
    inner = {
        "model_type": "glm5_next_text", "hidden_size": H, "num_hidden_layers": layers, "n_routed_experts": experts,
        "num_nextn_predict_layers": drafts,
    }  # fmt: skip
    config = {
        "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "text_config": inner,
    }  # fmt: skip
    front = "model.language_model"
    made = _appended(inner, front, experts, drafts, {}, head=False, dense_first=False)
    kept, bare = dict(made.kept), dict(made.bare)
    for layer in range(layers):
        kept |= _named(f"{front}.layers.{layer}", _MLA)
    for layer in range(layers, layers + drafts):
        bare |= _named(f"{front}.layers.{layer}", _MLA)
    return replace(made, config=config, kept=kept, bare=bare)


def qwen3_moe(layers: int = 2, experts: int = 2, drafts: int = 0) -> Model:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": H,
        "num_hidden_layers": layers, "num_experts": experts,
    }  # fmt: skip
    body, kept = {}, dict(_HEAD)
    for layer in range(layers):
        body |= _named(f"model.layers.{layer}", _QKV, _experts(experts))
        kept |= {f"model.layers.{layer}.mlp.gate": (experts, H)}
    return Model(config, body, kept, listless={"model.embed_tokens": (H, H)})


def llama(layers: int = 2, experts: int = 0, drafts: int = 0) -> Model:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "num_hidden_layers": layers,
    }  # fmt: skip
    body: dict[str, Shape] = {}
    for layer in range(layers):
        body |= _named(f"model.layers.{layer}", _QKV, _mlp("mlp"))
    return Model(config, body, dict(_HEAD), listless={"model.embed_tokens": (H, H)})


def gemma4_assistant(layers: int = 2, experts: int = 0, drafts: int = 0) -> Model:
    """A draft in a repository of its own: no keys and values."""
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "hidden_size": H,
        "num_hidden_layers": layers,
    }  # fmt: skip
    draft: dict[str, Shape] = {}
    attention = {"self_attn.q_proj": (H, H), "self_attn.o_proj": (H, H)}
    for layer in range(layers):
        draft |= _named(f"model.layers.{layer}", attention, _mlp("mlp"))
    bare = {"pre_projection": (H, 2 * H), "post_projection": (2 * H, H)}
    return Model(config, draft=draft, bare=bare, listless={"model.embed_tokens": (H, H)})


MODELS: Mapping[str, Callable[..., Model]] = {
    "qwen3_next": qwen3_next,
    "qwen3_5": qwen3_5,
    "qwen3_moe": qwen3_moe,
    "llama": llama,
    "glm4_moe": glm4_moe,
    "glm5_next": glm5_next,
    "deepseek_v3": deepseek_v3,
    "glm_moe_dsa": glm_moe_dsa,
    "gemma4_assistant": gemma4_assistant,
}


# --- formats ----------------------------------------------------------------------------------------------------------


PRODUCER = {"name": "modelopt", "version": "0.47.0"}
_FP4 = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}
_INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128, "dynamic": False}
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
_TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
_CT_FP4 = {
    "num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16, "dynamic": False,
}  # fmt: skip
Entries = Sequence[Any]


class Nothing(Enum):
    """A list that is not written at all."""

    ABSENT = 0


ABSENT: Any = Nothing.ABSENT


@dataclass(frozen=True)
class Format:
    """A format: the scheme that it stores, and its config around a list (`ABSENT`: without the list's key).

    described  the list is ModelSlim's description of every weight, in a file of its own
    """

    scheme: str
    config: Callable[[Any], Json]
    sidecar: Callable[[Any], Json] | None = None
    per_layer: bool = False
    described: bool = False


def _with(base: Json, key: str, entries: Any) -> Json:
    return base if entries is ABSENT else {**base, key: entries}


def _modelopt(algo: str, scheme: str, *, groups: Json | None = None, extra: Json | None = None) -> Format:
    flat = {"quant_method": "modelopt", "quant_algo": algo, "producer": PRODUCER, **(groups or {})}
    nested = {"quant_algo": algo, "kv_cache_quant_algo": None, **(extra or {})}
    return Format(
        scheme,
        lambda entries: _with(flat, "ignore", entries),
        lambda entries: {"producer": PRODUCER, "quantization": _with(nested, "exclude_modules", entries)},
    )


def _group(weights: Json, inputs: Json | None, layout: str) -> Json:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "format": layout}
    return {"config_groups": {"group_0": group}, "format": layout}


def _compressed(scheme: str, weights: Json, inputs: Json | None, layout: str) -> Format:
    base = {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "kv_cache_scheme": None,
        **_group(weights, inputs, layout),
    }  # fmt: skip
    return Format(scheme, lambda entries: _with(base, "ignore", entries))


_NVFP4_GROUPS = {"config_groups": {"group_0": {"weights": _FP4, "input_activations": _FP4, "targets": ["Linear"]}}}
_W4_GROUPS = {"config_groups": {"group_0": {"weights": _FP4, "input_activations": None, "targets": ["Linear"]}}}
_BLOCK = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def _rules(entries: Any) -> Any:
    """Rules of GPTQ's `dynamic`: a dictionary as it is, a list of keys as one."""
    keys = entries is not ABSENT and isinstance(entries, list) and all(isinstance(key, str) for key in entries)
    return {key: {} for key in entries} if keys else entries


def _recipes(entries: Any) -> Any:
    """AutoRound's `extra_config`: each key asks for 16 bits."""
    keys = entries is not ABSENT and isinstance(entries, list) and all(isinstance(key, str) for key in entries)
    return {key: {"bits": 16, "data_type": "fp"} for key in entries} if keys else entries


def _flat(scheme: str, key: str, **base: Any) -> Format:
    """A format whose config is some keys and a list."""
    return Format(scheme, lambda entries: _with(base, key, entries))


_ROUND = {
    "quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 128, "sym": True,
    "data_type": "int",
}  # fmt: skip
_MX = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "ch_axis": -1,
       "symmetric": None, "observer_cls": "PerBlockMXObserver"}  # fmt: skip
_QUARK = {"quant_method": "quark", "quant_mode": "eager_mode", "layer_quant_config": {}, "layer_type_quant_config": {},
          "global_quant_config": {"weight": {**_MX, "is_dynamic": False},
                                  "input_tensors": {**_MX, "is_dynamic": True}},
          "export": {"kv_cache_group": [], "pack_method": "reorder"}}  # fmt: skip
_MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "producer": PRODUCER, "kv_cache_scheme": None}
_MIXED_BESIDE = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None}
FORMATS: Mapping[str, Format] = {
    "nvfp4": _modelopt("NVFP4", "nvfp4", groups=_NVFP4_GROUPS, extra={"group_size": 16}),
    "w4a16-nvfp4": _modelopt("W4A16_NVFP4", "nvfp4-w4a16", groups=_W4_GROUPS, extra={"group_size": 16}),
    "modelopt-fp8": _modelopt("FP8", "fp8"),
    "mxfp8": _modelopt("MXFP8", "mxfp8", extra={"group_size": 32}),
    "mixed": Format(
        "nvfp4",
        lambda entries: _with(_MIXED, "ignore", entries),
        lambda entries: {"producer": PRODUCER, "quantization": _with(_MIXED_BESIDE, "exclude_modules", entries)},
        per_layer=True,
    ),
    "ct-nvfp4": _compressed("ct-nvfp4", _CT_FP4, {**_CT_FP4, "dynamic": "local"}, "nvfp4-pack-quantized"),
    "ct-fp8": _compressed("fp8-channel", _FP8, _TOKEN, "float-quantized"),
    "ct-w4a16": _compressed("ct-w4a16", _INT4, None, "pack-quantized"),
    "fp8-block": Format("fp8-block", lambda entries: _with(_BLOCK, "modules_to_not_convert", entries)),
    "gptq": Format("gptq4", lambda entries: _with(_GPTQ, "dynamic", _rules(entries))),
    "awq": _flat("awq4", "modules_to_not_convert", quant_method="awq", bits=4, group_size=128, zero_point=True),
    "auto-round": Format("gptq4", lambda entries: _with(_ROUND, "extra_config", _recipes(entries))),
    "quark": _flat("mxfp4", "exclude", **_QUARK),
    "mxfp8-method": _flat("mxfp8", "ignored_layers", quant_method="mxfp8", activation_scheme="dynamic"),
    "w8a8-int8": _flat("ct-w8a8", "ignore", quant_method="w8a8_int8"),
    "blockwise-int8": _flat("int8-block", "ignored_layers", quant_method="blockwise_int8",
                            activation_scheme="dynamic", weight_block_size=[128, 128]),
    "bitsandbytes": _flat("bnb4", "llm_int8_skip_modules", quant_method="bitsandbytes", load_in_4bit=True,
                          bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "torchao": _flat("torchao", "modules_to_not_convert", quant_method="torchao", quant_type={"default": {
        "_type": "Int8WeightOnlyConfig", "_version": 2, "_data": {}}}),
    "fbgemm-fp8": _flat("fp8-channel", "modules_to_not_convert", quant_method="fbgemm_fp8", activation_scale_ub=1200.0),
    "hqq": _flat("hqq", "skip_modules", quant_method="hqq", quant_config={"weight_quant_params": {"nbits": 4}}),
    "modelslim": Format("modelslim-w8a8", lambda entries: {}, described=True),
    "mxfp4": _flat("mxfp4", "modules_to_not_convert", quant_method="mxfp4"),
    "w4afp8": _flat("w4afp8", "ignored_layers", quant_method="w4afp8"),
    "w8a8-fp8": _flat("fp8-channel", "ignore", quant_method="w8a8_fp8"),
    "experts-int8": _flat("ct-w8a8", "ignore", quant_method="experts_int8"),
    "mlx": _flat("mlx4", "ignore", group_size=64, bits=4),
    "plain": Format("bf16", lambda entries: {}),
}  # fmt: skip


# --- building ---------------------------------------------------------------------------------------------------------


class Memory:
    """Files of a checkpoint that exist in memory only: what `read_checkpoint` wants of a place."""

    def __init__(self, texts: Mapping[str, bytes], shards: Mapping[str, HeaderRow]) -> None:
        self.texts, self.shards = texts, shards

    def names(self) -> Iterable[str]:
        return [*self.texts, *self.shards]

    def has(self, name: str) -> bool:
        return name in self.texts or name in self.shards

    def json_bytes(self, name: str) -> bytes:
        return self.texts[name]

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        return (self.shards[name] for name in names)


def header(name: str, tensors: Mapping[str, Spec]) -> HeaderRow:
    """A shard's name, header and size."""
    rows: Json = {}
    end = 0
    for tensor, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * DTYPE_BITS[dtype] // 8
        rows[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(rows, separators=(",", ":")).encode()
    return name, raw, 8 + len(raw) + end


def read(
    files: Mapping[str, Json | bytes], shards: Mapping[str, Mapping[str, Spec]], *, index: Json | None = None
) -> Checkpoint:
    """The checkpoint that these files and shards make. `index`: the weight map, where it is not the true one."""
    texts = {name: value if isinstance(value, bytes) else dumped(value) for name, value in files.items()}
    if len(shards) > 1 or index is not None:
        true = {tensor: shard for shard, tensors in shards.items() for tensor in tensors}
        texts[INDEX] = dumped({"metadata": {}, "weight_map": true if index is None else index})
    rows = {name: header(name, tensors) for name, tensors in shards.items()}
    return read_checkpoint(Source("local", "memory"), Memory(texts, rows))


def dumped(value: Json) -> bytes:
    """JSON as exporters write it."""
    return (json.dumps(value, indent=2) + "\n").encode()


def tensors_of(made: Model, scheme: str, stored: Mapping[str, str | Tensors] | None = None) -> Tensors:
    """Every tensor of a model: target in a scheme, draft plain. `stored`: modules stored in another way."""
    other = stored or {}
    out: Tensors = {}
    for name, (rows, columns) in made.shapes.items():
        kind = other.get(name, scheme if name in made.body else "bf16")
        cells = SCHEMES[kind](rows, columns) if isinstance(kind, str) else kind
        out |= {f"{name}.{suffix}": cell for suffix, cell in cells.items()}
    for front in sorted({name.partition(".self_attn.")[0] for name in made.shapes if ".self_attn." in name}):
        out |= {f"{front}.{norm}.weight": ("BF16", (H,)) for norm in _NORMS}
    return out


def quantized_layers(made: Model, scheme: str, stored: Mapping[str, str | Tensors]) -> Json:
    """MIXED_PRECISION's table: every module that is stored quantized, by its checkpoint name."""
    algos = {"nvfp4": {"quant_algo": "NVFP4", "group_size": 16}, "fp8": {"quant_algo": "FP8"}}
    kinds = {name: stored.get(name, scheme if name in made.body else "bf16") for name in made.shapes}
    return {name: algos[kind] for name, kind in kinds.items() if isinstance(kind, str) and kind in algos}


def description(made: Model, scheme: str, stored: Mapping[str, str | Tensors], entries: Any) -> Json:
    """ModelSlim's file: every weight that is stored quantized, and those that a list calls FLOAT."""
    kinds = {name: stored.get(name, scheme if name in made.body else "bf16") for name in made.shapes}
    floats = entries if isinstance(entries, list) else []
    return {
        "model_quant_type": "W8A8",
        **{f"{name}.weight": "W8A8" for name, kind in kinds.items() if kind == scheme},
        **{entry: "FLOAT" for entry in floats if isinstance(entry, str)},
    }


def parts(
    made: Model,
    fmt: str = "",
    ignore: Any = (),
    *,
    sidecar: Any = None,
    config_list: bool = True,
    stored: Mapping[str, str | Tensors] | None = None,
    extra: Tensors | None = None,
    drop: Iterable[str] = (),
    place: str = "quantization_config",
    changes: Mapping[str, Any] | None = None,
    quant: Json | None = None,
    shard_of: Callable[[str], str] = lambda _: "model.safetensors",
    dump: Callable[[Json], bytes] = dumped,
) -> tuple[dict[str, Json | bytes], dict[str, Tensors]]:
    """The JSON files and the shards of a checkpoint of a model in a format ("": full precision throughout).

    ignore       the exclusion list of config.json; ABSENT for none
    sidecar      the list of hf_quant_config.json; None: no such file
    config_list  False: config.json says nothing about quantization
    stored       modules stored in another scheme (or as these tensors); extra, drop: tensors more and less
    place        where config.json holds the quantization config: a key, or `text_config.quantization_config`
    changes      other keys of config.json; quant: other keys of the quantization config
    """
    found = FORMATS.get(fmt)
    tensors = tensors_of(made, found.scheme if found else "bf16", stored)
    tensors |= extra or {}
    for name in drop:
        del tensors[name]
    config = {**made.config, **(changes or {})}
    files: dict[str, Json | bytes] = {}
    if found is not None:
        layers = {"quantized_layers": quantized_layers(made, found.scheme, stored or {})} if found.per_layer else {}
        own = {**found.config(_listed(ignore)), **layers, **(quant or {})}
        config = _placed(config, place, own) if config_list and own else config
        if found.described:
            files["quant_model_description.json"] = dump(description(made, found.scheme, stored or {}, _listed(ignore)))
        if sidecar is not None and found.sidecar is not None:
            beside = found.sidecar(_listed(sidecar))
            beside["quantization"] |= layers
            files["hf_quant_config.json"] = dump(beside)
    files = {"config.json": dump(config), **files}
    shards: dict[str, Tensors] = {}
    for name, spec in tensors.items():
        shards.setdefault(shard_of(name), {})[name] = spec
    return files, shards


def build(made: Model, fmt: str = "", ignore: Any = (), *, index: Json | None = None, **more: Any) -> Checkpoint:
    """The checkpoint of a model in a format; see `parts`. `index`: the weight map, where it is not the true one."""
    return read(*parts(made, fmt, ignore, **more), index=index)


def on_disk(
    folder: Path, made: Model, fmt: str = "", ignore: Any = (), *, index: Json | None = None, seed: int = 0, **more: Any
) -> Path:
    """The same as a folder, with random numbers for weights."""
    files, shards = parts(made, fmt, ignore, **more)
    folder.mkdir(parents=True)
    for name, value in files.items():
        (folder / name).write_bytes(value if isinstance(value, bytes) else dumped(value))
    for name, tensors in shards.items():
        _, raw, size = header(name, tensors)
        data = random.Random(f"{seed} {name}").randbytes(size - 8 - len(raw))
        (folder / name).write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    if len(shards) > 1 or index is not None:
        true = {tensor: shard for shard, tensors in sorted(shards.items()) for tensor in tensors}
        value = {"metadata": {"total_size": 0}, "weight_map": true if index is None else index}
        (folder / INDEX).write_bytes(dumped(value))
    return folder


def _listed(entries: Any) -> Any:
    return list(entries) if isinstance(entries, tuple) else entries


def _placed(config: Json, place: str, value: Json) -> Json:
    outer, _, inner = place.rpartition(".")
    return {**config, outer: {**config[outer], inner: value}} if outer else {**config, inner: value}


def rewritten(checkpoint: Checkpoint, texts: Mapping[str, bytes]) -> Checkpoint:
    """The same checkpoint with other bytes in some JSON files."""
    from mtpfix.checkpoint.jsonfiles import parse_json

    files = {**checkpoint.files, **{name: parse_json(name, raw)[0] for name, raw in texts.items()}}
    return replace(checkpoint, files=files)


# --- lists as right exporters write them ------------------------------------------------------------------------------


def right_list(made: Model, fmt: str, *, draft: bool = True) -> list[str]:
    """The exclusions of everything that `build` stores plain, in the format's usual words."""
    kept = list(made.kept)
    names = [*kept, *(list(made.bare) + list(made.draft) if draft else [])]
    if fmt in ("nvfp4", "w4a16-nvfp4", "modelopt-fp8", "mixed"):
        return [*kept, *(_globs(made) if draft else [])]
    if fmt.startswith("ct-"):
        return [*kept, *([*(f"re:^{_escaped(front)}\\..*" for front in fronts(made))] if draft else []), *_loose(made)]
    if fmt == "auto-round":
        return (
            [*names] if not draft else [*kept, *(rf".*{_escaped(front)}\..*" for front in fronts(made)), *_loose(made)]
        )
    if fmt == "awq":
        return [*kept, *([f"{front}." for front in fronts(made)] if draft else []), *(_loose(made) if draft else [])]
    if fmt == "modelslim":
        return [f"{name}.weight" for name in names]
    if fmt == "hqq":
        return list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    if fmt in ("mlx", "plain"):
        return []
    if fmt == "gptq":
        return [f"-:^{_escaped(name)}$" for name in kept if name != "lm_head"] + (
            [f"-:^{_escaped(front)}\\..*" for front in fronts(made)] if draft else []
        )
    return list(dict.fromkeys(_holder(name) for name in names))


def _loose(made: Model) -> list[str]:
    return [name for name in made.bare if not any(name.startswith(f"{front}.") for front in fronts(made))]


def _globs(made: Model) -> list[str]:
    return [*(f"{front}.*" for front in fronts(made)), *_loose(made)]


def _holder(name: str) -> str:
    head, found, _ = name.partition(".experts.")
    return f"{head}.experts" if found else name


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def fronts(made: Model) -> list[str]:
    """The draft's layers: `mtp.layers.0`, `model.layers.2`."""
    found = []
    for name in (*made.draft, *made.bare):
        steps = name.split(".")
        at = next((place for place, step in enumerate(steps) if step.isdecimal()), None)
        if at is not None:
            found.append(".".join(steps[: at + 1]))
    return list(dict.fromkeys(found))
