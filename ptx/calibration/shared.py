"""Shared memory: latency, bandwidth, bank conflicts, ldmatrix, atomics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Counts, Launch, Microbenchmark, Number, Reading
from tinygpu.ptx.calibration.kernel_text import Kernel, folded, load
from tinygpu.ptx.calibration.memory_latency import exchanged

HOPS, THREADS = 64, 512
SMEM_BYTES = 32 * 1024
STRIDES = (1, 2, 4, 8, 16, 32)
_SMEM = f".shared .align 1024 .b8 smem[{SMEM_BYTES}];"


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        _latency(),
        _ldmatrix_latency(),
        _loads(),
        _stores(),
        _ldmatrix_rate(),
        *(_conflicts(stride) for stride in STRIDES),
        _atomic_latency(),
    )


def _filled(words_per_thread: int, threads: int) -> list[str]:
    """Word i of shared memory becomes i * 2654435761, a number with all bits in use; %r20 is its address."""
    lines = ["mov.u32 %r20, smem;"]
    for i in range(words_per_thread):
        lines += [
            f"add.s32 %r21, %thread, {i * threads};",
            "mul.lo.u32 %r22, %r21, 2654435761;",
            "shl.b32 %r21, %r21, 2;",
            "add.s32 %r21, %r20, %r21;",
            "st.shared.b32 [%r21], %r22;",
        ]
    return lines


def _words() -> Array:
    return (np.arange(SMEM_BYTES // 4, dtype=np.uint64) * 2654435761).astype(np.uint32)


# ---- latencies --------------------------------------------------------------------------------------------------


def _latency() -> Microbenchmark:
    """Lane l follows the words l, l + 32, l + 64 ... of 4 KiB: no conflicts."""
    opcode, rows = "ld.shared.u32", 32
    kernel = Kernel(
        name="smem_latency",
        threads=32,
        smem=[_SMEM],
        setup=[
            "mov.u32 %r20, smem;",
            "shl.b32 %r1, %thread, 2;",
            "add.s32 %r1, %r20, %r1;",
            *(
                line
                for row in range(rows)
                for line in (
                    f"add.s32 %r21, %r1, {(row + 1) % rows * 128};",
                    f"st.shared.b32 [%r1+{row * 128}], %r21;",
                )
            ),
        ],
        trip=[f"{opcode} %r1, [%r1];"] * HOPS,
        finish=["sub.u32 %r1, %r1, %r20;"],
        result="%r1",
    )

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        wanted = np.arange(32) * 4 + HOPS * trips % rows * 128
        return "" if (left[SINK] == wanted).all() else f"lane 0 ends at byte {left[SINK][0]} and not {wanted[0]}"

    reading = Reading(
        "latency of shared memory", "cycles", opcode, False, "cycles", 10, 100, per="warp", field="lat_smem_load"
    )
    return Microbenchmark(
        "smem-latency", "shared memory", "one warp follows pointers", kernel.text(), kernel.target, (16, 80),
        lambda chip, trips: Launch(1, 32),
        lambda launch, trips: {opcode: HOPS * trips, "shared_load_wavefronts": HOPS * trips}, check, (reading,),
    )  # fmt: skip


def _ldmatrix_latency() -> Microbenchmark:
    """Word j of the first matrix is the address of row j, so that each lane finds the address that it came with."""
    opcode = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    kernel = Kernel(
        name="ldmatrix_latency",
        version="6.5",
        threads=32,
        smem=[_SMEM],
        setup=[
            "mov.u32 %r20, smem;",
            "shl.b32 %r1, %thread, 4;",
            "add.s32 %r1, %r20, %r1;",
            "shl.b32 %r21, %thread, 2;",
            "add.s32 %r21, %r20, %r21;",
            *(f"st.shared.b32 [%r21+{matrix * 128}], %r1;" for matrix in range(4)),
            "bar.warp.sync 0xffffffff;",
        ],
        trip=[f"{opcode} {{%r1, %r2, %r3, %r4}}, [%r1];"] * HOPS,
        finish=["sub.u32 %r1, %r1, %r20;"],
        result="%r1",
    )
    reading = Reading(
        "latency of ldmatrix.x4", "cycles", opcode, False, "cycles", 10, 200, per="warp", field="lat_ldmatrix"
    )
    return Microbenchmark(
        "ldmatrix-latency", "shared memory", "one warp, each ldmatrix.x4 needs the addresses that the last one read",
        kernel.text(), kernel.target, (16, 80), lambda chip, trips: Launch(1, 32),
        lambda launch, trips: {opcode: HOPS * trips, "shared_load_wavefronts": 4 * HOPS * trips},
        lambda launch, trips, left: "" if (left[SINK] == np.arange(32) * 16).all() else "a row was not found",
        (reading,),
    )  # fmt: skip


def _atomic_latency() -> Microbenchmark:
    opcode = "atom.shared.add.u32"
    kernel = Kernel(
        name="smem_atomic_latency", threads=1, smem=[_SMEM],
        setup=["mov.u32 %r20, smem;", "mov.u32 %r1, 1;", "st.shared.b32 [%r20], %r1;"],
        trip=[f"{opcode} %r1, [%r20], %r1;"] * HOPS,
        # both the last number found and the one in memory, which is the next
        finish=["ld.shared.b32 %r2, [%r20];", "xor.b32 %r1, %r1, %r2;"], result="%r1",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        found, memory = 1, 1
        for _ in range(HOPS * trips):
            found, memory = memory, (memory + found) & 0xFFFFFFFF
        return exchanged(HOPS * trips, int(left[SINK][0]) ^ memory, memory)

    reading = Reading(
        "latency of an atomic in shared memory", "cycles", opcode, False, "cycles", 5, 500, per="warp",
        field="lat_atomic_shared",
    )  # fmt: skip
    return Microbenchmark(
        "smem-atomic-latency", "shared memory", "one thread adds to one word, each time what it found there before",
        kernel.text(), kernel.target, (16, 80), lambda chip, trips: Launch(1, 1),
        lambda launch, trips: {opcode: HOPS * trips}, check, (reading,),
    )  # fmt: skip


# ---- rates ------------------------------------------------------------------------------------------------------


def _all_sms(chip_sms: int, *numbers: Number) -> Launch:
    return Launch(chip_sms, THREADS, numbers, rows=THREADS // 32)


def _vector(register: int) -> str:
    return "{" + ", ".join(f"%r{register + i}" for i in range(4)) + "}"


_VECTORS = SMEM_BYTES // (THREADS * 16)


def _own_words(trip: int) -> Array:
    """(threads) exclusive or of the words that a thread reads in a trip; in every second one warps change places."""
    words = np.bitwise_xor.reduce(_words().reshape(_VECTORS, THREADS, 4), axis=(0, 2))
    return np.asarray(np.roll(words, THREADS // 2) if trip % 2 else words)


def _check_words(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
    wanted = np.zeros(THREADS, np.uint32)
    for trip in range(trips):
        wanted ^= _own_words(trip)
    found = left[SINK].reshape(launch.grid, THREADS)
    return "" if (found == wanted).all() else "the words that were read are not those of shared memory"


def _loads() -> Microbenchmark:
    opcode = "ld.shared.v4.u32"
    kernel = Kernel(
        name="smem_loads",
        threads=THREADS,
        smem=[_SMEM],
        setup=[
            *_filled(SMEM_BYTES // 4 // THREADS, THREADS),
            "shl.b32 %r23, %thread, 4;", "add.s32 %r24, %r20, %r23;", "mov.u32 %r0, 0;",
        ],
        # the halves of the warps change places, so that no load can be moved out of the loop
        trip=[
            *(f"{opcode} {_vector(1 + 4 * i)}, [%r24+{i * THREADS * 16}];" for i in range(_VECTORS)),
            *folded("%r0", [f"%r{1 + i}" for i in range(4 * _VECTORS)]),
            f"xor.b32 %r23, %r23, {THREADS * 8};", "add.s32 %r24, %r20, %r23;",
        ],
        result="%r0",
    )  # fmt: skip
    reading = Reading(
        "loads of shared memory", "B/clk/SM", "shared_load_bytes", True, "cycles", 16, 1024,
        field="smem_bytes_per_clk_sm",
    )  # fmt: skip
    return Microbenchmark(
        "smem-loads", "shared memory", "16 warps of each SM read 32 KiB, 16 bytes a lane, without conflicts",
        kernel.text(), kernel.target, (64, 320), lambda chip, trips: _all_sms(chip.sms),
        lambda launch, trips: {
            "shared_load_bytes": SMEM_BYTES * launch.grid * trips,
            "shared_load_wavefronts": SMEM_BYTES // 128 * launch.grid * trips,
        },
        _check_words, (reading,),
    )  # fmt: skip


def _stores() -> Microbenchmark:
    opcode = "st.shared.v4.u32"
    kernel = Kernel(
        name="smem_stores",
        threads=THREADS,
        smem=[_SMEM],
        setup=["mov.u32 %r20, smem;", "shl.b32 %r23, %thread, 4;", "add.s32 %r24, %r20, %r23;"],
        trip=[
            f"{opcode} [%r24+{i * THREADS * 16}], {{%trips, %thread, %r23, %r24}};" for i in range(_VECTORS)
        ],
        # what is left is what the last trip stored: its number is 1
        finish=[
            "mov.u32 %r0, 0;",
            *(line for i in range(_VECTORS) for line in (
                f"ld.shared.v4.u32 {_vector(1)}, [%r24+{i * THREADS * 16}];", "sub.u32 %r4, %r4, %r20;",
                *folded("%r0", ["%r1", "%r2", "%r3", "%r4"], "add.u32"),
            )),
        ],
        result="%r0",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        thread = np.arange(THREADS)
        wanted = _VECTORS * (1 + thread + 2 * 16 * thread)
        return "" if (left[SINK].reshape(launch.grid, THREADS) == wanted).all() else "a store did not arrive"

    reading = Reading("stores to shared memory", "B/clk/SM", "shared_store_bytes", True, "cycles", 16, 1024)
    return Microbenchmark(
        "smem-stores", "shared memory", "16 warps of each SM write 32 KiB, 16 bytes a lane, without conflicts",
        kernel.text(), kernel.target, (64, 320), lambda chip, trips: _all_sms(chip.sms),
        lambda launch, trips: {
            "shared_store_bytes": SMEM_BYTES * launch.grid * trips,
            "shared_store_wavefronts": SMEM_BYTES // 128 * launch.grid * trips,
        },
        check, (reading,),
    )  # fmt: skip


def _ldmatrix_rate() -> Microbenchmark:
    opcode = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    # a warp has 512 bytes of each block: four matrices, a row in every lane
    kernel = Kernel(
        name="ldmatrix_rate",
        version="6.5",
        threads=THREADS,
        smem=[_SMEM],
        setup=[
            *_filled(SMEM_BYTES // 4 // THREADS, THREADS),
            "shl.b32 %r23, %thread, 4;", "add.s32 %r24, %r20, %r23;", "mov.u32 %r0, 0;",
        ],
        trip=[
            *(f"{opcode} {_vector(1 + 4 * i)}, [%r24+{i * THREADS * 16}];" for i in range(_VECTORS)),
            *folded("%r0", [f"%r{1 + i}" for i in range(4 * _VECTORS)]),
            f"xor.b32 %r23, %r23, {THREADS * 8};", "add.s32 %r24, %r20, %r23;",
        ],
        result="%r0",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        # lane l gets word l of each of the four matrices of its warp
        words = np.bitwise_xor.reduce(_words().reshape(_VECTORS, THREADS // 32, 4, 32), axis=(0, 2)).reshape(-1)
        wanted = np.zeros(THREADS, np.uint32)
        for trip in range(trips):
            wanted ^= np.roll(words, THREADS // 2) if trip % 2 else words
        found = left[SINK].reshape(launch.grid, THREADS)
        return "" if (found == wanted).all() else "the matrices that were read are not those of shared memory"

    reading = Reading("ldmatrix.x4", "B/clk/SM", "shared_load_bytes", True, "cycles", 16, 1024)
    return Microbenchmark(
        "ldmatrix-rate", "shared memory", "16 warps of each SM read 32 KiB by ldmatrix.x4, without conflicts",
        kernel.text(), kernel.target, (64, 320), lambda chip, trips: _all_sms(chip.sms),
        lambda launch, trips: {
            "shared_load_bytes": SMEM_BYTES * launch.grid * trips,
            "shared_load_wavefronts": SMEM_BYTES // 128 * launch.grid * trips,
        },
        check, (reading,),
    )  # fmt: skip


def _conflicts(stride: int) -> Microbenchmark:
    """Lanes of a warp read words that are `stride` apart: as many wavefronts (stride is a power of two)."""
    opcode, loads = "ld.shared.u32", SMEM_BYTES // 4096
    kernel = Kernel(
        name="smem_conflicts",
        threads=THREADS,
        smem=[_SMEM],
        parameters=(".u32 stride",),
        setup=[
            *_filled(SMEM_BYTES // 4 // THREADS, THREADS), load("%r25", "stride", "u32"), "and.b32 %r23, %thread, 31;",
            "mul.lo.s32 %r23, %r23, %r25;", "add.s32 %r24, %r20, %r23;", "mov.u32 %r0, 0;",
        ],
        # 2 KiB on, or back: the lanes change places among themselves, or go where no other is
        trip=[
            *(f"{opcode} %r{1 + i}, [%r24+{i * 4096}];" for i in range(loads)),
            *folded("%r0", [f"%r{1 + i}" for i in range(loads)]),
            "xor.b32 %r23, %r23, 2048;", "add.s32 %r24, %r20, %r23;",
        ],
        result="%r0",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        words = np.bitwise_xor.reduce(_words().reshape(loads, 1024), axis=0)
        wanted = np.zeros(32, np.uint32)
        for trip in range(trips):
            wanted ^= words[(np.arange(32) * stride) ^ (512 if trip % 2 else 0)]
        found = left[SINK].reshape(-1, 32)
        return "" if (found == wanted).all() else "the words that were read are not those of shared memory"

    def counts(launch: Launch, trips: int) -> Counts:
        requests = loads * launch.warps * trips
        return {opcode: requests, "shared_load_wavefronts": requests * stride}

    cost = Reading("cycles of a request", "cycles", opcode, False, "cycles", 0.1, 200)
    lanes = Reading(
        "lanes of a request without conflicts", "lanes/clk/SM", opcode, True, "cycles", 4, 128, scale=32,
        field="ldst_lanes_per_clk_sm",
    )  # fmt: skip
    return Microbenchmark(
        f"smem-conflicts-{stride}", "shared memory",
        f"16 warps of each SM read 4 bytes a lane with conflicts of {stride} ways" if stride > 1 else
        "16 warps of each SM read 4 bytes a lane without conflicts",
        kernel.text(), kernel.target, (64, 320), lambda chip, trips: _all_sms(chip.sms, Number("stride", 4 * stride)),
        counts, check, (cost, lanes) if stride == 1 else (cost,),
    )  # fmt: skip
