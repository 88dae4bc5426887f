"""Triton kernels for the operations of our machines, as its users write them: one idea each, no more than that.

Arguments that are no constants are named as the machine names them (tensors, dims, scalars), so that a launch follows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def axpby(a, x, b, z, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(y + i, a * tl.load(x + i, mask=inside) + b * tl.load(z + i, mask=inside), mask=inside)


@triton.jit
def bias_relu(x, bias, y, m, n, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    inside = (r < m)[:, None] & (c < n)[None, :]
    at = r[:, None] * n + c[None, :]
    v = tl.load(x + at, mask=inside).to(tl.float32) + tl.load(bias + c, mask=c < n).to(tl.float32)[None, :]
    tl.store(y + at, tl.maximum(v, 0.0).to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n + i, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def rms_norm(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    out = v * scale * tl.load(w + i, mask=i < n).to(tl.float32)
    tl.store(y + row * n + i, out.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def layer_norm(x, w, shift, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + row * n + i, mask=inside, other=0.0).to(tl.float32)
    v = tl.where(inside, v - tl.sum(v, axis=0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    out = v * scale * tl.load(w + i, mask=inside).to(tl.float32) + tl.load(shift + i, mask=inside).to(tl.float32)
    tl.store(y + row * n + i, out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_in_pieces(x, w, shift, y, n, eps, BLOCK: tl.constexpr):
    """The row is read three times: for its mean, for its variance, and to be normalised."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        v = tl.where(i < n, v - mean, 0.0)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        out = (v - mean) * scale * tl.load(w + i, mask=i < n).to(tl.float32)
        out += tl.load(shift + i, mask=i < n).to(tl.float32)
        tl.store(y + row * n + i, out.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def row_sum(x, y, m, n, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, C), tl.float32)
    for start in range(0, n, C):
        c = start + tl.arange(0, C)
        inside = (r < m)[:, None] & (c < n)[None, :]
        total += tl.load(x + r[:, None] * n + c[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(y + r, tl.sum(total, axis=1), mask=r < m)


@triton.jit
def column_sum(x, y, m, n, R: tl.constexpr, C: tl.constexpr):
    c = tl.program_id(0) * C + tl.arange(0, C)
    total = tl.zeros((R, C), tl.float32)
    for start in range(0, m, R):
        r = start + tl.arange(0, R)
        inside = (r < m)[:, None] & (c < n)[None, :]
        total += tl.load(x + r[:, None] * n + c[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(y + c, tl.sum(total, axis=0), mask=c < n)


@triton.jit
def argmax(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(y + row, tl.argmax(tl.load(x + row * n + i, mask=i < n, other=-float("inf")), axis=0))


@triton.jit
def argmax_in_pieces(x, y, m, n, R: tl.constexpr, C: tl.constexpr):
    """Each place of a tile keeps the largest that it saw and where; they meet at the end of the row."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    top = tl.full((R, C), -float("inf"), tl.float32)
    at = tl.zeros((R, C), tl.int32)
    for start in range(0, n, C):
        c = start + tl.arange(0, C)
        inside = (r < m)[:, None] & (c < n)[None, :]
        v = tl.load(x + r[:, None] * n + c[None, :], mask=inside, other=-float("inf"))
        at = tl.where(v > top, c[None, :], at)
        top = tl.maximum(top, v)
    largest = tl.max(top, axis=1)
    place = tl.min(tl.where(top == largest[:, None], at, 2147483647), axis=1)
    tl.store(y + r, place, mask=r < m)


@triton.jit
def transpose(x, y, m, n, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.load(x + r[:, None] * n + c[None, :], mask=(r < m)[:, None] & (c < n)[None, :])
    tl.store(y + c[:, None] * m + r[None, :], tl.trans(tile), mask=(c < n)[:, None] & (r < m)[None, :])


@triton.jit
def embedding(table, ids, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(ids + row).to(tl.int64)
    tl.store(y + row * n + c, tl.load(table + number * n + c, mask=c < n), mask=c < n)


@triton.jit
def cross_entropy(x, target, loss, logsum, n, BLOCK: tl.constexpr):
    """The logits are read once; the largest and the sum are carried from piece to piece."""
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
        now = tl.maximum(top, tl.max(v, axis=0))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(v - now), axis=0)
        top = now
    right = tl.load(x + row * n + tl.load(target + row)).to(tl.float32)
    tl.store(logsum + row, top + tl.log(total))
    tl.store(loss + row, top - right + tl.log(total))


@triton.jit
def cross_entropy_by_lanes(x, target, loss, logsum, n, BLOCK: tl.constexpr):
    """Each place of a piece keeps a largest and a sum of its own; they meet at the end of the row."""
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
        now = tl.maximum(top, v)
        total = total * tl.exp(top - now) + tl.exp(v - now)
        top = now
    most = tl.max(top, axis=0)
    sums = tl.log(tl.sum(total * tl.exp(top - most), axis=0))
    right = tl.load(x + row * n + tl.load(target + row)).to(tl.float32)
    tl.store(logsum + row, most + sums)
    tl.store(loss + row, most - right + sums)


@triton.jit
def matvec(w, x, y, m, k, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, C), tl.float32)
    for start in range(0, k, C):
        c = start + tl.arange(0, C)
        inside = (r < m)[:, None] & (c < k)[None, :]
        v = tl.load(w + r[:, None].to(tl.int64) * k + c[None, :], mask=inside, other=0.0).to(tl.float32)
        total += v * tl.load(x + c, mask=c < k, other=0.0).to(tl.float32)[None, :]
    tl.store(y + r, tl.sum(total, axis=1).to(y.dtype.element_ty), mask=r < m)


@triton.jit
def rotary(x, cos, sin, positions, y, h, half, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """A token: its cosines and sines are loaded once, and all heads of a block are turned by them."""
    token = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    at = tl.load(positions + token).to(tl.int64)
    cosine = tl.load(cos + at * half + c, mask=c < half).to(tl.float32)[None, :]
    sine = tl.load(sin + at * half + c, mask=c < half).to(tl.float32)[None, :]
    inside = (head < h)[:, None] & (c < half)[None, :]
    first = (token * h + head)[:, None] * 2 * half + c[None, :]
    a = tl.load(x + first, mask=inside).to(tl.float32)
    b = tl.load(x + first + half, mask=inside).to(tl.float32)
    tl.store(y + first, (a * cosine - b * sine).to(y.dtype.element_ty), mask=inside)
    tl.store(y + first + half, (b * cosine + a * sine).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def row_scan(x, y, n, BLOCK: tl.constexpr):
    """A row in pieces; the sum of what stands before a piece is carried on."""
    row = tl.program_id(0)
    before = tl.zeros((), x.dtype.element_ty)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=0)
        tl.store(y + row * n + i, before + tl.associative_scan(v, 0, _plus), mask=i < n)
        before += tl.sum(v, axis=0)


@triton.jit
def quantise_int8(x, q, scales, m, n, blocks, R: tl.constexpr, B: tl.constexpr, SIZE: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    first = tl.program_id(1) * B
    b = first + tl.arange(0, B)
    c = tl.arange(0, SIZE)
    column = b[None, :, None] * SIZE + c[None, None, :]
    inside = (r < m)[:, None, None] & (column < n)
    at = r[:, None, None].to(tl.int64) * n + column
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(v), axis=2), 2.0**-100)
    tl.store(q + at, libdevice.rint(v * (127.0 / most)[:, :, None]).to(tl.int8), mask=inside)
    tl.store(scales + r[:, None] * blocks + b[None, :], most / 127.0, mask=(r < m)[:, None] & (b < blocks)[None, :])


@triton.jit
def dequantise(q, scales, y, m, n, blocks, R: tl.constexpr, B: tl.constexpr, SIZE: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    b = tl.program_id(1) * B + tl.arange(0, B)
    c = tl.arange(0, SIZE)
    column = b[None, :, None] * SIZE + c[None, None, :]
    inside = (r < m)[:, None, None] & (column < n)
    at = r[:, None, None].to(tl.int64) * n + column
    scale = tl.load(scales + r[:, None] * blocks + b[None, :], mask=(r < m)[:, None] & (b < blocks)[None, :])
    v = tl.load(q + at, mask=inside).to(tl.float32) * scale[:, :, None]
    tl.store(y + at, v.to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward(y, dy, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    p = tl.load(y + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    g = tl.load(dy + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx + row * n + i, (p * (g - tl.sum(p * g, axis=0))).to(dx.dtype.element_ty), mask=i < n)
