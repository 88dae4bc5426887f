"""Deadlocked kernels drawn at random: the first fault names what is missing, whoever waits for those who wait for that.

A ring of slots between a producer and some consumers, and at its end a meeting of all. One signal is taken out, or one
warp leaves. Everybody stops sooner or later, at the ring or at the meeting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, EmulationFault, Order, emulate

MEETINGS = (
    "bar.sync 1;", "barrier.cluster.arrive; barrier.cluster.wait;", "bar.sync 2, {threads};",
    "bar.red.popc.u32 %r9, 3, %all;",
)  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """A ring of slots; warp 0 fills, the others drain.

    filled      bulk copies fill the slots; else plain arrivals say that they are full
    left_out    the signal that is missing: see CAUSES
    round       in which it is missing; in all from there on
    """

    consumers: int
    slots: int
    rounds: int
    filled: bool
    left_out: str
    round: int
    meeting: str

    @property
    def cause(self) -> str:
        """The label before the instruction at which the cause shows."""
        return "WAIT_EMPTY" if self.left_out in ("release", "one consumer's release") else "WAIT_FULL"

    def text(self) -> str:
        late = f"setp.ge.u32 %gone, %r5, {self.round};"
        signals = {
            "fill": "mbarrier.arrive.shared::cta.b64 _, [%r6];",
            "release": "mbarrier.arrive.shared::cta.b64 _, [%r7];",
        }
        if self.filled:
            signals["fill"] = (
                "{fewer}\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], %r13;\n{more}\n"
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd1], 64, [%r6];"
            )
        guards = {"fill": "", "release": "", "fewer": "", "more": ""}
        if self.left_out == "fill":
            guards["fill"] = "@!%gone "
        elif self.left_out == "expected bytes":
            guards["fewer"] = "@%gone mov.u32 %r13, 32;"
        elif self.left_out == "bytes":
            guards["more"] = "@%gone mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r6], 16;"
        elif self.left_out == "release":
            guards["release"] = "@!%gone "
        else:
            guards["release"] = "@!%mine "
        fill = signals["fill"].replace("{fewer}", guards["fewer"]).replace("{more}", guards["more"])
        wait = "mbarrier.try_wait.parity.shared::cta.b64 %done, [{bar}], {parity};"
        return module(
            f"""
