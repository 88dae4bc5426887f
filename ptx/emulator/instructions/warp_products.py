"""D = A * B + C on matrices that the lanes of a warp hold: what mma and wmma have in common.

Sums are formed in binary64 and rounded once into D; integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import GROUP_DTYPES, LANES, Slot
from tinygpu.ptx.emulator.units.fragments import Fragment
from tinygpu.ptx.emulator.units.matrix_elements import ElementType

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Adjust = Callable[[Cohort, Floats], Floats]
"""What happens to the numbers of A or B, (n, rows, columns), before they are multiplied."""
Multiply = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Held:
    """A matrix in registers: how to fetch their words, and what they mean. Constants have no slot."""

    sources: list[Getter]
    slots: list[Slot | None]
    fragment: Fragment
    element: ElementType

    def words(self, c: Cohort) -> Array:
        """(n, 32, registers)"""
        words = np.empty((c.n, LANES, len(self.sources)), np.uint64 if self.element.bits == 64 else np.uint32)
        for position, source in enumerate(self.sources):
            words[..., position] = source(c)
        return words

    def numbers(self, c: Cohort) -> Floats:
        """(n, rows, columns)"""
        values = self.element.decode(self.words(c).reshape(c.n, -1))
        shape = (c.n, self.fragment.rows, self.fragment.columns)
        return np.take(values, self.fragment.gather, axis=1).reshape(shape)


def hold(b: Binder, registers: Sequence[Operand], fragment: Fragment, element: ElementType) -> Held:
    """The matrix in these registers."""
    name = "u64" if element.bits == 64 else "u32"
    return Held([b.source(e, name) for e in registers], slots_of(b, registers), fragment, element)


def slots_of(b: Binder, operands: Sequence[Operand]) -> list[Slot | None]:
    """Where the registers among some operands live."""
    return [b.slot(e) if isinstance(e, RegisterOperand) else None for e in operands]


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """One product.

    a, b          its matrices
    out_c, out_d  how C and D are held; their types f16 (two per register), f32, f64 or s32
    multiply      A and B to D's shape, in binary64
    adjust_a, adjust_b  what is done to A and B before
    selecting     registers that say how to adjust: an uninitialised one spoils everything
    quad_pairs    D is four products of 8 x 8 below each other
    name, operations    for the meter
    """

    a: Held
    b: Held
    out_c: Fragment
    out_d: Fragment
    c_type: str
    d_type: str
    multiply: Multiply
    saturating: bool
    name: str
    operations: int
    quad_pairs: bool = False
    adjust_a: list[Adjust] = field(default_factory=list)
    adjust_b: list[Adjust] = field(default_factory=list)
    selecting: frozenset[Slot] = frozenset()


def compile_product(
    b: Binder, i: Instruction, product: WarpProduct, held_c: Sequence[Operand], held_d: Sequence[Operand]
) -> Run:
    """The closure that carries out a product with C and D in these registers."""
    half_c, half_d = product.c_type == "f16", product.d_type == "f16"
    sources = [b.source(e, "u32" if half_c else product.c_type) for e in held_c]
    targets = [b.destination(e, "u32" if half_d else product.d_type) for e in held_d]
    out_c, out_d = product.out_c, product.out_d
    # Where C is held differently from D (mma.m8n8k4 alone): which element of C each element of D adds.
    moved = None if out_c is out_d else out_c.gather[out_d.scatter]

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        c.emulation.counters.count_matrix("mma", product.name, c.n, c.n * product.operations)
        left, right = product.a.numbers(c), product.b.numbers(c)
        for adjust in product.adjust_a:
            left = adjust(c, left)
        for adjust in product.adjust_b:
            right = adjust(c, right)
        values = np.take(product.multiply(left, right).reshape(c.n, -1), out_d.scatter, axis=1)
        old = _accumulators(c, sources, half_c, out_c.elements)
        if moved is not None:
            old = np.take(old, moved, axis=1)
        lanes = _rounded(product, values, old).reshape(c.n, LANES, out_d.elements)
        if half_d:
            lanes = lanes.view(np.uint32)
        for position, target in enumerate(targets):
            np.copyto(target(c), lanes[..., position], where=c.where)

    b.taint_before = _taint_rule(product, slots_of(b, held_c), slots_of(b, held_d))
    return run


def _accumulators(c: Cohort, sources: list[Getter], packed: bool, elements: int) -> Array:
    """C as (n, 32 * elements) in the order of lanes, binary64 or int64."""
    if packed:
        words = np.empty((c.n, LANES, len(sources)), np.uint32)
        for position, source in enumerate(sources):
            words[..., position] = source(c)
        values: Array = words.view(np.float16).astype(np.float64)
    else:
        values = np.empty((c.n, LANES, elements), np.float64)
        for position, source in enumerate(sources):
            values[..., position] = source(c)
        if np.asarray(sources[0](c)).dtype.kind != "f":
            values = values.astype(np.int64)
    return values.reshape(c.n, -1)


def _rounded(product: WarpProduct, values: Floats, old: Array) -> Array:
    """values + old as the type of D."""
    if product.d_type == "s32":
        exact = values.astype(np.int64) + old
        if product.saturating:
            exact = np.clip(exact, -(2**31), 2**31 - 1)
        return (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    total = values + old
    if product.d_type == "f64":
        return total
    return total.astype(np.float16 if product.d_type == "f16" else np.float32)


# ---- uninitialised values -----------------------------------------------------------------------------------------


def _taint_rule(product: WarpProduct, slots_c: list[Slot | None], slots_d: list[Slot | None]) -> Run:
    """An uninitialised element of A spoils its row of D, one of B its column, one of C itself."""
    a, b, out_c, out_d = product.a, product.b, product.out_c, product.out_d
    read = {slot for slot in (*a.slots, *b.slots, *slots_c, *product.selecting) if slot is not None}
    written = [slot for slot in slots_d if slot is not None]
    width_c, width_d = (
        16 if name == "f16" else 64 if name == "f64" else 32 for name in (product.c_type, product.d_type)
    )
    dtype = np.dtype(f"u{width_d // 8}")

    def taint(c: Cohort) -> None:
        residents = c.residents
        known = residents.registers.taint
        if known.keys().isdisjoint(read):
            for clean in known.keys() & written:
                residents.set_taint(c, clean, np.zeros((c.n, LANES), GROUP_DTYPES[clean[0]]))
            return
        matrix = np.zeros((c.n, out_d.rows, out_d.columns), np.bool_)
        left, right = _unknown(c, a.slots, a.element.bits), _unknown(c, b.slots, b.element.bits)
        if left is not None:
            spoiled = np.take(left, a.fragment.gather, axis=1).reshape(c.n, a.fragment.rows, -1)
            matrix |= np.any(spoiled, axis=2, keepdims=True)
        if right is not None:
            spoiled = np.take(right, b.fragment.gather, axis=1).reshape(c.n, b.fragment.rows, -1)
            if product.quad_pairs:
                matrix |= np.repeat(spoiled.reshape(-1, 4, 8, 4).any(axis=3), 8, axis=1)
            else:
                matrix |= np.any(spoiled, axis=1, keepdims=True)
        old = _unknown(c, slots_c, width_c)
        if old is not None:
            matrix |= np.take(old, out_c.gather, axis=1).reshape(matrix.shape)
        matrix |= residents.any_taint_per_warp(c, sorted(product.selecting))[:, None, None]
        lanes = np.take(matrix.reshape(c.n, -1), out_d.scatter, axis=1).reshape(c.n, LANES, len(slots_d), -1)
        bits = np.where(lanes, np.iinfo(dtype).max, 0).astype(dtype)
        for position, slot in enumerate(slots_d):
            if slot is not None:
                words = np.ascontiguousarray(bits[:, :, position]).view(GROUP_DTYPES[slot[0]])
                residents.set_taint(c, slot, words.reshape(c.n, LANES))

    return taint


def _unknown(c: Cohort, slots: list[Slot | None], bits: int) -> Bools | None:
    """(n, 32 * elements) which elements of these registers have an uninitialised bit; None for none.

    Elements of less than a byte share the fate of their register.
    """
    known = c.residents.registers.taint
    if known.keys().isdisjoint(slot for slot in slots if slot is not None):
        return None
    words = np.zeros((c.n, LANES, len(slots)), np.uint64 if bits == 64 else np.uint32)
    for position, slot in enumerate(slots):
        found = None if slot is None else known.get(slot)
        if found is not None:
            words[..., position] = found[c.set.rows]
    if bits < 8:
        marked = np.repeat(words != 0, 32 // bits, axis=2)
    else:
        marked = words.view(f"u{bits // 8}") != 0
    flat = marked.reshape(c.n, -1)
    return flat if flat.any() else None
