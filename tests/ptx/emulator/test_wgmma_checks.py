"""What a wgmma must not do: one planted bug per rule with the whole sentence, each beside the kernel that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from instruction_bench import module
from numpy.typing import NDArray
from wgmma_bench import FENCE, FINISH, Placed, kernel, place, registers_of_a, registers_of_d, run_wgmma

from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.emulator.faults import Fault
from tinygpu.ptx.emulator.report import Report

NAME = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
ORDERS = ("late", "early", "random")


def operands() -> tuple[NDArray[Any], Placed, Placed]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 16), (8, 16)))
    d = rng.integers(-9, 10, (64, 8)).astype(np.float32)
    return registers_of_d(d), place(b, "none", False), place(a, "32B", False)


def fault_of(**changes: Any) -> Fault:
    """The fault of the basic kernel with some parts changed; the same in every order."""
    d, b, a = operands()
    found = []
    for order in ORDERS:
        with pytest.raises(EmulationFault) as caught:
            run_wgmma(NAME, 8, d, b, changes.get("a", a), (1, 1, 0, 0)[: 4 if "a" not in changes else 3], order=order,
                      **{k: v for k, v in changes.items() if k != "a"})  # fmt: skip
        found.append(caught.value.fault)
    assert found[0] == found[1] == found[2]
    return found[0]


def check_right(**changes: Any) -> None:
    """The twin of a planted bug: no fault and no advisory in any order."""
    d, b, a = operands()
    for order in ORDERS:
        _, report = run_wgmma(NAME, 8, d, b, a, (1, 1, 0, 0), order=order, **changes)
        assert (report.faults, report.advisories) == ((), ())


def line_of(fault: Fault, text: str) -> None:
    assert fault.line_text.startswith(text)


def test_the_basic_kernel_is_right() -> None:
    check_right()


# ---- shared memory ------------------------------------------------------------------------------------------------


def test_generic_writes_need_a_proxy_fence() -> None:
    fault = fault_of(before="bar.sync 0;")
    assert (fault.kind, fault.sentence) == (
        "race",
        "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 0 wrote through the generic "
        "proxy on line 19, without fence.proxy.async between the two: the writing threads must execute "
        "fence.proxy.async after their stores, before the barrier",
    )
    check_right(before="fence.proxy.async.shared::cta; bar.sync 0;")


def test_a_proxy_fence_behind_the_barrier_must_be_every_warps() -> None:
    check_right(before="bar.sync 0; fence.proxy.async;")
    fault = fault_of(before="setp.lt.u32 %p5, %r0, 32; bar.sync 0; @%p5 fence.proxy.async;")
    assert fault.kind == "race"


def test_generic_writes_need_a_barrier() -> None:
    """Each warp of the warpgroup must know: the products of all four read B."""
    fault = fault_of(before="fence.proxy.async;")
    assert (fault.kind, fault.sentence) == (
        "race",
        "reads 16 bytes at shared address 0x400 that warp 0 wrote on line 19, and no barrier orders the two: put "
        "bar.sync between them",
    )


def test_operands_may_not_be_overwritten_while_they_are_read() -> None:
    store = "st.shared.u32 [%r1], %r0;"
    later = f"wgmma.commit_group.sync.aligned;\n{store}\nwgmma.wait_group.sync.aligned 0;"
    fault = fault_of(after=later)
    line_of(fault, store)
    assert (fault.kind, fault.sentence) == (
        "race",
        "overwrites 4 bytes at shared address 0x400 that asynchronous work on line 39 (wgmma of warps 0 to 3) may "
        "still be reading: wait for its completion, and order the wait before this write",
    )
    only_first = f"setp.eq.u32 %p5, %r0, 0; bar.sync 0;\n@%p5 {store}"
    check_right(after=f"{FINISH}\n{only_first}")


def test_a_wait_orders_the_reads_for_those_who_meet_the_waiting_warps_only() -> None:
    """Warp 0 overwrites after its own wait: the agent is the whole warpgroup, so its wait covers all."""
    check_right(after=f"{FINISH}\nbar.sync 0;\nsetp.eq.u32 %p5, %r0, 0;\n@%p5 st.shared.u32 [%r1], %r0;")


def test_operands_outside_of_shared_memory_are_out_of_bounds() -> None:
    d, b, a = operands()
    far = Placed(a.image, a.descriptor + (1024 >> 4))
    with pytest.raises(EmulationFault) as caught:
        run_wgmma(NAME, 8, d, b, far, (1, 1, 0, 0))
    fault = caught.value.fault
    assert (fault.kind, fault.address) == ("out of bounds", 0x400 + 1024 + a.image.size)
    assert fault.sentence == (
        f"row 32 of A is read from shared address {fault.address:#x}, which is out of bounds: the dynamic shared "
        "memory has 3072 bytes, and this is byte 3072 to 3087"
    )


def test_uninitialised_operands_spoil_their_row_or_column_only() -> None:
    """Rows 8 to 63 of A were never written: rows 0 to 7 of D may be stored, the others not."""
    d, _, a = operands()
    right = place(np.ones((8, 16), np.float16), "none", False)
    # Only the first 256 bytes of A (eight rows of 32 bytes) are copied.
    a_first = Placed(a.image[:256], a.descriptor)
    report = spoil(d, right, a_first)
    # Warp 0 holds rows 0 to 7 in registers 0 and 1, rows 8 to 15 in registers 2 and 3.
    got = [(fault.kind, fault.line_text, fault.count) for fault in report.faults]
    assert got == [
        ("uninitialised", f"st.global.u32 [%rd5+{4 * k}], %d{k};", count) for k, count in enumerate((96, 96, 128, 128))
    ]


def spoil(d: NDArray[Any], b: Placed, a: Placed) -> Report:
    """Like run_wgmma, with shared memory larger than the image, so that its end is never written."""
    image = np.concatenate([b.image, a.image])
    words = np.ascontiguousarray(d).view(np.uint32).copy()
    text = kernel(
        f"{FENCE}\n{NAME} {{%d0, %d1, %d2, %d3}}, %rd3, %rd4, %p1, 1, 1, 0, 0;", 4, before="FILLED", after=FINISH,
        loads_a=False,
    )  # fmt: skip
    return emulate(
        text, grid=1, block=128, dynamic_smem=8192, check="collect",
        args=[image, np.uint32(image.size), np.uint64(a.descriptor + (b.image.size >> 4)), np.uint64(b.descriptor),
              np.uint32(1), words, np.zeros(4, np.uint32), np.zeros(4, np.uint32)],
    )  # fmt: skip


# ---- descriptors --------------------------------------------------------------------------------------------------


def test_illegal_descriptors_say_what_is_wrong() -> None:
    d, b, a = operands()
    for word, problem in [
        (a.descriptor | 1 << 52, "the descriptor of A is illegal: its reserved bits 52 are set: they must be zero"),
        (a.descriptor | 3 << 49, "the descriptor of A is illegal: its base offset (bits 49-51) is 3, but the 32B "
                                 "swizzle repeats every 2 lines: it must be below that"),
        (a.descriptor + 1, "A reads 32 bytes along K from byte 16 of a row of the 32B swizzle, which has 32: it would "
                           "run into the next row"),
    ]:  # fmt: skip
        with pytest.raises(EmulationFault) as caught:
            run_wgmma(NAME, 8, d, b, Placed(a.image, word), (1, 1, 0, 0))
        fault = caught.value.fault
        assert fault.kind == "descriptor"
        assert fault.sentence.split(": ", 1)[1] == problem


def test_all_warps_must_give_the_same_descriptor() -> None:
    fault = fault_of(before="FILLED setp.ge.u32 %p5, %r0, 96; selp.b64 %rd20, 64, 0, %p5;",
                     fence=f"add.u64 %rd4, %rd4, %rd20;\n{FENCE}")  # fmt: skip
    assert (fault.kind, fault.thread) == ("collective", (96, 0, 0))
    assert fault.sentence == (
        f"the descriptor of B of `{NAME}` is 0x800080040 in the first thread of the warpgroup, but 0x800080080 in this "
        "one: it must be the same in all"
    )


# ---- registers ----------------------------------------------------------------------------------------------------


def test_accumulators_may_not_be_read_before_the_wait() -> None:
    fault = fault_of(after="wgmma.commit_group.sync.aligned;")
    line_of(fault, "st.global.u32 [%rd5+0], %d0;")
    assert (fault.kind, fault.sentence) == (
        "asynchronous registers",
        "uses %d0, which the wgmma.mma_async on line 39 still works with: wgmma.wait_group must come first",
    )


def test_a_wait_that_leaves_the_group_pending_is_no_wait() -> None:
    fault = fault_of(after="wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;")
    assert fault.kind == "asynchronous registers"
    check_right(after=f"{FINISH}\nwgmma.wait_group.sync.aligned 1;")


def test_a_group_that_was_not_committed_is_not_waited_for() -> None:
    fault = fault_of(after="wgmma.wait_group.sync.aligned 0;\nwgmma.commit_group.sync.aligned;")
    assert fault.kind == "asynchronous registers"


def test_a_in_registers_may_not_change_before_the_wait() -> None:
    a = registers_of_a(np.ones((64, 16), np.float16))
    fault = fault_of(a=a, after=f"wgmma.commit_group.sync.aligned;\nmov.b32 %a2, 0;\n{FINISH}")
    line_of(fault, "mov.b32 %a2, 0;")
    assert (fault.kind, fault.sentence) == (
        "asynchronous registers",
        "uses %a2, which the wgmma.mma_async on line 39 still works with: wgmma.wait_group must come first",
    )
    d, b, _ = operands()
    _, report = run_wgmma(NAME, 8, d, b, a, (1, 1, 0), after=f"{FINISH}\nmov.b32 %a2, 0;")
    assert report.faults == ()


def test_the_first_wgmma_needs_a_fence() -> None:
    fault = fault_of(fence="")
    assert (fault.kind, fault.sentence) == (
        "asynchronous registers", f"`{NAME}` is the first of its warpgroup and no wgmma.fence comes before it: one must"
    )  # fmt: skip


def test_registers_that_others_touched_need_a_fence() -> None:
    fault = fault_of(fence=f"{FENCE}\nadd.f32 %d1, %d1, %d1;")
    line_of(fault, NAME)
    assert (fault.kind, fault.sentence) == (
        "asynchronous registers",
        "works with %d1, which other instructions used since the last wgmma.fence: wgmma.fence must come between them",
    )
    check_right(fence=f"add.f32 %d1, %d1, %d1;\n{FENCE}")


TWICE = "{%d0, %d1, %d2, %d3}, %rd3, %rd4, 1, 1, 1, 0, 0;"


def test_instructions_of_one_shape_share_accumulators_without_a_fence() -> None:
    check_right(after=f"{NAME} {TWICE}\n{FINISH}")
    check_right(after=f"wgmma.commit_group.sync.aligned;\n{NAME} {TWICE}\n{FINISH}")


@pytest.mark.parametrize(
    ("between", "kind"),
    [("", "asynchronous registers"), (FENCE, "asynchronous registers"), (f"{FINISH}\n", "asynchronous registers")],
)
def test_accumulators_as_a_of_the_next_product_need_a_wait_and_a_fence(between: str, kind: str) -> None:
    """Overlapping registers in another role: neither a fence nor a wait alone is enough."""
    second = f"{NAME} {{%d8, %d9, %d10, %d11}}, {{%d0, %d1, %d2, %d3}}, %rd4, 0, 1, 1, 0;"
    fault = fault_of(after=f"{between}\n{second}\n{FINISH}")
    line_of(fault, second[:60])
    needed = "wgmma.wait_group" if between == FENCE else "wgmma.fence"
    assert (fault.kind, fault.sentence) == (
        kind,
        f"works with %d0, which an earlier wgmma.mma_async uses in another form or role: {needed} must come between "
        "them",
    )
    check_right(after=f"{FINISH}\n{FENCE}\n{second}\n{FINISH}")


# ---- warps --------------------------------------------------------------------------------------------------------

WARPS = """
.shared .align 1024 .b8 smem[4096];
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %d<4>;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, smem;
shl.b32 %r3, %r0, 4; add.u32 %r4, %r2, %r3; mov.u32 %r5, 0;
setp.lt.u32 %p0, %r0, 256;
@%p0 st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5};
fence.proxy.async; bar.sync 0;
shr.u32 %r6, %r2, 4; cvt.u64.u32 %rd0, %r6; or.b64 %rd0, %rd0, 0xC000001000010000;
BODY
ret;
"""
ISSUE = f"{FENCE}\n{NAME} {{%d0, %d1, %d2, %d3}}, %rd0, %rd0, 0, 1, 1, 0, 0;\n{FINISH}"


def run_warps(body: str, block: int = 256) -> Report:
    return emulate(module(WARPS.replace("BODY", body), []), grid=1, block=block, args=[])


def test_a_warpgroup_is_complete_whatever_paths_its_warps_took() -> None:
    """Warps 0 and 1 come by another way than 2 and 3; both warpgroups execute it."""
    body = f"""
