"""Carries out one tcgen05.mma: operands from shared and tensor memory, D into the tensor memory of a CTA or a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import async_shared
from tinygpu.ptx.emulator.access.async_shared import Agent, Bools, Index
from tinygpu.ptx.emulator.instructions.tcgen05_copies import shift_rows
from tinygpu.ptx.emulator.instructions.tcgen05_work import CHUNK_BYTES
from tinygpu.ptx.emulator.state.tensor_memory import CtaTensorMemory
from tinygpu.ptx.emulator.units.block_scales import scale_cells, scale_values, spread_scales
from tinygpu.ptx.emulator.units.sparse_metadata import metadata_cells, stored_positions
from tinygpu.ptx.emulator.units.tcgen05_descriptors import ELEMENT_BITS, InstructionDescriptor, MmaForm
from tinygpu.ptx.emulator.units.tcgen05_math import (
    accumulate,
    decode_elements,
    decode_rows,
    expand_sparse,
    multiply,
    slice_bytes,
)
from tinygpu.ptx.emulator.units.tensor_memory_maps import (
    SLAB_LANES,
    LayoutId,
    Slab,
    accumulator_columns,
    accumulator_slabs,
    joined_slabs,
    split_address,
)

Floats = NDArray[np.float64]
_ALL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class SharedOperand:
    """An operand, or the part of it that one CTA holds, being read from shared memory.

    index     byte index of each 16-byte chunk: (rows, chunks) for K-major, (k, chunks) for M- or N-major operands
    invalid   which chunks are uninitialised, or None
    rows      rows of A or columns of B
    """

    agent: Agent
    index: Index
    invalid: Bools | None
    rows: int
    kind: str
    element: str
    mn_major: bool

    def read(self) -> tuple[Floats, Bools]:
        """(rows, stored k) numbers, and which rows have uninitialised bytes."""
        data = async_shared.read_bytes(self.agent, self.index, CHUNK_BYTES).reshape(self.index.shape[0], -1)
        if not self.mn_major:
            return decode_rows(data, self.kind, self.element), self._bad_rows(1)
        bits = ELEMENT_BITS[self.element]
        words = np.ascontiguousarray(data).view(f"u{bits // 8}")[:, : self.rows]
        numbers = decode_elements(np.ascontiguousarray(words), self.element)
        return np.ascontiguousarray(numbers.T), np.repeat(self._bad_rows(0), CHUNK_BYTES * 8 // bits)[: self.rows]

    def _bad_rows(self, axis: int) -> Bools:
        """Rows, or columns, of chunks of which one is uninitialised."""
        if self.invalid is None:
            return np.zeros(self.index.shape[1 - axis], np.bool_)
        return np.asarray(self.invalid.any(axis=axis))


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One execution of tcgen05.mma with legal operands.

    d, a, sfa, sfb, metadata  tensor memory addresses; a is None when A lies in shared memory
    enable                    D is added to the product, times 2^-scale
    frozen                    bit l of the q-th: lane l of D in the q-th CTA is not written
    zero_columns              columns of B that count as zero, or None
    unwritten                 is told what it did with values that nobody wrote
    """

    form: MmaForm
    what: InstructionDescriptor
    layout: LayoutId
    half: int
    d: int
    a: int | None
    sfa: int
    sfb: int
    metadata: int
    enable: bool
    scale: int
    frozen: tuple[int, ...]
    zero_columns: Bools | None
    unwritten: Callable[[str], None]

    @property
    def slabs(self) -> tuple[Slab, ...]:
        return accumulator_slabs(self.layout, self.what.n, self.half)

    def steps(self, memory: CtaTensorMemory) -> tuple[Slab, ...]:
        """The slabs, taken as one where they lie and work side by side with operands in common.

        Each slab has a copy of its own of the scale factors of B: what was copied to all of them is common.
        """
        if self.what.sparse:
            return self.slabs
        joined = joined_slabs(self.layout, self.what.n, self.half)
        if self.form.scales_per_row and not all(_have_one_scale_of_b(self, memory, slab) for slab in joined):
            return self.slabs
        return joined

    @property
    def stored_k(self) -> int:
        """Elements of K that are stored of each row of A."""
        return self.what.k // 2 if self.what.sparse else self.what.k

    @property
    def a_columns(self) -> int:
        """Columns of tensor memory that A covers."""
        return -(-slice_bytes(self.what.kind, self.what.a_type, self.stored_k) // 4)

    @property
    def shape(self) -> tuple[int, ...]:
        """What two tcgen05.mma must share to be carried out in order: accumulator and shape."""
        return (self.d, self.what.m, self.what.n, self.what.k)


def carry_out(
    call: Call, memories: list[CtaTensorMemory], a_parts: list[SharedOperand], b_parts: list[SharedOperand]
) -> tuple[int, int] | None:
    """Multiply. Returns (row of A in its CTA, index) of sparsity metadata without meaning, or None.

    a_parts  A by CTA; empty when A lies in tensor memory
    b_parts  B by CTA: each holds its share of the columns
    """
    pieces = [part.read() for part in b_parts]
    b, b_bad = np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])
    if call.zero_columns is not None:
        b = np.where(call.zero_columns[:, None], 0.0, b)
        b_bad = b_bad & ~call.zero_columns
    if call.what.negate_b:
        b = -b
    illegal: tuple[int, int] | None = None
    for q, memory in enumerate(memories):
        shared = a_parts[q].read() if a_parts else None
        for slab in call.steps(memory):
            a, a_bad, wrong = _rows_of_a(call, memory, slab, shared)
            if wrong is not None and illegal is None:
                illegal = wrong
            columns = slice(slab.column, slab.column + slab.columns)
            right, right_bad = b[columns], b_bad[columns]
            bad_of = {"A": a_bad, "B": right_bad}
            if call.form.scales_per_row:
                scale, bad_of["the scale factors of A"] = _scales(call, memory, slab, "A")
                a, a_bad = a * scale, a_bad | bad_of["the scale factors of A"]
                scale, bad_of["the scale factors of B"] = _scales(call, memory, slab, "B")
                right, right_bad = right * scale, right_bad | bad_of["the scale factors of B"]
            for operand, bad in bad_of.items():
                if bad.any():
                    call.unwritten(f"multiplied what nobody had written of {operand}")
            undefined = a_bad[:, None] | right_bad[None, :] if a_bad.any() or right_bad.any() else None
            _write(call, memory, slab, call.frozen[q], multiply(a, right), undefined)
    if call.form.ashift and call.a is not None:
        column = split_address(call.a)[1]
        for memory in memories:
            for slab in call.slabs:
                shift_rows(memory, slab.lane, column)
    return illegal


