"""ld and st in every state space (PTX ISA, "ld" and "st")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import global_access, local_access, shared_access
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.device_heap import DEVICE_HEAP
from tinygpu.ptx.emulator.instructions.integer import Compile, last_type
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Instruction,
    Operand,
    RegisterOperand,
    SinkOperand,
    SymbolOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.memory import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Cohort

_STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
Slots = list[tuple[int, int]]


def state_space(b: Binder, i: Instruction, symbol_space: str | None) -> str:
    """The instruction's space; "generic" when it names none and its address is no variable's."""
    for modifier in i.modifiers:
        base = modifier.partition("::")[0]
        if base in ("global", "shared", "local", "const", "param"):
            return base
    return symbol_space or "generic"


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
    residents.tainted = True
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
            bits = residents.registers.taint_of(slot)
            wide = loaded if unknown is None else _widened(loaded, bits.dtype)
            if c.mask is None:
                bits[rows] = wide
            else:
                part = bits[rows].copy()
                part[c.mask] = wide
                bits[rows] = part


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
    strong = any(i.has(m) for m in _STRONG)
    if space == "param" and constant is not None:
        return _ld_param(b, i, target, constant, name, width, count)
    writers = _register_writers(b, target, name, count)
    slots = [_slots_of(b, [element]) for element in b.vector(target, count, "this load")]
    _widths(b, space, width)
    site = b.site(i)
    reader = memory_reader(space, site, width, count, strong)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        values, unknown = reader(c, get(c))
        if values.size:
            write_loaded(c, writers, values, name, count)
            _taint_loaded(c, slots, unknown, name, count)

    return run


Loaded = tuple[Array, Array | None]
"""Values, and which of their bits are uninitialised (None: none)."""
Reader = Callable[[Cohort, Array], Loaded]


def memory_reader(space: str, site: Site, width: int, count: int, strong: bool) -> Reader:
    """Reads `count` elements of `width` bytes per active lane of a space."""
    size = width * count

    def read_global(c: Cohort, addresses: Array) -> Loaded:
        addresses = as_u64(addresses)
        if c.mask is None or c.mask.any():
            requests, sectors, moved = site.count_global(addresses, c.mask, size)
            counters = c.emulation.counters
            counters.global_load_requests += requests
            counters.global_load_sectors += sectors
            counters.global_load_bytes += moved
        values = global_access.load(c, site, addresses, width, count, strong)
        if strong:
            c.residents.order.access(c, c.pick(addresses), True, False, acquire=site.instruction.has("acquire"))
        return values

    def read_shared(c: Cohort, addresses: Array) -> Loaded:
        if c.mask is None or c.mask.any():
            requests, wavefronts, moved = site.count_shared(addresses, c.mask, size)
            counters = c.emulation.counters
            counters.shared_load_requests += requests
            counters.shared_load_wavefronts += wavefronts
            counters.shared_load_bytes += moved
        return shared_access.load(c, site, addresses, width, count, strong)

    def read_local(c: Cohort, addresses: Array) -> Loaded:
        return local_access.load(c, site, as_u64(addresses), width, count)

    def read_const(c: Cohort, addresses: Array) -> Loaded:
        return global_access.load(c, site, as_u64(addresses) + np.uint64(CONST_WINDOW), width, count)

    def read_param(c: Cohort, addresses: Array) -> Loaded:
        return global_access.load(c, site, as_u64(addresses) + np.uint64(PARAM_WINDOW), width, count)

    readers: dict[str, Reader] = {
        "global": read_global, "shared": read_shared, "local": read_local, "const": read_const, "param": read_param,
    }  # fmt: skip
    if space != "generic":
        return readers[space]

    def read_generic(c: Cohort, addresses: Array) -> Loaded:
        addresses = as_u64(addresses)
        parts = split_generic(c, addresses)
        if len(parts) == 1 and parts[0][1] is None:
            chosen, _, base = parts[0]
            own = readers["global"] if chosen in ("global", "const", "param") else readers[chosen]
            return own(c, addresses if chosen in ("global", "const", "param") else addresses - base)
        shape = (c.n, 32, count) if count > 1 else (c.n, 32)
        values = np.zeros(shape, f"u{width}")
        bits = np.zeros(shape, f"u{width}")
        outer = c.mask
        for chosen, mask, base in parts:
            c.narrow(mask)
            own = readers["global"] if chosen in ("global", "const", "param") else readers[chosen]
            got, unknown = own(c, addresses if chosen in ("global", "const", "param") else addresses - base)
            values[mask] = got
            if unknown is not None:
                bits[mask] = unknown
        c.narrow(outer)
        return c.pick(values), c.pick(bits) if bits.any() else None

    return read_generic


def as_u64(addresses: Array) -> NDArray[np.uint64]:
    """Addresses as 64-bit numbers."""
    if addresses.dtype == np.uint64:
        return addresses
    return addresses.astype(np.uint64)


def split_generic(c: Cohort, addresses: NDArray[np.uint64]) -> list[tuple[str, NDArray[np.bool_] | None, np.uint64]]:
    """Which space each active lane's generic address lies in: (space, lanes or None for all, window's base)."""
    active = c.pick(addresses)
    if active.size == 0:
        return [("global", None, np.uint64(0))]
    window = active // np.uint64(WINDOW_BYTES)
    low, high = int(window.min()), int(window.max())
    names = {
        SHARED_WINDOW // WINDOW_BYTES: ("shared", SHARED_WINDOW), LOCAL_WINDOW // WINDOW_BYTES: ("local", LOCAL_WINDOW),
        CONST_WINDOW // WINDOW_BYTES: ("const", CONST_WINDOW), PARAM_WINDOW // WINDOW_BYTES: ("param", PARAM_WINDOW),
    }  # fmt: skip
    if low == high or not any(low <= key <= high for key in names):
        space, base = names.get(low, ("global", 0)) if low == high else ("global", 0)
        return [(space, None, np.uint64(base))]
    lanes = np.ones(addresses.shape, np.bool_) if c.mask is None else c.mask
    everywhere = addresses // np.uint64(WINDOW_BYTES)
    result: list[tuple[str, NDArray[np.bool_] | None, np.uint64]] = []
    rest = lanes.copy()
    for key, (space, base) in names.items():
        inside = lanes & (everywhere == np.uint64(key))
        if inside.any():
            result.append((space, inside, np.uint64(base)))
            rest &= ~inside
    if rest.any():
        result.append(("global", rest, np.uint64(0)))
    return result


def _ld_param(
    b: Binder, i: Instruction, target: Operand, offset: int, name: str, width: int, count: int
) -> Run:
    """A kernel parameter at a constant offset is a constant of the launch."""
    writers = _register_writers(b, target, name, count)
    if offset % (width * count):
        raise b.fail(f"byte {offset} of the parameters is not aligned to {width * count} bytes")
    patterns = [b.param_value(offset + k * width, width) for k in range(count)]
    kind = TYPES[name]
    constants: list[tuple[Getter, Any]] = []
    for writer, pattern in zip(writers, patterns, strict=True):
        if writer is None:
            continue
        get, bits = writer
        if kind.signed and pattern >> (kind.bits - 1):
            pattern -= 1 << kind.bits
        constants.append((get, np.dtype(f"u{bits // 8}").type(pattern & ((1 << bits) - 1))))

    def run(c: Cohort) -> None:
        for get, value in constants:
            np.copyto(get(c), value, where=c.where)

    return run


# ---- st ---------------------------------------------------------------------------------------------------------


def _st(b: Binder, i: Instruction) -> Run:
    if i.has("bulk"):
        return _st_bulk(b, i)
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


Writer = Callable[[Cohort, Array, Array, Array | None], None]
"""Of addresses, values and which bits of these are uninitialised (None: none)."""


def memory_writer(space: str, site: Site, width: int, count: int, strong: bool) -> Writer:
    """Writes `count` elements of `width` bytes per active lane to a space."""
    size = width * count

    def write_global(c: Cohort, addresses: Array, values: Array, unknown: Array | None) -> None:
        addresses = as_u64(addresses)
        if c.mask is None or c.mask.any():
            requests, sectors, moved = site.count_global(addresses, c.mask, size)
            counters = c.emulation.counters
            counters.global_store_requests += requests
            counters.global_store_sectors += sectors
            counters.global_store_bytes += moved
        if unknown is not None:
            _report_unknown(c, site, addresses, unknown, count)
        if strong:
            c.residents.order.access(c, c.pick(addresses), False, True, release=site.instruction.has("release"))
        global_access.store(c, site, addresses, values, width, count, strong)

    def write_shared(c: Cohort, addresses: Array, values: Array, unknown: Array | None) -> None:
        if c.mask is None or c.mask.any():
            requests, wavefronts, moved = site.count_shared(addresses, c.mask, size)
            counters = c.emulation.counters
            counters.shared_store_requests += requests
            counters.shared_store_wavefronts += wavefronts
            counters.shared_store_bytes += moved
        index = shared_access.store(c, site, addresses, values, width, count, strong)
        if unknown is not None and index is not None:
            shared_access.mark_unknown(c, index, size, unknown)

    def write_local(c: Cohort, addresses: Array, values: Array, unknown: Array | None) -> None:
        local_access.store(c, site, as_u64(addresses), values, width, count, unknown)

    writers: dict[str, Writer] = {"global": write_global, "shared": write_shared, "local": write_local}
    if space != "generic":
        return writers[space]

    def write_generic(c: Cohort, addresses: Array, values: Array, unknown: Array | None) -> None:
        addresses = as_u64(addresses)
        parts = split_generic(c, addresses)
        if len(parts) == 1 and parts[0][1] is None:
            chosen, _, base = parts[0]
            own = writers.get(chosen, write_global)
            own(c, addresses - base if chosen in writers else addresses, values, unknown)
            return
        outer = c.mask
        shape = (c.n, 32, count) if count > 1 else (c.n, 32)
        full = np.zeros(shape, values.dtype)
        bits = np.zeros(shape, values.dtype)
        lanes = np.ones((c.n, 32), np.bool_) if outer is None else outer
        full[lanes] = values.reshape(-1, count) if count > 1 else values.reshape(-1)
        if unknown is not None:
            bits[lanes] = unknown.reshape(-1, count) if count > 1 else unknown.reshape(-1)
        for chosen, mask, base in parts:
            c.narrow(mask)
            own = writers.get(chosen, write_global)
            part = c.pick(bits)
            own(c, addresses - base if chosen in writers else addresses, c.pick(full), part if part.any() else None)
        c.narrow(outer)

    return write_generic


def _report_unknown(c: Cohort, site: Site, addresses: Array, unknown: Array, count: int) -> None:
    lanes = (unknown != 0).any(axis=-1) if count > 1 else unknown != 0
    flat = int(np.argmax(lanes.reshape(-1)))
    row, lane = c.locate(flat)
    address = int(c.pick(addresses).reshape(-1)[flat])
    c.emulation.fault(
        "uninitialised", site.instruction, c.residents, row, lane,
        f"stores a value that was never initialised to global address {address:#x}: give the register or the "
        "memory it came from a value first",
        "global", address, int(np.count_nonzero(lanes)),
    )  # fmt: skip


def _st_bulk(b: Binder, i: Instruction) -> Run:
    """st.bulk: `size` zero bytes to shared memory."""
    where, size, value = b.operands(i, 3)
    get, _, symbol_space = b.address(where)
    space = state_space(b, i, symbol_space)
    if space not in ("shared", "generic") or b.integer(value, "the value of st.bulk") != 0:
        raise b.fail(f"`{i.name}` stores zeros to shared memory")
    b.note_shared_width(8)
    amount = b.source(size, "u64")
    site = b.site(i)
    writer = memory_writer("shared", site, 8, 1, False)
    generic = space == "generic"

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        addresses = as_u64(np.broadcast_to(get(c), (c.n, 32)))
        if generic:
            addresses = addresses - np.uint64(SHARED_WINDOW)
        sizes = np.broadcast_to(amount(c), (c.n, 32))
        outer = c.mask
        lanes = np.ones((c.n, 32), np.bool_) if outer is None else outer
        bad = lanes & ((sizes & np.uint64(7)) != 0)
        if bad.any():
            at, lane = divmod(int(np.argmax(bad.reshape(-1))), 32)
            c.emulation.fault(
                "misaligned", i, c.residents, int(c.set.index[at]), lane,
                f"`{i.name}` stores {int(sizes[at, lane])} bytes, which is no multiple of 8",
                "shared", int(addresses[at, lane]), int(np.count_nonzero(bad)),
            )  # fmt: skip
        for step in range(int(sizes[lanes].max()) // 8 if lanes.any() else 0):
            mask = lanes & ~bad & (sizes > np.uint64(8 * step))
            c.narrow(mask)
            writer(c, addresses + np.uint64(8 * step), np.zeros(int(np.count_nonzero(mask)), np.uint64), None)
        c.narrow(outer)

    return run


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
