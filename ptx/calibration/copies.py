"""Copies by the copy engine (TMA): latency, bandwidth, and how fast one thread issues them; and cp.async beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinygpu.ptx.calibration.benchmark import (
    MOST_LAUNCHES,
    SINK,
    Array,
    Buffer,
    Counts,
    Launch,
    Map,
    Microbenchmark,
    Number,
    Reading,
)
from tinygpu.ptx.calibration.chip import Chip
from tinygpu.ptx.calibration.kernel_text import Kernel, folded, load
from tinygpu.ptx.calibration.memory_bandwidth import noise

# A tensor of 16-bit elements whose rows of 64 are dense: a box of whole rows is contiguous in memory.
ROW_ELEMS, ROW_BYTES = 64, 128
HOPS = 8
# Bandwidth: boxes of 8 KiB, so many under way on each SM; what fits without asking for more shared memory.
BOX_ROWS, SLOTS = 64, 5
BOX_BYTES = BOX_ROWS * ROW_BYTES
TENSOR_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
BULK_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_BARRIERS = f".shared .align 8 .b64 full[{SLOTS}];"


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        _tensor_latency("tma-latency-l2", fresh=False),
        _tensor_latency("tma-latency-dram", fresh=True),
        _bulk_latency(),
        _tensor_bandwidth("tma-l2", fresh=False),
        _tensor_bandwidth("tma-dram", fresh=True),
        _bulk_issue(),
        _store_bandwidth(),
        _cp_async(),
    )


def _opened(count: int) -> list[str]:
    """Barriers of one arrival each; %r20 is the address of the first, and %p0 says which lane of the warp copies.

    Assemblers know that elect.sync leaves one lane; behind other conditions they make a loop over lanes of each copy.
    """
    inits = [f"@%p0 mbarrier.init.shared.b64 [%r20+{8 * i}], 1;" for i in range(count)]
    fences = ["@%p0 fence.mbarrier_init.release.cluster;", "bar.warp.sync 0xffffffff;"]
    return ["mov.u32 %r20, full;", "elect.sync _|%p0, 0xffffffff;", *inits, *fences]


def _wait(label: str, barrier: str, parity: str) -> list[str]:
    return [
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 %p1, {barrier}, {parity};",
        f"@!%p1 bra {label};",
    ]


def _tensor(rows: int, box_rows: int) -> tuple[Buffer, Map]:
    """A tensor of so many rows, and its map."""
    block = noise(BOX_BYTES)
    bytes_ = -(-rows * ROW_BYTES // block.nbytes) * block.nbytes
    return (
        Buffer("data", block, bytes_),
        Map("map", "data", (ROW_ELEMS, bytes_ // ROW_BYTES), (ROW_ELEMS, box_rows)),
    )


_MAP_ADDRESS = ["mov.b64 %d0, map;", "cvta.param.u64 %d0, %d0;"]
_TENSOR_PARAMETERS = (".u64 data", ".align 64 .b8 map[128]")


# ---- latencies --------------------------------------------------------------------------------------------------


def _one_load(step: str) -> list[str]:
    """One thread loads one row and waits for it; %r5 is the parity, %r4 the row."""
    lines: list[str] = []
    for hop in range(HOPS):
        lines += [
            f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {ROW_BYTES};",
            f"@%p0 {TENSOR_LOAD} [%r21], [%d0, {{%r6, %r4}}], [%r20];",
            *_wait(f"LOADED_{hop}", "[%r20]", "%r5"),
            "xor.b32 %r5, %r5, 1;",
            f"add.u32 %r4, %r4, {step};",
        ]
    return lines


def _tensor_latency(name: str, fresh: bool) -> Microbenchmark:
    """A row of 128 bytes: always the same one (in L2), or each time one 4 KiB further that nobody has touched."""
    apart = 32
    kernel = Kernel(
        name=name.replace("-", "_"), threads=32, target="sm_90", version="8.0",
        parameters=(*_TENSOR_PARAMETERS, ".u64 cursor"),
        smem=(".shared .align 128 .b8 smem[128];", _BARRIERS),
        setup=[
            *_opened(1), "mov.u32 %r21, smem;", *_MAP_ADDRESS, "mov.u32 %r5, 0;", "mov.u32 %r6, 0;",
            load("%d1", "cursor"), "ld.global.u32 %r4, [%d1];",
        ],
        trip=_one_load(str(apart) if fresh else "0"),
        finish=[
            "ld.shared.b32 %r1, [%r21+4];", *(["st.global.u32 [%d1], %r4;"] if fresh else []),
        ],
        result="%r1",
    )  # fmt: skip
    def plan(chip: Chip, trips: int) -> Launch:
        # the end of the tensor may still be in L2 when it has just been filled
        rows = MOST_LAUNCHES * trips * HOPS * apart + 2 * chip.l2_bytes // ROW_BYTES if fresh else BOX_ROWS
        return Launch(1, 32, (*_tensor(rows, 1), Buffer("cursor", np.zeros(1, np.uint32))))

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        row = (HOPS * trips - 1) * apart if fresh else 0
        found, wanted = int(left[SINK][0]), int(left["data"].view(np.uint32)[row * ROW_BYTES // 4 + 1])
        return "" if found == wanted else f"the last row begins with {found:#x} and not {wanted:#x}"

    reading = Reading(
        f"latency of a tensor copy from {'DRAM' if fresh else 'L2'}", "cycles", TENSOR_LOAD, False, "cycles", 100, 5000,
        per="warp", field="lat_tma_load_dram" if fresh else "lat_tma_load_l2_hit",
    )  # fmt: skip
    words = "each time a row that nobody has touched" if fresh else "always the same row"
    return Microbenchmark(
        name, "copies", f"one thread loads 128 bytes and waits for them, {words}", kernel.text(), "sm_90", (8, 40),
        plan, lambda launch, trips: {TENSOR_LOAD: HOPS * trips, "bulk_load_bytes": HOPS * trips * ROW_BYTES}, check,
        (reading,),
    )  # fmt: skip


def _bulk_latency() -> Microbenchmark:
    trip: list[str] = []
    for hop in range(HOPS):
        trip += [
            f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {ROW_BYTES};",
            f"@%p0 {BULK_LOAD} [%r21], [%d0], {ROW_BYTES}, [%r20];",
            *_wait(f"LOADED_{hop}", "[%r20]", "%r5"),
            "xor.b32 %r5, %r5, 1;",
        ]
    kernel = Kernel(
        name="bulk_latency", threads=32, target="sm_90", version="8.0", parameters=(".u64 data",),
        smem=(".shared .align 128 .b8 smem[128];", _BARRIERS),
        setup=[*_opened(1), "mov.u32 %r21, smem;", load("%d0", "data"), "mov.u32 %r5, 0;"], trip=trip,
        finish=["ld.shared.b32 %r1, [%r21+4];"], result="%r1",
    )  # fmt: skip
    reading = Reading("latency of a bulk copy from L2", "cycles", BULK_LOAD, False, "cycles", 100, 5000, per="warp")
    return Microbenchmark(
        "bulk-latency-l2", "copies", "one thread loads 128 bytes without a tensor map and waits for them",
        kernel.text(), "sm_90", (8, 40), lambda chip, trips: Launch(1, 32, (Buffer("data", noise(ROW_BYTES)),)),
        lambda launch, trips: {BULK_LOAD: HOPS * trips, "bulk_load_bytes": HOPS * trips * ROW_BYTES},
        lambda launch, trips, left: (
            "" if left[SINK][0] == left["data"][1] else "the copy did not bring what is in memory"
        ),
        (reading,),
    )  # fmt: skip


# ---- bandwidths -------------------------------------------------------------------------------------------------


def _tensor_bandwidth(name: str, fresh: bool) -> Microbenchmark:
    """One thread of each SM keeps its slots full; the grid as a whole goes box after box."""
    trip: list[str] = []
    for slot in range(SLOTS):
        trip += [
            *_wait(f"FREE_{slot}", f"[%r20+{8 * slot}]", "%r5"),
            f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20+{8 * slot}], {BOX_BYTES};",
            f"@%p0 {TENSOR_LOAD} [%r21+{slot * BOX_BYTES}], [%d0, {{%r6, %r4}}], [%r20+{8 * slot}];",
            "add.u32 %r4, %r4, %r7;",
            *([] if fresh else ["setp.ge.u32 %p2, %r4, %r8;", "@%p2 sub.u32 %r4, %r4, %r8;"]),
        ]
    finish = ["mov.u32 %r1, 0;"]
    for slot in range(SLOTS):
        finish += [
            *_wait(f"DONE_{slot}", f"[%r20+{8 * slot}]", "%r5"),
            f"ld.shared.b32 %r9, [%r21+{slot * BOX_BYTES + 4}];",
            "xor.b32 %r1, %r1, %r9;",
        ]
    # the first round fills the slots; each trip waits for a slot and fills it again
    first: list[str] = []
    for slot in range(SLOTS):
        first += [
            f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20+{8 * slot}], {BOX_BYTES};",
            f"@%p0 {TENSOR_LOAD} [%r21+{slot * BOX_BYTES}], [%d0, {{%r6, %r4}}], [%r20+{8 * slot}];",
            "add.u32 %r4, %r4, %r7;",
            *([] if fresh else ["setp.ge.u32 %p2, %r4, %r8;", "@%p2 sub.u32 %r4, %r4, %r8;"]),
        ]
    kernel = Kernel(
        name=name.replace("-", "_"), threads=32, target="sm_90", version="8.0",
        parameters=(*_TENSOR_PARAMETERS, ".u32 step", ".u32 rows"),
        smem=(f".shared .align 1024 .b8 smem[{SLOTS * BOX_BYTES}];", _BARRIERS),
        setup=[
            *_opened(SLOTS), "mov.u32 %r21, smem;", *_MAP_ADDRESS, "mov.u32 %r5, 0;", "mov.u32 %r6, 0;",
            load("%r7", "step", "u32"), load("%r8", "rows", "u32"), f"mul.lo.u32 %r4, %cta, {BOX_ROWS};",
            "rem.u32 %r4, %r4, %r8;", *first,
        ],
        trip=[*trip, "xor.b32 %r5, %r5, 1;"], finish=finish, result="%r1",
    )  # fmt: skip

    def plan(chip: Chip, trips: int) -> Launch:
        if fresh:
            rows = max(chip.sms * (trips + 1) * SLOTS * BOX_ROWS, 4 * chip.l2_bytes // ROW_BYTES)
        else:
            rows = max(1, chip.l2_near_bytes // 2 // BOX_BYTES) * BOX_ROWS
        data, made = _tensor(rows, BOX_ROWS)
        rows = made.dims[1]
        return Launch(chip.sms, 32, (data, made, Number("step", chip.sms * BOX_ROWS % rows), Number("rows", rows)))

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        words = left["data"].view(np.uint32)[1 :: ROW_BYTES // 4]
        rows, step = launch.number("rows"), launch.number("step")
        last = np.arange(SLOTS) + trips * SLOTS
        rows_read = (np.arange(launch.grid)[:, None] * BOX_ROWS + last * step) % rows
        wanted = np.bitwise_xor.reduce(words[rows_read], axis=1)
        return "" if (left[SINK] == np.repeat(wanted, 32)).all() else "the last boxes are not those of the tensor"

    def counts(launch: Launch, trips: int) -> Counts:
        boxes = SLOTS * launch.grid * (trips + 1)
        return {"bulk_load_requests": boxes, "bulk_load_bytes": boxes * BOX_BYTES}

    source = "DRAM" if fresh else "L2"
    size = "a tensor of many times L2" if fresh else "half of what every SM can keep near in L2"
    return Microbenchmark(
        name, "copies", f"one thread of each SM keeps {SLOTS} boxes of 8 KiB under way, from {size}", kernel.text(),
        "sm_90", (100, 200) if fresh else (100, 300), plan, counts, check,
        (
            Reading(f"tensor copies from {source}", "GB/s", "bulk_load_bytes", True, "seconds", 20, 100_000, 1e-9),
            Reading(f"tensor copies from {source} per SM", "B/clk/SM", "bulk_load_bytes", True, "cycles", 1, 512),
        ),
    )  # fmt: skip


def _bulk_issue() -> Microbenchmark:
    """Copies of 16 bytes, 16 on each of four barriers: far more under way than the latency needs."""
    each, groups, bytes_ = 16, 4, 16
    issue = [
        line
        for group in range(groups)
        for line in (
            *_wait(f"FREE_{group}", f"[%r20+{8 * group}]", "%r5"),
            f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20+{8 * group}], {each * bytes_};",
            *(
                f"@%p0 {BULK_LOAD} [%r21+{place}], [%d0+{place}], {bytes_}, [%r20+{8 * group}];"
                for place in range(group * each * bytes_, (group + 1) * each * bytes_, bytes_)
            ),
        )
    ]
    first = [line for line in issue if not ("FREE" in line or "try_wait" in line)]
    finish = ["mov.u32 %r1, 0;"]
    for group in range(groups):
        finish += _wait(f"DONE_{group}", f"[%r20+{8 * group}]", "%r5")
        finish += [
            line
            for i in range(each)
            for line in (f"ld.shared.b32 %r9, [%r21+{(group * each + i) * bytes_}];", "xor.b32 %r1, %r1, %r9;")
        ]
    kernel = Kernel(
        name="bulk_issue", threads=32, target="sm_90", version="8.0", parameters=(".u64 data",),
        smem=(f".shared .align 128 .b8 smem[{groups * each * bytes_}];", _BARRIERS),
        setup=[*_opened(groups), "mov.u32 %r21, smem;", load("%d0", "data"), "mov.u32 %r5, 0;", *first],
        trip=[*issue, "xor.b32 %r5, %r5, 1;"], finish=finish, result="%r1",
    )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        wanted = np.bitwise_xor.reduce(left["data"][:: bytes_ // 4])
        return "" if left[SINK][0] == wanted else "the copies did not bring what is in memory"

    def counts(launch: Launch, trips: int) -> Counts:
        copies = each * groups * (trips + 1)
        return {BULK_LOAD: copies, "bulk_load_bytes": copies * bytes_}

    reading = Reading(
        "cycles from one copy of a thread to its next", "cycles", BULK_LOAD, False, "cycles", 1, 1000, per="warp",
        field="tma_issue_interval",
    )  # fmt: skip
    return Microbenchmark(
        "bulk-issue", "copies", "one thread issues copies of 16 bytes, 64 under way", kernel.text(), "sm_90", (8, 40),
        lambda chip, trips: Launch(1, 32, (Buffer("data", noise(groups * each * bytes_)),)), counts, check, (reading,),
    )  # fmt: skip


def _store_bandwidth() -> Microbenchmark:
    """One thread of each SM stores boxes of 8 KiB."""
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    word = 0x3C003C01
    kernel = Kernel(
        name="tma_stores", threads=32, target="sm_90", version="8.0", parameters=(*_TENSOR_PARAMETERS, ".u32 step"),
        smem=(f".shared .align 1024 .b8 smem[{BOX_BYTES}];",),
        setup=[
            "mov.u32 %r21, smem;", "shl.b32 %r22, %thread, 4;", "add.s32 %r22, %r21, %r22;", f"mov.u32 %r23, {word};",
            *(f"st.shared.v4.b32 [%r22+{i * 512}], {{%r23, %r23, %r23, %r23}};" for i in range(BOX_BYTES // 512)),
            "fence.proxy.async.shared::cta;", "bar.warp.sync 0xffffffff;", "elect.sync _|%p0, 0xffffffff;",
            *_MAP_ADDRESS, "mov.u32 %r6, 0;", load("%r7", "step", "u32"), f"mul.lo.u32 %r4, %cta, {BOX_ROWS};",
        ],
        trip=[
            f"@%p0 {store} [%d0, {{%r6, %r4}}], [%r21];", "@%p0 cp.async.bulk.commit_group;",
            "@%p0 cp.async.bulk.wait_group 4;", "add.u32 %r4, %r4, %r7;",
        ],
        finish=["@%p0 cp.async.bulk.wait_group 0;"],
    )  # fmt: skip

    def plan(chip: Chip, trips: int) -> Launch:
        rows = max(chip.sms * trips * BOX_ROWS, 4 * chip.l2_bytes // ROW_BYTES)
        _, made = _tensor(rows, BOX_ROWS)
        empty = Buffer("data", np.zeros(BOX_BYTES // 4, np.uint32), made.dims[1] * ROW_BYTES)
        return Launch(chip.sms, 32, (empty, made, Number("step", chip.sms * BOX_ROWS)))

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        end = launch.grid * trips * BOX_BYTES // 4
        words = left["data"].view(np.uint32)
        return "" if (words[:end] == word).all() and not words[end:].any() else "the boxes are not where they belong"

    def counts(launch: Launch, trips: int) -> Counts:
        boxes = launch.grid * trips
        return {"bulk_store_requests": boxes, "bulk_store_bytes": boxes * BOX_BYTES}

    reading = Reading("tensor copies to DRAM", "GB/s", "bulk_store_bytes", True, "seconds", 10, 100_000, 1e-9)
    return Microbenchmark(
        "tma-stores", "copies", "one thread of each SM stores boxes of 8 KiB, up to five under way", kernel.text(),
        "sm_90", (500, 1000), plan, counts, check, (reading,),
    )  # fmt: skip


def _cp_async() -> Microbenchmark:
    """Threads copy 16 bytes each, three groups under way, in a ring of four places."""
    opcode, threads, places = "cp.async.cg.shared.global", 256, 4
    chunk = threads * 16
    copy = [
        f"{opcode} [%r24+{{place}}], [%d2], 16;", "cp.async.commit_group;", "add.u32 %r1, %r1, %r2;",
        "setp.ge.u32 %p0, %r1, %r3;", "@%p0 sub.u32 %r1, %r1, %r3;", f"mul.wide.u32 %d1, %r1, {chunk};",
        "add.u64 %d2, %d0, %d1;",
    ]  # fmt: skip
    filling = [line.format(place=i * chunk) for i in range(places) for line in copy]
    trip: list[str] = []
    for i in range(places):
        trip += [f"cp.async.wait_group {places - 1};", f"ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r24+{i * chunk}];"]
        trip += [*folded("%r0", ["%r5", "%r6", "%r7", "%r8"]), *(line.format(place=i * chunk) for line in copy)]
    kernel = Kernel(
        name="cp_async", threads=threads, target="sm_80", parameters=(".u64 data", ".u32 step", ".u32 chunks"),
        smem=(f".shared .align 128 .b8 smem[{places * chunk}];",),
        setup=[
            load("%d0", "data"), load("%r2", "step", "u32"), load("%r3", "chunks", "u32"), "rem.u32 %r1, %cta, %r3;",
            "mul.wide.u32 %d1, %thread, 16;", "add.u64 %d0, %d0, %d1;", f"mul.wide.u32 %d1, %r1, {chunk};",
            "add.u64 %d2, %d0, %d1;", "mov.u32 %r20, smem;", "shl.b32 %r24, %thread, 4;", "add.s32 %r24, %r20, %r24;",
            "mov.u32 %r0, 0;", *filling,
        ],
        trip=trip, finish=["cp.async.wait_all;"], result="%r0",
    )  # fmt: skip
    ctas_per_sm = 4

    def plan(chip: Chip, trips: int) -> Launch:
        chunks, grid = max(1, chip.l2_near_bytes // 2 // chunk), chip.sms * ctas_per_sm
        data = Buffer("data", noise(chunk), chunks * chunk)
        return Launch(
            grid, threads, (data, Number("step", grid % chunks), Number("chunks", chunks)), rows=threads // 32,
            ctas_per_sm=ctas_per_sm,
        )  # fmt: skip

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        words = np.bitwise_xor.reduce(left["data"].view(np.uint32).reshape(-1, threads, 4), axis=2)
        wanted = np.zeros((launch.grid, threads), np.uint32)
        for step in range(places * trips):
            wanted ^= words[(np.arange(launch.grid) + step * launch.number("step")) % launch.number("chunks")]
        return "" if (left[SINK] == wanted.reshape(-1)).all() else "the copies did not bring what is in memory"

    def counts(launch: Launch, trips: int) -> Counts:
        copies = launch.warps * places * (trips + 1)
        return {opcode: copies, "shared_store_bytes": copies * 512}

    return Microbenchmark(
        "cp-async-l2", "copies", "8 warps in each of four CTAs of an SM keep four copies of 16 bytes a lane under way",
        kernel.text(), "sm_80", (50, 150), plan, counts, check,
        (
            Reading("cp.async from L2", "GB/s", "shared_store_bytes", True, "seconds", 20, 100_000, 1e-9),
            Reading("cp.async from L2 per SM", "B/clk/SM", "shared_store_bytes", True, "cycles", 1, 512),
        ),
    )  # fmt: skip
