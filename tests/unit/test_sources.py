"""Which file and place each engine takes its quantization config from (engine facts, section 1.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mtpfix.engines.sources import config_fragments, declared, fragment_for, refusal, sidecar_fragment
from mtpfix.model import JsonFile

FP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
BESIDE = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
CACHE_ONLY = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
BARE_MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
MIXED = {**BARE_MIXED, "quantized_layers": {"a": {"quant_algo": "NVFP4"}}}
WHOLE_MIXED = {**MIXED, "kv_cache_scheme": None}
TOP, TEXT, OLD = "/quantization_config", "/text_config/quantization_config", "/compression_config"
C, H = "config.json", "hf_quant_config.json"
NOWHERE = ("", "")


def files(config: Any, beside: Any = None) -> Mapping[str, JsonFile]:
    found = {C: JsonFile(C, b"", config)}
    return found if beside is None else {**found, H: JsonFile(H, b"", beside)}


def place(engine: str, release: str, held: Mapping[str, JsonFile]) -> tuple[str, str]:
    found = fragment_for(engine, release, held)
    return (found.file, found.pointer) if found else NOWHERE


# config.json, hf_quant_config.json, then what vLLM, SGLang, TensorRT-LLM and transformers read in their newest releases
ROWS = [
    ({"quantization_config": FP4}, None, (C, TOP), (C, TOP), (C, TOP), (C, TOP)),
    ({"quantization_config": FP4}, BESIDE, (C, TOP), (C, TOP), (H, ""), (C, TOP)),
    ({}, BESIDE, (H, ""), (H, ""), (H, ""), NOWHERE),
    ({"quantization_config": FP4}, CACHE_ONLY, (C, TOP), (C, TOP), (C, TOP), (C, TOP)),
    ({"text_config": {"quantization_config": FP4}}, None, (C, TEXT), (C, TEXT), (C, TEXT), (C, TEXT)),
    ({"text_config": {"quantization_config": FP4}}, BESIDE, (H, ""), (C, TEXT), (H, ""), (C, TEXT)),
    ({"compression_config": FP4}, None, (C, OLD), (C, OLD), (C, OLD), (C, OLD)),
    ({"compression_config": FP4}, BESIDE, (H, ""), (C, OLD), (H, ""), (C, OLD)),
    (
        {"compression_config": {}, "text_config": {"quantization_config": {}}, "quantization_config": FP4},
        None, (C, TOP), (C, TOP), (C, TOP), (C, TOP),
    ),
    ({}, None, NOWHERE, NOWHERE, NOWHERE, NOWHERE),
    ({"quantization_config": None, "text_config": None}, None, NOWHERE, NOWHERE, NOWHERE, NOWHERE),
    ({"quantization_config": "fp8", "text_config": "x", "compression_config": []}, None, *[NOWHERE] * 4),
    # MIXED_PRECISION: vLLM wants the table of layers, SGLang a word about the cache too; but without an FP4 layer in
    # config.json it picks another class (sglang-0.5.23 srt/configs/model_config.py:1855-1865), which reads config.json
    ({"quantization_config": BARE_MIXED}, BESIDE, (H, ""), (C, TOP), (H, ""), (C, TOP)),
    ({"quantization_config": MIXED}, BESIDE, (C, TOP), (H, ""), (H, ""), (C, TOP)),
    ({"quantization_config": WHOLE_MIXED}, BESIDE, (C, TOP), (C, TOP), (H, ""), (C, TOP)),
    ({"quantization_config": BARE_MIXED}, None, (C, TOP), (C, TOP), (C, TOP), (C, TOP)),
]  # fmt: skip
NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "snapshot-3", "transformers": "5.24.0"}


@pytest.mark.parametrize("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_where_each_engine_looks(row: tuple[Any, ...]) -> None:
    config, beside, *wanted = row
    held = files(config, beside)
    assert [place(engine, release, held) for engine, release in NEWEST.items()] == wanted


def test_older_releases_read_mixed_from_config_json() -> None:
    """vLLM has the class from 0.17.0, SGLang falls through to the sidecar from 0.5.15."""
    bare, mixed = (files({"quantization_config": value}, BESIDE) for value in (BARE_MIXED, MIXED))
    assert place("vllm", "0.16.0", bare) == place("sglang", "0.5.14", mixed) == (C, TOP)
    assert place("vllm", "0.17.0", bare) == place("sglang", "0.5.15", mixed) == (H, "")


def test_the_method_is_always_detected_in_the_declaring_file() -> None:
    held = files({"quantization_config": BARE_MIXED}, BESIDE)
    found = [declared(engine, held) for engine in ("vllm", "sglang")]
    assert [fragment and fragment.file for fragment in found] == [C, C]


def test_a_mixed_config_that_says_too_little_is_refused_without_a_sidecar() -> None:
    alone, both = files({"quantization_config": MIXED}), files({"quantization_config": MIXED}, BESIDE)
    assert "Cannot find the config file" in refusal("sglang", "0.5.23", "modelopt_mixed", alone)
    assert not refusal("vllm", "0.33.0", "modelopt_mixed", alone)  # the table of layers is there
    assert not refusal("sglang", "0.5.23", "modelopt_mixed", both)
    assert not refusal("sglang", "0.5.14", "modelopt_mixed", alone)
    assert not refusal("tensorrt-llm", "snapshot-3", "modelopt_mixed", alone)


def test_fragments_in_the_order_of_the_engines() -> None:
    config = {"compression_config": {"a": 1}, "text_config": {"quantization_config": {"b": 1}}}
    assert [fragment.pointer for fragment in config_fragments(files(config))] == [TEXT, OLD]
    assert sidecar_fragment(files({})) is None
