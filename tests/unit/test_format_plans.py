"""Plans for the formats with lists of their own shape, over whole checkpoints: what is added, and what stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny

import mtpfix
from mtpfix.model import Report

Schemes = Mapping[str, tuple[tuple[str, str, int, int], ...]]
# suffix, dtype, and what rows and columns are divided by (0: one)
STORED: Schemes = {
    "bf16": (("weight", "BF16", 1, 1),),
    "awq4": (("qweight", "I32", 1, 8), ("scales", "F16", 128, 1), ("qzeros", "I32", 128, 8)),
    "gptq4": (("qweight", "I32", 8, 1), ("scales", "F16", 128, 1), ("qzeros", "I32", 128, 8), ("g_idx", "I32", 1, 0)),
    "modelslim-w8a8": (("weight", "I8", 1, 1), ("weight_scale", "F32", 1, 128), ("weight_offset", "F32", 1, 128)),
    "mxfp4": (("weight", "U8", 1, 2), ("weight_scale", "U8", 1, 32)),
}
SIZES = {"I8": 1, "I32": 4, "F16": 2}


def module(name: str, scheme: str, rows: int = 128, columns: int = 128) -> tiny.Tensors:
    return {
        f"{name}.{suffix}": (dtype, [rows // down] if not across else [rows // down, columns // across])
        for suffix, dtype, down, across in STORED[scheme]
    }


def glm(folder: Path, quantized: str, draft: str, quantization: Mapping[str, Any]) -> Path:
    """GLM-4 MoE with two layers, two experts and one draft layer (layer 2)."""
    tensors: tiny.Tensors = {"model.embed_tokens.weight": ("BF16", [128, 128]), "model.norm.weight": ("BF16", [128])}
    tensors |= module("lm_head", "bf16")
    for number, scheme in enumerate((quantized, quantized, draft)):
        layer = f"model.layers.{number}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors |= module(f"{layer}.self_attn.{name}", scheme)
        for name in ("gate_proj", "up_proj", "down_proj"):
            for place in ("shared_experts", "experts.0", "experts.1") if number else ("",):
                tensors |= module(f"{layer}.mlp.{place}.{name}".replace("..", "."), scheme)
        if number:
            tensors |= module(f"{layer}.mlp.gate", "bf16", 2)
    tensors |= module("model.layers.2.eh_proj", "bf16", 128, 256) | module("model.layers.2.shared_head.head", "bf16")
    folder.mkdir()
    tiny.write_safetensors(folder / "model.safetensors", tensors)
    config = {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
        "first_k_dense_replace": 1,
        "quantization_config": quantization,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    return folder


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype, size in SIZES.items():
        monkeypatch.setitem(tiny.SIZES, dtype, size)


def added(report: Report) -> dict[str, Any]:
    """The operations of the plan: pointer below the quantization config -> value."""
    return {edit.pointer.removeprefix("/quantization_config"): edit.value for edit in report.plan.edits}


def verdict(report: Report, engine: str) -> str:
    return next(row.verdict for row in report.engines if (row.engine, row.part, row.latest) == (engine, "draft", True))


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
ROUND = {
    "quant_method": "auto-round",
    "packing_format": "auto_round:auto_gptq",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "data_type": "int",
}


def test_awq_gets_parts_of_names_that_end_in_a_dot(tmp_path: Path) -> None:
    folder = glm(tmp_path / "a", "awq4", "bf16", {**AWQ, "modules_to_not_convert": ["lm_head"]})
    report = mtpfix.check(str(folder))
    assert report.status == "fixable"
    assert [edit.value for edit in report.plan.edits] == ["layers.2.", "model.decoder."]
    assert {verdict(report, "vllm"), verdict(report, "sglang")} == {"fails", "degrades"}


def test_awq_that_is_right_is_left_alone(tmp_path: Path) -> None:
    listed = {**AWQ, "modules_to_not_convert": ["lm_head", "layers.2.", "model.decoder."]}
    report = mtpfix.check(str(glm(tmp_path / "a", "awq4", "bf16", listed)))
    assert (report.status, report.plan.edits) == ("clean", ())
    assert verdict(report, "vllm") == verdict(report, "sglang") == "loads"


def test_auto_round_gets_keys_that_ask_for_16_bits(tmp_path: Path) -> None:
    quantization = {**ROUND, "block_name_to_quantize": "model.layers", "extra_config": {"a": {"bits": 8}}}
    report = mtpfix.check(str(glm(tmp_path / "a", "gptq4", "bf16", quantization)))
    keys = added(report)
    assert keys[r"/extra_config/(.*\.)?layers\.2\..*"] == {"bits": 16, "data_type": "fp"}
    assert all(value == {"bits": 16, "data_type": "fp"} for value in keys.values())
    assert report.status == "fixable"


def test_auto_round_beside_its_blocks_needs_nothing(tmp_path: Path) -> None:
    quantization = {**ROUND, "block_name_to_quantize": "model.layers.0,model.layers.1", "extra_config": {}}
    report = mtpfix.check(str(glm(tmp_path / "a", "gptq4", "bf16", quantization)), engines=("vllm>=0.15",))
    assert (report.status, verdict(report, "vllm")) == ("clean", "loads")


def test_a_format_without_a_list_says_so(tmp_path: Path) -> None:
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.2"]}
    report = mtpfix.check(str(glm(tmp_path / "a", "mxfp4", "bf16", quantization)))
    assert report.status == "not-fixable"
    assert "MTP015" in {finding.rule for finding in report.findings}
    assert report.plan.edits == ()


def test_model_slim_is_repaired_in_its_description(tmp_path: Path) -> None:
    folder = glm(tmp_path / "a", "modelslim-w8a8", "modelslim-w8a8", {})
    config = json.loads((folder / "config.json").read_text())
    config.update(architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=1)
    del config["quantization_config"], config["num_nextn_predict_layers"]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    tensors = module("lm_head", "bf16")
    description = {"model_quant_type": "W8A8", "lm_head.weight": "FLOAT"}
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"):
        tensors |= module(f"model.layers.0.{name}", "modelslim-w8a8")
        description[f"model.layers.0.{name}.weight"] = "W8A8"
    for name in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        tensors |= module(f"model.layers.0.{name}", "bf16")
        description[f"model.layers.0.{name}.weight"] = "FLOAT"
    description["model.layers.0.mlp.down_proj.weight"] = "W8A8"
    tiny.write_safetensors(folder / "model.safetensors", tensors)
    (folder / "quant_model_description.json").write_text(json.dumps(description, indent=2), "utf-8")
    report = mtpfix.check(str(folder))
    assert (report.format, report.status) == ("modelslim", "fixable")
    assert [(edit.file, edit.op, edit.pointer, edit.value) for edit in report.plan.edits] == [
        ("quant_model_description.json", "replace", "/model.layers.0.mlp.down_proj.weight", "FLOAT")
    ]
    newest = {row.engine: row.verdict for row in report.engines if row.latest}
    assert (newest["sglang"], newest["vllm"]) == ("degrades", "unsupported")
