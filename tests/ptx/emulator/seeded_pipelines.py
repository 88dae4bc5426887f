"""Readable pipelines with planted bugs: a ring between warps, and one between the CTAs of a cluster."""

# Sentences stay on one line, so that they can be searched for.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEAD = ".version 8.3\n.target sm_90a\n.address_size 64\n"
ROUNDS = 8

# Warp 0 copies tiles of 512 bytes into a ring of three stages; warps 1 and 2 double one half each, and store it by bulk
# copies from a staging buffer of their own.
RING = (
    HEAD
    + """.visible .entry k(.param .u64 x, .param .u64 y)
{
    .reg .pred %p, %q, %first; .reg .b32 %r<30>; .reg .b64 %rd<10>; .reg .f32 %f<4>;
    .shared .align 8 .b64 full[3]; .shared .align 8 .b64 empty[3];
    .shared .align 128 .b8 stage[1536]; .shared .align 128 .b8 staging[512];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    and.b32 %r3, %r1, 31;
    setp.eq.u32 %first, %r3, 0;
    setp.ne.u32 %p, %r1, 0;
    @%p bra READY;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [full+16], 1;
    mbarrier.init.shared::cta.b64 [empty], 64;
    mbarrier.init.shared::cta.b64 [empty+8], 64;
    mbarrier.init.shared::cta.b64 [empty+16], 64;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    mov.u32 %r4, 0; // round
    mov.u32 %r5, 0; // stage
    setp.ne.u32 %p, %r2, 0;
    @%p bra CONSUMER;
    @!%first bra END;
    mov.u32 %r6, 1; // producer's phase
PRODUCE:
    mov.u32 %r7, full;
    mad.lo.u32 %r7, %r5, 8, %r7;
    mov.u32 %r8, empty;
    mad.lo.u32 %r8, %r5, 8, %r8;
    mov.u32 %r9, stage;
    mad.lo.u32 %r9, %r5, 512, %r9;
WAIT_EMPTY:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r8], %r6;
    @!%q bra WAIT_EMPTY;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1], 512, [%r7];
    add.u64 %rd1, %rd1, 512;
    add.u32 %r4, %r4, 1;
    add.u32 %r5, %r5, 1;
    setp.eq.u32 %q, %r5, 3;
    @%q xor.b32 %r6, %r6, 1;
    @%q mov.u32 %r5, 0;
    setp.lt.u32 %q, %r4, ROUNDS;
    @%q bra PRODUCE;
    bra END;
CONSUMER:
    sub.u32 %r10, %r2, 1;
    shl.b32 %r10, %r10, 8; // this warp's half of a tile
    shl.b32 %r11, %r3, 3;
    add.u32 %r12, %r10, %r11; // this lane's place in it
    mov.u32 %r13, staging;
    add.u32 %r14, %r13, %r10; // this warp's staging buffer
    add.u32 %r13, %r13, %r12;
    cvt.u64.u32 %rd3, %r10;
    add.u64 %rd2, %rd2, %rd3;
    mov.u32 %r6, 0; // consumer's phase
CONSUME:
    mov.u32 %r7, full;
    mad.lo.u32 %r7, %r5, 8, %r7;
    mov.u32 %r8, empty;
    mad.lo.u32 %r8, %r5, 8, %r8;
    mov.u32 %r9, stage;
    mad.lo.u32 %r9, %r5, 512, %r9;
    add.u32 %r9, %r9, %r12;
WAIT_FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r7], %r6;
    @!%q bra WAIT_FULL;
    ld.shared.v2.f32 {%f1, %f2}, [%r9];
    fence.proxy.async.shared::cta; // reads come before the next copy
    mbarrier.arrive.shared::cta.b64 _, [%r8];
    add.f32 %f1, %f1, %f1;
    add.f32 %f2, %f2, %f2;
    @%first cp.async.bulk.wait_group.read 0;
    bar.warp.sync -1;
    st.shared.v2.f32 [%r13], {%f1, %f2};
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    @%first cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r14], 256;
    @%first cp.async.bulk.commit_group;
    add.u64 %rd2, %rd2, 512;
    add.u32 %r4, %r4, 1;
    add.u32 %r5, %r5, 1;
    setp.eq.u32 %q, %r5, 3;
    @%q xor.b32 %r6, %r6, 1;
    @%q mov.u32 %r5, 0;
    setp.lt.u32 %q, %r4, ROUNDS;
    @%q bra CONSUME;
    @%first cp.async.bulk.wait_group 0;
END:
    ret;
}
""".replace("ROUNDS", str(ROUNDS))
)

