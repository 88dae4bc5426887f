"""Memory: latency of L1, L2 and DRAM by chasing pointers, their bandwidth by streams, and atomics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinygpu.ptx.calibration.benchmark import (
    MOST_LAUNCHES,
    SINK,
    Array,
    Buffer,
    Counts,
    Launch,
    Microbenchmark,
    Number,
    Reading,
)
from tinygpu.ptx.calibration.chip import Chip
from tinygpu.ptx.calibration.kernel_text import Kernel, folded, load, module

WORD_BYTES, LINE_BYTES = 8, 128
HOPS = 32
# A stream's CTA, and what it reads in one trip: four times 16 bytes per thread. Two of them fit on every SM.
STREAM_THREADS, VECTORS, VECTOR_BYTES = 512, 4, 16
CHUNK_BYTES = STREAM_THREADS * VECTORS * VECTOR_BYTES
STREAM_CTAS_PER_SM = 2
L1_THREADS = 1024


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        _l1_latency(),
        _l2_latency(),
        _dram_latency(),
        _l1_bandwidth(),
        _l2_bandwidth(),
        _dram_copy(),
        _dram_read(),
        _atomic_latency(),
        _atomic_rate(),
    )


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


# ---- latencies --------------------------------------------------------------------------------------------------


def _l1_latency() -> Microbenchmark:
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


def _l2_latency() -> Microbenchmark:
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


def _dram_latency() -> Microbenchmark:
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


def _atomic_latency() -> Microbenchmark:
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


# ---- bandwidths -------------------------------------------------------------------------------------------------


def _vector(register: int) -> str:
    return "{" + ", ".join(f"%r{register + i}" for i in range(4)) + "}"


def _l1_bandwidth() -> Microbenchmark:
    opcode, blocks = "ld.global.v4.u32", 2
    half = L1_THREADS * VECTOR_BYTES // 2
    kernel = Kernel(
        name="l1_bandwidth", threads=L1_THREADS, parameters=(".u64 data",),
        setup=[
            load("%d0", "data"), "mul.wide.u32 %d1, %thread, 16;", "mov.u32 %r0, 0;",
        ],
        # the upper and the lower half of the warps change places, so that no load can be moved out of the loop
        trip=[
            "add.u64 %d2, %d0, %d1;",
            *(f"{opcode} {_vector(4 + 4 * i)}, [%d2+{i * L1_THREADS * VECTOR_BYTES}];" for i in range(blocks)),
            *folded("%r0", [f"%r{4 + i}" for i in range(4 * blocks)]),
            f"xor.b64 %d1, %d1, {half};",
        ],
        result="%r0",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        words = left["data"].view(np.uint32).reshape(blocks, L1_THREADS, 4)
        own = np.bitwise_xor.reduce(words, axis=(0, 2))
        other = np.roll(own, L1_THREADS // 2)
        return _same(left[SINK], np.tile(_folds(own, other, trips), launch.grid))

    reading = Reading(
        "bandwidth of L1", "B/clk/SM", "global_load_bytes", True, "cycles", 16, 1024, field="l1_bytes_per_clk_sm",
    )  # fmt: skip
    return Microbenchmark(
        "l1-bandwidth", "memory", "32 warps of each SM read 32 KiB again and again, 16 bytes a lane", kernel.text(),
        kernel.target, (64, 320),
        lambda chip, trips: Launch(
            chip.sms, L1_THREADS, (Buffer("data", noise(blocks * L1_THREADS * VECTOR_BYTES)),),
            rows=L1_THREADS // 32,
        ),
        lambda launch, trips: {
            opcode: blocks * launch.warps * trips,
            "global_load_bytes": blocks * VECTOR_BYTES * launch.threads * trips,
        },
        check, (reading,),
    )  # fmt: skip


def _folds(own: Array, other: Array, trips: int) -> Array:
    """Exclusive or of `own` and `other` by turns, `trips` times."""
    none = np.zeros_like(own)
    return (own if (trips + 1) // 2 % 2 else none) ^ (other if trips // 2 % 2 else none)


def _same(found: Array, wanted: Array) -> str:
    wrong = np.flatnonzero(found != wanted)
    if not wrong.size:
        return ""
    at = int(wrong[0])
    return f"thread {at} read {int(found[at]):#x} in all, and {int(wanted[at]):#x} is there"


def noise(size_bytes: int) -> Array:
    """Random words; zeros would hide what was never written, and cost a GPU less power."""
    return np.random.default_rng(2).integers(0, 1 << 32, size_bytes // 4, np.uint32)


def _stream(name: str, opcode: str, stores: bool, wraps: bool) -> Kernel:
    """Every CTA reads one chunk a trip, the grid as a whole chunk after chunk; `wraps` begins anew behind the last."""
    first = 8
    loads = [
        f"{opcode} {_vector(first + 4 * i)}, [%d2+{i * STREAM_THREADS * VECTOR_BYTES}];" for i in range(VECTORS)
    ]
    written = [
        f"st.global.v4.u32 [%d3+{i * STREAM_THREADS * VECTOR_BYTES}], {_vector(first + 4 * i)};" for i in range(VECTORS)
    ]
    wrap = ["setp.ge.u32 %p0, %r1, %r3;", "@%p0 sub.u32 %r1, %r1, %r3;"] if wraps else []
    return Kernel(
        name=name, threads=STREAM_THREADS,
        parameters=(".u64 data", *([".u64 copy"] if stores else []), ".u32 step", ".u32 chunks"),
        # %r1 the CTA's chunk, %r2 chunks from one trip to the next, %r3 chunks of the buffer
        setup=[
            load("%d0", "data"), *([load("%d5", "copy")] if stores else []), load("%r2", "step", "u32"),
            load("%r3", "chunks", "u32"), "rem.u32 %r1, %cta, %r3;", "mul.wide.u32 %d4, %thread, 16;",
            "add.u64 %d0, %d0, %d4;", *(["add.u64 %d5, %d5, %d4;"] if stores else []), "mov.u32 %r0, 0;",
        ],
        trip=[
            f"mul.wide.u32 %d1, %r1, {CHUNK_BYTES};", "add.u64 %d2, %d0, %d1;",
            *(["add.u64 %d3, %d5, %d1;"] if stores else []), *loads,
            *(written if stores else folded("%r0", [f"%r{first + i}" for i in range(4 * VECTORS)])),
            "add.u32 %r1, %r1, %r2;", *wrap,
        ],
        result="" if stores else "%r0",
    )  # fmt: skip


def _chunk_of(launch: Launch, trip: int) -> Array:
    """(grid) the chunk that each CTA reads in a trip."""
    chunks = launch.number("chunks")
    return np.asarray((np.arange(launch.grid) + trip * launch.number("step")) % chunks)


def _read(launch: Launch, trips: int, data: Array) -> Array:
    """(threads) exclusive or of all words that each thread reads."""
    words = data.view(np.uint32).reshape(-1, VECTORS, STREAM_THREADS, 4)
    chunks = np.bitwise_xor.reduce(words, axis=(1, 3))
    out = np.zeros((launch.grid, STREAM_THREADS), np.uint32)
    for trip in range(trips):
        out ^= chunks[_chunk_of(launch, trip)]
    return out.reshape(-1)


def _stream_plan(chip: Chip, chunks: int, step: int, buffers: tuple[str, ...]) -> Launch:
    block = noise(CHUNK_BYTES)
    sources = [Buffer(name, block, chunks * CHUNK_BYTES) for name in buffers[:1]]
    targets = [Buffer(name, np.zeros(CHUNK_BYTES // 4, np.uint32), chunks * CHUNK_BYTES) for name in buffers[1:]]
    return Launch(
        chip.sms * STREAM_CTAS_PER_SM, STREAM_THREADS,
        (*sources, *targets, Number("step", step), Number("chunks", chunks)),
        rows=STREAM_THREADS // 32, ctas_per_sm=STREAM_CTAS_PER_SM,
    )  # fmt: skip


def _stream_counts(launch: Launch, trips: int) -> Counts:
    moved = CHUNK_BYTES * launch.grid * trips
    return {"global_load_bytes": moved, "global_load_sectors": moved // 32}


def _l2_bandwidth() -> Microbenchmark:
    kernel = _stream("l2_bandwidth", "ld.global.cg.v4.u32", stores=False, wraps=True)

    def plan(chip: Chip, trips: int) -> Launch:
        # half of what every SM can keep near
        chunks = max(1, chip.l2_near_bytes // 2 // CHUNK_BYTES)
        return _stream_plan(chip, chunks, chip.sms * STREAM_CTAS_PER_SM % chunks, ("data",))

    return Microbenchmark(
        "l2-bandwidth", "memory", "all SMs read a quarter of L2 (half of it where there is one partition), past L1",
        kernel.text(), kernel.target, (200, 600), plan, _stream_counts,
        lambda launch, trips, left: _same(left[SINK], _read(launch, trips, left["data"])),
        (
            Reading(
                "bandwidth of L2", "GB/s", "global_load_bytes", True, "seconds", 50, 100_000, 1e-9,
                field="l2_bw_gbs_measured",
            ),
            Reading(
                "bandwidth of L2 per SM", "B/clk/SM", "global_load_bytes", True, "cycles", 2, 256,
                field="l2_bytes_per_clk_sm",
            ),
        ),
    )  # fmt: skip


def _fresh_plan(chip: Chip, trips: int, buffers: tuple[str, ...]) -> Launch:
    """As many chunks as the trips read, so that none is read twice, and at least four times L2."""
    step = chip.sms * STREAM_CTAS_PER_SM
    return _stream_plan(chip, max(trips * step, 4 * chip.l2_bytes // CHUNK_BYTES), step, buffers)


def _dram_copy() -> Microbenchmark:
    kernel = _stream("dram_copy", "ld.global.v4.u32", stores=True, wraps=False)

    def counts(launch: Launch, trips: int) -> Counts:
        moved = CHUNK_BYTES * launch.grid * trips
        # and each warp stores its clocks
        return {"global_load_bytes": moved, "global_store_bytes": moved + 16 * launch.warps}

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        read = trips * launch.grid * CHUNK_BYTES // 4
        ok = (left["copy"][:read] == left["data"][:read]).all() and not left["copy"][read:].any()
        return "" if ok else "the copy is not what was read"

    return Microbenchmark(
        "dram-copy", "memory", "all SMs copy a buffer of many times L2, 16 bytes a lane", kernel.text(), kernel.target,
        (64, 128), lambda chip, trips: _fresh_plan(chip, trips, ("data", "copy")), counts, check,
        (
            Reading(
                "bandwidth of DRAM, bytes read and written", "GB/s", "global_load_bytes + global_store_bytes", True,
                "seconds", 20, 50_000, 1e-9, field="dram_bw_gbs_measured",
            ),
        ),
    )  # fmt: skip


def _dram_read() -> Microbenchmark:
    kernel = _stream("dram_read", "ld.global.v4.u32", stores=False, wraps=False)
    return Microbenchmark(
        "dram-read", "memory", "all SMs read a buffer of many times L2, 16 bytes a lane", kernel.text(), kernel.target,
        (64, 128), lambda chip, trips: _fresh_plan(chip, trips, ("data",)), _stream_counts,
        lambda launch, trips, left: _same(left[SINK], _read(launch, trips, left["data"])),
        (Reading("bandwidth of DRAM, reads alone", "GB/s", "global_load_bytes", True, "seconds", 20, 50_000, 1e-9),),
    )  # fmt: skip


def _atomic_rate() -> Microbenchmark:
    opcode, each = "red.global.add.u32", 8
    kernel = Kernel(
        name="atomic_rate", threads=STREAM_THREADS, parameters=(".u64 cells", ".u32 mask"),
        setup=[
            load("%d0", "cells"), load("%r2", "mask", "u32"), "mov.u32 %r1, %ntid.x;",
            "mad.lo.s32 %r0, %cta, %r1, %thread;", "mov.u32 %r3, 1;",
        ],
        # each thread adds to a word of its own, and goes 64 KiB on
        trip=[
            line for _ in range(each) for line in (
                "and.b32 %r4, %r0, %r2;", "mul.wide.u32 %d1, %r4, 4;", "add.u64 %d1, %d0, %d1;",
                f"{opcode} [%d1], %r3;", "add.u32 %r0, %r0, 16384;",
            )
        ],
    )  # fmt: skip

    def plan(chip: Chip, trips: int) -> Launch:
        cells = 1 << 20 if chip.sms > 2 else 1 << 16
        return Launch(
            chip.sms * STREAM_CTAS_PER_SM, STREAM_THREADS,
            (Buffer("cells", np.zeros(cells, np.uint32)), Number("mask", cells - 1)),
            rows=STREAM_THREADS // 32, ctas_per_sm=STREAM_CTAS_PER_SM,
        )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        first = np.arange(launch.threads)
        wanted = np.zeros(left["cells"].size, np.uint32)
        for step in range(each * trips):
            np.add.at(wanted, (first + step * 16384) & launch.number("mask"), np.uint32(1))
        return "" if (left["cells"] == wanted).all() else "the words do not hold the number of atomics on them"

    reading = Reading(
        "atomics of the device", "atomics/clk", opcode, True, "cycles", 1, 50_000, scale=32, per="device",
        field="atomic_add_per_clk_device",
    )  # fmt: skip
    return Microbenchmark(
        "atomic-rate", "memory", "all SMs add to a million words", kernel.text(), kernel.target, (4, 20), plan,
        lambda launch, trips: {opcode: each * launch.warps * trips}, check, (reading,),
    )  # fmt: skip
