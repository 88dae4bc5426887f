"""The problem that the page of a machine is made for, and a small one for its smallest kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tinygpu.language.declared import Declared
from tinygpu.language.problem import Problem

# Tensors of so many bytes are many times what any L2 holds.
FILLING_BYTES = 1 << 29
LEAST_EXTENT, SMALL_EXTENT = 64, 64

# Sizes of machines at which tensor cores are busy, whose dims depend on each other, or of which one is small by nature.
# All others fill memory: `grown`.
SIZES: Mapping[str, Mapping[str, int]] = {
    "convolution": {"n": 128, "h": 56, "w": 56, "c": 256, "r": 3, "s": 3, "k": 256},
    "depthwise_convolution": {"n": 128, "h": 112, "w": 112, "c": 128, "r": 3, "s": 3},
    "batched_matmul": {"batch": 64, "m": 1024, "n": 1024, "k": 1024},
    "batched_matmul_hopper": {"batch": 64, "m": 1024, "n": 1024, "k": 1024},
    "matmul_w4": {"m": 16, "n": 16384, "k": 16384, "group": 128},
    "grouped_matmul": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "grouped_matmul_hopper": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "grouped_matmul_blackwell": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "gated_matmul": {"m": 4096, "n": 14336, "k": 4096},
    "matmul_simt": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_ampere": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_skinny": {"m": 16, "n": 16384, "k": 16384},
    "matmul_skinny_blackwell": {"m": 16, "n": 16384, "k": 16384},
    "matmul_basic_hopper": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_hopper": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_blackwell": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_blackwell_consumer": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_mx": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_nvfp4": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_blackwell_mx": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_blackwell_nvfp4": {"m": 4096, "n": 4096, "k": 4096},
    "matmul_basic_blackwell": {"m": 4096, "n": 4096, "k": 4096},
    "rotary": {"m": 1 << 14, "h": 32, "t": 8192, "half": 64},
    "rotary_neighbours": {"m": 1 << 14, "h": 32, "t": 8192, "half": 64},
    "permute": {"a": 2, "b": 4, "c": 32, "d": 256, "e": 1024},
    "top_k": {"m": 1 << 19, "n": 256, "k": 8},
    "histogram": {"m": 1 << 28, "v": 256},
    "attention_ampere": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_blackwell": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_hopper": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_varlen_ampere": {"b": 8, "h": 16, "g": 1, "s": 8192, "t": 8192, "longest": 2048, "d": 128},
    "attention_varlen_hopper": {"b": 8, "h": 16, "g": 1, "s": 8192, "t": 8192, "longest": 2048, "d": 128},
    "attention_paged_prefill": {
        "b": 8, "h": 16, "g": 1, "s": 8192, "longest": 2048, "d": 128, "listed": 64, "pages": 1024, "page": 16,
    },
    "attention_decoding": {"b": 16, "h": 8, "r": 8, "t": 8192, "d": 128},
}


def typical(name: str, machine: type[Declared]) -> Problem:
    """The problem of the page: sizes that are listed here, or that fill memory; default types, orders and options."""
    return _posed(machine, SIZES[name]) if name in SIZES else grown(machine)


def grown(machine: type[Declared]) -> Problem:
    """The free dims are doubled in turn, the smallest first, until the operands have as many bytes as fill memory."""
    sizes = dict.fromkeys(free_dims(machine), LEAST_EXTENT)
    while _bytes(problem := _posed(machine, sizes)) < FILLING_BYTES and sizes:
        least = min(sizes, key=lambda name: sizes[name])
        sizes[least] *= 2
    return problem


def small(machine: type[Declared], problem: Problem) -> Problem:
    """The same problem with no free dim above 64: what a first kernel is read for."""
    free = free_dims(machine)
    return _posed(machine, {name: min(size, SMALL_EXTENT) for name, size in problem.dims if name in free})


def free_dims(machine: type[Declared]) -> tuple[str, ...]:
    """Dims that a problem may say freely: not those that follow from others, nor those of a few values."""
    follow = {d.name for d in machine.following_dims()}
    return tuple(name for name, values in machine.dim_values().items() if name not in follow and not values)


def shape_argument(machine: type[Declared], problem: Problem) -> str:
    """The sizes as `--shape` takes them."""
    follow = {d.name for d in machine.following_dims()}
    return ",".join(f"{name}={size}" for name, size in problem.dims if name not in follow)


def _posed(machine: type[Declared], sizes: Mapping[str, int]) -> Problem:
    few = {name: values[0] for name, values in machine.dim_values().items() if values}
    return machine.problem(**{**few, **sizes})


def _bytes(problem: Problem) -> int:
    return sum(math.prod(o.shape) * o.dtype.bits // 8 for o in problem.operands)
