"""ld and st in every state space (PTX ISA, "ld" and "st")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.bulk_zeros import store_zeros
from tinygpu.ptx.emulator.instructions.device_heap import DEVICE_HEAP
from tinygpu.ptx.emulator.instructions.integer import Compile, last_type
from tinygpu.ptx.emulator.instructions.memory_spaces import (
    as_u64,
    memory_reader,
    memory_writer,
    split_generic,
    state_space,
)
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Instruction,
    Operand,
    RegisterOperand,
    SinkOperand,
    SymbolOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import GROUP_DTYPES, LANES

_STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
Slots = list[tuple[int, int]]


def _vector_count(i: Instruction) -> int:
    for modifier in i.modifiers:
        if modifier in _VECTORS:
            return _VECTORS[modifier]
    return 1


def _access(b: Binder, i: Instruction) -> tuple[str, int, int]:
    """(type, bytes of one element, elements) of a load or store, checked."""
    name = last_type(b, i)
    count = _vector_count(i)
    if name == "b128":
        # A 128-bit register is two halves, so this is a vector of two.
        name, count = "b64", 2 * count
    kind = TYPES[name]
    if kind.bits < 8 or kind.bits > 64:
        raise b.fail(f"`{i.name}` takes no .{name}")
    if kind.bytes * count > 32 or (kind.bytes * count > 16 and count * kind.bits != 256):
        raise b.fail(f"`{i.name}`: a vector of {count} x .{name} has {kind.bytes * count} bytes, more than 16")
    return name, kind.bytes, count


def _widths(b: Binder, space: str, width: int) -> None:
    if space in ("shared", "generic"):
        b.note_shared_width(width)
    if space in ("global", "generic"):
        b.note_global_width(width)


def _address(b: Binder, i: Instruction, operand: Operand) -> tuple[Getter, int | None, str]:
    """(getter of addresses in the space's own numbering, constant address, space)."""
    get, constant, symbol_space = b.address(operand)
    space = state_space(b, i, symbol_space)
    if symbol_space is not None and space in ("param", "local") and symbol_space in ("local", "param"):
        # Parameters of device functions are per-thread memory, laid out with the local variables.
        space = symbol_space
    if space == "param" and constant is None:
        # An address of a parameter that was computed at run time.
        space = "param"
    if symbol_space is not None and space != symbol_space and space != "generic":
        raise b.fail(f"`{i.name}` accesses .{space}, but the variable lies in .{symbol_space}")
    return get, constant, space


# ---- writing loaded values to registers -------------------------------------------------------------------------


def _register_writers(b: Binder, operand: Operand, name: str, count: int) -> list[tuple[Getter, int] | None]:
    elements = b.vector(operand, count, "this load")
    return [None if isinstance(e, SinkOperand) else b.wide_destination(e, name) for e in elements]


def write_loaded(
    c: Cohort, writers: list[tuple[Getter, int] | None], values: Array, name: str, count: int
) -> None:
    """Put loaded values (shape of Cohort.pick, axis of `count` behind) into registers, extended to their width."""
    kind = TYPES[name]
    memory: Any = np.dtype(f"{'i' if kind.signed else 'u'}{kind.bytes}")
    for position, writer in enumerate(writers):
        if writer is None:
            continue
        get, bits = writer
        value = values[..., position] if count > 1 else values
        target = get(c)
        if bits != kind.bits:
            value = np.ascontiguousarray(value).view(memory).astype(f"{'i' if kind.signed else 'u'}{bits // 8}")
            value = value.view(f"u{bits // 8}")
        if c.mask is None:
            target[...] = value
        else:
            target[c.mask] = value


def _taint_loaded(c: Cohort, slots: list[Slots], unknown: Array | None, name: str, count: int) -> None:
    """Mark the bits that were loaded from uninitialised ones; clear the marks of the others.

    slots    registers of each element
    unknown  in the shape and type of the values; None where all is known
    """
    residents = c.residents
    if unknown is None and not residents.tainted:
        return
    rows = c.set.rows
    kind = TYPES[name]
    for position, targets in enumerate(slots):
        loaded: Any = 0
        if unknown is not None:
            loaded = np.ascontiguousarray(unknown[..., position] if count > 1 else unknown)
            if kind.signed:
                # The bits above are copies of the sign.
                loaded = loaded.view(f"i{kind.bytes}")
        for slot in targets:
            wide = loaded if unknown is None else _widened(loaded, np.dtype(GROUP_DTYPES[slot[0]]))
            if c.mask is not None:  # what is loaded are the values of the active lanes alone
                lanes = np.zeros((c.n, LANES), GROUP_DTYPES[slot[0]])
                lanes[c.mask] = wide
                wide = lanes
            residents.registers.mark(slot, rows, wide, c.mask)


def _widened(values: Array, dtype: Any) -> Array:
    """Extended by their sign or by zeros, or cut, to another unsigned type."""
    if values.dtype.kind == "i":
        return np.asarray(values.astype(f"i{dtype.itemsize}").view(f"u{dtype.itemsize}"))
    return np.asarray(values.astype(dtype))


# ---- ld ---------------------------------------------------------------------------------------------------------


def _ld(b: Binder, i: Instruction) -> Run:
    name, width, count = _access(b, i)
    target, where = b.operands(i, 2, 3)[:2]
    get, constant, space = _address(b, i, where)
    strong = any(i.has(m) for m in _STRONG) and (i.line, i.column) not in b.data_loads
    if space == "param" and constant is not None:
        return _ld_param(b, i, target, constant, name, width, count)
    writers = _register_writers(b, target, name, count)
    slots = [_slots_of(b, [element]) for element in b.vector(target, count, "this load")]
    _widths(b, space, width)
    site = b.site(i)
    strong = strong or (i.line, i.column) in b.guesses
    b.strong_loads |= strong
    reader = memory_reader(space, site, width, count, strong)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        values, unknown = reader(c, get(c))
        if values.size:
            write_loaded(c, writers, values, name, count)
            _taint_loaded(c, slots, unknown, name, count)

    return run


def _ld_param(
    b: Binder, i: Instruction, target: Operand, offset: int, name: str, width: int, count: int
) -> Run:
    """A kernel parameter at a constant offset is a constant of the launch."""
    writers = _register_writers(b, target, name, count)
    if offset % (width * count):
        raise b.fail(f"byte {offset} of the parameters is not aligned to {width * count} bytes")
    written: list[tuple[Getter, int, int]] = []
    for position, writer in enumerate(writers):
        b.check_parameter(offset + position * width, width)
        if writer is not None:
            written.append((writer[0], offset + position * width, writer[1]))

    def run(c: Cohort) -> None:
        for get, start, bits in written:
            np.copyto(get(c), c.emulation.constants.parameter(start, name, bits), where=c.where)

    return run


# ---- st ---------------------------------------------------------------------------------------------------------


def _st(b: Binder, i: Instruction) -> Run:
    if i.has("bulk"):
        return store_zeros(b, i)
    name, width, count = _access(b, i)
    where, value = b.operands(i, 2, 3)[:2]
    get, _, space = _address(b, i, where)
    if space in ("const", "param"):
        raise b.fail(f"`{i.name}` stores to .{space}, which cannot be written")
    elements = b.vector(value, count, "this store")
    address_reads = set(b.reads)
    sources = [b.wide_source(element, name) for element in elements]
    data_slots = [_slots_of(b, [element]) for element in elements]
    b.reads |= address_reads
    _widths(b, space, width)
    site = b.site(i)
    strong = any(i.has(m) for m in _STRONG)
    writer = memory_writer(space, site, width, count, strong)
    dtype: Any = np.dtype(f"u{width}")

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if count == 1:
            raw = sources[0](c)
            full = raw if np.ndim(raw) == 2 else np.full((c.n, 32), raw)
            values = c.pick(full)
        else:
            stacked = np.empty((c.n, 32, count), dtype)
            for position, source in enumerate(sources):
                stacked[..., position] = source(c)
            values = c.pick(stacked)
        unknown = _unknown_data(c, data_slots, values.shape, dtype) if c.residents.tainted else None
        writer(c, get(c), values, unknown)

    return run


def _slots_of(b: Binder, operands: list[Operand]) -> Slots:
    return sorted({b.slot(operand) for operand in operands if isinstance(operand, RegisterOperand)})


def _unknown_data(c: Cohort, data_slots: list[Slots], shape: tuple[int, ...], dtype: Any) -> Array | None:
    """Which bits of the values to be stored are uninitialised, as the registers of each element say; None for none."""
    registers = c.residents.registers
    unknown: Array | None = None
    for position, slots in enumerate(data_slots):
        for slot in slots:
            bits = registers.taint.get(slot)
            if bits is None:
                continue
            part = c.pick(bits[c.set.rows]).astype(dtype)
            if part.any():
                unknown = np.zeros(shape, dtype) if unknown is None else unknown
                target = unknown[..., position] if len(data_slots) > 1 else unknown
                target |= part
    return unknown


"""Of addresses, values and which bits of these are uninitialised (None: none)."""


def _prefetch(b: Binder, i: Instruction) -> Run:
    """Hints change nothing of what is computed; their address is not looked at."""

    def run(c: Cohort) -> None:
        return

    return run


LOADS_STORES: dict[str, Compile] = {
    "ld": _ld, "ldu": _ld, "st": _st, "prefetch": _prefetch, "prefetchu": _prefetch, "discard": _prefetch,
    "applypriority": _prefetch, **DEVICE_HEAP,
}  # fmt: skip

__all__ = [
    "LOADS_STORES", "AddressOperand", "SymbolOperand", "as_u64", "memory_reader", "memory_writer", "split_generic",
    "state_space", "write_loaded",
]  # fmt: skip
