"""Order and definedness around tcgen05: what is an advisory only, what is undefined, what threads may rely on."""

# Sentences stay on one line, so that they can be searched for.
# ruff: noqa: E501

from __future__ import annotations

import re
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
    in_shared,
    kernel,
    one_thread,
    read_back,
)

from tinygpu.ptx.emulator import EmulationFault, emulate

N = 32
IDESC = 1 << 4 | 1 << 7 | 1 << 10 | N // 8 << 17 | 8 << 24
RNG = np.random.default_rng(0)
A, B = RNG.integers(-2, 3, (128, 16)), RNG.integers(-2, 3, (N, 16))
IMAGE = Image()
A_OFFSET = IMAGE.add(Tile(codes_of(A, "bf16"), 16, "32B").image())
B_OFFSET = IMAGE.add(Tile(codes_of(B, "bf16"), 16, "32B").image())
DESC = Tile(np.zeros((8, 16), np.int64), 16, "32B").descriptor
OPERANDS = descriptor(3, DESC, A_OFFSET) + descriptor(4, DESC, B_OFFSET) + enable(5, False)
MMA = f"tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd3, %rd4, {IDESC:#x}, %p5;\n"
ORDERS = ["late", "early", "random"]


def run(body: str, order: Any = "late", **options: Any) -> tuple[Any, Any]:
    text = kernel(body, IMAGE.data.size, 64, **options)
    check_spelling(text)
    out = np.zeros((128, N), np.float32)
    return emulate(text, grid=1, block=128, args=[IMAGE.data, out], order=order), out


def rules(report: Any) -> dict[str, str]:
    return {a.rule: a.sentence for a in report.advisories}


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_fence_after_the_wait_is_an_advisory(order: str) -> None:
    report, out = run(
        one_thread(OPERANDS + MMA).replace("tcgen05.fence::after_thread_sync;\n", "") + read_back(N), order
    )
    assert (out == A @ B.T).all()
    assert rules(report) == {
        "no tcgen05.fence::after_thread_sync": "follows `tcgen05.mma` on line 51, which another thread or the tensor core carried out: tcgen05.fence::after_thread_sync is missing after the wait"
    }


AGAIN = (
    one_thread(OPERANDS + MMA)
    + read_back(N)
    + "{before}bar.sync 0;\ntcgen05.fence::after_thread_sync;\n@!%p1 bra SECOND;\n"
    + MMA
    + COMMIT
    + "SECOND:\n"
    + WAIT.replace("WAIT", "AGAIN").replace(", 0;", ", 1;")
)


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_fence_before_the_signal_is_an_advisory(order: str) -> None:
    report, _ = run(AGAIN.replace("{before}", "tcgen05.fence::before_thread_sync;\n"), order)
    assert report.advisories == ()
    report, _ = run(AGAIN.replace("{before}", ""), order)
    assert rules(report) == {
        "no tcgen05.fence::before_thread_sync": "follows `tcgen05.ld` on line 62 of another thread: tcgen05.fence::before_thread_sync is missing there, before that thread signals"
    }


def test_a_copy_over_what_a_product_reads_is_an_advisory() -> None:
    """Scale factors are copied again for the next step of K without waiting for the product that reads them."""
    copy = descriptor(5, 0x0000400800000000, 0) + "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r6+48], %rd5;\n"
    copies = copy + copy.replace("+48", "+52")
    word = 2 << 17 | 1 << 23 | 1 << 27
    mma = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
    mma += f"[%r6], %rd3, %rd4, {word:#x}, [%r6+48], [%r6+52], %p5;\n"
    report, _ = run(one_thread(copies + OPERANDS + mma + copies + enable(5, True) + mma))
    assert rules(report) == {
        "tcgen05.cp over earlier tensor core work": "overwrites what earlier tcgen05 work of this thread uses, without waiting for its tcgen05.commit"
    }


def test_a_copy_over_the_sums_of_a_product_is_a_race() -> None:
    """Nobody relies on an order of these two."""
    copy = descriptor(5, 0x0000400800000000, 0) + "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r6+{}], %rd5;\n"
    run(one_thread(OPERANDS + MMA + copy.format(N)))
    with pytest.raises(EmulationFault, match=f"columns {N - 4} to {N - 1} of tensor memory, which `tcgen05.mma`"):
        run(one_thread(OPERANDS + MMA + copy.format(N - 4)))