# Each CTA of a pair copies half of every tile into the memory of both; all threads add up what comes. Slots are free
# when the threads of both CTAs have read them.
PAIR = (
    HEAD
    + """.visible .entry k(.param .u64 x, .param .u64 y)
{
    .reg .pred %p, %q; .reg .b32 %r<30>; .reg .b64 %rd<10>; .reg .b16 %h; .reg .f32 %f<4>;
    .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2]; .shared .align 128 .b8 slot[512];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra READY;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [empty], 128;
    mbarrier.init.shared::cta.b64 [empty+8], 128;
    fence.mbarrier_init.release.cluster;
READY:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    shl.b32 %r4, %r2, 7; // this CTA's half of a tile
    cvt.u64.u32 %rd3, %r4;
    add.u64 %rd1, %rd1, %rd3;
    mov.u16 %h, 3;
    mov.u32 %r5, 0; // round
    mov.f32 %f1, 0f00000000;
LOOP:
    and.b32 %r6, %r5, 1; // slot
    shr.u32 %r7, %r5, 1;
    and.b32 %r7, %r7, 1; // phase
    mov.u32 %r8, full;
    mad.lo.u32 %r8, %r6, 8, %r8;
    mov.u32 %r9, empty;
    mad.lo.u32 %r9, %r6, 8, %r9;
    mov.u32 %r10, slot;
    mad.lo.u32 %r10, %r6, 256, %r10;
    @%p bra WAIT_FULL;
    xor.b32 %r11, %r7, 1;
WAIT_EMPTY:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%r9], %r11;
    @!%q bra WAIT_EMPTY;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 256;
    add.u32 %r12, %r10, %r4;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r12], [%rd1], 128, [%r8], %h;
    add.u64 %rd1, %rd1, 256;
WAIT_FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r8], %r7;
    @!%q bra WAIT_FULL;
    shl.b32 %r13, %r1, 2;
    add.u32 %r13, %r13, %r10;
    ld.shared.f32 %f2, [%r13];
    add.f32 %f1, %f1, %f2;
    fence.proxy.async.shared::cta; // reads come before the next copy
    mbarrier.arrive.shared::cta.b64 _, [%r9];
    mapa.shared::cluster.u32 %r14, %r9, %r3;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %q, %r5, ROUNDS;
    @%q bra LOOP;
    mad.lo.u32 %r15, %r2, 64, %r1;
    mul.wide.u32 %rd4, %r15, 4;
    add.u64 %rd2, %rd2, %rd4;
    st.global.f32 [%rd2], %f1;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}
""".replace("ROUNDS", str(ROUNDS))
)


@dataclass(frozen=True)
class Bug:
    """A kernel that is right, and an edit (`old` to `new`, everywhere it stands; `also` one more) that makes it wrong.

    kind      of the fault; "advisory" or "wrong result" where there is none
    sentence  of the fault or advisory when asynchronous work is late
    """

    name: str
    kernel: str
    old: str
    new: str
    kind: str
    sentence: str = ""
    also: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """The wrong kernel; ValueError where an edit changes nothing."""
        text = self.kernel
        for old, new in ((self.old, self.new), *((self.also,) if self.also else ())):
            if old not in text:
                raise ValueError(f"{self.name}: there is no {old!r} in the kernel")
            text = text.replace(old, new)
        return text

    def options(self) -> tuple[dict[str, Any], NDArray[np.float32], NDArray[np.float32]]:
        """(how it is launched, the result, what it must become)."""
        if "%cluster_ctarank" in self.kernel:
            values = np.arange(ROUNDS * 64, dtype=np.float32)
            y = np.zeros(128, np.float32)
            options = {"grid": 2, "block": 64, "cluster": 2, "args": [values, y]}
            return options, y, np.tile(values.reshape(ROUNDS, 64).sum(axis=0), 2)
        values = np.arange(ROUNDS * 128, dtype=np.float32)
        y = np.zeros_like(values)
        return {"grid": 1, "block": 96, "args": [values, y]}, y, values * 2


