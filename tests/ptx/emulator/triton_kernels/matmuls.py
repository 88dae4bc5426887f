"""Matrix products by pointers: tiles, stages, types, orders of tiles, splits of k."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Both operands row-major, edges in every direction."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at_a = a + (m % M)[:, None] * K + k[None, :]
    at_b = b + k[:, None] * N + (n % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(at_a, mask=k[None, :] < K - step * BK, other=0.0)
        right = tl.load(at_b, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        at_a += BK
        at_b += BK * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def whole_matmul(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles in groups of four rows, no edges; sums in KIND. ROWS: is a, is b row-major ("nt" is yes and no)."""
    tiles_m, tiles_n = M // BM, N // BN
    group = tl.program_id(0) // (4 * tiles_n)
    rows = min(tiles_m - 4 * group, 4)
    within = tl.program_id(0) % (4 * tiles_n)
    m = (4 * group + within % rows) * BM + tl.arange(0, BM)
    n = within // rows * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=KIND)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        if ROWS[0] == "n":
            left = tl.load(a + m[:, None] * K + k[None, :])
        else:
            left = tl.load(a + m[:, None] + k[None, :] * M)
        if ROWS[1] == "n":
            right = tl.load(b + k[:, None] * N + n[None, :])
        else:
            right = tl.load(b + k[:, None] + n[None, :] * K)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=KIND)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty))


