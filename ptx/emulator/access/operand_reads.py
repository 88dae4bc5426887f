"""Reads of matrix operands in shared memory by the asynchronous proxy, for many warpgroups at once.

The rules are those of access.async_shared; what is special is that an operand is always whole 16-byte chunks, and that
an instruction is issued by several warps, which must all know what they read to be complete.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import async_shared
from tinygpu.ptx.emulator.access.async_shared import Agent
from tinygpu.ptx.emulator.access.shared_order import ACTORS
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import PENDING, Clock
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents

CHUNK_BYTES = 16
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]


def begin_reads(residents: Residents, site: Site, issuers: Index, columns: Index, index: Index) -> Bools | None:
    """Operations start to read chunks; races are faults. Returns which chunks are uninitialised (None: none).

    issuers  (operations, warps) rows that issue each operation: each must know of what is read
    columns  (operations,) their agents' columns
    index    (operations, chunks) byte index of each chunk in the shared memory of all resident CTAs
    """
    shadow, clocks = residents.shadow, residents.clocks
    span = CHUNK_BYTES // shadow.granule_bytes
    at = index // CHUNK_BYTES
    ticks = np.take(shadow.written.reshape(-1, span), at, axis=0)
    invalid: Bools | None = None
    if int(ticks.min()) == 0:
        invalid = np.asarray((ticks == 0).any(axis=-1))
    if shadow.invalid is not None:
        marked = np.take(shadow.invalid.reshape(-1, span), at, axis=0)
        if marked.any():
            invalid = np.asarray(marked.any(axis=-1) if invalid is None else invalid | marked.any(axis=-1))
    known = clocks.vector[issuers].min(axis=1)
    proxied = np.minimum(known, clocks.proxied[issuers].min(axis=1))
    writers = np.take(shadow.writer.reshape(-1, span), at, axis=0) & ACTORS
    for operation in _suspects(residents, ticks, writers, known, proxied):
        origin = Origin(residents, site.instruction, int(issuers[operation, 0]))
        clock = Clock(known[operation], clocks.proxied[issuers[operation]].min(axis=0))
        agent = Agent(origin, site, int(columns[operation]), clock)
        async_shared.begin_read(agent, at[operation] * CHUNK_BYTES, CHUNK_BYTES)
    _mark(residents, columns, at, int(PENDING))
    for column in np.unique(columns).tolist():
        shadow.note_lines(column, index[columns == column], site.line)
    return invalid


def _suspects(residents: Residents, ticks: NDArray[np.int32], writers: NDArray[np.int32], known: NDArray[np.int32],
              proxied: NDArray[np.int32]) -> list[int]:  # fmt: skip
    """Operations that may read something of which an issuer does not know."""
    operations = ticks.shape[0]
    latest = ticks.reshape(operations, -1).max(axis=1)
    first = int(writers.reshape(-1)[0])
    members = residents.clocks.members
    if int(writers.min()) == first == int(writers.max()):
        limit = (proxied if first < members else known)[:, first]
        return [int(k) for k in np.flatnonzero(latest > limit)]
    # The asynchronous proxy sees generic writes as far as they were fenced, and other agents' without that.
    limits = proxied.copy()
    limits[:, members:] = known[:, members:]
    flat = writers.reshape(operations, -1) + (np.arange(operations) * limits.shape[1])[:, None]
    bad = ticks.reshape(operations, -1) > np.take(limits.reshape(-1), flat)
    return [int(k) for k in np.flatnonzero(bad.any(axis=1))]


def end_reads(residents: Residents, columns: Index, index: Index) -> None:
    """The operations have read these chunks."""
    _mark(residents, columns, index // CHUNK_BYTES, residents.emulation.tick)


def resume_reads(residents: Residents, columns: Index, index: Index) -> None:
    """These operations still read, although others of the same agents have ended."""
    _mark(residents, columns, index // CHUNK_BYTES, int(PENDING))


def _mark(residents: Residents, columns: Index, at: Index, tick: int) -> None:
    shadow = residents.shadow
    span = CHUNK_BYTES // shadow.granule_bytes
    first = int(columns[0])
    groups = [(first, at)] if bool((columns == first).all()) else [
        (int(column), at[columns == column]) for column in np.unique(columns)
    ]
    for column, chunks in groups:
        shadow.reads.mark_foreign(column, chunks.reshape(-1), span, tick)