def _rows_of_a(
    call: Call, memory: CtaTensorMemory, slab: Slab, shared: tuple[Floats, Bools] | None
) -> tuple[Floats, Bools, tuple[int, int] | None]:
    """The rows of A that a slab multiplies: dense numbers, which are uninitialised, and a row with a bad index."""
    what = call.what
    if shared is not None:
        rows = slice(slab.row, slab.row + slab.rows)
        a, bad = shared[0][rows], shared[1][rows]
    else:
        column = split_address(call.a or 0)[1]
        # A slab finds its rows of A in the lanes in which it writes D.
        part = (slice(slab.lane, slab.lane + slab.rows), slice(column, column + call.a_columns))
        data = np.ascontiguousarray(memory.cells[part]).view(np.uint8)
        a = decode_rows(data[:, : slice_bytes(what.kind, what.a_type, call.stored_k)], what.kind, what.a_type, True)
        bad = np.asarray(memory.undefined[part].any(axis=1))
    wrong: tuple[int, int] | None = None
    if what.sparse:
        column = split_address(call.metadata)[1]
        cells = metadata_cells(slab, what.kind, what.sparsity_selector)
        at = (cells.lane, column + cells.column)
        indices = (memory.cells[at].astype(np.int64) >> cells.shift) & 15
        unknown = np.asarray(((memory.undefined[at].astype(np.int64) >> cells.shift) & 15).any(axis=1))
        positions, illegal = stored_positions(indices, what.kind)
        illegal &= ~unknown[:, None]
        if illegal.any():
            row, chunk = divmod(int(np.argmax(illegal)), illegal.shape[1])
            wrong = (slab.row + row, int(indices[row, chunk]))
        a = expand_sparse(a, positions, what.k)
        bad = bad | unknown
    return (-a if what.negate_a else a), bad, wrong


