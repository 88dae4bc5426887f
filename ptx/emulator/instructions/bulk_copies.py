"""cp.async.bulk, cp.reduce.async.bulk, their prefetch and their groups (PTX ISA, "cp.async.bulk", and following)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_shared import Agent, check_shared_range
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.bulk_loads import Target, start_load, start_shared_copy
from tinygpu.ptx.emulator.instructions.bulk_parts import Part, barrier_at, linear_parts, threads
from tinygpu.ptx.emulator.instructions.bulk_stores import Store, StoresOfLanes, start_store
from tinygpu.ptx.emulator.instructions.mbarriers import shared_addresses
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.bulk_groups import BulkGroups
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.units.reductions import OPERATIONS, Reduction, element_bytes, reduction

_GRAIN_BYTES = 16


def lanes_of(c: Cohort, get: Getter) -> NDArray[np.int64]:
    """The values of all lanes, (n, 32)."""
    return c.spread(get(c)).astype(np.int64)


def require_defined(b: Binder, i: Instruction, operands: tuple[Operand, ...], use: str) -> Run:
    """Run that reports uninitialised registers among these operands."""
    slots = [b.slot(operand) for operand in operands if isinstance(operand, RegisterOperand)]

    def run(c: Cohort) -> None:
        if c.residents.tainted:
            for slot in slots:
                c.residents.require_initialised(c, slot, i, use)

    return run


def short_name(i: Instruction) -> str:
    """How faults call the instruction."""
    words = [i.opcode]
    for modifier in i.modifiers:
        words.append(modifier)
        if modifier in ("tensor", "bulk") and "tensor" not in i.modifiers[i.modifiers.index(modifier) + 1 :]:
            break
    return ".".join(words)


def bulk_copy(b: Binder, i: Instruction) -> Run:
    """All instructions cp...bulk that have no tensor map."""
    if i.has("commit_group"):
        b.operands(i, 0)
        return _commit
    if i.has("wait_group"):
        (count,) = b.operands(i, 1)
        return _wait(b, i, b.integer(count, "the number of groups that may stay pending"))
    if i.has("prefetch"):
        return _prefetch(b, i)
    spaces = [m for m in i.modifiers if m in ("global", "shared::cta", "shared::cluster")]
    if spaces in (["shared::cluster", "global"], ["shared::cta", "global"]):
        return _load(b, i)
    if spaces == ["shared::cluster", "shared::cta"]:
        return _shared_to_shared(b, i)
    if spaces == ["global", "shared::cta"]:
        return _store(b, i)
    raise b.fail(f"`{i.name}` copies between no two state spaces that bulk copies know")


def _commit(c: Cohort) -> None:
    BulkGroups.of(c.residents).commit(c.set.rows, c.mask)


def _wait(b: Binder, i: Instruction, remaining: int) -> Run:
    if remaining < 0:
        raise b.fail(f"`{i.name}` takes a number of groups, not {remaining}")
    read = i.has("read")

    def run(c: Cohort) -> None:
        groups = BulkGroups.of(c.residents)
        if not groups.anything_open:
            return
        c.emulation.next_tick()
        holders = groups.holders()
        for at, row in enumerate(c.set.index.tolist()):
            for lane in holders.get(row, ()):
                if c.mask is None or c.mask[at, lane]:
                    groups.wait(Origin(c.residents, i, row, lane), lane, remaining, read)

    return run


def _prefetch(b: Binder, i: Instruction) -> Run:
    """A hint; its address and size have rules all the same."""
    source, size = b.operands(i, 3 if i.has("L2::cache_hint") else 2)[:2]
    get, sizes = _global_addresses(b, i, source), b.source(size, "u32")
    defined = require_defined(b, i, (size,), "is the size of a bulk copy")
    site = b.site(i)
    name = "cp.async.bulk.prefetch"

    def run(c: Cohort) -> None:
        defined(c)
        addresses, amounts = lanes_of(c, get), lanes_of(c, sizes)
        for origin, at, lane in threads(c, site):
            fits_grain(origin, name, int(amounts[at, lane]), int(addresses[at, lane]))

    return run


def _global_addresses(b: Binder, i: Instruction, operand: Operand) -> Getter:
    get, _, space = b.address(operand)
    if space not in (None, "global"):
        raise b.fail(f"`{i.name}` needs an address in global memory")
    return get


def fits_grain(origin: Origin, name: str, size: int, address: int) -> bool:
    """Whether size and global address are multiples of 16; a fault where not."""
    if size % _GRAIN_BYTES:
        origin.fault(
            "asynchronous copy", f"{name} of {size} bytes: the size must be a multiple of {_GRAIN_BYTES}", "global",
            address,
        )  # fmt: skip
        return False
    if address % _GRAIN_BYTES:
        origin.fault(
            "misaligned",
            f"{name} of {size} bytes at global address {address:#x} is misaligned: it must be a multiple of "
            f"{_GRAIN_BYTES}, but the remainder is {address % _GRAIN_BYTES}",
            "global", address,
        )  # fmt: skip
        return False
    return True


def shared_range(origin: Origin, site: Site, address: int, size: int, align: int, name: str) -> bool:
    """Whether a copy's bytes lie in one shared variable; a fault where not."""
    agent = Agent(origin, site, 0, origin.residents.clocks.nothing())
    return check_shared_range(agent, address, size, align, name)


