"""tcgen05 over pairs of CTAs (.cta_group::2): operands from both, D in both, signals to both."""

# Sentences stay on one line, so that they can be searched for.
# ruff: noqa: E501

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tcgen05_kernels import (
    CODES,
    MEET,
    PAIR_FREE,
    Image,
    K,
    check_spelling,
    clear,
    descriptor,
    enable,
    even_thread,
    in_shared,
    lane_words,
    pair_kernel,
    read_back,
    store_lanes,
)

from tinygpu.ptx.emulator import EmulationFault, emulate

ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}


def both(even: Image, odd: Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The source buffer: what the even CTA fills its shared memory with, then the odd one's."""
    assert even.data.size == odd.data.size
    return np.concatenate([even.data, odd.data])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize(
    ("kind", "element", "d_type", "m", "n", "a_in_tmem", "b_mn", "masked"),
    [
        ("f16", "bf16", "f32", 256, 64, False, False, False), ("f16", "bf16", "f32", 256, 256, False, True, False),
        ("f16", "f16", "f32", 128, 64, False, False, False), ("i8", "s8", "s32", 128, 32, False, False, False),
        ("f16", "bf16", "f32", 256, 32, True, False, False), ("tf32", "tf32", "f32", 128, 64, True, False, False),
        ("f8f6f4", "e4m3", "f32", 256, 48, False, False, True),
    ],
)  # fmt: skip
def test_a_pair_multiplies_what_both_hold(
    kind: str, element: str, d_type: str, m: int, n: int, a_in_tmem: bool, b_mn: bool, masked: bool, order: Any
) -> None:
    rng = np.random.default_rng(m + n)
    k = K[kind]
    a, b = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (n, k))
    columns = n if m == 256 else n // 2
    images, text = [], ""
    for q in range(2):
        image, part, fill = Image(), "", clear(columns)
        mine = a[q * m // 2 : (q + 1) * m // 2]
        if a_in_tmem:
            words = lane_words(mine, kind, element)
            words = words if m == 256 else np.concatenate([words, words])
            fill += store_lanes(256, image.add(words.view(np.uint8).reshape(-1)), 8)
        else:
            tile = in_shared(mine, kind, element, "64B", False)
            part += descriptor(3, tile.descriptor, image.add(tile.image()))
        tile = in_shared(b[q * n // 2 : (q + 1) * n // 2], kind, element, "128B" if b_mn else "32B", b_mn)
        part += descriptor(4, tile.descriptor, image.add(tile.image()))
        images.append(image)
        text = part
    code = CODES[kind][element]
    word = ACCUMULATORS[d_type] << 4 | code << 7 | code << 10 | b_mn << 16 | n // 8 << 17 | m // 16 << 24
    mask = ""
    if masked:
        text += "".join(f"mov.u32 %r{30 + w}, {0xF0 if w in (1, 6) else 0};\n" for w in range(8))
        mask = " {" + ", ".join(f"%r{30 + w}" for w in range(8)) + "},"
    first = "[%r6+256]" if a_in_tmem else "%rd3"
    text += enable(5, False)
    text += f"tcgen05.mma.cta_group::2.kind::{kind} [%r6], {first}, %rd4, {word:#x},{mask} %p5;\n"
    met = "tcgen05.fence::before_thread_sync;\n" + MEET + "tcgen05.fence::after_thread_sync;\n"
    size = images[0].data.size
    whole = pair_kernel(fill + met + even_thread(text) + read_back(columns), size, 512 * columns, 512)
    check_spelling(whole)
    out = np.zeros((2, 128, columns), np.int32 if kind == "i8" else np.float32)
    report = emulate(whole, grid=2, block=128, cluster=2, args=[both(*images), out], order=order)
    assert report.advisories == ()
    product = a @ b.T
    for q in range(2):
        for lane in range(128):
            if masked and lane // 32 == (1 if q == 0 else 2) and 4 <= lane % 32 < 8:
                assert (out[q, lane] == 0).all()
            elif m == 256:
                assert (out[q, lane] == product[128 * q + lane]).all()
            else:
                part = product[64 * q + lane % 64]
                assert (out[q, lane] == part[n // 2 * (lane // 64) : n // 2 * (lane // 64) + n // 2]).all()


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_scales_blocks(m: int) -> None:
    """mxf8f6f4 with scale factors of all columns of B in both CTAs; with M = 128 the halves lie in lanes 0 and 64."""
    rng = np.random.default_rng(m)
    n = 64
    a, b = rng.integers(-3, 4, (m, 32)), rng.integers(-3, 4, (n, 32))
    sa, sb = rng.integers(124, 131, m), rng.integers(124, 131, n)
    images, text = [], ""
    for q in range(2):
        image = Image()
        rows = sa[q * m // 2 : (q + 1) * m // 2]
        left = np.zeros((128, 4), np.uint32)
        for lane in range(128):
            for column in range(m // 64):
                left[lane, column] = rows[32 * column + lane % 32]
        right = np.zeros((128, 4), np.uint32)
        for lane in range(128):
            for column in range(2 if m == 256 else 1):
                first = 32 * column if m == 256 else 32 * (lane // 64)
                right[lane, column] = sb[first + lane % 32]
        fill = store_lanes(256, image.add(left.view(np.uint8).reshape(-1)), 4)
        fill += store_lanes(260, image.add(right.view(np.uint8).reshape(-1)), 4)
        tile = in_shared(a[q * m // 2 : (q + 1) * m // 2], "mxf8f6f4", "e4m3", "32B", False)
        text = descriptor(3, tile.descriptor, image.add(tile.image()))
        tile = in_shared(b[q * n // 2 : (q + 1) * n // 2], "mxf8f6f4", "e4m3", "32B", False)
        text += descriptor(4, tile.descriptor, image.add(tile.image()))
        images.append(image)
    word = n // 8 << 17 | 1 << 23 | m // 128 << 27
    text += enable(5, False)
    text += "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.block32 "
    text += f"[%r6], %rd3, %rd4, {word:#x}, [%r6+256], [%r6+260], %p5;\n"
    met = "tcgen05.fence::before_thread_sync;\n" + MEET + "tcgen05.fence::after_thread_sync;\n"
    columns = n if m == 256 else n // 2
    whole = pair_kernel(
        fill + met + even_thread(text) + read_back(columns), images[0].data.size, 512 * columns, 512, "8.8"
    )
    check_spelling(whole)
    out = np.zeros((2, 128, columns), np.float32)
    emulate(whole, grid=2, block=128, cluster=2, args=[both(*images), out])
    product = (a * np.ldexp(1.0, sa - 127)[:, None]) @ (b * np.ldexp(1.0, sb - 127)[:, None]).T
    wanted = product.reshape(2, m // 2, n)
    if m == 128:
        wanted = np.concatenate([wanted[:, :, : n // 2], wanted[:, :, n // 2 :]], axis=1)
    assert (out == wanted).all()


@pytest.mark.parametrize("order", ["late", "random"])
def test_one_copy_fills_the_tensor_memory_of_both_from_their_own_shared_memory(order: Any) -> None:
    data = np.random.default_rng(4).integers(0, 256, (2, 32, 16)).astype(np.uint8)
    images = [Image(), Image()]
    for q in range(2):
        offset = images[q].add(data[q].reshape(-1))
    text = descriptor(3, 0x0000400800000000, offset) + "tcgen05.cp.cta_group::2.32x128b.warpx4 [%r6], %rd3;\n"
    whole = pair_kernel(even_thread(text) + read_back(4), images[0].data.size, 2048, 32)
    check_spelling(whole)
    out = np.zeros((2, 128, 4), np.uint32)
    emulate(whole, grid=2, block=128, cluster=2, args=[both(*images), out], order=order)
    for q in range(2):
        assert (out[q] == np.tile(data[q].view(np.uint32), (4, 1))).all()


def test_a_pair_needs_clusters_of_an_even_number() -> None:
    image = Image()
    image.add(np.zeros(16, np.uint8))
    text = pair_kernel("", image.data.size, 0, 32).replace("\n.explicitcluster\n.reqnctapercluster 2, 1, 1", "")
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=2, block=128, args=[both(image, image), np.zeros(1, np.uint32)])
    assert caught.value.kind == "cluster"
    assert caught.value.sentence == (
        "`tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32` needs a pair of CTAs, but the cluster has 1: launch "
        "clusters of an even number of CTAs"
    )


# ---- planted bugs -------------------------------------------------------------------------------------------------


def plain_pair(changes: tuple[tuple[str, str], ...] = (), check: bool = True) -> tuple[str, list[Any]]:
    """A pair multiplies 256 x 32 x 16; `changes` replace parts of the text."""
    rng = np.random.default_rng(0)
    images, text = [], ""
    for _ in range(2):
        image = Image()
        tile = in_shared(rng.integers(-2, 3, (128, 16)), "f16", "bf16", "32B", False)
        text = descriptor(3, tile.descriptor, image.add(tile.image()))
        tile = in_shared(rng.integers(-2, 3, (16, 16)), "f16", "bf16", "32B", False)
        text += descriptor(4, tile.descriptor, image.add(tile.image()))
        images.append(image)
    word = 1 << 4 | 1 << 7 | 1 << 10 | 4 << 17 | 16 << 24
    text += enable(5, False) + f"tcgen05.mma.cta_group::2.kind::f16 [%r6], %rd3, %rd4, {word:#x}, %p5;\n"
    whole = pair_kernel(even_thread(text) + read_back(32), images[0].data.size, 16384, 32)
    for old, new in changes:
        assert old in whole
        whole = whole.replace(old, new)
    if check:
        check_spelling(whole)
    return whole, [both(*images), np.zeros((2, 128, 32), np.float32)]


FILL_MET = "fence.proxy.async.shared::cta;\n" + MEET
DEALLOC = "@!%p2 bra FREED;\ntcgen05.dealloc"
# The odd CTA gives back, then meets the even one, which does it the other way round (the manual's example of a hang).
ODD_FIRST = (
    "@%p6 bra EVEN;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n@!%p2 bra ODD;\n"
    "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r6, 32;\nODD:\nbarrier.cluster.arrive.aligned;\n"
    "barrier.cluster.wait.aligned;\nret;\nEVEN:\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
)
COMMIT_BOTH = "mov.u16 %h1, 3;\n"
BUGS = {
    "the peer allocates nothing": (
        (("@!%p2 bra ALLOCATED;", "and.pred %p7, %p2, %p6;\n@!%p7 bra ALLOCATED;"),), "deadlock",
        "deadlock: no thread can run. warp 0 of the cluster's CTA 0 waits on line 46 for the other CTA of the pair, which must execute tcgen05.alloc too; warp 0 of the cluster's CTA 1 waits on line 69 for parity 0 of an mbarrier: mbarrier 0x1880 (initialised on line 28) has 0 completed phases, 0 of 1 arrivals; on line 49, barrier 0 has 96 of 128 threads (warps 1, 2, 3), and no other thread can run: warp 0 never comes. Every thread that the barrier counts must reach it",
    ),
    "the peer gives nothing back": (
        ((DEALLOC, "and.pred %p7, %p2, %p6;\n@!%p7 bra FREED;\ntcgen05.dealloc"),), "tensor memory", "the CTA exits with 32 columns of tensor memory allocated (line 45): tcgen05.dealloc must give them back before",
    ),
    "the peers ask for different numbers of columns": (
        (("[slot], 32;", "[slot], %r9;"), ("%r6, 32;", "%r6, %r9;"),
         ("setp.eq.u32 %p6, %r7, 0;\n", "setp.eq.u32 %p6, %r7, 0;\nselp.b32 %r9, 32, 64, %p6;\n")),
        "tensor memory", "tcgen05.alloc of 32 columns, but the other CTA of the pair asks for 64: both must ask for the same",
    ),
    "only one CTA hears of the product": (((COMMIT_BOTH, "mov.u16 %h1, 1;\n"),), "deadlock", "deadlock: no thread can run. warp 0 of the cluster's CTA 1 waits on line 68 for parity 0 of an mbarrier: mbarrier 0x1880 (initialised on line 28) has 0 completed phases, 0 of 1 arrivals; warp 0 of the cluster's CTA 0 waits on line 111 at the cluster barrier: warp 0 of the cluster's CTA 1, warp 1 of the cluster's CTA 1, warp 2 of the cluster's CTA 1, warp 3 of the cluster's CTA 1 never arrives"),
    "a CTA is told that is none": (((COMMIT_BOTH, "mov.u16 %h1, 7;\n"),), "cluster", "tcgen05.commit signals CTAs 0x0007 of the cluster, which has 2: bits from 2 on must be 0"),
    "nobody knows that the peer has filled its shared memory": (
        ((FILL_MET, FILL_MET.replace(MEET, "")),), "cluster", "reaches into the shared memory of CTA 1 of the cluster, which may not have started: a cluster barrier (barrier.cluster.arrive and .wait) must come before",
    ),
    "the stores of the peer are not fenced": (
        (("fence.proxy.async.shared::cta;\n", "@%p6 fence.proxy.async.shared::cta;\n"),), "race", "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 0 of the cluster's CTA 1 wrote through the generic proxy on line 37, without fence.proxy.async between the two: the writing threads must execute fence.proxy.async after their stores, before the barrier",
    ),
    "one CTA gives back before the last barrier, the other after it": (
        ((PAIR_FREE.format(columns=32), ODD_FIRST + PAIR_FREE.format(columns=32)),), "deadlock", "deadlock: no thread can run. warp 0 of the cluster's CTA 0 waits on line 123 at the cluster barrier: warp 0 of the cluster's CTA 1 never arrives; warp 0 of the cluster's CTA 1 waits on line 113 for the other CTA of the pair, which must execute tcgen05.dealloc too; warp 1 of the cluster's CTA 1 waits on line 116 at the cluster barrier: warp 0 of the cluster's CTA 1 never arrives",
    ),
    "a CTA gives columns back while the other still reads": (
        (("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\ntcgen05.fence::after_thread_sync;\n" + DEALLOC, DEALLOC),),
        "race", "deallocates lanes 32 to 63, columns 0 to 31 of tensor memory, which `tcgen05.ld` on line 75 (warp 1 of the cluster's CTA 0) read: nothing orders the two; put a barrier or an mbarrier between them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize("name", sorted(BUGS))
def test_bugs_between_ctas_are_found(name: str, order: Any) -> None:
    changes, kind, sentence = BUGS[name]
    text, arguments = plain_pair(changes)
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=2, block=128, cluster=2, args=arguments, order=order)
    assert caught.value.kind == kind
    # Which warp comes first is left to chance.
    first = r"warp \d+|lanes \d+ to \d+" if order == "random" else r"(?!)"
    assert re.sub(first, "", caught.value.sentence) == re.sub(first, "", sentence)


def test_the_kernel_without_these_bugs_runs_clean() -> None:
    text, arguments = plain_pair()
    for order in ("late", "early", "random"):
        report = emulate(text, grid=4, block=128, cluster=2, args=arguments, order=order, ctas=[0, 1])
        assert report.advisories == ()
