"""Families of the long tail: names, own configs and releases, checked by hand against the engines' sources."""

from __future__ import annotations

import pytest
from views import NEWEST, asked, view_of

from mtpfix.families import identify
from mtpfix.families.base import ask, class_mapper, view_for
from mtpfix.families.loader import load
from mtpfix.families.patterns import key_of


def test_a_draft_with_its_target_s_model_type_is_told_by_its_architecture() -> None:
    for architecture, name in (
        ("LlamaForCausalLMEagle3", "eagle3_llama"),
        ("LlamaForCausalLMEagle", "eagle_llama"),
        ("LlamaForCausalLM", "llama"),
    ):
        found, _ = identify({"model_type": "llama", "architectures": [architecture]})
        assert found is not None
        assert found.name == name
    assert load("eagle3_llama").separate


def test_hy_v3_head_and_leading_dot() -> None:
    """vllm-0.33.0 hy_v3_mtp.py:82 builds the head without a name; sglang-0.5.23 hunyuan_v3.py:507 leaves a dot."""
    vllm, target, draft = (
        view_of("hy_v3", "vllm", "draft"),
        view_of("hy_v3", "sglang", "target"),
        view_of("hy_v3", "sglang", "draft"),
    )
    assert asked(vllm, "lm_head") == ("", "lm_head")
    assert asked(target, "model.layers.3.mlp.shared_mlp.up_proj")[0] == ".model.layers.3.mlp.shared_mlp.gate_up_proj"
    assert asked(target, "lm_head") == (".lm_head", "lm_head")
    assert asked(draft, "model.layers.4.mlp.experts.0.up_proj") == ("model.decoder.mlp.experts", "moe")
    module = "model.layers.3.mlp.shared_mlp.down_proj"
    old = view_of("hy_v3", "vllm", "target", "0.28.0")
    assert asked(old, module, release="0.28.0")[0] == "model.layers.3.mlp.down_proj"
    assert asked(old, module, release="0.29.0")[0] == "model.layers.3.mlp.shared_mlp.down_proj"


def test_step_draft_has_a_config_of_its_own_without_a_packed_mapping() -> None:
    """vllm-0.23.0 v1/spec_decode/step3p5.py:161; the head has a name from 0.27.0; SGLang never quantizes the layer."""
    module, head = "model.layers.4.self_attn.q_proj", "model.layers.4.transformer.shared_head.output"
    old, new = view_of("step3p5", "vllm", "draft", "0.22.1"), view_of("step3p5", "vllm", "draft")
    assert (old.quant, new.quant) == ("shared", "own")
    assert new.packed == {}
    assert new.mapper is None
    assert asked(new, module)[0] == "model.layers.4.mtp_block.self_attn.qkv_proj"
    assert asked(new, head, release="0.26.0") == ("", "lm_head")
    assert asked(new, head) == ("model.layers.4.shared_head.head", "lm_head")
    assert asked(view_of("step3p5", "sglang", "draft"), module)[1] == "unasked"
    assert asked(view_of("step3p5", "sglang", "target"), "model.layers.3.moe.up_proj") == (
        "model.layers.3.mlp.experts",
        "moe",
    )


def test_nemotron_draft_layers() -> None:
    """sglang-0.5.10 renames the draft's layers; vllm-0.30.0 gives the draft a config of its own."""
    module = "mtp.layers.1.mixer.experts.0.up_proj"
    assert load("nemotron_h").steps_key == "mtp_hybrid_override_pattern"
    assert asked(view_of("nemotron_h", "sglang", "draft", "0.5.9"), module)[0] == "model.layers.1.mixer.experts"
    assert asked(view_of("nemotron_h", "sglang", "draft"), module)[0] == "mtp.layers.1.mixer.experts"
    assert [view_of("nemotron_h", "vllm", "draft", release).quant for release in ("0.28.0", "0.30.0")] == [
        "shared",
        "own",
    ]
    wrapped = view_of("nemotron_h", "vllm", "draft", architecture="NemotronH_Omni_Reasoning_V3")
    assert asked(wrapped, f"language_model.{module}")[0] == "mtp.layers.1.mixer.experts"


