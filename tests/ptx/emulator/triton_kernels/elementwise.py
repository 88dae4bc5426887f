"""Kernels in which an element of the output depends on few elements of the input."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def fused(x, bias, y, rows, columns, BLOCK: tl.constexpr):
    """Bias, gelu by tanh, and a residual, over a flat range with an edge."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < rows * columns
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    z = v + tl.load(bias + i % columns, mask=inside, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
    tanh = 1 - 2 / (1 + tl.exp(2 * u))
    tl.store(y + i, (0.5 * z * (1 + tanh) + v).to(y.dtype.element_ty), mask=inside)


@triton.jit
def cast(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def functions(x, y, n, BLOCK: tl.constexpr):
    """Eleven functions of a positive x; row r of y holds the r-th."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside, other=1.0)
    tl.store(y + i, tl.exp(v), mask=inside)
    tl.store(y + n + i, tl.log(v), mask=inside)
    tl.store(y + 2 * n + i, tl.sin(v), mask=inside)
    tl.store(y + 3 * n + i, tl.cos(v), mask=inside)
    tl.store(y + 4 * n + i, tl.sqrt(v), mask=inside)
    tl.store(y + 5 * n + i, tl.rsqrt(v), mask=inside)
    tl.store(y + 6 * n + i, tl.erf(v), mask=inside)
    tl.store(y + 7 * n + i, tl.sigmoid(v), mask=inside)
    tl.store(y + 8 * n + i, tl.floor(v * 7) + tl.ceil(v * 5), mask=inside)
    tl.store(y + 9 * n + i, tl.exp2(v) + tl.log2(v), mask=inside)
    tl.store(y + 10 * n + i, tl.div_rn(v, v + 3) + tl.sqrt_rn(v) + tl.fma(v, v, 0.5), mask=inside)


@triton.jit
def library(x, y, n, BLOCK: tl.constexpr):
    """Functions that are linked from a device library: branches, tables, local memory."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside, other=1.0)
    tl.store(y + i, libdevice.tanh(v), mask=inside)
    tl.store(y + n + i, libdevice.pow(v, v * 0.5), mask=inside)
    tl.store(y + 2 * n + i, libdevice.log1p(v) + libdevice.expm1(v * 0.1), mask=inside)
    tl.store(y + 3 * n + i, libdevice.atan2(v, v * v - 2), mask=inside)
    tl.store(y + 4 * n + i, libdevice.lgamma(v), mask=inside)
    tl.store(y + 5 * n + i, libdevice.sin(v * 1e6), mask=inside)
    tl.store(y + 6 * n + i, libdevice.fmod(v * 9, 0.7), mask=inside)
    tl.store(y + 7 * n + i, libdevice.cbrt(v) + libdevice.nearbyint(v * 3), mask=inside)


@triton.jit
def integers(x, y, z, n, BLOCK: tl.constexpr):
    """Integer arithmetic of x and y, of any width; row r of z holds the r-th result."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, mask=inside, other=1)
    b = tl.load(y + i, mask=inside, other=1)
    tl.store(z + i, a + b * 3, mask=inside)
    tl.store(z + n + i, a // b, mask=inside)
    tl.store(z + 2 * n + i, a % b, mask=inside)
    tl.store(z + 3 * n + i, (a & b) | (a ^ 21), mask=inside)
    tl.store(z + 4 * n + i, a << (b & 7), mask=inside)
    tl.store(z + 5 * n + i, a >> (b & 7), mask=inside)
    tl.store(z + 6 * n + i, tl.minimum(tl.maximum(a, b), 100), mask=inside)
    tl.store(z + 7 * n + i, tl.where(a < b, ~a, -b), mask=inside)
    tl.store(z + 8 * n + i, tl.abs(a), mask=inside)


@triton.jit
def wide_product(x, y, high, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n, other=0), tl.load(y + i, mask=i < n, other=0)
    tl.store(high + i, tl.umulhi(a, b), mask=i < n)


@triton.jit
def booleans(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, mask=inside)
    b = tl.load(y + i, mask=inside)
    tl.store(out + i, (a & ~b) | (a == b), mask=inside)


@triton.jit
def strided(x, y, rows, columns, pitch_x, pitch_y, BR: tl.constexpr, BC: tl.constexpr):
    """A window with pitches of its own on both sides, elements beyond the edge replaced."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    v = tl.load(x + r * pitch_x + c, mask=(r < rows) & (c < columns), other=-1)
    tl.store(y + r * pitch_y + c, v * 2, mask=(r < rows + 1) & (c < columns + 1))


@triton.jit
def dropout(x, y, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, i) > p
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(kept, v / (1 - p), 0.0), mask=i < n)


@triton.jit
def random_bits(y, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(y + 4 * i, a.to(tl.int32, bitcast=True))
    tl.store(y + 4 * i + 1, b.to(tl.int32, bitcast=True))
    tl.store(y + 4 * i + 2, c.to(tl.int32, bitcast=True))
    tl.store(y + 4 * i + 3, d.to(tl.int32, bitcast=True))


@triton.jit
def embedding(table, ids, out, width, BLOCK: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    c = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * width + c, tl.load(table + row * width + c, mask=c < width), mask=c < width)


@triton.jit
def scatter_add(x, ids, out, n, width, BLOCK: tl.constexpr, W: tl.constexpr):
    """out[ids[i], :] += x[i, :]"""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, W)
    inside = (r[:, None] < n) & (c[None, :] < width)
    row = tl.load(ids + r, mask=r < n, other=0)
    v = tl.load(x + r[:, None] * width + c[None, :], mask=inside)
    tl.atomic_add(out + row[:, None] * width + c[None, :], v, mask=inside)


@triton.jit
def atomics(x, sums, largest, smallest, bits, counter, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside, other=0)
    place = i % 8
    tl.atomic_add(sums + place, v, mask=inside, sem="relaxed")
    tl.atomic_max(largest + place, v, mask=inside)
    tl.atomic_min(smallest + place, v, mask=inside, sem="release", scope="gpu")
    tl.atomic_or(bits + place, v, mask=inside)
    tl.atomic_xor(bits + 8 + place, v, mask=inside)
    tl.atomic_and(bits + 16 + place, v, mask=inside)
    last = tl.atomic_add(counter, 1, sem="acq_rel")
    tl.store(counter + 1 + tl.program_id(0), last)


@triton.jit
def packed_by_assembly(x, y, z, n, BLOCK: tl.constexpr):
    """Four bytes at a time through inline assembly: the sums of bytes, without carries between them."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n, other=0), tl.load(y + i, mask=i < n, other=0)
    total = tl.inline_asm_elementwise(
        """{
            .reg .b32 low, high;
            and.b32 low, $1, 0x7f7f7f7f;
            and.b32 high, $2, 0x7f7f7f7f;
            add.u32 low, low, high;
            xor.b32 high, $1, $2;
            and.b32 high, high, 0x80808080;
            xor.b32 $0, low, high;
        }""",
        "=r,r,r",
        [a, b],
        dtype=tl.int8,
        is_pure=True,
        pack=4,
    )
    tl.store(z + i, total, mask=i < n)


@triton.jit(noinline=True)
def _collatz(v):
    if v % 2 == 0:
        return v // 2
    return 3 * v + 1


@triton.jit
def device_function(x, y, rounds):
    """A loop whose end the data decides, around a call that is kept a call."""
    v = tl.load(x + tl.program_id(0))
    steps = 0
    while (steps < rounds) & (v > 1):
        v = _collatz(v)
        steps += 1
    tl.store(y + tl.program_id(0), steps)


@triton.jit
def waiting_lanes(x, y, rounds, BLOCK: tl.constexpr):
    """A loop that ends when no lane has anything left to do."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    steps = tl.zeros((BLOCK,), tl.int32)
    k = 0
    while (k < rounds) & (tl.max(v, 0) > 1):
        steps += tl.where(v > 1, 1, 0)
        v = tl.where(v > 1, tl.where(v % 2 == 0, v // 2, 3 * v + 1), v)
        k += 1
    tl.store(y + i, steps)


@triton.jit
def asserted(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.device_assert(v >= 0, "negative")
    tl.store(y + i, v + 1, mask=i < n)


@triton.jit
def printed(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.device_print("v", v)
    tl.store(y + i, v * 2)


@triton.jit
def swapped(x, y, z, BLOCK: tl.constexpr):
    """join, split, interleave, permute, flip."""
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(z + tl.arange(0, 2 * BLOCK), tl.interleave(a, b))
    even, odd = tl.split(tl.reshape(a, (BLOCK // 2, 2)))
    half = tl.arange(0, BLOCK // 2)
    tl.store(z + 2 * BLOCK + half, odd - even)
    tl.store(z + 3 * BLOCK + i, tl.flip(b))
    cube = tl.permute(tl.reshape(a, (4, BLOCK // 8, 2)), (2, 0, 1))
    tl.store(z + 4 * BLOCK + i, tl.reshape(cube, (BLOCK,)))
    tl.store(z + 5 * BLOCK + tl.arange(0, 2 * BLOCK), tl.cat(a, b))
