"""vLLM's decisions, worked out by hand from its code; the comments name release and place (Q, C as in switches.py)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpfix.engines.base import Dtypes, MatchQuery, Method
from mtpfix.engines.releases import key
from mtpfix.engines.replay import Totals, replay
from mtpfix.engines.vllm import ENGINE, switches
from mtpfix.engines.vllm.switches import ALGOS, METHODS, MIXED_EXPERTS, MIXED_LINEAR, SWITCHES
from mtpfix.model import Answer, Layer, Mapper

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
VL = Mapper(prefix=(("model.language_model.", "language_model.model."), ("mtp.", None)))
SAME = Mapper(prefix=(("zzz.", "zzz."),))
ATTN, MLP, EXPERTS = "mtp.layers.0.self_attn", "mtp.layers.0.mlp", "mtp.layers.0.mlp.experts"
QKV = [f"{ATTN}.{shard}" for shard in PACKED["qkv_proj"]]
NEWEST = "0.33.0"


def ask(
    method: str, config: dict[str, Any], name: str, release: str = NEWEST, layer: Layer = "linear", **query: Any
) -> Answer:
    """One decision."""
    projections = query.pop("projections", ())
    question = MatchQuery(release, method, config, **{"packed": PACKED, **query})
    return ENGINE.matcher(question).decide(name, layer, projections)


def verdict(*args: Any, **kwargs: Any) -> str:
    """`plain`, the scheme, or the exception of one decision."""
    answer = ask(*args, **kwargs)
    return answer.error or answer.scheme or answer.decision


def nvfp4(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": list(entries), **more}


def fp8(*entries: str, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "ignored_layers": list(entries),
        **more,
    }


WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
NVFP4_GROUP = {"weights": WEIGHTS, "input_activations": {**WEIGHTS, "dynamic": "local"}}


def ct(*ignore: str, targets: tuple[str, ...] = ("Linear",), **group: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": list(targets), **(group or NVFP4_GROUP)}}
    return {"config_groups": groups, "format": "nvfp4-pack-quantized", "ignore": list(ignore)}


def group(weights: Any, inputs: Any = None, **more: Any) -> dict[str, Any]:
    return {"targets": ["Linear"], "weights": weights, "input_activations": inputs, **more}


MX4 = group({"num_bits": 4, "type": "float", "group_size": 32}, format="mxfp4-pack-quantized")
MX8 = group({"type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}, format="mxfp8-quantized")


def previous(release: str) -> str:
    return ENGINE.releases[ENGINE.releases.index(release) - 1]


def gptq(**more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False, **more}


def awq(*entries: str, **more: Any) -> dict[str, Any]:
    names = list(entries) or None
    fixed = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    return {**fixed, "modules_to_not_convert": names, **more}


def inc(extra: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"bits": 4, "group_size": 128, "sym": True, "extra_config": extra, **more}


MX_FP = inc({}, bits=8, data_type="mx_fp", group_size=32, packing_format="auto_round:llm_compressor")


def quark(*exclude: str, **more: Any) -> dict[str, Any]:
    weight = {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}
    fixed = {"export": {"kv_cache_group": []}, "layer_quant_config": {}, "layer_type_quant_config": {}}
    return {**fixed, "exclude": list(exclude), "global_quant_config": {"weight": weight}, **more}


def mixed(layers: dict[str, str], **more: Any) -> dict[str, Any]:
    recipes = {name: {"quant_algo": algo} for name, algo in layers.items()}
    return {"quant_algo": "MIXED_PRECISION", "quantized_layers": recipes, **more}


class TestModelOpt:
    @pytest.mark.parametrize(
        ("entry", "name", "expected"),
        [
            (f"{ATTN}.o_proj", f"{ATTN}.o_proj", "plain"),  # exact, 0.33.0 Q/utils/quant_utils.py:602
            ("model.layers.4", "model.layers.45.mlp.down_proj", "plain"),  # part of the name, 0.33.0 Q/modelopt.py:208
            ("mtp.layers.0*", "mtp.layers.0.mlp.down_proj", "plain"),  # fnmatch, 0.33.0 Q/modelopt.py:223
            ("mtp.layers.0*", "mtp.fc", "nvfp4"),
            ("*.mlp.*_proj", "mtp.layers.0.mlp.down_proj", "plain"),
            ("re:mtp.*", "mtp.fc", "nvfp4"),  # `re:` means nothing
            ("MTP.fc", "mtp.fc", "nvfp4"),
        ],
    )
    def test_three_tests_of_the_list(self, entry: str, name: str, expected: str) -> None:
        assert verdict("modelopt_fp4", nvfp4(entry), name) == expected

    def test_shards_agree_or_the_engine_raises(self) -> None:
        # 0.33.0 Q/utils/quant_utils.py:664-683
        answer = ask("modelopt_fp4", nvfp4(*QKV), f"{ATTN}.qkv_proj")
        assert (answer.decision, answer.cause.pointer) == ("plain", "/ignore/0")
        assert verdict("modelopt_fp4", nvfp4(*QKV[:2]), f"{ATTN}.qkv_proj") == "ValueError"

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "ValueError"), ("0.24.0", "plain")])
    def test_fused_name_beside_a_shard(self, release: str, expected: str) -> None:
        # 0.24.0 Q/utils/quant_utils.py:504
        config = nvfp4(f"{ATTN}.qkv_proj", QKV[0])
        assert verdict("modelopt_fp4", config, f"{ATTN}.qkv_proj", release) == expected

    def test_one_expert_excludes_the_fused_experts(self) -> None:
        # 0.33.0 Q/utils/quant_utils.py:684
        config = nvfp4("lm_head", f"{EXPERTS}.7.down_proj")
        answer = ask("modelopt_fp4", config, EXPERTS, layer="moe")
        assert (answer.decision, answer.cause.entry) == ("plain", f"{EXPERTS}.7.down_proj")

    @pytest.mark.parametrize(
        ("release", "mappers", "expected"),
        [
            ("0.12.0", (SAME,), "plain"),  # kept whole, 0.12.0 Q/modelopt.py:188
            ("0.13.0", (SAME,), "nvfp4"),  # `*mtp` and `*mtp.*`, 0.13.0 Q/modelopt.py:189
            ("0.13.0", (), "plain"),  # no mapper, no split
        ],
    )
    def test_star_split(self, release: str, mappers: tuple[Mapper, ...], expected: str) -> None:
        assert verdict("modelopt_fp4", nvfp4("*mtp*"), "model.mtp_block.fc", release, mappers=mappers) == expected

    def test_split_and_mapped_entries_keep_their_place(self) -> None:
        config = nvfp4("lm_head", "model.language_model.layers.3*")
        answer = ask("modelopt_fp4", config, "language_model.model.layers.3.mlp.down_proj", mappers=(VL,))
        assert (answer.cause.pointer, answer.cause.entry) == ("/ignore/1", "model.language_model.layers.3*")

    @pytest.mark.parametrize(("release", "expected"), [("0.28.0", "nvfp4"), ("0.29.0", "plain")])
    def test_rules_that_drop_names(self, release: str, expected: str) -> None:
        # 0.29.0 vllm/model_executor/models/utils.py:163
        assert verdict("modelopt_fp4", nvfp4("mtp.fc"), "mtp.fc", release, mappers=(VL,)) == expected

    @pytest.mark.parametrize(
        ("release", "config", "expected"),
        [
            ("0.32.0", {"exclude_modules": ["mtp.fc"]}, "nvfp4"),  # 0.12.0 Q/modelopt.py:209 reads `ignore` only
            ("0.33.0", {"exclude_modules": ["mtp.fc"]}, "plain"),  # 0.33.0 Q/modelopt.py:359
            ("0.33.0", {"exclude_modules": ["mtp.fc"], "ignore": []}, "nvfp4"),
            ("0.33.0", {"ignore": "mtp.fc"}, "ValueError"),
        ],
    )
    def test_key_of_the_flat_list(self, release: str, config: dict[str, Any], expected: str) -> None:
        assert verdict("modelopt_fp4", {"quant_algo": "NVFP4", **config}, "mtp.fc", release) == expected

    def test_nested_list_and_its_required_keys(self) -> None:
        # 0.33.0 Q/modelopt.py:818
        fields = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["mtp.fc"]}
        answer = ask("modelopt_fp4", {"quantization": fields}, "mtp.fc")
        assert (answer.decision, answer.cause.pointer) == ("plain", "/quantization/exclude_modules/0")
        del fields["group_size"]
        assert verdict("modelopt_fp4", {"quantization": fields}, "mtp.fc") == "ValueError"

    @pytest.mark.parametrize(("release", "expected"), [("0.22.1", "plain"), ("0.23.0", "nvfp4")])
    def test_lm_head(self, release: str, expected: str) -> None:
        # 0.23.0 Q/modelopt.py:177
        assert verdict("modelopt_fp4", nvfp4(), "lm_head", release, "lm_head") == expected
        assert verdict("modelopt_fp4", nvfp4(), "model.embed_tokens", release, "embedding") == "plain"

    @pytest.mark.parametrize(("release", "expected"), [("0.22.1", "nvfp4"), ("0.23.0", "plain")])
    def test_vision_words(self, release: str, expected: str) -> None:
        assert verdict("modelopt_fp4", nvfp4(), "vision_tower.blocks.0.fc1", release) == "plain"
        assert verdict("modelopt_fp4", nvfp4(), "vit_large_projector.fc1", release) == expected

    @pytest.mark.parametrize(
        ("release", "algo", "method", "expected"),
        [
            ("0.13.0", "FP8_PB_WO", "modelopt", "ValueError"),  # 0.14.0 Q/modelopt.py:105
            ("0.14.0", "FP8_PB_WO", "modelopt", "fp8-pb"),
            ("0.14.0", "FP8_PER_CHANNEL_PER_TOKEN", "modelopt", "fp8-channel"),
            ("0.15.1", "fp8", "modelopt", "ValueError"),  # capitals from 0.16.0 Q/modelopt.py:253
            ("0.16.0", "fp8", "modelopt", "fp8"),
            ("0.20.2", "W4A16_NVFP4", "modelopt_fp4", "ValueError"),  # 0.21.0 Q/modelopt.py:106
            ("0.21.0", "W4A16_NVFP4", "modelopt_fp4", "nvfp4-w4a16"),
            (NEWEST, "NVFP4_AWQ", "modelopt_fp4", "ValueError"),
        ],
    )
    def test_algorithms(self, release: str, algo: str, method: str, expected: str) -> None:
        assert verdict(method, {"quant_algo": algo}, "mtp.fc", release) == expected

    def test_experts_have_one_fp8_form(self) -> None:
        # 0.33.0 Q/modelopt.py: FusedMoEMethodCls = ModelOptFp8MoEMethod whatever the algorithm
        assert verdict("modelopt", {"quant_algo": "FP8_PB_WO"}, EXPERTS, layer="moe") == "fp8"

    @pytest.mark.parametrize(("release", "expected"), [("0.28.0", "nvfp4"), ("0.29.0", "nvfp4-w4a16")])
    def test_weight_only_groups(self, release: str, expected: str) -> None:
        # 0.29.0 Q/modelopt.py:1012
        config = nvfp4(config_groups={"group_0": {"input_activations": None}})
        assert verdict("modelopt_fp4", config, "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.17.1", "NotImplementedError"), ("0.18.0", "plain")])
    def test_mxfp8_experts(self, release: str, expected: str) -> None:
        # 0.16.0 Q/modelopt.py:1561 raises before it looks at the list
        config = {"quant_algo": "MXFP8", "ignore": [EXPERTS]}
        assert verdict("modelopt_mxfp8", config, EXPERTS, release, "moe") == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "ValueError"), ("0.24.0", "plain")])
    def test_mxfp8_with_ignored_layers(self, release: str, expected: str) -> None:
        # 0.24.0 Q/modelopt.py:1680
        answer = ask("modelopt_mxfp8", {"quant_method": "mxfp8", "ignored_layers": ["mtp"]}, "mtp.fc", release)
        assert (answer.error or answer.decision) == expected
        assert answer.cause.pointer == ("/ignored_layers/0" if expected == "plain" else "")


class TestMixed:
    @pytest.mark.parametrize(
        ("layers", "name", "layer", "release", "expected"),
        [
            ({f"{ATTN}.o_proj": "FP8"}, f"{ATTN}.o_proj", "linear", "0.17.0", "fp8"),
            ({f"{ATTN}.o_proj": "FP8"}, "mtp.fc", "linear", "0.17.0", "plain"),
            ({QKV[0]: "NVFP4"}, f"{ATTN}.qkv_proj", "linear", "0.17.0", "nvfp4"),  # one shard is enough
            ({QKV[0]: "NVFP4", QKV[1]: "FP8"}, f"{ATTN}.qkv_proj", "linear", "0.17.0", "ValueError"),
            ({f"{EXPERTS}.0.up_proj": "NVFP4"}, EXPERTS, "moe", "0.17.0", "nvfp4"),  # first key below
            # a sibling of the experts, 0.23.0 Q/modelopt.py:2303
            ({f"{MLP}.shared_expert.up_proj": "NVFP4"}, EXPERTS, "moe", "0.22.1", "plain"),
            ({f"{MLP}.shared_expert.up_proj": "NVFP4"}, EXPERTS, "moe", "0.23.0", "nvfp4"),
            # wrapper spellings, 0.22.0 Q/modelopt.py:2367
            ({"model.language_model.a.b": "FP8"}, "language_model.model.a.b", "linear", "0.21.0", "plain"),
            ({"model.language_model.a.b": "FP8"}, "language_model.model.a.b", "linear", "0.22.0", "fp8"),
            # algorithms by release, 0.25.0 Q/modelopt.py:2275, 0.29.0 :2179, 0.30.0 :1501
            ({"mtp.fc": "MXFP8"}, "mtp.fc", "linear", "0.24.0", "plain"),
            ({"mtp.fc": "MXFP8"}, "mtp.fc", "linear", "0.25.0", "mxfp8"),
            ({"mtp.fc": "FP8_PB_WO"}, "mtp.fc", "linear", "0.28.0", "plain"),
            ({"mtp.fc": "FP8_PB_WO"}, "mtp.fc", "linear", "0.29.0", "fp8-pb"),
            ({EXPERTS: "FP8_BLOCK_SCALES"}, EXPERTS, "moe", "0.29.0", "plain"),
            ({EXPERTS: "FP8_BLOCK_SCALES"}, EXPERTS, "moe", "0.30.0", "fp8-block"),
            ({"lm_head": "FP8"}, "language_model.lm_head", "lm_head", "0.22.1", "plain"),
            ({"lm_head": "FP8"}, "language_model.lm_head", "lm_head", "0.23.0", "fp8"),
        ],
    )
    def test_per_layer_algorithm(
        self, layers: dict[str, str], name: str, layer: Layer, release: str, expected: str
    ) -> None:
        assert verdict("modelopt_mixed", mixed(layers), name, release, layer) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.24.0", "plain"), ("0.25.0", "fp8")])
    def test_known_shards_without_a_packed_mapping(self, release: str, expected: str) -> None:
        # 0.25.0 Q/modelopt.py:2408
        config = mixed({QKV[1]: "FP8"})
        assert verdict("modelopt_mixed", config, f"{ATTN}.qkv_proj", release, packed={}) == expected

    def test_exclusion_comes_first_and_keys_are_mapped(self) -> None:
        config = mixed({"model.language_model.a": "FP8", "model.language_model.b": "FP8"}, ignore=["*.a"])
        assert verdict("modelopt_mixed", config, "language_model.model.a", mappers=(VL,)) == "plain"
        answer = ask("modelopt_mixed", config, "language_model.model.b", mappers=(VL,))
        assert (answer.scheme, answer.cause.pointer) == ("fp8", "/quantized_layers/model.language_model.b")

    def test_refused_configs(self) -> None:
        assert verdict("modelopt_mixed", mixed({}), "mtp.fc") == "ValueError"
        sizes = {"a": {"quant_algo": "FP8_PB_WO", "group_size": 64}, "b": {"quant_algo": "FP8_PB_WO"}}
        config = {"quant_algo": "MIXED_PRECISION", "quantized_layers": sizes}
        assert verdict("modelopt_mixed", config, "mtp.fc", "0.29.0") == "plain"
        assert verdict("modelopt_mixed", config, "mtp.fc", "0.30.0") == "ValueError"  # 0.30.0 Q/modelopt.py:1501

    def test_block_codecs(self) -> None:
        # 0.32.0 Q/modelopt.py:1543
        recipe = {"quant_algo": "Q8_0", "group_size": 32, "block_payload_bytes": 34, "packing": "ggml"}
        config = {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.embed_tokens": recipe}}
        assert verdict("modelopt_mixed", config, "model.embed_tokens", "0.31.0", "embedding") == "plain"
        assert verdict("modelopt_mixed", config, "model.embed_tokens", "0.32.0", "embedding") == "q8_0"
        recipe["packing"] = "other"
        assert verdict("modelopt_mixed", config, "mtp.fc", "0.32.0") == "ValueError"


class TestFp8:
    @pytest.mark.parametrize(
        ("entry", "name", "layer", "expected"),
        [
            ("mtp.fc", "mtp.fc", "linear", "plain"),
            ("mtp", "mtp.fc", "linear", "fp8-block"),  # no parents, no globs, 0.33.0 Q/fp8.py:177
            ("mtp.*", "mtp.fc", "linear", "fp8-block"),
            (f"{EXPERTS}.0.up_proj", EXPERTS, "moe", "plain"),
            ("lm_head", "lm_head", "lm_head", "plain"),
        ],
    )
    def test_exact_names(self, entry: str, name: str, layer: Layer, expected: str) -> None:
        assert verdict("fp8", fp8(entry), name, layer=layer) == expected

    def test_lm_head_is_never_quantized(self) -> None:
        assert verdict("fp8", fp8(), "lm_head", layer="lm_head") == "plain"

    def test_second_key_counts_when_the_first_is_empty(self) -> None:
        # 0.33.0 Q/fp8.py:165
        answer = ask("fp8", fp8(modules_to_not_convert=["mtp.fc"]), "mtp.fc")
        assert answer.cause.pointer == "/modules_to_not_convert/0"
        assert verdict("fp8", fp8("a", modules_to_not_convert=["mtp.fc"]), "mtp.fc") == "fp8-block"

    @pytest.mark.parametrize(("release", "expected"), [("0.27.1", "fp8-block"), ("0.28.0", "plain")])
    def test_suffix_mode(self, release: str, expected: str) -> None:
        # 0.28.0 Q/utils/quant_utils.py:602
        options = {"match_mode": "suffix"}
        assert verdict("fp8", fp8("o_proj"), f"{ATTN}.o_proj", release, options=options) == expected
        assert verdict("fp8", fp8("proj"), f"{ATTN}.o_proj", release, options=options) == "fp8-block"

    def test_suffix_mode_is_for_block_fp8_alone(self) -> None:
        # 0.33.0 M/bailing_moe_v3.py:234; seen in the engine: an expert's entry leaves the fused experts plain
        options = {"match_mode": "suffix"}
        found = {
            block is None: verdict(
                "fp8", fp8(f"{EXPERTS}.0.up_proj", weight_block_size=block), EXPERTS, layer="moe", options=options
            )
            for block in ([128, 128], None)
        }
        assert found == {False: "fp8-block", True: "plain"}

    def test_ling_declares_its_experts_in_a_key_of_its_own(self) -> None:
        # 0.33.0 M/bailing_moe_v3.py:230-260, the same in 0.28.0; seen in the engine
        options = {"match_mode": "suffix", "experts_as": "routed_experts_quant_method"}

        def found(release: str = "0.33.0", layer: Layer = "moe", **options_of: object) -> str:
            return verdict("fp8", fp8(**options_of), EXPERTS, release, layer, options=options)

        assert found(routed_experts_quant_method="mxfp4") == found("0.28.0", routed_experts_quant_method="mxfp4")
        assert found(routed_experts_quant_method="mxfp4") == "mxfp4"
        assert found(layer="linear", routed_experts_quant_method="mxfp4") == "fp8-block"
        assert found(routed_experts_quant_method="mxfp4", weight_block_size=None) == "fp8"
        assert found(routed_experts_quant_method="nvfp4") == "ValueError"
        assert verdict("fp8", fp8(routed_experts_quant_method="mxfp4"), EXPERTS, layer="moe") == "fp8-block"

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "fp8-block"), ("0.24.0", "mxfp4")])
    def test_mxfp4_experts(self, release: str, expected: str) -> None:
        # 0.24.0 Q/fp8.py:179
        assert verdict("fp8", fp8(store_dtype="mxfp4"), EXPERTS, release, "moe") == expected

    @pytest.mark.parametrize(
        "wrong",
        [{"activation_scheme": "other"}, {"activation_scheme": "static"}, {"weight_block_size": [128]}],
    )
    def test_refused_configs(self, wrong: dict[str, Any]) -> None:
        assert verdict("fp8", fp8(**wrong), "mtp.fc") == "ValueError"

    def test_no_block_size(self) -> None:
        assert verdict("fp8", fp8(weight_block_size=None), "mtp.fc") == "fp8"


class TestDeepseekV4:
    NAME = "model.layers.61.ffn.experts"

    @pytest.mark.parametrize(
        ("release", "config", "expected"),
        [
            ("0.20.0", {}, "dsv4-fp4"),
            ("0.21.0", {"moe_quant_algo": "NVFP4"}, "dsv4-fp4"),  # 0.22.0 vllm/models/deepseek_v4/quant_config.py:27
            ("0.22.0", {"moe_quant_algo": "NVFP4"}, "nvfp4"),
            ("0.31.0", {"moe_quant_algo": "NVFP4", "ignore": ["mtp.*"]}, "nvfp4"),
            ("0.32.0", {"moe_quant_algo": "NVFP4", "ignore": ["mtp.*"]}, "dsv4-fp4"),  # 0.32.0 deepseek_v41 :37
            ("0.32.0", {"ignored_layers": ["model.layers.61.ffn.experts"]}, "plain"),
        ],
    )
    def test_experts(self, release: str, config: dict[str, Any], expected: str) -> None:
        options = {"num_hidden_layers": "61"}
        assert verdict("deepseek_v4_fp8", fp8(**config), self.NAME, release, "moe", options=options) == expected

    def test_expert_dtype_of_config_json(self) -> None:
        options = {"expert_dtype": "fp8"}
        # 0.20.1 vllm/model_executor/models/deepseek_v4.py:120
        assert verdict("deepseek_v4_fp8", fp8(), self.NAME, "0.20.0", "moe", options=options) == "dsv4-fp4"
        assert verdict("deepseek_v4_fp8", fp8(), self.NAME, "0.20.1", "moe", options=options) == "dsv4-fp8"
        assert verdict("deepseek_v4_fp8", fp8(), self.NAME, layer="moe", options=options) == "dsv4-fp8"
        assert verdict("deepseek_v4_fp8", fp8(), self.NAME, layer="moe", options={"expert_dtype": "x"}) == "ValueError"

    def test_linears(self) -> None:
        assert verdict("deepseek_v4_fp8", fp8(), "mtp.fc") == "dsv4-fp8"
        wide = fp8(weight_block_size=[32, 32])
        assert verdict("deepseek_v4_fp8", wide, "mtp.fc", "0.29.0") == "dsv4-fp8"
        assert verdict("deepseek_v4_fp8", wide, "mtp.fc", "0.30.0") == "mxfp8"  # 0.30.0 deepseek_v41 :33

    def test_quark_export(self) -> None:
        # 0.27.0 vllm/models/deepseek_v4/quant_config.py:29
        config = {"quant_method": "quark", "exclude": ["mtp.fc", 3]}
        assert verdict("deepseek_v4_fp8", config, "mtp.fc", "0.27.0") == "plain"
        assert verdict("deepseek_v4_fp8", config, "mtp.fc", "0.26.0") == "ValueError"


class TestCompressedTensors:
    @pytest.mark.parametrize(
        ("entry", "name", "expected"),
        [
            ("mtp.fc", "mtp.fc", "plain"),
            ("mtp", "mtp.fc", "ct-nvfp4"),  # no parents, 0.33.0 Q/utils/config_utils.py:434
            ("mtp*", "mtp.fc", "ct-nvfp4"),
            ("re:mtp", "mtp.fc", "plain"),  # anchored at the start only
            ("re:fc", "mtp.fc", "ct-nvfp4"),
            ("re:.*[qkv]_proj", f"{ATTN}.qkv_proj", "plain"),
            ("re:*", "mtp.fc", "re.error"),
        ],
    )
    def test_ignore(self, entry: str, name: str, expected: str) -> None:
        assert verdict("compressed-tensors", ct(entry), name) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.29.0", "ct-nvfp4"), ("0.30.0", "plain")])
    def test_pattern_for_a_fused_name(self, release: str, expected: str) -> None:
        # 0.30.0 Q/utils/config_utils.py:252
        assert verdict("compressed-tensors", ct("re:.*qkv_proj$"), f"{ATTN}.qkv_proj", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.29.0", "plain"), ("0.30.0", "re.error")])
    def test_broken_pattern_after_a_hit(self, release: str, expected: str) -> None:
        # from 0.30.0 every entry is tried
        assert verdict("compressed-tensors", ct("mtp.fc", "re:("), "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.12.0", "plain"), ("0.13.0", "ct-nvfp4")])
    def test_mapper_leaves_patterns_alone(self, release: str, expected: str) -> None:
        # 0.13.0 C/compressed_tensors.py:118
        mapper = Mapper(substr=(("model.language", "language"),))
        name, config = "language.layers.0.fc", ct("re:model.language.layers")
        assert verdict("compressed-tensors", config, name, release, mappers=(mapper,)) == expected

    @pytest.mark.parametrize(
        ("release", "targets", "expected"),
        [
            ("0.20.2", ("model.layers.0.fc",), "ValueError"),  # 0.21.0 C/utils.py:113
            ("0.21.0", ("model.layers.0.fc",), "plain"),
            ("0.21.0", ("mtp.fc",), "ct-nvfp4"),
            ("0.21.0", ("re:mtp",), "ct-nvfp4"),
            ("0.21.0", ("replicatedlinear",), "ct-nvfp4"),  # part of the class name, any case
        ],
    )
    def test_targets(self, release: str, targets: tuple[str, ...], expected: str) -> None:
        assert verdict("compressed-tensors", ct(targets=targets), "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.26.0", "group_0"), ("0.27.0", "group_1")])
    def test_shards_before_the_class(self, release: str, expected: str) -> None:
        # 0.27.0 C/utils.py:113
        config = ct()
        config["config_groups"]["group_1"] = {"targets": QKV, **NVFP4_GROUP}
        answer = ask("compressed-tensors", config, f"{ATTN}.qkv_proj", release)
        assert (answer.cause.rule, answer.cause.pointer) == (
            f"config group {expected}",
            f"/config_groups/{expected}/targets/0",
        )

    @pytest.mark.parametrize(
        ("names", "projections", "release", "expected"),
        [
            (("gate_proj", "up_proj", "down_proj"), (), NEWEST, "plain"),
            (("gate_proj", "up_proj"), (), NEWEST, "ValueError"),
            (("w1", "w2", "w3"), ("w1", "w3", "w2"), "0.31.0", "ct-nvfp4"),  # 0.32.0 compressed_tensors_moe.py:28
            (("w1", "w2", "w3"), ("w1", "w3", "w2"), "0.32.0", "plain"),
        ],
    )
    def test_experts_by_expert_zero(
        self, names: tuple[str, ...], projections: tuple[str, ...], release: str, expected: str
    ) -> None:
        config = ct(EXPERTS, *(f"{EXPERTS}.0.{name}" for name in names))
        found = verdict("compressed-tensors", config, EXPERTS, release, "moe", projections=projections)
        assert found == expected

    @pytest.mark.parametrize(
        ("release", "target", "expected"),
        [("0.23.0", "FusedMoE", "ct-nvfp4"), ("0.24.0", "FusedMoE", "plain"), ("0.24.0", "RoutedExperts", "ct-nvfp4")],
    )
    def test_class_of_experts(self, release: str, target: str, expected: str) -> None:
        # 0.24.0 C/compressed_tensors.py:213
        assert verdict("compressed-tensors", ct(targets=(target,)), EXPERTS, release, "moe") == expected

    @pytest.mark.parametrize(
        ("release", "targets", "expected"),
        [
            ("0.19.1", ("lm_head",), "plain"),  # 0.20.0 C/compressed_tensors.py:157
            ("0.20.0", ("lm_head",), "ct-nvfp4"),
            ("0.20.0", ("Linear",), "plain"),
        ],
    )
    def test_lm_head(self, release: str, targets: tuple[str, ...], expected: str) -> None:
        assert verdict("compressed-tensors", ct(targets=targets), "lm_head", release, "lm_head") == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.22.1", "plain"), ("0.23.0", "ValueError")])
    def test_embedding(self, release: str, expected: str) -> None:
        # 0.23.0 C/compressed_tensors.py:151: only weight-only integers
        config = ct(targets=("VocabParallelEmbedding",))
        assert verdict("compressed-tensors", config, "model.embed_tokens", release, "embedding") == expected

    @pytest.mark.parametrize(
        ("format_", "weights", "inputs", "expected"),
        [
            ("nvfp4-pack-quantized", WEIGHTS, None, "ct-nvfp4a16"),
            ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 128}, None, "ct-w4a16"),
            ("pack-quantized", {"num_bits": 8, "group_size": -1}, None, "ct-w8a16"),
            ("float-quantized", {"type": "float"}, {"type": "float", "dynamic": True}, "fp8"),
            (
                "float-quantized",
                {"type": "float", "strategy": "channel"},
                {"type": "float", "dynamic": True},
                "fp8-channel",
            ),
            (
                "float-quantized",
                {"type": "float", "strategy": "block"},
                {"type": "float", "dynamic": True},
                "fp8-block-ct",
            ),
            ("int-quantized", {"strategy": "channel"}, {"strategy": "token", "dynamic": True}, "ct-w8a8"),
            ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 32}, None, "ct-mxfp4"),
            (
                "mxfp8-quantized",
                {"num_bits": 8, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8"},
                None,
                "mxfp8",
            ),
            ("dense", {"num_bits": 4, "group_size": 128}, None, "NotImplementedError"),
            ("int-quantized", {"num_bits": 8}, None, "AssertionError"),
            ("pack-quantized", None, None, "ValidationError"),
        ],
    )
    def test_schemes(self, format_: str, weights: Any, inputs: Any, expected: str) -> None:
        group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
        config = {"config_groups": {"g": group}, "format": format_}
        assert verdict("compressed-tensors", config, "mtp.fc") == expected

    @pytest.mark.parametrize(
        ("group", "layer", "release", "before", "after"),
        [
            # C/compressed_tensors.py: 0.14.0 :559, 0.20.0 :614, 0.23.0 :692, 0.25.0 :685, 0.26.0 :722, 0.30.0 :301
            (MX4, "linear", "0.14.0", "NotImplementedError", "ct-mxfp4"),
            (MX4, "moe", "0.15.0", "ValueError", "ct-mxfp4"),
            (MX8, "linear", "0.20.0", "NotImplementedError", "mxfp8"),
            (group(WEIGHTS, {"type": "float"}), "linear", "0.23.0", "NotImplementedError", "ValueError"),
            (group({"num_bits": 3, "group_size": -1}), "linear", "0.25.0", "NotImplementedError", "ct-w3a16"),
            (
                group({"num_bits": 4, "group_size": -1}, {"strategy": "token", "dynamic": True}),
                *("linear", "0.26.0", "NotImplementedError", "ct-w4a8"),
            ),
            (
                group({"num_bits": 4, "group_size": 128, "actorder": "group"}),
                *("linear", "0.30.0", "ct-w4a16", "ValueError"),
            ),
            # 0.13.0 C/compressed_tensors_moe.py:123
            (group({"num_bits": 4, "group_size": 128}, format="dense"), "moe", "0.13.0", "ct-w4a16", "ValueError"),
            # 0.15.0 C/compressed_tensors.py:211
            ({"targets": ["LlamaAttention"], "weights": None}, "linear", "0.15.0", "ValidationError", "plain"),
        ],
    )
    def test_schemes_by_release(
        self, group: dict[str, Any], layer: Layer, release: str, before: str, after: str
    ) -> None:
        config = {"config_groups": {"g": group}, "format": "pack-quantized"}
        name = EXPERTS if layer == "moe" else "mtp.fc"
        assert verdict("compressed-tensors", config, name, previous(release), layer) == before
        assert verdict("compressed-tensors", config, name, release, layer) == after

    @pytest.mark.parametrize(
        ("release", "expected"),
        [("0.14.1", "plain"), ("0.15.0", "KeyError"), ("0.16.0", "KeyError"), ("0.17.0", "plain")],
    )
    def test_no_groups(self, release: str, expected: str) -> None:
        # 0.15.0 C/compressed_tensors.py:211, 0.17.0 :205
        assert verdict("compressed-tensors", {"ignore": []}, "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.21.0", "ct-nvfp4"), ("0.22.0", "DeprecationWarning")])
    def test_sparsity(self, release: str, expected: str) -> None:
        # 0.22.0 C/compressed_tensors.py:242
        config = {**ct(), "sparsity_config": {"targets": ["Linear"]}}
        assert verdict("compressed-tensors", config, "mtp.fc", release) == expected


class TestGptq:
    def test_dynamic_rules_in_order(self) -> None:
        # 0.33.0 Q/utils/gptq_utils.py:85
        rules = {"+:mtp.fc": {"bits": 8}, "-:.*mtp.*": {}}
        config = gptq(dynamic=rules)
        assert verdict("gptq", config, "mtp.fc") == "gptq8"
        answer = ask("gptq", config, EXPERTS, layer="moe", mappers=(VL,))
        assert (answer.decision, answer.cause.pointer) == ("plain", "/dynamic/-:.*mtp.*")
        assert verdict("gptq", gptq(dynamic={"-:fc": {}}), "mtp.fc") == "gptq4"

    @pytest.mark.parametrize(("release", "expected"), [("0.26.0", "TypeError"), ("0.27.0", "gptq4")])
    def test_lists_among_texts(self, release: str, expected: str) -> None:
        # 0.27.0 Q/utils/gptq_utils.py:86
        config = gptq(modules_in_block_to_quantize=["mlp", ["self_attn"]])
        assert verdict("gptq", config, f"{ATTN}.o_proj", release) == expected

    def test_a_slash_in_a_rule_is_escaped(self) -> None:
        assert ask("gptq", gptq(dynamic={"-:mtp/?~?": {}}), "mtp/~").cause.pointer == "/dynamic/-:mtp~1?~0?"

    @pytest.mark.parametrize(
        ("modules", "name", "expected"),
        [
            (["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], f"{ATTN}.qkv_proj", "gptq4"),
            (["self_attn.q_proj"], f"{ATTN}.qkv_proj", "ValueError"),
            ([["mlp"], ["self_attn"]], f"{ATTN}.o_proj", "gptq4"),
            (["mlp"], f"{ATTN}.o_proj", "plain"),
        ],
    )
    def test_modules_to_quantize(self, modules: list[Any], name: str, expected: str) -> None:
        assert verdict("gptq", gptq(modules_in_block_to_quantize=modules), name) == expected
        assert verdict("gptq", gptq(modules_in_block_to_quantize=modules), EXPERTS, layer="moe") == "gptq4"

    def test_headers_fill_an_empty_list(self) -> None:
        # 0.33.0 Q/auto_gptq.py:288
        dtypes = {f"{ATTN}.o_proj.qweight": "I32", f"{ATTN}.o_proj.scales": "F16", "mtp.fc.weight": "BF16"}
        assert verdict("gptq", gptq(), f"{ATTN}.o_proj", dtypes=dtypes) == "gptq4"
        assert verdict("gptq", gptq(), "mtp.fc", dtypes=dtypes) == "plain"

    def test_headers_are_looked_at_once(self) -> None:
        """What they say is the same in every config, but for mappers and for a list that is not empty."""
        rows = {f"{ATTN}.o_proj.qweight": "I32", "mtp.fc.weight": "BF16", "old.fc.qweight": "I32"}
        dtypes, mapper = Dtypes(rows), Mapper(prefix=(("old.", "mtp."),))
        for _ in range(2):
            for config, mappers, release in product(
                (gptq(), gptq(modules_in_block_to_quantize=["fc"]), gptq(bits=8), gptq(dynamic={"-:mtp": {}})),
                ((), (mapper,)),
                ("0.12.0", NEWEST),
            ):
                for name in (f"{ATTN}.o_proj", "mtp.fc", "old.fc"):
                    held = (
                        ask("gptq", config, name, release, dtypes=given, mappers=mappers) for given in (rows, dtypes)
                    )
                    assert next(held) == next(held)
        assert verdict("gptq", gptq(), "mtp.fc", dtypes=dtypes) == "plain"
        assert verdict("gptq", gptq(), "mtp.fc", dtypes=dtypes, mappers=(mapper,)) == "gptq4"

    @pytest.mark.parametrize(("release", "expected"), [("0.31.0", "plain"), ("0.32.0", "gptq4")])
    def test_nothing_known_of_the_modules(self, release: str, expected: str) -> None:
        # 0.32.0 Q/utils/gptq_utils.py:120
        assert verdict("gptq", gptq(), "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.29.0", "gptq4"), ("0.30.0", "ValueError")])
    def test_act_order(self, release: str, expected: str) -> None:
        # 0.30.0 Q/utils/gptq_utils.py:23
        config = gptq(desc_act=True, modules_in_block_to_quantize=["fc"])
        assert verdict("gptq", config, "mtp.fc", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.21.0", "gptq3"), ("0.22.0", "ValueError")])
    def test_layouts_that_marlin_does_not_know(self, release: str, expected: str) -> None:
        # 0.22.0 Q/auto_gptq.py:104
        assert verdict("gptq", gptq(bits=3, modules_in_block_to_quantize=["fc"]), "mtp.fc", release) == expected

    def test_lm_head_needs_the_flag(self) -> None:
        assert verdict("gptq", gptq(), "lm_head", layer="lm_head") == "plain"
        assert verdict("gptq", gptq(lm_head=True), "lm_head", layer="lm_head") == "gptq4"


class TestAwq:
    def test_parts_of_names(self) -> None:
        # 0.33.0 Q/auto_awq.py:288
        assert verdict("awq", awq("mtp."), "mtp.fc") == "plain"
        assert verdict("awq", awq("layers.4"), "model.layers.45.fc") == "plain"
        assert verdict("awq", awq(f"{EXPERTS}.0.up_proj"), EXPERTS, layer="moe") == "awq4"
        assert verdict("awq", awq(*QKV[:2]), f"{ATTN}.qkv_proj") == "ValueError"

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "awq4"), ("0.24.0", "plain")])
    def test_fused_name(self, release: str, expected: str) -> None:
        # 0.24.0 Q/utils/quant_utils.py:504
        assert verdict("awq", awq("self_attn.qkv_proj"), f"{ATTN}.qkv_proj", release) == expected

    def test_headers_fill_an_empty_list(self) -> None:
        # 0.33.0 Q/auto_awq.py:370
        dtypes = {f"{ATTN}.o_proj.qweight": "I32", f"{ATTN}.o_proj.scales": "F16", "mtp.fc.weight": "BF16"}
        assert verdict("awq", awq(), "mtp.fc", dtypes=dtypes) == "plain"
        assert verdict("awq", awq(), f"{ATTN}.o_proj", dtypes=dtypes) == "awq4"
        assert verdict("awq", awq("x"), "mtp.fc", dtypes=dtypes) == "awq4"

    def test_moe_wna16(self) -> None:
        # 0.33.0 Q/moe_wna16.py:189; the list is not mapped
        assert verdict("moe_wna16", awq("mtp."), EXPERTS, layer="moe") == "plain"
        assert verdict("moe_wna16", awq("model."), "language_model.model.fc", mappers=(VL,)) == "plain"
        assert verdict("moe_wna16", awq(*QKV), f"{ATTN}.qkv_proj", "0.29.0") == "awq4"
        assert verdict("moe_wna16", awq(*QKV), f"{ATTN}.qkv_proj", "0.30.0") == "plain"
        # 0.13.0 Q/moe_wna16.py:164
        assert ask("moe_wna16", awq("mtp."), EXPERTS, "0.12.0", "moe").cause.rule == "linear-method-for-moe"
        assert ask("moe_wna16", awq("mtp."), EXPERTS, "0.13.0", "moe").cause.rule == ""
        # 0.11.1 fused_moe/layer.py:548: no model is built with it
        built = {"layer": "moe", "options": {"part": "draft"}}
        assert verdict("moe_wna16", awq("mtp."), EXPERTS, "0.12.0", **built) == "AssertionError"
        assert verdict("moe_wna16", awq("mtp."), EXPERTS, "0.13.0", **built) == "plain"


class TestAutoRound:
    @pytest.mark.parametrize(
        ("extra", "name", "release", "expected"),
        [
            ({"mtp.fc": {"bits": 16}}, "mtp.fc", NEWEST, "plain"),
            ({"model.mtp.fc": {"bits": 16}}, "mtp.fc", NEWEST, "plain"),  # below `model.`, 0.33.0 Q/inc/inc.py:322
            ({"mtp.fc": {"bits": 8}}, "mtp.fc", NEWEST, "gptq8"),
            ({".*mtp.*": {"bits": 16}}, "mtp.fc", NEWEST, "plain"),  # a regex, searched
            ({"(mtp": {"bits": 16}}, "mtp.fc", NEWEST, "gptq4"),  # invalid: passed over
            ({"fc": {"bits": 16}}, "mtp.fc", "0.26.0", "gptq4"),  # 0.27.0 Q/inc/config_parser.py:70
            ({"fc": {"bits": 16}}, "mtp.fc", "0.27.0", "plain"),
            ({shard: {"bits": 16} for shard in QKV}, f"{ATTN}.qkv_proj", NEWEST, "plain"),
            ({QKV[0]: {"bits": 16}}, f"{ATTN}.qkv_proj", NEWEST, "ValueError"),
        ],
    )
    def test_keys(self, extra: dict[str, Any], name: str, release: str, expected: str) -> None:
        assert verdict("auto-round", inc(extra), name, release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "plain"), ("0.24.0", "gptq4")])
    def test_keys_of_single_experts(self, release: str, expected: str) -> None:
        # 0.24.0 vllm/model_executor/layers/fused_moe/routed_experts.py:44: the class name has no "fusedmoe"
        extra = {f"{EXPERTS}.0.up_proj": {"bits": 16}}
        assert verdict("auto-round", inc(extra), EXPERTS, release, "moe") == expected

    @pytest.mark.parametrize(("release", "caveat"), [("0.23.0", "linear-method-for-moe"), ("0.24.0", "")])
    def test_method_for_plain_experts(self, release: str, caveat: str) -> None:
        # 0.24.0 Q/inc/inc.py:147
        answer = ask("auto-round", inc({EXPERTS: {"bits": 16}}), EXPERTS, release, "moe")
        assert (answer.decision, answer.cause.rule) == ("plain", caveat)
        built = {"layer": "moe", "options": {"part": "target"}}
        found = verdict("auto-round", inc({EXPERTS: {"bits": 16}}), EXPERTS, release, **built)
        assert found == ("AssertionError" if caveat else "plain")

    def test_blocks_are_prefixes_of_text(self) -> None:
        config = inc({}, block_name_to_quantize="model.layers.4")
        assert verdict("auto-round", config, "model.layers.45.fc") == "gptq4"
        answer = ask("auto-round", config, "mtp.fc")
        assert (answer.decision, answer.cause.rule) == ("plain", "outside the blocks to quantize")

    def test_lm_head_is_plain_unless_named(self) -> None:
        assert verdict("auto-round", inc({}), "lm_head", layer="lm_head") == "plain"
        assert verdict("auto-round", inc({"lm_head": {"bits": 4}}), "lm_head", layer="lm_head") == "gptq4"

    @pytest.mark.parametrize(("release", "expected"), [("0.23.0", "gptq4"), ("0.24.0", "plain")])
    def test_shards_count_only_when_one_is_configured(self, release: str, expected: str) -> None:
        # 0.24.0 Q/inc/config_parser.py:70: else the fused name itself is looked up
        config = inc({"qkv_proj$": {"bits": 16}})
        assert verdict("auto-round", config, f"{ATTN}.qkv_proj", release) == expected

    @pytest.mark.parametrize(
        ("config", "release", "expected"),
        [
            (inc({}, packing_format="auto_round:auto_awq"), NEWEST, "awq4"),
            (inc({}, sym=False), "0.21.0", "gptq4"),  # 0.22.0 Q/inc.py:323
            (inc({}, sym=False), "0.22.0", "NotImplementedError"),
            (inc({}, bits=6), "0.29.0", "ValueError"),  # 0.30.0 Q/inc/inc.py:37
            (inc({}, bits=6), "0.30.0", "gptq6"),
            (MX_FP, "0.26.0", "ValueError"),  # 0.27.0 Q/inc/inc.py:38
            (MX_FP, "0.27.0", "mxfp8"),
            (inc({}, bits=8, data_type="fp8", group_size=[128, 128]), "0.28.0", "ValueError"),
            (inc({}, bits=8, data_type="fp8", group_size=[128, 128]), "0.29.0", "fp8-block"),
            (inc({}, data_type="mx_fp"), "0.29.0", "AssertionError"),
        ],
    )
    def test_layouts(self, config: dict[str, Any], release: str, expected: str) -> None:
        assert verdict("auto-round", config, "mtp.fc", release) == expected


class TestQuark:
    @pytest.mark.parametrize(("release", "expected"), [("0.29.0", "fp8"), ("0.30.0", "plain")])
    def test_fused_name(self, release: str, expected: str) -> None:
        # 0.30.0 Q/quark/utils.py:31
        assert verdict("quark", quark(f"{ATTN}.qkv_proj"), f"{ATTN}.qkv_proj", release) == expected

    @pytest.mark.parametrize(("release", "expected"), [("0.25.1", "fp8"), ("0.26.0", "plain")])
    def test_children_of_experts(self, release: str, expected: str) -> None:
        # 0.26.0 Q/quark/utils.py:26
        assert verdict("quark", quark(f"{EXPERTS}.*.down_proj"), EXPERTS, release, "moe") == expected
        assert verdict("quark", quark("re:mtp"), EXPERTS, release, "moe") == "plain"

    def test_entries_are_literal(self) -> None:
        assert verdict("quark", quark("mtp.*"), "mtp.fc") == "fp8"
        assert verdict("quark", quark("lm_head"), "lm_head", layer="lm_head") == "plain"

    def test_layer_configs(self) -> None:
        # 0.33.0 Q/quark/quark.py:750: a key with a star is a glob, another one has to contain the name
        fp4 = {"weight": {"dtype": "fp4", "qscheme": "per_group"}}
        assert verdict("quark", quark(layer_quant_config={"*.fc": fp4}), "mtp.fc") == "mxfp4"
        assert verdict("quark", quark(layer_quant_config={"model.mtp.fc.x": fp4}), "mtp.fc") == "mxfp4"
        assert verdict("quark", quark(layer_quant_config={"*.q_proj": fp4}), f"{ATTN}.qkv_proj") == "ValueError"

    @pytest.mark.parametrize(("release", "expected"), [("0.30.0", "AttributeError"), ("0.31.0", "fp8")])
    def test_mapper_and_other_lists(self, release: str, expected: str) -> None:
        # 0.31.0 Q/quark/quark.py:133
        assert verdict("quark", quark(algo_config=[{}]), "mtp.fc", release, mappers=(SAME,)) == expected

    def test_export_is_required(self) -> None:
        assert verdict("quark", {"exclude": []}, "mtp.fc") == "ValueError"


class TestOthers:
    def test_torchao_takes_runs_of_components(self) -> None:
        # 0.33.0 Q/torchao.py:76
        def config(*names: str) -> dict[str, Any]:
            return {"quant_type": {"default": {"_type": "X", "_data": {}}}, "modules_to_not_convert": list(names)}

        assert verdict("torchao", config("layers.0"), "mtp.layers.0.fc") == "plain"
        assert verdict("torchao", config("layers.0"), "mtp.layers.01.fc") == "torchao"
        assert verdict("torchao", config(), EXPERTS, layer="moe") == "plain"

    def test_torchao_maps_of_modules(self) -> None:
        named = {"mtp.fc": None, "re:.*o_proj": {"x": 1}}
        config = {"quant_type": {"default": {"_data": {"module_fqn_to_config": named}}}}
        assert verdict("torchao", config, "mtp.fc") == "plain"
        assert verdict("torchao", config, f"{ATTN}.o_proj") == "torchao"
        assert verdict("torchao", config, f"{ATTN}.q_proj") == "plain"

    def test_bitsandbytes(self) -> None:
        # 0.27.1 Q/bitsandbytes.py:152
        def config(*names: str) -> dict[str, Any]:
            return {"llm_int8_skip_modules": list(names)}

        assert verdict("bitsandbytes", config("fc"), "mtp.fc", "0.27.1") == "plain"
        assert verdict("bitsandbytes", config("mtp.layers"), "mtp.layers.0.fc", "0.27.1") == "plain"
        assert verdict("bitsandbytes", config("layers.0"), "mtp.layers.0.fc", "0.27.1") == "bnb4"
        assert verdict("bitsandbytes", config("mtp"), EXPERTS, "0.27.1", "moe") == "bnb4"
        assert verdict("bitsandbytes", config("fc"), "mtp.fc", "0.28.0") == "ValueError"  # gone

    def test_mxfp4_reads_no_list(self) -> None:
        # 0.33.0 Q/mxfp4.py:67
        config = {"modules_to_not_convert": [EXPERTS]}
        assert verdict("mxfp4", config, EXPERTS, layer="moe") == "mxfp4"
        assert verdict("mxfp4", config, "mtp.fc") == "plain"

    def test_methods_without_a_model(self) -> None:
        assert ask("humming", {}, "mtp.fc").decision == "unknown"
        assert ask("unquantized", {}, "mtp.fc").decision == "plain"
        assert verdict("no-such", {}, "mtp.fc") == "ValueError"


class TestMethod:
    @pytest.mark.parametrize(
        ("config", "release", "expected"),
        [
            ({"quant_method": "modelopt", "quant_algo": "FP8"}, NEWEST, "modelopt"),
            ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, NEWEST, "modelopt_fp4"),
            ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "0.16.0", "modelopt_mxfp8"),
            ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "0.15.1", ""),
            ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "0.17.0", "modelopt_mixed"),
            ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "0.16.0", ""),
            ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, NEWEST, "modelopt"),
            ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, "0.12.0", "modelopt_fp4"),
            ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, NEWEST, "modelopt"),
            ({"quant_method": "compressed_tensors"}, NEWEST, "compressed-tensors"),
            ({"quant_method": "GPTQ"}, NEWEST, "gptq"),
            ({"quant_method": "auto-round"}, NEWEST, "auto-round"),
            ({"quant_method": "mxfp8"}, "0.23.0", ""),
            ({"quant_method": "mxfp8"}, "0.24.0", "modelopt_mxfp8"),
            ({"quant_method": "bitsandbytes"}, "0.27.1", "bitsandbytes"),
            ({"quant_method": "bitsandbytes"}, "0.28.0", ""),
            ({"bits": 4, "group_size": 64}, "0.33.0", ""),  # MLX
            ({"model_quant_type": "W8A8"}, "0.33.0", ""),  # ModelSlim
            ({"quant_method": "gguf"}, NEWEST, ""),
            ({"quant_method": "humming"}, NEWEST, "humming"),
            ({}, NEWEST, "unquantized"),
        ],
    )
    def test_names(self, config: dict[str, Any], release: str, expected: str) -> None:
        assert ENGINE.method(config, release) == Method(expected)

    @pytest.mark.parametrize(
        ("config", "release"),
        [
            ({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}, NEWEST),
            # 0.33.0 vllm/transformers_utils/model_arch_config_convertor.py:241 knows four algorithms and MIXED
            ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MXFP8"}}, NEWEST),
            ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MIXED_PRECISION"}}, "0.32.0"),
            ({"quant_method": "auto-round"}, "0.14.0"),  # deprecated, 0.14.0 Q/__init__.py:45
            ({"quant_method": 3}, NEWEST),
            ({"producer": "modelopt"}, NEWEST),
        ],
    )
    def test_refused(self, config: dict[str, Any], release: str) -> None:
        assert ENGINE.method(config, release).error

    def test_deepseek_v4_hangs_on_the_model_type(self) -> None:
        # 0.20.0 vllm/model_executor/models/deepseek_v4.py:120
        assert ENGINE.method(fp8(), "0.20.0", model_type="deepseek_v4") == Method("deepseek_v4_fp8")
        assert ENGINE.method(fp8(), "0.19.1", model_type="deepseek_v4") == Method("fp8")
        assert ENGINE.method(fp8(), NEWEST, model_type="deepseek_v3") == Method("fp8")
        mxfp4 = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}
        config = {"quant_method": "quark", "global_quant_config": mxfp4}
        assert ENGINE.method(config, "0.30.0", model_type="deepseek_v4") == Method("deepseek_v4_fp8")
        assert ENGINE.method(config, "0.31.0", model_type="deepseek_v4") == Method("quark")


class TestReleases:
    def test_every_switch_starts_in_a_modelled_release_and_says_where(self) -> None:
        for row in (*SWITCHES, *ALGOS, *MIXED_LINEAR, *MIXED_EXPERTS):
            assert row.since in ENGINE.releases, row
            assert row.source.startswith(row.since), row
        assert len({switch.name for switch in SWITCHES}) == len(SWITCHES)

    @pytest.mark.parametrize("method", sorted({row.method for row in METHODS}))
    def test_change_points_ascend_from_the_first_release(self, method: str) -> None:
        points = ENGINE.change_points(method)
        assert points[0] == "0.12.0"
        assert list(points) == sorted(points, key=key)
        assert set(points) <= set(ENGINE.releases)

    def test_a_method_asks_no_switch_of_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # or its change points would be incomplete
        methods = {switch.name: switch.methods for switch in SWITCHES}
        since = {switch.name: switch.since for switch in SWITCHES}
        asked: list[str] = []

        class Recorder(dict[str, str]):
            def __getitem__(self, name: str) -> str:
                asked.append(name)
                return super().__getitem__(name)

        monkeypatch.setattr(switches, "_SINCE", Recorder(since))
        for method, config in SAMPLES:
            for release, layer in product(ENGINE.releases, ("linear", "moe", "lm_head", "embedding")):
                ask(method, config, f"{ATTN}.qkv_proj", release, layer, mappers=(VL,))
            assert [name for name in asked if method not in methods[name]] == []
            asked.clear()

    def test_change_points_of_some_methods(self) -> None:
        assert ENGINE.change_points("mxfp4") == ("0.12.0",)
        assert ENGINE.change_points("modelopt_mxfp8")[:3] == ("0.12.0", "0.13.0", "0.16.0")
        assert ENGINE.change_points("bitsandbytes") == ("0.12.0", "0.28.0")
        assert {"0.24.0", "0.28.0", "0.29.0"} <= set(ENGINE.change_points("fp8"))
        assert ENGINE.change_points("auto_gptq") == ENGINE.change_points("gptq")


SAMPLES = [
    ("modelopt", {"quant_algo": "FP8", "ignore": ["a*"]}),
    ("modelopt_fp4", nvfp4("a*")),
    ("modelopt_mxfp8", {"quant_algo": "MXFP8", "ignore": ["a*"]}),
    ("modelopt_mixed", mixed({QKV[0]: "FP8"})),
    ("fp8", fp8("a")),
    ("deepseek_v4_fp8", fp8("a", moe_quant_algo="NVFP4")),
    ("compressed-tensors", ct("a")),
    ("gptq", gptq(dynamic={"a": {}})),
    ("awq", awq("a")),
    ("moe_wna16", awq("a")),
    ("moe_wna16", gptq()),
    ("auto-round", inc({"a": {"bits": 16}})),
    ("quark", quark("a")),
    ("torchao", {"quant_type": {"default": {}}}),
    ("bitsandbytes", {}),
    ("mxfp4", {}),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert", "exclude", "llm_int8_skip_modules"),
        *("dynamic", "modules_in_block_to_quantize", "extra_config", "block_name_to_quantize", "config_groups"),
        *("quantization", "quantized_layers", "layer_quant_config", "global_quant_config", "export", "quant_type"),
        *("bits", "sym", "quant_algo", "desc_act", "group_size", "weight_block_size", "activation_scheme"),
        *("quant_method", "producer", "store_dtype", "moe_quant_algo", "zero_point", "packing_format"),
    ]
)
GOOD = [
    nvfp4("a.b*"),
    fp8("a.b"),
    ct("re:a"),
    gptq(dynamic={"-:a": {}}),
    awq("a"),
    inc({"a": {"bits": 16}}),
    quark("a"),
]


class TestHostile:
    @settings(max_examples=300, deadline=None)
    @given(
        base=st.sampled_from(GOOD),
        change=st.dictionaries(KEYS, JSON, max_size=3),
        method=st.sampled_from(sorted({row.method for row in METHODS})),
        release=st.sampled_from(ENGINE.releases),
        name=st.sampled_from(["a.b", f"{ATTN}.qkv_proj", EXPERTS, "lm_head", ""]) | st.text(max_size=5),
        layer=st.sampled_from(["linear", "moe", "lm_head", "embedding"]),
        mapped=st.booleans(),
    )
    def test_nothing_raises(
        self,
        base: dict[str, Any],
        change: dict[str, Any],
        method: str,
        release: str,
        name: str,
        layer: Layer,
        mapped: bool,
    ) -> None:
        config = {**base, **change}
        assert isinstance(ENGINE.method(config, release, model_type="deepseek_v4"), Method)
        answer = ask(method, config, name, release, layer, mappers=(VL,) if mapped else ())
        assert answer.decision in ("plain", "quantized", "error", "unknown")
        assert bool(answer.error) == (answer.decision == "error")
        assert bool(answer.scheme) == (answer.decision == "quantized")

    def test_a_pattern_that_never_ends_is_not_tried(self) -> None:
        name = "a" * 60
        for config, method in ((ct("re:(a+)+$"), "compressed-tensors"), (gptq(dynamic={"-:(.*)*x": {}}), "gptq")):
            answer = ask(method, config, name + "x")
            assert answer.decision == "unknown"
            assert "time" in answer.cause.rule

    def test_entries_that_are_no_text(self) -> None:
        assert verdict("modelopt_fp4", nvfp4("mtp.fc", 3), "mtp.fc") == "plain"  # met before the number
        assert verdict("modelopt_fp4", nvfp4(3, "mtp.other"), "mtp.fc") == "TypeError"
        assert verdict("compressed-tensors", {**ct(), "ignore": None}, "mtp.fc") == "TypeError"
        assert verdict("fp8", {**fp8(), "ignored_layers": "mtp.fc"}, "mtp.fc") == "fp8-block"


def test_replay_counts_and_tells() -> None:
    row = {
        "engine": "vllm",
        "release": "0.32.0",
        "format": "compressed-tensors",
        "config": ct(*(f"{EXPERTS}.0.{name}" for name in ("w1", "w2", "w3"))),
        "packed": {},
        "mapper": {"prefix": {"zzz.": None}},
        "runtime": EXPERTS,
        "layer": "moe",
        "decision": "plain",
        "expert_projections": ["w1", "w3", "w2"],
    }
    totals = Totals()
    rows = [row, {**row, "decision": "error", "error": "ValueError"}, {**row, "engine": "other"}]
    assert [found.row["decision"] for found in replay([("", each) for each in rows], totals)] == ["error"]
    assert (totals.checked, totals.failed, totals.skipped) == (2, 1, 1)
    assert totals.rows == {("vllm", "compressed-tensors", "0.32.0"): 2}