def multicast_targets(
    origin: Origin, mask: int, address: int, barrier_cta: int, barrier_address: int, pair: bool
) -> list[Target] | None:
    """The targets of a load that goes to several CTAs of the cluster; None, and a fault, where one is wrong.

    mask  one bit per CTA of the cluster
    pair  .cta_group::2: of each pair of CTAs the one with the parity of barrier_cta is signalled
    """
    residents = origin.residents
    mates = list(residents.mates(origin.cta))
    if mask >> len(mates):
        origin.fault(
            "cluster",
            f"multicast to CTAs {mask:#x} (one bit each) of a cluster that has {len(mates)}: only the low {len(mates)} "
            "bits may be set",
        )
        return None
    targets: list[Target] = []
    for rank in range(len(mates)):
        if not mask >> rank & 1:
            continue
        cta = mates[rank]
        signalled = mates[rank & ~1 | barrier_cta & 1] if pair else cta
        barrier = residents.mbarriers.find(origin, signalled, barrier_address)
        if barrier is None:
            return None
        targets.append(Target(cta, address, barrier))
    return targets


class LoadTargets:
    """The operands of a load that say where it goes: destination, mbarrier, and the mask of a multicast."""

    def __init__(self, b: Binder, i: Instruction, destination: Operand, barrier: Operand, mask: Operand | None) -> None:
        self._addresses = shared_addresses(b, i, destination)
        self._barriers = shared_addresses(b, i, barrier)
        self._masks = None if mask is None else b.source(mask, "u16")
        self._remote = i.has("shared::cluster")
        self._pair = i.has("cta_group::2")
        self._name = short_name(i)

    def bind(self, c: Cohort, site: Site, align: int) -> Callable[[Origin, int, int, int], list[Target] | None]:
        """f(origin, row position, lane, bytes): the targets of one thread's load; None, and a fault, where illegal."""
        addresses, barriers = lanes_of(c, self._addresses), lanes_of(c, self._barriers)
        masks = None if self._masks is None else lanes_of(c, self._masks)

        def targets(origin: Origin, at: int, lane: int, size: int) -> list[Target] | None:
            mask = None if masks is None else int(masks[at, lane])
            return self._targets(origin, site, int(addresses[at, lane]), int(barriers[at, lane]), mask, size, align)

        return targets

    def _targets(
        self, origin: Origin, site: Site, address: int, barrier_address: int, mask: int | None, size: int, align: int
    ) -> list[Target] | None:
        residents = origin.residents
        place = residents.reach.shared_place(origin, address, self._remote, issues=True)
        if place is None or not shared_range(origin, site, place[1], size, align, self._name):
            return None
        if mask is not None:
            signal = residents.reach.shared_place(origin, barrier_address, self._remote, issues=True)
            if signal is None:
                return None
            rank = signal[0] % residents.cluster_size
            return multicast_targets(origin, mask, place[1], rank, signal[1], self._pair)
        barrier = barrier_at(origin, barrier_address, self._remote or self._pair)
        if barrier is None or not self._same_cta(origin, residents, place[0], barrier):
            return None
        return [Target(*place, barrier)]

    def _same_cta(self, origin: Origin, residents: Residents, cta: int, barrier: Mbarrier) -> bool:
        """The mbarrier of a load lies in the CTA of its destination (with .cta_group::2 in the pair)."""
        if barrier.cta == cta or (self._pair and barrier.cta ^ 1 == cta):
            return True
        size = residents.cluster_size
        origin.fault(
            "mbarrier",
            f"{self._name} into the shared memory of the cluster's CTA {cta % size} completes on an mbarrier of CTA "
            f"{barrier.cta % size}: both must lie in the same CTA" + (" or pair of CTAs" if self._pair else ""),
            "shared", barrier.address,
        )  # fmt: skip
        return False


