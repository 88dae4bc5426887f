"""The operations that are compared: problems of our machines, and the ways in which Triton's kernels are configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

Sizes = Mapping[str, int]
Grid = Callable[[Any], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Configured:
    """One way to compile a Triton kernel.

    kernel     its name in triton_kernels.py
    constants  its compile-time arguments
    warps      num_warps
    grid       CTAs, of an object that has the dims and the constants
    """

    kernel: str
    constants: Mapping[str, int]
    warps: int
    grid: Grid

    def __str__(self) -> str:
        return " ".join([self.kernel, *(f"{k}={v}" for k, v in self.constants.items()), f"num_warps={self.warps}"])


@dataclass(frozen=True, slots=True)
class Written:
    """One way to compile a CUDA kernel of cuda_kernels.cu.

    kernel     its name
    threads    of a CTA
    items      what each thread holds, in the kernel's own unit
    grid       CTAs, of an object that has the dims and threads
    arguments  names of tensors, dims and scalars, in order
    """

    kernel: str
    threads: int
    items: int
    grid: Grid
    arguments: str

    def __str__(self) -> str:
        return f"{self.kernel} THREADS={self.threads} ITEMS={self.items}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A problem of one of our machines, and kernels of others for it.

    machine   its name among those that ship
    sizes     dims of the problem for which candidates are chosen
    emulated  those of them that are smaller in the emulator
    types     of tensors, where they are not the first on offer
    options   of the machine
    triton    configurations of Triton's kernels
    cuda      configurations of CUDA kernels
    """

    machine: str
    sizes: Sizes
    emulated: Sizes
    types: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    triton: Sequence[Configured] = ()
    cuda: Sequence[Written] = ()


def configured(
    kernel: str, grid: Grid, *, warps: Sequence[int] = (4, 8), **constants: Sequence[int]
) -> list[Configured]:
    """Every combination of constants and warps."""
    return [
        Configured(kernel, dict(zip(constants, values, strict=True)), w, grid)
        for values in product(*constants.values())
        for w in warps
    ]


def written(kernel: str, arguments: str, grid: Grid, *shapes: tuple[int, int]) -> list[Written]:
    """Every one of these numbers of threads and of items."""
    return [Written(kernel, threads, items, grid, arguments) for threads, items in shapes]


