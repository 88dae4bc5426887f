"""Synchronisation: barriers of a CTA, mbarriers, clusters and their memory, the grid, and launches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Buffer, Launch, Microbenchmark, Reading
from tinygpu.ptx.calibration.kernel_text import Kernel, load, module

STEPS = 32


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        *(_barrier(threads) for threads in (128, 256, 512, 1024)),
        _mbarrier(),
        _mbarrier_pair(),
        _cluster_barrier(relaxed=False),
        _cluster_barrier(relaxed=True),
        _remote_latency(),
        _grid_barrier(),
        _empty(),
    )


def _barrier(threads: int) -> Microbenchmark:
    """Each thread counts the barriers that it passed."""
    kernel = Kernel(
        name=f"barrier_{threads}", threads=threads, setup=["mov.u32 %r1, 0;"],
        trip=["bar.sync 0;", "add.u32 %r1, %r1, 1;"] * STEPS, result="%r1",
    )  # fmt: skip
    opcode = "bar.sync"
    reading = Reading(
        f"bar.sync of {threads} threads", "cycles", opcode, False, "cycles", 2, 1000, per="warp",
        field="lat_barrier_cta" if threads == 512 else "",
    )  # fmt: skip
    return Microbenchmark(
        f"barrier-{threads}", "synchronisation", f"{threads} threads meet again and again", kernel.text(),
        kernel.target, (8, 40), lambda chip, trips: Launch(1, threads, rows=threads // 32),
        # and once before the first clock
        lambda launch, trips: {opcode: launch.warps * (STEPS * trips + 1)},
        lambda launch, trips, left: (
            "" if (left[SINK] == STEPS * trips).all() else "a thread did not pass every barrier"
        ),
        (reading,),
    )  # fmt: skip


def _mbarrier() -> Microbenchmark:
    """One thread arrives at a barrier for one and waits for the phase to end."""
    opcode = "mbarrier.arrive.shared.b64"
    trip: list[str] = []
    for step in range(STEPS):
        trip += [
            f"{opcode} %d1, [%r20];",
            f"WAIT_{step}:",
            "mbarrier.test_wait.shared.b64 %p0, [%r20], %d1;",
            f"@!%p0 bra WAIT_{step};",
            "add.u32 %r1, %r1, 1;",
        ]
    kernel = Kernel(
        name="mbarrier_round", threads=1, target="sm_80", smem=(".shared .align 8 .b64 bar;",),
        setup=["mov.u32 %r20, bar;", "mbarrier.init.shared.b64 [%r20], 1;", "mov.u32 %r1, 0;"], trip=trip, result="%r1",
    )  # fmt: skip
    reading = Reading(
        "arriving at an mbarrier and waiting for it, one thread", "cycles", opcode, False, "cycles", 4, 1000,
        per="warp", field="lat_mbarrier_roundtrip",
    )  # fmt: skip
    return Microbenchmark(
        "mbarrier-round", "synchronisation", "one thread arrives at an mbarrier and waits for it", kernel.text(),
        kernel.target, (8, 40), lambda chip, trips: Launch(1, 1), lambda launch, trips: {opcode: STEPS * trips},
        lambda launch, trips, left: "" if left[SINK][0] == STEPS * trips else "not every phase was waited for",
        (reading,),
    )  # fmt: skip


def _mbarrier_pair() -> Microbenchmark:
    """The first lane of each of two warps: one writes a word and arrives, the other adds one to it and arrives."""
    opcode = "mbarrier.arrive.shared.b64"
    wait = "mbarrier.try_wait.parity.shared::cta.b64 %p1"
    trip: list[str] = []
    for step in range(STEPS):
        trip += [
            f"@%p2 bra SECOND_{step};",
            "@%p3 st.shared.b32 [%r20+16], %r1;",
            f"@%p3 {opcode} %d1, [%r20];",
            f"BACK_{step}:",
            f"{wait}, [%r20+8], {step % 2};",
            f"@!%p1 bra BACK_{step};",
            "@%p3 ld.shared.b32 %r1, [%r20+16];",
            f"bra NEXT_{step};",
            f"SECOND_{step}:",
            f"{wait}, [%r20], {step % 2};",
            f"@!%p1 bra SECOND_{step};",
            "@%p3 ld.shared.b32 %r1, [%r20+16];",
            "@%p3 add.u32 %r1, %r1, 1;",
            "@%p3 st.shared.b32 [%r20+16], %r1;",
            f"@%p3 {opcode} %d1, [%r20+8];",
            f"NEXT_{step}:",
        ]
    kernel = Kernel(
        name="mbarrier_pair", threads=64, target="sm_90", smem=(".shared .align 8 .b8 bars[32];",),
        setup=[
            "mov.u32 %r20, bars;", "setp.eq.u32 %p0, %thread, 0;", "@%p0 mbarrier.init.shared.b64 [%r20], 1;",
            "@%p0 mbarrier.init.shared.b64 [%r20+8], 1;", "mov.u32 %r1, 0;", "setp.ge.u32 %p2, %thread, 32;",
            "and.b32 %r2, %thread, 31;", "setp.eq.u32 %p3, %r2, 0;",
        ],
        trip=trip, result="%r1",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        ends = left[SINK][::32]
        return "" if (ends == STEPS * trips).all() else "the word was not handed over every time"

    reading = Reading(
        "handing a word to another warp and getting it back, by mbarriers", "cycles", opcode, False, "cycles", 20, 2000,
        per="warp",
    )  # fmt: skip
    return Microbenchmark(
        "mbarrier-pair", "synchronisation", "two warps hand one word to and fro by two mbarriers", kernel.text(),
        kernel.target, (8, 40), lambda chip, trips: Launch(1, 64, rows=2),
        lambda launch, trips: {opcode: 2 * STEPS * trips}, check, (reading,),
    )  # fmt: skip


def _cluster_barrier(relaxed: bool) -> Microbenchmark:
    """`relaxed`: without the fence of all memory that arriving brings along by default."""
    opcode = "barrier.cluster.arrive.relaxed.aligned" if relaxed else "barrier.cluster.arrive.aligned"
    name = "cluster-barrier-relaxed" if relaxed else "cluster-barrier"
    kernel = Kernel(
        name=name.replace("-", "_"), threads=128, target="sm_90", version="8.0" if relaxed else "",
        setup=["mov.u32 %r1, 0;"],
        trip=[f"{opcode};", "barrier.cluster.wait.aligned;", "add.u32 %r1, %r1, 1;"] * STEPS, result="%r1",
    )  # fmt: skip
    words = "without its fence" if relaxed else "with its fence"
    reading = Reading(
        f"barrier of a cluster of two CTAs of 128 threads, {words}", "cycles", opcode, False, "cycles", 20, 10_000,
        per="warp",
    )  # fmt: skip
    return Microbenchmark(
        name, "synchronisation", f"the 256 threads of a cluster of two CTAs meet again and again, {words}",
        kernel.text(), kernel.target, (8, 40), lambda chip, trips: Launch(2, 128, rows=4, cluster=2),
        lambda launch, trips: {opcode: launch.warps * STEPS * trips},
        lambda launch, trips, left: (
            "" if (left[SINK] == STEPS * trips).all() else "a thread did not pass every barrier"
        ),
        (reading,),
    )  # fmt: skip


def _remote_latency() -> Microbenchmark:
    """Words of each CTA of a cluster are addresses of words in the same CTA, which the other one follows."""
    opcode, rows = "ld.shared::cluster.u32", 16
    kernel = Kernel(
        name="remote_latency", threads=32, target="sm_90", smem=(f".shared .align 128 .b8 smem[{rows * 128}];",),
        setup=[
            "mov.u32 %r20, smem;", "mov.u32 %r2, %cluster_ctarank;", "xor.b32 %r3, %r2, 1;", "shl.b32 %r4, %thread, 2;",
            "add.s32 %r5, %r20, %r4;",
            *(line for row in range(rows) for line in (
                f"add.s32 %r6, %r5, {(row + 1) % rows * 128};", "mapa.shared::cluster.u32 %r7, %r6, %r2;",
                f"st.shared.b32 [%r5+{row * 128}], %r7;",
            )),
            "mapa.shared::cluster.u32 %r1, %r5, %r3;", "mov.u32 %r8, %r1;",
            "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;",
        ],
        trip=[f"{opcode} %r1, [%r1];"] * STEPS,
        finish=[
            "sub.u32 %r1, %r1, %r8;", "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;",
        ],
        result="%r1",
    )  # fmt: skip
    reading = Reading(
        "latency of another CTA's shared memory", "cycles", opcode, False, "cycles", 50, 2000, per="warp",
        field="lat_dsmem_load",
    )  # fmt: skip
    return Microbenchmark(
        "remote-latency", "synchronisation",
        "one warp in each of two CTAs follows pointers in the other's shared memory", kernel.text(),
        kernel.target, (8, 40), lambda chip, trips: Launch(2, 32, cluster=2),
        lambda launch, trips: {opcode: STEPS * trips * launch.warps},
        lambda launch, trips, left: (
            "" if (left[SINK] == STEPS * trips % rows * 128).all() else "the last pointer leads elsewhere"
        ),
        (reading,),
    )  # fmt: skip


def _grid_barrier() -> Microbenchmark:
    """One thread of each CTA adds to a counter and waits until all have: one CTA on each SM, so all are resident."""
    opcode = "atom.acq_rel.gpu.global.add.u32"
    kernel = Kernel(
        name="grid_barrier", threads=32, parameters=(".u64 counter",),
        # the counter is a multiple of the CTAs between two launches; %r3 is what it is when all have come
        setup=[
            load("%d0", "counter"), "mov.u32 %r2, %nctaid.x;", "setp.eq.u32 %p0, %thread, 0;", "mov.u32 %r4, 0;",
            "ld.param.u32 %r6, [trips];",
        ],
        trip=[
            "@!%p0 bra MEET;",
            f"{opcode} %r1, [%d0], 1;",
            "div.u32 %r3, %r1, %r2;",
            "mad.lo.s32 %r3, %r3, %r2, %r2;",
            "POLL:",
            "ld.acquire.gpu.global.u32 %r5, [%d0];",
            "setp.lt.u32 %p1, %r5, %r3;",
            "@%p1 bra POLL;",
            "MEET:",
            "bar.warp.sync 0xffffffff;",
            "add.u32 %r4, %r4, 1;",
        ],
        result="%r4",
    )  # fmt: skip
    return Microbenchmark(
        "grid-barrier", "synchronisation", "one warp on each SM adds to a counter and waits until all have",
        kernel.text(), kernel.target, (100, 500),
        lambda chip, trips: Launch(chip.sms, 32, (Buffer("counter", np.zeros(1, np.uint32)),)),
        lambda launch, trips: {opcode: launch.grid * trips},
        lambda launch, trips, left: (
            "" if left["counter"][0] == launch.grid * trips and (left[SINK] == trips).all()
            else "a CTA did not take part every time"
        ),
        (Reading(
            "barrier of the grid", "us", opcode, False, "seconds", 0.1, 100, 1e6, per="warp", field="grid_sync_us",
        ),),
    )  # fmt: skip


def _empty() -> Microbenchmark:
    """A kernel that goes round as often as it is told: once, or for long, so that others queue up behind it."""
    loop = [
        "TRIP:", "sub.s32 %trips, %trips, 1;", "setp.eq.u32 %again, %trips, 0;", "@%again bra DONE;",
        # about a microsecond; a loop without anything in it would vanish
        "nanosleep.u32 1000;", "bra TRIP;", "DONE:",
    ]  # fmt: skip
    where = "launches of a kernel of one warp"
    return Microbenchmark(
        "launch", "synchronisation", "kernels of one warp that return at once, one behind another",
        module("launch", loop, loop, [], [], 32, "sm_75"), "sm_75", (50, 250), lambda chip, trips: Launch(1, 32),
        lambda launch, trips: {"sub.s32": trips, "global_store_requests": 0},
        lambda launch, trips, left: "" if not left[SINK].any() else "something was stored",
        (
            Reading(f"{where}, in a stream", "us", "launches", False, "stream", 0.1, 100, 1e6,
                    field="launch_overhead_stream_us"),
            Reading(f"{where}, in a graph", "us", "launches", False, "graph", 0.1, 100, 1e6,
                    field="launch_overhead_graph_us"),
        ),
        # some milliseconds, in which the host queues all the others
        held=10_000,
    )  # fmt: skip
