"""Models of every other family: the names and shapes of checkpoints that real engines were given (tests/engines/asks).

Families that no engine was recorded with are written down here by the names of their files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from checkpoints import MODELS, H, Json, Model, Shape, _mlp, _named, qwen3_5, read

from mtpfix.families import REGISTRY, identify
from mtpfix.families.base import Family, config_value, expert_count, is_draft
from mtpfix.families.patterns import key_of
from mtpfix.patch import put
from mtpfix.storage.modules import stored_modules
from mtpfix.world import pointers_of

sys.path.append(str(Path(__file__).parent / "engines"))
from records import ASKS, Record, load_record

RECORDS: Mapping[str, str] = {
    "deepseek_v32": "v32-fp8b-draft-bf16",
    "deepseek_v4": "i-deepseek-v4-nvfp4-mtp-mxfp4",
    "hy_v3": "s-hyv3-awq-mtp-listed",
    "nemotron_h": "s-nemotron-ct-fp8-mtp-unlisted",
    "step3p5": "s-step35-fp8b-mtp-leaves-repaired",
    "step5": "u-step5-fp8-mtp-unlisted-repaired",
    "bailing": "bailing25-ctf8",
    "exaone_moe": "a-exaone-moe-nvfp4-fc",
    "ernie4_5_moe": "b-ernie45-nvfp4-mtp-block-name",
    "mimo": "b-mimo-ct-w4a16-mtp-layers-regex",
    "longcat_flash": "b-longcat-fp8-mtp-names",
    "minimax_m3": "s-m3-nvfp4-mtp-names",
    "hy_v4": "s-hyv4-fp8b-mtp-quantized",
    "pangu_ultra_moe": "u-pangu-fp8b-mtp-unlisted-repaired",
    "mimo_v2": "t-mimo2-ct-w4a16-mtp-listed",
    "glm4_moe_lite": "s-lite-ct-w4a16-unlisted",
    "glm_ocr": "t-ocr-ct-fp8-block-repaired",
    "qwen4_exp": "t-qwen4-ct-w4a16-mtp-listed",
    "dots3_note": "u-dots3-ctw4-mtp-quantized-repaired",
    "eagle_llama": "u-eagle-ctw4-all-quantized",
    "eagle3_llama": "u-eagle3-fp8b-all-quantized",
    "eagle3_deepseek": "u-eagle3-kimi-fp8b-repaired",
    "kimi_k3": "u-k3-ctw4-mtp-quantized-repaired",
    "exaone4_5": "t-exaone45-fp8b-mtp-listed",
    "gigachat3_5": "u-giga-ctw4-mtp-quantized",
    "iquest_q1_mtp": "u-iquest-mtp-fp8b-attn-plain-repaired",
}
LEFT_ALONE = ("gate", "router", "classifier", "fc", "eh_proj", "head", "input_proj", "pre_projection")
EXPERTS = 2


@cache
def recorded(name: str) -> Model:
    """The model of a family's record, with two experts of each layer."""
    return model_of(load_record(ASKS / f"{RECORDS[name]}.json"), EXPERTS)[1]


def model_of(record: Record, experts: int) -> tuple[Family, Model]:
    """A record's family and model: its quantized modules as the body, as many experts, no quantization config."""
    family, _ = identify(record.config)
    assert family is not None
    layers = config_value(record.config, (family.layers_key,))
    config = {key: value for key, value in record.config.items() if key != "quantization_config"}
    config, fewer = _counting(config, family, experts)
    parts: dict[str, dict[str, Shape]] = {part: {} for part in ("body", "kept", "draft", "bare", "listless")}
    for module in stored_modules(read({"config.json": dict(record.config)}, record.shards)):
        if len(module.shape) == 2 and module.scheme.kind in ("plain", "quantized"):
            for one in _each(module.name, module.experts, experts):
                part = _part(family, one, layers, quantized=module.quantized)
                rows = fewer if family.experts and one.endswith(family.experts.router) else 0
                parts[part][one] = (module.shape[0] - rows, module.shape[1])
    return family, Model(config, **parts)


def _counting(config: Json, family: Family, most: int) -> tuple[Json, int]:
    """The config with a count of at most so many experts, and how many fewer they are."""
    counted = expert_count(config, family.experts) if family.experts else None
    if family.experts is None or counted is None or counted <= most:
        return config, 0
    for place in pointers_of(config, [family.experts.key]):
        config = put(config, place.split("/")[1:], most)
    return config, counted - most


def _each(name: str, experts: tuple[int, ...], most: int) -> list[str]:
    head, marker, rest = name.partition(".experts.")
    tail = rest.partition(".")[2]
    return [f"{head}{marker}{number}.{tail}" for number in experts if number < most] or [name] * (not experts)


