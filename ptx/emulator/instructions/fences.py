"""Fences and instructions without effect on values: membar, fence, nanosleep, setmaxnreg, createpolicy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit
from tinygpu.ptx.emulator.instructions.warp_ops import warp_barrier
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.scopes import Scope, scope_of


def _active_rows(c: Cohort) -> NDArray[np.int64]:
    return c.set.index if c.mask is None else c.set.index[c.mask.any(axis=1)]


def _fence(b: Binder, i: Instruction) -> Run:
    """membar and fence: what the thread did before can be released by a later relaxed or atomic operation."""
    proxy = next((m for m in i.modifiers if m.startswith("async")), None)
    if (i.has("proxy") and proxy is not None) or any(m.startswith("proxy::async") for m in i.modifiers):
        return _proxy_fence(i)
    if i.has("proxy"):
        # Aliases have one address here; tensor maps are checked where they are used.
        return _nothing
    if any(m.startswith("mbarrier_init") for m in i.modifiers):
        return _mbarrier_fence
    scope, sc = scope_of(i, b.cluster_size), i.opcode == "membar" or i.has("sc")

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not c.emulation.checking:
            return
        for row in _active_rows(c).tolist():
            lanes = c.residents.active_bits(c, row)
            c.residents.order.confirm(row, scope, sc)
            c.residents.fence(row, lanes, scope is Scope.CTA)
            if scope is Scope.LAUNCH:
                c.residents.order.fence(row, lanes, sc)

    return run


def _mbarrier_fence(c: Cohort) -> None:
    """fence.mbarrier_init: the initialisation is released by whatever synchronises next, relaxed or not."""
    if c.emulation.checking:
        c.emulation.next_tick()
        for row in _active_rows(c).tolist():
            c.residents.fence(row)


def _proxy_fence(i: Instruction) -> Run:
    """fence.proxy.async: accesses known to the generic proxy become known to the asynchronous one.

    The two forms with .sync_restrict are one half each of a pair; either is taken for the whole.
    """
    only_global = i.has("global")
    only_shared = any(m in ("shared::cta", "shared::cluster") for m in i.modifiers)

    def run(c: Cohort) -> None:
        if not c.emulation.checking:
            return
        tick = c.emulation.next_tick()
        rows = _active_rows(c)
        residents = c.residents
        if not only_global:
            residents.clocks.fence_proxy(rows, tick)
        if not only_shared:
            first = residents.first_number * residents.warps_per_cta
            count = len(residents.ctas)
            for row in rows.tolist():
                warp = first + row % count * residents.warps_per_cta + row // count
                c.emulation.global_proxy_fences[warp] = tick

    return run


def _setmaxnreg(b: Binder, i: Instruction) -> Run:
    """setmaxnreg moves registers between warpgroups; it changes no value. New registers hold nothing defined."""
    count = b.integer(b.operands(i, 1)[0], "the number of registers")
    if count % 8 or not 24 <= count <= 256:
        raise b.fail(f"setmaxnreg takes a multiple of 8 from 24 to 256, not {count}")
    return _nothing


def _nothing(c: Cohort) -> None:
    return


def _no_effect(b: Binder, i: Instruction) -> Run:
    return _nothing


def _bar(b: Binder, i: Instruction) -> Run:
    if i.has("warp"):
        return warp_barrier(b, i)
    raise b.unsupported()


def _createpolicy(b: Binder, i: Instruction) -> Run:
    """A cache policy is an opaque word."""
    get = b.destination(i.operands[0], "u64")
    return emit(get, lambda: 0x12F0000000000000, ())


FENCES: dict[str, Compile] = {
    "membar": _fence,
    "fence": _fence,
    "nanosleep": _no_effect,
    "bar": _bar,
    "createpolicy": _createpolicy,
    "pmevent": _no_effect,
    "griddepcontrol": _no_effect,
    "setmaxnreg": _setmaxnreg,
}
