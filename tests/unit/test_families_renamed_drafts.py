"""Families whose drafts go by other names at run time, checked by hand against the engines' sources."""

from __future__ import annotations

from views import asked, view_of

from mtpfix.families.base import ask, class_mapper, special_for
from mtpfix.families.loader import load
from mtpfix.families.patterns import key_of


def test_exaone_draft_names_in_three_engines() -> None:
    """vllm-0.33.0 exaone_moe_mtp.py:63, sglang-0.5.23 exaone_moe_mtp.py:40, TensorRT-LLM modeling_exaone_moe.py."""
    vllm, sglang, trt = (view_of("exaone_moe", name, "draft") for name in ("vllm", "sglang", "tensorrt-llm"))
    assert asked(vllm, "mtp.fc") == ("mtp.fc", "linear")
    assert asked(vllm, "mtp.layers.0.mlp.up_proj") == ("mtp.layers.0.mlp.gate_up_proj", "linear")
    assert asked(sglang, "mtp.fc")[1] == "unasked"
    assert asked(sglang, "mtp.layers.0.mlp.up_proj") == ("model.layers.0.mlp.gate_up_proj", "linear")
    assert asked(trt, "mtp.layers.0.self_attn.k_proj") == ("model.layers.4.self_attn.qkv_proj", "linear")
    assert asked(view_of("exaone_moe", "vllm", "target"), "lm_head") == ("", "lm_head")


def test_exaone_mapper_came_in_two_steps() -> None:
    """vllm-0.25.0 has stacked rules only (a mapper without rules); 0.29.0 drops `mtp.`."""
    mappers = {
        release: class_mapper(view_of("exaone_moe", "vllm", "target", release), 4, "modelopt_fp4")
        for release in ("0.24.0", "0.25.0", "0.29.0")
    }
    assert mappers["0.24.0"] is None
    assert mappers["0.25.0"] is not None
    assert mappers["0.25.0"].prefix == ()
    assert mappers["0.29.0"] is not None
    assert mappers["0.29.0"].prefix == (("mtp.", None),)


def test_a_special_s_condition_names_the_layer_of_its_module() -> None:
    view = view_of("exaone_moe", "sglang", "target")
    found = [special_for(fact, key_of("model.layers.2.self_attn.v_proj"), 4) for fact in view.specials]
    assert [dict(fact.when) for fact in found if fact] == [{"ignore_has": "model.layers.2.self_attn.q_proj"}]


def test_ernie_block_is_a_layer_in_vllm_and_loses_its_number_in_sglang() -> None:
    """vllm-0.33.0 ernie_mtp.py:55-125; sglang-0.5.23 ernie4_eagle.py:39-66."""
    vllm, sglang = view_of("ernie4_5_moe", "vllm", "draft"), view_of("ernie4_5_moe", "sglang", "draft")
    assert asked(vllm, "model.mtp_block.0.self_attn.q_proj") == ("model.layers.4.self_attn.qkv_proj", "linear")
    assert asked(sglang, "model.mtp_block.0.self_attn.q_proj") == ("model.mtp_block.self_attn.qkv_proj", "linear")
    assert asked(sglang, "model.mtp_block.1.self_attn.q_proj")[1] == "absent"
    assert asked(vllm, "model.mtp_linear_proj.0")[1] == "unasked"


def test_mimo_draft_has_no_prefix_in_sglang() -> None:
    """vllm-0.33.0 mimo_mtp.py:94-117; sglang-0.5.23 mimo_mtp.py:88-108."""
    vllm, sglang = view_of("mimo", "vllm", "draft"), view_of("mimo", "sglang", "draft")
    assert asked(vllm, "model.mtp_layers.1.mlp.down_proj") == ("model.layers.5.mlp.down_proj", "linear")
    assert asked(sglang, "model.mtp_layers.0.mlp.down_proj") == ("mlp.down_proj", "linear")
    assert asked(sglang, "lm_head") == ("", "lm_head")
    assert asked(vllm, "lm_head")[1] == "unasked"


def test_mimo_v2_draft() -> None:
    """vllm-0.33.0 mimo_v2_mtp.py builds the first layer, its eh_proj and o_proj plain; SGLang asks `model.decoder`."""
    vllm, sglang = view_of("mimo_v2", "vllm", "draft"), view_of("mimo_v2", "sglang", "draft")
    assert asked(vllm, "model.mtp.layers.0.self_attn.o_proj")[1] == "unasked"
    assert asked(vllm, "model.mtp.layers.0.self_attn.q_proj")[0] == "model.mtp.layers.0.self_attn.qkv_proj"
    assert asked(vllm, "model.mtp.layers.1.self_attn.q_proj")[1] == "absent"
    assert asked(sglang, "model.mtp.layers.1.self_attn.o_proj") == ("model.decoder.self_attn.o_proj", "linear")


