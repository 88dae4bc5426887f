"""cp.async and its commit groups: copies that are agents of their own between issue and wait (PTX ISA, "cp.async").

A copy is issued with addresses and sizes; its bytes land at once ("early"), when a wait forces it ("late"), or either
by chance ("random"). Whatever the order, its destination counts as being written from issue until a wait by the same
thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import global_access, shared_order, shared_places
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.copy_arrivals import ALL, arrive, await_arrivals
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.loads_stores import as_u64
from tinygpu.ptx.emulator.instructions.pending_copies import Part, PendingCopy, complete, keep, land, queue_of
from tinygpu.ptx.emulator.source.syntax import Instruction, RegisterOperand
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import PENDING
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site


def _cp(b: Binder, i: Instruction) -> Run:
    if "async" not in i.modifiers or i.has("bulk") or i.has("reduce"):
        raise b.unsupported()
    if i.has("mbarrier"):
        return arrive(b, i)
    if i.has("commit_group"):
        return _commit(b, i)
    if i.has("wait_group"):
        (count,) = b.operands(i, 1)
        return _wait(b.integer(count, "the number of groups that may stay pending"))
    if i.has("wait_all"):
        b.operands(i, 0)
        return _wait(None)
    return _copy(b, i)


def _copy(b: Binder, i: Instruction) -> Run:
    operands = list(b.operands(i, 3, 5))
    if i.has("L2::cache_hint"):
        operands.pop()
    size = b.integer(operands[2], "the number of bytes of cp.async")
    bypass = i.has("cg")
    if not bypass and not i.has("ca"):
        raise b.fail("cp.async needs .ca or .cg")
    if size not in ((16,) if bypass else (4, 8, 16)):
        raise b.fail(f"cp.async.{'cg' if bypass else 'ca'} copies {'16' if bypass else '4, 8 or 16'} bytes, not {size}")
    destination, _, to_space = b.address(operands[0])
    source, _, from_space = b.address(operands[1])
    if to_space not in (None, "shared") or from_space not in (None, "global"):
        raise b.fail("cp.async copies from .global to .shared")
    limit: Getter | None = None
    ignore = False
    if len(operands) > 3:
        extra = operands[3]
        ignore = isinstance(extra, RegisterOperand) and extra.type_name == "pred"
        limit = b.source(extra, "pred" if ignore else "u32")
    b.note_shared_width(4)
    b.note_global_width(4)
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        to, fro = c.spread(destination(c)), as_u64(c.spread(source(c)))
        read: Array | None = None
        if limit is not None:
            given = c.spread(limit(c))
            read = np.where(given, 0, size) if ignore else given.astype(np.int64)
        issue(c, site, to, fro, size, read)

    return run


def issue(
    c: Cohort, site: Site, to: Array, fro: NDArray[np.uint64], size: int, read: NDArray[np.int64] | None
) -> None:
    """Start copies of `size` bytes for the active lanes; `read` (n, 32) of them come from memory, the rest are zero."""
    picked_to = c.pick(to)
    if picked_to.size == 0:
        return
    _count(c, site, to, fro, size, read)
    picked_read: NDArray[np.int64] | None = None
    if read is not None:
        picked_read = np.asarray(c.pick(read))
        if (picked_read > size).any() or (picked_read < 0).any():
            at = first_true((picked_read > size) | (picked_read < 0))
            row, lane = c.locate(at)
            c.emulation.fault(
                "asynchronous copy", site.instruction, c.residents, row, lane,
                f"src-size is {int(picked_read.reshape(-1)[at])}, but cp.async copies {size} bytes: src-size must be 0 "
                f"to {size}",
            )  # fmt: skip
            picked_read = np.clip(picked_read, 0, size)
        if bool((picked_read == size).all()):
            picked_read = None
    index, good = shared_places.locate(c, site, picked_to, size, "cp.async")
    shape = picked_to.shape
    rows = np.broadcast_to(c.pick_column(c.set.column), shape)
    who = c.pick(c.set.who)
    threads = c.set.threads if c.mask is None else c.set.threads[c.mask]
    parts = _source_parts(c, site, c.pick(fro), size, picked_read)
    if good is not None:
        index, rows, who, threads = (np.asarray(v)[good] for v in (index, rows, who, threads))
        parts = [keep(part, good.reshape(-1)) for part in parts]
        if index.size == 0:
            return
    residents = c.residents
    if c.emulation.checking:
        shared_order.check_write(c, site, index, size, rows, None, picked=None if good is None else good.reshape(-1))
        shared_order.mark_written(c, site, index, size, who, int(PENDING))
    flat_threads = np.ascontiguousarray(threads).reshape(-1)
    group = residents.group_counts.reshape(-1)[flat_threads]
    low, high = int(group.min()), int(group.max())
    order = c.emulation.order
    early = order == "early" or (order == "random" and bool(c.emulation.random.integers(2)))
    copy = PendingCopy(
        site, size, np.ascontiguousarray(index).reshape(-1), flat_threads, np.ascontiguousarray(who).reshape(-1),
        group, parts, early, low if low == high else None, c.set.rows if c.mask is None and good is None else None,
        c.emulation.tick,
    )  # fmt: skip
    if early:
        land(residents, copy, None)
    queue_of(residents).pending.append(copy)


def _count(
    c: Cohort, site: Site, to: Array, fro: NDArray[np.uint64], size: int, read: NDArray[np.int64] | None
) -> None:
    counters = c.emulation.counters
    requests, wavefronts, moved = site.count_shared(to, c.mask, size)
    counters.shared_store_requests += requests
    counters.shared_store_wavefronts += wavefronts
    counters.shared_store_bytes += moved
    mask = c.mask
    from_memory = moved
    if read is not None:
        lanes = read > 0
        mask = lanes if mask is None else mask & lanes
        from_memory = int(read[mask].sum())
        if not mask.any():
            return
        if mask.all():
            mask = None
    requests = c.n if mask is None else int(np.count_nonzero(mask.any(axis=1)))
    sectors = site.count_sectors_only(fro, mask, size)
    counters.global_load_requests += requests
    counters.global_load_sectors += sectors
    counters.global_load_bytes += from_memory


def _source_parts(
    c: Cohort, site: Site, fro: NDArray[np.uint64], size: int, read: NDArray[np.int64] | None
) -> list[Part]:
    """Windows and offsets of the source bytes; out-of-bounds and misaligned sources are faults."""
    checking = c.emulation.checking
    if read is None:
        parts: list[Part] = []
        for window, selection in global_access.resolve(c, site, fro, size, "cp.async"):
            chosen = fro if selection is None else fro[selection]
            offsets = (chosen - np.uint64(window.origin)).view(np.int64)
            if checking:
                global_access.check_read(c, site, window, offsets, size, selection)
            parts.append((window, offsets.reshape(-1), None if selection is None else selection.reshape(-1), None))
        return parts
    parts = []
    outer = c.mask
    full = np.zeros((c.n, 32), np.uint64)
    sizes = np.zeros((c.n, 32), np.int64)
    lanes = np.ones((c.n, 32), np.bool_) if outer is None else outer
    full[lanes] = fro.reshape(-1)
    sizes[lanes] = read.reshape(-1)
    order = np.cumsum(lanes.reshape(-1)) - 1
    total = int(lanes.sum())
    for count in np.unique(read):
        # With src-size 0 the source is not read, and its address need not be valid.
        if count == 0:
            continue
        mask = lanes & (sizes == count)
        c.narrow(mask)
        addresses = c.pick(full)
        for window, selection in global_access.resolve(c, site, addresses, int(count), "cp.async", size):
            chosen = addresses if selection is None else addresses[selection]
            offsets = (chosen - np.uint64(window.origin)).view(np.int64)
            if checking:
                _check_partial(c, site, window, offsets, int(count), selection)
            where = np.flatnonzero(mask.reshape(-1))
            where = where if selection is None else where[selection]
            member = np.zeros(total, np.bool_)
            member[order[where]] = True
            parts.append((window, offsets, member, np.full(offsets.shape, int(count), np.int64)))
    c.narrow(outer)
    return parts


def _check_partial(
    c: Cohort, site: Site, window: Window, offsets: NDArray[np.int64], count: int, selection: NDArray[np.bool_] | None
) -> None:
    """Reads of `count` bytes that are no power of two, granule by granule."""
    granule = c.emulation.program.global_granule_bytes
    for start in range(0, count, granule):
        global_access.check_read(c, site, window, offsets + start, granule, selection)


def _commit(b: Binder, i: Instruction) -> Run:
    b.operands(i, 0)

    def run(c: Cohort) -> None:
        rows = c.set.rows
        if c.mask is None:
            c.residents.group_counts[rows] += 1
        else:
            c.residents.group_counts[rows] += c.mask

    return run


def _wait(remaining: int | None) -> Run:
    def run(c: Cohort) -> None:
        queue = c.residents.copies
        if queue is None or not (queue.pending or queue.arrivals):
            return
        counts = c.residents.group_counts[c.set.rows]
        limit = np.full_like(counts, ALL) if remaining is None else counts - remaining
        c.emulation.next_tick()
        if queue.arrivals:
            await_arrivals(c, queue, limit)
        if queue.pending:
            complete(c, queue, limit)

    return run


ASYNC_COPIES: dict[str, Compile] = {"cp": _cp}
