"""A corpus of kernels with one planted bug each, and the fixed twin of each."""

# Sentences stay on one line, so that they can be searched for.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from instruction_bench import module


@dataclass(frozen=True)
class Bug:
    """A kernel body in which {bug} stands for the faulty or the fixed text.

    bad, good   what is put in; kind and sentence are those of the fault of the first
    parameters  of the entry; inputs are made by `make`
    """

    name: str
    body: str
    bad: str
    good: str
    kind: str
    sentence: str
    parameters: tuple[str, ...] = (".param .u64 a", ".param .u64 b")
    grid: int = 1
    block: int = 64
    elements: int = 64
    options: dict[str, Any] = field(default_factory=dict)
    head: str = ""

    def text(self, broken: bool) -> str:
        return module(self.body.replace("{bug}", self.bad if broken else self.good), self.parameters, head=self.head)

    def arguments(self) -> list[Any]:
        a = np.arange(self.elements, dtype=np.uint32) + 1
        return [a, np.zeros(self.elements, np.uint32)][: len(self.parameters)]


PROLOGUE = """
.reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<4>; .reg .f32 %f<8>;
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
mul.wide.u32 %rd3, %r4, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
"""
SHARED = PROLOGUE + ".shared .align 16 .b8 s[256]; mov.u32 %r5, s; shl.b32 %r6, %r1, 2; add.u32 %r7, %r5, %r6;\n"
# Thread t reads what thread 63 - t wrote: the other warp.
REVERSED = "xor.b32 %r8, %r6, 252; add.u32 %r9, %r5, %r8;\n"
COPY = "cp.async.ca.shared.global [%r7], [%rd4], 4;\ncp.async.commit_group;\n"

