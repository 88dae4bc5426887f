"""Instructions that all lanes of a warp carry out together (.sync.aligned)."""

from __future__ import annotations

import numpy as np

from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete


def require_whole_warp(c: Cohort, i: Instruction) -> bool:
    """Report a warp that executes a .sync.aligned instruction with some of its lanes only; True when all are whole."""
    if c.mask is None:
        return True
    alive = c.residents.alive[c.set.rows]
    partial = (c.mask != alive).any(axis=1) | ~c.mask.all(axis=1)
    partial &= c.mask.any(axis=1)
    if not partial.any():
        return True
    if c.patient:
        raise Incomplete(partial[:, None] & c.mask)
    at = int(np.argmax(partial))
    active = int(np.count_nonzero(c.mask[at]))
    lane = int(np.argmax(c.mask[at]))
    c.emulation.fault(
        "collective", i, c.residents, int(c.set.index[at]), lane,
        f"`{i.name}` is executed by {active} of the warp's 32 lanes: all 32 must execute it together",
    )  # fmt: skip
    return False
