"""Reading and writing shared memory for the active lanes of a cohort, with bounds, validity and race checks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.older_reads import look_shared, note_shared
from tinygpu.ptx.emulator.access.shared_order import check_read, check_write, mark_written, unknown_bits
from tinygpu.ptx.emulator.access.shared_places import locate
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.scopes import scope_of

Bools = NDArray[np.bool_]


def load(
    c: Cohort, site: Site, addresses: Array, width: int, count: int, strong: bool = False
) -> tuple[Array, Array | None]:
    """Values at the active lanes' addresses and which of their bits are uninitialised (None: none).

    addresses  (n, 32) shared addresses; returns the shape of Cohort.pick, with an axis of `count` when count > 1
    strong     the access is volatile, relaxed or acquire: what was released at these places is learned
    """
    picked = c.pick(addresses)
    size = width * count
    if picked.size == 0:
        return np.zeros((0, count) if count > 1 else (0,), f"u{width}"), None
    index, good = locate(c, site, picked, size, "load")
    values = np.take(
        c.residents.shared.view(width, count), index // size if size > 1 else index, axis=0, mode="clip"
    )
    if not c.emulation.checking:
        return values, None
    if good is None:
        invalid = check_read(c, site, index, size, c.pick_column(c.set.column), c.pick(c.set.who), strong)
        if strong:
            missed = look_shared(c, index, size, values)
            scope, acquires = scope_of(site.instruction, c.residents.cluster_size), site.instruction.has("acquire")
            c.residents.shared_flags.exchange(c, index, scope, True, False, acquire=acquires, missed=missed)
            c.residents.shared_flags.note_observed(c, index, missed)
        return values, None if invalid is None else unknown_bits(c, index, width, count)
    values[~good] = 0
    return values, None


def store(
    c: Cohort, site: Site, addresses: Array, values: Array, width: int, count: int, strong: bool = False
) -> NDArray[np.int64] | None:
    """Write the active lanes' values; returns the byte index of each access (None where nothing was written).

    strong  the access is volatile, relaxed or release: it may race with atomics, and releases what was fenced
    """
    picked = c.pick(addresses)
    if picked.size == 0:
        return None
    size = width * count
    index, good = locate(c, site, picked, size, "store")
    rows, who = c.pick_column(c.set.column), c.pick(c.set.who)
    if good is not None:
        index, values, who = index[good], values[good], who[good]
        rows = np.broadcast_to(rows, good.shape)[good]
        if index.size == 0:
            return None
    view = c.residents.shared.view(width, count)
    at = index // size if size > 1 else index
    if not c.emulation.checking:
        c.emulation.changes += 1
        view[at] = values
        return index
    changed = np.asarray(np.take(view, at, axis=0, mode="clip") != values)
    if count > 1:
        changed = np.asarray(changed.any(axis=-1))
    c.emulation.changes += bool(changed.any())
    if strong:
        note_shared(c, site, index, size, rows)
    check_write(c, site, index, size, rows, changed, strong, who=None if strong else who)
    view[at] = values
    mark_written(c, site, index, size, who, c.emulation.tick, strong)
    if strong:
        scope = scope_of(site.instruction, c.residents.cluster_size)
        c.residents.shared_flags.exchange(c, index, scope, False, True, site.instruction.has("release"))
    lost = np.asarray(np.take(view, at, axis=0, mode="clip") != values)
    if count > 1:
        lost = np.asarray(lost.any(axis=-1))
    if lost.any() and good is None:
        first = first_true(lost)
        row, lane = c.locate(first)
        address = int(index.reshape(-1)[first]) % c.residents.shared.stride_bytes
        c.emulation.fault(
            "race", site.instruction, c.residents, row, lane,
            f"writes {size} bytes at shared address {address:#x}, to which another thread writes a different value in "
            "the same instruction: give each thread its own bytes, or use atomics",
            "shared", address, int(np.count_nonzero(lost)),
        )  # fmt: skip
    return index if good is None else None