def test_renumbered_entries() -> None:
    """vllm-0.33.0 qwen4_exp/nvidia/mtp.py:68-93 and hy_v4/nvidia/mtp.py:210-300: the class renumbers some lists."""
    qwen, hunyuan = view_of("qwen4_exp", "vllm", "draft"), view_of("hy_v4", "vllm", "draft")
    assert asked(qwen, "mtp.layers.1.mlp.experts.0.up_proj", 48)[0] == "mtp.layers.49.mlp.experts"
    mapped = class_mapper(qwen, 48, "fp8")
    assert mapped is not None
    assert ("mtp.layers.1", "mtp.layers.49") in mapped.prefix
    assert class_mapper(qwen, 48, "compressed-tensors") is None
    mapped = class_mapper(hunyuan, 34, "modelopt_fp4")
    assert mapped is not None
    assert ("model.mtp_layers.0.", "model.layers.34.") in mapped.prefix
    assert asked(hunyuan, "model.mtp_layers.0.self_attn.linear_gate", 34)[0] == "model.layers.34.self_attn.linear_gate"
    assert asked(view_of("hy_v4", "sglang", "draft"), "model.mtp_layers.0.mlp.down_proj", 34) == (
        ".model.decoder.mlp.down_proj",
        "linear",
    )


def test_bailing_names() -> None:
    """vLLM 2.5 asks under self_attn and has no mapper; V3 matches suffixes; SGLang's V3 leaves `mlp` out."""
    module, linear = "model.layers.4.attention.dense", "model.layers.4.eh_proj"
    v25 = view_of("bailing", "vllm", "draft", architecture="BailingMoeV2_5ForCausalLM")
    v3 = view_of("bailing", "vllm", "draft", architecture="BailingMoeV3ForCausalLM")
    assert asked(v25, module)[0] == "model.layers.4.self_attn.o_proj"
    assert asked(v3, module)[0] == "model.layers.4.self_attn.dense"
    assert (asked(v25, linear)[1], asked(v3, linear)[1]) == ("unasked", "linear")
    assert v3.options["match_mode"].value == "suffix"
    sglang = view_of("bailing", "sglang", "draft", architecture="BailingMoeV3ForCausalLM")
    assert asked(sglang, "model.layers.4.mlp.experts.0.up_proj") == ("model.layers.4.experts", "moe")


@pytest.mark.parametrize(("engine", "linear"), [("vllm", "self_attn.dense"), ("sglang", "attention.out_proj")])
def test_bailing_tells_its_attentions_apart(engine: str, linear: str) -> None:
    """vllm-0.33.0 and sglang-0.5.23 bailing_moe_linear.py: `dense` is o_proj in latent attention; seen in builds."""
    view, key = view_of("bailing", engine, "target", architecture="BailingMoeV2_5ForCausalLM"), "attention.dense"
    release, scope = NEWEST[engine], linear.partition(".")[0]
    latent = ask(view, key_of(f"model.layers.3.{key}"), 4, release, "fp8", lambda leaf: leaf == "kv_a_proj_with_mqa")
    other = ask(view, key_of(f"model.layers.2.{key}"), 4, release, "fp8", lambda leaf: False)
    assert latent is not None
    assert other is not None
    assert (latent.runtime, other.runtime) == (f"model.layers.3.{scope}.o_proj", f"model.layers.2.{linear}")


def test_mistral_large_3_s_draft_has_deepseek_s_packed_mapping() -> None:
    """sglang-0.5.23 srt/models/deepseek_v2.py:3250-3275, whose __init__ the class runs; seen in builds."""
    view = view_of("eagle_mistral_large_3", "sglang", "draft")
    assert view.packed == {"fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa")}
    assert view.options["class_sets_packed"].value == "yes"


def test_dots3_fuses_the_gate_in_sglang() -> None:
    """sglang-0.5.23 dots3_common/modeling.py:624 and nextn.py:34."""
    target, draft = view_of("dots3_note", "sglang", "target"), view_of("dots3_note", "sglang", "draft")
    gate = "self_attn.g_proj"
    parent = "thinker.language_model.model.layers.3"
    assert asked(target, f"model.layers.3.{gate}")[0] == f"{parent}.self_attn.fused_qkv_a_g_proj_with_mqa"
    assert asked(draft, "model.layers.4.eh_proj") == ("model.heads.0.eh_proj", "linear")


def test_inkling_draft_is_plain_until_0_32() -> None:
    """vllm-0.33.0 inkling/nvidia/mtp.py:74-105; SGLang passes no quantization config."""
    assert [view_of("inkling", "vllm", "draft", release).quant for release in ("0.32.0", "0.33.0")] == [
        "none",
        "shared",
    ]
    assert view_of("inkling", "sglang", "draft").quant == "none"


