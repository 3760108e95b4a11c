"""SGLang's behaviour, row by row, from its source; `Q` is sglang/srt/layers/quantization of the release named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.sglang import ENGINE
from mtpfix.engines.sglang.names import renamed
from mtpfix.engines.sglang.switches import SWITCHES
from mtpfix.model import Answer, Layer, Mapper
from mtpfix.releases import key

NEWEST = "0.5.23"
PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
MAPPER = Mapper(substr=(("model.layers.61", "model.decoder"),))
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
QUARK_FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}


def modelopt(algo: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algo, "group_size": 16, **more}


def mixed(layers: Mapping[str, str], **more: Any) -> dict[str, Any]:
    listed = {name: {"quant_algo": algo} for name, algo in layers.items()}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed, **more}


def fp8(*listed: str, **more: Any) -> dict[str, Any]:
    block = {"activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return {"quant_method": "fp8", **block, "ignored_layers": list(listed), **more}


def ct(*ignored: str, weights: Any = FLOAT8, inputs: Any = TOKEN, form: str = "float-quantized", **more: Any) -> Any:
    group = {"targets": more.pop("targets", ["Linear"]), "weights": weights, "input_activations": inputs, **more}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"g": group}, "ignore": [*ignored]}


def quark(**more: Any) -> dict[str, Any]:
    whole = {"weight": QUARK_FP8, "input_tensors": QUARK_FP8}
    layers = {"layer_quant_config": {}, "layer_type_quant_config": {}, "global_quant_config": whole}
    return {"quant_method": "quark", "export": {"kv_cache_group": []}, "exclude": [], **layers, **more}


def gptq(dynamic: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    return {**base, "dynamic": dict(dynamic), **more}


def awq(*listed: str, **more: Any) -> dict[str, Any]:
    base = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    return {**base, "modules_to_not_convert": list(listed), **more}


def auto_round(extra: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "sym": True,
        "extra_config": dict(extra),
        **more,
    }


class Asked(NamedTuple):
    """One question. `expect`: decision, and after a colon the scheme or the exception."""

    method: str
    config: Mapping[str, Any]
    name: str
    layer: Layer = "linear"
    mapper: Mapper | None = None
    packed: bool = False
    dtypes: Mapping[str, str] | None = None
    options: Mapping[str, str] = {}


def answered(asked: Asked, release: str = NEWEST) -> Answer:
    query = MatchQuery(
        release,
        asked.method,
        asked.config,
        (asked.mapper,) if asked.mapper else (),
        PACKED if asked.packed else {},
        asked.dtypes,
        asked.options,
    )
    return ENGINE.matcher(query).decide(asked.name, asked.layer)


@pytest.mark.parametrize(
    ("method", "config", "expected"),
    [
        ("fp8", fp8("a.q_proj", "a.k_proj", "a.v_proj"), "quantized"),
        ("compressed-tensors", ct("a.q_proj", "a.k_proj", "a.v_proj"), "quantized"),
        ("modelopt_fp4", modelopt("NVFP4", ignore=["a.q_proj", "a.k_proj", "a.v_proj"]), "plain"),
    ],
)
def test_a_packed_mapping_that_is_filled_late_is_lost_to_those_that_copy_it(
    method: str, config: Mapping[str, Any], expected: str
) -> None:
    # LongCat in sglang 0.5.23: srt/models/longcat_flash.py:662, layers/quantization/fp8.py:297; seen in the engine
    late = {"packed_filled_late": "yes"}
    fused = "fused_qkv_proj"
    query = MatchQuery(NEWEST, method, config, (), {fused: ("q_proj", "k_proj", "v_proj")}, None, late)
    assert ENGINE.matcher(query).decide(f"a.{fused}", "linear").decision == expected
    kept = MatchQuery(NEWEST, method, config, (), {fused: ("q_proj", "k_proj", "v_proj")}, None, {})
    assert ENGINE.matcher(kept).decide(f"a.{fused}", "linear").decision == "plain"


def said(answer: Answer) -> str:
    detail = answer.scheme if answer.decision == "quantized" else answer.error
    return f"{answer.decision}:{detail}" if detail else answer.decision


MOE = "model.layers.3.mlp.experts"
V4 = {"model_type": "deepseek_v4"}
HYBRID = fp8(quant_algo="MIXED_PRECISION", moe_quant_algo="NVFP4", group_size=16)
PB_WO = mixed({MOE: "FP8_PB_WO", "x": "FP8_PB_WO"})
# switch: the question, the answer in the release before, the answer from its release on (sources: switches.py)
CHANGES: dict[str, tuple[Asked, str, str]] = {
    "skip-experts-add": (
        # 0.5.9 utils.py:80 asks expert entries alone, so a shared expert's own entry under another name is lost
        Asked("modelopt_fp8", modelopt("FP8", ignore=["layers.3."]), "model.layers.3.mlp.shared_experts.down_proj"),
        "quantized:fp8",
        "plain",
    ),
    "skip-components": (
        Asked("fp8", fp8("model.layers.4"), "model.layers.46.self_attn.o_proj"),
        "plain",
        "quantized:fp8-block",
    ),
    "skip-known-shards": (
        Asked("fp8", fp8("self_attn.q_proj"), "model.layers.3.self_attn.qkv_proj"),
        "quantized:fp8-block",
        "error:ValueError",
    ),
    "skip-strips-dots": (Asked("fp8", fp8("mtp."), "mtp.layers.0.mlp.down_proj"), "quantized:fp8-block", "plain"),
    "modelopt-head": (
        Asked("modelopt_fp8", modelopt("FP8", ignore=[]), "lm_head", "lm_head"),
        "plain",
        "quantized:fp8",
    ),
    "fp8-exactly": (Asked("modelopt_fp8", modelopt("FP8_PB_WO"), "a.b"), "quantized:fp8", "error:ValueError"),
    "fp4-awq": (Asked("modelopt_fp4", modelopt("NVFP4_AWQ"), "a.b"), "error:ValueError", "quantized:nvfp4-awq"),
    "fp4-group-default": (
        Asked("modelopt_fp4", {"quant_algo": "NVFP4", "ignore": []}, "a.b"),
        "error:ValueError",
        "quantized:nvfp4",
    ),
    "fp4-w4a16": (Asked("modelopt_fp4", modelopt("W4A16_NVFP4"), "a.b"), "error:ValueError", "quantized:nvfp4-w4a16"),
    "fp4-three-keys": (
        Asked("modelopt_fp4", modelopt("NVFP4", exclude_modules=["a.*"]), "a.b"),
        "quantized:nvfp4",
        "plain",
    ),
    "mixed-language-model": (
        Asked("modelopt_mixed", mixed({"model.language_model.layers.0.x": "FP8"}), "language_model.model.layers.0.x"),
        "plain",
        "quantized:fp8",
    ),
    "mixed-w4a16": (Asked("modelopt_mixed", mixed({"a": "W4A16_NVFP4"}), "a"), "plain", "quantized:nvfp4-w4a16"),
    "mixed-two-keys": (
        Asked("modelopt_mixed", mixed({"a.b": "FP8"}, exclude_modules=["a.b"]), "a.b"),
        "quantized:fp8",
        "plain",
    ),
    "mixed-mxfp8": (Asked("modelopt_mixed", mixed({MOE: "MXFP8"}), MOE, "moe"), "plain", "quantized:mxfp8"),
    "mixed-pb-wo": (Asked("modelopt_mixed", PB_WO, "x"), "plain", "quantized:fp8-pb"),
    "mixed-embedding": (
        Asked("modelopt_mixed", mixed({"model.embed_tokens": "nvfp4"}), "model.embed_tokens", "embedding"),
        "plain",
        "quantized:nvfp4",
    ),
    "mixed-block-scales": (
        Asked("modelopt_mixed", mixed({"a": "FP8_BLOCK_SCALES"}), "a"),
        "plain",
        "quantized:fp8-block",
    ),
    "mixed-model-prefix": (
        Asked("modelopt_mixed", mixed({"model.language_model.layers.0.x": "FP8"}), "model.layers.0.x"),
        "plain",
        "quantized:fp8",
    ),
    "mixed-pb-wo-experts": (Asked("modelopt_mixed", PB_WO, MOE, "moe"), "plain", "quantized:fp8-pb"),
    "fp8-both-spellings": (Asked("fp8", fp8("model.a.b"), "a.b"), "quantized:fp8-block", "plain"),
    "fp8-packed": (
        Asked("fp8", fp8("layers.3.self_attn.q_proj"), "model.layers.3.self_attn.qkv_proj", packed=True),
        "quantized:fp8-block",
        "error:ValueError",
    ),
    "fp8-experts": (Asked("fp8", fp8(MOE), MOE, "moe"), "quantized:fp8-block", "plain"),
    "fp8-mapper": (
        Asked("fp8", fp8("model.layers.61.x"), "model.decoder.x", mapper=MAPPER),
        "quantized:fp8-block",
        "plain",
    ),
    "fp4-experts": (Asked("fp8", fp8(), MOE, "moe", options=V4), "quantized:dsv4-fp8", "quantized:dsv4-fp4"),
    "hybrid-nvfp4": (Asked("fp8", HYBRID, MOE, "moe", options=V4), "quantized:dsv4-fp4", "quantized:nvfp4"),
    "hybrid-stages": (
        Asked("fp8", HYBRID, "stages.0.mlp.experts", "moe", options=V4),
        "quantized:nvfp4",
        "quantized:dsv4-fp4",
    ),
    "fp4-experts-declared": (
        Asked("fp8", fp8(routed_experts_quant_method="fp8"), MOE, "moe", options=V4),
        "quantized:dsv4-fp4",
        "quantized:dsv4-fp8",
    ),
    "mimo-store-dtype": (
        Asked("fp8", fp8(store_dtype="mxfp4"), MOE, "moe", options={"model_type": "mimo_v2_flash"}),
        "quantized:fp8-block",
        "quantized:mxfp4",
    ),
    "ct-asymmetric": (
        Asked(
            "compressed-tensors", ct(weights={**INT4, "symmetric": False}, inputs=None, form="pack-quantized"), "a.b"
        ),
        "error:NotImplementedError",
        "quantized:ct-w4a16",
    ),
    "ct-packed-activations": (
        Asked("compressed-tensors", ct(weights=INT4, inputs=TOKEN, form="pack-quantized"), MOE, "moe"),
        "quantized:ct-w4a16",
        "quantized:ct-w4a8",
    ),
    "ct-suffix": (Asked("compressed-tensors", ct("MTP"), "mtp.layers.0.x"), "plain", "quantized:fp8-channel"),
    "ct-group-format": (
        Asked("compressed-tensors", ct(format="float-quantized", form="dense"), "a.b"),
        "error:ImportError",
        "quantized:fp8-channel",
    ),
    "ct-mxfp4-experts": (
        # 0.5.17 compressed_tensors.py:573: MXFP4 experts are built before the list is asked
        Asked("compressed-tensors", ct("re:.*", weights=MXFP4, inputs=None, form="mxfp4-pack-quantized"), MOE, "moe"),
        "plain",
        "quantized:ct-mxfp4",
    ),
    "ct-head": (
        Asked("compressed-tensors", ct(targets=["re:.*lm_head"]), "lm_head", "lm_head"),
        "plain",
        "quantized:fp8-channel",
    ),
    "ct-nvfp4a16": (
        Asked("compressed-tensors", ct(weights=NVFP4, inputs=None, form="nvfp4-pack-quantized"), "a.b"),
        "error:AttributeError",
        "quantized:ct-nvfp4a16",
    ),
    "awq-experts": (Asked("awq", awq("mtp"), "mtp.layers.0.mlp.experts", "moe"), "quantized:awq4", "plain"),
    "quark-default-list": (
        Asked("quark", {name: value for name, value in quark().items() if name != "exclude"}, "a.b"),
        "error:TypeError",
        "quantized:fp8",
    ),
    "quark-mapper": (
        Asked("quark", quark(exclude=["model.layers.61.x"]), "model.decoder.x", mapper=MAPPER),
        "quantized:fp8",
        "plain",
    ),
    "quark-language-model": (
        Asked("quark", quark(exclude=["language_model.a.b"]), "a.b", mapper=MAPPER),
        "quantized:fp8",
        "plain",
    ),
    "quark-direct": (
        Asked("quark", quark(exclude=["a.qkv_proj"]), "a.qkv_proj", packed=True),
        "quantized:fp8",
        "plain",
    ),
    "modelslim-target-only": (
        Asked("modelslim", {"a.b.weight": "W8A8"}, "a.b", options={"part": "draft"}),
        "quantized:modelslim-w8a8",
        "plain",
    ),
    "modelslim-unknown-plain": (
        Asked("modelslim", {"a.b.weight": "W3A3"}, "a.b"),
        "error:NotImplementedError",
        "plain",
    ),
    "quark-block-fp8": (
        Asked(
            "quark",
            quark(
                global_quant_config={
                    "weight": {**QUARK_FP8, "qscheme": "per_block", "block_size": [128, 128]},
                    "input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": True},
                }
            ),
            "a.b",
        ),
        "quantized:quark",
        "quantized:fp8-block",
    ),
    "quark-expert-entries": (
        # 0.5.21 quark.py:896: entries for single experts must cover them from 0 on
        Asked("quark", quark(layer_quant_config={f"{MOE}.1.up_proj": {"weight": QUARK_FP8}}), MOE, "moe"),
        "quantized:fp8",
        "error:ValueError",
    ),
}
MIXED_FP8 = mixed({"a": "FP8"})
MIXED_NVFP4 = mixed({"a": "NVFP4"})
# detection: config, model type, method before, method from its release on
DETECTED: dict[str, tuple[Mapping[str, Any], str, str, str]] = {
    # taken for w4afp8 before, whose parameters FP4 layers never fit: no method that knows the format
    "mixed": (MIXED_NVFP4, "nemotron_h", "", "modelopt_mixed"),
    "detect-mixed-by-layers": (MIXED_NVFP4, "qwen3_5", "", "modelopt_mixed"),
    "detect-mxfp8": (modelopt("MXFP8"), "", "modelopt_fp8", "mxfp8"),
}


def before(release: str) -> str:
    return max((name for name in ENGINE.releases if key(name) < key(release)), key=key)


SINCE = {switch.name: switch.since for switch in SWITCHES}


def test_every_change_is_tried() -> None:
    assert set(SINCE) == {*CHANGES, *DETECTED, "mixed-from-sidecar", "quark-loader-packed"}
    assert all(switch.since in ENGINE.releases and switch.source for switch in SWITCHES)


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str) -> None:
    asked, old, new = CHANGES[name]
    since = SINCE[name]
    assert said(answered(asked, before(since))) == old
    assert said(answered(asked, since)) == new
    assert since in ENGINE.change_points(asked.method, asked.options.get("model_type", ""))


@pytest.mark.parametrize("name", DETECTED)
def test_detection_changes(name: str) -> None:
    config, model_type, old, new = DETECTED[name]
    assert ENGINE.method(config, before(SINCE[name]), model_type).name == old
    assert ENGINE.method(config, SINCE[name], model_type).name == new


@pytest.mark.parametrize(
    ("config", "method"),
    [
        (modelopt("NVFP4"), "modelopt_fp4"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4_AWQ"}}, "modelopt_fp4"),
        (modelopt("FP8"), "modelopt_fp8"),
        (MIXED_FP8, "w4afp8"),
        (fp8(), "fp8"),
        ({"quant_method": "MXFP8"}, "mxfp8"),
        (gptq({}), "gptq"),
        (awq(), "awq"),
        (awq(zero_point=False), "awq-without-marlin"),
        (ct(), "compressed-tensors"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"model_quant_type": "W8A8_DYNAMIC", "a.weight": "W8A8_DYNAMIC"}, "modelslim"),
        ({"bits": 4, "group_size": 64}, ""),  # MLX
    ],
)
def test_methods(config: Mapping[str, Any], method: str) -> None:
    found = ENGINE.method(config, NEWEST)
    assert (found.name, found.error) == (method, "")


def test_refused_methods() -> None:
    # 0.5.20 Q/__init__.py: plain GPTQ left the registry, so what Marlin cannot run is unknown
    three_bits = gptq({}, bits=3)
    assert ENGINE.method(three_bits, "0.5.19").name == "gptq-without-marlin"
    assert ENGINE.method(three_bits, "0.5.20").error
    assert ENGINE.method({"quant_method": "torchao"}, NEWEST) == ENGINE.method({"quant_method": "torchao"}, "0.5.9")
    assert ENGINE.method({"quant_method": "torchao"}, NEWEST).name == ""
    # 0.5.18 srt/configs/model_config.py:1290: an algorithm that detection does not know falls to the FP8 class
    assert ENGINE.method(modelopt("FP8_PB_WO"), NEWEST).error
    assert ENGINE.method({}, NEWEST).error
    # a sidecar whose algorithm means nothing to detection counts for nothing
    assert ENGINE.method({"quantization": {"quant_algo": None}}, NEWEST).error == ""
    assert ENGINE.method({"quant_method": 3}, NEWEST).error


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # Q/modelopt_quant.py:379 (0.5.23): a star is any text, over the whole name or one component
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["mtp*"]), "mtp.layers.0.mlp.experts", "moe"), "plain"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["*.gate"]), "model.layers.0.mlp.gate"), "plain"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["model.layers.*.x"]), "model.layers.0.x"), "plain"),
        # a parent covers linears and not experts; `.*` covers both
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["model.layers.3"]), MOE, "moe"), "quantized:nvfp4"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["model.layers.3"]), "model.layers.3.x"), "plain"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["model.layers.3.*"]), MOE, "moe"), "plain"),
        # single experts are never looked up, a component is
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=[f"{MOE}.0.up_proj"]), MOE, "moe"), "quantized:nvfp4"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=["experts"]), MOE, "moe"), "plain"),
        # an MLA tail reaches into fused names of every layer
        (
            Asked(
                "modelopt_fp8",
                modelopt("FP8", ignore=["model.layers.9.self_attn.kv_a_proj_with_mqa"]),
                "model.layers.1.self_attn.fused_qkv_a_proj_with_mqa",
            ),
            "plain",
        ),
        # only the dot is escaped; what remains is a pattern, or raises
        (Asked("modelopt_fp8", modelopt("FP8", ignore=["a.[0-9]+"]), "a.12"), "plain"),
        (Asked("modelopt_fp8", modelopt("FP8", ignore=["a.("]), "b"), "error:re.error"),
        # a mapper adds each `language_model.` entry without it (:365)
        (
            Asked("modelopt_fp4", modelopt("NVFP4", ignore=["language_model.a.*"]), "a.experts", "moe", mapper=MAPPER),
            "plain",
        ),
        # a runtime name under `language_model.` is tried without it too
        (
            Asked("modelopt_fp4", modelopt("NVFP4", ignore=["a.experts"]), "language_model.a.experts", "moe"),
            "plain",
        ),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=None), "a"), "error:ValueError"),
        # a nested config must state one group size (:1562)
        (
            Asked(
                "modelopt_fp4",
                {"quantization": {"quant_algo": "NVFP4"}, "config_groups": {"g": {"weights": {"group_size": 16}}}},
                "a",
            ),
            "quantized:nvfp4",
        ),
        (Asked("modelopt_fp4", {"quantization": None}, "a"), "error:AttributeError"),
        (Asked("modelopt_fp4", {}, "a"), "error:ValueError"),
        (Asked("modelopt_fp4", modelopt("NVFP4", ignore=[]), "model.embed_tokens", "embedding"), "plain"),
        # gate_up_proj inside a name: both halves to the letter (Q/utils.py:111)
        (
            Asked("fp8", fp8("gate_proj.x", "up_proj.x", weight_block_size=None), "gate_up_proj.x"),
            "plain",
        ),
        (Asked("fp8", fp8("gate_proj.x"), "gate_up_proj.x"), "quantized:fp8-block"),
        (Asked("fp8", fp8("a"), "b.empty", packed=True), "quantized:fp8-block"),
        (Asked("modelopt_fp4", {"quantization": {"quant_algo": "NVFP4"}}, "a"), "error:ValueError"),
        (
            Asked(
                "modelopt_fp4",
                {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["backbone.a"]}},
                "model.a",
                options={"remap_prefix": "backbone=model"},
            ),
            "plain",
        ),
        # mixed: the shards of a fused linear must share an algorithm (:1000)
        (
            Asked("modelopt_mixed", mixed({"a.q_proj": "FP8", "a.k_proj": "NVFP4"}), "a.qkv_proj", packed=True),
            "error:ValueError",
        ),
        (Asked("modelopt_mixed", mixed({"a.q_proj": "FP8"}), "a.qkv_proj", packed=True), "quantized:fp8"),
        (Asked("modelopt_mixed", mixed({f"{MOE}.0.up_proj": "NVFP4"}), MOE, "moe"), "quantized:nvfp4"),
        (Asked("modelopt_mixed", mixed({"a": "FP8"}), "b"), "plain"),
        (Asked("modelopt_mixed", mixed({}), "b"), "error:ValueError"),
        # fp8: stars are literal, parents cover, an expert entry covers the fused experts
        (Asked("fp8", fp8("mtp.*"), "mtp.layers.0.x"), "quantized:fp8-block"),
        (Asked("fp8", fp8("mtp"), "mtp.layers.0.mlp.experts", "moe"), "plain"),
        (Asked("fp8", fp8(f"{MOE}.0.up_proj"), MOE, "moe"), "plain"),
        (Asked("fp8", fp8(), "lm_head", "lm_head"), "plain"),
        (Asked("fp8", fp8(weight_block_size=None), "a"), "quantized:fp8"),
        (Asked("fp8", fp8(activation_scheme="odd"), "a"), "error:ValueError"),
        (Asked("fp8", fp8(weight_block_size=[1]), "a"), "error:ValueError"),
        (Asked("mxfp8", fp8("a", quant_method="mxfp8"), "a.b"), "plain"),
        # MXFP8 of ModelOpt goes through the fp8 class: its stars are literal (srt/configs/model_config.py:1838)
        (Asked("mxfp8", modelopt("MXFP8", ignore=["mtp*"]), "mtp.x"), "quantized:mxfp8"),
        (Asked("mxfp8", modelopt("MXFP8", ignore=["mtp"]), "mtp.x"), "plain"),
        (Asked("mxfp8", {"quantization": {"exclude_modules": ["mtp"]}}, "mtp.x"), "quantized:mxfp8"),
        # DeepSeek-V4: how the first routed expert is stored decides (srt/configs/deepseek_v4.py)
        (
            Asked("fp8", fp8(), MOE, "moe", dtypes={"a.experts.0.w1.weight": "F8_E4M3"}, options=V4),
            "quantized:dsv4-fp8",
        ),
        (Asked("fp8", fp8(), "model.layers.0.x", options=V4), "quantized:dsv4-fp8"),
        (Asked("fp8", HYBRID, "model.decoder.mlp.experts", "moe", options=V4), "quantized:dsv4-fp4"),
        # classes without a list
        (Asked("w4afp8", {}, "a"), "quantized:fp8-block"),
        (Asked("w4afp8", {}, MOE, "moe"), "quantized:w4afp8"),
        (Asked("w8a8_fp8", {}, "lm_head", "lm_head"), "plain"),
        (Asked("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": [MOE]}, MOE, "moe"), "quantized:mxfp4"),
        (Asked("mxfp4", {"quant_method": "mxfp4"}, "a"), "error:AssertionError"),
        (Asked("mxfp4", {"quant_method": "mxfp4"}, "lm_head", "lm_head"), "error:NotImplementedError"),
        (Asked("blockwise_int8", {"ignored_layers": ["a"]}, "a.b"), "plain"),
        (Asked("blockwise_int8", {"ignored_layers": [MOE]}, MOE, "moe"), "quantized:int8-block"),
    ],
)
def test_modelopt_and_fp8(asked: Asked, expected: str) -> None:
    assert said(answered(asked)) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # Q/compressed_tensors/utils.py (0.5.23): a name, its dotted tail, or a pattern from the start
        (Asked("compressed-tensors", ct("mlp.gate"), "model.layers.0.mlp.gate"), "plain"),
        (Asked("compressed-tensors", ct("model.layers.0"), "model.layers.0.x"), "quantized:fp8-channel"),
        (Asked("compressed-tensors", ct("re:model.*"), "model.layers.0.x"), "plain"),
        (Asked("compressed-tensors", ct("re:layers"), "model.layers.0.x"), "quantized:fp8-channel"),
        (Asked("compressed-tensors", ct("re:("), "a"), "error:re.error"),
        # a fused layer counts by its shards; a pattern for the fused name never fires (:41)
        (Asked("compressed-tensors", ct("re:.*qkv_proj$"), "a.qkv_proj", packed=True), "quantized:fp8-channel"),
        (Asked("compressed-tensors", ct("a.qkv_proj"), "a.qkv_proj", packed=True), "plain"),
        (Asked("compressed-tensors", ct("a.q_proj"), "a.qkv_proj", packed=True), "error:ValueError"),
        # experts: expert 0 speaks for all (compressed_tensors.py:882)
        (Asked("compressed-tensors", ct(MOE), MOE, "moe"), "quantized:fp8-channel"),
        (Asked("compressed-tensors", ct("re:.*mlp.experts"), MOE, "moe"), "plain"),
        (Asked("compressed-tensors", ct(f"{MOE}.0.up_proj"), MOE, "moe"), "error:ValueError"),
        # targets: name, class, shards; none of them raises (utils.py:137)
        (Asked("compressed-tensors", ct(targets=["RowParallelLinear"]), "a.o_proj"), "quantized:fp8-channel"),
        (Asked("compressed-tensors", ct(targets=["RowParallelLinear"]), "a.b"), "error:ValueError"),
        (Asked("compressed-tensors", ct(targets=["a.q_proj"]), "a.qkv_proj", packed=True), "error:ValueError"),
        (Asked("compressed-tensors", ct(targets=["re:a"]), "a.qkv_proj", packed=True), "quantized:fp8-channel"),
        (
            Asked("compressed-tensors", ct(weights={"num_bits": 8, "type": "float"}), "a"),
            "quantized:fp8",
        ),
        (Asked("compressed-tensors", ct(weights=None), "a"), "error:ValueError"),
        (Asked("compressed-tensors", ct(targets=None), "a"), "error:TypeError"),
        # the head needs a target of its own name (0.5.19 compressed_tensors.py:992)
        (Asked("compressed-tensors", ct(), "lm_head", "lm_head"), "plain"),
        (
            Asked(
                "compressed-tensors",
                ct(weights={**FLOAT8, "strategy": "block"}, targets=["lm_head"]),
                "lm_head",
                "lm_head",
            ),
            "error:NotImplementedError",
        ),
        # the mapper rewrites the text of patterns too (compressed_tensors.py:169)
        (
            Asked("compressed-tensors", ct("re:model.layers.61.*"), "model.decoder.x", mapper=MAPPER),
            "plain",
        ),
        (
            Asked("compressed-tensors", ct(r"re:model\.layers\.61.*"), "model.decoder.x", mapper=MAPPER),
            "quantized:fp8-channel",
        ),
        (
            Asked("compressed-tensors", {**ct(), "linear_fp8_config": {"weight_block_size": [1, 1]}}, "a"),
            "quantized:fp8-block",
        ),
        (Asked("compressed-tensors", {"ignore": []}, "a"), "plain"),
        (Asked("compressed-tensors", {**ct(), "ignore": None}, "a"), "error:TypeError"),
        # int8 experts exist for Ascend alone (:841)
        (
            Asked(
                "compressed-tensors",
                ct(weights={**INT4, "num_bits": 8, "strategy": "channel"}, form="int-quantized"),
                MOE,
                "moe",
            ),
            "error:NotImplementedError",
        ),
        (Asked("w8a8_int8", {"ignore": ["experts"]}, MOE, "moe"), "plain"),
        (Asked("w8a8_int8", {"ignore": ["experts"]}, MOE, "moe", options={"part": "draft"}), "error:TypeError"),
        (Asked("w8a8_int8", {"ignore": ["experts"]}, MOE, "linear"), "plain"),
        (Asked("w8a8_int8", {"ignore": None}, "a"), "quantized:ct-w8a8"),
        # GPTQ: the first key of `dynamic` that matches decides, for linears (Q/utils.py:254)
        (Asked("gptq", gptq({r"-:.*mtp\.": {}}), "mtp.fc"), "plain"),
        (Asked("gptq", gptq({"+:.*": {"bits": 8}, "-:.*": {}}), "mtp.fc"), "quantized:gptq8"),
        (Asked("gptq", gptq({"-:.*": {}}), MOE, "moe"), "quantized:gptq4"),
        (Asked("gptq", gptq({"a": {"bits": 3}}), "a"), "error:ValueError"),
        (Asked("gptq", gptq({"-:(": {}}), "a"), "error:re.error"),
        (Asked("gptq", gptq({}), "lm_head", "lm_head"), "plain"),
        (Asked("gptq", gptq({}, lm_head=True), "lm_head", "lm_head"), "quantized:gptq4"),
        (Asked("gptq", gptq({}, bits=3), "a"), "error:ValueError"),
        (Asked("gptq-without-marlin", gptq({}, bits=3), MOE, "moe"), "error:TypeError"),
        (Asked("gptq-without-marlin", gptq({"-:a": {}}, bits=3), "a"), "plain"),
        # AWQ: part of the name, shards play no role (Q/awq/awq.py:61)
        (Asked("awq", awq("a.q_proj", "a.k_proj", "a.v_proj"), "a.qkv_proj", packed=True), "quantized:awq4"),
        (Asked("awq", awq("layers.1"), "model.layers.12.x"), "plain"),
        (Asked("awq-without-marlin", awq(), MOE, "moe"), "plain"),
        # AutoRound: an exact key, a pattern over the whole name, the blocks, the experts' keys (Q/auto_round.py:190)
        (Asked("auto-round", auto_round({"a.b": {"bits": 16}}), "a.b"), "plain"),
        (Asked("auto-round", auto_round({"a": {"bits": 16}}), "a.b"), "quantized:gptq4"),
        (Asked("auto-round", auto_round({"a.*": {"bits": 16}}), "a.b"), "plain"),
        (Asked("auto-round", auto_round({"(": {"bits": 16}}), "a.b"), "quantized:gptq4"),
        (Asked("auto-round", auto_round({}, block_name_to_quantize="model.layers"), "mtp.x"), "plain"),
        (Asked("auto-round", auto_round({f"{MOE}.0.x": {"bits": 16}}), MOE, "moe"), "plain"),
        (
            Asked("auto-round", auto_round({f"{MOE}.0.x": {"bits": 16}, f"{MOE}.1.x": {}}), MOE, "moe"),
            "error:ValueError",
        ),
        (
            Asked("auto-round", auto_round({"a.q_proj": {"bits": 16}}), "a.qkv_proj", packed=True),
            "quantized:gptq4",
        ),
        (
            Asked(
                "auto-round",
                auto_round({"a.q_proj": {"bits": 16}}),
                "a.qkv_proj",
                packed=True,
                options={"class_sets_packed": "yes"},
            ),
            "error:ValueError",
        ),
        (Asked("auto-round", auto_round({}), "lm_head", "lm_head"), "plain"),
        (Asked("auto-round", auto_round({}, packing_format="odd"), "a"), "error:ValueError"),
        # Quark: the name or a pattern; an entry below `.experts` excludes them (Q/quark/utils.py:46)
        (Asked("quark", quark(exclude=["a.*"]), "a.b"), "quantized:fp8"),
        (Asked("quark", quark(exclude=["re:a"]), "a.b"), "plain"),
        (Asked("quark", quark(exclude=[f"{MOE}.7.up_proj"]), MOE, "moe"), "plain"),
        (Asked("quark", quark(exclude=["a.q_proj"]), "a.qkv_proj", packed=True), "error:ValueError"),
        (Asked("quark", quark(layer_quant_config={"*q_proj": {}}), "a.qkv_proj", packed=True), "error:ValueError"),
        (Asked("quark", {"quant_method": "quark"}, "a"), "error:ValueError"),
        # the KV cache's layers need one config with output_tensors (Q/quark/quark.py:443)
        (Asked("quark", quark(export={"kv_cache_group": ["k"]}), "a"), "error:ValueError"),
        (
            Asked(
                "quark",
                quark(export={"kv_cache_group": ["k"]}, layer_quant_config={"k": {"output_tensors": None}}),
                "a",
            ),
            "error:ValueError",
        ),
        (
            Asked(
                "quark", quark(export={"kv_cache_group": ["k"]}, layer_quant_config={"k": {"output_tensors": {}}}), "a"
            ),
            "quantized:fp8",
        ),
        (
            Asked(
                "quark", quark(layer_quant_config={f"{MOE}.{e}.up_proj": {"weight": {}} for e in (0, 1)}), MOE, "moe"
            ),
            "quantized:quark",
        ),
        # bitsandbytes: a component or a leading part; experts always (Q/bitsandbytes.py:156)
        (Asked("bitsandbytes", {"llm_int8_skip_modules": ["fc"]}, "mtp.fc"), "plain"),
        (Asked("bitsandbytes", {"llm_int8_skip_modules": ["model.layers.1"]}, "model.layers.1.x"), "plain"),
        (Asked("bitsandbytes", {"llm_int8_skip_modules": ["layers.1"]}, "model.layers.1.x"), "quantized:bnb4"),
        (Asked("bitsandbytes", {"llm_int8_skip_modules": ["experts"]}, MOE, "moe"), "quantized:bnb4"),
        # ModelSlim: the description says how each weight is stored
        (Asked("modelslim", {"a.b.weight": "FLOAT"}, "a.b"), "plain"),
        (Asked("modelslim", {"a.q_proj.weight": "FLOAT"}, "a.qkv_proj", packed=True), "error:ValueError"),
        (Asked("modelslim", {}, MOE, "moe"), "error:ValueError"),
        (Asked("modelslim", {f"{MOE}.0.gate_proj.weight": "FLOAT"}, MOE, "moe"), "error:ValueError"),
        (Asked("modelslim", {f"{MOE}.0.w1.weight": "W4A8_DYNAMIC"}, MOE, "moe"), "quantized"),
        (Asked("modelslim", {}, "a.b"), "plain"),
        (Asked("gguf", {}, "a"), "unknown"),
    ],
)
def test_other_methods(asked: Asked, expected: str) -> None:
    assert said(answered(asked)) == expected


@pytest.mark.parametrize(
    ("asked", "pointer", "entry"),
    [
        (Asked("modelopt_fp8", modelopt("FP8", ignore=["x", "a.*"]), "a.b"), "/ignore/1", "a.*"),
        (
            Asked("modelopt_fp8", {"quantization": {"quant_algo": "FP8", "exclude_modules": ["x", "y", "a*"]}}, "a.b"),
            "/quantization/exclude_modules/2",
            "a*",
        ),
        # the entry keeps its place and its spelling through copies and renames
        (
            Asked("fp8", fp8("x", "model.layers.61.y"), "model.decoder.y", mapper=MAPPER),
            "/ignored_layers/1",
            "model.layers.61.y",
        ),
        (Asked("gptq", gptq({"+:x": {}, "-:a/b~c": {}}), "a/b~c"), "/dynamic/-:a~1b~0c", "-:a/b~c"),
        (Asked("modelopt_mixed", mixed({"a.b": "FP8"}), "a.b"), "/quantized_layers/a.b", "a.b"),
        (Asked("auto-round", auto_round({"a": {"bits": 16}}), "a"), "/extra_config/a", "a"),
        (Asked("compressed-tensors", ct(), "a"), "/config_groups/g/targets/0", "Linear"),
    ],
)
def test_causes(asked: Asked, pointer: str, entry: str) -> None:
    cause = answered(asked).cause
    assert (cause.pointer, cause.entry) == (pointer, entry)


def test_the_engine_s_own_entry_has_no_place_in_a_file() -> None:
    cause = answered(Asked("fp8", HYBRID, "model.decoder.mlp.experts", "moe", options=V4)).cause
    assert cause.pointer == ""
    assert "model.decoder.*" in cause.rule


def test_broken_entries_raise_where_the_walk_reaches_them() -> None:
    config = modelopt("FP8", ignore=["a.b", None, "c.d"])
    assert said(answered(Asked("modelopt_fp8", config, "a.b"))) == "plain"
    assert said(answered(Asked("modelopt_fp8", config, "c.d"))) == "error:TypeError"
    assert answered(Asked("modelopt_fp8", config, "c.d")).cause.pointer == "/ignore/1"


@pytest.mark.parametrize(
    ("name", "mapper", "expected"),
    [
        # srt/models/utils.py:57: in each kind the longest key that fits, once; substring, then prefix, then suffix
        ("a.b.b", Mapper(substr=(("b", "c"),)), "a.c.b"),
        ("ab.x", Mapper(prefix=(("a", "1."), ("ab", "2"))), "2.x"),
        ("a.x", Mapper(suffix=(("x", "y"), (".x", ".z"))), "a.z"),
        ("a.x", Mapper(substr=(("a", "b"),), prefix=(("b", "c"),), suffix=(("x", "y"),)), "c.y"),
        ("a.x", Mapper(substr=(("a", None),)), None),
        ("a.x", Mapper(prefix=(("a", None),)), None),
        ("a.x", Mapper(suffix=(("x", None),)), None),
        ("a.x", Mapper(), "a.x"),
    ],
)
def test_mappers(name: str, mapper: Mapper, expected: str | None) -> None:
    assert renamed(name, mapper) == expected


def test_a_text_is_walked_letter_by_letter() -> None:
    assert said(answered(Asked("awq", {**awq(), "modules_to_not_convert": "xz"}, "mtp.fc"))) == "quantized:awq4"
    assert said(answered(Asked("awq", {**awq(), "modules_to_not_convert": "xf"}, "mtp.fc"))) == "plain"


def test_patterns_that_could_hang_the_engine_are_unknown() -> None:
    config = ct("re:(a+)+$")
    assert said(answered(Asked("compressed-tensors", config, "a" * 60 + "!"))) == "unknown"


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, True, [None], {"a": 1}])
@pytest.mark.parametrize(
    "method", ["modelopt_fp4", "modelopt_mixed", "fp8", "compressed-tensors", "gptq", "awq", "quark"]
)
def test_no_config_makes_a_matcher_raise(method: str, value: Any) -> None:
    configs = {
        "modelopt_fp4": modelopt("NVFP4"),
        "modelopt_mixed": MIXED_NVFP4,
        "fp8": fp8(),
        "compressed-tensors": ct(),
        "gptq": gptq({}),
        "awq": awq(),
        "quark": quark(),
    }
    for name in configs[method]:
        for release in ("0.5.10", NEWEST):
            for layer in ("linear", "moe", "lm_head", "embedding"):
                answered(Asked(method, {**configs[method], name: value}, "a.b", layer), release)  # type: ignore[arg-type]


def test_the_loader_adds_fused_names_for_quark() -> None:
    assert ENGINE.handed_over("fp8", PACKED, "0.5.23") == PACKED
    assert ENGINE.handed_over("quark", PACKED, before(SINCE["quark-loader-packed"])) == PACKED
    assert "qkv_proj" in ENGINE.handed_over("modelslim", {}, "0.5.9")
    assert set(ENGINE.handed_over("quark", {}, "0.5.11")) == {"gate_up_proj", "fused_qkv_a_proj_with_mqa"}


def test_change_points() -> None:
    assert ENGINE.change_points("gptq") == ("0.5.9",)
    assert ENGINE.change_points("awq") == ("0.5.9", "0.5.13")
    assert ENGINE.change_points("fp8", "qwen3_5") == ("0.5.9", "0.5.10", "0.5.11", "0.5.13")
    assert ENGINE.change_points("fp8", "deepseek_v4") == (
        *("0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.17", "0.5.19"),
    )
    assert ENGINE.change_points("modelopt_mixed")[0] == "0.5.10"