.reg .pred %p, %q, %done, %gone, %mine, %all; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 8 .b64 full[8]; .shared .align 8 .b64 empty[8]; .shared .align 128 .b8 slots[1024];
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; mov.u32 %r9, 0;
setp.eq.u32 %all, %r1, %r1; setp.ne.u32 %p, %r1, 0;
@%p bra READY;
mov.u32 %r6, full; mov.u32 %r7, empty;
MORE: mbarrier.init.shared::cta.b64 [%r6], 1; mbarrier.init.shared::cta.b64 [%r7], {self.consumers};
add.u32 %r6, %r6, 8; add.u32 %r7, %r7, 8; add.u32 %r9, %r9, 1; setp.lt.u32 %q, %r9, {self.slots}; @%q bra MORE;
fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
setp.ne.u32 %p, %r3, 0;
@%p bra MEET;
mov.u32 %r5, 0; mov.u32 %r13, 64;
NEXT:
rem.u32 %r4, %r5, {self.slots}; div.u32 %r10, %r5, {self.slots}; and.b32 %r10, %r10, 1; xor.b32 %r11, %r10, 1;
shl.b32 %r6, %r4, 3; mov.u32 %r7, empty; add.u32 %r7, %r7, %r6; mov.u32 %r8, full; add.u32 %r6, %r6, %r8;
shl.b32 %r8, %r4, 7; mov.u32 %r12, slots; add.u32 %r8, %r8, %r12;
{late}
setp.eq.u32 %mine, %r2, 1; and.pred %mine, %mine, %gone;
setp.eq.u32 %q, %r2, 0; @!%q bra WAIT_FULL;
WAIT_EMPTY: {wait.replace("{bar}", "%r7").replace("{parity}", "%r11")}
@!%done bra WAIT_EMPTY;
{guards["fill"]}{fill}
bra STEPPED;
WAIT_FULL: {wait.replace("{bar}", "%r6").replace("{parity}", "%r10")}
@!%done bra WAIT_FULL;
{guards["release"]}{signals["release"]}
STEPPED:
add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, {self.rounds}; @%q bra NEXT;
MEET:
bar.warp.sync 0xffffffff;
{self.meeting.replace("{threads}", str(32 * (self.consumers + 1)))}
ret;
""",
            [".param .u64 x"],
        )


CAUSES = ("fill", "expected bytes", "bytes", "release", "one consumer's release")


def draw(rng: np.random.Generator, left_out: str) -> Ring:
    slots, consumers = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    rounds = slots * 3 + int(rng.integers(1, 3))
    filled = left_out in ("expected bytes", "bytes") or bool(rng.integers(2))
    first = int(rng.integers(rounds - slots))  # after that, nobody comes back to the slot
    return Ring(consumers, slots, rounds, filled, left_out, first, MEETINGS[rng.integers(len(MEETINGS))])


def first_fault(ring: Ring, order: Order, seed: int) -> EmulationFault:
    with pytest.raises(EmulationFault) as caught:
        emulate(
            ring.text(), grid=2, block=32 * (ring.consumers + 1), cluster=2, args=[np.zeros(64, np.uint8)],
            order=order, seed=seed,
        )  # fmt: skip
    return caught.value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("left_out", CAUSES)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 12))])
def test_the_first_fault_is_at_the_wait_for_what_is_missing(left_out: str, seed: int) -> None:
    rng = np.random.default_rng([seed, CAUSES.index(left_out)])
    ring = draw(rng, left_out)
    lines = ring.text().split("\n")
    (cause,) = (n for n, line in enumerate(lines, 1) if line.startswith(f"{ring.cause}:"))
    for order in ORDERS:
        fault = first_fault(ring, order, seed)
        assert (fault.kind, fault.line) == ("deadlock", cause), (ring, order, fault.sentence)
        assert f"waits on line {cause} for parity" in fault.sentence.split("; ")[0]


def test_a_ring_from_which_nothing_is_missing_ends() -> None:
    for seed in range(6):
        ring = draw(np.random.default_rng(seed), "release")
        text = ring.text().replace("@!%gone ", "")
        report = emulate(
            text, grid=2, block=32 * (ring.consumers + 1), cluster=2, args=[np.zeros(64, np.uint8)], check="collect"
        )
        assert {fault.kind for fault in report.faults} <= {"asynchronous copy"}


CHAIN = """
.reg .pred %p, %done; .reg .b32 %r<8>; .shared .align 8 .b64 first; .shared .align 8 .b64 second;
mov.u32 %r1, %tid.x; mov.u32 %r4, first; mov.u32 %r5, second; setp.ne.u32 %p, %r1, 0;
@!%p mbarrier.init.shared.b64 [%r4], 1;
@!%p mbarrier.init.shared.b64 [%r5], 1;
bar.sync 0;
setp.eq.u32 %p, %r1, {signaller}; @%p bra WAIT_FIRST;
setp.eq.u32 %p, %r1, {other}; @%p bra WAIT_SECOND;
bra MEET;
{parts}
MEET:
bar.warp.sync 0xffffffff;
bar.sync 0;
ret;
"""
PARTS = (
    "WAIT_FIRST: mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0;\n@!%done bra WAIT_FIRST;\n"
    "mbarrier.arrive.shared.b64 _, [%r5];\nbra MEET;",
    "WAIT_SECOND: mbarrier.try_wait.parity.shared.b64 %done, [%r5], 0;\n@!%done bra WAIT_SECOND;\nbra MEET;",
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("turned", [False, True])
def test_who_has_nothing_left_to_signal_is_named_after_who_has(turned: bool, order: Order) -> None:
    """One warp waits for an arrival that never comes, and would then arrive where the other one waits."""
    for signaller, other in ((0, 32), (32, 0)):
        text = CHAIN.replace("{signaller}", str(signaller)).replace("{other}", str(other))
        text = module(text.replace("{parts}", "\n".join(PARTS[::-1] if turned else PARTS)), [])
        (cause,) = (n for n, line in enumerate(text.split("\n"), 1) if line.startswith("WAIT_FIRST"))
        with pytest.raises(EmulationFault) as caught:
            emulate(text, grid=1, block=64, args=[], order=order)
        assert (caught.value.kind, caught.value.line) == ("deadlock", cause)


DIVERGENT = """
.reg .pred %p, %q; .reg .b32 %r<8>; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31;
setp.lt.u32 %p, %r3, {lanes}; setp.eq.u32 %q, %r2, {warp}; and.pred %p, %p, %q;
@%p bra APART;
{meet}
bra OVER;
APART:
{elsewhere}
OVER:
bar.sync 4;
ret;
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_barrier_in_a_branch_that_parts_a_warp_is_named_before_those_who_wait_for_it(order: Order, seed: int) -> None:
    """Part of a warp comes to bar.sync: that is the fault, and no deadlock of the other warps."""
    rng = np.random.default_rng(seed)
    warps = int(rng.integers(2, 5))
    text = DIVERGENT.replace("{lanes}", str(rng.integers(1, 32))).replace("{warp}", str(rng.integers(warps)))
    text = module(text.replace("{meet}", "bar.sync 0;").replace("{elsewhere}", "add.u32 %r4, %r1, 1;"), [])
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=1, block=32 * warps, args=[], order=order, seed=seed)
    assert caught.value.kind == "barrier"
    assert re.search(r"executed by \d+ of the warp's 32 live lanes", caught.value.sentence)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_exited_threads_count_at_a_clusters_barrier_and_what_is_stuck_is_named_instead(order: Order, seed: int) -> None:
    """Some threads have exited, one waits for an arrival that never comes, the rest waits for that one."""
    rng = np.random.default_rng(seed)
    warps = int(rng.integers(3, 6))
    stuck = int(rng.integers(1, warps - 1))
    body = f"""
.reg .pred %p, %done; .reg .b32 %r<8>; .shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x; mov.u32 %r4, bar; mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p, %r1, 0;
@!%p mbarrier.init.shared.b64 [%r4], 2;
@!%p mbarrier.arrive.shared.b64 _, [%r4];
bar.sync 0;
setp.ge.u32 %p, %r1, {32 * (warps - 1)}; @%p ret;
setp.ne.u32 %p, %r1, {32 * stuck}; @%p bra MEET;
setp.ne.u32 %p, %r2, {seed % 2}; @%p bra MEET;
AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0;
@!%done bra AGAIN;
MEET:
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
"""
    text = module(body, [])
    (cause,) = (n for n, line in enumerate(text.split("\n"), 1) if line.startswith("AGAIN"))
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=2, block=32 * warps, cluster=2, args=[], order=order, seed=seed)
    assert (caught.value.kind, caught.value.line) == ("deadlock", cause), caught.value.sentence
