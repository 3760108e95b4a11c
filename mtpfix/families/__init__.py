"""The model families: one data file and one line here each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtpfix.families.base import Family, text_configs
from mtpfix.families.loader import load
from mtpfix.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A data file and what in config.json it is for: values of `model_type`, or (drafts that have their target's
    model_type) names in `architectures`."""

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...] = ()


REGISTRY: tuple[Entry, ...] = (
    Entry("qwen3_next", ("qwen3_next",)),
    Entry("qwen3_5", ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")),
    Entry("qwen3_moe", ("qwen3_moe",)),
    Entry("llama", ("llama",)),
    Entry("gemma4_assistant", ("gemma4_assistant", "gemma4_unified_assistant")),
    Entry("glm4_moe", ("glm4_moe",)),
    Entry("glm5_next", ("glm5_next", "glm5_next_text")),
    Entry("deepseek_v3", ("deepseek_v3",)),
    Entry("deepseek_v32", ("deepseek_v32",)),
    Entry("glm_moe_dsa", ("glm_moe_dsa",)),
    Entry("deepseek_v4", ("deepseek_v4",)),
    Entry("hy_v3", ("hy_v3",)),
    Entry("nemotron_h", ("nemotron_h", "nemotron_h_puzzle", "nemotron_h_omni")),
    Entry("step3p5", ("step3p5", "step3p7")),
    Entry("step5", ("step5", "step5_vl")),
    Entry("bailing", ("bailing_hybrid",)),
    Entry("exaone_moe", ("exaone_moe",)),
    Entry("ernie4_5_moe", ("ernie4_5_moe",)),
    Entry("mimo", ("mimo",)),
    Entry("longcat_flash", ("longcat_flash",)),
    Entry("minimax_m3", ("minimax_m3_vl", "minimax_m3_text")),
    Entry("hy_v4", ("hy_v4",)),
    Entry("pangu_ultra_moe", ("pangu_ultra_moe",)),
    Entry("mimo_v2", ("mimo_v2_flash", "mimo_v2", "mimo_v2_omni")),
    Entry("glm4_moe_lite", ("glm4_moe_lite",)),
    Entry("glm_ocr", ("glm_ocr", "glm_ocr_text")),
    Entry("qwen4_exp", ("qwen4_exp", "qwen4_exp_text")),
    Entry("dots3_note", ("dots3_note",)),
    Entry("inkling", ("inkling_mm_model", "inkling_model")),
    Entry("eagle_llama", (), ("LlamaForCausalLMEagle",)),
    Entry("eagle3_llama", (), ("LlamaForCausalLMEagle3",)),
    Entry("eagle3_deepseek", (), ("Eagle3DeepseekV2ForCausalLM",)),
    Entry("kimi_k3", ("kimi_k3",)),
    Entry("exaone4_5", ("exaone4_5",)),
    Entry("gigachat3_5", ("gigachat3_5",)),
    Entry("iquest_q1", ("iquest_q1",)),
    Entry("iquest_q1_mtp", ("iquest_q1_mtp",)),
    Entry("intern_s2_preview", ("intern_s2_preview",)),
    Entry("eagle_mistral_large_3", (), ("MistralLarge3ForCausalLMEagle",)),
)
_BY_TYPE: Mapping[str, str] = {kind: entry.name for entry in REGISTRY for kind in entry.model_types}
_BY_ARCHITECTURE: Mapping[str, str] = {kind: entry.name for entry in REGISTRY for kind in entry.architectures}


def identify(config: Mapping[str, Any]) -> tuple[Family | None, str]:
    """The family of a config.json, or None and the reason in words."""
    named_classes = config.get("architectures")
    for kind in named_classes if isinstance(named_classes, (list, tuple)) else ():
        if isinstance(kind, str) and kind in _BY_ARCHITECTURE:
            return load(_BY_ARCHITECTURE[kind]), ""
    kinds = [part.get("model_type") for part in reversed(text_configs(config))]
    for kind in kinds:
        if isinstance(kind, str) and kind in _BY_TYPE:
            return load(_BY_TYPE[kind]), ""
    named = next((kind for kind in kinds if isinstance(kind, str)), None)
    if named is None:
        return None, "config.json has no model_type"
    return None, f"no family file describes model_type {named!r}"
