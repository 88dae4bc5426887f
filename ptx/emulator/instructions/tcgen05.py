"""The tcgen05 instructions of Blackwell (sm_100a and its family): which file has the semantics of which.

Not known, and refused: metadata of sparse A where half of the lanes are used, column shifts of the zero-column mask;
what sm_103a adds (K = 96, tcgen05.ld.red).
"""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.tcgen05_allocation import alloc, dealloc, relinquish
from tinygpu.ptx.emulator.instructions.tcgen05_commit import commit, fence
from tinygpu.ptx.emulator.instructions.tcgen05_copies import copy, shift
from tinygpu.ptx.emulator.instructions.tcgen05_mma import multiply
from tinygpu.ptx.emulator.instructions.tcgen05_moves import load, store, wait
from tinygpu.ptx.emulator.source.syntax import Instruction

_FORMS: dict[str, Compile] = {
    "alloc": alloc, "dealloc": dealloc, "relinquish_alloc_permit": relinquish, "ld": load, "st": store,
    "wait::ld": wait, "wait::st": wait, "cp": copy, "shift": shift, "mma": multiply, "commit": commit,
    "fence::before_thread_sync": fence, "fence::after_thread_sync": fence,
}  # fmt: skip


def _tcgen05(b: Binder, i: Instruction) -> Run:
    form = _FORMS.get(i.modifiers[0]) if i.modifiers else None
    if form is None:
        raise b.unsupported()
    return form(b, i)


TCGEN05: dict[str, Compile] = {"tcgen05": _tcgen05}
