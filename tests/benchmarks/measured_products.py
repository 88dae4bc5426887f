"""Tables of measured matmul times, and what they say themselves of products of fp8."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tests.benchmarks.library_products import Problem

# Types of the tables, in the words of this project.
OPERANDS = {"bfloat16": "bf16", "fp8": "e4m3", "nvfp4": "e2m1"}


def rows(path: Path, column: str, least: int = 1, dtype: str = "bfloat16") -> list[tuple[Problem, float]]:
    """(problem, measured seconds) of the table for one type, for m, n, k >= least."""
    found = []
    for row in table(path):
        problem = Problem(int(row["m"]), int(row["n"]), int(row["k"]), OPERANDS.get(row["dtype"], row["dtype"]))
        if row[column] and row["dtype"] == dtype and min(problem.m, problem.n, problem.k) >= least:
            found.append((problem, float(row[column]) * 1e-6))
    return found


@cache
def table(path: Path) -> list[dict[str, str]]:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def columns_of(path: Path) -> list[str]:
    """The columns of times, by GPU and framework."""
    return [name for name in table(path)[0] if name not in ("dtype", "m", "n", "k")]


# Elements of A by which two products must differ to say how long one takes to convert; below, it drowns in noise.
FAR_APART = 2e7


def conversions(path: Path) -> Iterator[str]:
    """What the times of a file say of products of fp8, for each device and framework."""
    for column in columns_of(path):
        times = {dtype: {(p.m, p.n, p.k): s for p, s in rows(path, column, dtype=dtype)} for dtype in OPERANDS}
        wide, narrow = times["bfloat16"], times["fp8"]
        both = [size for size in narrow if size in wide]
        if not both:
            continue
        slower = sum(narrow[size] > wide[size] for size in both) / len(both)
        cells = []
        for found in (narrow, wide):
            slopes = [
                (found[m, n, k] - found[n, m, k]) / ((m - n) * k) * 1e12
                for m, n, k in found
                if m > n and (n, m, k) in found and (m - n) * k >= FAR_APART
            ]
            cells.append(f"{len(slopes):,} | {np.median(slopes):+.2f}" if slopes else "0 | -")
        bf16 = cells[1].partition("| ")[2]
        yield f"| {column} | {cells[0]} | {bf16} | {len(both):,} | {slower:.0%} |".replace("%", " %")