@pytest.mark.parametrize(
    ("change", "lane"), [("mov.u32 %r15, 0;", 0), ("add.u32 %r15, %r2, 4;\nshl.b32 %r15, %r15, 21;", 128)]
)
def test_a_warp_that_counts_its_lanes_otherwise_is_an_advisory(change: str, lane: int) -> None:
    report, out = run(one_thread(OPERANDS + MMA) + read_back(N).replace("shl.b32 %r15, %r2, 21;", change))
    assert (out == A @ B.T).all()
    (sentence,) = rules(report).values()
    assert set(rules(report)) == {"lanes of another warp addressed"}
    warp, first = (1, 32) if lane == 0 else (0, 0)
    assert (
        sentence
        == f"`tcgen05.ld` of warp {warp} addresses lane {lane}, but it reaches lanes {first} to {first + 31} only: put {first} into bits 31:16 of the address"
    )


@pytest.mark.parametrize("order", ORDERS)
def test_work_of_another_thread_is_in_order_between_fences(order: str) -> None:
    """A copy by thread 0, the product by thread 32: fences on both sides, no wait for completion."""
    copies = descriptor(5, 0x0000400800000000, A_OFFSET) + "tcgen05.cp.cta_group::1.128x128b [%r6+40], %rd5;\n"
    copies += "tcgen05.cp.cta_group::1.128x128b [%r6+44], %rd5;\n"
    body = (
        f"@!%p1 bra COPIED;\n{copies}tcgen05.fence::before_thread_sync;\nCOPIED:\nbar.sync 0;\n"
        "tcgen05.fence::after_thread_sync;\nsetp.eq.u32 %p7, %r1, 32;\n"
        + one_thread(OPERANDS + MMA.replace("%rd3", "[%r6+40]")).replace("%p1", "%p7")
        + read_back(N)
        + "@%p1 "
        + COMMIT
        + WAIT.replace("WAIT", "AGAIN").replace(", 0;", ", 1;")
    )
    report, out = run(body, order)
    assert report.advisories == ()
    rows = IMAGE.data[A_OFFSET : A_OFFSET + 2048].reshape(128, 16)
    left = np.concatenate([rows, rows], axis=1)
    values = np.ascontiguousarray(left).view(np.uint16).astype(np.uint32) << 16
    assert (out == values.view(np.float32) @ B.T).all()


BEFORE, AFTER = "tcgen05.fence::before_thread_sync;\n", "tcgen05.fence::after_thread_sync;\n"

COPIES = descriptor(5, 0x0000400800000000, A_OFFSET) + "tcgen05.cp.cta_group::1.128x128b [%r6+40], %rd5;\n"
COPIES += "tcgen05.cp.cta_group::1.128x128b [%r6+44], %rd5;\n"


@pytest.mark.parametrize("after", ["", "too early", "in place", "too late"])
@pytest.mark.parametrize("before", ["", "too early", "in place", "too late"])
def test_both_fences_have_their_place_between_the_works_of_two_threads(before: str, after: str) -> None:
    """The one behind the copy and before the threads meet, the other behind that and before the product."""
    fences = {place: BEFORE if place == before else "" for place in ("too early", "in place", "too late")}
    others = {place: AFTER if place == after else "" for place in ("too early", "in place", "too late")}
    product = MMA.replace("%rd3", "[%r6+40]")
    body = (
        f"{fences['too early']}@!%p1 bra COPIED;\n{COPIES}COPIED:\n{fences['in place']}{others['too early']}bar.sync 0;\n"
        f"{fences['too late']}{others['in place']}setp.eq.u32 %p7, %r1, 32;\n"
        + one_thread(OPERANDS + product + others["too late"]).replace("%p1", "%p7")
        + read_back(N)
        + "@%p1 "
        + COMMIT
        + WAIT.replace("WAIT", "AGAIN").replace(", 0;", ", 1;")
    )
    if before == after == "in place":
        assert run(body)[0].advisories == ()
        return
    with pytest.raises(EmulationFault) as caught:
        run(body)
    assert caught.value.kind == "race"


