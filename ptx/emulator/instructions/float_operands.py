"""Operands and results of floating-point instructions: packed lanes, .ftz, .sat, .relu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Lanewise, Run
from tinygpu.ptx.emulator.instructions.integer import last_type
from tinygpu.ptx.emulator.instructions.rounding import flush_subnormals, saturate
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type
from tinygpu.ptx.emulator.state.cohort import Cohort

_LANE_DTYPES: dict[str, Any] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)
}  # fmt: skip


def float_type(b: Binder, i: Instruction) -> str:
    """The instruction's floating type."""
    name = last_type(b, i)
    kind = TYPES[name]
    if not kind.is_float and kind.kind != "packed":
        raise b.fail(f"`{i.name}`: .{name} is no floating type")
    return name


def rounding_mode(i: Instruction) -> str:
    for mode in ("rz", "rm", "rp"):
        if i.has(mode):
            return mode
    return "rn"


def lane_source(b: Binder, operand: Operand, name: str) -> Getter:
    """Getter of a float operand; packed types as (n, 32 * elements) of their element type."""
    kind = TYPES[name]
    get = b.source(operand, name)
    if kind.kind != "packed":
        return get
    lane = _LANE_DTYPES[kind.lane]

    def packed(c: Cohort) -> Array:
        value = get(c)
        if np.ndim(value) == 0:
            value = np.full((1, 32), value)
        return np.asarray(value.view(lane))

    return packed


def lane_write(b: Binder, operand: Operand, name: str) -> Callable[[Cohort, Array], None]:
    """A function that writes float values into the active lanes of a register."""
    kind = TYPES[name]
    get = b.destination(operand, name)
    if kind.kind != "packed":

        def write(c: Cohort, value: Array) -> None:
            np.copyto(get(c), value, where=c.where, casting="unsafe")

        return write
    bits = numpy_type(name)

    def write_packed(c: Cohort, value: Array) -> None:
        np.copyto(get(c), np.ascontiguousarray(value).view(bits), where=c.where)

    return write_packed


def element_dtype(name: str) -> Any:
    kind = TYPES[name]
    return _LANE_DTYPES[kind.lane] if kind.kind == "packed" else numpy_type(name)


def finish(i: Instruction, name: str) -> Callable[[Array], Array] | None:
    """What .ftz, .sat and .relu do to a result, or None."""
    steps: list[Callable[[Array], Array]] = []
    dtype = element_dtype(name)
    if i.has("relu"):
        zero = dtype.type(0)
        steps.append(lambda v: np.where(np.isnan(v), v, np.where(v > zero, v, zero)).astype(dtype))
    if i.has("ftz") and dtype != np.float64:
        steps.append(flush_subnormals)
    if i.has("sat"):
        steps.append(saturate)
    if not steps:
        return None

    def apply(value: Array) -> Array:
        for step in steps:
            value = step(value)
        return value

    return apply


def compile_float(
    b: Binder, i: Instruction, name: str, operands: tuple[Operand, ...], compute: Callable[..., Any]
) -> Run:
    """Closure d = compute(sources...) with .ftz on inputs, and .ftz, .sat and .relu on the result."""
    sources = tuple(lane_source(b, operand, name) for operand in operands[1:])
    flush = i.has("ftz") and element_dtype(name) != np.float64
    after = finish(i, name)

    def whole(*values: Array) -> Array:
        if flush:
            values = tuple(flush_subnormals(value) for value in values)
        result: Array = compute(*values)
        return result if after is None else after(result)

    b.lanewise = Lanewise(whole if flush or after else compute, sources, lane_write(b, operands[0], name))
    return b.lanewise.run
