"""Storage schemes by their signature: which tensors, of which dtypes, in which shapes.

`SIGNATURES` has a row for each layout that exporters write. Names of schemes are this project's own; the engines'
models use the same. Sources of the layouts: the loaders of vLLM 0.33 and SGLang 0.5.23, and what ModelOpt 0.47,
compressed-tensors 0.20, transformers 5.24, Quark, ModelSlim, AutoGPTQ, AutoAWQ, bitsandbytes, HQQ, torchao and MLX
export.
"""

from __future__ import annotations

from collections.abc import Mapping

from mtpfix.frozen import NamedTuple, dataclass
from mtpfix.storage.layouts import (
    Fit,
    Solve,
    anything,
    awq,
    beside,
    blocks,
    blocks_4d,
    blocks_of_32,
    column_of_bytes,
    columns_hold,
    each_column,
    each_row,
    each_row_or_one,
    gptq,
    grouped,
    one_number,
    pair,
    per,
    rows_hold,
    scalar,
    unknown,
    words,
    words_or_zero_points,
)

Words = frozenset[str]


def _words(text: str) -> Words:
    return frozenset(text.split())


PLAIN_DTYPES = {"BF16": "bf16", "F16": "f16", "F32": "f32", "F64": "f64"}
FLOAT = frozenset(PLAIN_DTYPES)
FP8 = _words("F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ")
E4M3 = _words("F8_E4M3")
E8M0 = _words("F8_E8M0")
EXPONENT = _words("U8 F8_E8M0")
U8, I8, I32, U32 = _words("U8"), _words("I8"), _words("I32"), _words("U32")
ANY = _words("")

# The tensor that holds a module's numbers; a module has one of them.
BASES = ("weight", "weight_packed", "qweight", "W_q", "blocks", "weight:qdata", "_weight_qdata", "weight:_data")

# Scales of the KV cache and of activations prove nothing: exporters write them beside plain weights too.
KV_SCALES = _words("k_scale v_scale q_scale kv_scale prob_scale k_zero_point v_zero_point q_zero_point")
ACTIVATION = _words(
    "input_scale input_scale_2 input_scale_inv input_zero_point input_global_scale activation_scale azp_adj"
)
# What says that a module is, or was meant to be, quantized.
CLUES = _words(
    """weight_packed weight_scale weight_scale_inv weight_scale_2 weight_global_scale weight_zero_point weight_shape
    weight_g_idx weight_offset qweight qzeros g_idx SCB deq_scale quant_bias pre_quant_scale weight.absmax
    weight.quant_map W_q weight:qdata _weight_qdata weight:_data"""
)
# Names that mean something in a signature; beside one that has no use for them they are out of place.
VOCABULARY = CLUES | ACTIVATION | {"scale", "scales", "biases"}


class Form(NamedTuple):
    """What a tensor of a signature must look like; no dtypes: any."""

    dtypes: Words
    fits: Fit


@dataclass(frozen=True, slots=True)
class Signature:
    """A row of the table.

    name    of the scheme; `{bits}` stands for what the solver found
    base    the tensor that holds the numbers, and the dtypes that it may have
    solve   the logical size from the tensors at hand, or None where they contradict the row
    needs   the other tensors, by suffix
    may     what the layout allows on top
    proof   without one of these there is no evidence for the row; None: one of `needs`; empty: the base is enough
    """

    name: str
    base: str
    dtypes: Words
    solve: Solve
    needs: Mapping[str, Form]
    may: Words = ANY
    proof: Words | None = None

    @property
    def evidence(self) -> Words:
        return frozenset(self.needs) if self.proof is None else self.proof


_W, _W2, _P2 = columns_hold(1), columns_hold(2), columns_hold(2, "weight_packed")
_W2_INV = beside("weight_scale_inv", _W2)
_ONE = Form(FLOAT, one_number)
_SCALAR = Form(FLOAT, scalar)
_ROWS = Form(FLOAT, each_row)
_BLOCKS = Form(FLOAT | E8M0, blocks)
_GROUPS = Form(FLOAT, grouped)
_PER_16 = Form(E4M3, per(16))
_PER_32 = Form(EXPONENT, per(32))

_NVFP4 = {"weight_scale": _PER_16, "weight_scale_2": _ONE}
_CT_NVFP4 = {"weight_scale": _PER_16, "weight_global_scale": _ONE}
_QZEROS = {"scales": Form(FLOAT, anything), "qzeros": Form(I32, anything)}
_INPUT = _words("input_scale input_scale_2")
_SVD = _words("svdquant_lora_a svdquant_lora_b")
_MODELSLIM = _words("weight_offset deq_scale quant_bias weight_scale_second scale_bias")
_BNB = _words(
    """weight.quant_map weight.nested_absmax weight.nested_quant_map weight.quant_state.bitsandbytes__nf4
    weight.quant_state.bitsandbytes__fp4"""
)
_HQQ = _words(
    """W_s W_z W_s_q W_z_q scale zero meta scale_q zero_q meta_scale meta_zero shape nbits group_size axis channel_wise
    optimize round_zero packing unpack_view_dtype view_as_float encoded_state_dict stores_quant_config compute_dtype
    quant_zero quant_scale offload_meta"""
)

# Groups of 64 unless asked otherwise.
_MLX_CHOICES = tuple((bits, group) for group in (64, 32, 128) for bits in (4, 8, 2, 3, 5, 6))
_MLX_FLOATS = ((4, 32), (4, 16), (8, 32))  # mxfp4, nvfp4, mxfp8

