"""What wgmma.mma_async computes, for a batch of warpgroups: D = A * B + D between issue and wait.

Products are formed in binary64, added to D and rounded once into it; integers are exact. (The manual leaves the order
and the width of sums open; for small integers every order gives these bits.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import operand_reads
from tinygpu.ptx.emulator.instructions.warpgroups import Use, Warpgroups
from tinygpu.ptx.emulator.instructions.wgmma_forms import ROWS, WgmmaForm
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.registers import ALL_BITS, LANES, RegisterFile, Slot
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.units import sparsity
from tinygpu.ptx.emulator.units.fragments import accumulator_fragment, left_fragment
from tinygpu.ptx.emulator.units.short_sums import short_sum

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What all executions of one wgmma.mma_async share.

    d, a           registers of D and A (none where A is in shared memory), as indices into the 32-bit group
    d_slots        the same as slots, and a_slots
    uses           the same as sets, with what they are used for
    because        for instructions that touch these registers too early
    from_product   (elements per thread, 128) position in the product of each element of D
    selector       of sparse metadata
    """

    form: WgmmaForm
    instruction: Instruction
    site: Site
    d: Index
    a: Index
    d_slots: tuple[Slot, ...]
    a_slots: tuple[Slot, ...]
    uses: tuple[Use, ...]
    because: str
    from_product: Index
    selector: int


