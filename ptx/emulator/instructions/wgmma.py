"""wgmma: matrix products that the four warps of a warpgroup start together and wait for (PTX ISA, "wgmma.mma_async").

A product reads its operands and writes D at some time between its issue and the wgmma.wait_group that covers it: at the
wait ("late"), at issue ("early"), or either ("random"). Whatever the order, its shared memory counts as being read and
its registers as in use until the wait.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.swizzled_reads import advise_swizzle
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.warpgroups import Warpgroups, WarpgroupSet, gather_warpgroups, warpgroups_of
from tinygpu.ptx.emulator.instructions.wgmma_forms import ROWS, WgmmaForm, WgmmaOperands, read_wgmma
from tinygpu.ptx.emulator.instructions.wgmma_products import (
    OperandChunks,
    Plan,
    Product,
    begin_reads,
    finish,
    make_plan,
    start,
)
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand, Operand, RegisterOperand
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import LANES, Slot
from tinygpu.ptx.emulator.units import sparsity
from tinygpu.ptx.emulator.units.matrix_descriptors import ATOM_BYTES, decode_descriptor, operand_problems
from tinygpu.ptx.emulator.units.operand_tiles import Chunks, k_major_chunks, mn_major_chunks
from tinygpu.ptx.emulator.units.swizzles import Swizzle

Index = NDArray[np.int64]


def _wgmma(b: Binder, i: Instruction) -> Run:
    b.owns_busy = True
    b.owns_taint = True
    if i.has("fence"):
        b.operands(i, 0)
        return lambda c: _fence(c, i)
    if i.has("commit_group"):
        b.operands(i, 0)
        return lambda c: _commit(c, i)
    if i.has("wait_group"):
        (count,) = b.operands(i, 1)
        return _wait(i, b.integer(count, "the number of wgmma groups that may stay pending"))
    return _mma_async(b, i)


# ---- fence, commit, wait ------------------------------------------------------------------------------------------


def _fence(c: Cohort, i: Instruction) -> None:
    found = gather_warpgroups(c, i)
    if found is None:
        return
    state = warpgroups_of(c.residents)
    leaders, rows = found.leaders, found.rows.reshape(-1)
    state.fenced[leaders] = True
    for mask in state.uses.values():
        mask[leaders] = False
    touched = c.residents.touched
    for slot in list(touched):
        mask = touched[slot]
        mask[rows] = False
        if not mask.any():
            del touched[slot]


def _commit(c: Cohort, i: Instruction) -> None:
    found = gather_warpgroups(c, i)
    if found is not None:
        warpgroups_of(c.residents).commits[found.leaders] += 1


def _wait(i: Instruction, remaining: int) -> Run:
    def run(c: Cohort) -> None:
        found = gather_warpgroups(c, i)
        if found is None:
            return
        c.emulation.next_tick()
        state = warpgroups_of(c.residents)
        if not state.pending:
            return
        ended = finish(c.residents, state, found.leaders, state.commits[found.leaders] - remaining)
        if ended:
            _refresh(c, ended)

    return run


# ---- issue --------------------------------------------------------------------------------------------------------


def _mma_async(b: Binder, i: Instruction) -> Run:
    form, operands = read_wgmma(b, i)
    targets = b.vector(operands.d, form.registers, "D of this wgmma")
    slots_d = [_register_slot(b, e, "D") for e in targets]
    never_reads_d = isinstance(operands.scale_d, IntegerOperand) and operands.scale_d.value == 0
    for element in targets:
        b.destination(element, "u32")
        if not never_reads_d:
            b.source(element, "u32")
    slots_a: list[Slot] = []
    get_a: Getter | None = None
    if form.a_in_registers:
        for element in b.vector(operands.a, 4, "A of this wgmma"):
            slots_a.append(_register_slot(b, element, "A"))
            b.source(element, "u32")
    else:
        get_a = b.source(operands.a, "u64")
    get_b = b.source(operands.b, "u64")
    scale_d = b.source(operands.scale_d, "pred")
    needed = [
        (b.slot(operand), "decides what D is" if operand is operands.scale_d else "is a matrix descriptor")
        for operand in (operands.a, operands.b, operands.scale_d)
        if isinstance(operand, RegisterOperand)
    ]
    metadata, selector = _sparse_operands(b, i, form, operands)
    b.fenced |= {*slots_d, *slots_a}
    b.note_shared_width(4)
    plan = make_plan(form, i, b.site(i), slots_d, slots_a, selector)
    copied = (*slots_d, *slots_a)

    def run(c: Cohort) -> None:
        found = gather_warpgroups(c, i)
        if found is None:
            return
        residents, state = c.residents, warpgroups_of(c.residents)
        if residents.tainted:
            for slot, use in needed:
                residents.require_initialised(c, slot, i, use)
        c.emulation.next_tick()
        _store_copies(c, copied)
        accumulate = _uniform(c, i, found, scale_d(c), "scale-d")
        words_b = _uniform(c, i, found, get_b(c), "the descriptor of B")
        words_a = None if get_a is None else _uniform(c, i, found, get_a(c), "the descriptor of A")
        if accumulate is None or words_b is None or (get_a is not None and words_a is None):
            return
        if c.emulation.checking:
            _check_registers(c, state, plan, found)
        columns = _agents(c, state, found)
        in_memory = [_operand(c, plan, found, words_b, "B")]
        if words_a is not None:
            in_memory.append(_operand(c, plan, found, words_a, "A"))
        sound = [operand for operand in in_memory if operand is not None]
        if len(sound) < len(in_memory):
            return
        chunks, marked = begin_reads(residents, plan.site, found.rows, columns, sound)
        held = None if metadata is None else c.spread(metadata(c))[found.at]
        if held is not None and c.emulation.checking:
            _check_metadata(c, plan, found, held)
        groups = found.rows.shape[0]
        c.emulation.counters.count_matrix("wgmma", form.name, groups, groups * form.operations)
        product = Product(
            plan, found.rows, state.commits[found.leaders], columns, accumulate.astype(np.bool_),
            marked[1] if len(marked) > 1 else None, marked[0], chunks, held,
        )  # fmt: skip
        start(residents, state, product)
        if product.computed:  # and with it those before it
            _refresh(c, [pending for pending in state.pending if pending.computed])
        c.residents.in_flight.settle = settle

    return run


def settle(c: Cohort) -> None:
    """Wait for all products of the cohort's warpgroups, as the assembler does where their registers are moved early."""
    residents = c.residents
    state = warpgroups_of(residents)
    count = len(residents.ctas)
    warps, ctas = c.set.index // count, c.set.index % count
    leaders = np.unique((warps - warps % 4) * count + ctas)
    _refresh(c, finish(residents, state, leaders, np.full(leaders.size, 2**62)))


