"""Kernels around tcgen05 with one planted bug each: the fault in full; the twin without the bug runs clean."""

# Sentences stay on one line, so that they can be searched for.
# ruff: noqa: E501

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tcgen05_kernels import (
    COMMIT,
    WAIT,
    Image,
    Tile,
    check_spelling,
    clear,
    codes_of,
    descriptor,
    enable,
    kernel,
    one_thread,
    read_back,
)

from tinygpu.ptx.emulator import EmulationFault, emulate

N = 32
IDESC = 1 << 4 | 1 << 7 | 1 << 10 | N // 8 << 17 | 8 << 24


def image() -> Image:
    """A and B of 128 and 32 rows of 16 bf16, 32B swizzle: at 0 and 4096."""
    rng = np.random.default_rng(0)
    result = Image()
    for rows in (128, N):
        tile = Tile(codes_of(rng.integers(-2, 3, (rows, 16)), "bf16"), 16, "32B")
        result.add(tile.image())
    return result


SIZE = image().data.size
DESC = Tile(np.zeros((8, 16), np.int64), 16, "32B").descriptor
OPERANDS = descriptor(3, DESC, 0) + descriptor(4, DESC, 4096) + enable(5, False)
MMA = f"tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd3, %rd4, {IDESC:#x}, %p5;\n"
PLAIN = one_thread(OPERANDS + MMA) + read_back(N)
# Thread 0 multiplies; all read; then thread 0 multiplies again, into the same accumulator.
AGAIN = (
    one_thread(OPERANDS + MMA)
    + read_back(N).replace("tcgen05.wait::ld.sync.aligned;\n", "{bug}")
    + "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n@!%p1 bra SECOND;\n"
    + MMA
    + "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4];\nSECOND:\n"
    + WAIT.replace("WAIT", "AGAIN").replace(", 0;", ", 1;")
)


@dataclass(frozen=True)
class Bug:
    """A kernel body in which {bug} stands for the faulty or the fixed text; `after` replaces parts of the whole kernel."""

    name: str
    body: str
    bad: str
    good: str
    kind: str
    sentence: str
    columns: int = 64
    changes: tuple[tuple[str, str], ...] = ()
    legal_text: bool = True
    orders: tuple[str, ...] = ("late", "early", "random")

    def __str__(self) -> str:
        return self.name

    def text(self, broken: bool) -> str:
        body = self.body.replace("{bug}", self.bad if broken else self.good)
        whole = kernel(body, SIZE, self.columns)
        for old, new in self.changes:
            assert old in whole
            whole = whole.replace(old, new.replace("{bug}", self.bad if broken else self.good))
        return whole


