"""Products and sums of parts of integers: mul24, mad24, dp4a, dp2a, sad (PTX ISA, "Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit, integer_type, product_mode, simple
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type


def _mul24(accumulate: bool) -> Compile:
    def compile_mul24(b: Binder, i: Instruction) -> Run:
        name = integer_type(b, i, (32,))
        mode = product_mode(b, i)
        signed = TYPES[name].signed
        operands = b.operands(i, 4 if accumulate else 3)
        sources = [b.source(operands[1], name), b.source(operands[2], name)]
        if accumulate:
            sources.append(b.source(operands[3], name))
        limit = i.has("sat")
        if limit and (mode != "hi" or name != "s32" or not accumulate):
            raise b.fail(".sat applies to mad24.hi.s32 only")

        def compute(x: Array, y: Array, z: Array | None = None) -> Array:
            def cut(value: Array) -> Array:
                wide = np.asarray(value).astype(np.int64) & 0xFFFFFF
                if not signed:
                    return np.asarray(wide)
                return np.where(wide & 0x800000, wide - 0x1000000, wide)

            product = cut(x) * cut(y)
            result = product >> 16 if mode == "hi" else product
            if z is not None:
                result = result + np.asarray(z).astype(np.int64)
            if limit:
                result = np.clip(result, -(2**31), 2**31 - 1)
            return np.asarray((result & 0xFFFFFFFF).astype(np.uint32))

        return emit(b.destination(operands[0], "u32"), compute, tuple(sources))

    return compile_mul24


def _sad(name: str) -> Callable[..., Any]:
    signed = TYPES[name].signed
    unsigned: Any = np.dtype(f"u{TYPES[name].bytes}")

    def compute(x: Array, y: Array, z: Array) -> Array:
        larger, smaller = np.maximum(x, y), np.minimum(x, y)
        if signed:
            larger, smaller = larger.view(unsigned), smaller.view(unsigned)
        total = (larger - smaller) + np.asarray(z).view(unsigned)
        return np.asarray(total.view(numpy_type(name)))

    return compute


def _dot(lanes: int) -> Compile:
    def compile_dot(b: Binder, i: Instruction) -> Run:
        if len(i.types) != 2:
            raise b.fail(f"`{i.name}` needs two types")
        d, x, y, z = b.operands(i, 4)
        sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(z, "u32"))
        signed_x, signed_y = TYPES[i.types[0]].signed, TYPES[i.types[1]].signed
        second_start = 16 if i.has("hi") else 0

        def field(value: Array, start: int, width: int, signed: bool) -> Array:
            part = (np.asarray(value).astype(np.int64) >> start) & ((1 << width) - 1)
            return np.where(part >> (width - 1) & 1, part - (1 << width), part) if signed else part

        def compute(p: Array, q: Array, r: Array) -> Array:
            total = np.asarray(r).astype(np.int64)
            for lane in range(lanes):
                if lanes == 4:
                    total = total + field(p, 8 * lane, 8, signed_x) * field(q, 8 * lane, 8, signed_y)
                else:
                    total = total + field(p, 16 * lane, 16, signed_x) * field(q, second_start + 8 * lane, 8, signed_y)
            return np.asarray((total & 0xFFFFFFFF).astype(np.uint32))

        return emit(b.destination(d, "u32"), compute, sources)

    return compile_dot


PRODUCTS: dict[str, Compile] = {
    "mul24": _mul24(False),
    "mad24": _mul24(True),
    "sad": simple((16, 32, 64), 3, _sad),
    "dp4a": _dot(4),
    "dp2a": _dot(2),
}
