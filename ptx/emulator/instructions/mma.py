"""mma.sync in all its forms: dense, sparse, block-scaled (PTX ISA, "mma", "mma.sp").

Sums are formed in binary64 and rounded once into D; integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.mma_forms import MmaForm, read_form
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.registers import GROUP_DTYPES, LANES, Slot
from tinygpu.ptx.emulator.state.residents import Cohort
from tinygpu.ptx.emulator.units import sparsity
from tinygpu.ptx.emulator.units.fragments import (
    Fragment,
    accumulator_fragment,
    left_fragment,
    quad_pair_accumulator,
    quad_pair_operand,
    right_fragment,
)
from tinygpu.ptx.emulator.units.matrix_elements import ElementType

Floats = NDArray[np.float64]
Adjust = Callable[[Cohort, Floats], Floats]
"""What happens to the numbers of A or B, (n, rows, columns), before they are multiplied."""


@dataclass(frozen=True, slots=True)
class Held:
    """A matrix in registers: how to fetch their words, and what they mean. Constants have no slot."""

    sources: list[Getter]
    slots: list[Slot | None]
    fragment: Fragment
    element: ElementType

    def words(self, c: Cohort) -> Array:
        """(n, 32, registers)"""
        words = np.empty((c.n, 32, len(self.sources)), np.uint64 if self.element.bits == 64 else np.uint32)
        for position, source in enumerate(self.sources):
            words[..., position] = source(c)
        return words

    def numbers(self, c: Cohort) -> Floats:
        """(n, rows, columns)"""
        values = self.element.decode(self.words(c).reshape(c.n, -1))
        shape = (c.n, self.fragment.rows, self.fragment.columns)
        return np.take(values, self.fragment.gather, axis=1).reshape(shape)


def _held(b: Binder, operand: Operand, fragment: Fragment, element: ElementType, what: str) -> Held:
    count = fragment.elements // element.per_register
    name = "u64" if element.bits == 64 else "u32"
    registers = b.vector(operand, count, what)
    return Held([b.source(e, name) for e in registers], _slots(b, registers), fragment, element)


def _slots(b: Binder, operands: tuple[Operand, ...]) -> list[Slot | None]:
    return [b.slot(e) if isinstance(e, RegisterOperand) else None for e in operands]


def _mma(b: Binder, i: Instruction) -> Run:
    form = read_form(b, i)
    operands = list(b.operands(i, 4 + 2 * form.sparse + 4 * (form.scale is not None)))
    left, right, out_c, out_d = _fragments(form)
    a = _held(b, operands[1], left, form.a, "A of this mma")
    right_held = _held(b, operands[2], right, form.b, "B of this mma")
    matrices = frozenset(b.reads)
    half_c, half_d = form.c_type == "f16", form.d_type == "f16"
    held_c = b.vector(operands[3], out_c.elements // (1 + half_c), "C of this mma")
    held_d = b.vector(operands[0], out_d.elements // (1 + half_d), "D of this mma")
    adjust_a: list[Adjust] = []
    adjust_b: list[Adjust] = []
    rest = operands[4:]
    if form.sparse:
        adjust_a.append(_expansion(b, i, form, rest[0], rest[1]))
        rest = rest[2:]
    if form.scale is not None:
        adjust_a.append(_scaling(b, i, form, rest[0], rest[1], "a"))
        adjust_b.append(_scaling(b, i, form, rest[2], rest[3], "b"))
    selecting = frozenset(b.reads - matrices)
    sources = [b.source(e, "u32" if half_c else form.c_type) for e in held_c]
    targets = [b.destination(e, "u32" if half_d else form.d_type) for e in held_d]
    multiply = _product(form)
    # Where C is held differently from D (m8n8k4 alone): which element of C each element of D adds.
    moved = None if out_c is out_d else out_c.gather[out_d.scatter]

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        c.emulation.counters.count_matrix("mma", form.name, c.n, c.n * form.operations)
        numbers_a, numbers_b = a.numbers(c), right_held.numbers(c)
        for adjust in adjust_a:
            numbers_a = adjust(c, numbers_a)
        for adjust in adjust_b:
            numbers_b = adjust(c, numbers_b)
        product = np.take(multiply(numbers_a, numbers_b).reshape(c.n, -1), out_d.scatter, axis=1)
        old = _accumulators(c, sources, half_c, out_c.elements)
        if moved is not None:
            old = np.take(old, moved, axis=1)
        lanes = _rounded(form, product, old).reshape(c.n, LANES, out_d.elements)
        if half_d:
            lanes = lanes.view(np.uint32)
        for position, target in enumerate(targets):
            np.copyto(target(c), lanes[..., position], where=c.where)

    b.taint_before = _taint_rule(
        a, right_held, _slots(b, held_c), _slots(b, held_d), out_c, out_d, (half_c, half_d), selecting
    )
    return run


# ---- uninitialised values -----------------------------------------------------------------------------------------


def _taint_rule(
    a: Held, b: Held, slots_c: list[Slot | None], slots_d: list[Slot | None], out_c: Fragment, out_d: Fragment,
    packed: tuple[bool, bool], selecting: frozenset[Slot],
) -> Run:  # fmt: skip
    """An uninitialised element of A spoils its row of D, one of B its column, one of C itself.

    packed     whether C and D hold two elements per register
    selecting  registers of metadata, scale factors and selectors: they spoil everything
    """
    read = {slot for slot in (*a.slots, *b.slots, *slots_c, *selecting) if slot is not None}
    written = [slot for slot in slots_d if slot is not None]
    width_c, width_d = (16 if half else 64 if a.element.bits == 64 else 32 for half in packed)

    def taint(c: Cohort) -> None:
        residents = c.residents
        known = residents.registers.taint
        if known.keys().isdisjoint(read):
            for clean in known.keys() & written:
                residents.set_taint(c, clean, np.zeros((c.n, LANES), GROUP_DTYPES[clean[0]]))
            return
        left, right = _unknown(c, a.slots, a.element.bits), _unknown(c, b.slots, b.element.bits)
        matrix = np.zeros((c.n, out_d.rows, out_d.columns), np.bool_)
        if left is not None:
            spoiled = np.take(left, a.fragment.gather, axis=1).reshape(c.n, a.fragment.rows, -1)
            matrix |= np.any(spoiled, axis=2, keepdims=True)
        if right is not None:
            _spoil_columns(matrix, np.take(right, b.fragment.gather, axis=1), b.fragment)
        old = _unknown(c, slots_c, width_c)
        if old is not None:
            matrix |= np.take(old, out_c.gather, axis=1).reshape(matrix.shape)
        matrix |= residents.any_taint_per_warp(c, sorted(selecting))[:, None, None]
        lanes = np.take(matrix.reshape(c.n, -1), out_d.scatter, axis=1).reshape(c.n, LANES, len(slots_d), -1)
        dtype = np.dtype(f"u{width_d // 8}")
        bits = np.where(lanes, np.iinfo(dtype).max, 0).astype(dtype)
        for position, slot in enumerate(slots_d):
            if slot is not None:
                words = np.ascontiguousarray(bits[:, :, position]).view(GROUP_DTYPES[slot[0]])
                residents.set_taint(c, slot, words.reshape(c.n, LANES))

    return taint


def _spoil_columns(matrix: NDArray[np.bool_], spoiled: NDArray[np.bool_], fragment: Fragment) -> None:
    """Mark the columns of D that an uninitialised element of B enters; quad pairs have eight for each of their rows."""
    if fragment.columns == 8:
        matrix |= np.any(spoiled.reshape(-1, fragment.rows, 8), axis=1, keepdims=True)
    else:
        matrix |= np.repeat(spoiled.reshape(-1, 4, 8, 4).any(axis=3), 8, axis=1)


def _unknown(c: Cohort, slots: list[Slot | None], bits: int) -> NDArray[np.bool_] | None:
    """(n, 32 * elements) which elements of these registers have an uninitialised bit; None for none.

    Elements of less than a byte share the fate of their register.
    """
    known = c.residents.registers.taint
    if known.keys().isdisjoint(slot for slot in slots if slot is not None):
        return None
    dtype = np.dtype(np.uint64 if bits == 64 else np.uint32)
    words = np.zeros((c.n, LANES, len(slots)), dtype)
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


def _fragments(form: MmaForm) -> tuple[Fragment, Fragment, Fragment, Fragment]:
    """A, B, C, D."""
    if form.quad_pairs:
        return (
            quad_pair_operand(form.a_rows), quad_pair_operand(not form.b_rows),
            quad_pair_accumulator(form.c_type == "f32"), quad_pair_accumulator(form.d_type == "f32"),
        )  # fmt: skip
    accumulator = accumulator_fragment(form.m, 8)
    return (
        left_fragment(form.m, form.stored_k, form.a.per_register), right_fragment(form.k, form.b.per_register),
        accumulator, accumulator,
    )  # fmt: skip


def _product(form: MmaForm) -> Callable[[Floats, Floats], Floats]:
    """A * B in binary64; B is (n, k, 8), of quad pairs (n, 32, 4) with columns stacked."""
    if form.quad_pairs:

        def pairs(a: Floats, b: Floats) -> Floats:
            left, right = a.reshape(-1, 4, 8, 4), b.reshape(-1, 4, 8, 4)
            product: Floats = np.matmul(left, right.transpose(0, 1, 3, 2))
            return product.reshape(a.shape[0], 32, 8)

        return pairs
    if form.bit_operation == "xor":
        # Bits that differ: those set on one side, without those set on both, counted on both sides.
        return lambda a, b: a.sum(axis=2)[:, :, None] + b.sum(axis=1)[:, None, :] - 2 * np.matmul(a, b)
    return np.matmul


def _rounded(form: MmaForm, product: Floats, old: Array) -> Array:
    """product + old as the type of D."""
    if form.d_type == "s32":
        exact = product.astype(np.int64) + old
        if form.saturating:
            exact = np.clip(exact, -(2**31), 2**31 - 1)
        return (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    total = product + old
    if form.d_type == "f64":
        return total
    return total.astype(np.float16 if form.d_type == "f16" else np.float32)


def _accumulators(c: Cohort, sources: list[Getter], packed: bool, elements: int) -> Array:
    """C as (n, 32 * elements) in the order of lanes, binary64 or int64."""
    if packed:
        words = np.empty((c.n, 32, len(sources)), np.uint32)
        for position, source in enumerate(sources):
            words[..., position] = source(c)
        values: Array = words.view(np.float16).astype(np.float64)
    else:
        values = np.empty((c.n, 32, elements), np.float64)
        for position, source in enumerate(sources):
            values[..., position] = source(c)
        if np.asarray(sources[0](c)).dtype.kind != "f":
            values = values.astype(np.int64)
    return values.reshape(c.n, -1)


# ---- sparse A -----------------------------------------------------------------------------------------------------


def _expansion(b: Binder, i: Instruction, form: MmaForm, metadata: Operand, selector: Operand) -> Adjust:
    """Stored elements of A to the columns that the metadata names."""
    layout = sparsity.sparsity_layout(form.k, form.a.bits)
    words = b.source(metadata, "u32")
    chosen = b.integer(selector, "the sparsity selector")
    if not 0 <= chosen < layout.selectors:
        allowed = " or ".join(str(k) for k in range(layout.selectors))
        raise b.fail(f"`{i.name}`: the sparsity selector must be {allowed}, not {chosen}")

    def expand(c: Cohort, stored: Floats) -> Floats:
        indices = sparsity.chunk_indices(layout, np.broadcast_to(words(c), (c.n, 32)), chosen)
        bad = sparsity.illegal_chunks(layout, indices, form.ordered)
        if bad.any():
            _report_metadata(c, i, form, indices, bad)
        return sparsity.expand(layout, stored, indices)

    return expand


def _report_metadata(
    c: Cohort, i: Instruction, form: MmaForm, indices: NDArray[np.int64], bad: NDArray[np.bool_]
) -> None:
    warp, row, chunk = (int(x) for x in np.argwhere(bad)[0])
    if form.a.bits == 32:
        right = "0b0100 or 0b1110"
    else:
        right = "0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110" if form.ordered else "two different indices"
    c.emulation.fault(
        "descriptor", i, c.residents, int(c.set.index[warp]), None,
        f"the sparsity metadata of row {row} of A, chunk {chunk}, is {int(indices[warp, row, chunk]):#06b}: it must be "
        f"{right}",
        count=int(np.count_nonzero(bad)),
    )  # fmt: skip


# ---- block scaling ------------------------------------------------------------------------------------------------


def _scaling(
    b: Binder, i: Instruction, form: MmaForm, data: Operand, selector: Operand, operand: str
) -> Adjust:
    """Multiply A or B by scale factors, of which each covers k / scale_count neighbours along K.

    Of each quad the lanes 2 t and 2 t + 1 give the scale factors of rows g and g + 8 of A, and lane t that of column g
    of B, where t is the thread selector (PTX ISA, "Block Scaling for mma.sync").
    """
    words = b.source(data, "u32")
    byte_id, thread_id = (b.source(e, "u16") for e in b.vector(selector, 2, f"the selector of scale-{operand}"))
    count, scale = form.scale_count, form.scale
    if scale is None:
        raise ValueError("this form has no scale factors")
    quad = np.arange(8)
    lanes = np.concatenate([4 * quad, 4 * quad + 1]) if operand == "a" else 4 * quad
    per_thread = 2 if operand == "a" else 1
    threads = 4 // per_thread

    def adjust(c: Cohort, numbers: Floats) -> Floats:
        byte, thread = (np.broadcast_to(get(c), (c.n, 32))[:, 0].astype(np.int64) for get in (byte_id, thread_id))
        _check_selector(c, i, operand, byte, thread, count, threads)
        held = np.broadcast_to(words(c), (c.n, 32))
        cells = np.take_along_axis(held, lanes[None, :] + per_thread * (thread[:, None] % threads), axis=1)
        part = np.arange(count)[None, None, :] + (byte % (5 - count))[:, None, None]
        codes = (cells[:, :, None] >> (8 * part).astype(np.uint32)) & np.uint32(0xFF)
        factors = np.repeat(scale.decode(codes).astype(np.float64), form.k // count, axis=2)
        return numbers * (factors if operand == "a" else factors.transpose(0, 2, 1))

    return adjust


def _check_selector(
    c: Cohort, i: Instruction, operand: str, byte: NDArray[np.int64], thread: NDArray[np.int64], count: int,
    threads: int,
) -> None:  # fmt: skip
    """Bytes 0 to 3 for one scale factor, 0 or 2 for two, 0 for four; threads 0 to 1 for A, 0 to 3 for B."""
    for name, value, allowed in (
        ("byte-id", byte, range(0, 4, count)), ("thread-id", thread, range(threads))
    ):  # fmt: skip
        bad = ~np.isin(value, list(allowed))
        if bad.any():
            at = int(np.argmax(bad))
            right = " or ".join(str(k) for k in allowed)
            c.emulation.fault(
                "descriptor", i, c.residents, int(c.set.index[at]), None,
                f"{name}-{operand} of the scale factors is {int(value[at])}: it must be {right}",
                count=int(np.count_nonzero(bad)),
            )  # fmt: skip


MMA: dict[str, Compile] = {"mma": _mma}