CORPUS: tuple[Bug, ...] = (
    Bug(
        "columns are never given back",
        PLAIN,
        "",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 64;",
        "tensor memory",
        "the CTA exits with 64 columns of tensor memory allocated (line 34): tcgen05.dealloc must give them back before",
        changes=(("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 64;", "{bug}"),),
    ),
    Bug(
        "the accumulator ends beyond what is allocated",
        one_thread(OPERANDS + MMA.replace("[%r6]", "[%r6+16]")) + read_back(N, 16),
        "32",
        "64",
        "tensor memory",
        "`tcgen05.mma.cta_group::1.kind::f16` accesses lanes 0 to 127, columns 16 to 47 of tensor memory, but column 32 is not allocated: the CTA holds columns 0 to 31",
        changes=(("[slot], 64;", "[slot], {bug};"), ("%r6, 64;", "%r6, {bug};")),
    ),
    Bug(
        "columns are used before they are allocated",
        "{bug}" + PLAIN,
        "shl.b32 %r15, %r2, 21;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r15+200];\n",
        "",
        "tensor memory",
        "`tcgen05.ld.sync.aligned.32x32b.x1.b32` accesses lanes 0 to 31, column 200 of tensor memory, but column 200 is not allocated: the CTA holds columns 0 to 63",
    ),
    Bug(
        "columns are used after they were given back",
        PLAIN,
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r6];\n",
        "",
        "tensor memory",
        "`tcgen05.ld.sync.aligned.32x32b.x1.b32` accesses lanes 0 to 31, column 0 of tensor memory, but column 0 was deallocated on line 100",
        changes=(("FREED:\n", "{bug}FREED:\n"),),
    ),
    Bug(
        "a warp reaches for another's lanes",
        one_thread(OPERANDS + MMA)
        + "shl.b32 %r15, %r2, {bug};\nadd.u32 %r15, %r15, %r6;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r15];\ntcgen05.wait::ld.sync.aligned;\n",
        "22",
        "21",
        "tensor memory",
        "`tcgen05.ld` of warp 1 addresses lane 64, but it reaches lanes 32 to 63 only: put 32 into bits 31:16 of the address",
    ),
    Bug(
        "sixteen lanes start at the eighth",
        one_thread(OPERANDS + MMA)
        + "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\ntcgen05.ld.sync.aligned.16x64b.x1.b32 {%r20}, [%r15+{bug}];\ntcgen05.wait::ld.sync.aligned;\n",
        str(8 << 16),
        str(16 << 16),
        "tensor memory",
        "`tcgen05.ld` of warp 0 starts at lane 8: a shape of 16 lanes starts at lane 0 or 16",
    ),
    Bug(
        "lanes of a warp give different addresses",
        one_thread(OPERANDS + MMA)
        + "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\n{bug}tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r15];\ntcgen05.wait::ld.sync.aligned;\n",
        "add.u32 %r15, %r15, %laneid;\n".replace("%laneid", "%r18"),
        "",
        "collective",
        "`tcgen05.ld.sync.aligned.32x32b.x1.b32` gets the address 0x1 in lane 1 and 0x0 in lane 0: all lanes of the warp must give the same",
        changes=(("mov.u32 %r5, slot;\n", "mov.u32 %r5, slot;\nand.b32 %r18, %r1, 1;\n"),),
    ),
    Bug(
        "a load is not waited for before the accumulator is overwritten",
        AGAIN,
        "",
        "tcgen05.wait::ld.sync.aligned;\n",
        "race",
        "writes lanes 0 to 31, columns 0 to 31 of tensor memory, which `tcgen05.ld` on line 62 (warp 0) may still be reading: tcgen05.wait::ld must come between them",
    ),
    Bug(
        "a store is not waited for before it is loaded",
        "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\nmov.u32 %r20, 5;\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%r15], {%r20};\n{bug}tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r15];\ntcgen05.wait::ld.sync.aligned;\n",
        "",
        "tcgen05.wait::st.sync.aligned;\n",
        "race",
        "reads lanes 0 to 31, column 0 of tensor memory, which `tcgen05.st` on line 43 (warp 0) may still be writing: tcgen05.wait::st must come between them",
    ),
    Bug(
        "a load is not waited for before the same warp stores",
        clear(1)
        + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r15];\n{bug}tcgen05.st.sync.aligned.32x32b.x1.b32 [%r15], {%r20};\ntcgen05.wait::st.sync.aligned;\n",
        "",
        "tcgen05.wait::ld.sync.aligned;\n",
        "race",
        "writes lanes 0 to 31, column 0 of tensor memory, which `tcgen05.ld` on line 48 (warp 0) may still be reading: tcgen05.wait::ld must come between them",
    ),
    Bug(
        "nobody waits for the product",
        "@!%p1 bra ISSUED;\n"
        + OPERANDS
        + MMA
        + COMMIT
        + "ISSUED:\n{bug}"
        + read_back(N)
        + WAIT.replace("WAIT", "LATER"),
        "",
        WAIT,
        "race",
        "reads lanes 0 to 31, columns 0 to 31 of tensor memory, which `tcgen05.mma` on line 51 (warp 0) may still be writing: its thread must commit it to an mbarrier (tcgen05.commit), and this one must wait for that",
    ),
    Bug(
        "another lane commits",
        "@!%p2 bra ISSUED;\n@!%p1 bra ISSUE;\nISSUE:\n"
        + OPERANDS
        + "@%p1 "
        + MMA
        + "setp.eq.u32 %p7, %r1, {bug};\n@%p7 "
        + COMMIT
        + "ISSUED:\n"
        + WAIT
        + read_back(N),
        "1",
        "0",
        "race",
        "reads lanes 0 to 31, columns 0 to 31 of tensor memory, which `tcgen05.mma` on line 53 (warp 0) may still be writing: its thread must commit it to an mbarrier (tcgen05.commit), and this one must wait for that",
    ),
    Bug(
        "every lane of a warp multiplies",
        "@!{bug} bra ISSUED;\n" + OPERANDS + MMA + "@%p1 " + COMMIT + "ISSUED:\n" + WAIT + read_back(N),
        "%p2",
        "%p1",
        "race",
        "writes lanes 0 to 127, columns 0 to 31 of tensor memory, which `tcgen05.mma` on line 51 (lane 0 of this warp) may still be writing: the work of different threads is not ordered; let one thread issue all of it (elect.sync)",
    ),
    Bug(
        "M is none",
        one_thread(OPERANDS + MMA.replace(f"{IDESC:#x}", "{bug}")),
        f"{IDESC - (2 << 24):#x}",
        f"{IDESC:#x}",
        "descriptor",
        "instruction descriptor 0x06080490: M is 96, but tcgen05.mma.cta_group::1.kind::f16 takes M = 64 or 128",
    ),
    Bug(
        "the constant bits of a matrix descriptor are others",
        one_thread(OPERANDS.replace(f"or.b64 %rd3, %rd3, {DESC:#x}", "or.b64 %rd3, %rd3, {bug}") + MMA),
        f"{DESC ^ 3 << 46:#x}",
        f"{DESC:#x}",
        "descriptor",
        "matrix descriptor 0xc000801000000040: the descriptor of A is illegal: its bits 46-48 are 0b010: they must be 0b001",
    ),
    Bug(
        "a swizzle that does not exist",
        one_thread(OPERANDS.replace(f"or.b64 %rd4, %rd4, {DESC:#x}", "or.b64 %rd4, %rd4, {bug}") + MMA),
        f"{DESC & ~(7 << 61) | 3 << 61:#x}",
        f"{DESC:#x}",
        "descriptor",
        "matrix descriptor 0x6000401000000140: the descriptor of B is illegal: its swizzle code (bits 61-63) is 3: it must be 0 (none), 1 (128B with 32-byte atoms), 2 (128B), 4 (64B) or 6 (32B)",
    ),
    Bug(
        "an operand ends outside of its variable",
        one_thread(OPERANDS.replace("add.u32 %r14, %r3, 4096;", "add.u32 %r14, %r3, {bug};") + MMA),
        "4224",
        "4096",
        "out of bounds",
        "B of tcgen05.mma of 1024 bytes at shared address 0x1480 is out of bounds: tile has 5120 bytes, and this is byte 4224 to 5247",
    ),
    Bug(
        "generic stores are not fenced for the asynchronous proxy",
        PLAIN,
        "",
        "fence.proxy.async.shared::cta;",
        "race",
        "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 0 wrote through the generic proxy on line 28, without fence.proxy.async between the two: the writing threads must execute fence.proxy.async after their stores, before the barrier",
        changes=(("fence.proxy.async.shared::cta;", "{bug}"),),
    ),
    Bug(
        "operands are overwritten while they may still be read",
        "@!%p1 bra ISSUED;\n"
        + OPERANDS
        + MMA
        + COMMIT
        + "ISSUED:\n{bug}@%p1 st.shared.u32 [tile], 0;\n"
        + WAIT.replace("WAIT", "LATER"),
        "",
        WAIT,
        "race",
        "overwrites 4 bytes at shared address 0x400 that asynchronous work on line 51 (tensor core work of warp 0) may still be reading: wait for its completion, and order the wait before this write",
    ),
    Bug(
        "too few columns",
        PLAIN,
        "48",
        "64",
        "tensor memory",
        "tcgen05.alloc of 48 columns: it must be 32, 64, 128, 256 or 512",
        changes=(
            ("[slot], 64;", "[slot], %r9;"),
            ("mov.u32 %r5, slot;\n", "mov.u32 %r5, slot;\nmov.u32 %r9, {bug};\n"),
        ),
    ),
    Bug(
        "a second allocation is larger",
        PLAIN
        + "bar.sync 0;\n@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {bug};\nbar.sync 0;\nld.shared.u32 %r8, [slot];\n@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, {bug};\n",
        "128",
        "64",
        "tensor memory",
        "tcgen05.alloc of 128 columns after one of 64: the number of columns must not grow from one allocation of a CTA to the next",
    ),
    Bug(
        "allocation after giving up the right to",
        "{bug}"
        + PLAIN
        + "bar.sync 0;\n@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;\nbar.sync 0;\nld.shared.u32 %r8, [slot];\n@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;\n",
        "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n",
        "",
        "tensor memory",
        "tcgen05.alloc after the CTA executed tcgen05.relinquish_alloc_permit on line 40: allocate everything before it",
    ),
    Bug(
        "more columns than there are",
        PLAIN
        + "bar.sync 0;\n@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {bug};\nbar.sync 0;\nld.shared.u32 %r8, [slot];\n@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, {bug};\n",
        "512",
        "128",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 97 for 512 columns of tensor memory, of which 0 are free; on line 98, barrier 0 has 96 of 128 threads (warps 1, 2, 3), and no other thread can run: warp 0 never comes. Every thread that the barrier counts must reach it",
        columns=512,
        changes=(("[slot], 512;", "[slot], {bug};"), ("%r6, 512;", "%r6, {bug};")),
    ),
    Bug(
        "another number of columns is given back",
        PLAIN,
        "32",
        "64",
        "tensor memory",
        "tcgen05.dealloc of 32 columns at column 0, where 64 were allocated on line 34: give back what was allocated",
        changes=(("%r6, 64;", "%r6, {bug};"),),
    ),
    Bug(
        "columns are given back before all have read them",
        PLAIN.replace("tcgen05.wait::ld.sync.aligned;\n", "{bug}"),
        "",
        "tcgen05.wait::ld.sync.aligned;\n",
        "race",
        "deallocates lanes 0 to 31, columns 0 to 31 of tensor memory, which `tcgen05.ld` on line 62 (warp 0) may still be reading: tcgen05.wait::ld must come between them",
    ),
    Bug(
        "two shapes on one accumulator",
        one_thread(OPERANDS + MMA + enable(5, True) + "{bug}"),
        MMA.replace(f"{IDESC:#x}", f"{IDESC - (2 << 17):#x}"),
        MMA,
        "race",
        "writes lanes 0 to 127, columns 0 to 15 of tensor memory, which `tcgen05.mma` on line 51 (warp 0) may still be writing: these two are not carried out in order of issue; commit the first to an mbarrier (tcgen05.commit) and wait for that",
    ),
    Bug(
        "D starts at lane 16",
        one_thread(OPERANDS + "add.u32 %r6, %r6, {bug};\n" + MMA),
        str(16 << 16),
        "0",
        "tensor memory",
        "D of M = 128 is addressed at lane 16 of tensor memory: its lane must be 0",
    ),
    Bug(
        "A is taken from an empty collector buffer",
        one_thread(
            OPERANDS
            + MMA.replace("kind::f16", "kind::f16{bug}")
            + enable(5, True)
            + MMA.replace("kind::f16", "kind::f16.collector::a::lastuse")
        ),
        "",
        ".collector::a::fill",
        "descriptor",
        ".collector::a::lastuse takes A from the collector buffer a, but nothing is in it: an earlier tcgen05.mma with .collector::a::fill must have loaded the same matrix",
    ),
    Bug(
        "a copy to a lane",
        one_thread(
            descriptor(5, 0x0000400800000000, 0)
            + "add.u32 %r18, %r6, {bug};\ntcgen05.cp.cta_group::1.32x128b.warpx4 [%r18], %rd5;\n"
        ),
        str(4 << 16),
        "0",
        "tensor memory",
        "tcgen05.cp.32x128b.warpx4 to lane 4 of tensor memory: the lane must be 0",
    ),
    Bug(
        "a shift of half a slab",
        clear(8) + one_thread("add.u32 %r18, %r6, {bug};\ntcgen05.shift.cta_group::1.down [%r18];\n"),
        str(16 << 16),
        str(32 << 16),
        "tensor memory",
        "tcgen05.shift at lane 16 of tensor memory: the lane must be 0, 32, 64 or 96",
    ),
    Bug(
        "the work of another thread is neither waited for nor fenced",
        "@!%p1 bra COPIED;\n"
        + descriptor(5, 0x0000400800000000, 0)
        + "tcgen05.cp.cta_group::1.128x128b [%r6+32], %rd5;\ntcgen05.cp.cta_group::1.128x128b [%r6+36], %rd5;\n{bug}COPIED:\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\nsetp.eq.u32 %p1, %r1, 32;\n"
        + one_thread(OPERANDS + MMA.replace("%rd3", "[%r6+32]"))
        + "setp.eq.u32 %p1, %r1, 0;\n@%p1 "
        + COMMIT
        + WAIT.replace("WAIT", "AGAIN").replace(", 0;", ", 1;"),
        "",
        "tcgen05.fence::before_thread_sync;\n",
        "race",
        "reads lanes 0 to 127, columns 32 to 35 of tensor memory, which `tcgen05.cp` on line 45 (warp 0) may still be writing: its thread must commit it to an mbarrier (tcgen05.commit), and this one must wait for that",
    ),
    Bug(
        "an mbarrier is gone when the work completes",
        "@%p1 mbarrier.init.shared::cta.b64 [bar2], 1;\nmov.u32 %r19, bar2;\nbar.sync 0;\n@!%p1 bra ISSUED;\n"
        + OPERANDS
        + MMA
        + COMMIT
        + COMMIT.replace("%r4", "%r19")
        + "ISSUED:\n{bug}@%p1 mbarrier.inval.shared::cta.b64 [bar];\n"
        + WAIT.replace("WAIT", "LATER").replace("[bar]", "[bar2]"),
        "",
        WAIT + "bar.sync 0;\n",
        "mbarrier",
        "uses shared address 0x1880 as an mbarrier, but it was invalidated on line 58",
        orders=("late",),
    ),
    Bug(
        "groups differ",
        one_thread(OPERANDS + MMA).replace("commit.cta_group::1", "commit.cta_group::{bug}"),
        "2",
        "1",
        "tensor memory",
        "`tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64` has .cta_group::2, but line 51 has .cta_group::1: all tcgen05 instructions of a kernel must have the same",
        legal_text=False,
    ),
)


def run(text: str, options: dict[str, Any]) -> Any:
    return emulate(text, grid=1, block=128, args=[image().data, np.zeros((128, N), np.float32)], **options)


@pytest.mark.parametrize(("bug", "order"), [(bug, order) for bug in CORPUS for order in bug.orders], ids=str)
def test_bugs_are_found(bug: Bug, order: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(bug.text(True), {"order": order})
    assert caught.value.kind == bug.kind
    # Which warp comes first is left to chance.
    said, wanted = (
        re.sub(r"lanes \d+ to \d+|lane \d+|warp \d+|put \d+", "", text) if order == "random" else text
        for text in (caught.value.sentence, bug.sentence)
    )
    assert said == wanted


@pytest.mark.sampled(6)
@pytest.mark.parametrize("bug", CORPUS, ids=lambda b: b.name)
def test_the_fixed_twin_runs_clean(bug: Bug) -> None:
    text = bug.text(False)
    if bug.legal_text:
        check_spelling(bug.text(True))
    check_spelling(text)
    for order in ("late", "early", "random"):
        report = run(text, {"order": order})
        assert report.faults == ()
        assert report.advisories == ()
