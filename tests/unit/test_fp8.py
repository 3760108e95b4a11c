"""FP8 to BF16: against the formats' own definitions in exact fractions, and against ml_dtypes."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from mtpfix.grafting import fp8
from mtpfix.model import Cell


def recipe(rows: int, columns: int, scale: str = "weight_scale_inv", dtype: str = "F32", *grid: int) -> fp8.Recipe:
    found = fp8.recipes_for((Cell("weight", "F8_E4M3", (rows, columns)), Cell(scale, dtype, grid)))
    assert found is not None
    return found["weight"]


def all_of(made: fp8.Recipe, data: bytes, scales: list[float] | bytes) -> np.ndarray:
    """A whole weight widened, from its scales as numbers of float32 or as they are stored."""
    raw = scales if isinstance(scales, bytes) else struct.pack(f"<{len(scales)}f", *scales)
    out = bytearray()
    columns = made.shape[1]
    for first, count, lines in made.steps():
        assert len(out) == 2 * first * columns
        rows = data[first * columns : (first + count) * columns]
        out += fp8.widened(made, rows, fp8.read_scales(made, raw[lines]))
    return np.frombuffer(bytes(out), np.uint16).reshape(made.count * made.shape[0], columns)


def reference(data: bytes, shape: tuple[int, int], scales: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """float32(weight) * float32(scale), rounded to BF16: what DeepSeek's and transformers' code does."""
    weight = np.frombuffer(data, ml_dtypes.float8_e4m3fn).reshape(shape).astype(np.float32)
    wide = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[: shape[0], : shape[1]]
    with np.errstate(over="ignore", invalid="ignore"):
        return (weight * wide).astype(ml_dtypes.bfloat16).view(np.uint16)


def same(one: np.ndarray, other: np.ndarray) -> None:
    """Equal bits, but for what kind of NaN it is."""
    nans = [(bits & 0x7FFF) > 0x7F80 for bits in (one, other)]
    assert (nans[0] == nans[1]).all()
    assert (one[~nans[0]] == other[~nans[1]]).all()


def e4m3(byte: int) -> Fraction | None:
    """The OCP specification's table: sign, four bits of exponent with a bias of 7, three of mantissa; no infinity."""
    sign, exponent, mantissa = -1 if byte & 0x80 else 1, byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return None
    if exponent == 0:
        return sign * Fraction(mantissa, 8) * Fraction(1, 64)
    return sign * (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)


def nearest(value: Fraction, digits: int, least: int) -> Fraction:
    """The number of `digits` binary digits that is nearest, ties to even; `least`: the smallest exponent."""
    if value == 0:
        return value
    size = abs(value)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    unit = Fraction(2) ** (max(power, least) - digits + 1)
    return round(value / unit) * unit  # round() of a fraction: ties to even


@pytest.mark.parametrize("scale", [1.0, 0.000244140625, 3.3e-4, 1.7e-38, 7.1e-5, 0.1, 12345.678])
def test_every_number_exactly(scale: float) -> None:
    scale = struct.unpack("<f", struct.pack("<f", scale))[0]
    made = recipe(2, 128, "weight_scale_inv", "F32", 1, 1)
    found = all_of(made, bytes(range(256)), [scale]).reshape(256)
    for byte in range(256):
        value = e4m3(byte)
        number = struct.unpack("<f", b"\0\0" + int(found[byte]).to_bytes(2, "little"))[0]
        if value is None:
            assert math.isnan(number)
            continue
        wanted = nearest(nearest(value * Fraction(scale), 24, -126), 8, -126)
        assert Fraction(number) == wanted
        assert math.copysign(1, number) == (-1 if byte & 0x80 else 1)


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        *(((256, 384), (2, 3)), ((300, 200), (3, 2)), ((576, 256), (5, 2)), ((64, 64), (1, 1)), ((1, 7), (1, 1))),
        *(((130, 129), (2, 2)), ((256, 512), (4, 8)), ((40, 96), (40, 1)), ((2048, 64), (1, 1)), ((24, 33), (3, 5))),
    ],
)
def test_blocks(shape: tuple[int, int], grid: tuple[int, int]) -> None:
    rnd = random.Random(f"{shape}")
    made = recipe(*shape, "weight_scale_inv", "F32", *grid)
    data = rnd.randbytes(shape[0] * shape[1])
    scales = np.array([rnd.uniform(1e-5, 1e-2) for _ in range(grid[0] * grid[1])], np.float32).reshape(grid)
    same(all_of(made, data, scales.tobytes()), reference(data, shape, scales, made.block))


