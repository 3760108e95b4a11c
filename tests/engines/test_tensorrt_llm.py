"""TensorRT-LLM's list test and its translation of Qwen3.5 names, row by row.

`M` is tensorrt_llm/models/modeling_utils.py, `Q35` is tensorrt_llm/_torch/models/modeling_qwen3_5.py (00620eb).
"""

from __future__ import annotations

from typing import Any

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.tensorrt_llm import ENGINE
from mtpfix.engines.trtllm_qwen import draft_name, exclusion_names, layer_names
from mtpfix.model import Answer, Layer

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
QWEN = {"normalise": "qwen3_5", "num_hidden_layers": "48"}


def nested(*listed: str, algo: str = "NVFP4", **more: Any) -> dict[str, Any]:
    return {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": algo, "exclude_modules": [*listed], **more},
    }


def answered(
    config: dict[str, Any], name: str, release: str = "snapshot-3", layer: Layer = "linear", **more: Any
) -> Answer:
    method = ENGINE.method(config, release).name
    return ENGINE.matcher(MatchQuery(release, method, config, **more)).decide(name, layer)


@pytest.mark.parametrize(
    ("entry", "name", "decisions"),
    [
        # M: fnmatchcase over the whole name, in every state
        ("model.layers.61*", "model.layers.610.x", "ppp"),
        ("*.gate", "model.layers.0.gate", "ppp"),
        ("model.layers.[01].x", "model.layers.1.x", "ppp"),
        ("MODEL.*", "model.a", "qqq"),
        ("model.layers.?.x", "model.layers.10.x", "qqq"),
        ("lm_head", "model.lm_head", "qqq"),
        # from the second state on: `re:` must match a whole name, parents count
        (r"re:model\.layers\.1\..*", "model.layers.1.x", "qpp"),
        ("re:model", "xmodel", "qqq"),
        ("model.layers.1", "model.layers.1.mlp.experts", "qpp"),
        ("re:(", "a", "qee"),
        ("*a", "a.b", "qpp"),
        # from the third on: `X.*` is X too
        ("model.layers.1.*", "model.layers.1", "qqp"),
        ("model.*.1.*", "model.layers.1", "qqp"),
        ("model.layers.1.*", "model.layers.10", "qqq"),
    ],
)
def test_three_states(entry: str, name: str, decisions: str) -> None:
    kinds = {"p": "plain", "q": "quantized", "e": "error"}
    found = [answered(nested(entry), name, release).decision for release in ENGINE.releases]
    assert found == [kinds[letter] for letter in decisions]


def test_an_entry_hides_a_broken_one_behind_it() -> None:
    assert answered(nested("a", "re:("), "a").decision == "plain"
    found = answered(nested("b", "re:("), "a")
    assert (found.decision, found.error, found.cause.pointer) == (
        "error",
        "re.error",
        "/quantization/exclude_modules/1",
    )


def test_any_shard_excludes_the_fused_module() -> None:
    # _torch/models/modeling_utils.py apply_quant_config_exclude_modules
    config = nested("model.layers.0.self_attn.k_proj")
    assert answered(config, "model.layers.0.self_attn.qkv_proj", packed=PACKED).decision == "plain"
    assert answered(config, "model.layers.0.self_attn.qkv_proj").decision == "quantized"


def test_the_flat_form_reads_ignore_alone() -> None:
    # tensorrt_llm/quantization/modelopt_config.py `_read_flat`
    flat = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["a"], "exclude_modules": ["b"]}
    assert answered(flat, "a").cause.pointer == "/ignore/0"
    assert answered(flat, "b").scheme == "fp8"


@pytest.mark.parametrize(
    ("algo", "method"),
    [
        ("NVFP4", "modelopt_fp4"),
        ("FP8", "modelopt_fp8"),
        ("fp8_pb_wo", "modelopt_fp8"),
        ("MIXED_PRECISION", "modelopt_mixed"),
        ("odd", ""),
    ],
)
def test_methods(algo: str, method: str) -> None:
    found = ENGINE.method(nested(algo=algo), "snapshot-3")
    assert found.name == method
    assert bool(found.error) == (not method)


def test_other_methods_are_not_modelled() -> None:
    config = {"quant_method": "fp8"}
    assert ENGINE.method(config, "snapshot-3").name == "fp8"
    assert answered(config, "a").decision == "unknown"


MIXED = {
    "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
    "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    "model.layers.0.mlp.gate_proj": {"quant_algo": "FP8"},
    "lm_head": {"quant_algo": "NVFP4"},
}


