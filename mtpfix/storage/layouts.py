"""How quantized weights are laid out: what a tensor's shape says about the logical weight. Pure.

A *fit* tells whether a tensor has the shape that a logical size demands; a *solver* finds that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell

Shape = tuple[int, ...]
Parts = Mapping[str, Cell]

Choice = tuple[int, int]


class Dims(NamedTuple):
    """The logical size of a weight, 0 where headers do not show it, and the bits of a stored number where they vary."""

    out: int
    in_: int
    bits: int = 0


Fit = Callable[[Shape, Dims], bool]
Solve = Callable[[Parts], Dims | None]


# --- fits -------------------------------------------------------------------------------------------------------------


def anything(_: Shape, __: Dims) -> bool:
    """Any shape."""
    return True


def scalar(shape: Shape, _: Dims) -> bool:
    """One number for the whole weight."""
    return shape in ((), (1,))


def one_number(shape: Shape, _: Dims) -> bool:
    """One number, in however many dimensions."""
    return math.prod(shape) == 1


def pair(shape: Shape, _: Dims) -> bool:
    """Two numbers: a shape that is stored as a tensor."""
    return shape == (2,)


def each_row(shape: Shape, dims: Dims) -> bool:
    """One number an output."""
    return shape in ((dims.out,), (dims.out, 1))


def each_row_or_one(shape: Shape, dims: Dims) -> bool:
    """One number an output, or one in all."""
    return one_number(shape, dims) or each_row(shape, dims)


def each_column(shape: Shape, dims: Dims) -> bool:
    """One number an input."""
    return shape == (dims.in_,)


def per(group: int) -> Fit:
    """One number an output and `group` inputs."""
    return lambda shape, dims: shape == (dims.out, _ceil(dims.in_, group))


def grouped(shape: Shape, dims: Dims) -> bool:
    """One number an output and group of inputs, of whatever size."""
    return len(shape) == 2 and shape[0] == dims.out and _divides(dims.in_, shape[1])


def blocks(shape: Shape, dims: Dims) -> bool:
    """One number a rectangular block."""
    return len(shape) == 2 and _divides(dims.out, shape[0]) and _divides(dims.in_, shape[1])


def blocks_4d(shape: Shape, dims: Dims) -> bool:
    """Blocks as ModelOpt writes them: [rows, 1, columns, 1]."""
    return len(shape) == 4 and shape[1] == shape[3] == 1 and blocks((shape[0], shape[2]), dims)


def _divides(size: int, pieces: int) -> bool:
    """Whether blocks of a power of two (8 to 1024), or one block, cut `size` into so many pieces."""
    return pieces == 1 or any(_ceil(size, 1 << power) == pieces for power in range(3, 11))


def _ceil(size: int, step: int) -> int:
    return -(-size // step)


# --- solvers ----------------------------------------------------------------------------------------------------------


def columns_hold(count: int, base: str = "weight") -> Solve:
    """[out, in / count]: each stored number holds `count` weights of a row."""

    def solve(parts: Parts) -> Dims | None:
        shape = parts[base].shape
        return Dims(shape[0], shape[1] * count) if len(shape) == 2 else None

    return solve


def beside(suffix: str, layout: Solve) -> Solve:
    """The layout of a base that says nothing without another tensor."""

    def solve(parts: Parts) -> Dims | None:
        return layout(parts) if suffix in parts else None

    return solve


def rows_hold(count: int) -> Solve:
    """[out / count, in]: each stored number holds `count` weights of a column."""

    def solve(parts: Parts) -> Dims | None:
        shape = parts["weight"].shape
        return Dims(shape[0] * count, shape[1]) if len(shape) == 2 else None

    return solve


def words(base: str, scale: str, choices: Iterable[Choice]) -> Solve:
    """[out, in * bits / 32] with a scale a group: the first choice of bits and group that makes so many scales.

    One scale a row says nothing; that is taken for 4 bits.
    """
    pairs = tuple(choices)

    def solve(parts: Parts) -> Dims | None:
        out, packed = _matrix(parts, base)
        scales = _matrix(parts, scale)[1]
        if not out:
            return None
        fitting = (bits for bits, group in pairs if _ceil(packed * 32 // bits, group) == scales)
        bits = next(fitting, 4) if scales > 1 else 4
        return Dims(out, packed * 32 // bits, bits)

    return solve


def words_or_zero_points(parts: Parts) -> Dims | None:
    """compressed-tensors' packed integers; weight_zero_point, where there is one, has out * bits / 32 rows."""
    dims = _CT_WORDS(parts)
    zero = _matrix(parts, "weight_zero_point")[0]
    if dims is None or not zero:
        return dims
    bits = _bits(zero * 32, dims.out)
    return Dims(dims.out, parts["weight_packed"].shape[1] * 32 // bits, bits) if bits else None


# What exporters choose, the usual first; 4 bits in groups of 64 look like 8 bits in groups of 32.
_CT_CHOICES = ((4, 128), (4, 64), (4, 32), (8, 128), (8, 256), (4, 16), (3, 128), (2, 128))
_CT_WORDS = words("weight_packed", "weight_scale", _CT_CHOICES)


def gptq(parts: Parts) -> Dims | None:
    """qweight [in * bits / 32, out], scales [groups, out], qzeros [groups, out * bits / 32], g_idx [in]."""
    rows, out = _matrix(parts, "qweight")
    if not rows or _matrix(parts, "scales")[1] not in (0, out):
        return None
    order = parts.get("g_idx")
    if "qzeros" in parts:
        bits = _bits(_matrix(parts, "qzeros")[1] * 32, out)
    elif order is not None and len(order.shape) == 1:
        bits = _bits(rows * 32, order.shape[0])
    else:
        bits = 4
    return Dims(out, rows * 32 // bits, bits) if bits else None


def awq(parts: Parts) -> Dims | None:
    """qweight [in, out * bits / 32], scales [groups, out], qzeros [groups, out * bits / 32]."""
    in_, packed = _matrix(parts, "qweight")
    out = _matrix(parts, "scales")[1]
    bits = _bits(packed * 32, out)
    if not bits or _matrix(parts, "qzeros")[1] not in (0, packed):
        return None
    return Dims(out, in_, bits)


def column_of_bytes(parts: Parts) -> Dims | None:
    """bitsandbytes' 4 bits: [out * in / 2, 1]; the logical shape stands in the data only."""
    shape = parts["weight"].shape
    return Dims(0, 0) if len(shape) == 2 and shape[1] == 1 else None


def blocks_of_32(parts: Parts) -> Dims | None:
    """gpt-oss: [out, in / 32, 16]."""
    shape = parts["blocks"].shape
    return Dims(shape[0], shape[1] * 32) if len(shape) == 3 and shape[2] == 16 else None


def unknown(_: Parts) -> Dims:
    """A layout whose numbers do not show the logical size."""
    return Dims(0, 0)


def _matrix(parts: Parts, suffix: str) -> tuple[int, int]:
    cell = parts.get(suffix)
    return (cell.shape[0], cell.shape[1]) if cell is not None and len(cell.shape) == 2 else (0, 0)


def _bits(total: int, count: int) -> int:
    """total / count where that is a number of bits that packing makes sense for, else 0."""
    if not count or total % count:
        return 0
    bits = total // count
    return bits if 1 < bits < 16 else 0
