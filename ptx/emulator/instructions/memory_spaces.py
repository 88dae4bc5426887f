"""Reading and writing any state space for the active lanes: which space, which window of generic addresses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import global_access, local_access, shared_access, shared_order
from tinygpu.ptx.emulator.access.older_reads import look_global, note_global
from tinygpu.ptx.emulator.instructions.binder import Binder
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.memory import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.scopes import Scope, scope_of

Loaded = tuple[Array, Array | None]
"""Values, and which of their bits are uninitialised (None: none)."""
Reader = Callable[[Cohort, Array], Loaded]
Writer = Callable[[Cohort, Array, Array, Array | None], None]


def state_space(b: Binder, i: Instruction, symbol_space: str | None) -> str:
    """The instruction's space; "generic" when it names none and its address is no variable's."""
    for modifier in i.modifiers:
        base = modifier.partition("::")[0]
        if base in ("global", "shared", "local", "const", "param"):
            return base
    return symbol_space or "generic"


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
            scope, acquires = scope_of(site.instruction, c.residents.cluster_size), site.instruction.has("acquire")
            picked = c.pick(addresses)
            missed = look_global(c, picked, size, values[0])
            near = {place: None if told is None else told[0] for place, told in missed.items()}
            c.residents.global_flags.exchange(c, picked, scope, True, False, acquire=acquires, missed=near)
            if scope is Scope.LAUNCH:
                far = {place: None if told is None else told[1] for place, told in missed.items()}
                c.residents.order.access(c, picked, True, False, acquire=acquires, missed=far)
            global_access.note_observed(c, picked, missed)
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
            scope, releases = scope_of(site.instruction, c.residents.cluster_size), site.instruction.has("release")
            note_global(c, site, c.pick(addresses), size)
            c.residents.global_flags.exchange(c, c.pick(addresses), scope, False, True, releases)
            if scope is Scope.LAUNCH:
                c.residents.order.access(c, c.pick(addresses), False, True, release=releases)
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
            shared_order.mark_unknown(c, index, size, unknown)

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


# Structs are copied in words of this size and more, with the padding between their members.
_COPIED_BYTES = 8


def _report_unknown(c: Cohort, site: Site, addresses: Array, unknown: Array, count: int) -> None:
    """A store of uninitialised data to global memory is a fault; of what looks like a struct's padding, an advisory."""
    lanes = (unknown != 0).any(axis=-1) if count > 1 else unknown != 0
    size = unknown.dtype.itemsize * count
    if size >= _COPIED_BYTES:
        marks = np.ascontiguousarray(unknown).view(np.uint8).reshape(*lanes.shape, size)
        padding = ((marks == 0) | (marks == 0xFF)).all(axis=-1) & (marks == 0).any(axis=-1)
        if (lanes & padding).any():
            c.emulation.advise(
                "padding is stored", site.instruction,
                "stores to global memory a word of which some bytes were never initialised, as copies of structs do "
                "with the padding between members",
            )  # fmt: skip
        lanes = lanes & ~padding
        if not lanes.any():
            return
    flat = int(np.argmax(lanes.reshape(-1)))
    row, lane = c.locate(flat)
    address = int(c.pick(addresses).reshape(-1)[flat])
    c.emulation.fault(
        "uninitialised", site.instruction, c.residents, row, lane,
        f"stores a value that was never initialised to global address {address:#x}: give the register or the "
        f"memory it came from a value first{c.emulation.whence_unwritten()}",
        "global", address, int(np.count_nonzero(lanes)),
    )  # fmt: skip
