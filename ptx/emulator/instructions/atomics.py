"""atom and red (PTX ISA, "atom", "red"): lanes that meet at one address go one after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import global_access, shared_order, shared_places
from tinygpu.ptx.emulator.access.older_reads import found_in_turn, note_global, note_shared
from tinygpu.ptx.emulator.instructions.atomic_updates import Update, make_update, one_after_another
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, last_type
from tinygpu.ptx.emulator.instructions.loads_stores import as_u64, split_generic, state_space
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, SinkOperand, VectorOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.meter import Site, count_turns
from tinygpu.ptx.emulator.state.scopes import Scope, scope_of

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_OPERATIONS = ("add", "min", "max", "exch", "and", "or", "xor", "inc", "dec", "cas")
Sources = tuple[Getter, ...]
"""Getters of one value: one, or the two halves of a 128-bit value."""


def _atomic(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    operation = next((m for m in i.modifiers if m in _OPERATIONS), None)
    if operation is None:
        raise b.fail(f"`{i.name}` names no operation")
    wide = name == "b128"
    if wide and operation not in ("exch", "cas"):
        raise b.fail(f"`{i.name}`: .b128 has .exch and .cas only")
    reduction = i.opcode == "red"
    operands = list(i.operands)
    if i.has("L2::cache_hint"):
        operands.pop()
    wanted = (0 if reduction else 1) + (3 if operation == "cas" else 2)
    if len(operands) != wanted:
        raise b.fail(f"`{i.name}` takes {wanted} operands, not {len(operands)}")
    target = None if reduction else operands.pop(0)
    count = next((_VECTORS[m] for m in i.modifiers if m in _VECTORS), 1)
    vector = count > 1 or (not wide and any(isinstance(o, VectorOperand) for o in operands))
    if vector:
        _check_vector(b, i, name, operation, count)
    get_address, _, symbol_space = b.address(operands[0])
    space = state_space(b, i, symbol_space)
    if space not in ("global", "shared", "generic"):
        raise b.fail(f"`{i.name}` works on global and shared memory, not on .{space}")
    if wide:
        # A 128-bit register is two halves.
        name, halves = "b64", 2
    else:
        halves = 1
    bits = TYPES[name].bits
    width = bits // 8

    def bind(operand: Operand) -> tuple[Sources, ...]:
        parts = b.vector(operand, count * halves, f"`{i.name}`") if vector or wide else (operand,)
        getters = [b.source(part, f"u{bits}") for part in parts]
        return tuple(tuple(getters[k : k + halves]) for k in range(0, len(getters), halves))

    values = bind(operands[1])
    second = bind(operands[2])[0] if operation == "cas" else None
    if target is None or isinstance(target, SinkOperand):
        gets: tuple[Getter | None, ...] = (None,) * count * halves
    else:
        targets = b.vector(target, count * halves, f"`{i.name}`") if vector or wide else (target,)
        gets = tuple(None if isinstance(t, SinkOperand) else b.destination(t, f"u{bits}") for t in targets)
    if space in ("shared", "generic"):
        b.note_shared_width(width)
    if space in ("global", "generic"):
        b.note_global_width(width)
    site = b.site(i)
    update = make_update(operation, "b128" if wide else name)
    releases = i.has("release") or i.has("acq_rel")

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        addresses = as_u64(c.spread(get_address(c)))
        if space != "generic":
            _apply(c, site, space, addresses, width, update, values, second, gets, releases)
            return
        outer = c.mask
        for chosen, mask, base in split_generic(c, addresses):
            if mask is not None:
                c.narrow(mask)
            own = "shared" if chosen == "shared" else "global"
            if chosen == "local":
                _refuse_local(c, i, addresses)
                continue
            place = addresses - base if own == "shared" else addresses
            _apply(c, site, own, place, width, update, values, second, gets, releases)
        c.narrow(outer)

    return run


def _check_vector(b: Binder, i: Instruction, name: str, operation: str, count: int) -> None:
    """PTX ISA, "atom" and "red": vectors are of floating values in global memory, at most 16 bytes."""
    operations = ("add",) if name == "f32" else ("add", "min", "max")
    if name not in ("f32", "f16", "bf16", "f16x2", "bf16x2") or operation not in operations or i.has("shared"):
        raise b.fail(f"`{i.name}`: vectors are of add on f32, or add, min, max on f16 and bf16, in global memory")
    if count == 1 or TYPES[name].bytes * count > 16:
        raise b.fail(f"`{i.name}` works on {count} values of .{name}, but a vector has at most 16 bytes")


def _refuse_local(c: Cohort, i: Instruction, addresses: NDArray[np.uint64]) -> None:
    """PTX ISA, "atom": the address is one of global or shared memory."""
    flat = c.pick(addresses).reshape(-1)
    row, lane = c.locate(0)
    c.emulation.fault(
        "address space", i, c.residents, row, lane,
        f"`{i.name}` works on global and shared memory, but generic address {int(flat[0]):#x} is one of local memory",
        "local", int(flat[0]), flat.size,
    )  # fmt: skip


def _full(c: Cohort, getters: Sources) -> Array:
    """Values of the active lanes: (k,), or (k, 2) of two halves."""
    parts = [np.ascontiguousarray(c.pick(c.spread(get(c)))).reshape(-1) for get in getters]
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def _apply(
    c: Cohort, site: Site, space: str, addresses: NDArray[np.uint64], width: int, update: Update,
    elements: tuple[Sources, ...], second: Sources | None, gets: tuple[Getter | None, ...], releases: bool,
) -> None:  # fmt: skip
    """The update at the active lanes' addresses; element k of a vector lies `width` bytes behind element k - 1."""
    picked = c.pick(addresses)
    if picked.size == 0:
        return
    count, halves = len(elements), len(elements[0])
    values = _full(c, elements[0])
    seconds = None if second is None else _full(c, second)
    counters, scope = c.emulation.counters, scope_of(site.instruction, c.residents.cluster_size)
    results = [np.zeros(values.shape, f"u{width}") for _ in elements]
    result = results[0]
    size = width * count * halves
    if space == "shared":
        requests, _, _ = site.count_shared(addresses, c.mask, size)
        counters.atomic_requests += requests
        counters.shared_atomic_turns += count_turns(addresses, c.mask, size)
        index, good = shared_places.locate(c, site, picked, size, "atomic")
        if good is not None and not good.any():
            return
        acquires = any(site.instruction.has(m) for m in ("acquire", "acq_rel"))
        flat = index.reshape(-1)
        chosen = np.ones(flat.shape, np.bool_) if good is None else good.reshape(-1)
        meeting = note_shared(c, site, index, size, c.pick_column(c.set.column)) if good is None else None
        c.residents.shared_flags.exchange(c, index, scope, True, True, releases, acquires)
        if c.emulation.checking:
            rows = np.broadcast_to(c.pick_column(c.set.column), picked.shape).reshape(-1)[chosen]
            who = c.pick(c.set.who).reshape(-1)[chosen]
            shared_order.check_write(c, site, flat[chosen], size, rows, None, atomic=True, picked=chosen)
            uninitialised = shared_order.is_unwritten(c, flat[chosen], size)
            if uninitialised is not None:
                at = int(np.flatnonzero(chosen)[int(np.argmax(uninitialised))])
                row, lane = c.locate(at)
                address = int(picked.reshape(-1)[at])
                c.emulation.fault(
                    "uninitialised", site.instruction, c.residents, row, lane,
                    f"an atomic updates shared address {address:#x}, which was never initialised: store a value there "
                    "first, and pass a barrier",
                    "shared", address, int(np.count_nonzero(uninitialised)),
                )  # fmt: skip
        view, where = c.residents.shared.view(width, halves), flat[chosen] // size
        result[chosen] = one_after_another(
            view, where, update, values[chosen], None if seconds is None else seconds[chosen]
        )
        found_in_turn(meeting, results)
        c.emulation.changes += bool((view[where] != result[chosen]).any())
        if c.emulation.checking:
            shared_order.mark_written(c, site, flat[chosen], size, who, c.emulation.tick, atomic=True)
    else:
        requests, _, _ = site.count_global(addresses, c.mask, size)
        counters.atomic_requests += requests
        acquires = any(site.instruction.has(m) for m in ("acquire", "acq_rel"))
        replaced = note_global(c, site, picked, size)
        c.residents.global_flags.exchange(c, picked, scope, True, True, releases, acquires)
        if scope is Scope.LAUNCH:
            c.residents.order.access(c, picked, True, True, acquires, releases)
        for window, selection in global_access.resolve(c, site, picked, size, "atomic"):
            part = picked if selection is None else picked[selection]
            lanes = np.ones(picked.size, np.bool_) if selection is None else selection.reshape(-1)
            offsets = (part - np.uint64(window.origin)).view(np.int64)
            if c.emulation.checking:
                global_access.check_write(c, site, window, offsets, size, selection, None, atomic=True)
            view = window.view(width, halves)
            for k, result in enumerate(results):
                where = offsets.reshape(-1) // (width * halves) + k
                values = _full(c, elements[k])
                result[lanes] = one_after_another(
                    view, where, update, values[lanes], None if seconds is None else seconds[lanes]
                )
                c.emulation.changes += bool((view[where] != result[lanes]).any())
            if window.valid is not None:
                window.valid[offsets.reshape(-1, 1) + np.arange(size)] = True
        found_in_turn(replaced, results)
    found = [result[:, half] if halves > 1 else result for result in results for half in range(halves)]
    for get, result in zip(gets, found, strict=True):
        if get is None:
            continue
        target = get(c)
        if c.mask is None:
            target[...] = result.reshape(target.shape)
        else:
            target[c.mask] = result


ATOMICS: dict[str, Compile] = {"atom": _atomic, "red": _atomic}