CORPUS: tuple[Bug, ...] = (
    Bug(
        "wait for a commit group is missing",
        SHARED + REVERSED + COPY + "{bug}\nbar.sync 0;\nld.shared.u32 %r10, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "", "cp.async.wait_group 0;", "race",
        "reads 4 bytes at shared address 0x4fc into which the cp.async on line 14 by warp 1 may still be copying: that "
        "warp must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync",
    ),
    Bug(
        "wait leaves one group too many",
        SHARED + COPY + "cp.async.wait_group {bug};\nld.shared.u32 %r10, [%r7];\nst.global.u32 [%rd5], %r10;\nret;",
        "1", "0", "race",
        "reads 4 bytes at shared address 0x400 into which the cp.async on line 13 by warp 0 may still be copying: that "
        "warp must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync",
    ),
    Bug(
        "barrier after the wait is missing",
        SHARED + REVERSED + COPY + "cp.async.wait_all;\n{bug}\nld.shared.u32 %r10, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "", "bar.sync 0;", "race",
        "reads 4 bytes at shared address 0x4fc that warp 1 wrote on line 14, and no barrier orders the two: put bar.sync "
        "between them",
    ),
    Bug(
        "barrier before the wait instead of after it",
        SHARED + REVERSED + COPY + "{bug}\nld.shared.u32 %r10, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "bar.sync 0;\ncp.async.wait_all;", "cp.async.wait_all;\nbar.sync 0;", "race",
        "reads 4 bytes at shared address 0x4fc that warp 1 wrote on line 14, and no barrier orders the two: put bar.sync "
        "between them",
    ),
    Bug(
        "barrier between store and load is missing",
        SHARED + REVERSED + "st.shared.u32 [%r7], %r1;\n{bug}\nld.shared.u32 %r10, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "", "bar.sync 0;", "race",
        "reads 4 bytes at shared address 0x4fc that warp 1 wrote on line 14, and no barrier orders the two: put bar.sync "
        "between them",
    ),
    Bug(
        "barrier before the buffer is written again is missing",
        SHARED + REVERSED + "st.shared.u32 [%r7], %r1;\nbar.sync 0;\nld.shared.u32 %r10, [%r9];\n{bug}\n"
        "st.shared.u32 [%r7], %r10;\nst.global.u32 [%rd5], %r10;\nret;",
        "", "bar.sync 0;", "race",
        "overwrites 4 bytes at shared address 0x480 that warp 0 may still be reading on line 16: every warp must pass bar.sync after "
        "its last read before anyone writes there",
    ),
    Bug(
        "copy is issued into a stage that others still read",
        SHARED + REVERSED + "st.shared.u32 [%r7], %r1;\nbar.sync 0;\nld.shared.u32 %r10, [%r9];\n{bug}\n" + COPY
        + "cp.async.wait_all;\nst.global.u32 [%rd5], %r10;\nret;",
        "", "bar.sync 0;", "race",
        "overwrites 4 bytes at shared address 0x480 that warp 0 may still be reading on line 16: every warp must pass bar.sync after "
        "its last read before anyone writes there",
    ),
    Bug(
        "two warps write one word",
        SHARED + "st.shared.u32 [{bug}], %r1;\nld.shared.u32 %r10, [%r7];\nst.global.u32 [%rd5], %r10;\nret;",
        "%r5", "%r7", "race",
        "writes 4 bytes at shared address 0x400, to which another thread writes a different value in the same "
        "instruction: give each thread its own bytes, or use atomics",
    ),
    Bug(
        "named barrier covers one warp of two",
        SHARED + REVERSED + "st.shared.u32 [%r7], %r1;\n{bug}\nld.shared.u32 %r10, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "shr.u32 %r11, %r1, 5;\nadd.u32 %r11, %r11, 1;\nbar.sync %r11, 32;", "bar.sync 1, 64;", "race",
        "reads 4 bytes at shared address 0x4fc that warp 1 wrote on line 14, and no barrier orders the two: put bar.sync "
        "between them",
    ),
    Bug(
        "the last element is read one past the end",
        PROLOGUE + "ld.global.u32 %r10, [%rd4{bug}];\nst.global.u32 [%rd5], %r10;\nret;",
        "+4", "", "out of bounds",
        "load of 4 bytes at global address 0x100000000100 is out of bounds: a has 256 bytes, and this is byte 256 to 259 "
        "of it",
    ),
    Bug(
        "the edge is not guarded",
        PROLOGUE + "setp.lt.u32 %p1, %r4, {bug};\n@%p1 ld.global.u32 %r10, [%rd4];\n@%p1 st.global.u32 [%rd5], %r10;\nret;",
        "64", "50", "out of bounds",
        "load of 4 bytes at global address 0x1000000000c8 is out of bounds: a has 200 bytes, and this is byte 200 to 203 "
        "of it",
        elements=50,
    ),
    Bug(
        "a pointer before the buffer",
        PROLOGUE + "ld.global.u32 %r10, [%rd4+{bug}];\nst.global.u32 [%rd5], %r10;\nret;",
        "-4", "0", "out of bounds",
        "load of 4 bytes at global address 0xffffffffffc is out of bounds: it is 4 bytes before a",
    ),
    Bug(
        "shared array is one row too small",
        SHARED + "{bug}\nst.shared.u32 [%r7], %r1;\nret;",
        "add.u32 %r7, %r7, 4;", "", "out of bounds",
        "store of 4 bytes at shared address 0x500 is out of bounds: s has 256 bytes, and this is byte 256 to 259",
    ),
    Bug(
        "local array is indexed past its end",
        PROLOGUE + ".local .align 4 .b8 l[16];\nmov.u64 %rd6, l;\nst.local.u32 [%rd6+{bug}], %r1;\nret;",
        "16", "12", "out of bounds",
        "store of 4 bytes at local address 0x10 is out of bounds: l has 16 bytes, and this is byte 16 to 19",
    ),
    Bug(
        "vector access at a scalar's address",
        PROLOGUE + "setp.lt.u32 %p1, %r1, 8;\n{bug}\n@%p1 ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd6];\nret;",
        "mov.u64 %rd6, %rd4;", "shl.b64 %rd6, %rd3, 2; add.u64 %rd6, %rd6, %rd1;", "misaligned",
        "load of 16 bytes at global address 0x100000000004 is misaligned: it must be a multiple of 16, but the remainder "
        "is 4",
    ),
    Bug(
        "shared vector access is misaligned",
        SHARED + "add.u32 %r7, %r5, {bug};\nst.shared.v2.u32 [%r7], {%r5, %r5};\nret;",
        "4", "8", "misaligned",
        "store of 8 bytes at shared address 0x404 is misaligned: it must be a multiple of 8, but the remainder is 4",
    ),
    Bug(
        "ldmatrix row is misaligned",
        SHARED + "st.shared.u32 [%r7], %r1;\nbar.sync 0;\nand.b32 %r8, %r1, 7;\nmad.lo.u32 %r9, %r8, {bug}, %r5;\n"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r9];\nst.global.u32 [%rd5], %r10;\nret;",
        "24", "32", "misaligned",
        "ldmatrix of 16 bytes at shared address 0x418 is misaligned: it must be a multiple of 16, but the remainder is 8",
    ),
    Bug(
        "a register is stored that only some paths set",
        PROLOGUE + "setp.lt.u32 %p1, %r1, 40;\n{bug}\n@%p1 mov.u32 %r10, 5;\nst.global.u32 [%rd5], %r10;\nret;",
        "", "mov.u32 %r10, 0;", "uninitialised",
        "stores a value that was never initialised to global address 0x1020000000a0: give the register or the memory it "
        "came from a value first",
    ),
    Bug(
        "shared memory is read before it is written",
        SHARED + "{bug}\nld.shared.u32 %r10, [%r7];\nadd.u32 %r10, %r10, 1;\nst.global.u32 [%rd5], %r10;\nret;",
        "", "st.shared.u32 [%r7], %r1;", "uninitialised",
        "stores a value that was never initialised to global address 0x102000000000: give the register or the memory it "
        "came from a value first",
    ),
    Bug(
        "an uninitialised value decides a branch",
        SHARED + "{bug}\nld.shared.u32 %r10, [%r7];\nsetp.eq.u32 %p1, %r10, 0;\n@%p1 bra L;\nst.global.u32 [%rd5], %r1;\nL: ret;",
        "", "st.shared.u32 [%r7], %r1;", "uninitialised",
        "%p1 decides a branch, but it holds a value that was never initialised: give it a value on every path to here",
    ),
    Bug(
        "an uninitialised value forms an address",
        SHARED + "{bug}\nld.shared.u32 %r10, [%r7];\nmul.wide.u32 %rd6, %r10, 4;\nadd.u64 %rd6, %rd6, %rd1;\n"
        "ld.global.u32 %r11, [%rd6];\nst.global.u32 [%rd5], %r11;\nret;",
        "", "st.shared.u32 [%r7], %r1;", "uninitialised",
        "%rd6 forms an address, but it holds a value that was never initialised: give it a value on every path to here",
    ),
    Bug(
        "a shared counter is not zeroed",
        SHARED + "{bug}\nred.shared.add.u32 [%r5], 1;\nret;",
        "", "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r5], 0;\nbar.sync 0;", "uninitialised",
        "an atomic updates shared address 0x400, which was never initialised: store a value there first, and pass a "
        "barrier",
    ),
    Bug(
        "two CTAs write the same element",
        PROLOGUE + "{bug}\nadd.u32 %r10, %r4, 1;\nst.global.u32 [%rd5], %r10;\nret;",
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd5, %rd2, %rd3;", "", "race",
        "writes byte 0 of b (global address 0x102000000000), to which another thread writes a different value "
        "in the same instruction: give each thread its own bytes, or use atomics",
        grid=2, elements=128,
    ),
    Bug(
        "a CTA reads what another one writes",
        PROLOGUE + "st.global.u32 [%rd5], %r4;\nmul.wide.u32 %rd6, %r1, 4;\nadd.u64 %rd6, %rd6, %rd2;\n"
        "ld.global.u32 %r10, [{bug}];\nret;",
        "%rd6", "%rd5", "race",
        "reads 4 bytes at byte 0 of b (global address 0x102000000000) that CTA (0, 0, 0) wrote on line 12, and nothing orders the "
        "two: CTAs run in any order: use atomics, or give each CTA its own bytes",
        grid=2, elements=128,
    ),
    Bug(
        "warps exchange through global memory without a barrier",
        PROLOGUE + "st.global.u32 [%rd5], %r4;\n{bug}\nxor.b32 %r8, %r1, 32;\nmul.wide.u32 %rd6, %r8, 4;\n"
        "add.u64 %rd6, %rd6, %rd2;\nld.global.u32 %r10, [%rd6];\nret;",
        "", "bar.sync 0;", "race",
        "reads 4 bytes at byte 128 of b (global address 0x102000000080) that warp 1 of the same CTA wrote on line 12, and nothing "
        "orders the two: put bar.sync between the two",
    ),
    Bug(
        "a barrier that one warp skips",
        PROLOGUE + "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra {bug};\nW: bar.sync 1, 64;\nX: ret;",
        "X", "W", "deadlock",
        "deadlock: barrier 1 has 32 of 64 threads (warps 0), and no other thread can run: warp 1 has exited. Every thread "
        "that the barrier counts must reach it",
    ),
    Bug(
        "two warps wait at different barriers",
        PROLOGUE + "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra B;\nbar.sync 1, 64;\nret;\nB: bar.sync {bug}, 64;\nret;",
        "2", "1", "deadlock",
        "deadlock: barrier 1 has 32 of 64 threads (warps 0), and no other thread can run: warp 1 waits at barrier 2 on "
        "line 16. Every thread that the barrier counts must reach it",
    ),
    Bug(
        "a barrier inside a divergent branch",
        PROLOGUE + "setp.lt.u32 %p1, %r1, 16;\nmov.u32 %r10, 0;\n{bug}\nbar.sync 0;\nL: st.global.u32 [%rd5], %r10;\nret;",
        "@%p1 bra L;", "", "barrier",
        "`bar.sync` is executed by 16 of the warp's 32 live lanes: all lanes of a warp must reach it together, so take it "
        "out of the branch that parted them",
    ),
    Bug(
        "different thread counts at one barrier",
        PROLOGUE + "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra B;\nbar.sync 1, 64;\nret;\nB: bar.sync 1, {bug};\nret;",
        "32", "64", "barrier",
        "barrier 1 is used with 32 threads here, but with 64 threads by the threads that reached it on line 14: all must "
        "give the same count",
    ),
    Bug(
        "a thread count that is no number of warps",
        PROLOGUE + "bar.sync 1, {bug};\nret;",
        "48", "64", "barrier",
        "the thread count of barrier 1 is 48: it must be a positive multiple of 32",
    ),
    Bug(
        "a shuffle names lanes that went elsewhere",
        PROLOGUE + "setp.lt.u32 %p1, %r1, 16;\nmov.u32 %r10, 0;\n@!%p1 bra L;\n"
        "shfl.sync.bfly.b32 %r10, %r1, 1, 31, {bug};\nL: st.global.u32 [%rd5], %r10;\nret;",
        "-1", "0xffff", "collective",
        "the member mask 0xffffffff of `shfl.sync.bfly.b32` names lane 16, which does not execute it: name only lanes "
        "that get here together (executing: 0x0000ffff)",
    ),
    Bug(
        "a shuffle does not name a lane that executes it",
        PROLOGUE + "shfl.sync.bfly.b32 %r10, %r1, 1, 31, {bug};\nst.global.u32 [%rd5], %r10;\nret;",
        "0xffff", "-1", "collective",
        "lane 16 executes `shfl.sync.bfly.b32`, but its member mask 0x0000ffff does not name that lane",
    ),
    Bug(
        "ldmatrix in a divergent branch",
        SHARED + "st.shared.u32 [%r7], %r1;\nbar.sync 0;\nsetp.lt.u32 %p1, %r1, {bug};\n@!%p1 bra L;\n"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r5];\nL: ret;",
        "8", "32", "collective",
        "`ldmatrix.sync.aligned.m8n8.x1.shared.b16` is executed by 8 of the warp's 32 lanes: all 32 must execute it "
        "together",
    ),
    Bug(
        "src-size is larger than the copy",
        SHARED + "mov.u32 %r10, {bug};\ncp.async.ca.shared.global [%r7], [%rd4], 4, %r10;\ncp.async.wait_all;\nret;",
        "8", "2", "asynchronous copy",
        "src-size is 8, but cp.async copies 4 bytes: src-size must be 0 to 4",
    ),
    Bug(
        "a ragged copy reads past the end",
        SHARED + "setp.lt.u32 %p1, %r4, 50;\nselp.u32 %r10, 4, {bug}, %p1;\n"
        "cp.async.ca.shared.global [%r7], [%rd4], 4, %r10;\ncp.async.wait_all;\nret;",
        "4", "0", "out of bounds",
        "cp.async of 4 bytes at global address 0x1000000000c8 is out of bounds: a has 200 bytes, and this is byte 200 to "
        "203 of it",
        elements=50,
    ),
    Bug(
        "a store into constant memory",
        PROLOGUE + "{bug}\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 st.u32 [%rd6], %r1;\nret;",
        "cvta.const.u64 %rd6, t;", "mov.u64 %rd6, %rd5;", "read-only",
        "store to t, which is constant memory and cannot be written",
        head=".const .align 4 .u32 t = 7;",
    ),
    Bug(
        "a trap",
        PROLOGUE + "setp.gt.u32 %p1, %r1, {bug};\n@%p1 trap;\nret;",
        "40", "63", "trap", "the kernel stopped itself (trap, or a failed assertion)",
    ),
    Bug(
        "a jump beyond the table",
        PROLOGUE + "T: .branchtargets A, B;\nand.b32 %r10, %r1, {bug};\nbrx.idx %r10, T;\nA: ret;\nB: ret;",
        "3", "1", "launch", "brx.idx has 2 targets, but its index is 2",
    ),
)  # fmt: skip