def test_gigachat_draft_layers() -> None:
    """sglang-0.5.23 gigachat35_mtp.py:63-76 and gigachat35.py: every draft layer is a decoder of its own instance."""
    target, draft = view_of("gigachat3_5", "sglang", "target"), view_of("gigachat3_5", "sglang", "draft")
    assert asked(target, "model.layers.3.self_attn.gate_proj") == ("model.layers.3.self_attn.attn_gate", "linear")
    assert asked(target, "model.layers.2.self_attn.in_proj_qkvz")[0] == "model.layers.2.self_attn.in_proj_qkvz"
    assert asked(target, "model.layers.2.input_layernorm.gate_up_projection")[1] == "unasked"
    assert asked(draft, "model.layers.5.mlp.experts.0.up_proj") == ("model.decoder.mlp.experts", "moe")
    assert asked(draft, "model.layers.4.eh_proj")[1] == "unasked"


def test_iquest_draft_is_a_repository_of_its_own() -> None:
    """sglang-0.5.23 iquest_q1_mtp.py load_weights: `mtp.` becomes `model.mtp_layer.`."""
    target, draft = view_of("iquest_q1", "sglang", "target"), view_of("iquest_q1_mtp", "sglang", "draft")
    layer = "mtp.mtp_model_layer"
    assert load("iquest_q1_mtp").separate
    assert asked(draft, f"{layer}.self_attn.k_proj")[0] == "model.mtp_layer.mtp_model_layer.self_attn.qkv_proj"
    assert asked(draft, f"{layer}.mlp.experts.fc") == ("model.mtp_layer.mtp_model_layer.mlp.experts", "moe")
    assert asked(draft, "mtp.eh_proj")[1] == "unasked"
    assert asked(target, "model.layers.0.mlp.up_proj") == ("model.layers.0.mlp.gate_up_proj", "linear")
    assert asked(target, "model.layers.1.mlp.router") == ("model.layers.1.mlp.gate", "unasked")


def test_qwen3_moe_draft_has_the_name_of_the_target_s_first_layer() -> None:
    """sglang-0.5.23 qwen3_moe_mtp.py:52-60; no class before 0.5.13, and none in vLLM."""
    family = load("qwen3_moe")
    draft = view_of("qwen3_moe", "sglang", "draft")
    assert asked(draft, "mtp.layers.0.mlp.experts.0.up_proj") == ("model.layers.0.mlp.experts", "moe")
    assert asked(draft, "mtp.fc")[1] == "unasked"
    assert view_for(family, "sglang", "draft", "0.5.12.post1", family.architectures) is None
    assert view_for(family, "vllm", "draft", NEWEST["vllm"], family.architectures) is None


def test_intern_s2_has_qwen3_5_s_names() -> None:
    """vllm-0.33.0 interns2_preview.py; sglang-0.5.23 model_config.py:1164; told by its own model_type."""
    config = {"model_type": "intern_s2_preview", "text_config": {"model_type": "qwen3_5_moe_text"}}
    found, _ = identify(config)
    assert found is not None
    assert found.name == "intern_s2_preview"
    vllm, sglang = (view_of(found.name, engine, "draft") for engine in ("vllm", "sglang"))
    assert asked(vllm, "mtp.fc") == ("mtp.fc", "linear")
    assert asked(sglang, "mtp.fc")[1] == "unasked"
    target = view_of(found.name, "vllm", "target")
    assert asked(target, "model.time_series.layers.0.fc")[1] == "absent"
    assert target.mapper is not None
    assert ("time_series.", None) in target.mapper.prefix


def test_mistral_large_3_draft_is_told_by_its_architecture() -> None:
    """sglang-0.5.23 mistral_large_3_eagle.py: `eagle_linear` is model.fc, with the quantization config."""
    found, _ = identify({"model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLMEagle"]})
    assert found is not None
    assert found.separate
    draft = view_of(found.name, "sglang", "draft")
    assert asked(draft, "eagle_linear") == ("model.fc", "linear")
    assert asked(draft, "layers.1.attention.wkv_a_with_mqa")[0] == (
        "model.layers.1.self_attn.fused_qkv_a_proj_with_mqa"
    )
    assert asked(draft, "layers.0.experts.3.w2") == ("model.layers.0.mlp.experts", "moe")