setp.lt.u32 %p1, %r1, 2;
@%p1 bra A;
add.u32 %r7, %r1, 1; bra B;
A: add.u32 %r7, %r1, 2; nanosleep.u32 10;
B:
{ISSUE}
"""
    assert run_warps(body).counters.wgmma == {"m64n8k16.f32.f16.f16": 2}


def test_only_some_warps_of_a_warpgroup_deadlock() -> None:
    body = f"setp.eq.u32 %p1, %r1, 3;\n@%p1 bra SKIP;\n{ISSUE}\nSKIP: bar.sync 1;"
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 128)
    fault = caught.value.fault
    assert fault.kind == "deadlock"
    assert "waits at line" in fault.sentence
    assert f"for warp 3 of its warpgroup to execute `{FENCE[:-1]}` too" in fault.sentence
    assert run_warps(f"{ISSUE}\nbar.sync 1;", 128).faults == ()


def test_a_warp_that_exited_is_missing() -> None:
    body = f"setp.eq.u32 %p1, %r1, 0;\n@%p1 exit;\n{ISSUE}"
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 128)
    assert (caught.value.kind, caught.value.sentence) == (
        "collective",
        f"`{FENCE[:-1]}` is executed by a warpgroup whose warp 0 has exited: warps 0 to 3 must execute it together",
    )


def test_a_cta_of_three_warps_has_no_warpgroup() -> None:
    with pytest.raises(EmulationFault) as caught:
        run_warps(ISSUE, 96)
    assert (caught.value.kind, caught.value.sentence) == (
        "collective",
        f"`{FENCE[:-1]}` needs a warpgroup of 4 warps, but warp 0 is followed by 2 only: a CTA that uses wgmma has a "
        "multiple of 128 threads",
    )


def test_part_of_a_warp_is_no_warp() -> None:
    body = f"setp.ne.u32 %p1, %r0, 5;\n@%p1 bra OUT;\n{FENCE}\nOUT: bar.warp.sync -1;"
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 128)
    assert caught.value.kind == "collective"
    assert caught.value.sentence == (
        f"`{FENCE[:-1]}` is executed by 1 of the warp's 32 lanes: all 32 must execute it together"
    )


def test_warps_of_a_warpgroup_at_different_instructions() -> None:
    body = f"setp.lt.u32 %p1, %r1, 2;\n@%p1 bra A;\n{FENCE}\nbra B;\nA:\nwgmma.commit_group.sync.aligned;\nB:"
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 128)
    assert caught.value.kind == "collective"
    assert caught.value.sentence.endswith(": all four warps must execute the same instruction")


def test_a_predicate_must_be_the_same_in_all_threads() -> None:
    body = f"setp.lt.u32 %p1, %r0, 40;\n{ISSUE.replace(', 0, 1, 1, 0, 0;', ', %p1, 1, 1, 0, 0;')}"
    body = "mov.f32 %d0, 0f00000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;\n" + body
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 128)
    assert (caught.value.kind, caught.value.sentence) == (
        "collective",
        f"scale-d of `{NAME}` is 1 in the first thread of the warpgroup, but 0 in this one: it must be the same in all",
    )


def test_accumulators_that_were_never_set_may_not_be_added_to_and_stored() -> None:
    store = "mov.u64 %rd3, 0; ld.param.u64 %rd4, [out]; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd4, %rd3;"
    text = WARPS.replace("BODY", f"{ISSUE}\n{store}\nst.global.f32 [%rd4], %d0;")
    out = np.ones(256, np.float32)
    emulate(module(text, [".param .u64 out"]), grid=1, block=256, args=[out])
    assert (out == 0).all()
    added = text.replace(", 0, 1, 1, 0, 0;", ", 1, 1, 1, 0, 0;")
    with pytest.raises(EmulationFault) as caught:
        emulate(module(added, [".param .u64 out"]), grid=1, block=256, args=[out])
    assert caught.value.kind == "uninitialised"


def test_a_warpgroup_starts_at_a_multiple_of_four() -> None:
    """Warps 2 to 5 are halves of two warpgroups, which wait for their other halves."""
    body = f"sub.u32 %r7, %r1, 2;\nsetp.gt.u32 %p1, %r7, 3;\n@%p1 bra SKIP;\n{ISSUE}\nSKIP: bar.sync 1;"
    with pytest.raises(EmulationFault) as caught:
        run_warps(body, 256)
    assert caught.value.kind == "deadlock"
    assert f"for warp 0, 1 of its warpgroup to execute `{FENCE[:-1]}` too" in caught.value.sentence


STAGE = """
.extern .shared .align 1024 .b8 smem[];
.shared .align 8 .b64 empty;
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %d<4>;
mov.u32 %r0, %tid.x; mov.u32 %r2, smem; mov.u32 %r3, empty; mov.u32 %r5, 0;
setp.ne.u32 %p0, %r0, 0;
@%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r3], 128;
READY:
bar.sync 0;
setp.ge.u32 %p1, %r0, 128;
@%p1 bra PRODUCER;
shl.b32 %r4, %r0, 4; add.u32 %r4, %r2, %r4;
st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5}; st.shared.v4.u32 [%r4+2048], {%r5, %r5, %r5, %r5};
fence.proxy.async; bar.sync 1, 128;
shr.u32 %r6, %r2, 4; cvt.u64.u32 %rd0, %r6; or.b64 %rd0, %rd0, 0xC000001000010000;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd0, %rd0, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
EARLY
wgmma.wait_group.sync.aligned 0;
LATE
ret;
PRODUCER:
setp.ne.u32 %p2, %r0, 128;
@%p2 ret;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;
@!%p3 bra WAIT;
ld.param.u64 %rd2, [image];
mbarrier.init.shared::cta.b64 [%r3+8], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd2], 2048, [%r3+8];
FULL:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3+8], 0;
@!%p4 bra FULL;
ret;
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r3];"


def test_a_stage_is_given_back_after_the_wait_only() -> None:
    """The consumer's arrival lets the producer overwrite the stage: before the wait, products still read it."""
    image = np.zeros(2048, np.uint8)
    text = STAGE.replace(".b64 empty;", ".b64 empty[2];")
    for order in ORDERS:
        wrong = module(text.replace("EARLY", ARRIVE).replace("LATE", ""), [".param .u64 image"])
        with pytest.raises(EmulationFault) as caught:
            emulate(wrong, grid=1, block=160, dynamic_smem=4096, args=[image], order=order)
        fault = caught.value
        assert fault.kind == "race"
        assert fault.line_text.startswith("cp.async.bulk")
        assert fault.sentence.endswith(
            "that asynchronous work on line 24 (wgmma of warps 0 to 3) may still be reading: wait for its completion, "
            "and order the wait before this write"
        )
        right = module(text.replace("EARLY", "").replace("LATE", ARRIVE), [".param .u64 image"])
        report = emulate(right, grid=1, block=160, dynamic_smem=4096, args=[image], order=order)
        assert report.faults == ()