def _load(b: Binder, i: Instruction) -> Run:
    multicast = i.has("multicast::cluster")
    operands = list(b.operands(i, 4 + multicast + i.has("L2::cache_hint")))
    destination, source, size, barrier = operands[:4]
    mask = operands[4] if multicast else None
    targets_of = LoadTargets(b, i, destination, barrier, mask)
    get, sizes = _global_addresses(b, i, source), b.source(size, "u32")
    defined = require_defined(b, i, tuple(operands[2:]), "says what a bulk copy copies")
    b.note_shared_width(4)
    b.note_global_width(4)
    site, name = b.site(i), short_name(i)

    def run(c: Cohort) -> None:
        defined(c)
        c.emulation.next_tick()
        addresses, amounts = lanes_of(c, get), lanes_of(c, sizes)
        find = targets_of.bind(c, site, _GRAIN_BYTES)
        for origin, at, lane in threads(c, site):
            amount, address = int(amounts[at, lane]), int(addresses[at, lane])
            targets = find(origin, at, lane, amount)
            if targets and fits_grain(origin, name, amount, address):
                start_load(origin, site, targets, linear_parts(amount, address), amount, name)

    return run


def _reduction(b: Binder, i: Instruction, to_shared: bool) -> tuple[Reduction, int] | None:
    """(what is done to each element, bytes of one) of cp.reduce; None for a plain copy."""
    if not i.has("reduce"):
        return None
    operation = next((m for m in i.modifiers if m in OPERATIONS), None)
    if operation is None or not i.types:
        raise b.fail(f"`{i.name}` needs an operation and a type")
    type_name = i.types[-1]
    found = reduction(operation, type_name)
    # PTX ISA, cp.reduce.async.bulk: fewer types go into shared memory.
    shared_types = {"add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"), "inc": ("u32",),
                    "dec": ("u32",), "and": ("b32",), "or": ("b32",), "xor": ("b32",)}  # fmt: skip
    if found is None or (to_shared and type_name not in shared_types[operation]):
        raise b.fail(f"`{i.name}`: .{operation} has no form for .{type_name} here")
    if operation == "add" and type_name in ("f16", "bf16") and not i.has("noftz"):
        raise b.fail(f"`{i.name}` needs .noftz after .add")
    return found, element_bytes(type_name)


