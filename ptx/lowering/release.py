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

from tinygpu.language.instruction import BulkTransfer
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.emitter import Emitter, Number

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
    match s:
        case n.Load():
            return s.source.name in buffers
        case n.Store():
            return s.target.name in buffers
        case n.Copy():
            return not isinstance(s.instruction, BulkTransfer) and bool({s.source.name, s.target.name} & buffers)
        case n.Multiply():
            return s.token is None and bool({s.a.name, s.b.name} & buffers)
        case _:
            return False


def after_threads(emit: Emitter) -> None:
    """TMA writes next what threads have read: the asynchronous proxy comes after their own only behind a fence."""
    emit.line("fence.proxy.async.shared::cta;")
    emit.line("bar.warp.sync -1;")


def arrive(emit: Emitter, guard: str, barrier: Number) -> None:
    """An arrival at a barrier of the CTA itself."""
    emit.line(f"{guard} mbarrier.arrive.shared::cta.b64 _, [{barrier}];")


def arrive_abroad(emit: Emitter, guard: str, barrier: Number, threads: bool) -> None:
    """An arrival at a barrier of any CTA of the cluster. threads: after reads of threads."""
    emit.line(f"{guard} {ABROAD_BY_THREADS if threads else ABROAD_BY_AGENTS} _, [{barrier}];")


def acquire(threads: bool) -> str:
    """What the wait for arrivals of other CTAs says of its scope, after `try_wait.parity`."""
    return ".acquire.cluster" if threads else ""
