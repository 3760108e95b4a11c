"""GLM and DeepSeek family files: names, special rules and releases, checked by hand against the engines' sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mtpfix.families import identify
from mtpfix.families.base import Ask, View, ask, class_mapper, is_draft, view_for
from mtpfix.families.conditions import holds_all
from mtpfix.families.loader import load
from mtpfix.families.patterns import key_of
from mtpfix.model import Part
from mtpfix.releases import holds

NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "snapshot-3", "transformers": "5.24.0"}


def view_of(family: str, engine: str, part: Part, release: str = "", architecture: str = "") -> View:
    found = view_for(load(family), engine, part, release or NEWEST[engine], (architecture,))
    assert found is not None
    return found


def asked(view: View, module: str, layers: int, method: str = "modelopt_fp4", release: str = "") -> tuple[str, str]:
    found = ask(view, key_of(module), layers, release or NEWEST[view.engine], method)
    assert isinstance(found, Ask), module
    return found.runtime, found.layer


def special(view: View, module: str, layers: int, method: str, quant: Mapping[str, Any], release: str = "") -> str:
    for fact in view.specials:
        if (
            holds(release or NEWEST[view.engine], fact.span)
            and (not fact.methods or method in fact.methods)
            and fact.modules.find(key_of(module), layers) is not None
            and holds_all(fact.when, quant, {}, layers)
        ):
            return fact.decision
    return ""


@pytest.mark.parametrize(
    ("model_type", "family"),
    [("glm4_moe", "glm4_moe"), ("deepseek_v32", "deepseek_v32"), ("glm_moe_dsa",) * 2, ("glm5_next_text", "glm5_next")],
)
def test_model_types(model_type: str, family: str) -> None:
    found, _ = identify({"model_type": model_type})
    assert found is not None
    assert found.name == family


def test_glm4_draft_names() -> None:
    """vllm-0.33.0 glm4_moe_mtp.py:65-102; sglang-0.5.23 glm4_moe_nextn.py:44-145; TensorRT-LLM appends the layer."""
    layer = "model.layers.46"
    expert, head, projection = f"{layer}.mlp.experts.7.up_proj", f"{layer}.shared_head.head", f"{layer}.eh_proj"
    vllm, sglang, trt = (view_of("glm4_moe", engine, "draft") for engine in ("vllm", "sglang", "tensorrt-llm"))
    assert asked(vllm, expert, 46) == ("model.layers.46.mlp.experts", "moe")
    assert asked(vllm, head, 46) == ("model.layers.46.head", "lm_head")
    assert asked(vllm, "lm_head", 46) == ("model.layers.46.head", "lm_head")
    assert asked(sglang, expert, 46) == ("model.decoder.mlp.experts", "moe")
    assert asked(sglang, head, 46) == ("model.shared_head.head", "lm_head")
    assert asked(trt, expert, 46) == ("model.layers.46.mlp.experts", "moe")
    assert {asked(view, projection, 46)[1] for view in (vllm, sglang, trt)} == {"unasked"}
    assert load("glm4_moe").full_precision.find(key_of(projection), 46) is not None


def test_sglang_builds_nvfp4_drafts_plain_but_not_their_head() -> None:
    """sglang-0.5.23 glm4_moe_nextn.py:52 and deepseek_nextn.py:75: quant_config = None; the head keeps the config."""
    for name in ("glm4_moe", "deepseek_v3", "glm_moe_dsa"):
        view = view_of(name, "sglang", "draft")
        assert special(view, "model.layers.61.self_attn.o_proj", 61, "modelopt_fp4", {}) == "plain"
        assert special(view, "model.layers.61.self_attn.o_proj", 61, "fp8", {}) == ""
        assert special(view, "model.layers.61.shared_head.head", 61, "modelopt_fp4", {}) == ""


def test_sglang_0_5_10_builds_the_glm4_draft_plain_for_every_method() -> None:
    """sglang-0.5.10 glm4_moe_nextn.py:131-134; asked again in 0.5.11."""
    view = view_of("glm4_moe", "sglang", "draft", "0.5.10")
    module, releases = "model.layers.4.mlp.gate", ("0.5.9", "0.5.10", "0.5.10.post1", "0.5.11")
    assert [special(view, module, 4, "fp8", {}, release) for release in releases] == ["", "plain", "plain", ""]


def test_deepseek_fused_down_projection() -> None:
    """vLLM's draft inherits the target's mapping (deepseek_v2.py:1909); SGLang's draft class has none; 61 is fixed."""
    module = "model.layers.61.self_attn.kv_a_proj_with_mqa"
    target, draft = view_of("deepseek_v3", "vllm", "target"), view_of("deepseek_v3", "vllm", "draft")
    assert (target.packed or {})["fused_qkv_a_proj"] == ("q_a_proj", "kv_a_proj_with_mqa")
    assert draft.quant == "shared"
    assert draft.packed is None
    sglang = view_of("deepseek_v3", "sglang", "draft")
    assert asked(sglang, module, 61)[0] == "model.decoder.self_attn.fused_qkv_a_proj_with_mqa"
    assert sglang.packed is None
    assert class_mapper(sglang, 61, "fp8") == class_mapper(sglang, 5, "fp8")
    assert view_of("deepseek_v3", "sglang", "draft", "0.5.9").mapper is None


