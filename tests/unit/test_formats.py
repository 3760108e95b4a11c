"""The formats: what each accepts, where its list is, and that the engines' models read its spellings as meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.registry import ENGINES
from mtpfix.engines.releases import modelled
from mtpfix.formats import format_of, formats
from mtpfix.formats.base import Format, without_wrapper
from mtpfix.model import Layer, Packed
from mtpfix.rules.entries import malformed, means
from mtpfix.solving.solution import rewritten

PACKED: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
MX = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [], "group_size": 16},
    "compressed-tensors": {"quant_method": "compressed-tensors", "config_groups": {}},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int"},
    "quark": {
        "quant_method": "quark",
        "export": {"kv_cache_group": []},
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "global_quant_config": {"weight": MX, "input_tensors": MX},
    },
    "mxfp8": {"quant_method": "mxfp8", "weight_block_size": [1, 32], "activation_scheme": "dynamic"},
    "w8a8_int8": {"quant_method": "w8a8_int8"},
    "blockwise_int8": {"quant_method": "blockwise_int8"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "torchao": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}},
    "fbgemm_fp8": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0},
    "hqq": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
    "modelslim": {"model_quant_type": "W8A8", "version": "1.0"},
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["mtp"]},
    "w4afp8": {"quant_method": "w4afp8"},
    "w8a8_fp8": {"quant_method": "w8a8_fp8"},
    "experts": {"quant_method": "experts_int8"},
    "mlx": {"group_size": 64, "bits": 4, "mode": "affine"},
}
POINTERS = {
    **dict.fromkeys(("awq", "fp8", "torchao", "fbgemm_fp8"), "/modules_to_not_convert"),
    **dict.fromkeys(("modelopt", "compressed-tensors", "w8a8_int8"), "/ignore"),
    **dict.fromkeys(("mxfp8", "blockwise_int8"), "/ignored_layers"),
    "gptq": "/dynamic",
    "auto-round": "/extra_config",
    "quark": "/exclude",
    "bitsandbytes": "/llm_int8_skip_modules",
    "hqq": "/skip_modules",
    "modelslim": "",  # its own keys
}
LISTLESS = ("mxfp4", "w4afp8", "w8a8_fp8", "experts", "mlx")


def fmt(name: str) -> Format:
    return next(known for known in formats() if known.name == name)


def test_every_format_is_here() -> None:
    assert [known.name for known in formats()] == list(CONFIGS)
    assert {*POINTERS, *LISTLESS} == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_accepts_its_own_config_and_no_other(name: str) -> None:
    assert format_of(CONFIGS[name]) is fmt(name)
    assert [known.name for known in formats() if known.accepts(CONFIGS[name])] == [name]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("gptq_marlin", "gptq"),
        ("awq_marlin", "awq"),
        ("inc", "auto-round"),
        ("deepseek_v4_fp8", "fp8"),
        ("gpt_oss_mxfp4", "mxfp4"),
        ("quark_int4fp8_moe", "experts"),
    ],
)
def test_other_names(method: str, name: str) -> None:
    assert format_of({"quant_method": method}) is fmt(name)


def test_no_format() -> None:
    assert format_of({"quant_method": "somebody-elses"}) is None
    assert format_of({}) is None


@pytest.mark.parametrize("name", CONFIGS)
def test_where_the_list_is(name: str) -> None:
    where = fmt(name).exclusions({key: value for key, value in CONFIGS[name].items() if key != "ignore"})
    if name in LISTLESS:
        assert where is None
        assert fmt(name).spellings("mtp", "below", ()) == fmt(name).aliases("mtp", "below") == ()
        assert not fmt(name).covers("mtp", "mtp")
    else:
        assert where is not None
        assert (where.pointer, where.present, where.entries) == (POINTERS[name], name == "modelslim", ())


# What a spelling must cover, and what it must not: the neighbours of layer 4 and of the draft.
DRAFTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "mtp": (
        ("mtp.layers.0.self_attn.qkv_proj", "mtp.layers.0.mlp.shared_expert.down_proj", "mtp.layers.0.mlp.experts"),
        ("model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.experts"),
    ),
    "model.layers.4": (
        ("model.layers.4.self_attn.qkv_proj", "model.layers.4.mlp.experts"),
        ("model.layers.3.self_attn.qkv_proj", "model.layers.41.self_attn.qkv_proj", "model.layers.14.mlp.experts"),
    ),
}
# format and engine whose model reads the spelling of a subtree as meant, in the newest release that knows the method
SUBTREES = [
    ("awq", "vllm", "awq", ""),
    ("awq", "sglang", "awq", ""),
    ("auto-round", "vllm", "auto-round", ""),
    ("auto-round", "sglang", "auto-round", ""),
    ("quark", "vllm", "quark", ""),
    ("quark", "sglang", "quark", ""),
    ("gptq", "vllm", "gptq", ""),
    # no list for experts, or none at all
    ("bitsandbytes", "vllm", "bitsandbytes", "experts"),
    ("bitsandbytes", "sglang", "bitsandbytes", "experts"),
    ("torchao", "vllm", "torchao", "experts"),
]


def kind(name: str) -> Layer:
    return "moe" if name.endswith(".experts") else "linear"


def decided(form: Format, engine: str, method: str, entry: str, release: str, *names: str) -> list[str]:
    """What an engine decides about some names under one entry."""
    value = CONFIGS[form.name]
    where = form.exclusions(value)
    assert where is not None
    config = rewritten(value, where, (), [entry])
    matcher = ENGINES[engine].matcher(MatchQuery(release, method, config, packed=PACKED))
    return [matcher.decide(name, kind(name)).decision for name in names]


def newest(engine: str, method: str) -> str:
    known = [name for name in modelled(engine) if ENGINES[engine].method({"quant_method": method}, name).name]
    return known[-1] if known else modelled(engine)[-1]


@pytest.mark.parametrize("node", DRAFTS)
@pytest.mark.parametrize(("name", "engine", "method", "without"), SUBTREES)
def test_a_subtree(name: str, engine: str, method: str, without: str, node: str) -> None:
    form, release = fmt(name), newest(engine, method)
    inside, outside = DRAFTS[node]
    covered = [each for each in inside if not without or not each.endswith(without)]
    left = [each for each in outside if not without or not each.endswith(without)]
    for entry in (form.spellings(node, "below", ())[0], *form.aliases(node, "below")):
        assert set(decided(form, engine, method, entry, release, *covered)) == {"plain"}, entry
        assert set(decided(form, engine, method, entry, release, *left)) == {"quantized"}, entry


@pytest.mark.parametrize(
    ("name", "engine", "method"),
    [(name, engine, method) for name, engine, method, _ in SUBTREES]
    + [("fp8", "vllm", "fp8"), ("w8a8_int8", "sglang", "w8a8_int8"), ("blockwise_int8", "sglang", "blockwise_int8")],
)
def test_one_linear(name: str, engine: str, method: str) -> None:
    form, release = fmt(name), newest(engine, method)
    for entry in form.spellings("mtp.fc", "leaf", ()):
        assert decided(form, engine, method, entry, release, "mtp.fc", "mtp.fc_in") == [
            "plain",
            "plain" if name == "awq" else "quantized",  # AWQ looks for a part of the name
        ], entry


@pytest.mark.parametrize(
    ("name", "engine", "method"),
    [(name, engine, method) for name, engine, method, without in SUBTREES if not without] + [("fp8", "vllm", "fp8")],
)
def test_the_experts_of_a_layer(name: str, engine: str, method: str) -> None:
    form, release = fmt(name), newest(engine, method)
    experts = "model.layers.4.mlp.experts"
    for entry in form.spellings(experts, "experts", ()):
        names = (experts, "model.layers.14.mlp.experts")
        assert decided(form, engine, method, entry, release, *names) == ["plain", "quantized"], entry


def test_a_description_names_weights() -> None:
    form = fmt("modelslim")
    value = {**CONFIGS["modelslim"], "mtp.fc.weight": "W8A8", "lm_head.weight": "FLOAT"}
    where = form.exclusions(value)
    assert where is not None
    assert (where.entries, where.places) == (("lm_head.weight",), (3,))
    assert rewritten(value, where, (), form.spellings("mtp.fc", "leaf", ())) == {**value, "mtp.fc.weight": "FLOAT"}
    assert form.spellings("mtp", "below", ()) == form.aliases("mtp.layers.0.mlp.experts", "experts") == ()
    assert form.covers("mtp.fc.weight", "mtp.fc")
    assert not form.covers("mtp.fc", "mtp.fc")


def test_lists_without_a_star_or_a_pattern() -> None:
    assert fmt("fp8").spellings("mtp", "below", ()) == ()
    assert fmt("fbgemm_fp8").aliases("mtp.layers.0.mlp.experts", "experts") == ()
    assert fmt("hqq").spellings("mtp", "below", ()) == ("mtp",)


@pytest.mark.parametrize(
    ("node", "bare"),
    [
        ("model.layers.92", "layers.92"),
        ("model.language_model.layers.45", "layers.45"),
        ("language_model.model.layers.45", "layers.45"),
        ("mtp.layers.0", "mtp.layers.0"),
        ("model.mtp.layers.0", "mtp.layers.0"),
        ("mtp", "mtp"),
        ("model.4", "model.4"),
    ],
)
def test_without_wrapper(node: str, bare: str) -> None:
    assert without_wrapper(node) == bare


def test_auto_round_lists_full_precision_alone_and_copies_its_style() -> None:
    recipe = {"bits": 16, "data_type": "float"}
    extra = {"a": {"bits": 8}, "mtp.fc": recipe, "b": None, "c": {"bits": 32}}
    value = {**CONFIGS["auto-round"], "extra_config": extra}
    where = fmt("auto-round").exclusions(value)
    assert where is not None
    assert (where.entries, where.places, where.value) == (("mtp.fc", "c"), (1, 3), recipe)
    assert rewritten(value, where, (1,), ["a", "new"])["extra_config"] == {
        "a": recipe,
        "new": recipe,
        "b": None,
        "c": {"bits": 32},
    }
    empty = fmt("auto-round").exclusions({**CONFIGS["auto-round"], "extra_config": {}})
    assert empty is not None
    assert empty.value == {"bits": 16, "data_type": "fp"}


@pytest.mark.parametrize("extra", [None, [], "mtp", 3, {"mtp": 16}])
def test_auto_round_with_a_strange_extra_config(extra: Any) -> None:
    where = fmt("auto-round").exclusions({**CONFIGS["auto-round"], "extra_config": extra})
    assert where is not None
    assert where.entries == ()


@pytest.mark.parametrize(
    ("name", "entry", "inside", "outside"),
    [
        ("awq", "layers.4.", "model.layers.4.mlp.up_proj", "model.layers.41.mlp.up_proj"),
        ("auto-round", r"(.*\.)?mtp\..*", "mtp.fc", "model.fc"),
        ("auto-round", "fc", "mtp.fc", "mtp.fc_in"),
        ("auto-round", "(", "(", "mtp.fc"),
        ("quark", r"re:^mtp\..*", "mtp.fc", "model.mtp.fc"),
        ("quark", "mtp.layers.0.mlp.experts", "mtp.layers.0.mlp.experts.0.up_proj", "mtp.layers.0.mlp.up_proj"),
        ("quark", "mtp.*", "mtp.*", "mtp.fc"),
        ("bitsandbytes", "mtp", "mtp.fc", "mtp_fc"),
        ("bitsandbytes", "model.layers.4", "model.layers.4.fc", "model.layers.41.fc"),
        ("torchao", "layers.4", "model.layers.4.fc", "model.layers.41.fc"),
        ("fbgemm_fp8", "mtp.fc", "mtp.fc", "mtp.fc.x"),
        ("hqq", "mtp", "mtp.fc", "mtps.fc"),
    ],
)
def test_covers(name: str, entry: str, inside: str, outside: str) -> None:
    assert fmt(name).covers(entry, outside) is False
    assert fmt(name).covers(entry, inside) is (entry not in ("(",))


@pytest.mark.parametrize(
    ("entry", "name", "meant"),
    [
        (r"(.*\.)?layers\.4\..*", "model.layers.4.mlp.up_proj", True),
        (r"(.*\.)?layers\.4\..*", "model.layers.41.mlp.up_proj", False),
        (r".*shared_expert\.gate$", "mtp.layers.0.mlp.shared_expert.gate", True),
        (".*mtp.*", "mtp.fc", True),
        (".*mtp.*", "model.fc", False),
        ("layers.4.", "model.layers.4.mlp.up_proj", True),
        (r"re:model\.layers\.4\..*", "model.language_model.layers.4.mlp.up_proj", True),
    ],
)
def test_what_an_entry_means(entry: str, name: str, meant: bool) -> None:
    assert means(entry, name) is meant


def test_a_pattern_that_auto_round_passes_over_is_malformed() -> None:
    form = fmt("auto-round")
    assert "no valid regular expression" in malformed(form, "*mtp*")
    assert malformed(form, r".*mtp\..*") == malformed(form, "mtp.fc") == malformed(form, "(a+)+$") == ""
    assert malformed(fmt("awq"), " ") == "it is empty"
