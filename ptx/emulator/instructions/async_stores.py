"""st.async and red.async: registers into the shared memory of a CTA of the cluster, completing on an mbarrier there."""

from __future__ import annotations

import numpy as np

from tinygpu.ptx.emulator.instructions.atomics import ATOMICS
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.bulk_copies import lanes_of, require_defined, shared_range
from tinygpu.ptx.emulator.instructions.bulk_loads import Target, start_shared_copy
from tinygpu.ptx.emulator.instructions.bulk_parts import barrier_at, threads
from tinygpu.ptx.emulator.instructions.loads_stores import LOADS_STORES
from tinygpu.ptx.emulator.instructions.mbarriers import shared_addresses
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import TYPES
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.units.reductions import OPERATIONS, Reduction, reduction

# PTX ISA, "red.async": operations and their types.
_REDUCED = {"inc": ("u32",), "dec": ("u32",), "min": ("u32", "s32"), "max": ("u32", "s32"),
            "add": ("u32", "s32", "u64", "s64"), "and": ("b32",), "or": ("b32",), "xor": ("b32",)}  # fmt: skip


def async_store(b: Binder, i: Instruction) -> Run:
    """st.async of one value or a vector, red.async of one value."""
    if i.has("mmio"):
        # Into global memory, with .release.sys: what is asynchronous about it, nothing can wait for.
        return (LOADS_STORES["st"] if i.opcode == "st" else ATOMICS["red"])(b, i)
    if not any(m.startswith("mbarrier::complete_tx") for m in i.modifiers):
        raise b.unsupported("stores that complete on no mbarrier")
    where, value, signal = b.operands(i, 3)
    if not i.types:
        raise b.fail(f"`{i.name}` needs a type")
    type_name = i.types[-1]
    count = next((n for m, n in (("v2", 2), ("v4", 4)) if i.has(m)), 1)
    reduce = _reduction(b, i, type_name) if i.opcode == "red" else None
    bits = TYPES[type_name].bits
    if bits not in (32, 64):
        raise b.fail(f"`{i.name}` takes types of 32 and 64 bits, not .{type_name}")
    width = bits // 8
    size = width * count
    elements = b.vector(value, count, f"`{i.name}`")
    get, get_barrier = shared_addresses(b, i, where), shared_addresses(b, i, signal)
    values = [b.source(element, f"u{bits}") for element in elements]
    b.taint_before = require_defined(b, i, elements, "is stored into the shared memory of another CTA")
    b.note_shared_width(width)
    site, name = b.site(i), f"{i.opcode}.async"

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        addresses, signals = lanes_of(c, get), lanes_of(c, get_barrier)
        data = np.stack([c.spread(v(c)) for v in values], axis=-1).astype(f"u{width}")
        for origin, at, lane in threads(c, site):
            place = c.residents.reach.shared_place(origin, int(addresses[at, lane]), True, issues=True)
            barrier = barrier_at(origin, int(signals[at, lane]), True)
            if place is None or barrier is None or not shared_range(origin, site, place[1], size, size, name):
                continue
            if barrier.cta != place[0]:
                origin.fault(
                    "mbarrier",
                    f"{name} stores into the shared memory of the cluster's CTA {place[0] % c.residents.cluster_size} "
                    f"but completes on an mbarrier of CTA {barrier.cta % c.residents.cluster_size}: both must lie in "
                    "the same CTA",
                    "shared", barrier.address,
                )  # fmt: skip
                continue
            raw = np.ascontiguousarray(data[at, lane]).view(np.uint8).reshape(1, size)
            offsets = np.zeros(1, np.int64)
            target = Target(*place, barrier)
            start_shared_copy(origin, site, target, offsets, size, None, raw, reduce, width, proxy=False)

    return run


def _reduction(b: Binder, i: Instruction, type_name: str) -> Reduction:
    operation = next((m for m in i.modifiers if m in OPERATIONS), None)
    if operation is None or type_name not in _REDUCED[operation]:
        raise b.fail(f"`{i.name}` has no form for .{type_name}")
    found = reduction(operation, "u64" if type_name == "s64" else type_name)
    if found is None:
        raise b.fail(f"`{i.name}` has no form for .{type_name}")
    return found
