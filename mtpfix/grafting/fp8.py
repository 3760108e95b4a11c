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
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from mtpfix.frozen import dataclass
from mtpfix.model import Cell

FP8 = "F8_E4M3"
SCALES = ("weight_scale_inv", "weight_scale", "scale")
_NAN, _INFINITY = 0x7FC0, 0x7F800000  # of BF16, of float32
_NEGATED = bytes(byte ^ 0x80 for byte in range(256))
_ROWS = 128  # of a weight at once, where no block says how many


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a weight is widened: its shape, how its scales lie, and how many rows and columns share one."""

    shape: tuple[int, int]
    scale: str
    dtype: str
    grid: tuple[int, int]
    block: tuple[int, int]

    @property
    def step(self) -> int:
        """How many rows are widened at once."""
        return min(self.block[0], _ROWS, self.shape[0])


def recipe_for(cells: Sequence[Cell]) -> Recipe | None:
    """How the FP8 weight of a module is widened; None for a module that is stored otherwise."""
    held = {cell.suffix: cell for cell in cells}
    weight = held.get("weight")
    suffix = next((name for name in SCALES if name in held), "")
    if weight is None or weight.dtype != FP8 or len(weight.shape) != 2 or not all(weight.shape) or not suffix:
        return None
    rows, columns = weight.shape
    grid = _grid(held[suffix].shape, rows)
    blocks = grid and (_block(rows, grid[0]), _block(columns, grid[1]))
    if not grid or not blocks or not all(blocks) or held[suffix].dtype not in _READ:
        return None
    return Recipe((rows, columns), suffix, held[suffix].dtype, grid, blocks)


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


def widened(recipe: Recipe, rows: bytes | memoryview, first: int, scales: Sequence[float]) -> bytearray:
    """Some rows of a weight, from row `first` on, as BF16. They share their rows of scales; `scales` is all of them."""
    columns, (height, width) = recipe.shape[1], recipe.block
    line = scales[first // height * recipe.grid[1] :][: recipe.grid[1]]
    view, out = memoryview(rows), bytearray(2 * len(rows))
    if len(line) == 1:
        return _translated(bytes(view), line[0], out)
    whole = memoryview(out)
    for number, scale in enumerate(line):
        start, end = number * width, min(number * width + width, columns)
        places = range(0, len(rows), columns)
        block = _translated(b"".join([view[at + start : at + end] for at in places]), scale, bytearray())
        wide, piece = 2 * (end - start), memoryview(block)
        for row, at in enumerate(places):
            whole[2 * (at + start) : 2 * (at + end)] = piece[row * wide : row * wide + wide]
    return out


def _translated(numbers: bytes, scale: float, out: bytearray) -> bytearray:
    low, high = _tables(scale, math.copysign(1.0, scale))
    out = out or bytearray(2 * len(numbers))
    out[0::2] = numbers.translate(low)
    out[1::2] = numbers.translate(high)
    return out


@lru_cache(maxsize=64)
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
    """The scales of a weight as numbers, from their bytes."""
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
