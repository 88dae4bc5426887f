"""Makes the PTX fixtures in this folder: python make.py. Needs triton (any 3.x; no GPU).

Each fixture is one kernel for sm_80, with its launch facts in the first line: shared memory in bytes and warps per CTA.
"""

from __future__ import annotations

import os

# Line tables would put this file's place into the PTX.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * columns + i, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def layer_norm(x, gamma, beta, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=0.0).to(tl.float32)
    d = tl.where(inside, v - tl.sum(v, axis=0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, axis=0) / columns + eps)
    out = d * scale * tl.load(gamma + i, mask=inside) + tl.load(beta + i, mask=inside)
    tl.store(y + row * columns + i, out.to(tl.float16), mask=inside)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
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
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def attention(q, k, v, o, L, scale, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    block = tl.program_id(0)
    base = tl.program_id(1) * L * H
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, H)
    query = tl.load(q + base + m[:, None] * H + d[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, H), tl.float32)
    for start in range(0, (block + 1) * BM, BN):
        n = start + tl.arange(0, BN)
        score = tl.dot(query, tl.load(k + base + n[None, :] * H + d[:, None])) * scale
        score = tl.where(m[:, None] >= n[None, :], score, -float("inf"))
        now = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2((score - now[:, None]) * 1.4426950408889634)
        old = tl.exp2((largest - now) * 1.4426950408889634)
        weight = weight * old + tl.sum(p, 1)
        total = tl.dot(p.to(tl.float16), tl.load(v + base + n[:, None] * H + d[None, :]), total * old[:, None])
        largest = now
    tl.store(o + base + m[:, None] * H + d[None, :], (total / weight[:, None]).to(tl.float16))


@triton.jit
def transpose(x, y, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N))
    tl.store(y + c[:, None] * M + r[None, :], tl.trans(v), mask=(c[:, None] < N) & (r[None, :] < M))


@triton.jit
def scan(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.cumsum(tl.load(x + i), 0))


@triton.jit
def sort(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.sort(tl.load(x + i)))


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
def int8_matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] + n[None, :] * K)
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    tl.store(c + m[:, None] * N + n[None, :], total)


KERNELS: list[tuple[Any, list[str], dict[str, int], dict[str, int]]] = [
    (softmax, ["*fp32", "*fp32", "i32"], {"BLOCK": 1024}, {}),
    (layer_norm, ["*fp32", "*fp32", "*fp32", "*fp16", "i32", "fp32"], {"BLOCK": 1024}, {}),
    (matmul, ["*fp16"] * 3 + ["i32"] * 3, {"BM": 64, "BN": 64, "BK": 32}, {"num_stages": 3}),
    (attention, ["*fp16"] * 4 + ["i32", "fp32"], {"H": 64, "BM": 64, "BN": 32}, {"num_stages": 2}),
    (transpose, ["*fp32", "*fp32", "i32", "i32"], {"BLOCK": 64}, {}),
    (scan, ["*i32", "*i32"], {"BLOCK": 512}, {}),
    (sort, ["*i32", "*i32"], {"BLOCK": 256}, {}),
    (lock, ["*fp32", "*fp32", "*i32"], {"BLOCK": 128}, {}),
    (int8_matmul, ["*i8", "*i8", "*i32", "i32", "i32"], {"BM": 64, "BN": 64, "BK": 64}, {"num_stages": 3}),
]


def make(kernel: Any, types: list[str], constants: dict[str, int], options: dict[str, int]) -> None:
    """Compile one kernel; pointers and, but for layer_norm, integers are multiples of 16."""
    names = kernel.arg_names
    signature = {name: types[k] if k < len(types) else "constexpr" for k, name in enumerate(names)}
    whole = kernel is not layer_norm
    divisible = {
        (k,): [["tt.divisibility", 16]] for k, t in enumerate(types) if t[0] == "*" or (t == "i32" and whole)
    }
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values, divisible)
    result = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    facts = f"// shared {result.metadata.shared} warps {result.metadata.num_warps}\n"
    name = kernel.fn.__name__
    (HERE / f"{name}.ptx").write_text(facts + result.asm["ptx"].rstrip() + "\n")


if __name__ == "__main__":
    for row in KERNELS:
        make(*row)
