"""Signs, extremes and classes of floats: min, max, abs, neg, copysign, testp (PTX ISA, "Floating Point")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.float_operands import compile_float, element_dtype, float_type
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort


def _extreme(largest: bool) -> Compile:
    def compile_extreme(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        operands = b.operands(i, 3, 4)
        propagate = i.has("NaN")
        absolute = i.has("xorsign")
        magnitudes = i.has("abs") and not absolute
        if len(operands) == 4 and (name != "f32" or absolute):
            raise b.fail(f"`{i.name}` takes 3 operands, not 4")

        plain = np.maximum if largest else np.minimum

        def pair(x: Array, y: Array) -> Array:
            if not absolute:
                # NumPy's own differs where a result is NaN, and where zeros of two signs meet.
                found = np.asarray(plain(x, y))
                if not (np.isnan(found) | (found == 0)).any():
                    return found
            x, y = np.broadcast_arrays(np.asarray(x), np.asarray(y))
            sign = np.signbit(x) ^ np.signbit(y)
            if absolute:
                x, y = np.abs(x), np.abs(y)
            nan_x, nan_y = np.isnan(x), np.isnan(y)
            # +0 is greater than -0 (PTX ISA, min and max).
            if largest:
                first = (x > y) | ((x == y) & ~np.signbit(x))
            else:
                first = (x < y) | ((x == y) & np.signbit(x))
            result = np.where(first | nan_y, x, y)
            result = np.where(nan_x, y, result)
            nan = (nan_x | nan_y) if propagate else (nan_x & nan_y)
            if absolute:
                result = np.where(sign, -np.abs(result), np.abs(result))
            return np.asarray(np.where(nan, _canonical_nan(x.dtype), result).astype(x.dtype))

        def compute(*values: Array) -> Array:
            if magnitudes:
                values = tuple(np.abs(value) for value in values)
            result = values[0]
            for value in values[1:]:
                result = pair(result, value)
            return result

        return compile_float(b, i, name, operands, compute)

    return compile_extreme


def _canonical_nan(dtype: Any) -> Any:
    # PTX ISA, "Floating Point Instructions": the canonical NaN is 0x7fffffff (f32), 0x7fff (f16, bf16).
    pattern = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}[dtype.itemsize]
    return np.array([pattern], f"u{dtype.itemsize}").view(dtype)[0]


def _sign(clear: bool) -> Compile:
    def compile_sign(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        operands = b.operands(i, 2)
        size = element_dtype(name).itemsize
        dtype = element_dtype(name)
        bits: Any = np.dtype(f"u{size}")
        top = bits.type(1 << (8 * size - 1))

        def compute(x: Array) -> Array:
            pattern = np.asarray(x).view(bits)
            return np.asarray((pattern & ~top if clear else pattern ^ top).view(dtype))

        return compile_float(b, i, name, operands, compute)

    return compile_sign


def _copysign(b: Binder, i: Instruction) -> Run:
    name = float_type(b, i)
    # copysign.f32 d, a, b: the sign of a on the magnitude of b.
    return compile_float(b, i, name, b.operands(i, 3), lambda x, y: np.copysign(y, x))


def _testp(b: Binder, i: Instruction) -> Run:
    name = float_type(b, i)
    d, x = b.operands(i, 2)
    source = b.source(x, name)
    get = b.destination(d, "pred")
    tiny = np.finfo(np.float32 if name == "f32" else np.float64).tiny
    tests: dict[str, Callable[[Array], Any]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda v: ~np.isnan(v),
        "notanumber": np.isnan,
        "normal": lambda v: np.isfinite(v) & (np.abs(v) >= tiny),
        "subnormal": lambda v: (v != 0) & (np.abs(v) < tiny),
    }
    chosen = [tests[m] for m in i.modifiers if m in tests]
    if len(chosen) != 1:
        raise b.fail(f"`{i.name}` needs one test such as .finite")

    def run(c: Cohort) -> None:
        np.copyto(get(c), chosen[0](source(c)), where=c.where)

    return run


EXTREMES: dict[str, Compile] = {
    "min": _extreme(False),
    "max": _extreme(True),
    "abs": _sign(True),
    "neg": _sign(False),
    "copysign": _copysign,
    "testp": _testp,
}
