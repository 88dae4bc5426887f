"""Bulk stores of several threads to the same bytes: no conflict where all write the same, a race where they do not.

What lanes of a warp ask for alike is worked out once, and stores under way are found by place: both must find what
working out every store by itself, and asking every store under way, finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import Report, TensorMap, emulate
from tinygpu.ptx.emulator.access.async_shared import Bools
from tinygpu.ptx.emulator.instructions import bulk_stores
from tinygpu.ptx.emulator.instructions.bulk_parts import Bytes, gathered
from tinygpu.ptx.emulator.instructions.pending_stores import PendingStores, Stored
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.emulation import Order

ORDERS: tuple[Order, ...] = ("late", "early", "random")
# Each of two warps fills its own 64 bytes with its value, and stores them over the same 64 bytes of global memory.
BODY = """
.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
.shared .align 128 .b8 s[128];
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [step];
mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31; mov.u32 %r5, s; mad.lo.u32 %r5, %r3, 64, %r5;
mad.lo.u32 %r6, %r4, 4, %r5; mad.lo.u32 %r7, %r3, %r1, 7; setp.lt.u32 %p1, %r4, 16;
@%p1 st.shared.u32 [%r6], %r7;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %p2, %r4, 0;
@%p2 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 64;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:
ret;
"""
# Each of two warps fills 1024 bytes; the lanes that a mask names store 512 of them twice, from and to places that
# depend on bits of the lane and on the warp.
MANY = """
.reg .b32 %r<20>; .reg .b64 %rd<6>; .reg .pred %p<6>;
.shared .align 128 .b8 s[2048];
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [mask]; ld.param.u32 %r10, [from_bits]; ld.param.u32 %r11, [to_bits];
ld.param.u32 %r12, [warp_step];
mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31; mov.u32 %r5, s; mad.lo.u32 %r5, %r3, 1024, %r5;
mov.u32 %r8, 0;
FILL:
mad.lo.u32 %r6, %r4, 4, %r8; add.u32 %r7, %r6, %r5; FILLED st.shared.u32 [%r7], %r6;
add.u32 %r8, %r8, 128; setp.lt.u32 %p1, %r8, 1024; @%p1 bra FILL;
fence.proxy.async.shared::cta;
MEET
shr.u32 %r9, %r1, %r4; and.b32 %r9, %r9, 1; setp.eq.u32 %p2, %r9, 0;
@%p2 bra DONE;
and.b32 %r13, %r4, %r10; and.b32 %r14, %r4, %r11; mad.lo.u32 %r14, %r3, %r12, %r14;
mad.lo.u32 %r13, %r13, 256, %r5; mul.wide.u32 %rd2, %r14, 256; add.u64 %rd3, %rd1, %rd2;
STORE [%rd3], [%r13], 512;
cp.async.bulk.commit_group;
WAIT
STORE [%rd3], [%r13], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:
ret;
"""
SIGNATURE = [
    ".param .u64 out", *(f".param .u32 {name}" for name in ("mask", "from_bits", "to_bits", "warp_step"))
]  # fmt: skip
UNMET = "warp exchange without bar.warp.sync"
COPY = "cp.async.bulk.global.shared::cta.bulk_group"
ADD = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", [0, 1])
def test_equal_stores_do_not_conflict_and_others_race(order: Order, step: int) -> None:
    out = np.zeros(16, np.uint32)
    text = module(BODY, [".param .u64 out", ".param .u32 step"])
    for seed in range(4):
        report = emulate(text, grid=1, block=64, args=[out, step], order=order, check="collect", seed=seed)
        assert [f.kind for f in report.faults] == ["race"] * step
        if step == 0:
            assert (out == 7).all()


# Two warps bring the same 64 bytes to one place: the first adds them, the second stores them.
ADDED_AND_STORED = BODY.replace(
    f"{COPY} [%rd1], [%r5], 64;", f"setp.eq.u32 %p1, %r3, 0;\n@%p1 {ADD} [%rd1], [%r5], 64;\n"
    f"@!%p1 {COPY} [%rd1], [%r5], 64;",
)  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_added_is_not_what_will_stand_there(order: Order) -> None:
    assert ADDED_AND_STORED.count(ADD) == 1
    text = module(ADDED_AND_STORED, [".param .u64 out", ".param .u32 step"])
    for seed in range(3):
        report = emulate(
            text, grid=1, block=64, args=[np.full(16, 9, np.uint32), 0], order=order, check="collect", seed=seed
        )
        assert {f.kind for f in report.faults} == {"race"}


# Warp 1 reads the 64 bytes, and nothing orders that before or behind what warp 0 stores there.
READ_MEANWHILE = BODY.replace(
    "bar.warp.sync -1;", "bar.warp.sync -1;\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 bra STORES;\n"
    "ld.global.u32 %r7, [%rd1];\nbra DONE;\nSTORES:",
)  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("before", [7, 9])
def test_a_store_of_what_is_there_conflicts_with_no_reader(order: Order, before: int) -> None:
    out = np.full(16, before, np.uint32)
    text = module(READ_MEANWHILE, [".param .u64 out", ".param .u32 step"])
    report = emulate(text, grid=1, block=64, args=[out, 0], order=order, check="collect")
    assert {f.kind for f in report.faults} == ({"race"} if before != 7 else set())


# Warp 1 writes what warp 0 stores, and tells it by an mbarrier.
HANDED_OVER = """
.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
.shared .align 128 .b8 s[64]; .shared .align 8 .b8 bar[8];
ld.param.u64 %rd1, [out]; mov.u32 %r2, %tid.x; mov.u32 %r5, s;
setp.ne.u32 %p1, %r2, 0;
@!%p1 mbarrier.init.shared::cta.b64 [bar], 32;
bar.sync 0;
setp.lt.u32 %p2, %r2, 32;
@%p2 bra TAKES;
sub.u32 %r4, %r2, 32; mad.lo.u32 %r6, %r4, 4, %r5; setp.gt.u32 %p2, %r4, 15;
@!%p2 st.shared.u32 [%r6], %r2;
fence.proxy.async.shared::cta;
mbarrier.arrive.shared::cta.b64 _, [bar];
ret;
TAKES:
@%p1 ret;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
@!%p2 bra WAIT;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 64;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
"""


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_of_another_warp_need_not_meet_who_stores_what_they_wrote(order: Order) -> None:
    out = np.zeros(16, np.uint32)
    report = emulate(module(HANDED_OVER, [".param .u64 out"]), grid=1, block=64, args=[out], order=order)
    assert report.advisories == ()
    assert out.tolist() == list(range(32, 48))


def drawn(seed: int) -> Callable[[], tuple[Report, Any]]:
    """A launch of MANY, drawn: which lanes store what where, whether they met, waited, and by which instruction."""
    rng = np.random.default_rng(seed)
    mask = int(rng.choice([1, 0xFF, 0x700, int(rng.integers(1, 1 << 12))]))
    from_bits, to_bits = int(rng.choice([0, 0, 1, 2])), int(rng.choice([0, 0, 1, 3, 6]))
    warp_step, blocks = int(rng.choice([0, 1, 4, 16])), int(rng.choice([1, 2]))
    body = MANY
    for _ in range(2):
        body = body.replace("STORE", str(rng.choice([COPY, COPY, COPY, ADD])), 1)
    body = body.replace("MEET", str(rng.choice(["bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;", ""])))
    waits = ["", "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"]
    body = body.replace("WAIT", str(rng.choice(waits)))
    filled = ["", "", "and.b32 %r6, %r6, 255;", "mov.u32 %r6, 5;"]
    body = body.replace("FILLED", str(rng.choice(filled)))
    text = module(body, SIGNATURE)
    order = ORDERS[int(rng.integers(3))]

    def run() -> tuple[Report, Any]:
        out = np.zeros(4096, np.uint32)
        args = [out, mask, from_bits, to_bits, warp_step]
        return emulate(text, grid=blocks, block=64, args=args, order=order, check="collect", seed=seed), out

    return run


def each_by_itself(
    self: bulk_stores.StoresOfLanes, origin: Origin, lane: int, what: Any, make: Callable[[], Any]
) -> None:
    make()


def asking_all(self: PendingStores, piece: Stored, data: Bytes) -> Bools:
    """What every store under way will have put there, one store after the other."""
    expected = gathered(piece.window, piece.at, piece.size).copy()
    for store in self._under_way.values():
        for theirs, parts in zip(store.peek(), store.writes, strict=True):
            for other in parts:
                _, mine, its = np.intersect1d(piece.at, other.at, return_indices=True)
                if mine.size and (store.adds or other.size != piece.size):
                    return np.zeros(piece.at.size, np.bool_)
                expected[mine] = other.of(theirs)[its]
    return np.asarray((expected == data).all(axis=-1))


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 200))])
def test_what_is_worked_out_once_is_what_each_store_by_itself_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = drawn(seed)
    report, out = run()
    monkeypatch.setattr(bulk_stores.StoresOfLanes, "start", each_by_itself)
    monkeypatch.setattr(PendingStores, "unchanged", asking_all)
    again, expected = run()
    assert {(f.kind, f.line) for f in report.faults} == {(f.kind, f.line) for f in again.faults}
    assert [f.sentence for f in report.faults[:1]] == [f.sentence for f in again.faults[:1]]
    assert report.advisories == again.advisories
    assert report.counters == again.counters
    assert report.lines == again.lines
    if not report.faults:
        np.testing.assert_array_equal(out, expected)


def test_the_draws_find_races_and_advisories_and_none() -> None:
    kinds = {(bool(r.faults), bool(r.advisories)) for r, _ in (drawn(seed)() for seed in range(12))}
    assert {(False, False), (True, False), (False, True)} <= kinds


@pytest.mark.parametrize(("mask", "found"), [(0b1, ()), (0b11, (UNMET,)), (0b10, (UNMET,))])
def test_a_lane_that_repeats_what_another_stored_is_asked_whether_it_met_who_wrote(
    mask: int, found: tuple[str, ...]
) -> None:
    """Lane 0 alone has written what both store."""
    body = MANY.replace("STORE", COPY).replace("WAIT", "").replace("MEET", "")
    body = body.replace("FILLED", "add.u32 %r7, %r8, %r5; setp.eq.u32 %p3, %r4, 0; @%p3")
    text = module(body.replace("add.u32 %r8, %r8, 128;", "add.u32 %r8, %r8, 4;"), SIGNATURE)
    report = emulate(text, grid=1, block=32, args=[np.zeros(4096, np.uint32), mask, 0, 0, 0])
    assert tuple(sorted({advisory.rule for advisory in report.advisories})) == found


@pytest.mark.parametrize("blocks", [1, 8])
def test_the_work_grows_with_the_stores_and_not_with_their_pairs(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of shared memory by 32 lanes that store alike: at most so many per lane, whatever is under way."""
    reads = 0
    read_bytes = bulk_stores.read_bytes

    def counted(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_bytes(*arguments)

    monkeypatch.setattr(bulk_stores, "read_bytes", counted)
    body = MANY.replace("STORE", COPY).replace("MEET", "bar.sync 0;").replace("WAIT", "").replace("FILLED", "")
    text = module(body, SIGNATURE)
    report = emulate(text, grid=blocks, block=64, args=[np.zeros(4096, np.uint32), 0xFFFFFFFF, 0, 0, 0])
    stores = report.counters.bulk_store_requests
    assert stores == blocks * 2 * 2 * 32
    assert reads <= 3 * stores


# Each of two warps fills 128 bytes with its value, and stores a box of 16 by 4 of them, clipped at the tensor's edge.
BOXES = """
.reg .b32 %r<9>; .reg .pred %p<3>; .shared .align 128 .b8 s[256];
mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31; mov.u32 %r5, s; mad.lo.u32 %r5, %r3, 128, %r5;
mad.lo.u32 %r6, %r4, 4, %r5; mov.u32 %r7, 0x07070707; mov.u32 %r8, 0;
setp.eq.u32 %p1, %r2, {lane}; @%p1 add.u32 %r7, %r7, {by};
st.shared.u32 [%r6], %r7;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %p2, %r4, 0;
@%p2 bra DONE;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [m, {%r8, %r8}], [%r5];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:
ret;
"""


@pytest.mark.parametrize("width", [16, 12, 11, 9])
def test_a_box_of_which_narrow_pieces_are_stored_twice_conflicts_where_bytes_differ(width: int) -> None:
    """Pieces at a tensor's edge are narrower than what races are told by: four of them may share a word."""
    # Byte 8 (or 9) of the second row of the second warp's box, or a byte that lies outside of the tensor.
    for lane, by, inside in ((38, 1, True), (38, 0x100, width > 9), (39, 0x1000000, width > 15), (64, 0, False)):
        out = np.zeros((4, 32), np.uint8)
        box = TensorMap(out, (16, 4), dims=(width, 4), strides=(32,))
        text = BOXES.replace("{lane}", str(lane)).replace("{by}", str(by))
        report = emulate(
            module(text, [".param .align 64 .b8 m[128]"], target="sm_90a"), grid=1, block=64, args=[box],
            check="collect",
        )  # fmt: skip
        assert [fault.kind for fault in report.faults] == ["race"] * inside, (lane, by)
