"""FBGEMM FP8 and HQQ: the right values are what the engines' own classes answered (vllm-0.12.0 and vllm-0.33.0
model_executor/layers/quantization/fbgemm_fp8.py, vllm-0.12.0 hqq_marlin.py, sglang-0.5.9 and sglang-0.5.15
srt/layers/quantization/fpgemm_fp8.py with utils.py `is_layer_skipped`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.registry import ENGINES
from mtpfix.model import Answer, Layer, Packed

PACKED: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
QKV = "mtp.layers.0.self_attn.qkv_proj"
SHARDS = [f"mtp.layers.0.self_attn.{shard}_proj" for shard in "qkv"]


def fbgemm(*entries: str) -> dict[str, Any]:
    return {
        "quant_method": "fbgemm_fp8",
        "activation_scale_ub": 1200.0,
        "modules_to_not_convert": list(entries),
    }


def hqq(*entries: str) -> dict[str, Any]:
    weights = {"nbits": 4, "group_size": 64}
    return {"quant_method": "hqq", "quant_config": {"weight_quant_params": weights}, "skip_modules": list(entries)}


def decide(engine: str, release: str, config: dict[str, Any], name: str, layer: Layer = "linear") -> Answer:
    method = config["quant_method"]
    return ENGINES[engine].matcher(MatchQuery(release, method, config, (), PACKED)).decide(name, layer)


@pytest.mark.parametrize(
    ("engine", "release", "config", "name", "decision"),
    [
        ("vllm", "0.12.0", fbgemm("mtp.fc"), "mtp.fc", "plain"),
        ("vllm", "0.12.0", fbgemm("mtp", "fc"), "mtp.fc", "quantized"),
        ("vllm", "0.12.0", fbgemm(*SHARDS), QKV, "plain"),
        ("vllm", "0.12.0", fbgemm(*SHARDS[:2]), QKV, "error"),
        ("vllm", "0.12.0", fbgemm(QKV), QKV, "quantized"),
        ("vllm", "0.33.0", fbgemm(QKV), QKV, "plain"),
        ("vllm", "0.12.0", hqq("self_attn"), QKV, "plain"),
        ("vllm", "0.14.1", hqq("q_proj", "mtp.layers.0"), QKV, "quantized"),
        ("sglang", "0.5.9", fbgemm("mtp"), "mtp.fc", "plain"),  # a part of the name
        ("sglang", "0.5.9", fbgemm("mtp.layers.0.self_attn.q"), "mtp.layers.0.self_attn.q_proj", "plain"),
        ("sglang", "0.5.15", fbgemm("mtp.layers.0.self_attn.q"), "mtp.layers.0.self_attn.q_proj", "quantized"),
        ("sglang", "0.5.15", fbgemm(*SHARDS), QKV, "plain"),
        ("sglang", "0.5.15", fbgemm(*SHARDS[:1]), QKV, "error"),
    ],
)
def test_decisions(engine: str, release: str, config: dict[str, Any], name: str, decision: str) -> None:
    assert decide(engine, release, config, name).decision == decision


@pytest.mark.parametrize(("engine", "release"), [("vllm", "0.12.0"), ("sglang", "0.5.9")])
def test_experts_have_no_class(engine: str, release: str) -> None:
    assert decide(engine, release, fbgemm(), "mtp.layers.0.mlp.experts", "moe").decision == "plain"


def test_what_the_classes_refuse() -> None:
    config = hqq()
    config["quant_config"]["weight_quant_params"]["nbits"] = 8
    answer = decide("vllm", "0.12.0", config, "mtp.fc")
    assert (answer.decision, answer.error) == ("error", "AssertionError")
    config = fbgemm()
    del config["activation_scale_ub"]
    assert decide("vllm", "0.12.0", config, "mtp.fc").error == "ValueError"
    assert decide("sglang", "0.5.9", config, "mtp.fc").error == "ValueError"


class Keys(dict[str, Any]):
    """A table that counts how often its keys are read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return super().__iter__()


class Names(list[str]):
    """A list that counts how often it is read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return super().__iter__()


def _round(keys: Any) -> dict[str, Any]:
    return {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "extra_config": keys}


def _bnb(names: Any) -> dict[str, Any]:
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": names}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("method", "config", "listed"),
    [
        ("auto-round", _round, lambda: Keys({"lm_head": {"bits": 16}, ".*fc.*": {"bits": 16}})),
        ("bitsandbytes", _bnb, lambda: Names(["lm_head", "mtp"])),
    ],
)
def test_all_releases_read_a_list_once(engine: str, method: str, config: Any, listed: Callable[[], Any]) -> None:
    def read(some: Sequence[str]) -> int:
        entries, shared = listed(), dict[Any, Any]()
        value = config(entries)
        for release in some:
            query = MatchQuery(release, method, value, (), PACKED, shared=shared)
            assert ENGINES[engine].matcher(query).decide("mtp.fc", "linear").decision in ("plain", "unknown", "error")
        return int(entries.read)

    releases = [name for name in ENGINES[engine].releases if ENGINES[engine].method(value_of(config), name).name]
    assert len(releases) > 3
    assert read(releases) == read(releases[:1]) > 0


def value_of(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = config([])
    return found
