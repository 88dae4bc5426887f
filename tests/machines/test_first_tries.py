"""Operations that were written from the pages alone, and what a slip in each of them is: found, or no machine."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from adamw import AdamW
from alibi import Alibi
from append import Append
from argsort import Argsort
from bicubic import Bicubic
from block_attention import BlockAttention
from chunked_attention import ChunkedAttention
from compaction import Compaction
from complex_products import ComplexProduct
from fft import Fft
from hadamard import Hadamard
from images import Bilinear, Conv3D, IoU, TransposedConv, TwoSteps
from integral import AlongColumns, Integral
from lower_solve import LowerSolve
from manhattan import Manhattan
from many_axes import GroupNorm
from masks_of_bits import PhiloxDropout, Suppressed
from median import Median
from rows_and_heads import (
    BiasGeluDropout,
    ComplexMul,
    LinearAttention,
    MoERouter,
    PartialRope,
    TrilNormalise,
    WeightedCrossEntropy,
)
from scaled_fp8 import ScaledFp8
from segment_sum import SegmentSum
from segments import BlockSparse, RunLengths, SegmentSoftmax
from sequences import CumMax, Ema, Fir, SlidingMax
from sink_attention import SinkAttention
from sinkhorn import ColumnsToOne, RowsToOne, Sinkhorn
from sparse_products import SparseProduct
from states import CausalConv, SelectiveScan
from swiglu_fp8 import SwigluFp8
from tile_products import CappedProduct, Int4Matmul, KMeans, RowsOfProducts, Syrk
from top_of_rows import MatmulTop
from upper_bound import UpperBound
from viterbi import Viterbi
from welford import ColumnMoments
from windowed_attention import WindowedAttention

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Machine, Plan
from tinygpu.ptx.verification.verify import Verification
from tinygpu.testing import Case, examine

CASES: tuple[tuple[type[Machine], dict[str, int], str], ...] = (
    (SegmentSum, {"n": 997, "g": 997}, "a100"),
    (SegmentSum, {"n": 1, "g": 5}, "a100"),
    (Alibi, {"b": 2, "h": 3, "g": 1, "s": 129, "t": 67, "d": 64}, "a100"),
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "a100"),
    (GroupNorm, {"n": 1, "g": 1, "k": 1, "s": 1}, "h100"),
    (GroupNorm, {"n": 2, "g": 2, "k": 5, "s": 1009}, "h100"),
    (ColumnMoments, {"m": 1, "n": 1}, "a100"),
    (ColumnMoments, {"m": 37, "n": 35}, "h100"),
    (Compaction, {"n": 1}, "a100"),
    (Compaction, {"n": 3001}, "h100"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "a100"),
    (WindowedAttention, {"h": 1, "s": 1, "window": 1, "d": 64}, "h100"),
    (BiasGeluDropout, {"m": 37, "n": 131}, "a100"),
    (BiasGeluDropout, {"m": 70000, "n": 40000}, "b200"),  # more than 2^31 elements
    (PartialRope, {"m": 11, "h": 3, "t": 50, "half": 37, "rest": 5}, "b200"),
    (WeightedCrossEntropy, {"m": 3, "n": 50257}, "h100"),
    (WeightedCrossEntropy, {"m": 2, "n": 1}, "a100"),
    (TrilNormalise, {"b": 1, "n": 300}, "a100"),
    (TrilNormalise, {"b": 3, "n": 1}, "b200"),
    (MoERouter, {"m": 13, "e": 61}, "b200"),
    (MoERouter, {"m": 3, "e": 1}, "h100"),
    (LinearAttention, {"h": 2, "t": 13}, "a100"),
    (ComplexMul, {"n": 1500000000}, "a100"),
    (SlidingMax, {"m": 3, "n": 33, "w": 33}, "b200"),
    (CumMax, {"m": 5, "n": 300}, "a100"),
    (Ema, {"m": 1, "n": 7}, "a100"),
    (Fir, {"c": 70000, "t": 40000, "k": 5}, "b200"),
    (SegmentSoftmax, {"g": 7, "n": 301}, "b200"),
    (SegmentSoftmax, {"g": 1, "n": 1}, "a100"),
    (RunLengths, {"n": 1009, "r": 3}, "h100"),
    (BlockSparse, {"rows": 5, "columns": 7, "blocks": 13, "n": 70}, "h100"),
    (Bilinear, {"h": 13, "w": 17, "c": 5, "n": 101}, "a100"),
    (Bilinear, {"h": 1, "w": 1, "c": 1, "n": 3}, "b200"),
    (IoU, {"m": 13, "n": 70}, "a100"),
    (Conv3D, {"t": 3, "h": 5, "w": 9, "c": 24, "k": 40}, "a100"),
    (TransposedConv, {"n": 2, "c": 3, "k": 5, "t": 37}, "a100"),
    (TransposedConv, {"n": 1, "c": 1, "k": 1, "t": 1}, "b200"),
    (TwoSteps, {"m": 5, "n": 70}, "a100"),
    (KMeans, {"n": 70, "k": 45, "d": 64}, "b200"),
    (Syrk, {"n": 70, "k": 40}, "a100"),
    (Int4Matmul, {"m": 1, "n": 72, "k": 40}, "b200"),
    (CappedProduct, {"m": 150, "n": 72, "k": 40}, "b200"),
    (RowsOfProducts, {"m": 70, "n": 72, "k": 40}, "h100"),
    (Hadamard, {"m": 3, "n": 256}, "a100"),
    (Hadamard, {"m": 1, "n": 1024}, "h100"),
    (Hadamard, {"m": 5, "n": 32}, "b200"),
    (AdamW, {"n": 1001}, "a100"),
    (SelectiveScan, {"z": 2, "t": 37, "d": 21}, "a100"),
    (SelectiveScan, {"z": 1, "t": 1, "d": 1}, "h100"),
    (CausalConv, {"b": 2, "t": 37, "d": 66}, "a100"),
    (CausalConv, {"b": 1, "t": 1, "d": 1}, "b200"),
    (SinkAttention, {"b": 1, "h": 2, "s": 100, "d": 64}, "a100"),
    (Manhattan, {"m": 50, "n": 37, "k": 20}, "a100"),
    (Append, {"t": 20, "c": 72, "size": 80}, "a100"),
    (Append, {"t": 1, "c": 1, "size": 1}, "h100"),
    (SwigluFp8, {"m": 7, "n": 1001}, "h100"),
    (UpperBound, {"m": 300, "n": 77}, "a100"),
    (UpperBound, {"m": 1, "n": 1}, "b200"),
    (MatmulTop, {"m": 70, "n": 77, "k": 51}, "a100"),
    (Fft, {"m": 3}, "a100"),
    (PhiloxDropout, {"n": 1}, "a100"),
    (PhiloxDropout, {"n": 1009}, "h100"),
    (Suppressed, {"n": 1}, "a100"),
    (Suppressed, {"n": 77}, "b200"),
    (SparseProduct, {"m": 1, "n": 1, "nnz": 1, "d": 1}, "a100"),
    (SparseProduct, {"m": 11, "n": 101, "nnz": 701, "d": 131}, "a100"),
    (LowerSolve, {"z": 3}, "a100"),
    (Argsort, {"m": 5, "n": 37}, "a100"),
    (Argsort, {"m": 1, "n": 1}, "b200"),
    (BlockAttention, {"h": 2, "s": 130, "total": 5, "d": 64}, "a100"),
    (BlockAttention, {"h": 1, "s": 1, "total": 1, "d": 128}, "h100"),
    (Viterbi, {"b": 3, "t": 13, "s": 32}, "a100"),
    (Viterbi, {"b": 1, "t": 1, "s": 16}, "b200"),
    (ScaledFp8, {"m": 77, "n": 144, "k": 272}, "h100"),
    (ScaledFp8, {"m": 1, "n": 16, "k": 16}, "h100"),
    (ChunkedAttention, {"b": 2, "t": 77, "d": 32, "e": 64}, "a100"),
    (ChunkedAttention, {"b": 1, "t": 1, "d": 64, "e": 32}, "h100"),
    (ComplexProduct, {"m": 137, "n": 72, "k": 72}, "b200"),
    (ComplexProduct, {"m": 1, "n": 8, "k": 8}, "b200"),
    (Median, {"h": 13, "w": 41}, "a100"),
    (Median, {"h": 1, "w": 1}, "b200"),
    (Bicubic, {"h": 5, "w": 7, "c": 3, "p": 11, "q": 9}, "a100"),
    (Bicubic, {"h": 1, "w": 1, "c": 1, "p": 1, "q": 3}, "h100"),
    (Bicubic, {"h": 9, "w": 4, "c": 33, "p": 4, "q": 17}, "b200"),
)
PLANS = ((Integral, {"m": 70, "n": 77}), (Integral, {"m": 1, "n": 1}), (Sinkhorn, {"m": 70, "n": 77}))
SLIPS: tuple[tuple[type[Machine], dict[str, int], str, str], ...] = (
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "(self.k * self.s)", "self.s"),
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "t.at(g).tile(c", "t.at(g).tile(0"),
    (ColumnMoments, {"m": 37, "n": 35}, "squares / self.m", "squares / (self.m - 1)"),
    (ColumnMoments, {"m": 37, "n": 35}, "(x - mean) * there", "(x - mean)"),
    (Compaction, {"n": 3001}, "exclusive=True, ", ""),
    (Compaction, {"n": 3001}, "place, -1)", "place, 0)"),
    (Compaction, {"n": 3001}, "fill=-1.0", "fill=1.0"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "(apart < self.window)", "(apart <= self.window)"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 34, "d": 64}, "i - self.window + 1", "i"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "out *= keep", "pass"),
    (BiasGeluDropout, {"m": 37, "n": 131}, "> 0.0, gelu", ">= 0.0, gelu"),
    (BiasGeluDropout, {"m": 37, "n": 131}, "self.b.row(j,", "self.b.row(0,"),
    (PartialRope, {"m": 11, "h": 3, "t": 50, "half": 37, "rest": 5}, "x * c - above", "x * c + above"),
    (WeightedCrossEntropy, {"m": 9, "n": 131}, "where(at >= 0,", "where(at > 0,"),
    (WeightedCrossEntropy, {"m": 9, "n": 131}, "+ largest - chosen", "- chosen"),
    (TrilNormalise, {"b": 2, "n": 67}, "<= i, abs", "< i, abs"),
    (TrilNormalise, {"b": 2, "n": 67}, " + 1e-6", ""),
    (MoERouter, {"m": 13, "e": 61}, "top = x > a", "top = x >= a"),
    (MoERouter, {"m": 13, "e": 61}, "where(mine, at_b, at_a)", "at_a"),
    (LinearAttention, {"h": 2, "t": 13}, "state * self.decay", "state"),
    (ComplexMul, {"n": 1009}, "ai * br - ar", "ai * br + ar"),
    (SlidingMax, {"m": 7, "n": 131, "w": 5}, '"f32", -math.inf)', '"f32")'),
    (SlidingMax, {"m": 7, "n": 131, "w": 5}, "j + t", "j + t + 1"),
    (CumMax, {"m": 5, "n": 300}, "p.index(who, 1) + j)", "p.index(who, 1))"),
    (Ema, {"m": 5, "n": 300}, "1.0 - self.alpha", "self.alpha"),
    (Fir, {"c": 3, "t": 131, "k": 7}, "j - k, shape", "j + k, shape"),
    (SegmentSoftmax, {"g": 7, "n": 301}, "who, fill=-math.inf) - largest)", "who) - largest)"),
    (RunLengths, {"n": 1000, "r": 3}, "at < self.n, rank", "at <= self.n, rank"),
    (BlockSparse, {"rows": 5, "columns": 7, "blocks": 13, "n": 70}, "self.at[begin + e]", "self.at[e]"),
    (Bilinear, {"h": 13, "w": 17, "c": 5, "n": 101}, "self.h - 1)", "self.h)"),
    (Bilinear, {"h": 13, "w": 17, "c": 5, "n": 101}, "r * self.w + c", "r * self.h + c"),
    (Bilinear, {"h": 13, "w": 17, "c": 5, "n": 101}, "floor(v), ", 'p.cast(p.cast(v, "s32"), "f32"), '),
    (IoU, {"m": 13, "n": 70}, " - both + 1e-3", " + 1e-3"),
    (IoU, {"m": 13, "n": 70}, "q[3] - q[1]", "q[3] - q[0]"),
    (Conv3D, {"t": 3, "h": 5, "w": 9, "c": 24, "k": 40}, "self.f.at(tap)", "self.f.at(26 - tap)"),
    (TransposedConv, {"n": 2, "c": 3, "k": 5, "t": 37}, "s // 2 - r // 2", "s // 2 + r // 2"),
    (TwoSteps, {"m": 5, "n": 70}, "r < self.m", "r <= self.m"),
    (KMeans, {"n": 70, "k": 45, "d": 64}, "near < least", "near <= least"),
    (KMeans, {"n": 70, "k": 45, "d": 64}, "p.index(t.c, 1) + j", "p.index(t.c, 1)"),
    (KMeans, {"n": 70, "k": 45, "d": 64}, "along(1), fill=math.inf)", "along(1))"),
    (Syrk, {"n": 70, "k": 40}, "old - total, old", "old - total, 0.0"),
    (Syrk, {"n": 70, "k": 40}, "p.when(j <= i)", "p.when(j < i)"),
    (Int4Matmul, {"m": 17, "n": 64, "k": 96}, "kk // 32", "kk // 64"),
    (RowsOfProducts, {"m": 70, "n": 72, "k": 40}, "best > top", "best >= top"),
    (RowsOfProducts, {"m": 70, "n": 72, "k": 40}, "where(column < self.n, total, -math.inf)", "total"),
    (CappedProduct, {"m": 150, "n": 72, "k": 40}, "self.bias.row(j, 64)", "self.bias.row(0, 64)"),
    (Hadamard, {"m": 3, "n": 64}, "where(first, x, -x)", "where(first, -x, x)"),
    (Hadamard, {"m": 3, "n": 64}, "place & j", "place & 2 * j"),
    (AdamW, {"n": 1001}, "log2(self.beta1)", "log2(self.beta2)"),
    (AdamW, {"n": 1001}, "exp2(step * log2(self.beta2))", "exp2((step + 1) * log2(self.beta2))"),
    (AdamW, {"n": 1001}, "sqrt(second) + self.eps", "sqrt(second + self.eps)"),
    (SelectiveScan, {"z": 2, "t": 37, "d": 21}, "delta * x * b", "x * b"),
    (SelectiveScan, {"z": 2, "t": 37, "d": 21}, "exp(delta * a)", "exp(x * a)"),
    (CausalConv, {"b": 2, "t": 37, "d": 66}, "t + k, d", "t + k - 1, d"),
    (CausalConv, {"b": 2, "t": 37, "d": 66}, "(k - 3)", "(k - 2)"),
    (SinkAttention, {"b": 1, "h": 2, "s": 100, "d": 64}, "column <= row", "column < row"),
    (SinkAttention, {"b": 1, "h": 2, "s": 100, "d": 64}, '"f32", 1.0)', '"f32")'),
    (Manhattan, {"m": 50, "n": 37, "k": 20}, "abs(a - b.T)", "(a - b.T)"),
    (Manhattan, {"m": 50, "n": 37, "k": 20}, "self.b.tile(j", "self.b.tile(i"),
    (Append, {"t": 20, "c": 72, "size": 80}, "fill=-1", "fill=0"),
    (Append, {"t": 20, "c": 72, "size": 80}, "(self.v, self.values)", "(self.k, self.values)"),
    (SwigluFp8, {"m": 7, "n": 301}, "silu(gate) * up", "silu(up) * gate"),
    (SwigluFp8, {"m": 7, "n": 301}, "abs(y)", "y"),
    (UpperBound, {"m": 300, "n": 77}, "key <= x", "key < x"),
    (UpperBound, {"m": 300, "n": 77}, "p.loop(self.rounds)", "p.loop(self.rounds - 1)"),
    (AlongColumns, {"m": 70, "n": 77}, "step=shape[0]) as i", "step=shape[0] * 2) as i"),
    (RowsToOne, {"m": 70, "n": 77}, "1 / p.reduce", "p.reduce"),
    (ColumnsToOne, {"m": 70, "n": 77}, "x * scale", "x + scale"),
    (MatmulTop, {"m": 70, "n": 77, "k": 51}, "p.index(t.c, 1) + j", "p.index(t.c, 1)"),
    (MatmulTop, {"m": 70, "n": 77, "k": 51}, "(abs(c), place)", "(c, place)"),
    (Fft, {"m": 3}, "for part in range(2))", "for part in (0, 0))"),
    (Fft, {"m": 3}, "permute(0, 8, 7, 6, 5,", "permute(0, 7, 8, 6, 5,"),
    (PhiloxDropout, {"n": 1009}, "& (place < self.n)", ""),
    (PhiloxDropout, {"n": 1009}, "p.apply(self.high, left, MULTIPLIER)", "left"),
    (PhiloxDropout, {"n": 1009}, "self.seed + WEYL", "self.seed ^ WEYL"),
    (Suppressed, {"n": 77}, "maximum(wide, 0.0) * maximum(high, 0.0)", "wide * high"),
    (Suppressed, {"n": 77}, " - both)", ")"),
    (Suppressed, {"n": 77}, "column > row", "column >= row"),
    (Suppressed, {"n": 77}, "(x - w / 2, x2 - w2 / 2)", "(x - w / 2, x2 + w2 / 2)"),
    (SparseProduct, {"m": 11, "n": 101, "nnz": 701, "d": 131}, "fill=-1", "fill=0"),
    (SparseProduct, {"m": 11, "n": 101, "nnz": 701, "d": 131}, "self.beta * old", "old"),
    (LowerSolve, {"z": 3}, "rest / column, 0.0", "rest, 0.0"),
    (LowerSolve, {"z": 3}, "row > k", "row < k"),
    (Argsort, {"m": 5, "n": 37}, "fill=math.inf", "fill=0.0"),
    (Argsort, {"m": 5, "n": 37}, "4, 8, 16, 32, 64)", "4, 8, 16, 32)"),
    (BlockAttention, {"h": 2, "s": 130, "total": 5, "d": 64}, "out *= keep", "pass"),
    (BlockAttention, {"h": 2, "s": 130, "total": 5, "d": 64}, "total *= keep", "pass"),
    (BlockAttention, {"h": 2, "s": 130, "total": 5, "d": 64}, "column <= row", "column < row"),
    (BlockAttention, {"h": 2, "s": 130, "total": 5, "d": 64}, "self.listed[begin + n]", "self.listed[n]"),
    (
        BlockAttention,
        {"h": 2, "s": 130, "total": 5, "d": 64},
        "equal(total, 0.0), 0.0, out / total",
        "total > 0.0, out / total, 0.0",
    ),
    (Viterbi, {"b": 2, "t": 9, "s": 16}, "(a + before, p.index(who, 0))", "(a + before, p.index(who, 1))"),
    (Viterbi, {"b": 2, "t": 9, "s": 16}, "p.cast(p.relayout(score", "p.cast(-p.relayout(score"),
    (ScaledFp8, {"m": 77, "n": 144, "k": 272}, "self.sa.tile(i, kk // bk,", "self.sa.tile(i, 0 * kk,"),
    (ScaledFp8, {"m": 77, "n": 144, "k": 272}, "self.sb.tile(j // BLOCK,", "self.sb.tile(0 * j,"),
    (ScaledFp8, {"m": 77, "n": 144, "k": 272}, "sa * sb", "sa + sb"),
    (ChunkedAttention, {"b": 2, "t": 77, "d": 32, "e": 64}, "column <= row", "column < row"),
    (ChunkedAttention, {"b": 2, "t": 77, "d": 32, "e": 64}, "scores, 0.0)", "scores, 1.0)"),
    (ComplexProduct, {"m": 137, "n": 72, "k": 72}, "(t.ri, s.ai, s.br)", "(t.ri, s.ar, s.br)"),
    (ComplexProduct, {"m": 137, "n": 72, "k": 72}, "y.window((kt, 0)", "y.window((0, 0)"),
    (Median, {"h": 13, "w": 41}, "maximum(column + right, 0)", "abs(column + right)"),
    (Median, {"h": 13, "w": 41}, "r * self.w + c", "r * self.h + c"),
    (Bicubic, {"h": 5, "w": 7, "c": 3, "p": 11, "q": 9}, "maximum(row + (a - 1), 0)", "abs(row + (a - 1))"),
    (Bicubic, {"h": 5, "w": 7, "c": 3, "p": 11, "q": 9}, "self.w - 1)", "self.w)"),
    (Bicubic, {"h": 5, "w": 7, "c": 3, "p": 11, "q": 9}, "maximum(column + (b - 1)", "maximum(column + b"),
    (Bicubic, {"h": 5, "w": 7, "c": 3, "p": 11, "q": 9}, "r * self.w + s", "r * self.h + s"),
    (SegmentSum, {"n": 4097, "g": 37}, "tile(i, shape=shape), who, fill=-1)", "tile(i, shape=shape), who)"),
    (SegmentSum, {"n": 997, "g": 997}, "i + 1, shape=shape), who, fill=-1)", "i + 1, shape=shape), who)"),
)
# Where there is no wgmma, no tensor memory, or no e4m3, there is no such machine.
ON = {
    RowsOfProducts: "h100",
    CappedProduct: "b200",
    SwigluFp8: "h100",
    ScaledFp8: "h100",
    ComplexProduct: "b200",
}


def slipped(machine: type[Machine], right: str, wrong: str) -> type[Machine]:
    """The machine whose program has another text in one place."""
    text = textwrap.dedent(inspect.getsource(machine.program))
    assert text.count(right) == 1, text
    made: dict[str, Any] = {}
    exec(text.replace(right, wrong), vars(sys.modules[machine.__module__]), made)
    return type(machine.__name__, (machine,), {"program": made["program"]})


def verified(machine: type[Machine], dims: dict[str, int], on: str, candidates: int = 1) -> Iterator[Verification]:
    """What verification says of some candidates: what a slip does may hang on the tiles."""
    space = tg.space(machine, **dims, device=on)
    for point in space.sample(candidates):
        yield tg.verify(tg.emit(space, **point))


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "dims", "on"), CASES, ids=str)
def test_it_is_right_for_odd_sizes(machine: type[Machine], dims: dict[str, int], on: str) -> None:
    (found,) = verified(machine, dims, on)
    assert found.passed, str(found)
    assert not found.notes  # every statement was executed, and no output is one number throughout


@pytest.mark.end_to_end
@pytest.mark.parametrize(("plan", "dims"), PLANS, ids=str)
def test_a_plan_is_right_for_odd_sizes(plan: type[Plan], dims: dict[str, int]) -> None:
    found = tg.verify(tg.emit(tg.space(plan, **dims, device="a100")))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "dims", "right", "wrong"), SLIPS, ids=str)
def test_a_slip_is_found(machine: type[Machine], dims: dict[str, int], right: str, wrong: str) -> None:
    found = verified(slipped(machine, right, wrong), dims, ON.get(machine, "a100"), candidates=4)
    assert any(not v.passed for v in found)


@pytest.mark.end_to_end
def test_slopes_below_one_differ_in_whole_number_runs() -> None:
    """The one whole number among declared ones is 0: a slope of another head would be the same."""

    class OfTheBatch(Alibi):
        """the same, with slopes by batch"""

        def seen(self, p: Any, at: Any, i: Any, rows: Any) -> Any:
            found = super().seen(p, at, i, rows)
            self.place = (at[1], at[0], at[2]), i
            return found

    found = verified(OfTheBatch, {"b": 2, "h": 3, "g": 1, "s": 129, "t": 67, "d": 64}, "a100")
    assert all(any(c.inputs == "integers" and not c.passed for c in v.checks) for v in found)


def test_what_a_merge_makes_may_be_larger_than_what_it_is_made_of() -> None:
    """Squares of differences of means: rounding is of their size, where the squares within parts are small."""
    point = {"exchange": "shuffles", "warps": 4, "vector": 2, "rows": 2}
    case = Case(ColumnMoments, ColumnMoments.problem(m=37, n=128, aligns={"x": 256}), device("a100"), point)
    found = examine("meanings", case)
    assert not found.fault, found.fault


def test_windows_that_a_constant_dim_ends_lie_inside_the_tensors_of_no_problem() -> None:
    """That counts cannot be compared is no question of what was tried."""
    problem = CausalConv.problem(b=2, t=37, d=66)
    point = {"warps": 1, "rows": 2, "vector": 2}
    found = examine("counts", Case(CausalConv, problem, device("a100"), point))
    assert (found.fault, found.absent) == ("", "tiles inside the tensors: a dim of 3 elements ends before windows do")
