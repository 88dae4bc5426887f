"""By how much a dim is changed so that every remainder of a trip count stays: against trying all changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.expressions import Expr, compile_arrays, expr, maximum, minimum, symbol
from tinygpu.machines.attention_paged import KeysOfPages
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.rounds import _change
from tinygpu.ptx.verification.derived import derive
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

N = symbol("n")
NUMBERS = np.arange(1, 600)


@st.composite
def trips(draw: st.DrawFn) -> Expr:
    """ceil((a * n + b) / step), of which parts may be taken again, or the least or greatest with another number."""
    found = N * draw(st.sampled_from([1, 2, 3, 16, 128])) + draw(st.integers(-40, 40))
    for _ in range(draw(st.integers(1, 2))):
        found = (found + draw(st.integers(0, 7))) // draw(st.sampled_from([2, 3, 16, 32]))
    if draw(st.booleans()):
        found = draw(st.sampled_from([maximum, minimum]))(found, draw(st.integers(0, 50)))
    return expr(found)


@settings(max_examples=200)
@given(trips(), st.integers(0, 5))
def test_a_change_by_so_many_elements_changes_rounds_by_a_multiple(found: Expr, times: int) -> None:
    """Where the least or greatest of two is the same one before and behind."""
    shift, by = _change(found.sympy, "n")
    before, behind = compile_arrays(found)({"n": NUMBERS})[0], compile_arrays(found)({"n": NUMBERS + times * shift})[0]
    moved = behind - before
    ends = np.isin(before, [before.min(), before.max()]) | np.isin(behind, [behind.min(), behind.max()])
    assert (moved[~ends] % by == 0).all()
    assert len(np.unique(moved[~ends])) <= 1, "the same wherever it begins: what was rounded off is rounded off again"


@given(st.sampled_from([1, 2, 3, 12, 16, 128]), st.integers(0, 40), st.sampled_from([2, 3, 16, 32, 48]))
def test_no_smaller_change_does(factor: int, offset: int, step: int) -> None:
    found = (N * factor + offset) // step
    shift, _ = _change(found.sympy, "n")
    before, *behind = (compile_arrays(found)({"n": NUMBERS + s})[0] for s in range(step + 1))
    fits = [s for s, moved in enumerate(behind, start=1) if len(np.unique(moved - before)) == 1]
    assert shift == min(fits)


@pytest.mark.parametrize("page", [16, 128])
@pytest.mark.parametrize("seed", range(4))
def test_few_pages_are_read_and_more_than_one(page: int, seed: int) -> None:
    """A page of keys is several rounds: of a hundred pages two or three, or as many as rings ask for."""
    problem = KeysOfPages.problem(b=4, h=2, r=8, c=2, d=64, most=100, pages=200, page=page)
    space = build_space(KeysOfPages, problem, device("a100"))
    (point,) = space.sample(1, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    small = derive(kernel, KeysOfPages, problem)
    slots, pages = max(r.stages for r in kernel.rings), small.dim["most"]
    assert 2 <= pages <= max(2, -(-(2 * slots + 2) * int(point["bn"]) // page))