def make_plan(
    form: WgmmaForm, instruction: Instruction, site: Site, d: list[Slot], a: list[Slot], selector: int
) -> Plan:
    """The plan of one instruction."""
    fragment = accumulator_fragment(ROWS, form.n)
    uses = [Use(frozenset(d), "D", form.name)] + ([Use(frozenset(a), "A", form.name)] if a else [])
    because = f"which the wgmma.mma_async on line {instruction.line} still works with: wgmma.wait_group must come first"
    from_product = np.ascontiguousarray(fragment.scatter.reshape(fragment.lanes, -1).T)
    return Plan(
        form, instruction, site, np.array([k for _, k in d]), np.array([k for _, k in a], np.int64), tuple(d), tuple(a),
        tuple(uses), because, from_product, selector,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class OperandChunks:
    """An operand in shared memory, for each warpgroup of a batch.

    index    (groups, rows, chunks) byte index of its 16-byte chunks in the shared memory of all resident CTAs; rows
             are steps of K where M or N runs fastest
    invalid  which of them are uninitialised; None for none
    """

    index: Index
    invalid: Bools | None = None

    def take(self, groups: Bools) -> OperandChunks:
        """The part of some of the warpgroups."""
        return OperandChunks(self.index[groups], None if self.invalid is None else self.invalid[groups])

    @property
    def flat(self) -> Index:
        """(groups, all chunks)"""
        return self.index.reshape(self.index.shape[0], -1)


def begin_reads(
    residents: Residents, site: Site, rows: Index, columns: Index, operands: list[OperandChunks]
) -> tuple[Index, list[OperandChunks]]:
    """Tell shared memory what is read: all chunks, and the operands with what of them is uninitialised."""
    chunks = operands[0].flat if len(operands) == 1 else np.concatenate([o.flat for o in operands], axis=1)
    if not residents.emulation.checking:
        return chunks, operands
    invalid = operand_reads.begin_reads(residents, site, rows, columns, chunks)
    if invalid is None:
        return chunks, operands
    marked, start = [], 0
    for operand in operands:
        size = operand.index[0].size
        part = invalid[:, start : start + size].reshape(operand.index.shape)
        marked.append(OperandChunks(operand.index, part if part.any() else None))
        start += size
    return chunks, marked


@dataclass(slots=True, eq=False)
class Product:
    """One execution of wgmma.mma_async by some warpgroups, until they have waited for it.

    rows        (groups, 4) their warps
    commits     (groups,) number of the commit group that it belongs to
    columns     (groups,) agents
    accumulate  (groups,) whether D is added to
    a, b        operands in shared memory; None for A in registers
    chunks      (groups, chunks) those of both
    metadata    (groups, 4, 32) of sparse A
    computed    D has been written
    """

    plan: Plan
    rows: Index
    commits: Index
    columns: Index
    accumulate: Bools
    a: OperandChunks | None
    b: OperandChunks
    chunks: Index
    metadata: NDArray[np.uint32] | None
    computed: bool = False

    @property
    def reads_uninitialised(self) -> bool:
        """Whether an operand in shared memory holds what nobody wrote."""
        return any(o is not None and o.invalid is not None for o in (self.a, self.b))

    @property
    def leaders(self) -> Index:
        return self.rows[:, 0]

    def take(self, groups: Bools) -> Product:
        """The part of some of the warpgroups."""
        return replace(
            self, rows=self.rows[groups], commits=self.commits[groups], columns=self.columns[groups],
            accumulate=self.accumulate[groups], a=None if self.a is None else self.a.take(groups),
            b=self.b.take(groups), chunks=self.chunks[groups],
            metadata=None if self.metadata is None else self.metadata[groups],
        )  # fmt: skip


# ---- computing ----------------------------------------------------------------------------------------------------


def compute(residents: Residents, product: Product) -> None:
    """Write D, unless that has been done."""
    if product.computed:
        return
    product.computed = True
    plan, form = product.plan, product.plan.form
    file = residents.registers.groups[2]
    left = _left(residents, product, file)
    right = _gather(residents, product.b.index, form.n, form.b_mn, form, False)
    if not form.b_mn:
        right = right.transpose(0, 2, 1)
    groups = left.shape[0]
    place = plan.d[:, None, None], product.rows[None, :, :]
    old = None
    if product.accumulate.any():
        words = np.ascontiguousarray(file[place].transpose(1, 0, 2, 3)).reshape(groups, form.registers, 4 * LANES)
        old = _unpacked(words, form.d_type)
        if not product.accumulate.all():
            old = np.where(product.accumulate[:, None, None], old, 0)
    if residents.emulation.short_sums and form.a.bits == 8 and form.d_type != "s32":
        before = np.zeros((groups, ROWS * form.n))
        if old is not None:
            before[:, plan.from_product] = old
        result = short_sum(form.sign * left, right, before.reshape(groups, ROWS, form.n))
        old = None
    else:
        result = np.matmul(left, right)
        if form.sign < 0:
            np.negative(result, out=result)
    values = np.take(result.reshape(groups, -1), plan.from_product, axis=1)
    packed = _packed(_rounded(values, old, form))
    file[place] = packed.reshape(groups, form.registers, 4, LANES).transpose(1, 0, 2, 3)
    if residents.tainted or product.reads_uninitialised:
        _taint(residents, product)


def _left(residents: Residents, product: Product, file: Array) -> Floats:
    """A as (groups, 64, k)."""
    plan, form = product.plan, product.plan.form
    if product.a is None:
        words = _register_words(file, plan.a, product.rows)
        fragment = left_fragment(ROWS, form.stored_k, form.a.per_register)
        numbers = form.a.decode(words.reshape(words.shape[0], -1))
        numbers = np.take(numbers, fragment.gather, axis=1).reshape(-1, ROWS, form.stored_k)
    else:
        numbers = _gather(residents, product.a.index, ROWS, form.a_mn, form, True)
        if form.a_mn:
            numbers = numbers.transpose(0, 2, 1)
    if product.metadata is not None:
        layout = sparsity.sparsity_layout(form.k, form.a.bits)
        indices = sparsity.chunk_indices(layout, product.metadata, plan.selector)
        shaped = np.ascontiguousarray(numbers).reshape(-1, 4, 16, form.stored_k)
        numbers = sparsity.expand(layout, shaped, indices).reshape(-1, ROWS, form.k)
    return numbers


def _register_words(file: Array, slots: Index, rows: Index) -> Array:
    """(groups, 128, registers) words of a register operand, contiguous."""
    words = file[slots[:, None, None], rows[None, :, :]]
    return np.ascontiguousarray(words.transpose(1, 2, 3, 0)).reshape(rows.shape[0], 4 * LANES, slots.size)


def _gather(
    residents: Residents, index: Index, extent: int, mn_major: bool, form: WgmmaForm, is_a: bool
) -> Floats:
    """Numbers of an operand in shared memory: (groups, extent, k), or (groups, k, extent) where M or N runs fastest."""
    words = np.take(residents.shared.view(4, 4), index >> 4, axis=0, mode="clip")
    element = form.a if is_a else form.b
    numbers = element.decode(words.reshape(*index.shape[:-1], -1))
    return numbers[..., :extent] if mn_major else numbers


def _unpacked(words: Array, d_type: str) -> Array:
    """D as (groups, elements per thread, 128) from its registers (groups, registers, 128)."""
    if d_type == "f32":
        return words.view(np.float32)
    if d_type == "s32":
        return words.view(np.int32)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=2).astype(np.uint16)
    return halves.reshape(words.shape[0], -1, words.shape[2]).view(np.float16)