def _have_one_scale_of_b(call: Call, memory: CtaTensorMemory, slab: Slab) -> bool:
    """Whether all quarters of a slab hold the same scale factors of columns of B."""
    if slab.rows <= SLAB_LANES:
        return True
    first = split_address(call.sfb)[1]
    part = (slice(slab.lane, slab.lane + slab.rows), slice(first, first + -(-slab.columns // SLAB_LANES)))
    for plane in (memory.cells, memory.undefined):
        copies = plane[part].reshape(-1, SLAB_LANES, part[1].stop - first)
        if (copies[1:] != copies[0]).any():
            return False
    return True


def _scales(call: Call, memory: CtaTensorMemory, slab: Slab, operand: str) -> tuple[Floats, Bools]:
    """Factors (rows, k) of the rows of A or columns of B of a slab, and which rows are uninitialised."""
    first = call.what.sfa_id if operand == "A" else call.what.sfb_id
    cells = scale_cells(slab, operand, call.form.scales_per_row, first)
    column = split_address(call.sfa if operand == "A" else call.sfb)[1]
    at, shift = (cells.lane, column + cells.column), (8 * cells.byte).astype(np.uint32)
    data = (memory.cells[at] >> shift).astype(np.uint8)
    unknown = memory.undefined[at]
    bad = np.zeros(len(unknown), np.bool_)
    if unknown.any():
        bad = np.asarray(((unknown >> shift) & np.uint32(0xFF)).any(axis=1))
    return spread_scales(scale_values(data, call.what.scale_type), call.what.k), bad


def _write(
    call: Call, memory: CtaTensorMemory, slab: Slab, frozen: int, product: Floats, undefined: Bools | None
) -> None:
    """Put a slab's part of D where it belongs; `undefined` says which results are not initialised, None for none."""
    what = call.what
    column = split_address(call.d)[1]
    columns = slice(column, column + slab.columns)
    rows: slice | NDArray[np.int64] = slice(slab.lane, slab.lane + slab.rows)
    if frozen >> slab.lane & ((1 << slab.rows) - 1):
        rows = np.array([lane for lane in range(slab.lane, slab.lane + slab.rows) if not frozen >> lane & 1], np.int64)
        product = product[rows - slab.lane]
        undefined = None if undefined is None else undefined[rows - slab.lane]
    old = memory.cells[rows, columns] if call.enable else None
    bits: NDArray[np.uint32] | np.uint32 = np.uint32(0)
    before = memory.undefined[rows, columns] if call.enable else None
    if undefined is not None or (before is not None and before.any()):
        unknown = np.zeros((), np.bool_) if undefined is None else undefined
        if before is not None:
            if before.any():
                call.unwritten("added to sums that nobody had written")
            unknown = unknown | ((before & np.uint32(0xFFFF) if what.d_type == "f16" else before) != 0)
        bits = np.where(unknown, _ALL, np.uint32(0))
    if what.d_type == "f16":
        # The accumulator has the lower half of its cell; the upper half holds nothing.
        bits = bits | np.uint32(0xFFFF0000)
    memory.cells[rows, columns] = accumulate(product, old, what.d_type, call.scale, what.saturate)
    memory.undefined[rows, columns] = bits


def accumulator_end(call: Call) -> int:
    """Columns that D covers."""
    return accumulator_columns(call.layout, call.what.n)
