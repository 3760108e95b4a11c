"""Every signature: what fits it, and what nearly does."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from mtpfix.model import Cell, StoredScheme
from mtpfix.storage.classify import classify
from mtpfix.storage.schemes import BASES, CLUES, SIGNATURES

Spec = tuple[str, tuple[int, ...]]
Parts = Mapping[str, Spec]

ONE: Spec = ("F32", ())
U8: Spec = ("U8", (256, 128))  # 256 x 256, two a byte
FP8: Spec = ("F8_E4M3", (256, 512))
PER16: Spec = ("F8_E4M3", (256, 16))
PER32: Spec = ("U8", (256, 8))
NVFP4 = {"weight": U8, "weight_scale": PER16, "weight_scale_2": ONE}
CT_NVFP4 = {"weight_packed": U8, "weight_scale": PER16, "weight_global_scale": ("F32", (1,))}
GPTQ = {"qweight": ("I32", (64, 256)), "qzeros": ("I32", (4, 32)), "scales": ("F16", (4, 256))}  # in 512, out 256
AWQ = {"qweight": ("I32", (512, 32)), "qzeros": ("I32", (4, 32)), "scales": ("F16", (4, 256))}
W4 = {"weight_packed": ("I32", (256, 64)), "weight_scale": ("BF16", (256, 4)), "weight_shape": ("I64", (2,))}
MLX = {"weight": ("U32", (256, 64)), "scales": ("BF16", (256, 8)), "biases": ("BF16", (256, 8))}
BLOCKS = {"blocks": ("U8", (32, 256, 16, 16)), "scales": ("U8", (32, 256, 16))}


def scheme(parts: Parts) -> StoredScheme:
    return found(parts)[0]


def found(parts: Parts) -> tuple[StoredScheme, tuple[int, ...]]:
    return classify(tuple(Cell(suffix, *spec) for suffix, spec in parts.items()))


FITTING: list[tuple[str, tuple[int, ...], Parts]] = [
    ("nvfp4", (256, 256), NVFP4 | {"input_scale": ONE}),
    ("nvfp4", (256, 256), NVFP4 | {"input_scale": ONE, "input_scale_2": ONE}),
    ("nvfp4", (256, 256), NVFP4 | {"input_scale_2": ONE}),
    (
        "nvfp4",
        (256, 256),
        NVFP4 | {"input_scale": ("F32", (1,)), "weight_scale_2": ("F32", (1,)), "bias": ("BF16", (256,))},
    ),
    ("nvfp4-w4a16", (256, 256), NVFP4),
    ("nvfp4-awq", (256, 256), NVFP4 | {"input_scale": ONE, "pre_quant_scale": ("BF16", (256,))}),
    ("mxfp4", (256, 256), {"weight": U8, "weight_scale": PER32}),
    ("mxfp4", (256, 256), {"weight": U8, "weight_scale": ("F8_E8M0", (256, 8))}),
    ("mxfp4-inv", (256, 256), {"weight": U8, "weight_scale_inv": ("F8_E8M0", (256, 8))}),
    ("mxfp4-inv-u8", (256, 256), {"weight": U8, "weight_scale_inv": PER32}),
    ("fp8", (256, 512), {"weight": FP8, "weight_scale": ONE, "input_scale": ONE}),
    ("fp8", (256, 512), {"weight": FP8, "weight_scale": ("BF16", (1,))}),
    ("fp8", (256, 512), {"weight": ("F8_E5M2", (256, 512)), "weight_scale": ONE, "k_scale": ONE}),
    ("fp8", (256, 512), {"weight": FP8, "weight_scale_inv": ONE, "activation_scale": ONE}),
    ("fp8-channel", (256, 512), {"weight": FP8, "weight_scale": ("F32", (256, 1))}),
    ("fp8-channel", (256, 512), {"weight": FP8, "weight_scale": ("BF16", (256,))}),
    ("mxfp8", (256, 512), {"weight": FP8, "weight_scale": ("U8", (256, 16))}),
    ("fp8-block", (256, 512), {"weight": FP8, "weight_scale_inv": ("F32", (2, 4))}),
    ("fp8-block", (200, 500), {"weight": ("F8_E4M3", (200, 500)), "weight_scale_inv": ("F8_E8M0", (2, 4))}),
    ("fp8-block-ct", (256, 512), {"weight": FP8, "weight_scale": ("BF16", (2, 4))}),
    ("fp8-pb", (256, 512), {"weight": FP8, "weight_scale": ("F32", (2, 1, 4, 1))}),
    ("dsv4-fp8", (256, 512), {"weight": FP8, "scale": ("F8_E8M0", (2, 4))}),
    ("dsv4-fp4", (256, 256), {"weight": ("I8", (256, 128)), "scale": ("F8_E8M0", (256, 8))}),
    ("ct-nvfp4", (256, 256), CT_NVFP4 | {"input_global_scale": ("F32", (1,))}),
    ("ct-nvfp4a16", (256, 256), CT_NVFP4),
    ("ct-mxfp4", (256, 256), {"weight_packed": U8, "weight_scale": PER32}),
    ("ct-w4a16", (256, 512), W4),
    ("ct-w4a16", (256, 512), W4 | {"weight_scale": ("BF16", (256, 16))}),
    ("ct-w4a16", (256, 512), W4 | {"weight_scale": ("BF16", (256, 1)), "weight_g_idx": ("I32", (512,))}),
    ("ct-w4a16", (256, 512), W4 | {"weight_scale": ("BF16", (256, 16)), "weight_zero_point": ("I32", (32, 16))}),
    ("ct-w8a16", (256, 256), W4 | {"weight_scale": ("BF16", (256, 2))}),
    ("ct-w8a16", (256, 256), W4 | {"weight_scale": ("BF16", (256, 8)), "weight_zero_point": ("I32", (64, 8))}),
    ("bnb8", (256, 512), {"weight": ("I8", (256, 512)), "SCB": ("F32", (256,)), "weight_format": ("U8", ())}),
    (
        "modelslim-w8a8",
        (256, 512),
        {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (256, 1)), "weight_offset": ("F32", (256, 1))},
    ),
    (
        "modelslim-w8a8",
        (256, 512),
        {"weight": ("I8", (256, 512)), "deq_scale": ("I64", (256,)), "quant_bias": ("I32", (256,))},
    ),
    ("ct-w8a8", (256, 512), {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (256, 1))}),
    (
        "ct-w8a8",
        (256, 512),
        {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (1,)), "input_scale": ("F32", (1,))},
    ),
    ("int8-block", (256, 512), {"weight": ("I8", (256, 512)), "weight_scale_inv": ("F32", (2, 4))}),
    ("w4afp8", (256, 1024), {"weight": ("I8", (256, 512)), "weight_scale_inv": ("BF16", (256, 8))}),
    (
        "modelopt-int4",
        (256, 512),
        {"weight": ("U8", (128, 512)), "weight_scale": ("F32", (256, 4)), "pre_quant_scale": ("BF16", (512,))},
    ),
    ("gptq4", (256, 512), GPTQ | {"g_idx": ("I32", (512,))}),
    ("gptq4", (256, 512), GPTQ),
    ("gptq8", (256, 256), GPTQ | {"qzeros": ("I32", (4, 64))}),
    ("gptq3", (256, 1024), GPTQ | {"qweight": ("I32", (96, 256)), "qzeros": ("I32", (4, 24))}),
    ("awq4", (256, 512), AWQ),
    ("awq8", (256, 512), AWQ | {"qweight": ("I32", (512, 64)), "qzeros": ("I32", (4, 64))}),
    (
        "quark-int4",
        (),
        {"weight": ("I32", (64, 256)), "weight_scale": ("F32", (4, 256)), "weight_zero_point": ("I32", (4, 32))},
    ),
    ("mlx4", (256, 512), MLX),
    ("mlx8", (256, 256), MLX | {"scales": ("BF16", (256, 4)), "biases": ("BF16", (256, 4))}),
    ("mlx4", (256, 512), {"weight": ("U32", (256, 64)), "scales": ("U8", (256, 16))}),
    ("bnb4", (), {"weight": ("U8", (65536, 1)), "weight.absmax": ("U8", (2048,)), "weight.quant_map": ("F32", (16,))}),
    (
        "hqq",
        (),
        {"W_q": ("U8", (128, 512)), "scale": ("F16", (1024, 1)), "zero": ("F16", (1024, 1)), "shape": ("I64", (2,))},
    ),
    ("torchao", (), {"_weight_qdata": FP8, "_weight_scale": ("F32", (256, 1))}),
    ("torchao", (), {"weight:qdata": FP8, "weight:scale": ("F32", (256, 1))}),
    ("torchao", (), {"weight:_data": FP8}),
    ("gptoss-mxfp4", (32, 256, 512), BLOCKS),
    ("bf16", (256, 512), {"weight": ("BF16", (256, 512))}),
    ("f16", (256, 512), {"weight": ("F16", (256, 512)), "bias": ("F16", (256,))}),
    ("f32", (256, 512), {"weight": ("F32", (256, 512)), "e_score_correction_bias": ("F32", (256,))}),
    # stacks of experts
    ("bf16", (8, 256, 128), {"weight": ("BF16", (8, 256, 128))}),
    (
        "nvfp4",
        (8, 256, 256),
        {
            "weight": ("U8", (8, 256, 128)),
            "weight_scale": ("F8_E4M3", (8, 256, 16)),
            "weight_scale_2": ("F32", (8,)),
            "input_scale": ("F32", (8, 1)),
        },
    ),
    ("fp8-block", (4, 128, 128), {"weight": ("F8_E4M3", (4, 128, 128)), "weight_scale_inv": ("F32", (4, 1, 1))}),
    ("mlx4", (8, 256, 512), {suffix: (dtype, (8, *shape)) for suffix, (dtype, shape) in MLX.items()}),
]


@pytest.mark.parametrize(("name", "shape", "parts"), FITTING)
def test_fits(name: str, shape: tuple[int, ...], parts: Parts) -> None:
    plain = name in ("bf16", "f16", "f32")
    assert found(parts) == (StoredScheme(name, "plain" if plain else "quantized"), shape)


def test_every_row_has_an_example() -> None:
    shown = {
        (row.name, row.base)
        for row in SIGNATURES
        for name, _, parts in FITTING
        if row.base in parts and name in {row.name.format(bits=bits) for bits in range(10)}
    }
    assert shown == {(row.name, row.base) for row in SIGNATURES}


NEARLY: list[tuple[str, str, Parts]] = [
    # what it nearly is, what it is, tensors
    ("nvfp4", "odd", NVFP4 | {"input_scale": ONE, "weight_scale": ("F8_E4M3", (256, 8))}),
    ("nvfp4", "odd", NVFP4 | {"weight": FP8, "weight_scale": ("F8_E4M3", (256, 32)), "input_scale": ONE}),
    ("nvfp4", "odd", NVFP4 | {"weight": ("BF16", (256, 256)), "input_scale": ONE}),
    ("nvfp4", "odd", NVFP4 | {"weight_scale_2": ("F32", (256,))}),
    ("nvfp4-w4a16", "nvfp4", NVFP4 | {"input_scale": ONE}),
    ("nvfp4-awq", "odd", NVFP4 | {"pre_quant_scale": ("BF16", (256,)), "weight_scale": ("F8_E4M3", (128, 16))}),
    ("mxfp4", "odd", {"weight": U8, "weight_scale": ("U8", (256, 16))}),
    ("mxfp4", "ct-mxfp4", {"weight_packed": U8, "weight_scale": PER32}),
    ("mxfp4", "nvfp4-w4a16", {"weight": U8, "weight_scale": PER16}),
    ("fp8", "fp8-block-ct", {"weight": ("F8_E4M3", (128, 128)), "weight_scale": ("F32", (1, 1))}),
    ("fp8", "ct-w8a8", {"weight": ("I8", (256, 512)), "weight_scale": ONE}),
    ("fp8", "odd", {"weight": FP8, "weight_scale": ("F32", (2,))}),
    ("fp8-channel", "odd", {"weight": FP8, "weight_scale": ("F32", (512,))}),
    ("fp8-channel", "odd", {"weight": FP8, "weight_scale": ("F32", (256, 4))}),
    ("mxfp8", "odd", {"weight": FP8, "weight_scale": ("U8", (256, 32))}),
    ("mxfp8", "odd", {"weight": FP8, "weight_scale": ("F32", (256, 16))}),
    ("fp8-block-ct", "odd", {"weight": FP8, "weight_scale": ("F32", (2, 5))}),
    ("fp8-block", "fp8-block-ct", {"weight": FP8, "weight_scale": ("F32", (2, 4))}),
    ("fp8-block", "odd", {"weight": FP8, "weight_scale_inv": ("F32", (3, 4))}),
    ("fp8-block", "int8-block", {"weight": ("I8", (256, 512)), "weight_scale_inv": ("F32", (2, 4))}),
    ("mxfp4-inv", "odd", {"weight": U8, "weight_scale_inv": ("F8_E8M0", (256, 16))}),
    ("mxfp4-inv", "odd", {"weight": U8, "weight_scale_inv": ("F8_E5M2", (256, 8))}),
    ("mxfp4-inv-u8", "odd", {"weight": U8, "weight_scale_inv": ("U8", (256, 16))}),
    ("mxfp4-inv-u8", "mxfp4", {"weight": U8, "weight_scale": PER32}),
    ("fp8-pb", "odd", {"weight": FP8, "weight_scale": ("F32", (2, 4, 1, 1))}),
    ("fp8-pb", "odd", {"weight": FP8, "weight_scale": ("F32", (3, 1, 4, 1))}),
    ("dsv4-fp8", "odd", {"weight": FP8, "scale": ("F32", (2, 4))}),
    ("dsv4-fp8", "fp8-block", {"weight": FP8, "weight_scale_inv": ("F8_E8M0", (2, 4))}),
    ("dsv4-fp4", "odd", {"weight": ("I8", (256, 128)), "scale": ("F8_E8M0", (256, 4))}),
    ("ct-nvfp4", "odd", CT_NVFP4 | {"weight_scale": ("F8_E4M3", (256, 32))}),
    ("ct-nvfp4a16", "ct-mxfp4", {"weight_packed": U8, "weight_scale": PER32}),
    ("ct-mxfp4", "odd", {"weight_packed": U8, "weight_scale": ("U8", (256, 16))}),
    ("ct-w4a16", "odd", W4 | {"weight_scale": ("BF16", (128, 4))}),
    ("ct-w4a16", "odd", W4 | {"weight_shape": ("I64", (3,))}),
    ("bnb8", "odd", {"weight": ("I8", (256, 512)), "SCB": ("F32", (512,))}),
    ("modelslim-w8a8", "ct-w8a8", {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (256, 1))}),
    ("ct-w8a8", "odd", {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (512, 1))}),
    ("int8-block", "odd", {"weight": ("I8", (256, 512)), "weight_scale_inv": ("F32", (3, 5))}),
    ("w4afp8", "int8-block", {"weight": ("I8", (256, 512)), "weight_scale_inv": ("BF16", (2, 4))}),
    ("modelopt-int4", "odd", {"weight": ("U8", (128, 512)), "weight_scale": ("F32", (128, 4))}),
    ("gptq4", "awq4", AWQ),
    ("gptq4", "odd", GPTQ | {"scales": ("F16", (4, 128))}),
    ("gptq4", "odd", GPTQ | {"qzeros": ("I32", (4, 31))}),
    ("awq4", "gptq4", GPTQ),
    ("awq4", "odd", AWQ | {"qzeros": ("I32", (4, 16))}),
    ("quark-int4", "odd", {"weight": ("I32", (64, 256)), "weight_scale": ("F8_E4M3", (4, 256))}),
    ("mlx4", "odd", MLX | {"weight": ("I64", (256, 64)), "weight_scale": ONE}),
    ("mlx4", "odd", MLX | {"scales": ("BF16", (128, 8))}),
    ("bnb4", "odd", {"weight": ("U8", (65536, 2)), "weight.absmax": ("U8", (2048,))}),
    ("bnb4", "odd", {"weight": ("U8", (65536, 1))}),
    ("hqq", "other", {"scale": ("F16", (1024, 1)), "zero": ("F16", (1024, 1)), "shape": ("I64", (2,))}),
    ("torchao", "other", {"_weight_scale": ("F32", (256, 1))}),
    ("torchao", "other", {"weight:scale": ("F32", (256, 1))}),
    ("gptoss-mxfp4", "odd", BLOCKS | {"blocks": ("U8", (32, 256, 16, 32))}),
    ("gptoss-mxfp4", "odd", BLOCKS | {"scales": ("U8", (32, 256, 8))}),
]


@pytest.mark.parametrize(("near", "name", "parts"), NEARLY)
def test_nearly_fits(near: str, name: str, parts: Parts) -> None:
    assert scheme(parts).name == name != near


def test_every_row_has_a_near_miss() -> None:
    shown = {near for near, _, _ in NEARLY}
    assert {row.name.format(bits=4) for row in SIGNATURES} <= shown


# --- what is missing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "name", "missing"),
    [
        ({"weight": U8, "weight_scale": PER16, "input_scale": ONE}, "nvfp4", ("weight_scale_2",)),
        ({"weight": U8, "weight_scale_2": ONE, "input_scale": ONE}, "nvfp4", ("weight_scale",)),
        ({"weight": U8, "weight_scale": PER16}, "nvfp4-w4a16", ("weight_scale_2",)),
        ({"weight_scale": PER16, "weight_scale_2": ONE, "input_scale": ONE}, "nvfp4", ("weight",)),
        ({"weight": FP8}, "fp8", ("weight_scale",)),
        ({"weight": FP8, "input_scale": ONE}, "fp8", ("weight_scale",)),
        ({"weight_scale_inv": ("F8_E8M0", (2, 4))}, "fp8-block", ("weight",)),
        ({"weight_packed": U8, "weight_scale": PER16}, "ct-nvfp4a16", ("weight_global_scale",)),
        (
            {"weight_packed": U8, "weight_scale": PER16, "input_global_scale": ONE},
            "ct-nvfp4",
            ("weight_global_scale",),
        ),
        ({"weight_packed": W4["weight_packed"], "weight_scale": W4["weight_scale"]}, "ct-w4a16", ("weight_shape",)),
        ({"weight_packed": W4["weight_packed"]}, "ct-w4a16", ("weight_scale", "weight_shape")),
        ({"qweight": GPTQ["qweight"], "scales": GPTQ["scales"]}, "gptq4", ("qzeros",)),
        ({"qweight": AWQ["qweight"], "scales": AWQ["scales"]}, "awq4", ("qzeros",)),
        ({"qweight": ("I32", (64, 256)), "g_idx": ("I32", (512,))}, "gptq4", ("scales", "qzeros")),
    ],
)
def test_missing(parts: Parts, name: str, missing: tuple[str, ...]) -> None:
    assert scheme(parts) == StoredScheme(name, "quantized", missing)


# --- what does not fit, what is no proof, what is too much ------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "note"),
    [
        ({"weight": FP8, "weight_scale": ("F8_E4M3", (256, 32)), "weight_scale_2": ONE}, "it was never packed"),
        ({"weight": ("BF16", (4, 4)), "weight_packed": ("U8", (4, 2))}, "both `weight` and `weight_packed`"),
        ({"weight": ("BF16", (4, 4)), "qweight": ("I32", (4, 2))}, "both `weight` and `qweight`"),
        ({"weight": U8}, "`weight` U8 [256, 128] without any scale"),
        ({"weight_packed": U8}, "without any scale"),
        ({"weight": ("BF16", (4, 4)), "weight_scale": ONE}, "a full-precision weight beside `weight_scale`"),
        ({"weight_scale": ONE}, "`weight_scale` without a weight"),
        ({"scales": ("F16", (4, 8)), "qzeros": ("I32", (4, 1))}, "`qzeros` without a weight"),
        (
            {"weight": FP8, "scale": ("F32", (2, 4))},
            "`scale` F32 [2, 4] fits no scheme for `weight` F8_E4M3 [256, 512]",
        ),
        ({"weight": U8, "weight_scale": ("F32", (7, 7))}, "`weight_scale` F32 [7, 7] fits no scheme for `weight` U8"),
    ],
)
def test_odd(parts: Parts, note: str) -> None:
    said = scheme(parts)
    assert (said.name, said.kind) == ("odd", "odd")
    assert note in said.note


@pytest.mark.parametrize("suffix", ["input_scale", "k_scale", "v_scale", "q_scale", "kv_scale", "bias", "sinks"])
def test_no_proof(suffix: str) -> None:
    assert scheme({"weight": ("BF16", (4, 4)), suffix: ONE}) == StoredScheme("bf16", "plain")
    assert scheme({suffix: ONE}) == StoredScheme("other", "other")


@pytest.mark.parametrize(
    "parts",
    [
        {"weight": ("BF16", (4096,))},
        {"weight": ("BF16", (512, 1, 4))},
        {"weight": ("F32", (64, 3, 2, 16, 16))},
        {"weight": ("BF16", (64, 3, 14, 14)), "bias": ("BF16", (64,))},
        {"A_log": ("F32", (1, 1, 4, 1)), "dt_bias": ("BF16", (4,))},
        {"hc_attn_fn": ("F32", (24, 1024))},
        {"weight": ("I64", (512, 2))},
        {"weight": ("U8", (4,))},
        {},
    ],
)
def test_other(parts: Parts) -> None:
    assert found(parts) == (StoredScheme("other", "other"), ())


def test_leaked_quantizer_state() -> None:
    leaked = {"weight_quantizer._amax": ONE, "input_quantizer._double_scale": ONE}
    names = ("input_quantizer._double_scale", "weight_quantizer._amax")
    assert scheme(NVFP4 | leaked) == StoredScheme("nvfp4-w4a16", "quantized", extra=names)
    assert scheme({"weight": ("BF16", (4, 4))} | leaked) == StoredScheme("bf16", "plain", extra=names)
    assert scheme(leaked).kind == "odd"
    assert scheme(leaked).extra == names


def test_tensors_that_a_scheme_has_no_use_for() -> None:
    plain = {"weight": ("BF16", (4, 4)), "pre_quant_scale": ("BF16", (4,))}
    assert scheme(plain) == StoredScheme("bf16", "plain", extra=("pre_quant_scale",))
    both = {"weight": FP8, "weight_scale_inv": ("F32", (2, 4)), "weight_scale": ("F32", (2, 4))}
    assert scheme(both) == StoredScheme("fp8-block", "quantized", extra=("weight_scale",))
    assert scheme(GPTQ | {"weight_scale": ONE}).extra == ("weight_scale",)


def test_the_order_of_tensors_does_not_matter() -> None:
    shuffle = random.Random(7)
    for _, _, parts in [*FITTING, *NEARLY]:  # type: ignore[list-item]
        for _ in range(3):
            items = list(parts.items())
            shuffle.shuffle(items)
            assert found(dict(items)) == found(parts)


def test_every_base_but_the_plain_one_is_a_clue() -> None:
    assert set(BASES) - CLUES == {"weight", "blocks"}
