"""Removing or weakening one synchronisation of a kernel from nvcc is noticed, or is shown to change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import EmulationFault, emulate

KERNELS = Path(__file__).parent / "kernels"
SYNCHRONISATION = re.compile(r"bar\.|barrier|membar|fence|cp\.async\.(wait|commit)")


@dataclass(frozen=True)
class Launch:
    options: dict[str, Any]
    right: Callable[[], bool]


def rng() -> np.random.Generator:
    return np.random.default_rng(9)


def matmul_mma() -> Launch:
    n, k = 128, 256
    a, b = (rng().integers(-4, 5, (n, k)).astype(np.float16) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    options = {"grid": 1, "block": 128, "args": [a, b, c, n, n, k], "dynamic_smem": 65536}
    return Launch(options, lambda: bool((c == a.astype(np.float32) @ b.T.astype(np.float32)).all()))


def matmul_simt() -> Launch:
    a, b = rng().integers(-4, 5, (64, 48)).astype(np.float32), rng().integers(-4, 5, (48, 64)).astype(np.float32)
    c = np.zeros((64, 64), np.float32)
    return Launch({"grid": 1, "block": 256, "args": [a, b, c, 64, 64, 48]}, lambda: bool((c == a @ b).all()))


def row_softmax() -> Launch:
    x = rng().standard_normal((3, 515)).astype(np.float32)
    y = np.zeros_like(x)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True)
    return Launch({"grid": 3, "block": 128, "args": [x, y, 515]}, lambda: np.allclose(y, want, rtol=1e-5))


def layer_norm() -> Launch:
    x = rng().standard_normal((2, 300)).astype(np.float32)
    y = np.zeros_like(x)
    want = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    args = [x, np.ones(300, np.float32), np.zeros(300, np.float32), y, 300]
    return Launch({"grid": 2, "block": 256, "args": args}, lambda: np.allclose(y, want, rtol=1e-3, atol=1e-4))


def scan_block() -> Launch:
    x = rng().integers(-9, 9, 512).astype(np.int32)
    y = np.zeros_like(x)
    options = {"grid": 2, "block": 256, "args": [x, y, 512], "dynamic_smem": 1024}
    return Launch(options, lambda: bool((y.reshape(2, -1) == np.cumsum(x.reshape(2, -1), axis=1)).all()))


def last_block_sum() -> Launch:
    x = rng().integers(-9, 9, 5000).astype(np.float32)
    total = np.zeros(1, np.float32)
    options = {"grid": 8, "block": 256, "args": [x, np.zeros(8, np.float32), total, 5000]}
    return Launch(options, lambda: bool(total[0] == x.sum()))


def histogram() -> Launch:
    x = rng().integers(0, 256, 3000).astype(np.uint8)
    counts = np.zeros(256, np.uint32)
    want = np.bincount(x, minlength=256)
    return Launch({"grid": 2, "block": 256, "args": [x, counts, 3000]}, lambda: bool((counts == want).all()))


def producer_consumer() -> Launch:
    x = rng().standard_normal((2, 7, 64)).astype(np.float32)
    y = np.zeros_like(x)
    return Launch({"grid": 2, "block": 128, "args": [x, y, 7]}, lambda: bool((y == x[:, :, ::-1] * 2).all()))


def transpose() -> Launch:
    x = rng().standard_normal((70, 45)).astype(np.float32)
    y = np.zeros((45, 70), np.float32)
    return Launch({"grid": (2, 3), "block": (32, 8), "args": [x, y, 70, 45]}, lambda: bool((y == x.T).all()))


def spin_lock() -> Launch:
    counter = np.zeros(1, np.int32)
    return Launch({"grid": 2, "block": 64, "args": [counter]}, lambda: bool(counter[0] == 256))


SUBJECTS = [
    ("matmul_mma", matmul_mma), ("matmul_simt", matmul_simt), ("reductions", row_softmax), ("reductions", layer_norm),
    ("reductions", scan_block), ("reductions", last_block_sum), ("reductions", histogram),
    ("control", producer_consumer), ("control", transpose), ("control", spin_lock),
]  # fmt: skip
# What survives, by kernel: how many mutants, and why each computes the same as the original.
EQUIVALENT = {
    "last_block_sum": (1, "after the last step only thread 0 reads, and it reads what it wrote itself"),
}


def mutants(text: str, entry: str) -> list[tuple[str, str]]:
    """(what was changed, text) for each synchronisation of one entry: left out, and wait_group N made N + 1."""
    lines = text.split("\n")
    first = next(n for n, line in enumerate(lines) if f".entry {entry}(" in line)
    last = next(n for n in range(first, len(lines)) if lines[n] == "}")
    result = []
    for n in range(first, last):
        if not SYNCHRONISATION.search(lines[n]) or lines[n].strip().startswith("//"):
            continue
        changed = [*lines[:n], "", *lines[n + 1 :]]
        result.append((f"line {n + 1} left out: {lines[n].strip()}", "\n".join(changed)))
        weaker = re.sub(r"wait_group (\d+)", lambda m: f"wait_group {int(m[1]) + 1}", lines[n])
        if weaker != lines[n]:
            result.append((f"line {n + 1}: {weaker.strip()}", "\n".join([*lines[:n], weaker, *lines[n + 1 :]])))
    return result


def outcome(text: str, entry: str, make: Callable[[], Launch], order: Any) -> tuple[str, ...]:
    """What a run shows: a fault, advisories, a wrong result."""
    launch = make()
    try:
        report = emulate(text, entry=entry, order=order, **launch.options)
    except EmulationFault as fault:
        return ("fault", fault.kind)
    return (*sorted({a.rule for a in report.advisories}), "right" if launch.right() else "wrong")


@pytest.mark.parametrize("order", ["late", "early"])
@pytest.mark.parametrize(("file", "make"), SUBJECTS, ids=[make.__name__ for _, make in SUBJECTS])
def test_every_lost_synchronisation_is_noticed(file: str, make: Callable[[], Launch], order: str) -> None:
    text = (KERNELS / f"{file}.ptx").read_text()
    entry = make.__name__
    original = outcome(text, entry, make, order)
    assert original[-1] == "right"
    survivors = [what for what, changed in mutants(text, entry) if outcome(changed, entry, make, order) == original]
    assert len(survivors) == EQUIVALENT.get(entry, (0, ""))[0], survivors