def up(value: int, by: int) -> int:
    return -(-value // by)


def of_rows(kernel: str, n: int, warps: Sequence[int] = (4, 8, 16)) -> list[Configured]:
    """One CTA per row, which it holds whole."""
    return configured(kernel, lambda d: (d.m,), warps=warps, BLOCK=(1 << (n - 1).bit_length(),))


def of_pieces(kernel: str) -> list[Configured]:
    """One CTA per row, which it goes along in pieces."""
    return configured(kernel, lambda d: (d.m,), BLOCK=(1024, 2048, 4096))


def of_tiles(kernel: str, grid: Grid, sides: Sequence[tuple[int, int]]) -> list[Configured]:
    return [c for r, s in sides for c in configured(kernel, grid, R=(r,), C=(s,))]


BOTH_WAYS: Grid = lambda d: (up(d.m, d.R), up(d.n, d.C))  # noqa: E731
BLOCKS: Grid = lambda d: (up(d.m, d.R), up(d.blocks, d.B))  # noqa: E731
LONG = ((1, 2048), (1, 4096), (4, 512), (8, 256))

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "axpby", {"n": 1 << 26}, {"n": 1 << 18},
        triton=configured("axpby", lambda d: (up(d.n, d.BLOCK),), BLOCK=(1024, 4096)),
        cuda=written("axpby", "a x b z y n", lambda d: (up(d.n, 4 * d.threads),), (128, 1), (256, 1)),
    ),
    Operation(
        "bias_relu", {"m": 16384, "n": 8192}, {"m": 64},
        triton=of_tiles("bias_relu", BOTH_WAYS, ((4, 512), (16, 128), (8, 512), (4, 1024))),
    ),
    Operation(
        "softmax", {"m": 16384, "n": 4096}, {"m": 64},
        triton=of_rows("softmax", 4096),
        cuda=written("softmax", "x y n", lambda d: (d.m,), (128, 8), (256, 4), (512, 2)),
    ),
    Operation(
        "rms_norm", {"m": 16384, "n": 4096}, {"m": 64}, types={"x": "bf16"}, triton=of_rows("rms_norm", 4096),
    ),
    Operation(
        "layer_norm", {"m": 16384, "n": 8192}, {"m": 32}, types={"x": "f16"},
        triton=[*of_rows("layer_norm", 8192), *of_pieces("layer_norm_in_pieces")],
        cuda=written("layer_norm", "x w shift y n eps", lambda d: (d.m,), (128, 8), (256, 4), (512, 2)),
    ),
    Operation(
        "row_reduction", {"m": 16384, "n": 8192}, {"m": 64},
        triton=of_tiles("row_sum", lambda d: (up(d.m, d.R),), LONG),
        cuda=written("row_sum", "x y n", lambda d: (d.m,), (128, 1), (256, 1), (512, 1)),
    ),
    Operation(
        "column_reduction", {"m": 16384, "n": 8192}, {"m": 64},
        triton=of_tiles("column_sum", lambda d: (up(d.n, d.C),), ((64, 32), (32, 64), (16, 128))),
    ),
    Operation(
        "argmax", {"m": 16384, "n": 8192}, {"m": 64},
        triton=[*of_rows("argmax", 8192), *of_tiles("argmax_in_pieces", lambda d: (up(d.m, d.R),), LONG)],
    ),
    Operation(
        "transpose", {"m": 8192, "n": 8192}, {"m": 512, "n": 512},
        triton=of_tiles("transpose", BOTH_WAYS, ((32, 32), (64, 32), (32, 64), (64, 64))),
        cuda=written("transpose", "x y m n", lambda d: (up(d.n, 32), up(d.m, 32)), (128, 1), (256, 1)),
    ),
    Operation(
        "transpose", {"m": 8192, "n": 8192}, {"m": 512, "n": 512}, types={"x": "f16"},
        triton=of_tiles("transpose", BOTH_WAYS, ((32, 64), (64, 64), (128, 64), (64, 128))),
    ),
    Operation(
        "embedding", {"m": 16384, "n": 4096, "v": 32768}, {"m": 128, "v": 256}, types={"table": "f16"},
        triton=configured("embedding", lambda d: (d.m, up(d.n, d.BLOCK)), BLOCK=(1024, 2048, 4096)),
    ),
    Operation(
        "cross_entropy", {"m": 8192, "n": 32768}, {"m": 32}, types={"x": "bf16"},
        triton=[*of_pieces("cross_entropy"), *of_pieces("cross_entropy_by_lanes")],
    ),
    Operation(
        "matvec", {"m": 32768, "k": 16384}, {"m": 64, "k": 8192}, types={"w": "f16"}, options={"scaled": False},
        triton=of_tiles("matvec", lambda d: (up(d.m, d.R),), (*LONG, (1, 1024), (2, 1024))),
    ),
    Operation(
        "rotary", {"m": 16384, "h": 32, "t": 4096, "half": 64}, {"m": 128, "t": 512},
        types={"x": "f16", "cos": "f16"},
        triton=configured("rotary", lambda d: (d.m, up(d.h, d.HEADS)), HEADS=(8, 16, 32), BLOCK=(64,)),
    ),
    Operation(
        "row_scan", {"m": 16384, "n": 8192}, {"m": 32}, triton=of_pieces("row_scan"),
        cuda=written("row_scan", "x y n", lambda d: (d.m,), (128, 8), (128, 16), (256, 8)),
    ),
    Operation(
        "quantise_int8", {"m": 16384, "n": 8192}, {"m": 64},
        triton=configured("quantise_int8", BLOCKS, R=(1, 4), B=(4, 8, 16), SIZE=(128,)),
    ),
    Operation(
        "dequantise", {"m": 16384, "n": 8192}, {"m": 64}, types={"y": "f16"},
        triton=configured("dequantise", BLOCKS, R=(1, 4), B=(4, 8, 16), SIZE=(128,)),
    ),
    Operation(
        "softmax_backward", {"m": 16384, "n": 4096}, {"m": 64}, triton=of_rows("softmax_backward", 4096),
    ),
)  # fmt: skip