PRODUCER_WAIT = "    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r8], %r6;\n    @!%q bra WAIT_EMPTY;\n"
CONSUMER_WAIT = "    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r7], %r6;\n    @!%q bra WAIT_FULL;\n"
READ = "    ld.shared.v2.f32 {%f1, %f2}, [%r9];\n"
READ_FENCE = "    fence.proxy.async.shared::cta; // reads come before the next copy\n"
RELEASE = "    mbarrier.arrive.shared::cta.b64 _, [%r8];\n"
STORE = "    @%first cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r14], 256;\n"
COMMIT = "    @%first cp.async.bulk.commit_group;\n"
STAGED = "    st.shared.v2.f32 [%r13], {%f1, %f2};\n    fence.proxy.async.shared::cta;\n    bar.warp.sync -1;\n"
READ_WAIT = "    @%first cp.async.bulk.wait_group.read 0;\n    bar.warp.sync -1;\n"
CLUSTER_BARRIER = "    barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;\n"
MULTICAST_WAIT = (
    "    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%r9], %r11;\n    @!%q bra WAIT_EMPTY;\n"
)
REMOTE_RELEASE = "    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];\n"

BUGS: tuple[Bug, ...] = (
    Bug("the consumers read the stage after the one they waited for", RING, "add.u32 %r9, %r9, %r12;\nWAIT", "add.u32 %r9, %r9, %r12; add.u32 %r9, %r9, 512;\nWAIT",
        "race",
        "reads 8 bytes at shared address 0x800 that asynchronous work on line 43 (what completes on mbarrier 0x408) may still be writing: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the consumers wait for the next stage's barrier", RING, "mov.u32 %r7, full;\n    mad.lo.u32 %r7, %r5, 8, %r7;\n    mov.u32 %r8, empty;\n    mad.lo.u32 %r8, %r5, 8, %r8;\n    mov.u32 %r9, stage;\n    mad.lo.u32 %r9, %r5, 512, %r9;\n    add", "add.u32 %r7, %r5, 1; rem.u32 %r7, %r7, 3; mov.u32 %r9, full;\n    mad.lo.u32 %r7, %r7, 8, %r9;\n    mov.u32 %r8, empty;\n    mad.lo.u32 %r8, %r5, 8, %r8;\n    mov.u32 %r9, stage;\n    mad.lo.u32 %r9, %r5, 512, %r9;\n    add",
        "race",
        "reads 8 bytes at shared address 0x600 that asynchronous work on line 43 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the ring wraps one stage too early for the consumers", RING, "setp.eq.u32 %q, %r5, 3;\n    @%q xor.b32 %r6, %r6, 1;\n    @%q mov.u32 %r5, 0;\n    setp.lt.u32 %q, %r4, 8;\n    @%q bra CONSUME;", "setp.eq.u32 %q, %r5, 2;\n    @%q xor.b32 %r6, %r6, 1;\n    @%q mov.u32 %r5, 0;\n    setp.lt.u32 %q, %r4, 8;\n    @%q bra CONSUME;",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x510 (initialised on line 22) has 0 completed phases, 0 of 64 arrivals; warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x400 (initialised on line 17) has 2 completed phases, 0 of 1 arrivals",
    ),
    Bug("the ring wraps one stage too late", RING, "setp.eq.u32 %q, %r5, 3;", "setp.eq.u32 %q, %r5, 4;",
        "out of bounds",
        "the mbarrier at shared address 0x518 is out of bounds: empty has 24 bytes, and this is byte 24 to 31",
    ),
    Bug("half of the bytes are expected", RING, "[%r7], 512;\n", "[%r7], 256;\n",
        "deadlock",
        "deadlock: no thread can run. warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 1 of 1 arrivals and has 256 transaction bytes more than were expected; warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 20) has 0 completed phases, 0 of 64 arrivals",
    ),
    Bug("twice the bytes are expected", RING, "_, [%r7], 512;", "_, [%r7], 1024;",
        "deadlock",
        "deadlock: no thread can run. warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 1 of 1 arrivals and waits for 512 more transaction bytes; warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 20) has 0 completed phases, 0 of 64 arrivals",
    ),
    Bug("nothing is expected", RING, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 512;", "mbarrier.arrive.shared::cta.b64 _, [%r7];",
        "race",
        "reads 8 bytes at shared address 0x600 that asynchronous work on line 43 (what completes on mbarrier 0x400) may still be writing: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the consumers begin with the other phase", RING, "mov.u32 %r6, 0; // consumer's", "mov.u32 %r6, 1; // consumer's",
        "race",
        "reads 8 bytes at shared address 0x600 that asynchronous work on line 43 (what completes on mbarrier 0x400) may still be writing: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the producer begins with the other phase", RING, "mov.u32 %r6, 1; // producer's", "mov.u32 %r6, 0; // producer's",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 20) has 0 completed phases, 0 of 64 arrivals; warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 0 of 1 arrivals; nothing has come to any of these mbarriers: who waits for room first waits for parity 1, which a fresh mbarrier lets pass",
    ),
    Bug("the phase flips with every round", RING, "@%q xor.b32 %r6, %r6, 1;", "xor.b32 %r6, %r6, 1;",
        "uninitialised",
        "cp.async.bulk stores 16 bytes at shared address 0xc80 to global memory, but they were never initialised: write them first, or copy less",
    ),
    Bug("the phase never flips", RING, "@%q xor.b32 %r6, %r6, 1;", "",
        "mbarrier",
        "1 arrivals at an mbarrier whose phase takes 0 more: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 1 of 1 arrivals and waits for 1024 more transaction bytes; the count of mbarrier.init must be that of all arrivals of a phase",
    ),
    Bug("the producer laps the consumers", RING, PRODUCER_WAIT, "",
        "mbarrier",
        "1 arrivals at an mbarrier whose phase takes 0 more: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 1 of 1 arrivals and waits for 1024 more transaction bytes; the count of mbarrier.init must be that of all arrivals of a phase",
    ),
    Bug("the consumers do not wait", RING, CONSUMER_WAIT, "",
        "race",
        "reads 8 bytes at shared address 0x600 that asynchronous work on line 43 (what completes on mbarrier 0x400) may still be writing: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("a stage is given back before it was read", RING, READ + READ_FENCE + RELEASE, RELEASE + READ + READ_FENCE,
        "race",
        "overwrites 16 bytes at shared address 0x600 that warp 1 may still be reading on line 76: every warp must pass bar.sync after its last read before anyone writes there",
    ),
    Bug("a stage is given back without a proxy fence behind the reads", RING, READ_FENCE, "",
        "advisory",
        "overwrites through the asynchronous proxy what was read through the generic proxy, without fence.proxy.async between the two",
    ),
    Bug("a stage is never given back", RING, RELEASE, "",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 20) has 0 completed phases, 0 of 64 arrivals; warp 1 waits on line 73 for parity 1 of an mbarrier: mbarrier 0x400 (initialised on line 17) has 1 completed phases, 0 of 1 arrivals",
    ),
    Bug("the empty barriers count one warp of two", RING, "[empty], 64;\n    mbarrier.init.shared::cta.b64 [empty+8], 64;\n    mbarrier.init.shared::cta.b64 [empty+16], 64;", "[empty], 32;\n    mbarrier.init.shared::cta.b64 [empty+8], 32;\n    mbarrier.init.shared::cta.b64 [empty+16], 32;",
        "mbarrier",
        "1 arrivals at an mbarrier whose phase takes 0 more: mbarrier 0x400 (initialised on line 17) has 1 completed phases, 1 of 1 arrivals and waits for 1024 more transaction bytes; the count of mbarrier.init must be that of all arrivals of a phase",
    ),
    Bug("the empty barriers count a warp too many", RING, ", 64;\n    fence.mb", ", 96;\n    fence.mb",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x510 (initialised on line 22) has 0 completed phases, 64 of 96 arrivals; warp 1 waits on line 73 for parity 1 of an mbarrier: mbarrier 0x410 (initialised on line 19) has 1 completed phases, 0 of 1 arrivals",
    ),
    Bug("the full barriers count an arrival that never comes", RING, "[full+8], 1;", "[full+8], 2;",
        "deadlock",
        "deadlock: no thread can run. warp 0 waits on line 40 for parity 0 of an mbarrier: mbarrier 0x508 (initialised on line 21) has 0 completed phases, 0 of 64 arrivals; warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x408 (initialised on line 18) has 0 completed phases, 1 of 2 arrivals",
    ),
    Bug("one lane gives the stage back for its warp, without bar.warp.sync", RING.replace(RELEASE, "    bar.warp.sync -1;\n    @%first mbarrier.arrive.shared::cta.b64 _, [%r8];\n").replace(", 64;", ", 2;"), "    bar.warp.sync -1;\n    @%first mbarrier.arrive", "    @%first mbarrier.arrive",
        "advisory",
        "relies on accesses of lanes of warp 1 that another lane of it released (by an arrival, a flag or a fence) without bar.warp.sync between the two",
    ),
    Bug("the barriers are used before they are made", RING, "READY:\n    bar.sync 0;", "READY:",
        "race",
        "uses mbarrier 0x400, which warp 0 initialised on line 17, and nothing orders the two: put bar.sync between them",
    ),
    Bug("the barriers are made again in every round", RING, "PRODUCE:\n", "PRODUCE:\n    mbarrier.init.shared::cta.b64 [full], 1;\n",
        "mbarrier",
        "initialises an mbarrier that is in use: mbarrier 0x400 (initialised on line 33) has 0 completed phases, 1 of 1 arrivals and waits for 512 more transaction bytes; invalidate it (mbarrier.inval) when nobody uses it any more",
    ),
    Bug("two barriers share their bytes", RING, "mov.u32 %r8, empty;\n    mad.lo.u32 %r8, %r5, 8, %r8;\n    mov.u32 %r9, stage;\n    mad.lo.u32 %r9, %r5, 512, %r9;\nWAIT", "mov.u32 %r8, empty;\n    mad.lo.u32 %r8, %r5, 4, %r8;\n    mov.u32 %r9, stage;\n    mad.lo.u32 %r9, %r5, 512, %r9;\nWAIT",
        "misaligned",
        "the mbarrier at shared address 0x504 is misaligned: it must be a multiple of 8, but the remainder is 4",
    ),
    Bug("the last stage ends beyond its buffer", RING, "stage[1536]", "stage[1280]",
        "out of bounds",
        "cp.async.bulk of 512 bytes at shared address 0xa00 is out of bounds: stage has 1280 bytes, and this is byte 1024 to 1535",
    ),
    Bug("the staging buffer is not fenced for the bulk store", RING, "    fence.proxy.async.shared::cta;\n", "",
        "race",
        "reads through the asynchronous proxy 16 bytes at shared address 0xc80 that warp 1 wrote through the generic proxy on line 82, without fence.proxy.async between the two: the writing threads must execute fence.proxy.async after their stores, before the barrier",
    ),
    Bug("the fence stands before the stores", RING, STAGED, "    fence.proxy.async.shared::cta;\n    st.shared.v2.f32 [%r13], {%f1, %f2};\n    bar.warp.sync -1;\n",
        "race",
        "reads through the asynchronous proxy 16 bytes at shared address 0xc80 that warp 1 wrote through the generic proxy on line 83, without fence.proxy.async between the two: the writing threads must execute fence.proxy.async after their stores, before the barrier",
    ),
    Bug("one lane stores what the others wrote, without bar.warp.sync", RING, STAGED, STAGED.replace("    bar.warp.sync -1;\n", ""),
        "advisory",
        "a lane issues asynchronous work on what another lane of its warp wrote, without bar.warp.sync between the two",
    ),
    Bug("the staging buffer is used again while it is read", RING, "    @%first cp.async.bulk.wait_group.read 0;\n", "",
        "race",
        "overwrites 8 bytes at shared address 0xc80 that asynchronous work on line 84 (a bulk copy that warp 1 issued) may still be reading: wait for its completion, and order the wait before this write",
    ),
    Bug("too many bulk stores may still read the staging buffer", RING, "wait_group.read 0", "wait_group.read 1",
        "race",
        "overwrites 8 bytes at shared address 0xc80 that asynchronous work on line 85 (a bulk copy that warp 1 issued) may still be reading: wait for its completion, and order the wait before this write",
    ),
    Bug("the bulk stores are never committed", RING, COMMIT, "",
        "race",
        "overwrites 8 bytes at shared address 0xc80 that asynchronous work on line 85 (a bulk copy that warp 1 issued) may still be reading: wait for its completion, and order the wait before this write",
    ),
    Bug("the CTA exits while its memory is read", RING, "    @%first cp.async.bulk.wait_group 0;\n", "",
        "advisory",
        "this CTA exits, but the copy of line 85 may still read its shared memory: the issuing thread should execute cp.async.bulk.wait_group.read 0 (after commit_group) before it exits",
    ),
    Bug("a consumer leaves one round early", RING, "setp.lt.u32 %q, %r4, 8;\n    @%q bra CONSUME;", "sub.u32 %r20, 9, %r2; setp.lt.u32 %q, %r4, %r20;\n    @%q bra CONSUME;",
        "wrong result",
        "",
    ),
    Bug("the producer stops one round early", RING, "setp.lt.u32 %q, %r4, 8;\n    @%q bra PRODUCE;", "setp.lt.u32 %q, %r4, 7;\n    @%q bra PRODUCE;",
        "deadlock",
        "deadlock: no thread can run. warp 1 waits on line 73 for parity 0 of an mbarrier: mbarrier 0x408 (initialised on line 18) has 2 completed phases, 0 of 1 arrivals",
    ),
    Bug("the producer copies one tile too many", RING, "setp.lt.u32 %q, %r4, 8;\n    @%q bra PRODUCE;", "setp.lt.u32 %q, %r4, 9;\n    @%q bra PRODUCE;",
        "out of bounds",
        "cp.async.bulk of 16 bytes at global address 0x100000001000 is out of bounds: x has 4096 bytes, and this is byte 4096 to 4111 of it",
    ),
    Bug("every lane of the producer issues the copies", RING, "    @!%first bra END;\n", "",
        "mbarrier",
        "32 arrivals at an mbarrier whose phase takes 1 more: mbarrier 0x400 (initialised on line 17) has 0 completed phases, 0 of 1 arrivals and waits for 16384 more transaction bytes; the count of mbarrier.init must be that of all arrivals of a phase",
    ),
    Bug("the halves of the consumers overlap", RING, "shl.b32 %r10, %r10, 8;", "shl.b32 %r10, %r10, 7;",
        "race",
        "reads 16 bytes at shared address 0xd00 that warp 2 wrote on line 82, and no barrier orders the two: put bar.sync between them",
    ),
    Bug("the CTAs begin without meeting", PAIR, "READY:\n" + CLUSTER_BARRIER, "READY:\n    bar.sync 0;\n",
        "race",
        "uses mbarrier 0x400, which warp 0 of the cluster's CTA 1 initialised on line 15, and nothing orders the two: fence.mbarrier_init.release.cluster and a cluster barrier must lie between them",
    ),
    Bug("a CTA exits while the other one arrives at its barrier", PAIR, CLUSTER_BARRIER + "    ret;", "    ret;",
        "advisory",
        "a CTA exits here, and warp 0 of the cluster's CTA 1 may still arrive on an mbarrier of it (line 58): all CTAs must stay until a last cluster barrier",
    ),
    Bug("the initialisation is not released to the cluster", PAIR.replace("barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;\n    shl", "barrier.cluster.arrive.relaxed.aligned;\n    barrier.cluster.wait.aligned;\n    shl"), "    fence.mbarrier_init.release.cluster;\n", "",
        "race",
        "uses mbarrier 0x400, which warp 0 of the cluster's CTA 1 initialised on line 15, and nothing orders the two: fence.mbarrier_init.release.cluster and a cluster barrier must lie between them",
    ),
    Bug("the multicast leaves out the other CTA", PAIR, "mov.u16 %h, 3;", "mov.u16 %h, 1;",
        "deadlock",
        "deadlock: no thread can run. warp 0 of the cluster's CTA 0 waits on line 49 for parity 0 of an mbarrier: mbarrier 0x408 (initialised on line 16) has 0 completed phases, 1 of 1 arrivals and waits for 128 more transaction bytes; warp 0 of the cluster's CTA 1 waits on line 49 for parity 0 of an mbarrier: mbarrier 0x400 (initialised on line 15) has 0 completed phases, 1 of 1 arrivals and waits for 256 more transaction bytes",
    ),
    Bug("each CTA expects its own half only", PAIR, "_, [%r8], 256;", "_, [%r8], 128;",
        "race",
        "reads 4 bytes at shared address 0x680 that asynchronous work on line 46 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("only the own CTA is told that a slot is free", PAIR, REMOTE_RELEASE, "",
        "race",
        "writes 16 bytes at shared address 0x600 of the cluster's CTA 1 that asynchronous work on line 46 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes", also=(", 128;\n    mbarrier.init.shared::cta.b64 [empty+8], 128;", ", 64;\n    mbarrier.init.shared::cta.b64 [empty+8], 64;"),
    ),
    Bug("only the other CTA is told that a slot is free", PAIR, "    mbarrier.arrive.shared::cta.b64 _, [%r9];\n", "",
        "deadlock",
        "deadlock: no thread can run. warp 0 of the cluster's CTA 0 waits on line 42 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 17) has 0 completed phases, 64 of 128 arrivals; warp 0 of the cluster's CTA 1 waits on line 42 for parity 0 of an mbarrier: mbarrier 0x500 (initialised on line 17) has 0 completed phases, 64 of 128 arrivals; warp 1 of the cluster's CTA 0 waits on line 49 for parity 1 of an mbarrier: mbarrier 0x400 (initialised on line 15) has 1 completed phases, 0 of 1 arrivals; warp 1 of the cluster's CTA 1 waits on line 49 for parity 1 of an mbarrier: mbarrier 0x400 (initialised on line 15) has 1 completed phases, 0 of 1 arrivals",
    ),
    Bug("the arrival goes to the own CTA again", PAIR, "%r14, %r9, %r3;", "%r14, %r9, %r2;",
        "race",
        "writes 16 bytes at shared address 0x600 of the cluster's CTA 1 that asynchronous work on line 46 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the remote arrival is not a release", PAIR, "arrive.release.cluster.shared::cluster", "arrive.relaxed.cluster.shared::cluster",
        "race",
        "writes 16 bytes at shared address 0x600 of the cluster's CTA 1 that asynchronous work on line 46 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the multicast does not wait for the slot", PAIR, MULTICAST_WAIT, "",
        "race",
        "writes 16 bytes at shared address 0x600 of the cluster's CTA 1 that asynchronous work on line 44 (what completes on mbarrier 0x400) wrote: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("both CTAs copy the same half", PAIR, "shl.b32 %r4, %r2, 7;", "mov.u32 %r4, 0;",
        "race",
        "writes 16 bytes at shared address 0x600 of the cluster's CTA 0 that asynchronous work on line 46 (what completes on mbarrier 0x400) may still be writing: wait for its completion first, in a phase that expects all of its bytes",
    ),
    Bug("the rank is beyond the cluster", PAIR, "xor.b32 %r3, %r2, 1;", "add.u32 %r3, %r2, 1;",
        "cluster",
        "mapa to CTA 2 of a cluster that has 2",
    ),
)
