"""tcgen05.mma in all its forms: what its text says, what its operands must be, and its issue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import UnsupportedInstruction
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.tcgen05_multiply import Call, SharedOperand, accumulator_end, carry_out
from tinygpu.ptx.emulator.instructions.tcgen05_work import (
    Issue,
    cta_group,
    issue,
    register_slots,
    tensor_address,
    threads,
)
from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, Operand, VectorOperand
from tinygpu.ptx.emulator.source.targets import has
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.tensor_order import Access, Region, lane_run
from tinygpu.ptx.emulator.units.block_scales import scale_columns
from tinygpu.ptx.emulator.units.matrix_descriptors import MatrixDescriptor, decode_descriptor, operand_problems
from tinygpu.ptx.emulator.units.operand_tiles import Chunks, k_major_chunks, mn_major_chunks
from tinygpu.ptx.emulator.units.sparse_metadata import legal_indices, metadata_columns
from tinygpu.ptx.emulator.units.tcgen05_descriptors import (
    KINDS,
    InstructionDescriptor,
    MmaForm,
    judge_descriptor,
)
from tinygpu.ptx.emulator.units.tcgen05_math import chunk_data_bytes, slice_bytes, stored_bits
from tinygpu.ptx.emulator.units.tensor_memory_maps import (
    LANES,
    layout_id,
    rows_per_cta,
    split_address,
    uses_half_the_lanes,
)
from tinygpu.ptx.emulator.units.zero_columns import decode_zero_columns

_WORD_MASK = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """Getters of the operands; None for those that the form does not have."""

    d: Getter
    a: Getter
    b: Getter
    metadata: Getter | None
    descriptor: Getter
    sfa: Getter | None
    sfb: Getter | None
    mask: tuple[Getter, ...]
    enable: Getter
    scale: int
    zero_columns: Getter | None


@dataclass(frozen=True, slots=True)
class Values:
    """The operands of one thread."""

    d: int
    a: int
    b: int
    metadata: int
    descriptor: int
    sfa: int
    sfb: int
    mask: tuple[int, ...]
    enable: bool
    zero_columns: int | None


def multiply(b: Binder, i: Instruction) -> Run:
    """tcgen05.mma, .mma.sp, .mma.ws and .mma.ws.sp."""
    form = _form(b, i)
    operands = _operands(b, i, form)
    slots = register_slots(b, i.operands)
    collector = next((m for m in i.modifiers if m.startswith("collector::")), None)
    site = b.site(i)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        for slot in slots if c.residents.tainted else ():
            c.residents.require_initialised(c, slot, i, "is an operand of tcgen05.mma")
        fetch = _Fetcher(c, operands)
        for at, row, lane in threads(c):
            c.emulation.next_tick()
            start = issue(c, i, site, row, lane, form.cta_group)
            _issue(start, form, collector, operands.scale, fetch(at, lane))

    return run


def _form(b: Binder, i: Instruction) -> MmaForm:
    kind = next((m[6:] for m in i.modifiers if m.startswith("kind::")), "")
    block = next((m for m in i.modifiers if m.startswith("scale_vec::") or m in ("block16", "block32")), "")
    a = i.operands[1] if len(i.operands) > 1 else None
    try:
        form = MmaForm(
            kind, cta_group(b, i), i.has("ws"), i.has("sp"), isinstance(a, AddressOperand), i.has("ashift"), block
        )
    except ValueError as error:
        raise b.fail(f"`{i.name}`: {error}") from error
    if i.has("block_scale") != KINDS[kind].scaled:
        raise b.fail(f"`{i.name}`: .block_scale goes with the kinds mxf8f6f4, mxf4 and mxf4nvf4, and with no other")
    if form.ashift and not form.a_in_tmem:
        raise b.fail(f"`{i.name}`: .ashift needs A in tensor memory")
    return form


def _operands(b: Binder, i: Instruction, form: MmaForm) -> Operands:
    """[d], a, b, {[metadata],} descriptor, {[sfa], [sfb],} {mask,} enable {, scale or zero columns}."""
    least = 5 + form.sparse + 2 * KINDS[form.kind].scaled
    left: list[Operand] = list(b.operands(i, least, least + 2))
    d = tensor_address(b, i, left.pop(0))
    operand = left.pop(0)
    a = tensor_address(b, i, operand) if form.a_in_tmem else b.source(operand, "u64")
    right = b.source(left.pop(0), "u64")
    metadata = tensor_address(b, i, left.pop(0)) if form.sparse else None
    descriptor = b.source(left.pop(0), "u32")
    sfa = sfb = None
    if KINDS[form.kind].scaled:
        sfa, sfb = tensor_address(b, i, left.pop(0)), tensor_address(b, i, left.pop(0))
    mask: tuple[Getter, ...] = ()
    if left and isinstance(left[0], VectorOperand):
        if form.ws or KINDS[form.kind].scaled:
            raise b.fail(f"`{i.name}` takes no mask of lanes")
        elements = b.vector(left.pop(0), 4 * form.cta_group, f"the mask of lanes of `{i.name}`")
        mask = tuple(b.source(element, "u32") for element in elements)
    if not left or len(left) > 2:
        raise b.fail(f"`{i.name}` takes a predicate that enables D, and at most one operand after it")
    enable = b.source(left.pop(0), "pred")
    scale, zero_columns = 0, None
    if left and form.ws:
        zero_columns = b.source(left.pop(0), "u64")
    elif left:
        scale = b.integer(left.pop(0), "the scale of D")
        if form.kind not in ("f16", "tf32") or not 0 <= scale <= 15:
            raise b.fail(f"`{i.name}`: D is scaled for kind::f16 and kind::tf32 only, by 0 to 15, not {scale}")
    return Operands(d, a, right, metadata, descriptor, sfa, sfb, mask, enable, scale, zero_columns)


class _Fetcher:
    """The operands of each thread of a cohort."""

    def __init__(self, c: Cohort, operands: Operands) -> None:
        def values(get: Getter | None) -> NDArray[Any] | None:
            return None if get is None else np.asarray(get(c))

        self._d, self._a, self._b = values(operands.d), values(operands.a), values(operands.b)
        self._metadata, self._descriptor = values(operands.metadata), values(operands.descriptor)
        self._sfa, self._sfb = values(operands.sfa), values(operands.sfb)
        self._mask = [values(get) for get in operands.mask]
        self._enable, self._zero = values(operands.enable), values(operands.zero_columns)

    def __call__(self, at: int, lane: int) -> Values:
        def of(values: NDArray[Any] | None) -> int:
            return 0 if values is None else _element(values, at, lane)

        return Values(
            of(self._d), of(self._a) & _WORD_MASK, of(self._b) & _WORD_MASK, of(self._metadata), of(self._descriptor),
            of(self._sfa), of(self._sfb), tuple(of(mask) for mask in self._mask), bool(of(self._enable)),
            None if self._zero is None else of(self._zero) & _WORD_MASK,
        )  # fmt: skip


def _element(values: NDArray[Any], at: int, lane: int) -> int:
    """Of (n, 32) numbers one, where a dim of one element stands for all."""
    if not values.ndim:
        return int(values)
    rows, lanes = values.shape
    return int(values.item(at if rows > 1 else 0, lane if lanes > 1 else 0))


# Of 4-bit operands sm_103a takes so many elements of K, if bit 31 of the descriptor says so.
_LONG_K = 96

# ---- issue --------------------------------------------------------------------------------------------------------


def _issue(start: Issue, form: MmaForm, collector: str | None, scale: int, v: Values) -> None:
    """Check the operands of one thread and hand the multiplication over."""
    target = start.origin.residents.emulation.source.target
    what, problems = judge_descriptor(v.descriptor, form, has(target, "103f"))
    if what is None:
        start.origin.fault("descriptor", f"instruction descriptor {v.descriptor:#010x}: {'; '.join(problems)}")
        return
    if what.k == _LONG_K:
        raise UnsupportedInstruction(
            start.origin.instruction.line, start.origin.instruction.name, f"{_LONG_K} elements of K at once"
        )
    call = _call(start, form, what, scale, v)
    if call is None:
        return
    a_parts = [] if form.a_in_tmem else _shared_operand(start, call, "A", v.a)
    b_parts = _shared_operand(start, call, "B", v.b)
    if not start.good:
        start.start(_idle)
        return
    memories = [start.memory.cta(cta) for cta in start.ctas]
    for q, cta in enumerate(start.ctas):
        start.touch(cta, _access(start, call, q))
        _use_collector(start, cta, collector, ("A", v.a, form.a_in_tmem) if not form.ws else ("B", v.b, False))
    counters = start.origin.residents.emulation.counters
    name = f"{form.kind}.{what.d_type}.{what.a_type}.{what.b_type}.m{what.m}n{what.n}k{what.k}"
    counters.count_matrix("tcgen05", name, 1, 2 * what.m * what.n * what.k)

    def work() -> None:
        illegal = carry_out(call, memories, a_parts, b_parts)
        if illegal is not None:
            legal = ", ".join(f"{index:#06b}" for index in legal_indices(what.kind))
            start.origin.fault(
                "descriptor",
                f"the sparsity metadata of row {illegal[0]} of A holds the index {illegal[1]:#06b}, which names no "
                f"places of stored elements: the legal ones are {legal}",
            )

    start.start(work)


def _idle() -> None:
    return


def _call(start: Issue, form: MmaForm, what: InstructionDescriptor, scale: int, v: Values) -> Call | None:
    """The call, with what addresses and masks must be; None, and a fault, where they are not."""
    layout = layout_id(what.m, form.cta_group, form.ws, what.sparse)
    half, _ = split_address(v.d)
    allowed = (0, 16) if uses_half_the_lanes(layout) else (0,)
    if half not in allowed:
        start.fault(
            f"D of M = {what.m} is addressed at lane {half} of tensor memory: its lane must be "
            f"{' or '.join(str(lane) for lane in allowed)}"
        )
        return None
    if what.sparse and uses_half_the_lanes(layout):
        raise UnsupportedInstruction(
            start.origin.instruction.line, start.origin.instruction.name,
            f"where the metadata of sparse A lies in tensor memory is not known for M = {what.m} with "
            f".cta_group::{form.cta_group}",
        )  # fmt: skip
    others = {"A": v.a if form.a_in_tmem else None, "the metadata": v.metadata if form.sparse else None}
    for name, address in others.items():
        lane = half if address is None else split_address(address)[0]
        if lane != half:
            start.fault(f"{name} is at lane {lane} of tensor memory, but D is at lane {half}: both must be the same")
            return None
    for name, address, first_byte in (("A", v.sfa, what.sfa_id), ("B", v.sfb, what.sfb_id)):
        # CUTLASS leaves the number of the first byte, which the descriptor has too, in the top two bits.
        if form.scales_per_row and split_address(address)[0] not in (0, first_byte << 14):
            start.fault(
                f"the scale factors of {name} are addressed at lane {split_address(address)[0]} of tensor memory: "
                "their lane must be 0"
            )
            return None
    zero_columns = None
    if v.zero_columns is not None:
        decoded, problems = decode_zero_columns(v.zero_columns)
        if decoded.column_shift:
            raise UnsupportedInstruction(
                start.origin.instruction.line, start.origin.instruction.name,
                f"column shifts of the zero-column mask ({decoded.column_shift} here)",
            )  # fmt: skip
        if problems:
            start.origin.fault("descriptor", f"zero-column mask {v.zero_columns:#018x}: {'; '.join(problems)}")
            return None
        zero_columns = decoded.mask(what.m, what.n)
    frozen = tuple(
        sum(word << 32 * k for k, word in enumerate(v.mask[4 * q : 4 * q + 4])) for q in range(form.cta_group)
    )
    return Call(
        form, what, layout, half, v.d, v.a if form.a_in_tmem else None, v.sfa, v.sfb, v.metadata, v.enable, scale,
        frozen, zero_columns, start.origin.unwritten,
    )  # fmt: skip


def _shared_operand(start: Issue, call: Call, operand: str, word: int) -> list[SharedOperand]:
    """Start to read A or B through its descriptor; each CTA of a pair holds half of it."""
    what = call.what
    element = what.a_type if operand == "A" else what.b_type
    mn_major = what.a_mn_major if operand == "A" else what.b_mn_major
    k = call.stored_k if operand == "A" else what.k
    rows = rows_per_cta(call.layout) if operand == "A" else what.n // len(start.ctas)
    descriptor, problems, chunks = _described(word, operand, what.kind, element, mn_major, rows, k)
    if chunks is None:
        start.origin.fault("descriptor", f"matrix descriptor {word:#018x}: {'; '.join(problems)}")
        start.good = False
        return []
    start.advise_constant(descriptor, word)
    parts = []
    for cta in start.ctas:
        index, invalid = start.read_shared(
            cta, chunks, descriptor.swizzle, f"{operand} of tcgen05.mma", chunk_data_bytes(what.kind, element)
        )
        parts.append(SharedOperand(start.agent, index, invalid, rows, what.kind, element, mn_major))
    return parts


@lru_cache(maxsize=4096)
def _described(
    word: int, operand: str, kind: str, element: str, mn_major: bool, rows: int, k: int
) -> tuple[MatrixDescriptor, tuple[str, ...], Chunks | None]:
    """What a descriptor says, what is wrong with it for an operand, and where that lies; None where something is."""
    bits = stored_bits(kind, element)
    descriptor = decode_descriptor(word, "tcgen05")
    problems = operand_problems(descriptor, operand, bits, mn_major, rows, k)
    if descriptor.leading_is_address:
        problems = (*problems, "bit 52 gives the leading dimension as an address, which only K = 96 on sm_103a has")
    if problems:
        return descriptor, problems, None
    if mn_major:
        return descriptor, (), mn_major_chunks(descriptor, rows * bits // 8, k)
    return descriptor, (), k_major_chunks(descriptor, rows, slice_bytes(kind, element, k))


def _access(start: Issue, call: Call, q: int) -> Access:
    """What the multiplication touches in the tensor memory of the q-th CTA."""
    what, form = call.what, call.form
    lanes = 0
    for slab in call.slabs:
        lanes |= lane_run(slab.lane, slab.rows)
    column = split_address(call.d)[1]
    written = lanes & ~call.frozen[q]
    writes = [Region(written, column, column + accumulator_end(call))] if written else []
    reads = []
    if call.a is not None:
        first = split_address(call.a)[1]
        reads.append(Region(lanes, first, first + call.a_columns))
        if form.ashift:
            writes.append(reads[-1])
    if form.scales_per_row:
        rows = rows_per_cta(call.layout)
        for operand, address in (("A", call.sfa), ("B", call.sfb)):
            first = split_address(address)[1]
            width = scale_columns(call.layout, operand, rows, what.n)
            reads.append(Region((1 << LANES) - 1, first, first + width))
    if what.sparse:
        first = split_address(call.metadata)[1] + what.sparsity_selector
        reads.append(Region(lanes, first, first + metadata_columns(what.kind)))
    return Access(
        start.origin, "mma", tuple(reads), tuple(writes), start.agent.column, start.memory.order.tick,
        shape=call.shape,
    )  # fmt: skip


def _use_collector(start: Issue, cta: int, collector: str | None, operand: tuple[str, int, bool]) -> None:
    """Collector buffers: `use` and `lastuse` may give what `fill` has loaded, so that must be the same operand.

    The operand is read from memory again, which the manual allows.
    """
    held = start.memory.cta(cta).collectors
    parts = (collector or ("collector::a::discard" if operand[0] == "A" else "collector::b0::discard")).split("::")
    buffer, action = parts[1], parts[2]
    if action in ("use", "lastuse") and held.get(buffer) != operand:
        why = "nothing is in it" if held.get(buffer) is None else "another matrix was loaded into it"
        start.origin.fault(
            "descriptor",
            f".collector::{buffer}::{action} takes {operand[0]} from the collector buffer {buffer}, but {why}: an "
            f"earlier tcgen05.mma with .collector::{buffer}::fill must have loaded the same matrix",
        )
    if action == "fill":
        held[buffer] = operand
    elif action != "use":
        held.pop(buffer, None)
