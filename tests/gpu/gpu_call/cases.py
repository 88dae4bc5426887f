"""What the call runs: problems by name, as plain data, for the machine that prepares and the one that has the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """One problem of one machine or family.

    machine   a shipped machine or family, or a name in `chains.CHAINS`
    dims      sizes by name
    dtypes    per tensor, or under "*"
    majors    per tensor: "row" or "col"
    lds       leading dimensions, elements
    options   of the machine
    kernels   how many candidates, the best predicted ones
    points    parts of candidates that are tried as well, completed by the predictor; what a counted one must have
    facts     what else whoever shows it should know: a model's name, say
    """

    name: str
    machine: str
    dims: Mapping[str, int]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    majors: Mapping[str, str] = field(default_factory=dict)
    lds: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    kernels: int = 4
    points: tuple[Mapping[str, int | str], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one call does.

    correct  verified on the GPU, each structure of the machine among the kernels
    matmuls  timed beside cuBLAS and Triton
    streams  timed beside a copy and PyTorch
    dense    many candidates timed by the worker
    counted  one kernel each, run in the emulator before and in the profiler then; also what the sanitizer runs
    """

    correct: tuple[Case, ...]
    matmuls: tuple[Case, ...]
    streams: tuple[Case, ...]
    dense: tuple[Case, ...]
    counted: tuple[Case, ...]


