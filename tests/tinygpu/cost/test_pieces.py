"""Sectors and accesses of L2 against sets of bytes: any digits, any pitch, windows that begin anywhere."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.cost.demand import ACCESS_BYTES, SECTOR_BYTES
from tinygpu.cost.pieces import pieces
from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, compile_arrays, compile_with, evaluate, expr, symbol
from tinygpu.language import E, Layout, Partition
from tinygpu.language.memories import RMEM
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.access import accesses, tensor_pitches
from tinygpu.program.windows import window
from tinygpu.ptx import isa

Digit = tuple[Leaf, Leaf | Step]
KINDS = {"f64": 64, "f32": 32, "f16": 16, "s8": 8}
SIZES = (SECTOR_BYTES, ACCESS_BYTES)


@st.composite
def digits(draw: st.DrawFn, most: int, axes: tuple[int | None, ...]) -> list[Digit]:
    """Up to `most` digits of 1 to 8 values along any axes: such as continue each other, and such as overlap."""
    out: list[Digit] = []
    for _ in range(draw(st.integers(0, most))):
        size, axis = draw(st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8, 8])), draw(st.sampled_from(axes))
        steps = draw(st.sampled_from([1, 1, 2, 3, 4, 5, 8, 12, 16, 24, 48]))
        last = out[-1] if out else (1, 0)
        if isinstance(last[1], Step) and draw(st.booleans()):
            out.append((size, last[1] * last[0]))
        elif axis is not None and draw(st.integers(0, 5)) == 0:
            out.append((size, E(0) + steps * E(1)))
        else:
            out.append((size, 0 if axis is None else steps * E(axis)))
    return out


@st.composite
def loads(draw: st.DrawFn, begins: int = 9) -> tuple[list[Digit], list[Digit], int, str, int, tuple[int, int, int]]:
    """(digits of threads, of instructions, vector, dtype, leading dimension, where windows begin and their steps)."""
    kind, vector = draw(st.sampled_from(sorted(KINDS))), draw(st.sampled_from([1, 2, 4]))
    begin = draw(st.integers(0, begins)), draw(st.integers(0, 12)), draw(st.integers(0, 5))
    ld = draw(st.sampled_from([1024, 1000, 1032, 1001, 516, 7]))
    return draw(digits(4, (0, 1, None))), draw(digits(2, (0, 1))), vector, kind, ld, begin


def access_of(who: Partition, kind: str, vector: int, begin: tuple[int, int, int], stores: bool) -> Any:
    """The access of a load or store of a window whose rows begin at begin[0] + j begin[1], rows i begin[2]."""
    tensor = Tensor("x", dtype(kind), ("m", "n"), "inout")
    first, along, down = begin
    tile = gmem_tile(tensor, (symbol("i") * down, symbol("j") * along + first), (64, 64))
    value = Tile("r", RMEM, dtype(kind), who.shape, (expr(0), expr(0)), partition=who)
    st_global, ld_global = isa.StGlobal(vector), isa.LdGlobal(vector)
    s = n.Store("s", st_global, value, tile) if stores else n.Load("l", ld_global, tile, value)
    (access,) = accesses(s)
    return access, window(tile, tensor_pitches(tile), ("i", "j"))


def partition(threads: list[Digit], instructions: list[Digit], vector: int) -> Partition:
    return Partition((expr(64), expr(64)), Layout.of(threads, [(vector, E(1)), *instructions]))


def listed(access: Any, kind: str, ld: int, begin: tuple[int, int, int], size: int) -> float:
    """The mean over the windows that touch pieces differently, as sets of bytes."""
    first, along, down = begin
    bits = KINDS[kind]
    rounds = [range(8 * size // math.gcd(8 * size, step * bits)) for step in (along, down * ld)]
    starts = [(first + i * along + j * down * ld) * bits // 8 for i, j in itertools.product(*rounds)]
    total = 0
    for lanes in access.lanes:
        acting = lanes[lanes[:, 0] >= 0]
        at = (acting[:, 0] * ld + acting[:, 1]) * bits // 8
        width = access.width_bytes
        for start in starts:
            total += len({(start + int(a) + b) // size for a in at for b in (*range(0, width, bits // 8), width - 1)})
    return total / len(starts)


@settings(max_examples=120, deadline=None)
@given(loads(), st.booleans(), st.sampled_from(SIZES))
@example(([(2, 24 * E(1)), (4, 32 * E(1)), (4, 4 * E(1))], [], 1, "f32", 1024, (0, 0, 0)), False, 32)
@example(([(12, E(1)), (8, E(0))], [], 1, "f16", 1032, (3, 0, 1)), False, 32)
@example(([(3, E(0)), (2, 0), (2, 4 * E(1)), (4, 0)], [], 2, "f16", 1000, (0, 0, 0)), True, 64)
@example(([(32, E(1)), (2, 0), (2, E(0)), (3, 0)], [], 1, "f32", 1024, (0, 0, 0)), True, 32)
def test_pieces_are_those_that_listing_every_lane_gives(found: Any, stores: bool, size: int) -> None:
    threads, instructions, vector, kind, ld, begin = found
    access, begins = access_of(partition(threads, instructions, vector), kind, vector, begin, stores)
    counted = evaluate(pieces(access, begins, size), {"x.ld": ld})
    assert float(counted) == listed(access, kind, ld, begin, size)


def test_lanes_whose_steps_overlap_share_sectors() -> None:
    """Steps of 96, 128 and 16 bytes: 13 sectors, where a product of counts would say 16."""
    access, begins = access_of(
        partition([(2, 24 * E(1)), (4, 32 * E(1)), (4, 4 * E(1))], [], 4), "f32", 4, (0, 0, 0), False
    )
    assert evaluate(pieces(access, begins, 32), {"x.ld": 4096}) == 13


def named(threads: list[Digit], instructions: list[Digit], vector: int) -> tuple[Partition, dict[str, int]]:
    """The partition with a symbol in place of every size and every step, and their numbers."""
    known: dict[str, int] = {}

    def leaf(number: Leaf) -> Expr:
        name = f"p{len(known)}"
        known[name] = int(number)
        return symbol(name)

    def hidden(of: list[Digit]) -> list[Digit]:
        return [
            (leaf(size), Step(tuple((a, leaf(c)) for a, c in step.terms)) if isinstance(step, Step) else 0)
            for size, step in of
        ]

    return partition(hidden(threads), hidden(instructions), vector), known


@settings(max_examples=40, deadline=None)
@given(loads(), st.booleans(), st.randoms(use_true_random=False))
def test_arrays_of_candidates_and_ranges_agree_with_one(found: Any, stores: bool, random: Any) -> None:
    """Sizes and steps that are expressions: over arrays the same as one by one, and never below what ranges say."""
    threads, instructions, vector, kind, ld, begin = found
    who, known = named(threads, instructions, vector)
    access, begins = access_of(who, kind, vector, begin, stores)
    count = pieces(access, begins, SECTOR_BYTES)
    rows = [
        {"x.ld": random.choice([ld, ld + 8])} | {p: random.choice([v, v, v + 1, 2 * v]) for p, v in known.items()}
        for _ in range(12)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    (together,) = compile_arrays(count)(columns)
    single = [evaluate(count, row) for row in rows]
    assert np.broadcast_to(together, 12).tolist() == single
    ranges = {name: Interval(int(column.min()), int(column.max())) for name, column in columns.items()}
    bound = compile_with(INTERVAL_NAMES, count)(ranges)[0]
    assert (bound.lo if isinstance(bound, Interval) else bound) <= min(single)


def test_what_no_constraint_admits_touches_nothing() -> None:
    access, begins = access_of(partition([(symbol("t"), E(1))], [], 1), "f32", 1, (0, 0, 0), False)
    (found,) = compile_arrays(pieces(access, begins, 32))({"t": np.array([0, 32, 64])})
    assert found.tolist() == [0, 4, 8]


def test_a_window_that_is_reached_by_no_fixed_step_begins_anywhere() -> None:
    """An offset in which counters are multiplied moves by any number of elements."""
    tensor = Tensor("x", dtype("f32"), ("n",), "in")
    tile = gmem_tile(tensor, (symbol("i") * symbol("j") + 2,), (64,))
    begins = window(tile, tensor_pitches(tile), ("i", "j"))
    assert (begins.begin, begins.steps) == (64, (("*", 32),))