def test_a_thread_that_has_never_passed_a_fence_follows_nobody() -> None:
    body = f"@!%p1 bra COPIED;\n{COPIES}{BEFORE}COPIED:\nbar.sync 0;\nsetp.eq.u32 %p7, %r1, 32;\n"
    body += one_thread(OPERANDS + MMA.replace("%rd3", "[%r6+40]")).replace("%p1", "%p7")
    text = kernel(body, IMAGE.data.size, 64)
    assert AFTER in text
    with pytest.raises(EmulationFault) as caught:
        emulate(text.replace(AFTER, ""), grid=1, block=128, args=[IMAGE.data, np.zeros((128, N), np.float32)])
    assert (
        caught.value.sentence
        == "reads lanes 0 to 127, columns 40 to 43 of tensor memory, which `tcgen05.cp` on line 44 (warp 0) may still be writing: its thread must commit it to an mbarrier (tcgen05.commit), and this one must wait for that"
    )


def test_a_fence_behind_the_signal_is_too_late() -> None:
    late = AGAIN.replace("{before}bar.sync 0;\n", f"bar.sync 0;\n{BEFORE}")
    report, _ = run(late)
    assert set(rules(report)) == {"no tcgen05.fence::before_thread_sync"}


@pytest.mark.parametrize("order", ORDERS)
def test_relaxed_waits_order_tensor_memory_between_fences(order: str) -> None:
    """The manual's patterns: relaxed waits and arrivals, with tcgen05.fence after the one and before the other."""
    relaxed = ".relaxed.cluster.shared::cta.b64 "
    wait = WAIT.replace(".shared::cta.b64 ", relaxed)
    signal = f"tcgen05.fence::before_thread_sync;\nmbarrier.arrive{relaxed}_, [bar2];\n"
    again = (
        "@!%p1 bra SECOND;\n"
        + wait.replace("WAIT", "LOADED").replace("[bar]", "[bar2]")
        + MMA
        + COMMIT
        + "SECOND:\n"
        + wait.replace("WAIT", "AGAIN").replace(", 0;", ", 1;")
    )
    first = one_thread(OPERANDS + MMA).replace(WAIT, wait)
    setup = "@%p1 mbarrier.init.shared::cta.b64 [bar2], 128;\nbar.sync 0;\n"
    report, out = run(setup + first + read_back(N) + signal + again, order)
    assert (out == A @ B.T).all()
    assert report.advisories == ()


def uninitialised(body: str, cause: str, **options: Any) -> str:
    """The line that stores what nobody wrote; its fault says where that came from."""
    with pytest.raises(EmulationFault) as caught:
        run(body, **options)
    assert caught.value.kind == "uninitialised"
    assert re.search(f"give the register or the memory it came from a value first; `tcgen05[.](mma|ld)` on line [0-9]+ {cause}$",
                     caught.value.sentence)  # fmt: skip
    return str(caught.value.line_text)


def test_an_accumulator_that_nobody_wrote_makes_the_sum_undefined() -> None:
    cause = "added to sums that nobody had written"
    line = uninitialised(one_thread(OPERANDS + enable(5, True) + MMA) + read_back(N), cause)
    assert line == "st.global.u32 [%rd13+0], %r20;"
    report, out = run(clear(N) + one_thread(OPERANDS + enable(5, True) + MMA) + read_back(N))
    assert report.faults == ()
    assert (out == A @ B.T).all()


def test_operands_that_nobody_wrote_make_their_rows_and_columns_undefined() -> None:
    """All of A and the first 16 columns of B are filled: D is defined there and nowhere else."""
    words = (B_OFFSET + 512) // 4
    half = read_back(16).replace(f"{4 * 16}", f"{4 * N}", 1)
    report, out = run(one_thread(OPERANDS + MMA) + half, words=words)
    assert report.faults == ()
    assert (out[:, :16] == (A @ B.T)[:, :16]).all()
    cause = "multiplied what nobody had written of B"
    line = uninitialised(one_thread(OPERANDS + MMA) + read_back(N), cause, words=words)
    assert line == "st.global.u32 [%rd13+64], %r36;"


def test_the_upper_half_of_an_f16_accumulator_is_undefined() -> None:
    half = f"{IDESC & ~(1 << 4 | 1 << 7 | 1 << 10):#x}"
    body = one_thread(OPERANDS + MMA.replace(f"{IDESC:#x}", half))
    cause = "loaded what nobody had written of lanes 0 to 31, columns 0 to 31 of tensor memory"
    assert uninitialised(body + read_back(N), cause) == "st.global.u32 [%rd13+0], %r20;"
    report, _ = run(body + read_back(N, halves=True))
    assert report.faults == ()