SIGNATURES = (
    # 4-bit floats: ModelOpt, Quark
    Signature(
        "nvfp4-awq",
        "weight",
        U8,
        _W2,
        _NVFP4 | {"pre_quant_scale": Form(FLOAT, each_column)},
        _INPUT | _SVD,
        proof=_words("pre_quant_scale"),
    ),
    Signature("nvfp4", "weight", U8, _W2, _NVFP4 | {"input_scale": _ONE}, _INPUT, proof=frozenset(_NVFP4)),
    Signature(  # Quark
        "nvfp4", "weight", U8, _W2, _NVFP4 | {"input_scale_2": _ONE}, proof=_words("input_scale_2")
    ),
    Signature("nvfp4-w4a16", "weight", U8, _W2, _NVFP4),
    Signature("mxfp4", "weight", U8, _W2, {"weight_scale": _PER_32}, _INPUT),
    # Ling 3 beside FP8 blocks: the scale as a number or as the byte of its exponent; alone it may be that of blocks
    Signature(
        "mxfp4-inv", "weight", U8 | I8, _W2_INV, {"weight_scale_inv": Form(E8M0, per(32))}, proof=_words("weight")
    ),
    Signature(
        "mxfp4-inv-u8", "weight", U8 | I8, _W2_INV, {"weight_scale_inv": Form(U8, per(32))}, proof=_words("weight")
    ),
    # 8-bit floats: ModelOpt, compressed-tensors, transformers, Quark
    Signature("fp8", "weight", FP8, _W, {"weight_scale": _SCALAR}, ACTIVATION, proof=ANY),
    Signature("fp8", "weight", FP8, _W, {"weight_scale_inv": _SCALAR}, ACTIVATION),
    Signature("fp8-channel", "weight", FP8, _W, {"weight_scale": _ROWS}, ACTIVATION),
    Signature("mxfp8", "weight", FP8, _W, {"weight_scale": _PER_32}, ACTIVATION),
    Signature("fp8-block", "weight", FP8, _W, {"weight_scale_inv": _BLOCKS}, ACTIVATION),
    Signature("fp8-block-ct", "weight", FP8, _W, {"weight_scale": _BLOCKS}, ACTIVATION),
    Signature("fp8-pb", "weight", FP8, _W, {"weight_scale": Form(FLOAT, blocks_4d)}, ACTIVATION),
    # DeepSeek-V4's own layout, whose scale is called just that
    Signature("dsv4-fp8", "weight", FP8, _W, {"scale": Form(E8M0, blocks)}),
    Signature("dsv4-fp4", "weight", I8 | U8, _W2, {"scale": Form(E8M0, per(32))}),
    # packed by compressed-tensors
    Signature(
        "ct-nvfp4",
        "weight_packed",
        U8,
        _P2,
        _CT_NVFP4 | {"input_global_scale": _ONE},
        proof=frozenset(_CT_NVFP4),
    ),
    Signature("ct-nvfp4a16", "weight_packed", U8, _P2, _CT_NVFP4),
    Signature("ct-mxfp4", "weight_packed", U8, _P2, {"weight_scale": _PER_32}),
    Signature(
        "ct-w{bits}a16",
        "weight_packed",
        I32,
        words_or_zero_points,
        {"weight_scale": _GROUPS, "weight_shape": Form(_words("I64 I32"), pair)},
        _words("weight_zero_point weight_g_idx") | ACTIVATION,
        proof=ANY,
    ),
    # 8-bit integers
    Signature("bnb8", "weight", I8, _W, {"SCB": _ROWS}, _words("weight_format")),
    Signature("modelslim-w8a8", "weight", I8, _W, {}, _MODELSLIM | ACTIVATION | {"weight_scale"}, proof=_MODELSLIM),
    Signature(
        "ct-w8a8",
        "weight",
        I8,
        _W,
        {"weight_scale": Form(FLOAT, each_row_or_one)},
        ACTIVATION | {"weight_zero_point"},
    ),
    Signature("int8-block", "weight", I8, _W, {"weight_scale_inv": Form(FLOAT, blocks)}, ACTIVATION),
    # 4-bit integers
    Signature("w4afp8", "weight", I8, _W2, {"weight_scale_inv": Form(FLOAT, per(128))}, ACTIVATION),
    Signature(
        "modelopt-int4",
        "weight",
        U8,
        rows_hold(2),
        {"weight_scale": _GROUPS},
        ACTIVATION | {"pre_quant_scale", "weight_scale_2"},
    ),
    Signature("gptq{bits}", "qweight", I32, gptq, _QZEROS, _words("g_idx"), proof=ANY),
    Signature("awq{bits}", "qweight", I32, awq, _QZEROS),
    Signature(
        "quark-int4",
        "weight",
        I32,
        unknown,
        {"weight_scale": Form(FLOAT, anything)},
        ACTIVATION | {"weight_zero_point"},
    ),
    Signature(
        "mlx{bits}",
        "weight",
        U32,
        words("weight", "scales", _MLX_CHOICES),
        {"scales": Form(FLOAT, grouped)},
        _words("biases"),
    ),
    Signature("mlx{bits}", "weight", U32, words("weight", "scales", _MLX_FLOATS), {"scales": Form(U8, grouped)}),
    # layouts that do not show the logical shape
    Signature("bnb4", "weight", U8, column_of_bytes, {"weight.absmax": Form(ANY, anything)}, _BNB),
    Signature("hqq", "W_q", ANY, unknown, {}, _HQQ, proof=ANY),
    Signature("torchao", "weight:qdata", ANY, unknown, {}, proof=ANY),
    Signature("torchao", "_weight_qdata", ANY, unknown, {}, proof=ANY),
    Signature("torchao", "weight:_data", ANY, unknown, {}, proof=ANY),
    # gpt-oss: fused experts, `gate_up_proj_blocks` beside `gate_up_proj_scales`
    Signature("gptoss-mxfp4", "blocks", U8, blocks_of_32, {"scales": _PER_32}),
)