def test_glm5_has_its_own_sglang_draft_class_from_0_5_16() -> None:
    """sglang-0.5.23 glm4_moe.py:1288-1430: no rules of the mapper; Quark entries of layer N are copied."""
    old, new = (view_of("glm_moe_dsa", "sglang", "draft", release) for release in ("0.5.15", "0.5.23"))
    mapped = class_mapper(old, 78, "fp8")
    assert mapped is not None
    assert mapped.substr == (("model.layers.61", "model.decoder"),)
    assert class_mapper(new, 78, "fp8") is None
    quark = class_mapper(new, 78, "quark")
    assert quark is not None
    assert ("model.layers.78.", "model.decoder.") in quark.prefix


def test_dsa_indexer() -> None:
    """vllm-0.20.0 deepseek_v2.py fuses wk and weights_proj without a config; 0.19.1 asks for wk."""
    view = view_of("deepseek_v32", "vllm", "draft", "0.20.0")
    wk = "model.layers.61.self_attn.indexer.wk"
    assert asked(view, wk, 61, release="0.19.1") == (wk, "linear")
    assert asked(view, wk, 61, release="0.20.0") == ("model.layers.61.self_attn.indexer.wk_weights_proj", "unasked")
    assert asked(view, "model.layers.61.self_attn.indexer.wq_b", 61)[1] == "linear"


def test_glm5_next() -> None:
    """vllm-0.33.0 glm5next/common/model.py:408 (attention), mtp.py:65 (head); sglang glm5_next_nextn.py:34-81."""
    vllm = view_of("glm5_next", "vllm", "draft")
    layer = "model.language_model.layers.45"
    assert asked(vllm, f"{layer}.self_attn.o_proj", 45)[1] == "unasked"
    assert asked(vllm, f"{layer}.mlp.experts.3.gate_proj", 45) == ("model.layers.45.mlp.experts", "moe")
    assert asked(vllm, f"{layer}.shared_head.head", 45, release="0.30.0") == ("model.layers.45.head", "lm_head")
    assert asked(vllm, f"{layer}.shared_head.head", 45)[1] == "absent"
    target = view_of("glm5_next", "vllm", "target", architecture="Glm5NextForConditionalGeneration")
    assert ("model.language_model.", "language_model.model.") in (target.mapper.prefix if target.mapper else ())
    sglang = view_of("glm5_next", "sglang", "draft")
    mapper = class_mapper(sglang, 45, "fp8")
    assert mapper is not None
    assert ("model.language_model.layers.45", "model.decoder") in mapper.substr
    literal, glob = {"ignore": ["model.layers.45.*"]}, {"ignore": ["model.layers.45*"]}
    assert special(sglang, f"{layer}.mlp.experts.0.up_proj", 45, "modelopt_fp8", literal) == "plain"
    assert special(sglang, f"{layer}.mlp.experts.0.up_proj", 45, "modelopt_fp8", glob) == ""
    assert special(sglang, f"{layer}.mlp.experts.0.up_proj", 45, "fp8", {"ignored_layers": ["model.layers.45.*"]}) == ""
    assert is_draft(load("glm5_next"), key_of(f"{layer}.enorm"), 45)
    assert not is_draft(load("glm5_next"), key_of("model.language_model.layers.44.mlp.gate"), 45)


