"""tcgen05 over pairs of CTAs (.cta_group::2): operands from both, D in both, signals to both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tcgen05_kernels import (
    CODES,
    MEET,
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
