"""Storage schemes by their signature: which tensors, of which dtypes, in which shapes. Pure.

`SIGNATURES` has a row for each layout that exporters write. A layout is told from a module's header rows alone; where
those cannot tell (4 from 8 bits in a packed weight, say) the row's solver says what it assumes. Sources of the layouts:
the loaders of vLLM 0.33 and SGLang 0.5.23 and the exporters ModelOpt 0.47, compressed-tensors 0.20, transformers 5.24,
Quark, ModelSlim, AutoGPTQ, AutoAWQ, bitsandbytes, HQQ, torchao and MLX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from mtpfix.model import Cell, StoredScheme

Shape = tuple[int, ...]
Parts = Mapping[str, Cell]

PLAIN_DTYPES = {"BF16": "bf16", "F16": "f16", "F32": "f32", "F64": "f64"}
FLOAT = frozenset(PLAIN_DTYPES)
FP8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
E4M3 = frozenset({"F8_E4M3"})
EXPONENT = frozenset({"U8", "F8_E8M0"})
E8M0 = frozenset({"F8_E8M0"})
U8 = frozenset({"U8"})
I8 = frozenset({"I8"})
I32 = frozenset({"I32"})
U32 = frozenset({"U32"})
I64 = frozenset({"I64"})
ANY: frozenset[str] = frozenset()

# Scales of the KV cache and of activations prove nothing: exporters write them beside plain weights too.
KV_SCALES = frozenset(
    {"k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale", "k_zero_point", "v_zero_point", "q_zero_point"}
)
ACTIVATION = frozenset(
    {"input_scale", "input_scale_2", "input_scale_inv", "input_zero_point", "input_global_scale", "activation_scale"}
)
# What says that a module is, or was meant to be, quantized.
CLUES = frozenset(
    """weight_packed weight_scale weight_scale_inv weight_scale_2 weight_global_scale weight_zero_point weight_shape
    weight_g_idx weight_offset qweight qzeros g_idx SCB deq_scale quant_bias pre_quant_scale weight.absmax
    weight.quant_map W_q weight:qdata _weight_qdata weight:_data""".split()
)
# Names that have a meaning in a signature, but not outside of it.
_WORDS = CLUES | ACTIVATION | {"scale", "scales", "biases"}
BASES = ("weight", "weight_packed", "qweight", "W_q", "blocks", "weight:qdata", "_weight_qdata", "weight:_data")
# Plain weights with three dimensions are stacks of experts when they are matrices, and convolutions when not.
MIN_STACK_SIDE = 16


class Dims(NamedTuple):
    """The logical size of a weight and the bits of a stored number (0: the scheme's name says them)."""

    out: int
    in_: int
    bits: int = 0


Fit = Callable[[Shape, Dims], bool]
Solve = Callable[[Parts], Dims | None]


class Form(NamedTuple):
    """What a tensor of a signature must look like; no dtypes: any."""

    dtypes: frozenset[str]
    fits: Fit


@dataclass(frozen=True, slots=True)
class Signature:
    """A row of the table.

    name    of the scheme; `{bits}` stands for what the solver found
    base    suffix of the tensor that holds the numbers, `dtypes` those it may have
    solve   the logical size from the tensors at hand, or None where they contradict the row
    needs   the other tensors, by suffix
    may     suffixes that the layout allows on top
    proof   without one of these there is no evidence for the row; empty: the base is evidence enough
    """

    name: str
    base: str
    dtypes: frozenset[str]
    solve: Solve
    needs: Mapping[str, Form] = field(default_factory=dict)
    may: frozenset[str] = frozenset()
    proof: frozenset[str] = frozenset()


# --- shapes -----------------------------------------------------------------------------------------------------------


def _scalar(shape: Shape, _: Dims) -> bool:
    return shape in ((), (1,))


def _one_number(shape: Shape, _: Dims) -> bool:
    return math.prod(shape) == 1


def _row_each(shape: Shape, dims: Dims) -> bool:
    return shape in ((dims.out,), (dims.out, 1))


def _row_or_one(shape: Shape, dims: Dims) -> bool:
    return _one_number(shape, dims) or _row_each(shape, dims)


def _column_each(shape: Shape, dims: Dims) -> bool:
    return shape == (dims.in_,)


def _any(_: Shape, __: Dims) -> bool:
    return True


def _per(group: int) -> Fit:
    """One number for each row and each `group` columns."""
    return lambda shape, dims: shape == (dims.out, _ceil(dims.in_, group))


def _grouped(shape: Shape, dims: Dims) -> bool:
    return len(shape) == 2 and shape[0] == dims.out and _divides(dims.in_, shape[1])


def _block(shape: Shape, dims: Dims) -> bool:
    return len(shape) == 2 and _divides(dims.out, shape[0]) and _divides(dims.in_, shape[1])


def _block_4d(shape: Shape, dims: Dims) -> bool:
    return len(shape) == 4 and shape[1] == shape[3] == 1 and _block((shape[0], shape[2]), dims)


def _divides(size: int, pieces: int) -> bool:
    """Whether blocks of some power of two (8 to 1024), or one block, cut `size` into so many pieces."""
    return pieces == 1 or any(_ceil(size, 1 << power) == pieces for power in range(3, 11))


def _ceil(size: int, step: int) -> int:
    return -(-size // step)


# --- logical sizes ----------------------------------------------------------------------------------------------------


def _columns_hold(count: int, base: str = "weight") -> Solve:
    """[out, in / count]: each stored number holds `count` weights."""

    def solve(parts: Parts) -> Dims | None:
        shape = parts[base].shape
        return Dims(shape[0], shape[1] * count) if len(shape) == 2 else None

    return solve


def _rows_hold(count: int) -> Solve:
    """[out / count, in]."""

    def solve(parts: Parts) -> Dims | None:
        shape = parts["weight"].shape
        return Dims(shape[0] * count, shape[1]) if len(shape) == 2 else None

    return solve


def _packed_words(base: str, scale: str, groups: Iterable[int]) -> Solve:
    """[out, in * bits / 32], one scale a group: the bits for which the group's size is one that exporters use.

    Sizes are tried in the order given; one scale a row, or no scale, is taken for 4 bits.
    """

    def solve(parts: Parts) -> Dims | None:
        shape = parts[base].shape
        if len(shape) != 2:
            return None
        for bits in _bits(shape[1], _columns(parts.get(scale)), groups):
            return Dims(shape[0], shape[1] * 32 // bits, bits)
        return Dims(shape[0], shape[1] * 8, 4)

    return solve


def _columns(scale: Cell | None) -> int:
    return scale.shape[1] if scale is not None and len(scale.shape) == 2 else 0


def _bits(words: int, scales: int, groups: Iterable[int]) -> Iterable[int]:
    if scales > 1:
        for group in groups:
            for bits in (4, 8, 2, 3, 5, 6):
                if _ceil(words * 32 // bits, group) == scales:
                    yield bits


def _packed_or_zero_point(parts: Parts) -> Dims | None:
    """As `_packed_words`; asymmetric packing says the bits itself: weight_zero_point is [out * bits / 32, groups]."""
    dims = _packed_words("weight_packed", "weight_scale", (128, 64, 32, 256, 16))(parts)
    zero = parts.get("weight_zero_point")
    if dims is None or zero is None or zero.dtype != "I32" or len(zero.shape) != 2:
        return dims
    bits = _ratio(zero.shape[0] * 32, dims.out)
    return Dims(dims.out, parts["weight_packed"].shape[1] * 32 // bits, bits) if bits else None


def _gptq(parts: Parts) -> Dims | None:
    """qweight [in * bits / 32, out], scales [groups, out], qzeros [groups, out * bits / 32], g_idx [in]."""
    rows, out = _matrix(parts, "qweight")
    if not rows or _matrix(parts, "scales")[1] not in (0, out):
        return None
    bits = _ratio(_matrix(parts, "qzeros")[1] * 32, out)
    order = parts.get("g_idx")
    if order is not None and len(order.shape) == 1:
        bits = bits or _ratio(rows * 32, order.shape[0])
    elif not bits and "qzeros" not in parts:
        bits = 4
    return Dims(out, rows * 32 // bits, bits) if bits else None


def _awq(parts: Parts) -> Dims | None:
    """qweight [in, out * bits / 32], scales [groups, out], qzeros [groups, out * bits / 32]."""
    in_, words = _matrix(parts, "qweight")
    out = _matrix(parts, "scales")[1]
    bits = _ratio(words * 32, out)
    if not bits or _matrix(parts, "qzeros")[1] not in (0, words):
        return None
    return Dims(out, in_, bits)


def _matrix(parts: Parts, suffix: str) -> tuple[int, int]:
    cell = parts.get(suffix)
    return (cell.shape[0], cell.shape[1]) if cell is not None and len(cell.shape) == 2 else (0, 0)


def _ratio(total: int, share: int) -> int:
    """total / share where that is a number of bits below 16, else 0."""
    if not share or total % share:
        return 0
    bits = total // share
    return bits if 1 < bits < 16 else 0


def _unknown_size(parts: Parts) -> Dims | None:
    return Dims(0, 0)


def _column(parts: Parts) -> Dims | None:
    """bitsandbytes stores 4-bit weights as one column of bytes; the logical shape is in the weights only."""
    shape = parts["weight"].shape
    return Dims(0, 0) if len(shape) == 2 and shape[1] == 1 else None


def _blocks_of_32(parts: Parts) -> Dims | None:
    """[out, in / 32, 16]: gpt-oss."""
    shape = parts["blocks"].shape
    return Dims(shape[0], shape[1] * 32) if len(shape) == 3 and shape[2] == 16 else None


# --- the table --------------------------------------------------------------------------------------------------------

_W = _columns_hold(1)
_W2 = _columns_hold(2)
_PACKED2 = _columns_hold(2, "weight_packed")
_ANYTHING = Form(ANY, _any)
_NUMBER = Form(FLOAT, _one_number)
_NVFP4 = {"weight_scale": Form(E4M3, _per(16)), "weight_scale_2": _NUMBER}
_CT_NVFP4 = {"weight_scale": Form(E4M3, _per(16)), "weight_global_scale": _NUMBER}
_AWQ_SCALE = {"pre_quant_scale": Form(FLOAT, _column_each)}
_SVD = frozenset({"svdquant_lora_a", "svdquant_lora_b"})
_INPUT2 = frozenset({"input_scale", "input_scale_2"})
_BNB4 = frozenset(
    {
        "weight.quant_map",
        "weight.nested_absmax",
        "weight.nested_quant_map",
        "weight.quant_state.bitsandbytes__nf4",
        "weight.quant_state.bitsandbytes__fp4",
    }
)
_HQQ = frozenset(
    """W_s W_z W_s_q W_z_q scale zero meta scale_q zero_q meta_scale meta_zero shape nbits group_size axis channel_wise
    optimize round_zero packing unpack_view_dtype view_as_float encoded_state_dict stores_quant_config compute_dtype
    quant_zero quant_scale offload_meta""".split()
)
_TORCHAO = frozenset(
    """weight:qdata weight:_data weight:scale weight:zero_point weight:scale_and_zero weight:int_data _weight_qdata
    _weight_scale _weight_zero_point _weight_scale_and_zero _weight_int_data weight:block_scale _weight_block_scale
    weight:per_tensor_scale _weight_per_tensor_scale weight:act_pre_scale _weight_act_pre_scale""".split()
)
_MODELSLIM = frozenset(
    """weight_scale weight_offset deq_scale quant_bias input_scale input_offset scale_bias weight_scale_second
    weight_offset_second""".split()
)
_MODELSLIM_PROOF = frozenset({"weight_offset", "deq_scale", "quant_bias", "weight_scale_second", "scale_bias"})

SIGNATURES = (
    # 4-bit floats: ModelOpt, Quark
    Signature(
        "nvfp4-awq", "weight", U8, _W2, _NVFP4 | _AWQ_SCALE, _INPUT2 | _SVD, frozenset({"pre_quant_scale"})
    ),
    Signature("nvfp4", "weight", U8, _W2, _NVFP4 | {"input_scale": _NUMBER}, _INPUT2, frozenset(_NVFP4)),
    Signature("nvfp4-w4a16", "weight", U8, _W2, _NVFP4, frozenset(), frozenset(_NVFP4)),
    Signature(
        "mxfp4",
        "weight",
        U8,
        _W2,
        {"weight_scale": Form(EXPONENT, _per(32))},
        frozenset({"input_scale"}),
        frozenset({"weight_scale"}),
    ),
    # 8-bit floats: ModelOpt, compressed-tensors, transformers, Quark
    Signature("fp8", "weight", FP8, _W, {"weight_scale": Form(FLOAT, _scalar)}, ACTIVATION),
    Signature(
        "fp8",
        "weight",
        FP8,
        _W,
        {"weight_scale_inv": Form(FLOAT, _scalar)},
        ACTIVATION,
        frozenset({"weight_scale_inv"}),
    ),
    Signature(
        "fp8-channel",
        "weight",
        FP8,
        _W,
        {"weight_scale": Form(FLOAT, _row_each)},
        ACTIVATION,
        frozenset({"weight_scale"}),
    ),
    Signature(
        "fp8-block",
        "weight",
        FP8,
        _W,
        {"weight_scale_inv": Form(FLOAT | E8M0, _block)},
        ACTIVATION,
        frozenset({"weight_scale_inv"}),
    ),
    Signature(
        "mxfp8",
        "weight",
        FP8,
        _W,
        {"weight_scale": Form(EXPONENT, _per(32))},
        ACTIVATION,
        frozenset({"weight_scale"}),
    ),
    Signature(
        "fp8-block-ct",
        "weight",
        FP8,
        _W,
        {"weight_scale": Form(FLOAT | E8M0, _block)},
        ACTIVATION,
        frozenset({"weight_scale"}),
    ),
    Signature(
        "fp8-pb", "weight", FP8, _W, {"weight_scale": Form(FLOAT, _block_4d)}, ACTIVATION, frozenset({"weight_scale"})
    ),
    # DeepSeek-V4's own layout: the scale is called `scale`
    Signature("dsv4-fp8", "weight", FP8, _W, {"scale": Form(E8M0, _block)}, frozenset(), frozenset({"scale"})),
    Signature("dsv4-fp4", "weight", I8 | U8, _W2, {"scale": Form(E8M0, _per(32))}, frozenset(), frozenset({"scale"})),
    # compressed-tensors, packed
    Signature(
        "ct-nvfp4",
        "weight_packed",
        U8,
        _PACKED2,
        _CT_NVFP4 | {"input_global_scale": _NUMBER},
        frozenset(),
        frozenset(_CT_NVFP4),
    ),
    Signature("ct-nvfp4a16", "weight_packed", U8, _PACKED2, _CT_NVFP4, frozenset(), frozenset(_CT_NVFP4)),
    Signature(
        "ct-mxfp4",
        "weight_packed",
        U8,
        _PACKED2,
        {"weight_scale": Form(EXPONENT, _per(32))},
        frozenset(),
        frozenset({"weight_scale"}),
    ),
    Signature(
        "ct-w{bits}a16",
        "weight_packed",
        I32,
        _packed_or_zero_point,
        {"weight_scale": Form(FLOAT, _grouped), "weight_shape": Form(I64 | I32, lambda shape, _: shape == (2,))},
        frozenset({"weight_zero_point", "weight_g_idx"}) | ACTIVATION,
    ),
    # 8-bit integers
    Signature("bnb8", "weight", I8, _W, {"SCB": Form(FLOAT, _row_each)}, frozenset({"weight_format"}), frozenset({"SCB"})),
    Signature("modelslim-w8a8", "weight", I8, _W, {}, _MODELSLIM, _MODELSLIM_PROOF),
    Signature(
        "ct-w8a8",
        "weight",
        I8,
        _W,
        {"weight_scale": Form(FLOAT, _row_or_one)},
        ACTIVATION | {"weight_zero_point", "azp_adj"},
        frozenset({"weight_scale"}),
    ),
    Signature(
        "int8-block",
        "weight",
        I8,
        _W,
        {"weight_scale_inv": Form(FLOAT, _block)},
        ACTIVATION,
        frozenset({"weight_scale_inv"}),
    ),
    Signature(
        "w4afp8",
        "weight",
        I8,
        _W2,
        {"weight_scale_inv": Form(FLOAT, _per(128))},
        ACTIVATION,
        frozenset({"weight_scale_inv"}),
    ),
    # 4-bit integers
    Signature(
        "modelopt-int4",
        "weight",
        U8,
        _rows_hold(2),
        {"weight_scale": Form(FLOAT, _grouped)},
        ACTIVATION | {"pre_quant_scale", "weight_scale_2"},
        frozenset({"weight_scale"}),
    ),
    Signature(
        "gptq{bits}",
        "qweight",
        I32,
        _gptq,
        {"scales": Form(FLOAT, _any), "qzeros": Form(I32, _any)},
        frozenset({"g_idx"}),
    ),
    Signature(
        "awq{bits}", "qweight", I32, _awq, {"scales": Form(FLOAT, _any), "qzeros": Form(I32, _any)}, frozenset()
    ),
    Signature(
        "quark-int4",
        "weight",
        I32,
        _unknown_size,
        {"weight_scale": Form(FLOAT, _any)},
        frozenset({"weight_zero_point"}) | ACTIVATION,
        frozenset({"weight_scale"}),
    ),
    Signature(
        "mlx{bits}",
        "weight",
        U32,
        _packed_words("weight", "scales", (64, 32, 128)),
        {"scales": Form(FLOAT | U8, _grouped)},
        frozenset({"biases"}),
        frozenset({"scales"}),
    ),
    # layouts whose numbers do not show the shape
    Signature("bnb4", "weight", U8, _column, {"weight.absmax": _ANYTHING}, _BNB4, _BNB4 | {"weight.absmax"}),
    Signature("hqq", "W_q", ANY, _unknown_size, {}, _HQQ),
    Signature("torchao", "weight:qdata", ANY, _unknown_size, {}, _TORCHAO),
    Signature("torchao", "_weight_qdata", ANY, _unknown_size, {}, _TORCHAO),
    Signature("torchao", "weight:_data", ANY, _unknown_size, {}, _TORCHAO),
    # gpt-oss: fused experts, `gate_up_proj_blocks` beside `gate_up_proj_scales`
    Signature(
        "gptoss-mxfp4",
        "blocks",
        U8,
        _blocks_of_32,
        {"scales": Form(EXPONENT, _per(32))},
        frozenset(),
        frozenset({"scales"}),
    ),
)


# --- reading the table ------------------------------------------------------------------------------------------------


class _Match(NamedTuple):
    signature: Signature
    dims: Dims
    missing: tuple[str, ...]
    extra: tuple[str, ...]


@lru_cache(maxsize=1 << 14)
def classify(cells: tuple[Cell, ...]) -> tuple[StoredScheme, Shape]:
    """How a module with these tensors is stored, and its logical shape: (out, in), (experts, out, in) or ().

    The order of the tensors does not matter.
    """
    parts = {cell.suffix: cell for cell in sorted(cells) if cell.suffix not in KV_SCALES}
    leaked = tuple(suffix for suffix in parts if is_leaked(suffix))
    parts = {suffix: cell for suffix, cell in parts.items() if suffix not in leaked}
    experts, parts = _unstacked(parts)
    scheme, dims = _scheme(parts, experts)
    if leaked:
        scheme = _with_leaks(scheme, leaked)
    return scheme, (*experts, *dims) if dims else ()


def is_leaked(suffix: str) -> bool:
    """Whether a tensor is a quantizer's inner state, which an export must not hold."""
    return "_quantizer" in suffix or suffix.endswith(("_amax", "_double_scale"))


def _with_leaks(scheme: StoredScheme, leaked: tuple[str, ...]) -> StoredScheme:
    extra = tuple(sorted({*scheme.extra, *leaked}))
    if scheme.kind == "other":
        return _odd("a quantizer's inner state without a weight", extra)
    return StoredScheme(scheme.name, scheme.kind, scheme.missing, extra, scheme.note)


def _unstacked(parts: Parts) -> tuple[Shape, dict[str, Cell]]:
    """The number of stacked experts as (experts,), or (), and the tensors as one expert has them."""
    for base, flat in (("weight", 2), ("weight_packed", 2), ("qweight", 2), ("blocks", 3)):
        cell = parts.get(base)
        if cell is not None and len(cell.shape) == flat + 1:
            experts = cell.shape[0]
            return (experts,), {suffix: _one_of(experts, each) for suffix, each in parts.items()}
    return (), dict(parts)


def _one_of(experts: int, cell: Cell) -> Cell:
    return cell._replace(shape=cell.shape[1:]) if cell.shape[:1] == (experts,) else cell


def _scheme(parts: Parts, experts: Shape) -> tuple[StoredScheme, Shape]:
    bases = [base for base in BASES if base in parts]
    if len(bases) > 1:
        return _odd(f"both `{bases[0]}` and `{bases[1]}` are stored"), ()
    matches = [found for row in SIGNATURES if (found := _match(row, parts, with_base=bool(bases))) is not None]
    best = min(matches, key=lambda found: (len(found.extra), len(found.missing)), default=None)
    if best is not None and (bases or _alone(best, matches)):
        return _quantized(best)
    if bases and _floats(parts, bases[0]):
        return _plain(parts, experts)
    return _unmatched(parts, bases), ()


def _match(row: Signature, parts: Parts, *, with_base: bool) -> _Match | None:
    base = parts.get(row.base)
    if (base is not None) != with_base or (row.proof or not with_base) and parts.keys().isdisjoint(row.proof):
        return None
    if base is not None and row.dtypes and base.dtype not in row.dtypes:
        return None
    dims = row.solve(parts) if base is not None else None
    if base is not None and dims is None:
        return None
    if not all(_fits(form, parts[suffix], dims) for suffix, form in row.needs.items() if suffix in parts):
        return None
    missing = tuple(suffix for suffix in (row.base, *row.needs) if suffix not in parts)
    explained = {row.base, *row.needs, *row.may}
    extra = tuple(suffix for suffix in parts if suffix in _WORDS and suffix not in explained)
    return _Match(row, dims or Dims(0, 0), missing, extra)


def _fits(form: Form, cell: Cell, dims: Dims | None) -> bool:
    if form.dtypes and cell.dtype not in form.dtypes:
        return False
    return dims is None or form.fits(cell.shape, dims)


def _alone(best: _Match, matches: list[_Match]) -> bool:
    """Whether no other scheme explains tensors without a weight as well."""
    rank = len(best.extra), len(best.missing)
    names = {found.signature.name for found in matches if (len(found.extra), len(found.missing)) == rank}
    return len(names) == 1


def _quantized(match: _Match) -> tuple[StoredScheme, Shape]:
    name = match.signature.name.format(bits=match.dims.bits)
    extra = tuple(suffix for suffix in match.extra if suffix not in ACTIVATION)
    shape = (match.dims.out, match.dims.in_) if match.dims.out else ()
    return StoredScheme(name, "quantized", match.missing, extra), shape


def _floats(parts: Parts, base: str) -> bool:
    return base == "weight" and parts[base].dtype in PLAIN_DTYPES


def _plain(parts: Parts, experts: Shape) -> tuple[StoredScheme, Shape]:
    weight = parts["weight"]
    stray = tuple(suffix for suffix in parts if suffix in CLUES)
    if len(weight.shape) != 2 or (experts and min(weight.shape) < MIN_STACK_SIDE):
        return _OTHER, ()
    if stray and stray != ("pre_quant_scale",):
        return _odd(f"a full-precision weight beside `{stray[0]}`"), weight.shape
    return StoredScheme(PLAIN_DTYPES[weight.dtype], "plain", extra=stray), weight.shape


def _unmatched(parts: Parts, bases: list[str]) -> StoredScheme:
    clues = [suffix for suffix in parts if suffix in CLUES and suffix not in bases]
    if not bases:
        return _odd(f"`{clues[0]}` without a weight") if clues else _OTHER
    base = parts[bases[0]]
    if not clues:
        whole = base.dtype in _NEVER_WEIGHTS or len(base.shape) < 2
        return _OTHER if whole else _odd(f"{base.dtype} {list(base.shape)} in `{base.suffix}` without any scale")
    scale = parts[next((suffix for suffix in clues if suffix.startswith("weight_scale")), clues[0])]
    if base.dtype in FP8 and scale.dtype in FP8:
        return _odd("a weight of full width beside NVFP4 scales: it was never packed")
    return _odd(
        f"`{scale.suffix}` {scale.dtype} {list(scale.shape)} fits no scheme for `{base.suffix}` {base.dtype} {list(base.shape)}"
    )


def _odd(note: str, extra: tuple[str, ...] = ()) -> StoredScheme:
    return StoredScheme("odd", "odd", extra=extra, note=note)


_OTHER = StoredScheme("other", "other")
_NEVER_WEIGHTS = frozenset({"BOOL", "I64", "U64", "I16", "U16", "C64"})