@pytest.mark.parametrize("at_once", [1, 700, 1 << 20])
@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((3, 256, 384), (3, 2, 3)),
        ((2, 300, 200), (2, 3, 2)),
        ((2, 300, 200), (2, 3, 1, 2, 1)),
        ((4, 32, 48), (4,)),
        ((4, 32, 48), (4, 1, 1)),
        ((4, 32, 48), (4, 1)),
        ((4, 32, 48), (4, 32)),
        ((4, 32, 48), (4, 32, 1)),
        ((4, 32, 48), (4, 1, 48)),
        ((4, 32, 96), (4, 32, 3)),
        ((4, 32, 48), (1,)),
        ((4, 32, 48), ()),
        ((1, 32, 48), (1, 1, 1)),
    ],
)
def test_stacks(
    shape: tuple[int, int, int], grid: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts in one tensor: each as if it were alone, whatever has a scale and however much is done at once."""
    monkeypatch.setattr(fp8, "_AT_ONCE", at_once)
    rnd = random.Random(f"{shape}{grid}")
    cells = (Cell("gate_up_proj", "F8_E4M3", shape), Cell("gate_up_proj_scale_inv", "F32", grid))
    found = fp8.recipes_for(cells)
    assert found is not None
    made = found["gate_up_proj"]
    data = rnd.randbytes(math.prod(shape))
    scales = np.array([rnd.uniform(1e-5, 1e-2) for _ in range(math.prod(grid))], np.float32)
    size = shape[1] * shape[2]
    each = np.broadcast_to(scales.reshape(-1, math.prod(made.grid)), (shape[0], math.prod(made.grid)))
    wanted = [
        reference(data[size * number : size * (number + 1)], shape[1:], each[number].reshape(made.grid), made.block)
        for number in range(shape[0])
    ]
    same(all_of(made, data, scales.tobytes()), np.concatenate(wanted))


def test_what_a_module_of_stacks_is_made_of() -> None:
    cells = [
        Cell("gate_up_proj", "F8_E4M3", (4, 256, 128)),
        Cell("gate_up_proj_scale_inv", "F32", (4, 2, 1)),
        Cell("down_proj", "F8_E4M3", (4, 128, 128)),
        Cell("down_proj_weight_scale", "BF16", (4,)),
        Cell("gate_up_proj_bias", "BF16", (4, 256)),
        Cell("gate_up_proj_input_scale", "F32", ()),
    ]
    found = fp8.recipes_for(cells)
    assert found is not None
    assert {name: recipe.scale for name, recipe in found.items()} == {
        "gate_up_proj": "gate_up_proj_scale_inv",
        "down_proj": "down_proj_weight_scale",
    }
    assert [cell.suffix for cell in cells if fp8.is_scale(cell.suffix)] == [
        "gate_up_proj_scale_inv", "down_proj_weight_scale", "gate_up_proj_input_scale",
    ]  # fmt: skip
    assert fp8.recipes_for(cells[:3]) is None  # not one of two only


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, 0.0, -0.0, 3e38, -2.5, 1e-45])
def test_odd_scales(scale: float) -> None:
    made = recipe(1, 256, "weight_scale", "F32")
    data = bytes(range(256))
    scales = np.full((1, 1), scale, np.float32)
    same(all_of(made, data, [float(scales[0, 0])]), reference(data, (1, 256), scales, (1, 256)))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("F32", np.float32), ("F16", np.float16), ("BF16", ml_dtypes.bfloat16), ("F8_E8M0", ml_dtypes.float8_e8m0fnu)],
)
def test_scales_of_every_dtype(dtype: str, kind: type) -> None:
    made = recipe(4, 64, "scale", dtype, 4, 2)
    raw = bytes(random.Random(1).randbytes(8 * np.dtype(kind).itemsize))
    wanted = np.frombuffer(raw, kind).astype(np.float64)
    assert np.array_equal(np.array(fp8.read_scales(made, raw)), wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((), (256, 512)),
        ((1,), (256, 512)),
        ((256,), (1, 512)),
        ((256, 1), (1, 512)),
        ((2, 4), (128, 128)),
        ((2, 1, 4, 1), (128, 128)),
        ((256, 16), (1, 32)),
    ],
)
def test_how_scales_lie(grid: tuple[int, ...], block: tuple[int, int]) -> None:
    assert recipe(256, 512, "weight_scale", "F32", *grid).block == block


@pytest.mark.parametrize(
    "cells",
    [
        (Cell("weight", "BF16", (4, 4)),),
        (Cell("weight", "F8_E4M3", (4, 4)),),
        (Cell("weight", "F8_E4M3", (4, 4, 4, 4)), Cell("weight_scale", "F32", ())),
        (Cell("weight", "F8_E4M3", (4, 4, 4)), Cell("weight_scale", "F32", (5,))),
        (Cell("up_proj", "F8_E4M3", (4, 4, 4)), Cell("down_proj_scale", "F32", (4,))),
        (Cell("weight", "BF16", (4, 4)), Cell("weight_scale", "F32", ())),
        (Cell("weight", "F8_E4M3", (256, 256)), Cell("weight_scale", "F32", (3, 2))),
        (Cell("weight", "F8_E4M3", (256, 256)), Cell("weight_scale", "I32", ())),
        (Cell("weight", "U8", (256, 128)), Cell("weight_scale", "F8_E4M3", (256, 16))),
        (Cell("weight", "F8_E4M3", (0, 4)), Cell("weight_scale", "F32", ())),
    ],
)
def test_what_cannot_be_widened(cells: tuple[Cell, ...]) -> None:
    assert fp8.recipes_for(cells) is None
