"""Kernels from Triton (fixtures) as subjects: every generation of matrix product, attention, locks, exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from triton_fixture import FOLDER, Fixture, load

from mutations.statements import entries
from mutations.subjects import Launch, Source, Subject, Values, close, rng, same

F16, F32, F64, I32 = np.float16, np.float32, np.float64, np.int32
Prepared = tuple[Callable[[], bool], Any, list[Any]]
"""(whether the buffers hold the right result, grid, arguments)."""
Maker = Callable[[Fixture], Prepared]


def tile(f: Fixture) -> tuple[int, int, int]:
    return f.constants["BM"], f.constants["BN"], f.constants["BK"]


def ints(shape: tuple[int, ...], dtype: Any, most: int = 4) -> Values:
    """Integers for which all sums are exact."""
    made: Values = rng(sum(shape)).integers(-most, most + 1, shape).astype(dtype)
    return made


def softmax(f: Fixture) -> Prepared:
    columns = f.constants["BLOCK"] * 3 // 4
    x = rng().standard_normal((2, columns)).astype(F32)
    y = np.zeros_like(x)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return close(y, e / e.sum(axis=1, keepdims=True)), 2, [x, y, columns]


def scan(f: Fixture) -> Prepared:
    x = rng().integers(-9, 9, (2, f.constants["C"])).astype(I32)
    y = np.zeros_like(x)
    return same(y, np.cumsum(x, axis=1)), 2, [x, y]


def sort(f: Fixture) -> Prepared:
    x = rng().integers(-999, 999, (1, f.constants["BLOCK"])).astype(I32)
    y = np.zeros_like(x)
    return same(y, np.sort(x, axis=1)), 1, [x, y]


def histogram(f: Fixture) -> Prepared:
    x = rng().integers(0, f.constants["BINS"], 1200).astype(I32)
    counts = np.zeros(f.constants["BINS"], I32)
    return same(counts, np.bincount(x, minlength=counts.size)), -(-1200 // f.constants["BLOCK"]), [x, counts, 1200]


def lock(f: Fixture) -> Prepared:
    x = rng().integers(-9, 9, (4, 128)).astype(F32)
    total = np.zeros(128, F32)
    return same(total, x.sum(axis=0)), 4, [x, total, np.zeros(1, I32)]


def last_adds(f: Fixture) -> Prepared:
    x = rng().integers(-9, 9, 1600).astype(F32)
    out = np.zeros(1, F32)
    return same(out, x.sum(keepdims=True)), 7, [x, np.zeros(7, F32), out, np.zeros(1, I32), 1600]


def matmul(f: Fixture) -> Prepared:
    bm, bn, bk = tile(f)
    m, n, k = bm * f.ctas, bn, 7 * bk
    a, b, c = ints((m, k), f.dtype("a")), ints((k, n), f.dtype("b")), np.zeros((m, n), f.dtype("c"))
    want = (a.astype(F64) @ b.astype(F64)).astype(c.dtype)
    return same(c, want), (-(-m // bm), 1), [a, b, c, m, n, k]


def whole_matmul(f: Fixture) -> Prepared:
    m, n, k = tile(f)
    k *= 7
    a, b, c = ints((m, k), f.dtype("a")), ints((k, n), f.dtype("b")), np.zeros((m, n), f.dtype("c"))
    left, right = (v if by == "n" else v.T.copy() for v, by in zip((a, b), f.constants["ROWS"], strict=True))
    return same(c, (a.astype(F64) @ b.astype(F64)).astype(c.dtype)), 1, [left, right, c, m, n, k]


def stream_k(f: Fixture) -> Prepared:
    # CTA 0 finishes the first tile and begins the second, CTA 1 ends the second and finishes the third.
    return _stream_k(f, tiles=3, steps=6, share=9)


def stream_k_waiting(f: Fixture) -> Prepared:
    # CTA 0 waits for CTA 1, which is as busy; CTA 2 ends the first tile and begins the second.
    return _stream_k(f, tiles=2, steps=15, share=6)


def _stream_k(f: Fixture, tiles: int, steps: int, share: int) -> Prepared:
    """A product of so many tiles, each of so many steps along k; each CTA takes its share of all steps."""
    bm, bn, bk = tile(f)
    m, n, k, ctas = tiles * bm, bn, steps * bk, tiles * steps // share
    a, b, c = ints((m, k), F16), ints((k, n), F16), np.zeros((m, n), F32)
    args = [a, b, c, np.zeros((ctas, bm, bn), F32), np.zeros(ctas, I32), n, k, share]
    return same(c, a.astype(F64) @ b.astype(F64)), ctas, args


def descriptor_matmul(f: Fixture) -> Prepared:
    # Three tiles of four steps: over three stages each tile begins in another one.
    bm, bn, bk = tile(f)
    m, n, k = 3 * bm, bn - 16, 4 * bk - 16
    a, b, c = ints((m, k), f.dtype("a")), ints((n, k), f.dtype("b")), np.zeros((m, n), f.dtype("c"))
    return same(c, (a.astype(F64) @ b.astype(F64).T).astype(c.dtype)), 1, [a, b, c, m, n, k, 1]


def _attention(q: Values, k: Values, v: Values, causal: bool) -> Values:
    score = np.einsum("hld,hmd->hlm", q.astype(F64), k.astype(F64)) * q.shape[2] ** -0.5
    if causal:
        score = np.where(np.tril(np.ones(score.shape[1:])) > 0, score, -np.inf)
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    result: Values = p / p.sum(axis=-1, keepdims=True) @ v.astype(F64)
    return result


def attention(f: Fixture) -> Prepared:
    return _attend(f, steps=5)


def short_attention(f: Fixture) -> Prepared:
    # The last copy, of nothing, goes to the first stage, through which the results leave.
    return _attend(f, steps=4)


def _attend(f: Fixture, steps: int) -> Prepared:
    width, bm, length = f.constants["H"], f.constants["BM"], steps * f.constants["BN"]
    length = -(-length // bm) * bm
    q, k, v = (rng(s).standard_normal((1, length, width)).astype(F16) for s in range(3))
    out, lse = np.zeros_like(q), np.zeros((1, length), F32)
    want = _attention(q, k, v, f.constants["CAUSAL"])
    args = [q, k, v, out, lse, length, F32(width**-0.5)]
    return close(out, want, 0, 4e-3), (length // bm, 1), args


# By fixture; a second launch of the same kernel has a word more.
FIXTURES: Mapping[str, Maker] = {
    "softmax-4096.sm_80": softmax,
    "scan-i32-1.sm_80": scan,
    "sort-i32.sm_80": sort,
    "histogram-64.sm_80": histogram,
    "lock.sm_80": lock,
    "last_adds.sm_80": last_adds,
    "stream_k.sm_80": stream_k,
    "stream_k.sm_80 waiting": stream_k_waiting,
    "matmul-64x64x32w4s3.sm_80": matmul,
    "whole_matmul-i8-nt.sm_80": whole_matmul,
    "attention-64causalw4.sm_80": attention,
    "matmul-64x64x32w4s3.sm_90": matmul,
    "descriptor_matmul-64x64x64w4.sm_90": descriptor_matmul,
    "descriptor_matmul-special128x128x64w4.sm_90": descriptor_matmul,
    "matmul-64x64x32w4s3.sm_100": matmul,
    "descriptor_matmul-special64x64x64w4.sm_100": descriptor_matmul,
    "attention-64w4.sm_100": short_attention,
}


def triton_subjects() -> list[Subject]:
    return [_subject(name, load(FOLDER / f"{name.split()[0]}.ptx"), make) for name, make in FIXTURES.items()]


def _subject(name: str, f: Fixture, make: Maker) -> Subject:
    def launch() -> Launch:
        right, grid, args = make(f)
        x, *rest = (grid,) if isinstance(grid, int) else grid
        whole = (x * f.ctas, *rest)
        scratch: Any = np.zeros(int(np.prod(whole)) * f.scratch_bytes, np.uint8) if f.scratch_bytes else 0
        options = {
            "grid": whole, "block": f.threads, "cluster": f.ctas, "dynamic_smem": f.shared_bytes,
            "args": [*args, *(scratch, 0)[: f.pointers]],
        }  # fmt: skip
        return Launch(options, right)

    return Subject(f"triton {name}", lambda: Source(f.text, entries(f.text)[0], launch))
