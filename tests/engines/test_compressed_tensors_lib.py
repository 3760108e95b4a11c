"""The compressed-tensors library's is_match, row by row (utils/match.py:344 of 0.20.1)."""

from __future__ import annotations

from typing import Any

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.compressed_tensors_lib import ENGINE
from mtpfix.model import Answer, Layer


def answered(name: str, targets: Any, ignored: Any = (), layer: Layer = "linear", packed: Any = ()) -> Answer:
    config = {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": targets}}, "ignore": [*ignored]}
    query = MatchQuery("0.20.1", "compressed-tensors", config, packed=dict(packed))
    return ENGINE.matcher(query).decide(name, layer)


@pytest.mark.parametrize(
    ("name", "targets", "ignored", "layer", "decision"),
    [
        ("a.b", ["Linear"], [], "linear", "quantized"),
        ("a.b", ["Linear"], ["a"], "linear", "quantized"),
        ("a.b", ["Linear"], ["a.b"], "linear", "plain"),
        ("a.b", ["Linear"], ["re:a"], "linear", "plain"),
        ("a.b", ["Linear"], ["re:b"], "linear", "quantized"),
        ("a.b", ["Linear"], ["Linear"], "linear", "plain"),
        ("a.b", ["linear"], [], "linear", "plain"),
        ("a.b", ["re:a", "x"], [], "linear", "quantized"),
        ("a.b", ["Linear"], [], "embedding", "plain"),
        ("a.b", ["Embedding"], [], "embedding", "quantized"),
        ("a.b", ["Linear"], ["re:("], "linear", "error"),
        ("a.b", ["x"], ["re:("], "linear", "plain"),
        ("a.b", ["Linear"], [None], "linear", "error"),
        ("a.b", [None], [], "linear", "error"),
    ],
)
def test_matches(name: str, targets: Any, ignored: Any, layer: Layer, decision: str) -> None:
    assert answered(name, targets, ignored, layer).decision == decision


def test_one_shard_is_enough() -> None:
    packed = {"qkv_proj": ("q_proj", "k_proj")}
    assert answered("a.qkv_proj", ["Linear"], ["a.k_proj"], packed=packed).decision == "plain"
    assert answered("a.qkv_proj", ["Linear"], ["a.qkv_proj"], packed=packed).decision == "quantized"


def test_causes() -> None:
    assert answered("a.b", ["x", "Linear"]).cause.pointer == "/config_groups/g/targets/1"
    assert answered("a.b", ["Linear"], ["x", "re:a"]).cause.pointer == "/ignore/1"


def test_other_methods() -> None:
    assert ENGINE.method({"quant_method": "compressed-tensors"}, "0.20.1").name == "compressed-tensors"
    assert ENGINE.method({"quant_method": "fp8"}, "0.20.1").name == ""
    assert ENGINE.matcher(MatchQuery("0.20.1", "fp8", {})).decide("a", "linear").decision == "unknown"
    assert ENGINE.change_points("compressed-tensors") == ENGINE.releases