def test_loads_of_cells_that_nobody_wrote_are_undefined() -> None:
    cause = "loaded what nobody had written of lanes 0 to 31, column 0 of tensor memory"
    assert uninitialised(read_back(1), cause) == "st.global.u32 [%rd13+0], %r20;"


@pytest.mark.parametrize("missing", ["A", "B"])
def test_scale_factors_that_nobody_wrote_are_named(missing: str) -> None:
    copy = descriptor(5, 0x0000400800000000, 0) + "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r6+{}], %rd5;\n"
    mma = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
    mma += f"[%r6], %rd3, %rd4, {2 << 17 | 1 << 23 | 1 << 27:#x}, [%r6+48], [%r6+52], %p5;\n"
    body = one_thread(copy.format(52 if missing == "A" else 48) + OPERANDS + mma) + read_back(16)
    uninitialised(body, f"multiplied what nobody had written of the scale factors of {missing}")


@pytest.mark.parametrize("check", [False, "collect"])
def test_unchecked_and_collecting_runs_go_on(check: Any) -> None:
    text = kernel(one_thread(OPERANDS + MMA) + read_back(N), IMAGE.data.size, 64)
    out = np.zeros((128, N), np.float32)
    report = emulate(text, grid=1, block=128, args=[IMAGE.data, out], check=check)
    assert report.faults == ()
    assert (out == A @ B.T).all()
    broken = text.replace(f"{IDESC:#x}", f"{IDESC - (2 << 24):#x}").replace("tcgen05.dealloc", "@!%p2 tcgen05.dealloc")
    if check == "collect":
        report = emulate(broken, grid=1, block=128, args=[IMAGE.data, out], check=check)
        assert {fault.kind for fault in report.faults} == {"descriptor", "tensor memory", "uninitialised"}


def test_many_ctas_have_tensor_memory_of_their_own() -> None:
    text = kernel(
        one_thread(OPERANDS + MMA)
        + "mov.u32 %r18, %ctaid.x;\nmul.wide.u32 %rd14, %r18, 16384;\nadd.u64 %rd2, %rd2, %rd14;\n"
        + read_back(N),
        IMAGE.data.size,
        64,
    )
    out = np.zeros((5, 128, N), np.float32)
    emulate(text, grid=5, block=128, args=[IMAGE.data, out])
    assert (out == A @ B.T).all()


@pytest.mark.parametrize(("element", "code", "data_bytes"), [("e2m1", 5, 8), ("e3m2", 4, 12)])
def test_the_padding_of_narrow_elements_need_not_be_written(element: str, code: int, data_bytes: int) -> None:
    rng = np.random.default_rng(code)
    a, b = rng.integers(-2, 3, (128, 32)), rng.integers(-2, 3, (N, 32))
    image = Image()
    left = in_shared(a, "f8f6f4", "e4m3", "32B", False)
    right = in_shared(b, "f8f6f4", element, "32B", False)
    text = descriptor(3, left.descriptor, image.add(left.image()))
    first = image.add(right.image())
    text += descriptor(4, right.descriptor, first) + enable(5, False)
    word = 1 << 4 | code << 10 | N // 8 << 17 | 8 << 24
    text += f"tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], %rd3, %rd4, {word:#x}, %p5;\n"
    whole = kernel(one_thread(text) + read_back(N), image.data.size, 64)
    # Threads skip the words of B's padding, which swizzling leaves within their 16 bytes.
    store = "st.shared.u32 [%r13], %r11;\n"
    skip = f"and.b32 %r17, %r12, 15;\nsetp.lt.u32 %p4, %r17, {data_bytes};\nsetp.lt.u32 %p3, %r12, {first};\n"
    whole = whole.replace(store, skip + "or.pred %p4, %p4, %p3;\n@%p4 " + store)
    check_spelling(whole)
    out = np.zeros((128, N), np.float32)
    report = emulate(whole, grid=1, block=128, args=[image.data, out])
    assert report.faults == ()
    assert (out == a @ b.T).all()
