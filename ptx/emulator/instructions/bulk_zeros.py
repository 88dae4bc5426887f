"""st.bulk: zeros for a stretch of shared memory (PTX ISA, "st.bulk")."""

from __future__ import annotations

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.memory_spaces import as_u64, memory_writer, state_space
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.memory import SHARED_WINDOW


def store_zeros(b: Binder, i: Instruction) -> Run:
    """st.bulk: `size` zero bytes to shared memory."""
    where, size, value = b.operands(i, 3)
    get, _, symbol_space = b.address(where)
    space = state_space(b, i, symbol_space)
    if space not in ("shared", "generic") or b.integer(value, "the value of st.bulk") != 0:
        raise b.fail(f"`{i.name}` stores zeros to shared memory")
    b.note_shared_width(8)
    amount = b.source(size, "u64")
    site = b.site(i)
    writer = memory_writer("shared", site, 8, 1, False)
    generic = space == "generic"

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        addresses = as_u64(c.spread(get(c)))
        if generic:
            addresses = addresses - np.uint64(SHARED_WINDOW)
        sizes = c.spread(amount(c))
        outer = c.mask
        lanes = np.ones((c.n, 32), np.bool_) if outer is None else outer
        bad = lanes & ((sizes & np.uint64(7)) != 0)
        if bad.any():
            at, lane = divmod(int(np.argmax(bad.reshape(-1))), 32)
            c.emulation.fault(
                "misaligned", i, c.residents, int(c.set.index[at]), lane,
                f"`{i.name}` stores {int(sizes[at, lane])} bytes, which is no multiple of 8",
                "shared", int(addresses[at, lane]), int(np.count_nonzero(bad)),
            )  # fmt: skip
        for step in range(int(sizes[lanes].max()) // 8 if lanes.any() else 0):
            mask = lanes & ~bad & (sizes > np.uint64(8 * step))
            c.narrow(mask)
            writer(c, addresses + np.uint64(8 * step), np.zeros(int(np.count_nonzero(mask)), np.uint64), None)
        c.narrow(outer)

    return run