@pytest.mark.parametrize(
    ("name", "layer", "scheme"),
    [
        # _torch/models/modeling_utils.py apply_layerwise_quant_config
        ("model.layers.0.mlp.experts", "moe", "nvfp4"),
        ("model.layers.0.self_attn.qkv_proj", "linear", "fp8"),
        ("model.layers.0.mlp.gate_up_proj", "linear", "fp8"),
        ("lm_head", "lm_head", "nvfp4"),
        ("model.layers.1.mlp.experts", "moe", ""),
        ("model.embed_tokens", "embedding", ""),
    ],
)
def test_mixed(name: str, layer: Layer, scheme: str) -> None:
    assert answered(nested(algo="MIXED_PRECISION", quantized_layers=MIXED), name, layer=layer).scheme == scheme


def test_mixed_takes_no_unknown_algorithm() -> None:
    config = nested(algo="MIXED_PRECISION", quantized_layers={"a": {"quant_algo": "odd"}})
    assert answered(config, "a").error == "ValueError"


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        # Q35 _translate_mtp_pattern
        ("mtp.layers.0.*", "model.layers.48.*"),
        ("mtp.layers.0*", "model.layers.48*"),
        ("mtp.layers.1.mlp.gate", "model.layers.49.mlp.gate"),
        ("mtp.layers.*", "model.layers.48*"),
        ("mtp.fc", "model.layers.48.fc"),
        ("mtp.fc*", "model.layers.48.fc*"),
        ("mtp.norm.weight", "model.layers.48.shared_head.norm.weight"),
        ("mtp.*", None),
        ("mtp.layers.x", None),
        ("mtp.fcx", None),
    ],
)
def test_draft_names(name: str, runtime: str | None) -> None:
    assert draft_name(name, 48) == runtime


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        # Q35 _normalize_qwen35_exclude_modules
        ("model.language_model.layers.0.linear_attn*", "model.layers.0.linear_attn*"),
        ("model.visual*", None),
        ("mtp*", "mtp*"),
        ("mtp.fc", "model.layers.48.fc"),
        ("model.layers.0.linear_attn.in_proj_a", "model.layers.0.linear_attn.in_proj_ba*"),
        ("model.layers.0.linear_attn.in_proj_qkv", "model.layers.0.linear_attn.in_proj_qkvz*"),
        ("model.layers.0.linear_attn.in_proj_qkvz", "model.layers.0.linear_attn.in_proj_qkvz"),
    ],
)
def test_exclusion_names(name: str, runtime: str | None) -> None:
    assert exclusion_names(name, 48) == runtime


def test_without_a_layer_count_draft_entries_are_dropped() -> None:
    assert exclusion_names("mtp.fc", None) is None


def test_layer_names() -> None:
    # Q35 _normalize_qwen35_quant_config_dict: all split projections in FP8 become one, anything else none
    fp8, fp4 = {"quant_algo": "FP8"}, {"quant_algo": "NVFP4"}
    table = {
        "model.language_model.layers.0.linear_attn.in_proj_qkv": fp8,
        "model.language_model.layers.0.linear_attn.in_proj_z": fp8,
        "model.language_model.layers.1.linear_attn.in_proj_z": fp8,
        "mtp.layers.0.mlp.experts": fp4,
        "mtp.odd": fp4,
        "model.visual.a": fp4,
        "lm_head": fp4,
    }
    assert layer_names(table, 48) == {
        "model.layers.48.mlp.experts": "mtp.layers.0.mlp.experts",
        "model.layers.0.linear_attn.in_proj_qkvz": "model.language_model.layers.0.linear_attn.in_proj_qkv",
    }


def test_qwen_lists_are_translated_and_keep_their_places() -> None:
    config = nested("x", "mtp.layers.0.*")
    found = answered(config, "model.layers.48.mlp.experts", layer="moe", options=QWEN)
    assert (found.decision, found.cause.pointer, found.cause.entry) == (
        "plain",
        "/quantization/exclude_modules/1",
        "mtp.layers.0.*",
    )
    assert answered(config, "lm_head", layer="lm_head", options=QWEN).cause.pointer == ""
    assert answered(config, "model.layers.48.mlp.experts", layer="moe").decision == "quantized"


def test_qwen_mixed_layers_are_translated() -> None:
    layers = {"mtp.layers.0.mlp.experts": {"quant_algo": "NVFP4"}}
    config = nested(algo="MIXED_PRECISION", quantized_layers=layers)
    assert answered(config, "model.layers.48.mlp.experts", layer="moe", options=QWEN).scheme == "nvfp4"


def test_change_points() -> None:
    assert ENGINE.change_points("modelopt_fp4") == ENGINE.releases == ("snapshot-1", "snapshot-2", "snapshot-3")
    assert ENGINE.change_points("fp8") == ("snapshot-1",)
