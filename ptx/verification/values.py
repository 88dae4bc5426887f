"""Numbers of one tensor: whole ones, whose sums are exact, or random ones, as its type or its machine has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType, tf32_read
from tinygpu.ptx.verification.encoded import encoded

# Whole numbers up to here are inputs of every machine.
SMALL = 3
# The largest element of a float type, and its smallest above zero (8-bit floats: Open Compute Project).
EXTREMES: dict[str, tuple[float, float]] = {
    "f64": (1.7976931348623157e308, 5e-324),
    "f32": (3.4028234663852886e38, 2.0**-149),
    "tf32": (3.4011621342146535e38, 2.0**-136),
    "bf16": (3.3895313892515355e38, 2.0**-133),
    "f16": (65504.0, 2.0**-24),
    "e4m3": (448.0, 2.0**-9),
    "e5m2": (57344.0, 2.0**-16),
    "e2m3": (7.5, 0.125),
    "e3m2": (28.0, 0.0625),
    "e2m1": (6.0, 0.5),
}


def input_values(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], whole: bool, amplitude: int = SMALL
) -> NDArray[Any]:
    """An array of one dtype: whole numbers up to an amplitude, or random numbers in [-1, 1)."""
    if dtype.bits < 8:
        return _narrow_values(rng, dtype, shape, whole)
    most = min(amplitude, most_whole(dtype))
    if not dtype.is_float:
        # of narrow types all numbers, the least among them, of which there is no other sign
        low = 0 if dtype.kind == "unsigned" else -most - (dtype.bits < 32 and most == most_whole(dtype))
        return rng.integers(low, most + 1, shape).astype(dtype.numpy)
    if whole:
        return rng.integers(-most, most + 1, shape).astype(dtype.numpy)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    if dtype.name == "tf32":
        return tf32_read(values)
    return values.astype(dtype.numpy)


def declared_values(
    rng: np.random.Generator,
    declared: Distribution,
    dtype: DType,
    shape: tuple[int, ...],
    whole: bool,
    amplitude: int = SMALL,
) -> NDArray[Any]:
    """An array of one dtype as its machine declares it: whole numbers up to an amplitude where it has such, or any."""
    if whole:
        found = declared.draw_whole(rng, shape, min(amplitude, most_whole(dtype)))
    else:
        found = declared.draw(rng, shape)
    return encoded(found, declared, dtype)


def _narrow_values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], whole: bool) -> NDArray[Any]:
    """Elements narrower than a byte, all that there are; whole numbers alone, where those are asked for."""
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    if dtype.is_float and whole:
        values = codes.view(dtype.numpy).astype(np.float64)
        codes = codes[values == np.rint(values)]
    return rng.choice(codes, shape).view(dtype.numpy)


def most_whole(dtype: DType) -> int:
    """Every whole number up to here is an element."""
    if not dtype.is_float:
        return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
    return 1 << ({"tf32": 10}.get(dtype.name, dtype.mantissa) + 1)


def whole_ends(kind: DType) -> tuple[float, float]:
    """The least and the largest number that an output of a type holds without saturating; of unsigned ones, without
    wrapping more than once.
    """
    if kind.is_float:
        return -EXTREMES[kind.name][0], EXTREMES[kind.name][0]
    return -float(most_whole(kind)) - (kind.kind == "signed"), float(most_whole(kind))


def spacing(kind: DType, number: float) -> float:
    """How far from a number the next one is in a float type."""
    return float(2.0 ** (math.frexp(number)[1] - 1 - kind.mantissa))