def _rounded(values: Floats, old: Array | None, form: WgmmaForm) -> Array:
    if form.d_type == "s32":
        exact = values.astype(np.int64)
        if old is not None:
            exact += old
        if form.saturating:
            exact = np.clip(exact, -(2**31), 2**31 - 1)
        return exact.astype(np.int32)
    if old is not None:
        values += old
    return values.astype(np.float32 if form.d_type == "f32" else np.float16)


def _packed(values: Array) -> NDArray[np.uint32]:
    if values.dtype.itemsize == 4:
        return values.view(np.uint32)
    halves = values.view(np.uint16).reshape(values.shape[0], -1, 2, values.shape[2]).astype(np.uint32)
    packed: NDArray[np.uint32] = halves[:, :, 0] | halves[:, :, 1] << np.uint32(16)
    return packed


# ---- uninitialised values -----------------------------------------------------------------------------------------


def _taint(residents: Residents, product: Product) -> None:
    """An uninitialised element of A spoils its row of D, one of B its column, and D's own stay where D is added to."""
    plan, form, registers = product.plan, product.plan.form, residents.registers
    groups = product.rows.shape[0]
    rows = _spoiled(product.a, ROWS, form.a_mn, form.a.bits)
    if product.a is None:
        bits = _register_taint(registers, plan.a_slots, product.rows)
        if bits is not None:
            fragment = left_fragment(ROWS, form.stored_k, form.a.per_register)
            spread = np.repeat(bits.transpose(0, 2, 1), form.a.per_register, axis=2).reshape(groups, -1)
            rows = np.asarray(np.take(spread, fragment.gather, axis=1).reshape(groups, ROWS, -1).any(axis=2))
    columns = _spoiled(product.b, form.n, form.b_mn, form.b.bits)
    held = _register_taint(registers, plan.d_slots, product.rows) if product.accumulate.any() else None
    if rows is None and columns is None and held is None:
        _write_taint(registers, plan.d_slots, product.rows, None)
        return
    matrix = np.zeros((groups, ROWS, form.n), np.bool_)
    if rows is not None:
        matrix |= rows[:, :, None]
    if columns is not None:
        matrix |= columns[:, None, :]
    spoiled = np.take(matrix.reshape(groups, -1), plan.from_product, axis=1)
    per_register = 2 if form.d_type == "f16" else 1
    spoiled = np.asarray(spoiled.reshape(groups, form.registers, per_register, -1).any(axis=2))
    if held is not None:
        spoiled |= held & product.accumulate[:, None, None]
    _write_taint(registers, plan.d_slots, product.rows, spoiled)


