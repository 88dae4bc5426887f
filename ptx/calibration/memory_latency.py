"""Latency of L1, L2 and DRAM by chasing pointers, and of an atomic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinygpu.ptx.calibration.benchmark import (
    MOST_LAUNCHES,
    SINK,
    Array,
    Buffer,
    Launch,
    Microbenchmark,
    Reading,
)
from tinygpu.ptx.calibration.chip import Chip
from tinygpu.ptx.calibration.kernel_text import Kernel, load, module

WORD_BYTES, LINE_BYTES = 8, 128
HOPS = 32


def ring(steps: Sequence[int] | Array) -> Array:
    """Offsets in bytes: each place of `steps` leads to the next one, and the last to the first. Elsewhere is 0.

    >>> ring([0, 2, 1])
    array([16,  0,  8], dtype=uint64)
    """
    order = np.asarray(steps)
    out = np.zeros(int(order.max()) + 1, np.uint64)
    out[order] = np.roll(order, -1) * WORD_BYTES
    return out


def _chase(opcode: str) -> list[str]:
    return [f"{opcode} %d1, [%d1];"] * HOPS


def l1_latency() -> Microbenchmark:
    """64 places, one in each sector of 2 KiB."""
    opcode, places, apart = "ld.global.u64", 64, 4
    kernel = Kernel(
        name="l1_latency", threads=32, parameters=(".u64 places",), setup=[load("%d0", "places"), "mov.u64 %d1, %d0;"],
        trip=_chase(opcode), finish=["sub.u64 %d1, %d1, %d0;", "cvt.u32.u64 %r1, %d1;"], result="%r1",
    )  # fmt: skip
    reading = Reading(
        "latency of L1", "cycles", opcode, False, "cycles", 10, 200, per="warp", field="lat_l1_hit",
    )  # fmt: skip
    return Microbenchmark(
        "l1-latency", "memory", "one warp follows pointers through 2 KiB", kernel.text(), kernel.target, (16, 80),
        lambda chip, trips: Launch(1, 32, (Buffer("places", ring(np.arange(places) * apart), relative=True),)),
        lambda launch, trips: {opcode: HOPS * trips, "global_load_sectors": HOPS * trips},
        lambda launch, trips, left: _at(left[SINK], HOPS * trips % places * apart * WORD_BYTES),
        (reading,),
    )  # fmt: skip


def _at(sink: Array, wanted: int) -> str:
    return "" if (sink == wanted).all() else f"the last pointer leads to byte {int(sink[0]):,} and not to {wanted:,}"


LINES, LINES_APART = 64, 4096 + LINE_BYTES


def l2_latency() -> Microbenchmark:
    """Each SM chases in each of 64 lines by itself, so that near and far ones are told apart."""
    opcode, places = "ld.global.cg.u64", 4
    # a warp of every CTA: outer loop over lines, beginning at the CTA's own; inner loop between the clocks
    inner = [
        load("%d0", "places"), load("%d2", "clocks"), "mul.wide.u32 %d3, %cta, %r6;", "add.u64 %d2, %d2, %d3;",
        "mov.u32 %r0, 0;", "rem.u32 %r1, %cta, %r5;",
        "LINE:",
        "mul.wide.u32 %d1, %r1, %r7;", "add.u64 %d1, %d0, %d1;", "mov.u64 %d4, %d1;",
        # into L2, and only then the clock
        f"{opcode} %d1, [%d1];", "ld.param.u32 %trips, [trips];", "mov.u64 %start, %clock64;",
        "TRIP:", '.pragma "nounroll";', *_chase(opcode), "sub.s32 %trips, %trips, 1;",
        "setp.ne.u32 %again, %trips, 0;", "@%again bra TRIP;", "mov.u64 %stop, %clock64;",
        "mul.wide.u32 %d3, %r1, 16;", "add.u64 %d3, %d2, %d3;", "@%leads st.global.v2.u64 [%d3], {%start, %stop};",
        "sub.u64 %d1, %d1, %d4;", "cvt.u32.u64 %r2, %d1;", "add.u32 %r3, %r3, %r2;",
        "add.u32 %r1, %r1, 1;", "setp.eq.u32 %p0, %r1, %r5;", "@%p0 mov.u32 %r1, 0;",
        "add.u32 %r0, %r0, 1;", "setp.ne.u32 %p1, %r0, %r5;", "@%p1 bra LINE;",
        load("%where", "sink"), "mov.u32 %slot, %ntid.x;", "mad.lo.s32 %slot, %cta, %slot, %thread;",
        "mul.wide.u32 %place, %slot, 4;", "add.u64 %where, %where, %place;", "st.global.b32 [%where], %r3;",
    ]  # fmt: skip
    head = [
        f"mov.u32 %r5, {LINES};", f"mov.u32 %r6, {LINES * 16};", f"mov.u32 %r7, {LINES_APART};", "mov.u32 %r3, 0;",
        "setp.eq.u32 %leads, %thread, 0;",
    ]  # fmt: skip
    text = module("l2_latency", [*head, *inner], [*head, *inner], [".u64 places"], [], 32, "sm_75")

    def plan(chip: Chip, trips: int) -> Launch:
        words = np.zeros(LINES * LINES_APART // WORD_BYTES, np.uint64)
        for line in range(LINES):
            start = line * LINES_APART // WORD_BYTES
            words[start : start + places] = ring(np.arange(places)) + np.uint64(start * WORD_BYTES)
        return Launch(chip.sms, 32, (Buffer("places", words, relative=True),), rows=LINES, joined=False)

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        return _at(left[SINK], LINES * ((1 + HOPS * trips) % places * WORD_BYTES))

    near = Reading(
        "latency of L2, near", "cycles", opcode, False, "cycles", 50, 2000, per="row", quantile=0.25,
        field="lat_l2_hit_near",
    )  # fmt: skip
    far = Reading(
        "latency of L2, far", "cycles", opcode, False, "cycles", 50, 2000, per="row", quantile=0.75,
        field="lat_l2_hit_far",
    )  # fmt: skip
    return Microbenchmark(
        "l2-latency", "memory", f"each SM follows pointers in each of {LINES} lines, past L1", text, "sm_75", (2, 10),
        plan, lambda launch, trips: {opcode: LINES * (1 + HOPS * trips) * launch.grid}, check, (near, far),
    )  # fmt: skip


def dram_latency() -> Microbenchmark:
    """Fresh lines only: each launch goes on where the last one stopped."""
    opcode, apart = "ld.global.u64", 512
    kernel = Kernel(
        name="dram_latency", threads=32, parameters=(".u64 places", ".u64 cursor"),
        setup=[
            load("%d0", "places"), load("%d2", "cursor"), "ld.global.b64 %d1, [%d2];", "setp.eq.u64 %p0, %d1, 0;",
            "selp.b64 %d1, %d0, %d1, %p0;",
        ],
        trip=_chase(opcode),
        finish=[
            "setp.eq.u32 %p1, %thread, 0;", "@%p1 st.global.u64 [%d2], %d1;", "sub.u64 %d1, %d1, %d0;",
            "cvt.u32.u64 %r1, %d1;",
        ],
        result="%r1",
    )  # fmt: skip

    def order(chip: Chip, trips: int) -> Array:
        """Lines in shuffled order within a page, page after page, so that the TLB hardly ever misses."""
        # the end of the buffer may still be in L2 when it has just been filled
        visited = MOST_LAUNCHES * trips * HOPS * apart
        pages = -(-(visited + 2 * chip.l2_bytes) // chip.page_bytes)
        lines = chip.page_bytes // apart
        shuffled = np.random.default_rng(1).permutation(lines)
        # the first line is where the first launch begins
        shuffled = np.roll(shuffled, -int(np.flatnonzero(shuffled == 0)[0]))
        return np.asarray((np.arange(pages)[:, None] * lines + shuffled).reshape(-1) * (apart // WORD_BYTES))

    def plan(chip: Chip, trips: int) -> Launch:
        return Launch(1, 32, (
            Buffer("places", ring(order(chip, trips)), relative=True), Buffer("cursor", np.zeros(1, np.uint64)),
        ))  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        place = 0
        for _ in range(HOPS * trips):
            place = int(left["places"][place]) // WORD_BYTES
        return _at(left[SINK], place * WORD_BYTES)

    reading = Reading(
        "latency of DRAM", "cycles", opcode, False, "cycles", 150, 5000, per="warp", field="lat_dram",
    )  # fmt: skip
    return Microbenchmark(
        "dram-latency", "memory", "one warp follows pointers to lines that nobody has touched", kernel.text(),
        kernel.target, (8, 40), plan,
        lambda launch, trips: {opcode: HOPS * trips, "global_load_sectors": HOPS * trips + 1}, check, (reading,),
    )  # fmt: skip


def atomic_latency() -> Microbenchmark:
    opcode = "atom.global.add.u32"
    kernel = Kernel(
        name="atomic_latency", threads=1, parameters=(".u64 cell",), setup=[load("%d1", "cell"), "mov.u32 %r1, 1;"],
        trip=[f"{opcode} %r1, [%d1], %r1;"] * HOPS, result="%r1",
    )  # fmt: skip
    reading = Reading(
        "latency of an atomic in global memory", "cycles", opcode, False, "cycles", 50, 5000, per="warp",
        field="lat_atomic_global",
    )  # fmt: skip
    return Microbenchmark(
        "atomic-latency", "memory", "one thread adds to one word, each time what it found there before", kernel.text(),
        kernel.target, (8, 40), lambda chip, trips: Launch(1, 1, (Buffer("cell", np.ones(1, np.uint32)),)),
        lambda launch, trips: {opcode: HOPS * trips},
        lambda launch, trips, left: exchanged(HOPS * trips, int(left[SINK][0]), int(left["cell"][0])), (reading,),
    )  # fmt: skip


def exchanged(steps: int, result: int, cell: int) -> str:
    """An atomic that adds what it found before: both numbers after so many steps from 1 and 1."""
    found, memory = 1, 1
    for _ in range(steps):
        found, memory = memory, (memory + found) & 0xFFFFFFFF
    ok = (result, cell) == (found, memory)
    return "" if ok else f"{steps} atomics left {result:#x} and {cell:#x} in memory, not {found:#x} and {memory:#x}"