def test_longcat_draft_names() -> None:
    """vllm-0.33.0 longcat_flash_mtp.py:46 (a bare prefix), :83 (2N); sglang-0.5.23 longcat_flash_nextn.py:110."""
    vllm, sglang = view_of("longcat_flash", "vllm", "draft"), view_of("longcat_flash", "sglang", "draft")
    module = "model.mtp.layers.0.self_attn.q_a_proj"
    assert asked(vllm, "model.mtp.layers.0.eh_proj") == ("eh_proj", "linear")
    assert asked(vllm, module) == ("model.layers.8.self_attn.fused_qkv_a_proj", "linear")
    assert asked(sglang, module) == ("self_attn.fused_qkv_a_proj_with_mqa", "linear")
    assert asked(sglang, "model.mtp.layers.0.transformer_layer.mlp.up_proj") == ("mlps.gate_up_proj", "linear")


def test_minimax_m3_draft_asks_with_target_layers_names() -> None:
    """vllm-0.33.0 minimax_m3/nvidia/mtp.py:51-110; SGLang has no draft class and renames the experts."""
    draft = view_of("minimax_m3", "vllm", "draft")
    layer = "language_model.model.mtp.layers.0.transformer_layer"
    assert asked(draft, "language_model.model.mtp.layers.0.eh_proj") == ("model.layers.0.eh_proj", "linear")
    assert asked(draft, f"{layer}.self_attn.index_k_proj")[0] == "model.layers.0.self_attn.qkv_proj"
    assert asked(draft, f"{layer}.block_sparse_moe.experts.3.w1")[0] == "model.layers.0.block_sparse_moe.experts"
    assert asked(draft, "language_model.lm_head") == ("lm_head", "lm_head")
    target = view_of("minimax_m3", "sglang", "target")
    expert = "language_model.model.layers.1.block_sparse_moe.experts.0.w2"
    assert asked(target, expert) == ("language_model.model.layers.1.mlp.experts", "moe")
    assert load("minimax_m3").draftless == ("sglang",)


def test_glm_ocr_draft_stands_under_no_wrapper() -> None:
    """vllm-0.33.0 glm_ocr_mtp.py:69-116; sglang-0.5.23 glm_ocr_nextn.py:47-80."""
    module = "model.language_model.layers.4.mlp.gate_up_proj"
    assert asked(view_of("glm_ocr", "vllm", "draft"), module)[0] == "model.layers.4.mlp.gate_up_proj"
    assert asked(view_of("glm_ocr", "sglang", "draft"), module)[0] == "model.decoder.mlp.gate_up_proj"
    inner = "model.language_model.layers.3.mlp.gate_up_proj"
    assert asked(view_of("glm_ocr", "vllm", "target"), inner)[0] == "language_model.model.layers.3.mlp.gate_up_proj"


def test_kimi_k3_gate_is_a_shard_from_0_29_on() -> None:
    """vllm-0.28.0 and vllm-0.29.0 kimi_k3/nvidia/mla.py."""
    module = "language_model.model.layers.4.self_attn.g_proj"
    old, new = (view_of("kimi_k3", "vllm", "draft", release) for release in ("0.28.0", "0.29.0"))
    assert asked(old, module, release="0.28.0")[0] == "model.layers.4.self_attn.g_proj"
    assert asked(new, module, release="0.29.0")[0] == "model.layers.4.self_attn.fused_qkv_a_g_proj"


def test_what_is_stored_beside_a_kimi_k3_gate_tells_its_attention() -> None:
    """vllm-0.33.0 kimi_k3/nvidia/kda.py:653, mla.py:222; sglang-0.5.23 kimi_k3.py:1568,2273."""
    key = key_of("language_model.model.layers.3.self_attn.g_proj")
    expected = {
        ("vllm", "f_a_proj"): "language_model.model.layers.3.self_attn.in_proj_qkvgfab",
        ("vllm", "q_a_proj"): "language_model.model.layers.3.self_attn.fused_qkv_a_g_proj",
        ("sglang", "f_a_proj"): "model.layers.3.self_attn.fused_qkvg_proj",
        ("sglang", "q_a_proj"): "model.layers.3.self_attn.g_proj",
    }
    for (engine, neighbour), runtime in expected.items():
        release = "0.33.0" if engine == "vllm" else "0.5.23"
        found = ask(view_of("kimi_k3", engine, "target"), key, 4, release, "fp8", neighbour.__eq__)
        assert found is not None
        assert found.runtime == runtime
