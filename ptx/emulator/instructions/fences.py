"""Fences and instructions without effect on values: membar, fence, nanosleep, bar.warp.sync is with the warp's."""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit
from tinygpu.ptx.emulator.instructions.warp_ops import warp_barrier
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.residents import Cohort


def _fence(b: Binder, i: Instruction) -> Run:
    """membar and fence: what the thread did before can be released by a later atomic or strong store."""
    scope_cta = i.has("cta")
    if any(m.startswith(("proxy", "mbarrier_init")) for m in i.modifiers):
        return _nothing

    def run(c: Cohort) -> None:
        if not scope_cta:
            c.residents.order.fence(c)

    return run


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
}