@triton.jit
def mixed_matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Operands of different types: the narrower is widened in registers."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * N + n[None, :])
        total = tl.dot(left, right.to(a.dtype.element_ty), total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def split_k(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """Each CTA takes every SPLIT-th piece of k and adds its part to c by atomics."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(2) * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        total = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty))


@triton.jit
def persistent(a, b, c, M, N, K, CTAS, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLATTEN: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, CTAS, flatten=FLATTEN):
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            k = step * BK + tl.arange(0, BK)
            left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            total = tl.dot(left, right, total)
        inside = (m[:, None] < M) & (n[None, :] < N)
        tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def stream_k(a, b, c, parts, flags, N, K, SHARE, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """CTAs take SHARE steps of k each, across tiles; whoever begins a tile waits for those that finish it."""
    me = tl.program_id(0)
    steps = K // BK
    tiles_n = N // BN
    begin = me * SHARE
    end = begin + SHARE
    r, q = tl.arange(0, BM), tl.arange(0, BN)
    while begin < end:
        tile = begin // steps
        first = begin % steps
        last = min(steps, first + end - begin)
        m, n = tile // tiles_n * BM + r, tile % tiles_n * BN + q
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(first, last):
            k = step * BK + tl.arange(0, BK)
            total = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), total)
        if first > 0:
            tl.store(parts + me * BM * BN + r[:, None] * BN + q[None, :], total)
            tl.debug_barrier()
            tl.atomic_xchg(flags + me, 1, sem="release")
        else:
            covered = last
            other = me + 1
            while covered < steps:
                while tl.atomic_cas(flags + other, 1, 1, sem="acquire") != 1:
                    pass
                total += tl.load(parts + other * BM * BN + r[:, None] * BN + q[None, :], volatile=True)
                covered = min(steps, covered + SHARE)
                other += 1
            tl.store(c + m[:, None] * N + n[None, :], total)
        begin += last - first


@triton.jit
def grouped(left, right, out, sizes, groups, CTAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of several sizes in one launch: tables of pointers, and m, n, k of each."""
    tile = tl.program_id(0)
    done = 0
    for g in range(groups):
        M, N, K = tl.load(sizes + 3 * g), tl.load(sizes + 3 * g + 1), tl.load(sizes + 3 * g + 2)
        tiles_n = tl.cdiv(N, BN)
        count = tl.cdiv(M, BM) * tiles_n
        a = tl.load(left + g).to(tl.pointer_type(tl.float16))
        b = tl.load(right + g).to(tl.pointer_type(tl.float16))
        c = tl.load(out + g).to(tl.pointer_type(tl.float16))
        while tile < done + count:
            m = (tile - done) // tiles_n * BM + tl.arange(0, BM)
            n = (tile - done) % tiles_n * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for start in range(0, K, BK):
                k = start + tl.arange(0, BK)
                x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
                y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
                total = tl.dot(x, y, total)
            inside = (m[:, None] < M) & (n[None, :] < N)
            tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=inside)
            tile += CTAS
        done += count


@triton.jit
def batched(a, b, c, M, N, K, BB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of cubes: BB matrices per CTA."""
    g = tl.program_id(2) * BB + tl.arange(0, BB)[:, None, None]
    m = (tl.program_id(0) * BM + tl.arange(0, BM))[None, :, None]
    n = (tl.program_id(1) * BN + tl.arange(0, BN))[None, None, :]
    total = tl.zeros((BB, BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + g * M * K + m * K + k[None, None, :])
        right = tl.load(b + g * K * N + k[None, :, None] * N + n)
        total = tl.dot(left, right, total)
    tl.store(c + g * M * N + m * N + n, total)


@triton.jit
def convolution(x, w, y, H, W, CI: tl.constexpr, CO: tl.constexpr, R: tl.constexpr, S: tl.constexpr, BM: tl.constexpr):
    """NHWC, same size, zero padding: a product whose rows are gathered by pointers, tap after tap."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    h, v = place // W, place % W
    ci, co = tl.arange(0, CI), tl.arange(0, CO)
    total = tl.zeros((BM, CO), dtype=tl.float32)
    for tap in range(R * S):
        i, j = h + tap // S - R // 2, v + tap % S - S // 2
        inside = (i >= 0) & (i < H) & (j >= 0) & (j < W)
        at = (tl.program_id(1) * H * W + i * W + j)[:, None] * CI + ci[None, :]
        left = tl.load(x + at, mask=inside[:, None], other=0.0)
        right = tl.load(w + tap * CI * CO + ci[:, None] * CO + co[None, :])
        total = tl.dot(left, right, total)
    at = (tl.program_id(1) * H * W + place)[:, None] * CO + co[None, :]
    tl.store(y + at, total.to(tl.float16), mask=(place < H * W)[:, None])


@triton.jit
def scaled_matmul(
    a, sa, b, sb, c, M, N, K, A: tl.constexpr, B: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Operands with a scale per 32 elements of k; PA and PB elements are packed in a byte."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        ka = start // PA + tl.arange(0, BK // PA)
        kb = start // PB + tl.arange(0, BK // PB)
        s = start // 32 + tl.arange(0, BK // 32)
        left = tl.load(a + m[:, None] * (K // PA) + ka[None, :])
        right = tl.load(b + n[None, :] * (K // PB) + kb[:, None])
        left_scale = tl.load(sa + m[:, None] * (K // 32) + s[None, :])
        right_scale = tl.load(sb + n[:, None] * (K // 32) + s[None, :])
        total = tl.dot_scaled(left, left_scale, A, right, right_scale, B, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def descriptor_matmul(
    a, b, c, M, N, K, CTAS, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Persistent, through tensor maps that the kernel makes itself; a is M x K, b is N x K; c is stored in PIECES."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN // PIECES])
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, CTAS, flatten=FLATTEN, warp_specialize=SPECIALIZE):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(left.load([m, step * BK]), right.load([n, step * BK]).T, total)
        if PIECES == 1:
            out.store([m, n], total.to(c.dtype.element_ty))
        else:
            halves = tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1))
            first, second = tl.split(halves)
            out.store([m, n], first.to(c.dtype.element_ty))
            out.store([m, n + BN // 2], second.to(c.dtype.element_ty))


@triton.jit
def host_descriptor_matmul(left, right, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile per CTA through tensor maps that the host made; b is K x N."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        total = tl.dot(left.load([m, start]), right.load([start, n]), total)
    out.store([m, n], total.to(out.dtype))
