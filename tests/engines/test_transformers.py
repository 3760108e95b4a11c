"""transformers' should_convert_module, row by row (quantizers/quantizers_utils.py:26 of 5.24.0)."""

from __future__ import annotations

from typing import Any

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.transformers import ENGINE
from mtpfix.model import Answer

RELEASE = "5.24.0"


def answered(name: str, *keys: Any, method: str = "fp8") -> Answer:
    key = "llm_int8_skip_modules" if method == "bitsandbytes" else "modules_to_not_convert"
    return ENGINE.matcher(MatchQuery(RELEASE, method, {"quant_method": method, key: [*keys]})).decide(name, "linear")


@pytest.mark.parametrize(
    ("key", "name", "decision"),
    [
        # from the start up to a boundary
        ("model.layers.1", "model.layers.1.x", "plain"),
        ("model.layers.1", "model.layers.11.x", "quantized"),
        ("model.layers.", "model.layers.1", "plain"),
        ("layers.1", "model.layers.1.x", "quantized"),
        # a dot is any one character
        ("model.layers", "model_layers.x", "plain"),
        ("modelx.layers", "model.layers.x", "quantized"),
        # a star repeats the character before it, also not at all
        ("model.layers.4*", "model.layers.12.x", "plain"),
        ("model.layers.92*", "model.layers.9.x", "plain"),
        ("mtp*", "mtp.fc", "plain"),
        ("mtp*", "mtp_block.x", "quantized"),
        ("layer.*", "layers.11.x", "plain"),
        # or the name ends with the key
        ("gate", "model.layers.0.shared_expert_gate", "plain"),
        ("mlp.gate", "model.layers.0.mlp.gate", "plain"),
        ("mlp.gate", "model.layers.0.mlp.gate_proj", "quantized"),
        # what is no pattern raises
        ("*mtp*", "a", "error"),
        ("a|b", "b.x", "plain"),
        ("a|b", "xb", "quantized"),
        ("", "a", "plain"),
    ],
)
def test_keys(key: str, name: str, decision: str) -> None:
    assert answered(name, key).decision == decision


def test_keys_are_tried_in_their_order() -> None:
    assert answered("a.b", "a", "*").decision == "plain"
    assert answered("a.b", "*", "a").decision == "error"
    # a key that is no pattern raises before its text is compared (:37)
    assert answered("a(", "a(").decision == "error"


def test_causes_and_schemes() -> None:
    assert answered("a.b", "x", "a").cause.pointer == "/modules_to_not_convert/1"
    assert answered("a.b", method="awq").scheme == "awq4"
    assert answered("a.b", "a", method="bitsandbytes").cause.pointer == "/llm_int8_skip_modules/0"
    assert answered("a.b").scheme == "fp8"
    assert answered("a.b", None).error == "TypeError"


@pytest.mark.parametrize(
    ("config", "method"),
    [
        # quantizers/auto.py:77, :296
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "modelopt"}, ""),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq"}, "gptq"),
    ],
)
def test_methods(config: dict[str, Any], method: str) -> None:
    found = ENGINE.method(config, RELEASE)
    assert (found.name, found.error) == (method, "")


def test_a_config_without_a_method_is_refused() -> None:
    assert ENGINE.method({}, RELEASE).error


def test_unknown_methods_load_unquantized_and_others_are_not_modelled() -> None:
    assert answered("a", method="").decision == "plain"
    assert answered("a", method="gptq").decision == "unknown"
    assert ENGINE.change_points("fp8") == ENGINE.releases == (RELEASE,)