def test_deepseek_v4() -> None:
    """vllm-0.24.0 names e_proj and h_proj; w1, w3, w2 are gate, up and down; sglang builds mtp.0 as model.decoder."""
    vllm, sglang = view_of("deepseek_v4", "vllm", "draft"), view_of("deepseek_v4", "sglang", "draft")
    assert asked(vllm, "mtp.0.e_proj", 61, release="0.23.0") == ("", "linear")
    assert asked(vllm, "mtp.0.e_proj", 61, release="0.24.0") == ("model.layers.61.e_proj", "linear")
    expert = ask(vllm, key_of("mtp.0.ffn.experts.3.w2"), 61, "0.33.0", "deepseek_v4_fp8")
    assert expert == Ask("model.layers.61.ffn.experts", "moe", ("w1", "w3", "w2"))
    assert asked(sglang, "mtp.0.attn.wkv", 61, "fp8") == ("model.decoder.self_attn.wqkv_a", "linear")
    assert asked(sglang, "mtp.0.attn.wo_a", 61, "quark")[1] == "unasked"
    assert asked(sglang, "mtp.1.attn.wkv", 61)[1] == "absent"
    assert view_for(load("deepseek_v4"), "vllm", "target", "0.19.1", ()) is None


def verdict(
    view: View,
    module: str,
    method: str,
    scheme: str,
    release: str,
    decided: str = "quantized",
    quant: Mapping[str, Any] | None = None,
) -> str:
    """The verdict of the first fault that fits a module; `scheme` "plain" or "missing" for the unquantized.

    Faults with conditions fit where a quantization config is given that they hold for.
    """
    stored = scheme if scheme in ("plain", "missing") else "quantized"
    for fault in view.faults:
        if (
            holds(release, fault.span)
            and not fault.beyond
            and fault.modules.find(key_of(module), 4) is not None
            and (not fault.methods or method in fault.methods)
            and fault.decided in ("", decided)
            and fault.stored in ("", stored)
            and (not fault.schemes or scheme in fault.schemes)
            and (not fault.when if quant is None else holds_all(fault.when, quant, {}, 4))
        ):
            return fault.verdict
    return ""


def test_what_loaders_do() -> None:
    """Loads of vllm-0.33.0 and sglang-0.5.23 with siblings of the corpus; releases from the wheels' loaders."""
    glm4, deepseek = view_of("glm4_moe", "vllm", "draft"), view_of("deepseek_v3", "vllm", "draft")
    layer = "model.layers.4"
    assert verdict(glm4, f"{layer}.eh_proj", "fp8", "missing", "0.33.0") == ""
    assert verdict(deepseek, f"{layer}.eh_proj", "fp8", "missing", "0.16.0") == ""
    assert verdict(deepseek, f"{layer}.eh_proj", "fp8", "missing", "0.17.0") == "fails"
    assert verdict(glm4, f"{layer}.mlp.experts.0.up_proj", "gptq", "gptq4", "0.29.0") == ""
    assert verdict(glm4, f"{layer}.mlp.experts.0.up_proj", "gptq", "gptq4", "0.30.0") == "fails"
    sglang = view_of("deepseek_v3", "sglang", "draft")
    assert verdict(sglang, f"{layer}.self_attn.q_a_proj", "gptq", "gptq4", "0.5.23") == "fails"
    assert verdict(sglang, f"{layer}.self_attn.o_proj", "fp8", "fp8-block-ct", "0.5.22") == ""
    assert verdict(sglang, f"{layer}.self_attn.o_proj", "fp8", "fp8-block-ct", "0.5.23") == "loads"
    assert verdict(sglang, f"{layer}.mlp.experts.0.up_proj", "fp8", "fp8-block-ct", "0.5.23") == "fails"
    assert verdict(sglang, f"{layer}.self_attn.q_b_proj", "fp8", "plain", "0.5.9") == "fails"
    native = view_of("deepseek_v4", "sglang", "draft")
    assert verdict(native, "mtp.0.attn.wo_a", "fp8", "plain", "0.5.23") == "fails"
    blocks: Mapping[str, Any] = {"weight_block_size": [128, 128]}
    assert verdict(native, "mtp.0.attn.wo_a", "fp8", "plain", "0.5.23", "plain", blocks) == "fails"
    assert verdict(native, "mtp.0.attn.wo_a", "fp8", "plain", "0.5.23", "plain", {}) == ""
    assert verdict(native, "mtp.0.attn.wo_a", "fp8", "dsv4-fp8", "0.5.23", "plain", {}) == "loads"
    assert verdict(native, "mtp.0.attn.wkv", "fp8", "dsv4-fp8", "0.5.23", "quantized", {}) == "fails"
    assert verdict(native, "mtp.0.attn.wkv", "fp8", "fp8", "0.5.23", "quantized", {}) == "degrades"