def _mnk(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


EVERYTHING = {"with_bias": True, "activation": "gelu", "scaling": "columns", "with_residual": True}

# Edges on every axis, odd pitches, each type and each major that a machine takes.
CORRECT = (
    Case("axpby", "axpby", {"n": 1_000_003}),
    Case("bias_relu", "bias_relu", {"m": 777, "n": 1160}),
    Case("gelu", "gelu", {"n": 999_984}),
    Case("add", "add", {"n": 500_001}),
    Case("simt", "matmul_simt", _mnk(333, 259, 203), kernels=8),
    Case("simt, pitches", "matmul_simt", _mnk(260, 132, 64), {}, {"a": "col", "b": "col"}, {"c": 140}, kernels=6),
    Case("simt, epilogue", "matmul_simt", _mnk(200, 300, 100), options=EVERYTHING, kernels=4),
    Case("ampere f16", "matmul_ampere", _mnk(500, 264, 336), {"*": "f16"}, kernels=10),
    Case("ampere bf16, odd", "matmul_ampere", _mnk(333, 259, 203), {"*": "bf16"}, {"b": "col"}, kernels=8),
    Case("ampere tf32", "matmul_ampere", _mnk(256, 200, 136), {"*": "tf32"}, kernels=6),
    Case("ampere s8", "matmul_ampere", _mnk(256, 208, 272), {"*": "s8"}, {"b": "col"}, kernels=6),
    Case("ampere, epilogue", "matmul_ampere", _mnk(200, 304, 128), {"*": "f16"}, options=EVERYTHING, kernels=6),
    Case("hopper bf16", "matmul_hopper", _mnk(1000, 776, 1032), {"*": "bf16"}, kernels=24),
    Case("hopper f16, columns", "matmul_hopper", _mnk(520, 1288, 712), {"*": "f16"}, {"a": "col", "b": "col"},
         kernels=12),
    Case("hopper tf32", "matmul_hopper", _mnk(520, 776, 264), {"*": "tf32"}, {"b": "col"}, kernels=8),
    Case("hopper e4m3", "matmul_hopper", _mnk(520, 784, 528), {"*": "e4m3"}, {"b": "col"}, kernels=8),
    Case("hopper s8", "matmul_hopper", _mnk(520, 784, 528), {"*": "s8"}, {"b": "col"}, kernels=8),
    Case("hopper, epilogue", "matmul_hopper", _mnk(600, 776, 264), {"*": "bf16"}, options=EVERYTHING, kernels=12),
    Case("hopper, shared tiles", "matmul_hopper", _mnk(128, 264, 4104), {"*": "bf16"}, kernels=16),
    Case("skinny", "matmul_skinny", _mnk(24, 1032, 2056), {"*": "bf16"}, {"b": "col"}, kernels=12),
    Case("skinny, rows", "matmul_skinny", _mnk(64, 520, 1032), {"*": "f16"}, kernels=8),
    Case("skinny, epilogue", "matmul_skinny", _mnk(7, 776, 1032), {"*": "bf16"}, options=EVERYTHING, kernels=6),
    Case("one row", "matmul", _mnk(1, 1032, 2056), {"*": "bf16"}, {"b": "col"}, kernels=12),
    Case("sixteen rows", "matmul", _mnk(16, 1032, 2056), {"*": "bf16"}, {"b": "col"}, kernels=12),
)  # fmt: skip

# (model, layer, n, k): the products of one transformer block, y = x W^T with W of n rows; queries, keys and values in
# one, gate and up in one (Llama 3 model card and configuration files: hidden size, heads, KV heads of 128, FFN size).
PROJECTIONS = (
    ("Llama-3-8B", "qkv", 4096 + 2 * 8 * 128, 4096),
    ("Llama-3-8B", "o", 4096, 4096),
    ("Llama-3-8B", "gate, up", 2 * 14336, 4096),
    ("Llama-3-8B", "down", 4096, 14336),
    ("Llama-3-70B", "qkv", 8192 + 2 * 8 * 128, 8192),
    ("Llama-3-70B", "o", 8192, 8192),
    ("Llama-3-70B", "gate, up", 2 * 28672, 8192),
    ("Llama-3-70B", "down", 8192, 28672),
)
# Many and few in turns, so that a call that ends early has some of each.
ROWS = (4096, 1, 512, 16, 64)
# Up to so many rows the whole family takes part; beyond, the machine for large tiles alone.
FEW_ROWS = 64

# What public matmuls for Hopper choose (CUTLASS: examples and defaults of its profiler for sm_90a): tiles of 128 x 256
# or 256 x 128 by 64 shared by two warpgroups, tiles of 64 x 256 and 128 x 128 in turns, clusters of two, as many stages
# as fit, the widest swizzle.
USUAL: tuple[Mapping[str, int | str], ...] = tuple(
    {
        "schedule": schedule, "bm": bm, "bn": bn, "bk": 64, "stages": stages, "store": store, "cluster_m": across,
        "cluster_n": along, "swizzle": 128, "swizzle_c": 128 if store == "stmatrix" else 32,
        "piece": 64 if store == "stmatrix" else 16, "outs": 2 if store == "stmatrix" else 1,
    }
    for schedule, bm, bn, stages, store in (
        ("cooperative", 128, 256, 3, "stmatrix"), ("cooperative", 128, 256, 4, "direct"),
        ("cooperative", 256, 128, 3, "stmatrix"), ("pingpong", 64, 256, 4, "stmatrix"),
        ("pingpong", 128, 128, 4, "stmatrix"),
    )
    for across, along in ((2, 1), (1, 2))
)  # fmt: skip

SQUARES = tuple(
    Case(f"{n}^3", "matmul_hopper", _mnk(n, n, n), {"*": "bf16"}, kernels=12, points=USUAL,
         facts={"model": "", "layer": ""})
    for n in (4096, 8192)
)  # fmt: skip
MODEL = tuple(
    Case(
        f"{model} {layer}, m = {m}", "matmul" if m <= FEW_ROWS else "matmul_hopper", _mnk(m, n, k), {"*": "bf16"},
        {"b": "col"}, kernels=15 if m <= FEW_ROWS else 8, points=() if m <= FEW_ROWS else USUAL,
        facts={"model": model, "layer": layer},
    )
    for model, layer, n, k in PROJECTIONS for m in ROWS
)  # fmt: skip

# Each operand several times the L2, so that nothing but DRAM is measured.
STREAMS = (
    Case("axpby f32", "axpby", {"n": 1 << 27}, kernels=8),
    Case("bias_relu f16", "bias_relu", {"m": 16384, "n": 16384}, kernels=8),
    Case("gelu bf16", "gelu", {"n": 1 << 28}, kernels=8),
    Case("add f16", "add", {"n": 1 << 28}, kernels=8),
)

DENSE = (
    Case("dense 4096", "matmul_hopper", _mnk(4096, 4096, 4096), {"*": "bf16"}, kernels=512),
    Case("dense 8192", "matmul_hopper", _mnk(8192, 8192, 8192), {"*": "bf16"}, kernels=512),
)

# Small enough for the emulator, and no more tiles than an H100 has SMs, of which no CTAs share one: grids are equal
# there and here.
COUNTED = (
    Case("axpby", "axpby", {"n": 1 << 18}, kernels=1),
    Case("bias_relu", "bias_relu", {"m": 256, "n": 1024}, kernels=1),
    Case("simt", "matmul_simt", _mnk(256, 256, 128), kernels=1),
    Case("ampere", "matmul_ampere", _mnk(512, 512, 256), {"*": "f16"}, kernels=1),
    Case("hopper", "matmul_hopper", _mnk(512, 512, 256), {"*": "bf16"}, kernels=1,
         points=({"split_k": 1, "stream_k": 0},)),
)

FULL = Plan(CORRECT, (*SQUARES, *MODEL), STREAMS, DENSE, COUNTED)

# The same kinds of work in seconds on a driver without a GPU: a rehearsal.
SMALL = Plan(
    correct=(
        Case("axpby", "axpby", {"n": 3001}, kernels=2),
        Case("hopper bf16", "matmul_hopper", _mnk(130, 72, 136), {"*": "bf16"}, kernels=2),
    ),
    matmuls=(
        Case("128^3", "matmul_hopper", _mnk(128, 128, 128), {"*": "bf16"}, kernels=2,
             points=({"bm": 64, "bn": 32},), facts={"model": "", "layer": ""}),
        Case("small qkv, m = 16", "matmul_hopper", _mnk(16, 64, 128), {"*": "bf16"}, {"b": "col"}, kernels=1,
             facts={"model": "small", "layer": "qkv"}),
    ),
    streams=(
        Case("axpby f32", "axpby", {"n": 4096}, kernels=2), Case("gelu bf16", "gelu", {"n": 4096}, kernels=1),
    ),
    dense=(Case("dense 128", "matmul_hopper", _mnk(128, 128, 128), {"*": "bf16"}, kernels=3),),
    counted=(Case("axpby", "axpby", {"n": 4096}, kernels=1),),
)  # fmt: skip
