"""Bandwidth of L1, L2 and DRAM by streams, and the rate of atomics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinygpu.ptx.calibration.benchmark import (
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
from tinygpu.ptx.calibration.kernel_text import Kernel, folded, load

# A stream's CTA, and what it reads in one trip: four times 16 bytes per thread. Two of them fit on every SM.
STREAM_THREADS, VECTORS, VECTOR_BYTES = 512, 4, 16
CHUNK_BYTES = STREAM_THREADS * VECTORS * VECTOR_BYTES
STREAM_CTAS_PER_SM = 2
L1_THREADS = 1024


def _vector(register: int) -> str:
    return "{" + ", ".join(f"%r{register + i}" for i in range(4)) + "}"


def l1_bandwidth() -> Microbenchmark:
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


def l2_bandwidth() -> Microbenchmark:
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


def dram_copy() -> Microbenchmark:
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


def dram_read() -> Microbenchmark:
    kernel = _stream("dram_read", "ld.global.v4.u32", stores=False, wraps=False)
    return Microbenchmark(
        "dram-read", "memory", "all SMs read a buffer of many times L2, 16 bytes a lane", kernel.text(), kernel.target,
        (64, 128), lambda chip, trips: _fresh_plan(chip, trips, ("data",)), _stream_counts,
        lambda launch, trips, left: _same(left[SINK], _read(launch, trips, left["data"])),
        (Reading("bandwidth of DRAM, reads alone", "GB/s", "global_load_bytes", True, "seconds", 20, 50_000, 1e-9),),
    )  # fmt: skip


def atomic_rate() -> Microbenchmark:
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
