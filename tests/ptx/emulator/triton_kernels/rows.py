"""Reductions, scans, norms and sorts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * columns + i, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=inside)


@triton.jit
def wide_softmax(x, y, columns, BLOCK: tl.constexpr):
    """A row in pieces: the maximum and the sum are carried from piece to piece."""
    row = tl.program_id(0)
    largest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
        now = tl.maximum(largest, tl.max(v, 0))
        total = total * tl.exp(largest - now) + tl.sum(tl.exp(v - now), 0)
        largest = now
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns)
        tl.store(y + row * columns + i, tl.exp(v - largest) / total, mask=i < columns)


@triton.jit
def tile_reductions(x, sums, largest, places, total, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Sums of rows, maxima of columns, the place of each row's minimum, and the sum of all."""
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    v = tl.load(x + r[:, None] * columns + c[None, :], mask=inside, other=0)
    tl.store(sums + r, tl.sum(v, axis=1), mask=r < rows)
    tl.store(largest + c, tl.max(v, axis=0), mask=c < columns)
    tl.store(places + r, tl.argmin(v, axis=1), mask=r < rows)
    tl.store(total, tl.sum(v))


@triton.jit
def _welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def variances(x, mean, variance, columns, BLOCK: tl.constexpr):
    """A reduction of three values at a time with an operator of its own."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
    weight = tl.where(i < columns, 1.0, 0.0)
    m, s, count = tl.reduce((v, tl.zeros_like(v), weight), 0, _welford)
    tl.store(mean + row, m)
    tl.store(variance + row, s / count)


@triton.jit
def layer_norm(x, gamma, beta, y, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=0.0).to(tl.float32)
    m = tl.sum(v, axis=0) / columns
    d = tl.where(inside, v - m, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, axis=0) / columns + eps)
    tl.store(mean + row, m)
    tl.store(rstd + row, scale)
    out = d * scale * tl.load(gamma + i, mask=inside) + tl.load(beta + i, mask=inside)
    tl.store(y + row * columns + i, out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_backward(
    dy, x, gamma, mean, rstd, dx, dgamma, dbeta, locks, columns, BLOCK: tl.constexpr, GROUPS: tl.constexpr
):
    """dgamma and dbeta are summed in GROUPS buffers, each under a lock; its second word says that it was begun."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    g = tl.load(dy + row * columns + i, mask=inside, other=0.0)
    v = tl.load(x + row * columns + i, mask=inside, other=0.0)
    w = tl.load(gamma + i, mask=inside, other=0.0)
    scale = tl.load(rstd + row)
    normal = tl.where(inside, (v - tl.load(mean + row)) * scale, 0.0)
    wg = w * g
    c1 = tl.sum(normal * wg, axis=0) / columns
    c2 = tl.sum(wg, axis=0) / columns
    tl.store(dx + row * columns + i, (wg - (normal * c1 + c2)) * scale, mask=inside)
    group = row % GROUPS
    lock = locks + group
    begun = locks + GROUPS + group
    at = group * columns + i
    dg, db = g * normal, g
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(begun) == 0:
        tl.atomic_xchg(begun, 1)
    else:
        dg += tl.load(dgamma + at, mask=inside)
        db += tl.load(dbeta + at, mask=inside)
    tl.store(dgamma + at, dg, mask=inside)
    tl.store(dbeta + at, db, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def rms_norm(x, weight, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns, other=0.0).to(tl.float32)
        square += v * v
    scale = tl.rsqrt(tl.sum(square, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns, other=0.0).to(tl.float32)
        w = tl.load(weight + i, mask=i < columns).to(tl.float32)
        tl.store(y + row * columns + i, (v * scale * w).to(y.dtype.element_ty), mask=i < columns)


@triton.jit
def cross_entropy(logits, labels, loss, gradient, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(logits + row * columns + i, mask=inside, other=-float("inf"))
    label = tl.load(labels + row)
    largest = tl.max(v, 0)
    e = tl.exp(v - largest)
    total = tl.sum(e, 0)
    hit = tl.sum(tl.where(i == label, v, 0.0), 0)
    tl.store(loss + row, tl.log(total) + largest - hit)
    tl.store(gradient + row * columns + i, e / total - tl.where(i == label, 1.0, 0.0), mask=inside)


@triton.jit
def transpose(x, y, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N))
    tl.store(y + c[:, None] * M + r[None, :], tl.trans(v), mask=(c[:, None] < N) & (r[None, :] < M))


@triton.jit
def scan(x, y, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.program_id(0) * R * C + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(y + at, tl.cumsum(tl.load(x + at), AXIS, reverse=REVERSE))


@triton.jit
def _then(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def recurrence(a, b, h, BLOCK: tl.constexpr):
    """h[t] = a[t] * h[t - 1] + b[t], as a scan of pairs."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _, value = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, _then)
    tl.store(h + i, value)


@triton.jit
def sort(x, y, BLOCK: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.sort(tl.load(x + i), descending=DESCENDING))


@triton.jit
def top(x, y, BLOCK: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
    tl.store(y + row * K + tl.arange(0, K), tl.topk(v, K))


@triton.jit
def gather_rows(x, ids, y, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(y + at, tl.gather(tl.load(x + at), tl.load(ids + at), AXIS))


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), found)


@triton.jit
def bins(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + v, 1, mask=i < n)


@triton.jit
def lock(x, total, mutex, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(mutex, 0, 1) == 1:
        pass
    tl.store(total + i, tl.load(total + i) + v)
    tl.debug_barrier()
    tl.atomic_xchg(mutex, 0)


@triton.jit
def last_adds(x, parts, out, counter, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Every CTA writes its sum; the one that finishes last adds them up."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        k = tl.arange(0, PARTS)
        v = tl.load(parts + k, mask=k < tl.num_programs(0), other=0.0)
        tl.store(out, tl.sum(v, 0))
