"""wmma.load, wmma.mma, wmma.store: matrices with layouts that the manual leaves open (PTX ISA, "wmma").

Here they are held as mma holds them. The f16 operands of 16 x 16 x 16 take eight registers, which is more than their
elements need: the rest repeats them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.loads_stores import memory_reader, memory_writer, state_space
from tinygpu.ptx.emulator.instructions.mma import differing_bits
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.instructions.warp_products import WarpProduct, compile_product, hold, slots_of
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import LANES, Slot
from tinygpu.ptx.emulator.units.fragments import Fragment, stacked_accumulator, stacked_left, stacked_right
from tinygpu.ptx.emulator.units.matrix_elements import ELEMENTS, ElementType

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WIDE = ("m16n16k16", "m8n32k16", "m32n8k16")
# family -> (shapes, types of C and D) (PTX ISA, "Matrix Shape" and "Matrix Data-types").
_FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_WIDE, ("f16", "f32")), "bf16": (_WIDE, ("f32",)), "int8": (_WIDE, ("s32",)),
    "tf32": (("m16n16k8",), ("f32",)), "f64": (("m8n8k4",), ("f64",)), "int4": (("m8n8k32",), ("s32",)),
    "bit": (("m8n8k128",), ("s32",)),
}  # fmt: skip
_ACCUMULATOR_BYTES = {"f16": 2, "f32": 4, "s32": 4, "f64": 8}
_F16_REGISTERS = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the matrices of a wmma, as a warp holds it and as it lies in memory.

    element    type of A's or B's elements; None for C and D
    unit_bytes bytes that are moved at once: a whole register where its elements are neighbours in memory
    rows, columns  (32, units) place of each unit's first element
    registers  how many registers hold it, repetitions included
    """

    fragment: Fragment
    element: ElementType | None
    bits: int
    unit_bytes: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    registers: int

    @property
    def distinct(self) -> int:
        """Registers without repetitions."""
        return max(1, self.fragment.elements * self.bits // max(32, self.bits))


def _shape(b: Binder, i: Instruction) -> tuple[str, int, int, int]:
    matched = next((m for m in map(_SHAPE.fullmatch, i.modifiers) if m is not None), None)
    if matched is None or not i.has("sync"):
        raise b.unsupported()
    return matched[0], int(matched[1]), int(matched[2]), int(matched[3])


def _check_family(b: Binder, shape: str, element: ElementType) -> None:
    if element.family not in _FAMILIES or shape not in _FAMILIES[element.family][0]:
        raise b.unsupported(f"{shape} of .{element.name}")


def _operand_tile(m: int, n: int, k: int, element: ElementType, is_a: bool, by_rows: bool) -> Tile:
    per = element.per_register
    fragment = stacked_left(m, k, per) if is_a else stacked_right(k, n, per)
    # K runs along the rows of A and the columns of B; along K a register's elements are neighbours.
    together = by_rows == is_a
    return _tile(fragment, element, element.bits, per if together else 1)


def _tile(fragment: Fragment, element: ElementType | None, bits: int, together: int) -> Tile:
    row, column = np.divmod(fragment.scatter.reshape(LANES, -1)[:, ::together], fragment.columns)
    registers = max(1, fragment.elements * bits // max(32, bits))
    if element is not None and element.family == "f16":
        registers = _F16_REGISTERS
    return Tile(fragment, element, bits, together * bits // 8, row, column, registers)


def _layout(b: Binder, i: Instruction) -> bool:
    """Whether memory holds the matrix by rows."""
    if not (i.has("row") or i.has("col")):
        raise b.fail(f"`{i.name}` needs .row or .col")
    return i.has("row")


# ---- load and store -----------------------------------------------------------------------------------------------


def _memory_tile(b: Binder, i: Instruction) -> tuple[Tile, bool]:
    """The matrix that a load or store is about, and whether memory holds it by rows."""
    shape, m, n, k = _shape(b, i)
    by_rows = _layout(b, i)
    which = next((w for w in ("a", "b", "c", "d") if i.has(w)), "")
    name = next((t for t in i.modifiers if t in ELEMENTS or t in _ACCUMULATOR_BYTES), "")
    if which in ("a", "b"):
        element = ELEMENTS.get(name)
        if element is None:
            raise b.unsupported()
        _check_family(b, shape, element)
        if element.bits < 8 and by_rows != (which == "a"):
            raise b.unsupported(f"a matrix of .{name} that memory does not hold along K")
        return _operand_tile(m, n, k, element, which == "a", by_rows), by_rows
    if name not in _ACCUMULATOR_BYTES or not any(shape in s and name in t for s, t in _FAMILIES.values()):
        raise b.unsupported(f"{shape} of .{name}")
    return _tile(stacked_accumulator(m, n), None, 8 * _ACCUMULATOR_BYTES[name], 1), by_rows


def _place(
    b: Binder, i: Instruction, tile: Tile, by_rows: bool, where: Operand, stride: Operand | None
) -> tuple[Callable[[Cohort], NDArray[np.uint64]], str]:
    """(getter of the (units, n, 32) byte addresses of a tile's units, their space)."""
    base, _, symbol_space = b.address(where)
    space = state_space(b, i, symbol_space)
    if space not in ("global", "shared", "generic"):
        raise b.fail(f"`{i.name}` needs global or shared memory, not .{space}")
    lead = tile.fragment.columns if by_rows else tile.fragment.rows
    get_stride: Getter | None = None if stride is None else b.source(stride, "u32")
    outer, inner = (tile.rows, tile.columns) if by_rows else (tile.columns, tile.rows)

    def addresses(c: Cohort) -> NDArray[np.uint64]:
        first = c.spread(base(c)).astype(np.uint64)
        step = np.array(lead) if get_stride is None else c.spread(get_stride(c)).astype(np.int64)
        elements = outer.T[:, None, :] * step + inner.T[:, None, :]
        return first + (elements * tile.bits // 8).astype(np.uint64)

    return addresses, space


def _load(b: Binder, i: Instruction) -> Run:
    tile, by_rows = _memory_tile(b, i)
    operands = b.operands(i, 2, 3)
    addresses, space = _place(b, i, tile, by_rows, operands[1], operands[2] if len(operands) > 2 else None)
    registers = b.vector(operands[0], tile.registers, "this wmma.load")
    word = "u64" if tile.bits == 64 else "u32"
    targets = [b.destination(e, word) for e in registers]
    slots = slots_of(b, registers)
    _note_width(b, space, tile.unit_bytes)
    reader = memory_reader(space, b.site(i), tile.unit_bytes, 1, False)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        units = addresses(c)
        values = np.zeros((c.n, LANES, units.shape[0]), f"u{tile.unit_bytes}")
        unknown = np.zeros(values.shape, np.bool_)
        for position in range(units.shape[0]):
            got, bits = reader(c, units[position])
            values[..., position] = got
            if bits is not None:
                unknown[..., position] = bits != 0
        words = values.view(f"u{8 if tile.bits == 64 else 4}")
        for position, target in enumerate(targets):
            np.copyto(target(c), words[..., position % words.shape[2]], where=c.where)
        if c.residents.tainted or unknown.any():
            marks = np.repeat(unknown, tile.unit_bytes, axis=2).astype(np.uint8) * np.uint8(0xFF)
            bits = marks.view(words.dtype)
            for position, slot in enumerate(slots):
                if slot is not None:
                    c.residents.set_taint(c, slot, bits[..., position % words.shape[2]])

    return run


def _store(b: Binder, i: Instruction) -> Run:
    tile, by_rows = _memory_tile(b, i)
    operands = b.operands(i, 2, 3)
    addresses, space = _place(b, i, tile, by_rows, operands[0], operands[2] if len(operands) > 2 else None)
    registers = b.vector(operands[1], tile.registers, "this wmma.store")
    word = "u64" if tile.bits == 64 else "u32"
    sources = [b.source(e, word) for e in registers]
    slots = slots_of(b, registers)
    _note_width(b, space, tile.unit_bytes)
    writer = memory_writer(space, b.site(i), tile.unit_bytes, 1, False)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        words = np.empty((c.n, LANES, len(sources)), np.uint64 if tile.bits == 64 else np.uint32)
        for position, source in enumerate(sources):
            words[..., position] = source(c)
        values = words.view(f"u{tile.unit_bytes}")
        unknown = _unknown_units(c, slots, tile)
        units = addresses(c)
        for position in range(units.shape[0]):
            bad: NDArray[Any] | None = None
            if unknown is not None and unknown[..., position].any():
                bad = unknown[..., position] * values.dtype.type(np.iinfo(values.dtype).max)
            writer(c, units[position], values[..., position], bad)

    return run


def _unknown_units(c: Cohort, slots: list[Slot | None], tile: Tile) -> NDArray[np.bool_] | None:
    """(n, 32, units) which units of these registers have an uninitialised bit; None for none."""
    known = c.residents.registers.taint
    if not c.residents.tainted or known.keys().isdisjoint(slot for slot in slots if slot is not None):
        return None
    bits = np.zeros((c.n, LANES, len(slots)), np.uint64 if tile.bits == 64 else np.uint32)
    for position, slot in enumerate(slots):
        found = None if slot is None else known.get(slot)
        if found is not None:
            bits[..., position] = found[c.set.rows]
    return np.asarray(bits.view(f"u{tile.unit_bytes}") != 0)


def _note_width(b: Binder, space: str, width: int) -> None:
    if space != "global":
        b.note_shared_width(width)
    if space != "shared":
        b.note_global_width(width)


# ---- mma ----------------------------------------------------------------------------------------------------------


def _mma(b: Binder, i: Instruction) -> Run:
    shape, m, n, k = _shape(b, i)
    types = [t for t in i.modifiers if t in ELEMENTS or t in _ACCUMULATOR_BYTES]
    # Without types of A and B these are f16.
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    d_type, a_type, b_type, c_type = (*types, "", "", "", "")[:4]
    a, right = ELEMENTS.get(a_type), ELEMENTS.get(b_type)
    if len(types) != 4 or a is None or right is None or a.family != right.family:
        raise b.unsupported()
    _check_family(b, shape, a)
    allowed = _FAMILIES[a.family][1]
    if d_type not in allowed or c_type not in allowed:
        raise b.fail(f"`{i.name}`: .{a_type} accumulates in {' or '.join('.' + t for t in allowed)}")
    if any(i.has(r) for r in ("rz", "rm", "rp")):
        raise b.unsupported("rounding other than .rn")
    operation = next((o for o in ("and", "xor") if i.has(o)), "")
    if (a.family == "bit") != bool(operation):
        raise b.unsupported("single bits need .and.popc or .xor.popc, and only they do")
    d, left, right_operand, old = b.operands(i, 4)
    # How memory held A and B makes no difference to how they are held here.
    tile_a, tile_b = _operand_tile(m, n, k, a, True, True), _operand_tile(m, n, k, right, False, False)
    held_a = b.vector(left, tile_a.registers, "A of this wmma.mma")
    held_b = b.vector(right_operand, tile_b.registers, "B of this wmma.mma")
    fragment = stacked_accumulator(m, n)
    product = WarpProduct(
        hold(b, held_a[: tile_a.distinct], tile_a.fragment, a),
        hold(b, held_b[: tile_b.distinct], tile_b.fragment, right),
        fragment, fragment, c_type, d_type, differing_bits if operation == "xor" else np.matmul, i.has("satfinite"),
        f"wmma.{shape}.{d_type}.{a_type}.{b_type}.{c_type}", 2 * m * n * k,
    )  # fmt: skip
    registers_c = b.vector(old, fragment.elements // (1 + (c_type == "f16")), "C of this wmma.mma")
    registers_d = b.vector(d, fragment.elements // (1 + (d_type == "f16")), "D of this wmma.mma")
    return compile_product(b, i, product, registers_c, registers_d)


def _wmma(b: Binder, i: Instruction) -> Run:
    if i.has("load"):
        return _load(b, i)
    if i.has("store"):
        return _store(b, i)
    if i.has("mma"):
        return _mma(b, i)
    raise b.unsupported()


WMMA: dict[str, Compile] = {"wmma": _wmma}