def _spoiled(operand: OperandChunks | None, extent: int, mn_major: bool, bits: int) -> Bools | None:
    """(groups, extent) rows of A or columns of B that hold an uninitialised chunk."""
    if operand is None or operand.invalid is None:
        return None
    if not mn_major:
        return np.asarray(operand.invalid.any(axis=2))
    return np.repeat(operand.invalid.any(axis=1), 128 // bits, axis=1)[:, :extent]


def _register_taint(registers: RegisterFile, slots: tuple[Slot, ...], rows: Index) -> Bools | None:
    """(groups, registers, 128) which of these have an uninitialised bit; None for none."""
    if registers.taint.keys().isdisjoint(slots):
        return None
    found: Bools | None = None
    for position, slot in enumerate(slots):
        bits = registers.taint.get(slot)
        if bits is None:
            continue
        part = bits[rows] != 0
        if part.any():
            if found is None:
                found = np.zeros((rows.shape[0], len(slots), 4 * LANES), np.bool_)
            found[:, position] = part.reshape(rows.shape[0], -1)
    return found


def _write_taint(registers: RegisterFile, slots: tuple[Slot, ...], rows: Index, spoiled: Bools | None) -> None:
    if spoiled is None and registers.taint.keys().isdisjoint(slots):
        return
    for position, slot in enumerate(slots):
        bits: Any = 0
        if spoiled is not None:
            bits = np.where(spoiled[:, position].reshape(*rows.shape, LANES), ALL_BITS[slot[0]], 0)
        registers.mark(slot, rows, bits)


# ---- from issue to wait -------------------------------------------------------------------------------------------


def start(residents: Residents, state: Warpgroups, product: Product) -> None:
    """Take over a product that was issued."""
    order, random = residents.emulation.order, residents.emulation.random
    if residents.emulation.checking:
        _occupy(residents, state, product)
    state.pending.append(product)
    if order == "early" or (order == "random" and bool(random.integers(2))):
        for pending in state.pending:
            if pending is product or not np.isin(pending.leaders, product.leaders).any():
                continue
            compute(residents, pending)
        compute(residents, product)


def finish(residents: Residents, state: Warpgroups, leaders: Index, limit: Index) -> list[Product]:
    """Complete the products of these warpgroups whose commit group is below `limit` (one per leader); which ones."""
    limits = np.full(residents.warps, -1, np.int64)
    limits[leaders] = limit
    ended: list[Product] = []
    kept: list[Product] = []
    for product in state.pending:
        done = product.commits < limits[product.leaders]
        if not done.any():
            kept.append(product)
        elif done.all():
            ended.append(product)
        else:
            ended.append(product.take(done))
            kept.append(product.take(~done))
    if not ended:
        return ended
    for product in ended:
        compute(residents, product)
    state.pending = kept
    if not residents.emulation.checking:
        return ended
    clocks, tick = residents.clocks, residents.emulation.tick
    for product in ended:
        operand_reads.end_reads(residents, product.columns, product.chunks)
        _vacate(residents, state, product)
        column = product.columns[:, None]
        clocks.vector[product.rows, column] = tick
        clocks.proxied[product.rows, column] = tick
    for product in kept:
        mine = limits[product.leaders] >= 0
        if mine.any():
            part = product if mine.all() else product.take(mine)
            operand_reads.resume_reads(residents, part.columns, part.chunks)
            _occupy(residents, state, part)
    return ended


def _occupy(residents: Residents, state: Warpgroups, product: Product) -> None:
    """The product's registers are in use; those who touch them are told of the first such instruction."""
    for use, slots in zip(product.plan.uses, (product.plan.d_slots, product.plan.a_slots), strict=False):
        mask = state.busy.setdefault(use, np.zeros(residents.warps, np.bool_))
        if not mask[product.leaders].all():
            mask[product.leaders] = True
            residents.in_flight.take(list(slots), product.rows.reshape(-1), product.plan.because)


def _vacate(residents: Residents, state: Warpgroups, product: Product) -> None:
    for use, slots in zip(product.plan.uses, (product.plan.d_slots, product.plan.a_slots), strict=False):
        mask = state.busy.get(use)
        if mask is not None and mask[product.leaders].any():
            mask[product.leaders] = False
            residents.in_flight.give_back(list(slots), product.rows.reshape(-1))
