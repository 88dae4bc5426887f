"""Windows, by brute force: which may lie partly outside their tensor, and where the elements of swizzled ones lie."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))
from test_addresses import SHARED, ZERO, expected_places, program, register_tile, run
from test_misfits import programs

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language import SMEM, Problem, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.problem import Operand
from tinygpu.language.roles import Pipeline
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import gmem
from tinygpu.ptx.lowering.context import Context, Facts
from tinygpu.ptx.lowering.lower import lower

FAR = 1_000_000  # a round of a loop of which lowering does not know the number


@pytest.mark.parametrize("clusters", [1, 2])
def test_windows_that_are_said_to_lie_inside_lie_inside(clusters: int) -> None:
    """And those are said to that begin with a tile of the dim, stay in it, and have only whole tiles before them."""
    made = programs("Rows")[0][0]
    axis = replace(made.grid.axes[0], index="t", cluster=expr(clusters))
    made = replace(made, grid=replace(made.grid, axes=(axis, *made.grid.axes[1:])))
    inside, rng = 0, np.random.default_rng(clusters)
    for _ in range(1500):
        step, size = int(rng.choice([4, 8, 16])), int(rng.choice([16, 32, 48, 56, 64, 96]))
        constant, extent = int(rng.choice([-2, 0, 0, 0, 2, 4])), int(rng.choice([1, 2, 4, 8, 16]))
        limits = {"r": int(rng.integers(0, 4)), "s": int(rng.integers(0, 3))}
        inner = [(index, int(rng.choice([-2, 1, 2, 4, 8]))) for index in ("r", "s", "far") if rng.integers(4) == 0]
        outer = [("t", int(rng.choice([step, step, step, 4])))] if rng.integers(8) else []
        terms = tuple(sorted(outer + inner))
        context = Context(made, Facts({"m": size, "n": 1}), cast(Any, None))
        context.index_limits |= limits
        context.spans["t"] = (str(rng.choice(["m", "m", "m", "n"])), step)
        said = gmem._reaches_beyond(context, extent, "m", constant, terms)
        tiles = -(-size // (step * clusters)) * clusters
        known = {**limits, "t": tiles - 1, "far": FAR}
        ends = [(0, c * known[index]) for index, c in terms]
        least, most = constant + sum(map(min, ends)), constant + extent + sum(map(max, ends))
        if not said:
            assert least >= 0
            assert most <= size
            inside += 1
        elif ("t", step) in terms and context.spans["t"] == ("m", step) and size % (step * clusters) == 0:
            own = most - step * known["t"]
            assert own > step or constant < 0 or any(not 0 < c < step for _, c in inner)
    assert inside > 50


def swizzled(row: Any, column: Any, swizzle: int, rows: int) -> Any:
    """Byte offsets in swizzled rows (PTX ISA, swizzling modes): of 16 bytes, which is XORed with bits of the row."""
    chunks = swizzle // 16
    within = column % swizzle
    pattern = row // (8 // chunks) % chunks * 16
    return column // swizzle * (rows * swizzle) + row * swizzle + (within ^ pattern)


@settings(max_examples=200)
@given(st.data(), st.sampled_from([32, 64, 128]), st.sampled_from(["f16", "f32"]), st.integers(0, 1))
def test_elements_of_swizzled_rows_lie_where_the_manual_says(
    data: st.DataObject, swizzle: int, kind: str, contiguous: int
) -> None:
    """Windows that begin anywhere, and move with the tile or do not, under threads and vectors of any width."""
    each = swizzle // dtype(kind).bytes
    rows, columns = 16, each * 3
    vector = data.draw(st.sampled_from([2, 4, 8] if kind == "f16" else [1, 2, 4]))
    across = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    wide = across * vector * data.draw(st.integers(1, 3))
    down = 32 // across * data.draw(st.integers(1, 2))
    if wide > columns or down > rows:
        return
    start = data.draw(st.integers(0, (columns - wide) // vector)) * vector
    first = data.draw(st.integers(0, rows - down))
    back = (lambda a, b: (a, b)) if contiguous else (lambda a, b: (b, a))
    shape = tuple(map(expr, back(down, wide)))
    partition = blocked(back(down, wide), threads=32, vector=vector, axis=contiguous, across=across)
    whole = tuple(map(expr, back(rows, columns)))
    buffer = Buffer("ring.t", SMEM, dtype(kind), whole, contiguous, ZERO, "", expr(1), expr(swizzle))
    offset: tuple[Any, ...] = tuple(map(expr, back(first, start)))
    # A part of the offset may come from the number of a tile, which is a register.
    cta, moved = data.draw(st.integers(0, 1)), data.draw(st.sampled_from([(0, 0), (8, 0), (0, vector), (4, each)]))
    if cta and (first + moved[0] + down > rows or start + moved[1] + wide > columns):
        return
    offset = tuple(o + symbol("tile0") * by for o, by in zip(offset, back(*moved), strict=True))
    target = Tile("ring.t", SMEM, dtype(kind), shape, offset, (), None, buffer, None)
    value = register_tile("v1", kind, partition)
    body = (n.Constant(value, 1.0), n.Produce("ring", (n.Store("put", isa.StShared(vector), value, target),)))
    tensors = (Tensor("y", dtype("f32"), ("n",), "out"),)
    made = program(tensors, [("n", 1)], partition, body, (Pipeline("ring", expr(1), (buffer,), "barrier"),))
    problem = Problem((("n", 2),), (Operand("y", dtype("f32"), (2,), "row", 2, 16, "out"),))
    accesses = run(lower(made, problem, {}), 32, n=2, **{"%ctaid.x": cta})
    places = expected_places(partition, vector, back(first + cta * moved[0], start + cta * moved[1]))
    assert len(accesses) == len(places)
    for access, where in zip(accesses, places, strict=True):
        row, column = where[:, 1 - contiguous], where[:, contiguous] * dtype(kind).bytes
        assert np.array_equal(access.address, (SHARED + swizzled(row, column, swizzle, rows)).astype(np.uint64))