def _part(family: Family, name: str, layers: int, *, quantized: bool) -> str:
    if "embed" in name:
        return "listless"
    if not is_draft(family, key_of(name), layers):
        return "body" if quantized else "kept"
    left = name.rpartition(".")[2] in LEFT_ALONE or family.full_precision.find(key_of(name), layers) is not None
    return "bare" if left else "draft"


# --- families without a record ----------------------------------------------------------------------------------------


def intern_s2_preview(layers: int = 2, experts: int = 2, drafts: int = 1) -> Model:
    made = qwen3_5(layers, experts, drafts)
    config = {
        **made.config,
        "architectures": ["InternS2PreviewForConditionalGeneration"],
        "model_type": "intern_s2_preview",
    }
    return Model(config, made.body, made.kept, made.draft, made.bare, made.listless)


def iquest_q1(layers: int = 2, experts: int = 0, drafts: int = 0) -> Model:
    config: Json = {
        "architectures": ["IQuestQ1ForCausalLM"], "model_type": "iquest_q1", "hidden_size": H,
        "num_hidden_layers": layers,
    }  # fmt: skip
    attention = {f"self_attn.{name}_proj": (H, H) for name in "qkvo"}
    body = {name: shape for layer in range(layers)
            for name, shape in _named(f"model.layers.{layer}", attention, _mlp("mlp")).items()}  # fmt: skip
    return Model(config, body, {"lm_head": (H, H)}, listless={"model.embed_tokens": (H, H)})


def eagle_mistral_large_3(layers: int = 2, experts: int = 2, drafts: int = 0) -> Model:
    """Mistral's own names."""
    config: Json = {
        "architectures": ["MistralLarge3ForCausalLMEagle"], "model_type": "mistral", "hidden_size": H,
        "num_hidden_layers": layers,
    }  # fmt: skip
    attention = {f"attention.{name}": (H, H) for name in ("wq_a", "wq_b", "wkv_a_with_mqa", "wkv_b", "wo")}
    moe = {f"{place}.{name}": (H, H) for place in ("experts.0", "experts.1", "shared_experts")
           for name in ("w1", "w2", "w3")}  # fmt: skip
    draft: dict[str, Shape] = {}
    for layer in range(layers):
        dense = {f"feed_forward.{name}": (H, H) for name in ("w1", "w2", "w3")}
        draft |= _named(f"layers.{layer}", attention, moe if layer else dense)
    bare = {"eagle_linear": (H, 2 * H), **{f"layers.{layer}.gate": (experts, H) for layer in range(1, layers)}}
    return Model(config, draft=draft, bare=bare, listless={"tok_embeddings": (H, H)})


def inkling(layers: int = 2, experts: int = 2, drafts: int = 1) -> Model:
    inner: Json = {"model_type": "inkling_model", "hidden_size": H, "num_hidden_layers": layers}
    config: Json = {
        "architectures": ["InklingForConditionalGeneration"], "model_type": "inkling_mm_model", "text_config": inner,
        "mtp_config": {"num_nextn_predict_layers": drafts},
    }  # fmt: skip
    linears = {f"attn.{name}": (H, H) for name in ("wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud")}
    linears |= {"mlp.w13_dn": (2 * H, H), "mlp.w2_md": (H, H)}
    body, draft = {}, {}
    for layer in range(layers):
        body |= _named(f"model.llm.layers.{layer}", linears)
    for layer in range(drafts):
        draft |= _named(f"model.mtp.layers.{layer}.transformer_block", linears)
    kept = {"model.llm.unembed": (H, H)}
    bare = {f"model.mtp.layers.{layer}.input_proj": (H, 2 * H) for layer in range(drafts)}
    return Model(config, body, kept, draft, bare, {"model.llm.embed": (H, H)})


WRITTEN: Mapping[str, Callable[..., Model]] = {
    "intern_s2_preview": intern_s2_preview,
    "iquest_q1": iquest_q1,
    "eagle_mistral_large_3": eagle_mistral_large_3,
    "inkling": inkling,
}
SEPARATE = ("gemma4_assistant", "eagle_llama", "eagle3_llama", "eagle3_deepseek", "iquest_q1_mtp",
            "eagle_mistral_large_3")  # fmt: skip
MAKERS: Mapping[str, Callable[..., Model]] = {**MODELS, **WRITTEN}
FAMILIES: tuple[str, ...] = tuple(entry.name for entry in REGISTRY)


def config_of(made: Model) -> Mapping[str, Any]:
    """The config that holds the number of layers."""
    family, reason = identify(made.config)
    assert family is not None, reason
    inner = (made.config.get(key) for key in ("text_config", "llm_config", "language_config", "thinker_config"))
    return next((part for part in inner if isinstance(part, dict) and family.layers_key in part), made.config)
