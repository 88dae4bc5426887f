"""Warp-level matrices: ldmatrix, stmatrix, movmatrix, mma.sync (PTX ISA, "Warp Level Matrix Multiply-Accumulate").

Fragments are written out here as index maps from (lane, element) to (row, column); nothing else knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import shared_access
from tinygpu.ptx.emulator.access.shared_access import ANY_LANE, WARP_BITS
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.meter import Site, phase_wavefronts
from tinygpu.ptx.emulator.state.residents import Cohort, Incomplete

_LANE = np.arange(32)
_G, _T = _LANE >> 2, _LANE & 3
Place = Callable[[Any, Any, Any], tuple[Any, Any]]
"""(g, t, element index) -> (row, column) of an element in a fragment; g = lane / 4, t = lane % 4."""


# ---- ldmatrix, stmatrix, movmatrix --------------------------------------------------------------------------------


def require_whole_warp(c: Cohort, i: Instruction) -> bool:
    """Report a warp that executes a .sync.aligned instruction with some of its lanes only; True when all are whole."""
    if c.mask is None:
        return True
    alive = c.residents.alive[c.set.rows]
    partial = (c.mask != alive).any(axis=1) | ~c.mask.all(axis=1)
    partial &= c.mask.any(axis=1)
    if not partial.any():
        return True
    if c.patient:
        raise Incomplete
    at = int(np.argmax(partial))
    active = int(np.count_nonzero(c.mask[at]))
    lane = int(np.argmax(c.mask[at]))
    c.emulation.fault(
        "collective", i, c.residents, int(c.set.index[at]), lane,
        f"`{i.name}` is executed by {active} of the warp's 32 lanes: all 32 must execute it together",
    )  # fmt: skip
    return False


def _matrix_count(b: Binder, i: Instruction) -> int:
    for modifier, count in (("x1", 1), ("x2", 2), ("x4", 4)):
        if i.has(modifier):
            return count
    raise b.fail(f"`{i.name}` needs .x1, .x2 or .x4")


def _check_b16(b: Binder, i: Instruction) -> None:
    if not (i.has("m8n8") and i.has("b16")):
        raise b.unsupported("only .m8n8 with .b16")
    if any(m.startswith("shared::cluster") for m in i.modifiers):
        raise b.unsupported("shared memory of other CTAs")


def _row_addresses(c: Cohort, site: Site, addresses: Array, count: int, verb: str) -> NDArray[np.int64] | None:
    """Byte index (n, 8 * count) of the rows; counts one phase of eight rows per matrix."""
    rows = np.ascontiguousarray(np.broadcast_to(addresses, (c.n, 32))[:, : 8 * count])
    words = (rows.astype(np.int64) >> 2).reshape(-1, 8)
    site.requests += c.n
    wavefronts = phase_wavefronts((words[:, :, None] + np.arange(4)).reshape(words.shape[0], -1))
    site.wavefronts += wavefronts
    site.bytes += c.n * count * 128
    counters = c.emulation.counters
    if verb == "ldmatrix":
        counters.shared_load_requests += c.n
        counters.shared_load_wavefronts += wavefronts
        counters.shared_load_bytes += c.n * count * 128
    else:
        counters.shared_store_requests += c.n
        counters.shared_store_wavefronts += wavefronts
        counters.shared_store_bytes += c.n * count * 128
    index, good = shared_access.locate_rows(c, site, rows, 16, verb)
    return index if good else None


def _ldmatrix(b: Binder, i: Instruction) -> Run:
    _check_b16(b, i)
    count = _matrix_count(b, i)
    target, where = b.operands(i, 2)
    get, _, _ = b.address(where)
    writers = [b.destination(element, "u32") for element in b.vector(target, count, "ldmatrix")]
    slots = sorted(b.writes)
    transpose = i.has("trans")
    b.note_shared_width(4)
    b.owns_taint = True
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        index = _row_addresses(c, site, get(c), count, "ldmatrix")
        if index is None:
            return
        data = np.take(c.residents.shared.view(4, 4), index >> 4, axis=0, mode="clip")
        invalid = None
        if c.emulation.checking:
            who = c.set.member + (ANY_LANE << WARP_BITS)
            invalid = shared_access.check_read(c, site, index, 16, c.set.column, who)
        if transpose:
            halves = data.view(np.uint16).reshape(c.n, count, 8, 8)
            data = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.uint32)
        lanes = data.reshape(c.n, count, 32)
        for position, writer in enumerate(writers):
            np.copyto(writer(c), lanes[:, position], where=c.where)
        if invalid is not None or c.residents.tainted:
            c.residents.tainted = True
            for position, slot in enumerate(slots_in_order(b, i, count, slots)):
                bits = np.zeros((c.n, 32), np.uint32)
                if invalid is not None:
                    rows = invalid.reshape(c.n, count, 8)[:, position]
                    # A lane reads one row, or (transposed) two.
                    lane_bad = rows[:, 2 * _T] | rows[:, 2 * _T + 1] if transpose else rows[:, _G]
                    bits[lane_bad] = 0xFFFFFFFF
                c.residents.set_taint(c, slot, bits)

    order = [b.slot(e) for e in b.vector(target, count, "ldmatrix")]  # type: ignore[arg-type]

    def slots_in_order(_: Binder, __: Instruction, ___: int, ____: Any) -> list[tuple[int, int]]:
        return order

    return run


def _stmatrix(b: Binder, i: Instruction) -> Run:
    _check_b16(b, i)
    count = _matrix_count(b, i)
    where, value = b.operands(i, 2)
    get, _, _ = b.address(where)
    sources = [b.source(element, "u32") for element in b.vector(value, count, "stmatrix")]
    transpose = i.has("trans")
    b.note_shared_width(4)
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        index = _row_addresses(c, site, get(c), count, "stmatrix")
        if index is None:
            return
        data = np.empty((c.n, count, 32), np.uint32)
        for position, source in enumerate(sources):
            data[:, position] = source(c)
        if transpose:
            halves = data.view(np.uint16).reshape(c.n, count, 8, 8)
            data = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.uint32)
        shaped = data.reshape(c.n, 8 * count, 4)
        view = c.residents.shared.view(4, 4)
        if c.emulation.checking:
            changed = (np.take(view, index >> 4, axis=0, mode="clip") != shaped).any(axis=-1)
            shared_access.check_write(c, site, index, 16, c.set.column, changed)
        view[index >> 4] = shaped
        if c.emulation.checking:
            who = c.set.member + (ANY_LANE << WARP_BITS)
            shared_access.mark_written(c, site, index, 16, who, c.emulation.tick)

    return run


def _movmatrix(b: Binder, i: Instruction) -> Run:
    d, x = b.operands(i, 2)
    source = b.source(x, "u32")
    get = b.destination(d, "u32")

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        halves = np.ascontiguousarray(np.broadcast_to(source(c), (c.n, 32))).view(np.uint16).reshape(c.n, 8, 8)
        moved = np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(c.n, 64).view(np.uint32)
        np.copyto(get(c), moved, where=c.where)

    return run


# ---- mma ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fragment:
    """How a warp holds a matrix.

    registers  32-bit (or, for f64, 64-bit) registers per lane
    elements   elements per lane
    gather     (rows * columns,) position of each matrix element among the warp's 32 * elements, lane-major
    scatter    (32 * elements,) position in the row-major matrix of each lane's element
    """

    rows: int
    columns: int
    registers: int
    elements: int
    gather: NDArray[np.int64]
    scatter: NDArray[np.int64]


def make_fragment(rows: int, columns: int, per_register: int, place: Place) -> Fragment:
    """The fragment in which element i of lane l is the matrix element place(l / 4, l % 4, i)."""
    elements = rows * columns // 32
    item = np.arange(elements)[None, :]
    row, column = place(_G[:, None], _T[:, None], item)
    scatter = (np.broadcast_to(row, (32, elements)) * columns + np.broadcast_to(column, (32, elements))).reshape(-1)
    if sorted(scatter.tolist()) != list(range(rows * columns)):
        raise ValueError(f"a {rows}x{columns} fragment does not cover its matrix exactly once")
    gather = np.empty(rows * columns, np.int64)
    gather[scatter] = np.arange(rows * columns)
    return Fragment(rows, columns, max(1, elements // per_register), elements, gather, scatter)


# Index maps: PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours.
def _a_place(m: int, group: int) -> Place:
    """A (m x k), elements in runs of `group` along k: rows alternate every run, then k jumps by 4 * group."""
    if m == 8:
        return lambda g, t, i: (g, t * group + i % group + 4 * group * (i // group))
    return lambda g, t, i: (g + 8 * (i // group % 2), t * group + i % group + 4 * group * (i // (2 * group)))


def _b_place(group: int) -> Place:
    """B (k x n)."""
    return lambda g, t, i: (t * group + i % group + 4 * group * (i // group), g)


def _c_place(m: int) -> Place:
    if m == 8:
        return lambda g, t, i: (g, 2 * t + i)
    return lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2)


@dataclass(frozen=True, slots=True)
class Kind:
    """How elements of an operand type are packed: their number per register, and the type of their bits."""

    per_register: int
    decode: Callable[[Array], Array]


def _float_decoder(dtype: Any) -> Callable[[Array], Array]:
    return lambda words: np.asarray(words.view(dtype).astype(np.float64))


def _tf32(words: Array) -> Array:
    """The hardware reads the upper 19 bits of a tf32 operand."""
    return np.asarray((words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64))


def _nibbles(signed: bool) -> Callable[[Array], Array]:
    def decode(words: Array) -> Array:
        parts = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        values = parts.astype(np.float64)
        if signed:
            values = np.where(values >= 8, values - 16, values)
        return np.asarray(values.reshape(*words.shape[:-1], -1))

    return decode


_KINDS: dict[str, Kind] = {
    "f16": Kind(2, _float_decoder(np.float16)),
    "bf16": Kind(2, _float_decoder(ml_dtypes.bfloat16)),
    "tf32": Kind(1, _tf32),
    "f64": Kind(1, _float_decoder(np.float64)),
    "s8": Kind(4, _float_decoder(np.int8)),
    "u8": Kind(4, _float_decoder(np.uint8)),
    "e4m3": Kind(4, _float_decoder(ml_dtypes.float8_e4m3fn)),
    "e5m2": Kind(4, _float_decoder(ml_dtypes.float8_e5m2)),
    "s4": Kind(8, _nibbles(True)),
    "u4": Kind(8, _nibbles(False)),
}
# Which (shape, A types) exist (PTX ISA, "mma").
_SHAPES: dict[str, tuple[str, ...]] = {
    "m16n8k8": ("f16", "bf16", "tf32", "f64"),
    "m16n8k16": ("f16", "bf16", "s8", "u8", "e4m3", "e5m2", "f64"),
    "m16n8k4": ("tf32", "f64"),
    "m8n8k4": ("f64",),
    "m8n8k16": ("s8", "u8"),
    "m8n8k32": ("s4", "u4"),
    "m16n8k32": ("s8", "u8", "s4", "u4", "e4m3", "e5m2"),
    "m16n8k64": ("s4", "u4"),
}


@lru_cache(maxsize=64)
def fragments(shape: str, kind: str) -> tuple[Fragment, Fragment, Fragment]:
    """(A, B, C) fragments of an mma shape; C in elements, whatever its packing."""
    m = int(shape[1 : shape.index("n")])
    k = int(shape[shape.index("k") + 1 :])
    group = _KINDS[kind].per_register
    a = make_fragment(m, k, group, _a_place(m, group))
    b = make_fragment(k, 8, group, _b_place(group))
    c = make_fragment(m, 8, 1, _c_place(m))
    return a, b, c


def _operand_types(b: Binder, i: Instruction) -> tuple[str, str, str, str]:
    known = [m for m in i.modifiers if m in _KINDS or m in ("f32", "s32")]
    if len(known) != 4:
        raise b.unsupported()
    return known[0], known[1], known[2], known[3]


def _mma(b: Binder, i: Instruction) -> Run:
    shape = next((m for m in i.modifiers if m in _SHAPES), None)
    if shape is None or not i.has("sync") or any(
        m in ("sp", "block_scale", "sp::ordered_metadata") or m.startswith(("kind", "b1")) for m in i.modifiers
    ):
        raise b.unsupported()
    d_type, a_type, b_type, c_type = _operand_types(b, i)
    if a_type not in _SHAPES[shape] or b_type not in _SHAPES[shape]:
        raise b.unsupported(f"{shape} of .{a_type} and .{b_type}")
    if not (i.has("row") and i.has("col")):
        raise b.unsupported("layouts other than .row.col")
    frag_a, frag_b, frag_c = fragments(shape, a_type)
    integer = a_type in ("s8", "u8", "s4", "u4")
    register = "u64" if a_type == "f64" else "u32"
    accumulators = ("s32",) if integer else ("f64",) if a_type == "f64" else ("f32", "f16")
    if d_type not in accumulators or c_type not in accumulators:
        raise b.fail(f"`{i.name}`: .{a_type} accumulates in {' or '.join('.' + t for t in accumulators)}")
    operands = b.operands(i, 4)
    sources_a = [b.source(e, register) for e in b.vector(operands[1], frag_a.registers, "A of this mma")]
    sources_b = [b.source(e, register) for e in b.vector(operands[2], frag_b.registers, "B of this mma")]
    half_c, half_d = c_type == "f16", d_type == "f16"
    c_view, d_view = "u32" if half_c else c_type, "u32" if half_d else d_type
    c_count = frag_c.elements // 2 if half_c else frag_c.elements
    d_count = frag_c.elements // 2 if half_d else frag_c.elements
    sources_c = [b.source(e, c_view) for e in b.vector(operands[3], c_count, "C of this mma")]
    targets = [b.destination(e, d_view) for e in b.vector(operands[0], d_count, "D of this mma")]
    decode_a, decode_b = _KINDS[a_type].decode, _KINDS[b_type].decode
    name = f"{shape}.{d_type}.{a_type}.{b_type}.{c_type}"
    operations = 2 * frag_a.rows * frag_a.columns * 8
    saturating = i.has("satfinite")

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        counters = c.emulation.counters
        counters.mma[name] = counters.mma.get(name, 0) + c.n
        counters.mma_operations += c.n * operations
        left = _matrix(c, sources_a, frag_a, decode_a)
        right = _matrix(c, sources_b, frag_b, decode_b)
        product = np.matmul(left, right).reshape(c.n, -1)
        lanes = np.take(product, frag_c.scatter, axis=1).reshape(c.n, 32, frag_c.elements)
        old = _accumulators(c, sources_c, half_c, frag_c.elements)
        if integer:
            exact = lanes.astype(np.int64) + old
            if saturating:
                exact = np.clip(exact, -(2**31), 2**31 - 1)
            result: Array = (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        else:
            total = lanes + old
            result = total if d_type == "f64" else total.astype(np.float16 if half_d else np.float32)
        if half_d:
            result = np.ascontiguousarray(result).view(np.uint32)
        for position, target in enumerate(targets):
            np.copyto(target(c), result[..., position], where=c.where)

    def taint(c: Cohort) -> None:
        # One uninitialised input element spoils the row or column that it enters; the whole result is marked.
        bad = c.residents.any_taint_per_warp(c, read_slots)
        for slot in write_slots:
            full = np.iinfo(c.residents.registers.groups[slot[0]].dtype).max
            bits = np.where(bad[:, None], full, 0).astype(c.residents.registers.groups[slot[0]].dtype)
            c.residents.set_taint(c, slot, np.broadcast_to(bits, (c.n, 32)))

    read_slots, write_slots = sorted(b.reads), sorted(b.writes)
    b.taint_before = taint
    return run


def _matrix(c: Cohort, sources: list[Getter], fragment: Fragment, decode: Callable[[Array], Array]) -> Array:
    """(n, rows, columns) binary64 matrix of each warp."""
    first = sources[0](c)
    words = np.empty((c.n, 32, len(sources)), np.uint64 if np.asarray(first).dtype.itemsize == 8 else np.uint32)
    words[..., 0] = first
    for position in range(1, len(sources)):
        words[..., position] = sources[position](c)
    values = decode(words.reshape(c.n, -1))
    return np.take(values, fragment.gather, axis=1).reshape(c.n, fragment.rows, fragment.columns)


def _accumulators(c: Cohort, sources: list[Getter], packed: bool, elements: int) -> Array:
    if packed:
        words = np.empty((c.n, 32, len(sources)), np.uint32)
        for position, source in enumerate(sources):
            words[..., position] = source(c)
        return np.asarray(words.view(np.float16).astype(np.float64))
    values = np.empty((c.n, 32, elements), np.float64)
    for position, source in enumerate(sources):
        values[..., position] = source(c)
    return values if np.asarray(sources[0](c)).dtype.kind == "f" else values.astype(np.int64)


MATRICES: dict[str, Compile] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix, "mma": _mma}