def test_sglang_asks_for_wo_a_with_blocks_alone() -> None:
    """sglang-0.5.21 srt/models/deepseek_v4.py:275: block scales of 128 by 128; sglang-0.5.20 :683: any."""
    family = load("deepseek_v4")
    parts: tuple[tuple[Part, str], ...] = (("target", "layers.1.attn.wo_a"), ("draft", "mtp.0.attn.wo_a"))
    cases: tuple[tuple[str, Mapping[str, Any], str], ...] = (
        ("0.5.23", {"weight_block_size": [128, 128]}, ""),
        ("0.5.23", {"weight_block_size": [64, 64]}, "plain"),
        ("0.5.23", {}, "plain"),
        ("0.5.21", {}, "plain"),
        ("0.5.20", {}, ""),
    )
    for part, module in parts:
        for release, quant, expected in cases:
            view = view_for(family, "sglang", part, release, ())
            assert view is not None
            assert special(view, module, 61, "fp8", quant, release) == expected, (part, release, quant)
    old = view_for(family, "sglang", "draft", "0.5.20", ())
    assert old is not None
    assert verdict(old, "mtp.0.attn.wo_a", "fp8", "fp8", "0.5.20", "quantized", {}) == "fails"
    assert verdict(old, "mtp.0.attn.wo_a", "fp8", "fp8", "0.5.21", "plain", {}) == ""


@pytest.mark.parametrize(
    ("when", "quant", "config", "expected"),
    [
        ({"config_above": "num_nextn_predict_layers=1"}, {}, {"num_nextn_predict_layers": 2}, True),
        ({"config_above": "num_nextn_predict_layers=1"}, {}, {"num_nextn_predict_layers": 1}, False),
        ({"config_above": "num_nextn_predict_layers=1"}, {}, {"num_nextn_predict_layers": "2"}, False),
        ({"ignore_has": "model.layers.{N}.*"}, {"ignore": ["model.layers.4.*"]}, {}, True),
        ({"ignore_has": "model.layers.{N}.*"}, {"exclude_modules": ["model.layers.4.*"]}, {}, False),
        ({"ignore_has": "model.layers.{N}.*"}, {"ignore": "model.layers.4.*"}, {}, False),
        ({"quant_has": "format=pack-quantized|nvfp4-pack-quantized"}, {"format": "nvfp4-pack-quantized"}, {}, True),
        ({"quant_has": "format=pack-quantized|nvfp4-pack-quantized"}, {"format": "float-quantized"}, {}, False),
        ({"no_quant_has": "format=pack-quantized"}, {}, {}, True),
    ],
)
def test_conditions(when: dict[str, str], quant: dict[str, Any], config: dict[str, Any], expected: bool) -> None:
    assert holds_all(when, quant, config, 4) is expected
