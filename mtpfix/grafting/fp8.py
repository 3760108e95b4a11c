"""FP8 weights with their scales to BF16, exactly as the model's own authors do it. Pure, and without numpy.

A weight is its FP8 number, widened to float32, times its scale in float32 (DeepSeek-V3 inference/kernel.py
`weight_dequant`; transformers integrations/finegrained_fp8.py `Fp8Dequantize`), rounded to BF16 to nearest, ties to
even. `weight_scale_inv` is multiplied, in spite of its name. A block shares one scale, so that there are 256 possible
results: two tables of 256 bytes, low and high, and `bytes.translate` does a block at once.

Formats: OCP 8-bit Floating Point Specification, revision 1.0 (E4M3: no infinities, S.1111.111 is NaN); E8M0 scales of
the OCP Microscaling Formats specification, version 1.0 (2 to the power of byte - 127, 255 is NaN).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from mtpfix.checkpoint.headers import DTYPE_BITS
from mtpfix.frozen import dataclass
from mtpfix.model import Cell

FP8 = "F8_E4M3"
_SCALES = ("scale_inv", "scale", "weight_scale_inv", "weight_scale")  # behind the name of their weight
_OWN = ("scale",)  # of a layer whose weight is just `weight`, too
_NAN, _INFINITY = 0x7FC0, 0x7F800000  # of BF16, of float32
_NEGATED = bytes(byte ^ 0x80 for byte in range(256))
_AT_ONCE = 1 << 20  # bytes of a weight, where its rows have as many


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a weight is widened.

    shape   of a matrix; a stack has `count` of them, one behind the other
    scale   the suffix of its scales, and their `dtype`
    grid    rows and columns of scales for a matrix; `shared`: one number for all of a stack
    block   how many rows and columns share a scale
    """

    shape: tuple[int, int]
    scale: str
    dtype: str
    grid: tuple[int, int]
    block: tuple[int, int]
    count: int = 1
    shared: bool = False

    def steps(self) -> Iterator[tuple[int, int, slice]]:
        """What is widened at once: its first row of all, how many rows, and where their scales are among all bytes of
        them. It has whole rows of scales, or lies within one.
        """
        (rows, columns), height = self.shape, self.block[0]
        most = max(1, _AT_ONCE // columns)
        most = most // height * height or most
        wide = self.grid[1] * DTYPE_BITS[self.dtype] // 8
        for matrix in range(self.count):
            before, first = 0 if self.shared else matrix * self.grid[0], 0
            while first < rows:
                count = min(most, rows - first, most if most >= height else height - first % height)
                lines = before + first // height, before + -(-(first + count) // height)
                yield matrix * rows + first, count, slice(lines[0] * wide, lines[1] * wide)
                first += count


def recipes_for(cells: Sequence[Cell]) -> dict[str, Recipe] | None:
    """How the FP8 weights of a module are widened, by their suffixes: one, or stacks of experts. None for a module
    without any, or with one whose scales are not there or lie in a way that is not known."""
    held = {cell.suffix: cell for cell in cells}
    found = {cell.suffix: _recipe(cell, held) for cell in cells if cell.dtype == FP8 and len(cell.shape) > 1}
    sure = {suffix: recipe for suffix, recipe in found.items() if recipe}
    return sure if sure and len(sure) == len(found) else None


def is_scale(suffix: str) -> bool:
    """Whether a tensor of an FP8 module has no place beside its weight in BF16."""
    return suffix.endswith(("scale", "scale_inv"))


def _recipe(weight: Cell, held: Mapping[str, Cell]) -> Recipe | None:
    *stack, rows, columns = weight.shape
    names = [f"{weight.suffix}_{end}" for end in _SCALES] + [*_OWN] * (weight.suffix == "weight")
    scale = next((held[name] for name in names if name in held), None)
    if scale is None or scale.dtype not in _READ or len(stack) > 1 or not all(weight.shape):
        return None
    shared = math.prod(scale.shape) == 1
    if stack and not shared and scale.shape[:1] != tuple(stack):
        return None
    grid = _grid(scale.shape[1:] if stack and not shared else scale.shape, rows)
    block = grid and (_block(rows, grid[0]), _block(columns, grid[1]))
    if not grid or not block or not all(block):
        return None
    return Recipe((rows, columns), scale.suffix, scale.dtype, grid, block, math.prod(stack), shared)


def _grid(shape: tuple[int, ...], rows: int) -> tuple[int, int] | None:
    """Rows and columns of scales: one number, one a row, or one a block (ModelOpt's [rows, 1, columns, 1] too)."""
    if math.prod(shape) == 1:
        return 1, 1
    if shape == (rows,):
        return rows, 1
    if len(shape) == 4 and shape[1] == shape[3] == 1:
        return shape[0], shape[2]
    return (shape[0], shape[1]) if len(shape) == 2 else None


def _block(size: int, pieces: int) -> int:
    """How many share a scale; 0 where no size that is in use makes so many pieces."""
    if pieces in (1, size):
        return -(-size // pieces)
    return next((1 << power for power in range(3, 12) if -(-size // (1 << power)) == pieces), 0)


def widened(recipe: Recipe, rows: bytes, scales: Sequence[float]) -> bytearray:
    """Some rows of a weight as BF16, with their rows of scales; one of `steps`."""
    columns, height = recipe.shape[1], recipe.block[0]
    if len(scales) == 1:
        return _translated(rows, scales[0])
    out, wide = bytearray(2 * len(rows)), memoryview(rows)
    target, across = memoryview(out), recipe.grid[1]
    for number in range(len(scales) // across):
        start = number * height * columns
        end = min(start + height * columns, len(rows))
        _line(recipe, wide[start:end], scales[number * across :][:across], target[2 * start : 2 * end])
    return out


def _line(recipe: Recipe, rows: memoryview, scales: Sequence[float], out: memoryview) -> None:
    """Rows that share a row of scales."""
    columns, width = recipe.shape[1], recipe.block[1]
    if len(scales) == 1:
        out[:] = _translated(bytes(rows), scales[0])
        return
    for number, scale in enumerate(scales):
        start, end = number * width, min(number * width + width, columns)
        if width == 1:  # one a column
            low, high = _tables(scale, math.copysign(1.0, scale))
            column = bytes(rows[start::columns])
            out[2 * start :: 2 * columns], out[2 * start + 1 :: 2 * columns] = (
                column.translate(low),
                column.translate(high),
            )
            continue
        places = range(0, len(rows), columns)
        piece = memoryview(_translated(b"".join([rows[at + start : at + end] for at in places]), scale))
        wide = 2 * (end - start)
        for row, at in enumerate(places):
            out[2 * (at + start) : 2 * (at + end)] = piece[row * wide : row * wide + wide]


def _translated(numbers: bytes, scale: float) -> bytearray:
    low, high = _tables(scale, math.copysign(1.0, scale))
    out = bytearray(2 * len(numbers))
    out[0::2] = numbers.translate(low)
    out[1::2] = numbers.translate(high)
    return out


@lru_cache(maxsize=1 << 13)  # 6 MB
def _tables(scale: float, _sign: float) -> tuple[bytes, bytes]:
    """The low and the high byte of the BF16 number for each FP8 number under a scale (0.0 and -0.0 are equal keys)."""
    products = [value * scale for value in _E4M3]  # exact: 28 bits at most
    try:
        bits = struct.unpack("<128I", struct.pack("<128f", *products))
    except OverflowError:  # beyond float32
        bits = tuple(_float32(product) for product in products)
    half = [_rounded(number) for number in bits]
    low, high = bytes(number & 0xFF for number in half), bytes(number >> 8 for number in half)
    return low + low, high + high.translate(_NEGATED)


def _float32(product: float) -> int:
    try:
        return int.from_bytes(struct.pack("<f", product), "little")
    except OverflowError:
        return _INFINITY if product > 0 else _INFINITY | 1 << 31


def _rounded(bits: int) -> int:
    """A float32 number's bits to BF16's: to nearest, ties to even."""
    if bits & _INFINITY == _INFINITY:
        return _NAN if bits & 0x7FFFFF else bits >> 16
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _e4m3(number: int) -> float:
    exponent, mantissa = number >> 3, number & 7
    if number == 0x7F:
        return math.nan
    return math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)


_E4M3 = tuple(_e4m3(number) for number in range(128))


def read_scales(recipe: Recipe, raw: bytes) -> tuple[float, ...]:
    """Scales of a weight as numbers, from their bytes."""
    return tuple(_READ[recipe.dtype](raw))


def _f32(raw: bytes) -> Iterator[float]:
    return (value for (value,) in struct.iter_unpack("<f", raw))


def _f16(raw: bytes) -> Iterator[float]:
    return (value for (value,) in struct.iter_unpack("<e", raw))


def _wide_bf16(raw: bytes) -> Iterator[float]:
    return _f32(b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2)))


def _e8m0(raw: bytes) -> Iterator[float]:
    return (math.nan if byte == 0xFF else math.ldexp(1.0, byte - 127) for byte in raw)


_READ: dict[str, Callable[[bytes], Iterator[float]]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _wide_bf16,
    "F8_E8M0": _e8m0,
    "U8": _e8m0,
}
