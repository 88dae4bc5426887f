"""How a slot is given back to those who fill it: by which arrival, and what must come before.

A reader in another CTA of the cluster releases at cluster scope (`mbarrier.arrive.release.cluster`), and whoever fills
acquires there: TMA must not overwrite what a thread may still be reading. The assembler makes a fence of all memory of
each such arrival (MEMBAR.ALL.GPU, ERRBAR), in every warp and every round.

One case needs none. Where all that reads the slots of a pipeline reads through the asynchronous proxy (wgmma, stores by
TMA), no access of a thread has to be made known to anyone: the reads have completed when `wgmma.wait_group` lets the
warp go on, and the arrival after it is executed after that. The write that it admits, by TMA, is of the asynchronous
proxy too. Then the arrival has no scope (`mbarrier.arrive.shared::cluster`: a release of CTA scope), as in CUTLASS's
and other published kernels. By the letter of the manual's memory model that is no synchronisation of two CTAs; the
emulator grants it for exactly these accesses (Clock.from_abroad), and a thread that reads such a slot is a race.
"""

from __future__ import annotations

from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.sync import Action, Fence, MeetWarp
from tinygpu.ptx.lowering.touch import accesses

ABROAD_BY_THREADS = "mbarrier.arrive.release.cluster.shared::cluster.b64"
ABROAD_BY_AGENTS = "mbarrier.arrive.shared::cluster.b64"


def read_by_threads(program: Program, pipeline: str) -> bool:
    """Whether any role reads or writes a pipeline's slots through the generic proxy where it drains them."""
    buffers = {buffer.name for buffer in program.pipeline(pipeline).buffers}
    return any(
        _touches_by_threads(s, buffers)
        for drain in walk(program.body)
        if isinstance(drain, n.Consume) and drain.pipeline == pipeline
        for s in walk(drain.body)
    )


def _touches_by_threads(s: n.Statement, buffers: set[str]) -> bool:
    return any(tile.name in buffers and by in ("threads", "cp.async") for tile, _, by in accesses(s))


def after_threads() -> tuple[Action, ...]:
    """TMA writes next what threads have read: the asynchronous proxy comes after their own only behind a fence."""
    return Fence("fence.proxy.async.shared::cta"), MeetWarp()


def acquire(threads: bool) -> str:
    """What the wait for arrivals of other CTAs says of its scope, after `try_wait.parity`."""
    return ".acquire.cluster" if threads else ""
