"""CTAs of the real problem: what is backed of a tensor, and that a fault far out in it is seen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language.problem import Operand
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.emulator import prepare
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.backed import Backed, joined, shape_of
from tinygpu.ptx.verification.sampled import chosen_clusters, sampled_checks
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@st.composite
def windows(draw: Any) -> tuple[Operand, tuple[tuple[tuple[int, int], ...], ...]]:
    """An operand of any order and pitch, and some tiles of it along each axis."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    major = draw(st.sampled_from(("row", "col")))
    contiguous = 0 if major == "col" else rank - 1
    gap = draw(st.integers(0, 3))
    spans = []
    for size in shape:
        tile = draw(st.integers(1, size))
        tiles = draw(st.sets(st.integers(0, -(-size // tile) - 1), min_size=1, max_size=2))
        spans.append(joined((t * tile, min((t + 1) * tile, size)) for t in tiles))
    return Operand("x", dtype("f16"), shape, major, shape[contiguous] + gap, 256, "inout"), tuple(spans)


@settings(max_examples=200, deadline=None)
@given(windows())
def test_every_element_of_a_window_lies_where_its_strides_say(
    case: tuple[Operand, tuple[tuple[tuple[int, int], ...], ...]],
) -> None:
    operand, window = case
    values = np.arange(math.prod(shape_of(window))).reshape(shape_of(window)).astype(np.float16)
    backed = Backed(operand, window, values)
    memory = np.full(operand.extent_elems + 1, -1.0, np.float16)
    for start, region in backed.regions.items():
        assert start % 2 == 0
        assert region.flags.c_contiguous
        memory[start // 2 : start // 2 + region.size] = region
    places = [[i for first, last in spans for i in range(first, last)] for spans in window]
    for at, element in zip(np.ndindex(*shape_of(window)), itertools.product(*places), strict=True):
        assert memory[sum(i * s for i, s in zip(element, operand.strides(), strict=True))] == values[at]
    assert np.count_nonzero(memory >= 0) == values.size
    for region in backed.regions.values():
        region += 1
    assert np.array_equal(backed.array(), values + 1)
    # Regions do not meet: one that could be part of its neighbour is.
    ends = {start + region.nbytes for start, region in backed.regions.items()}
    assert not ends & backed.regions.keys()


class LastIsOff(MatmulSimt):
    """Its reference is wrong in the last element."""

    @staticmethod
    def reference(*args: Any, **kwargs: Any) -> Any:
        c = np.asarray(MatmulSimt.reference(*args, **kwargs)).copy()
        c[-1, -1] += 1
        return c


@pytest.mark.end_to_end
def test_tiles_that_run_in_one_launch_are_judged_one_by_one() -> None:
    problem = MatmulSimt.problem(m=300, n=200, k=20)
    space = build_space(MatmulSimt, problem, device("a100"))
    (point,) = space.space.restrict({"bm": 64, "bn": 64}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    chosen, code = chosen_clusters(kernel, problem), prepare(kernel.ptx)
    assert len(chosen) == 4
    right = sampled_checks(kernel, code, MatmulSimt, problem, chosen, 0)
    assert [(c.passed, c.where) for c in right] == [(True, str(one)) for one in chosen]
    alone = [sampled_checks(kernel, code, MatmulSimt, problem, [one], 0)[0] for one in chosen]
    assert [(c.elements, c.where, c.passed) for c in alone] == [(c.elements, c.where, c.passed) for c in right]
    wrong = sampled_checks(kernel, code, LastIsOff, problem, chosen, 0)
    last = max(chosen, key=lambda one: one.tile)
    assert [c.wrong for c in wrong] == [int(one is last) for one in chosen]
