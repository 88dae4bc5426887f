"""Register tiles: which virtual registers hold the values of a tile, and how elements are packed into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tinygpu.dtypes import DType
from tinygpu.ptx.lowering.emitter import Emitter, Reg


@dataclass(slots=True, eq=False)
class RegisterTile:
    """The registers of one thread.

    packed  elements in one register: 2 for 16-bit and 4 for 8-bit types when they fill whole words, else 1; of 4 bits
            8, 4 or 2, so that a thread holds whole registers
    """

    dtype: DType
    count: int
    packed: int
    registers: list[Reg]

    def register(self, value: int) -> Reg:
        return self.registers[value // self.packed]

    def part(self, values: Sequence[int]) -> RegisterTile:
        """Some of the values, whole registers of them."""
        registers = [self.registers[value // self.packed] for value in values[:: self.packed]]
        return RegisterTile(self.dtype, len(values), self.packed, registers)


def packing(dtype: DType, count: int) -> int:
    """Elements of one register when a thread holds `count`."""
    if dtype.bits == 4:
        return math.gcd(count, 8)
    per = {8: 4, 16: 2}.get(dtype.bits, 1)
    return per if count % per == 0 else 1


def kind_of(dtype: DType, packed: int) -> str:
    """The register kind that holds `packed` elements: b16 for a single 16-bit element, b64 for f64, a predicate, else
    b32.
    """
    if dtype.kind == "predicate":
        return "p"
    if dtype.bits == 64:
        return "d"
    return "h" if dtype.bits == 16 and packed == 1 else "r"


def allocate(emit: Emitter, dtype: DType, count: int) -> RegisterTile:
    packed = packing(dtype, count)
    kind = kind_of(dtype, packed)
    return RegisterTile(dtype, count, packed, [emit.new(kind) for _ in range(count // packed)])


def bit_pattern(dtype: DType, value: float) -> int:
    """The bits of one element."""
    if not (dtype.is_float or dtype.kind == "scale"):
        return int(value) & (1 << dtype.bits) - 1
    if dtype.name == "f64":
        return int(np.float64(value).view(np.uint64))
    if dtype.name in ("f32", "tf32"):
        return int(np.float32(value).view(np.uint32))
    if dtype.name == "f16":
        return int(np.float16(value).view(np.uint16))
    if dtype.name == "bf16":
        return int(np.asarray(value, ml_dtypes.bfloat16).view(np.uint16))
    return int(np.asarray(value, np.float32).astype(dtype.numpy).view(np.uint8)) & (1 << dtype.bits) - 1


def constant_bits(dtype: DType, value: float, packed: int) -> int:
    """The bits of a register that holds `value` in each of its elements."""
    one = bit_pattern(dtype, value)
    return sum(one << dtype.bits * i for i in range(packed))
