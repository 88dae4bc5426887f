"""Attention: forward, with and without a causal mask, and backward."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention(q, k, v, o, lse, L, scale, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """o = softmax(q k^T scale) v for each head; lse is the logarithm of each row's sum, in base two."""
    block = tl.program_id(0)
    base = tl.program_id(1) * L * H
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, H)
    query = tl.load(q + base + m[:, None] * H + d[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, H), tl.float32)
    end = (block + 1) * BM if CAUSAL else L
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        score = tl.dot(query, tl.load(k + base + n[None, :] * H + d[:, None])) * (scale * 1.4426950408889634)
        if CAUSAL:
            score = tl.where(m[:, None] >= n[None, :], score, -float("inf"))
        now = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2(score - now[:, None])
        old = tl.exp2(largest - now)
        weight = weight * old + tl.sum(p, 1)
        value = tl.load(v + base + n[:, None] * H + d[None, :])
        total = tl.dot(p.to(value.dtype), value, total * old[:, None])
        largest = now
    tl.store(lse + tl.program_id(1) * L + m, largest + tl.log2(weight))
    tl.store(o + base + m[:, None] * H + d[None, :], (total / weight[:, None]).to(o.dtype.element_ty))


@triton.jit
def attention_backward(
    q, k, v, do, lse, delta, dq, dk, dv, L, scale, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Each CTA owns BN keys: dk and dv in registers, dq by atomics; causal. delta is the row sum of do * o."""
    base = tl.program_id(1) * L * H
    row = tl.program_id(1) * L
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, H)
    key = tl.load(k + base + n[:, None] * H + d[None, :])
    value = tl.load(v + base + n[:, None] * H + d[None, :])
    sum_k = tl.zeros((BN, H), tl.float32)
    sum_v = tl.zeros((BN, H), tl.float32)
    for start in range(tl.program_id(0) * BN, L, BM):
        m = start + tl.arange(0, BM)
        at = base + m[:, None] * H + d[None, :]
        query, go = tl.load(q + at), tl.load(do + at)
        score = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)
        p = tl.exp2(score - tl.load(lse + row + m)[:, None])
        p = tl.where(m[:, None] >= n[None, :], p, 0.0)
        sum_v = tl.dot(tl.trans(p.to(tl.float16)), go, sum_v)
        dp = tl.dot(go, tl.trans(value)) - tl.load(delta + row + m)[:, None]
        ds = (p * dp * scale).to(tl.float16)
        sum_k = tl.dot(tl.trans(ds), query, sum_k)
        tl.atomic_add(dq + at, tl.dot(ds, key), sem="relaxed")
    tl.store(dk + base + n[:, None] * H + d[None, :], sum_k)
    tl.store(dv + base + n[:, None] * H + d[None, :], sum_v)


@triton.jit
def descriptor_attention(
    q, k, v, o, L, scale, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SPECIALIZE: tl.constexpr
):
    """The forward pass through tensor maps; rows of all heads lie in one matrix."""
    base = tl.program_id(1) * L
    rows = L * tl.num_programs(1)
    at_q = tl.make_tensor_descriptor(q, shape=[rows, H], strides=[H, 1], block_shape=[BM, H])
    at_k = tl.make_tensor_descriptor(k, shape=[rows, H], strides=[H, 1], block_shape=[BN, H])
    at_v = tl.make_tensor_descriptor(v, shape=[rows, H], strides=[H, 1], block_shape=[BN, H])
    at_o = tl.make_tensor_descriptor(o, shape=[rows, H], strides=[H, 1], block_shape=[BM, H])
    begin = base + tl.program_id(0) * BM
    query = at_q.load([begin, 0])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, H), tl.float32)
    for start in tl.range(0, L, BN, warp_specialize=SPECIALIZE):
        score = tl.dot(query, at_k.load([base + start, 0]).T) * (scale * 1.4426950408889634)
        now = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2(score - now[:, None])
        old = tl.exp2(largest - now)
        weight = weight * old + tl.sum(p, 1)
        value = at_v.load([base + start, 0])
        total = tl.dot(p.to(value.dtype), value, total * old[:, None])
        largest = now
    at_o.store([begin, 0], (total / weight[:, None]).to(o.dtype.element_ty))