def _register_slot(b: Binder, operand: Operand, what: str) -> Slot:
    if not isinstance(operand, RegisterOperand):
        raise b.fail(f"{what} of a wgmma is held in registers")
    return b.slot(operand)


def _sparse_operands(b: Binder, i: Instruction, form: WgmmaForm, operands: WgmmaOperands) -> tuple[Getter | None, int]:
    if operands.metadata is None or operands.selector is None:
        return None, 0
    layout = sparsity.sparsity_layout(form.k, form.a.bits)
    chosen = b.integer(operands.selector, "the sparsity selector")
    if not 0 <= chosen < layout.selectors:
        allowed = " or ".join(str(k) for k in range(layout.selectors))
        raise b.fail(f"`{i.name}`: the sparsity selector must be {allowed}, not {chosen}")
    return b.source(operands.metadata, "u32"), chosen


def _uniform(
    c: Cohort, i: Instruction, found: WarpgroupSet, values: NDArray[np.generic], what: str
) -> NDArray[np.generic] | None:
    """(groups,) the value that all threads of each warpgroup give; a fault, and None, where they differ."""
    if values.size > 1 and bool((values == values.reshape(-1)[0]).all()):
        return np.repeat(values.reshape(-1)[:1], found.rows.shape[0])
    spread = c.spread(values)[found.at].reshape(found.rows.shape[0], -1)
    first = spread[:, :1]
    differs = spread != first
    if differs.any():
        at, thread = (int(k) for k in np.argwhere(differs)[0])
        one, other = (
            f"{int(v):#x}" if spread.dtype.itemsize == 8 else str(int(v)) for v in (first[at, 0], spread[at, thread])
        )
        c.emulation.fault(
            "collective", i, c.residents, int(found.rows[at, thread // LANES]), thread % LANES,
            f"{what} of `{i.name}` is {one} in the first thread of the warpgroup, but {other} in this one: it must be "
            "the same in all",
        )  # fmt: skip
        return None
    return np.asarray(first[:, 0])


def _agents(c: Cohort, state: Warpgroups, found: WarpgroupSet) -> Index:
    """The columns of the warpgroups in their clusters' clocks."""
    columns = state.columns[found.leaders]
    if columns.min() < 0:
        residents = c.residents
        count = len(residents.ctas)
        for leader in found.leaders[columns < 0].tolist():
            warp, cta = divmod(leader, count)
            where = "" if residents.cluster_size == 1 else f" of the cluster's CTA {cta % residents.cluster_size}"
            name = f"wgmma of warps {warp} to {warp + 3}{where}"
            state.columns[leader] = residents.clocks.agent(residents.cluster_of(cta), ("wgmma", leader), name)
        columns = state.columns[found.leaders]
    return columns


# ---- registers ----------------------------------------------------------------------------------------------------


def _check_registers(c: Cohort, state: Warpgroups, plan: Plan, found: WarpgroupSet) -> None:
    """Registers that were used without a wgmma.fence since, or that another product still works with."""
    residents, i = c.residents, plan.instruction
    leaders, rows = found.leaders, found.rows.reshape(-1)
    unfenced = ~state.fenced[leaders]
    if unfenced.any():
        row = int(leaders[int(np.argmax(unfenced))])
        c.emulation.fault(
            "asynchronous registers", i, residents, row, None,
            f"`{i.name}` is the first of its warpgroup and no wgmma.fence comes before it: one must",
        )  # fmt: skip
        state.fenced[leaders] = True
    for use in plan.uses:
        for slot in residents.touched.keys() & use.slots:
            mask = residents.touched[slot][rows]
            if mask.any():
                name = c.emulation.program.register_names.get(slot, "a register")
                c.emulation.fault(
                    "asynchronous registers", i, residents, int(rows[int(np.argmax(mask))]), None,
                    f"works with {name}, which other instructions used since the last wgmma.fence: wgmma.fence must "
                    "come between them",
                )  # fmt: skip
                for other in residents.touched.keys() & use.slots:
                    residents.touched[other][rows] = False
        for earlier, mask in state.uses.items():
            if mask[leaders].any() and earlier.conflicts(use):
                _report_use(c, plan, found, mask[leaders], earlier.slots & use.slots, "wgmma.fence")
                mask[leaders] = False
        for product in state.pending:
            for earlier in product.plan.uses:
                if not earlier.conflicts(use):
                    continue
                busy = np.isin(leaders, product.leaders)
                if busy.any():
                    _report_use(c, plan, found, busy, earlier.slots & use.slots, "wgmma.wait_group")
    for use in plan.uses:
        state.uses.setdefault(use, np.zeros(residents.warps, np.bool_))[leaders] = True


def _report_use(
    c: Cohort, plan: Plan, found: WarpgroupSet, groups: NDArray[np.bool_], slots: frozenset[Slot], needed: str
) -> None:
    name = c.emulation.program.register_names.get(min(slots), "a register")
    c.emulation.fault(
        "asynchronous registers", plan.instruction, c.residents, int(found.leaders[int(np.argmax(groups))]), None,
        f"works with {name}, which an earlier wgmma.mma_async uses in another form or role: {needed} must come between "
        "them",
    )  # fmt: skip


def _store_copies(c: Cohort, slots: tuple[Slot, ...]) -> None:
    """Where the cohort works on copies of registers: bring them up to date, for products read the registers."""
    if isinstance(c.set.rows, slice):
        return
    file = c.residents.registers.groups[2]
    for _, index in slots:
        file[index][c.set.rows] = c.files[5][index]


def _refresh(c: Cohort, products: list[Product]) -> None:
    """Where the cohort works on copies of registers: those of D have changed."""
    rows = c.set.rows
    if isinstance(rows, slice):
        return
    file = c.residents.registers.groups[2]
    for product in products:
        at = np.flatnonzero(np.isin(rows, product.rows))
        for index in product.plan.d:
            copy = c.files[5][index]
            if at.size and copy.shape[0] == c.n:
                copy[at] = file[index][rows[at]]


# ---- operands in shared memory ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _resolve(word: int, form: WgmmaForm, operand: str) -> tuple[tuple[str, ...], Swizzle, Chunks]:
    """What is wrong with a descriptor for this operand, and the swizzle and the chunks that it means."""
    descriptor = decode_descriptor(word, "wgmma")
    is_a = operand == "A"
    element, mn_major = (form.a, form.a_mn) if is_a else (form.b, form.b_mn)
    extent, k = (ROWS, form.stored_k) if is_a else (form.n, form.k)
    problems = operand_problems(descriptor, operand, element.bits, mn_major, extent, k)
    if mn_major:
        return problems, descriptor.swizzle, mn_major_chunks(descriptor, extent * element.bits // 8, k)
    return problems, descriptor.swizzle, k_major_chunks(descriptor, extent, k * element.bits // 8)


def _operand(
    c: Cohort, plan: Plan, found: WarpgroupSet, words: NDArray[np.generic], operand: str
) -> OperandChunks | None:
    """The chunks of an operand for each warpgroup. None after a fault."""
    residents = c.residents
    resolved = [_resolve(int(word), plan.form, operand) for word in words.tolist()]
    for at, (problems, _, chunks) in enumerate(resolved):
        if problems:
            c.emulation.fault(
                "descriptor", plan.instruction, residents, int(found.leaders[at]), None,
                f"descriptor {int(words[at]):#x}: {problems[0]}",
            )  # fmt: skip
            return None
        low, high = chunks.base + chunks.range_bytes[0], chunks.base + chunks.range_bytes[1]
        if not c.emulation.program.shared.holds(low, high) and not _inside(c, plan, found, at, chunks, operand):
            return None
    first = resolved[0][2].offsets
    bases = np.array([chunks.base for _, _, chunks in resolved]) + found.leaders % len(residents.ctas) * (
        residents.shared.stride_bytes
    )
    if all(chunks.offsets is first for _, _, chunks in resolved):
        index = bases[:, None, None] + first
    else:
        index = bases[:, None, None] + np.stack([chunks.offsets for _, _, chunks in resolved])
    for (_, swizzle, _), place in zip(resolved, index[:, 0, 0].tolist(), strict=True):
        advise_swizzle(residents, plan.instruction, place, swizzle, f"{operand} of wgmma")
    plan.site.requests += index.shape[0]
    plan.site.bytes += index.size * ATOM_BYTES
    return OperandChunks(index)


def _inside(c: Cohort, plan: Plan, found: WarpgroupSet, at: int, chunks: Chunks, operand: str) -> bool:
    """Whether every chunk lies in some shared variable; a fault where not."""
    layout = c.emulation.program.shared
    outside = ~layout.inside(chunks.addresses, ATOM_BYTES)
    if not outside.any():
        return True
    row, chunk = (int(k) for k in np.argwhere(outside)[0])
    address = int(chunks.addresses[row, chunk])
    form = plan.form
    mn_major = form.a_mn if operand == "A" else form.b_mn
    what = "step of K" if mn_major else "row" if operand == "A" else "column"
    c.emulation.fault(
        "out of bounds", plan.instruction, c.residents, int(found.leaders[at]), None,
        f"{what} {row} of {operand} is read from shared address {address:#x}, which is out of bounds: "
        f"{layout.describe(address, ATOM_BYTES)}",
        "shared", address, int(np.count_nonzero(outside)),
    )  # fmt: skip
    return False


def _check_metadata(c: Cohort, plan: Plan, found: WarpgroupSet, words: NDArray[np.uint32]) -> None:
    layout = sparsity.sparsity_layout(plan.form.k, plan.form.a.bits)
    indices = sparsity.chunk_indices(layout, words, plan.selector)
    bad = sparsity.illegal_chunks(layout, indices, ordered=False)
    if not bad.any():
        return
    group, warp, row, chunk = (int(k) for k in np.argwhere(bad)[0])
    right = "0b0100 or 0b1110" if plan.form.a.bits == 32 else "two different indices"
    c.emulation.fault(
        "descriptor", plan.instruction, c.residents, int(found.rows[group, warp]), None,
        f"the sparsity metadata of row {16 * warp + row} of A, chunk {chunk}, is "
        f"{int(indices[group, warp, row, chunk]):#06b}: it must be {right}",
        count=int(np.count_nonzero(bad)),
    )  # fmt: skip


WGMMA: dict[str, Compile] = {"wgmma": _wgmma}