def _shared_to_shared(b: Binder, i: Instruction) -> Run:
    """From the own shared memory into that of another CTA of the cluster."""
    destination, source, size, barrier = b.operands(i, 4)
    reduced = _reduction(b, i, True)
    targets_of = LoadTargets(b, i, destination, barrier, None)
    get, sizes = shared_addresses(b, i, source), b.source(size, "u32")
    defined = require_defined(b, i, (size,), "is the size of a bulk copy")
    b.note_shared_width(4)
    site, name = b.site(i), short_name(i)

    def run(c: Cohort) -> None:
        defined(c)
        c.emulation.next_tick()
        sources, amounts = lanes_of(c, get), lanes_of(c, sizes)
        find = targets_of.bind(c, site, _GRAIN_BYTES)
        for origin, at, lane in threads(c, site):
            amount = int(amounts[at, lane])
            targets = find(origin, at, lane, amount)
            own = c.residents.reach.shared_place(origin, int(sources[at, lane]), False)
            if not targets or own is None or not shared_range(origin, site, own[1], amount, _GRAIN_BYTES, name):
                continue
            if amount % _GRAIN_BYTES:
                origin.fault(
                    "asynchronous copy", f"{name} of {amount} bytes: the size must be a multiple of {_GRAIN_BYTES}"
                )
                continue
            offsets = np.arange(0, amount, _GRAIN_BYTES, dtype=np.int64)
            index = offsets + (own[0] * c.residents.shared.stride_bytes + own[1])
            reduce, width = reduced if reduced is not None else (None, 1)
            site.requests += 1
            site.bytes += amount
            start_shared_copy(origin, site, targets[0], offsets, _GRAIN_BYTES, index, None, reduce, width)

    return run


def _store(b: Binder, i: Instruction) -> Run:
    hint, masked = i.has("L2::cache_hint"), i.has("cp_mask")
    operands = b.operands(i, 3 + hint + masked)
    destination, source, size = operands[:3]
    reduced = _reduction(b, i, False)
    get, sources = _global_addresses(b, i, destination), shared_addresses(b, i, source)
    sizes = b.source(size, "u32")
    masks = b.source(operands[-1], "u16") if masked else None
    extra = operands[2:] if masked else (size,)
    defined = require_defined(b, i, tuple(extra), "says what a bulk copy copies")
    b.note_shared_width(1 if masked else 4)
    b.note_global_width(1 if masked else 4)
    site, name = b.site(i), short_name(i)

    def run(c: Cohort) -> None:
        defined(c)
        c.emulation.next_tick()
        addresses, froms, amounts = lanes_of(c, get), lanes_of(c, sources), lanes_of(c, sizes)
        bytes_of: Any = None if masks is None else lanes_of(c, masks)
        stores = StoresOfLanes(c)

        def store(origin: Origin, lane: int, amount: int, address: int, source: int, mask: int) -> Store | None:
            own = c.residents.reach.shared_place(origin, source, False)
            if own is None or not fits_grain(origin, name, amount, address):
                return None
            if not shared_range(origin, site, own[1], amount, _GRAIN_BYTES, name):
                return None
            parts = linear_parts(amount, address) if masks is None else _masked_parts(amount, address, mask)
            reduce, width = reduced if reduced is not None else (None, 1)
            return start_store(origin, lane, site, own[1], parts, name, reduce, width)

        for origin, at, lane in threads(c, site):
            mask = 0 if bytes_of is None else int(bytes_of[at, lane])
            what = (int(amounts[at, lane]), int(addresses[at, lane]), int(froms[at, lane]), mask)
            stores.start(origin, lane, what, partial(store, origin, lane, *what))

    return run


def _masked_parts(size_bytes: int, address: int, mask: int) -> list[Part]:
    """Bit k of the mask says whether byte k of every 16 bytes is copied."""
    chosen = np.flatnonzero([mask >> bit & 1 for bit in range(_GRAIN_BYTES)])
    offsets = (np.arange(0, size_bytes, _GRAIN_BYTES)[:, None] + chosen).reshape(-1).astype(np.int64)
    return [Part(1, offsets, offsets + address)] if offsets.size else []
