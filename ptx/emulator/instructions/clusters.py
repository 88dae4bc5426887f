"""What the CTAs of a cluster do together: mapa, getctarank, barrier.cluster (PTX ISA, "Cluster")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.mbarriers import released_clock
from tinygpu.ptx.emulator.source.syntax import Instruction, SymbolOperand
from tinygpu.ptx.emulator.source.types import numpy_type
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cluster_reach import CLUSTER_OFFSET_MASK, CLUSTER_RANK_SHIFT
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete, MustWait
from tinygpu.ptx.emulator.state.memory import SHARED_WINDOW


def _mapa(b: Binder, i: Instruction) -> Run:
    """The address of the same variable in another CTA of the cluster."""
    type_name = "u64" if i.types and i.types[-1] in ("u64", "b64") else "u32"
    target, address, rank = b.operands(i, 3)
    generic = not any(m.startswith("shared") for m in i.modifiers)
    if isinstance(address, SymbolOperand):
        get = b.symbol_address(address, type_name, generic)
    else:
        get = b.source(address, type_name)
    ranks, write = b.source(rank, "u32"), b.destination(target, type_name)
    size = b.cluster_size
    dtype = numpy_type(type_name)
    base = dtype.type(SHARED_WINDOW if generic else 0)

    def run(c: Cohort) -> None:
        wanted = c.spread(ranks(c))
        beyond = (wanted >= size) & (c.mask if c.mask is not None else True)
        if beyond.any():
            at, lane = divmod(int(np.argmax(beyond.reshape(-1))), 32)
            Origin(c.residents, i, int(c.set.index[at]), lane).fault(
                "cluster", f"mapa to CTA {int(wanted[at, lane])} of a cluster that has {size}"
            )
        offset = (np.asarray(get(c)) - base) & dtype.type(CLUSTER_OFFSET_MASK)
        value: Any = base + offset + (wanted.astype(dtype) << dtype.type(CLUSTER_RANK_SHIFT))
        np.copyto(write(c), value.astype(dtype), where=c.where)

    return run


def _getctarank(b: Binder, i: Instruction) -> Run:
    """The rank of the CTA whose shared memory an address points to."""
    type_name = "u64" if i.types and i.types[-1] in ("u64", "b64") else "u32"
    target, address = b.operands(i, 2)
    generic = not any(m.startswith("shared") for m in i.modifiers)
    if isinstance(address, SymbolOperand):
        get = b.symbol_address(address, type_name, generic)
    else:
        get = b.source(address, type_name)
    write = b.destination(target, "u32")
    base = numpy_type(type_name).type(SHARED_WINDOW if generic else 0)

    def run(c: Cohort) -> None:
        rank = (np.asarray(get(c)) - base) >> numpy_type(type_name).type(CLUSTER_RANK_SHIFT)
        np.copyto(write(c), rank.astype(np.uint32), where=c.where)

    return run


def _barrier(b: Binder, i: Instruction) -> Run:
    """barrier.cluster.arrive and barrier.cluster.wait."""
    if not i.has("cluster"):
        raise b.unsupported()
    b.operands(i, 0)
    if i.has("arrive"):
        return _arrive(i)
    if i.has("wait"):
        return _wait(i)
    raise b.fail(f"`{i.name}` needs .arrive or .wait")


def _require_whole(c: Cohort, i: Instruction) -> None:
    if not i.has("aligned") or c.mask is None:
        return
    alive = c.residents.alive[c.set.rows]
    partial = (c.mask != alive).any(axis=1) & c.mask.any(axis=1)
    if not partial.any():
        return
    if c.patient:
        raise Incomplete(partial[:, None] & c.mask)
    at = int(np.argmax(partial))
    Origin(c.residents, i, int(c.set.index[at]), int(np.argmax(c.mask[at]))).fault(
        "barrier",
        f"`{i.name}` is executed by {int(c.mask[at].sum())} of the warp's {int(alive[at].sum())} live lanes: all lanes "
        "of a warp must reach it together, or leave out .aligned",
    )


def _arrive(i: Instruction) -> Run:
    relaxed = i.has("relaxed")

    def run(c: Cohort) -> None:
        _require_whole(c, i)
        c.emulation.next_tick()
        c.emulation.counters.barriers += c.active_warps()
        for at, row in enumerate(c.set.index.tolist()):
            lanes = np.ones(32, np.bool_) if c.mask is None else c.mask[at]
            if lanes.any():
                clock = released_clock(c, row, relaxed, abroad=True)
                c.residents.cluster_barriers.arrive(Origin(c.residents, i, row, int(np.argmax(lanes))), lanes, clock)

    return run


def _wait(i: Instruction) -> Run:
    def run(c: Cohort) -> None:
        _require_whole(c, i)
        barriers = c.residents.cluster_barriers
        late: dict[int, int] = {}
        for at, row in enumerate(c.set.index.tolist()):
            lanes = np.ones(32, np.bool_) if c.mask is None else c.mask[at]
            if not lanes.any() or c.residents.woken[row] == i.line:
                continue
            phase = barriers.waits_for(Origin(c.residents, i, row, int(np.argmax(lanes))), lanes)
            if phase is not None:
                late[row] = phase
        if late:
            ready = np.array([row not in late for row in c.set.index.tolist()], np.bool_)
            raise MustWait(
                ready, lambda row: not barriers.completed(row, late[row]),
                lambda row: f"on line {i.line} at the cluster barrier: {barriers.describe(row)}",
            )  # fmt: skip
        c.emulation.next_tick()
        for at, row in enumerate(c.set.index.tolist()):
            lanes = np.ones(32, np.bool_) if c.mask is None else c.mask[at]
            if lanes.any():
                c.residents.woken[row] = 0
                barriers.passed(row, lanes)
        # Every live thread of the cluster has arrived, the lanes of these warps among them.
        c.residents.clocks.sync_warps(c.set.index, c.emulation.tick)

    return run


CLUSTERS: dict[str, Compile] = {"mapa": _mapa, "getctarank": _getctarank, "barrier": _barrier}
