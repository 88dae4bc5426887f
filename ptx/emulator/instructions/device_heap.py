"""malloc and free of device code: allocations of the device heap, each with bounds of its own.

Freed memory belongs to no allocation any more, so that using it is out of bounds.
"""

from __future__ import annotations

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.system_calls import FREE, MALLOC
from tinygpu.ptx.emulator.state.cohort import Cohort

# Where the heap lies, and how much of it there is: the CUDA runtime's default is 8 MB (CUDA C++ Programming Guide,
# "Heap Memory Allocation"); a program can ask for more before the launch.
_HEAP_BASE = 0x0000_5000_0000_0000
_HEAP_BYTES = 1 << 28
_NAME = "the device heap"


def _malloc(b: Binder, i: Instruction) -> Run:
    target, size = b.operands(i, 2)
    amount = b.source(size, "u64")
    write = b.destination(target, "u64")

    def run(c: Cohort) -> None:
        sizes = c.spread(amount(c))
        lanes = np.ones((c.n, 32), np.bool_) if c.mask is None else c.mask
        addresses = np.zeros((c.n, 32), np.uint64)
        memory = c.emulation.memory
        for at, lane in np.argwhere(lanes):
            addresses[at, lane] = memory.allocate(_NAME, int(sizes[at, lane]), _HEAP_BASE, _HEAP_BASE + _HEAP_BYTES)
        np.copyto(write(c), addresses, where=c.where)

    return run


def _free(b: Binder, i: Instruction) -> Run:
    (pointer,) = b.operands(i, 1)
    get = b.source(pointer, "u64")

    def run(c: Cohort) -> None:
        addresses = c.spread(get(c))
        lanes = np.ones((c.n, 32), np.bool_) if c.mask is None else c.mask
        for at, lane in np.argwhere(lanes):
            address = int(addresses[at, lane])
            # free(NULL) does nothing.
            if address == 0 or c.emulation.memory.remove(address, _NAME):
                continue
            c.emulation.fault(
                "out of bounds", i, c.residents, int(c.set.index[at]), int(lane),
                f"free of address {address:#x}, which malloc did not give, or which was freed before",
                "global", address,
            )  # fmt: skip

    return run


DEVICE_HEAP: dict[str, Compile] = {MALLOC: _malloc, FREE: _free}
