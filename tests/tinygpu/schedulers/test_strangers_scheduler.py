"""A tile scheduler that a stranger wrote, in one file: searched, lowered, proved, verified, launched, saved and run."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.sampled import chosen_clusters
from tinygpu.ptx.verification.verify import verify
from tinygpu.schedulers.raster import place_of
from tinygpu.schedulers.run_time import Numbers
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

sys.path.append(str(Path(__file__).parents[2] / "thirdparty"))
import itertools

from snake import Scaled, Snake

SIZES = {"m": 37, "n": 140}  # 5 rows of 5 tiles


def walked(on: int, rows: int, columns: int, clusters: int) -> list[list[tuple[int, int]]]:
    """The tiles of every cluster, in order."""
    out = []
    for number in range(clusters):
        run = Numbers(number, clusters, (rows, columns))
        walk = Snake(expr(on)).walk(run, (0, 1))
        works = [walk.work(run, item) for item in walk.items()]
        out.append([tuple(map(int, place_of(run, work.tile, (rows, columns), 1))) for work in works])
    return out


@pytest.mark.parametrize(("rows", "columns", "clusters"), [(1, 1, 1), (3, 4, 1), (4, 5, 3), (5, 1, 2), (2, 7, 14)])
def test_a_line_there_and_back_passes_every_tile_once_and_turns_at_the_ends(
    rows: int, columns: int, clusters: int
) -> None:
    there = {(i, j) for i in range(rows) for j in range(columns)}
    for on in (0, 1):
        taken = [tile for own in walked(on, rows, columns, clusters) for tile in own]
        assert len(taken) == len(there)
        assert set(taken) == there
    (line,) = walked(1, rows, columns, 1)
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in itertools.pairwise(line))


def made(back: int, stages: int) -> tuple[Kernel, Any, Any]:
    problem = Scaled.problem(**SIZES)
    space = build_space(Scaled, problem, device("h100"))
    (point,) = space.space.restrict({"back": back, "stages": stages}).sample(1, np.random.default_rng(0))
    program = space.program(point)
    return build(program, problem, point, SolverCache()).kernel, problem, (program, point)


def test_it_is_searched_by_its_own_values() -> None:
    space = build_space(Scaled, Scaled.problem(**SIZES), device("h100")).space
    assert {(p["back"], p["stages"]) for p in space} == {(b, s) for b in (0, 1) for s in (1, 2, 3)}


@pytest.mark.parametrize(("back", "stages"), [(1, 2), (0, 1), (1, 3)])
@pytest.mark.sampled(2)
def test_it_is_lowered_proved_verified_and_run(back: int, stages: int) -> None:
    kernel, problem, (program, point) = made(back, stages)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    assert certify(lowered(program, problem, point, swizzles).protocol).proved
    found = verify(kernel, Scaled, problem, orders=("late",), random_inputs=False)
    assert found.passed, found
    x = np.random.default_rng(1).standard_normal(tuple(SIZES.values())).astype(np.float32)
    for ctas in (1, 3, 40):
        assert np.array_equal(program.run({"x": x}, ctas=ctas)["y"], x + x)


def test_its_kernel_carries_its_launch() -> None:
    kernel, problem, _ = made(1, 2)
    assert kernel.persistent
    assert (kernel.grid(problem)[0], kernel.grid(problem, 7)[0]) == (25, 7)
    assert (launch_of(kernel, problem).ctas, launch_of(kernel, problem).persistent) == (25, True)
    for again in (Kernel.from_json(kernel.to_json()), pickle.loads(pickle.dumps(kernel))):
        assert again == kernel
        assert (type(again.scheduler), again.grid(problem, 7)) == (Snake, kernel.grid(problem, 7))


def test_ctas_of_the_real_problem_are_those_that_work_on_the_tiles_at_the_corners() -> None:
    """The tile at the end of the second row is the sixth of the line, which CTA 5 takes."""
    kernel, problem, _ = made(1, 2)
    longer = Scaled.problem(m=4 * 8, n=5 * 32)
    last, first = chosen_clusters(kernel, longer)
    assert [(c.tile, list(c.ctas)) for c in (last, first)] == [((3, 4), [15]), ((0, 0), [0])]
    assert (3, 4) in walked(1, 4, 5, 20)[15]
    assert problem.dim["m"] == SIZES["m"]
