"""Rows that are held by many warps: what the spaces of some machines admit is right, on several generations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
import across_warps as machines

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.language.buffer_space import exchange_bytes
from tinygpu.language.trace import trace
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

CASES: dict[type[Machine], dict[str, Any]] = {
    machines.RowSum: {"m": 37, "n": 1000},
    machines.ColumnCount: {"m": 61, "n": 67},
    machines.RmsNorm: {"m": 5, "n": 1001},
    machines.LayerNorm: {"m": 7, "n": 300},
    machines.ArgMax: {"m": 5, "n": 1000},
    machines.PrefixSum: {"m": 5, "n": 1003},
    machines.ClusterSoftmax: {"m": 3, "n": 211},
    machines.AllSum: {"n": 3001},
    machines.MiddleSum: {"b": 3, "m": 37, "n": 41},
}
DEVICES = ("a100", "h100", "b200")


def some_are_right(machine: type[Machine], seed: int, part: str, many: int) -> None:
    problem = machine.problem(**CASES[machine])
    space = build_space(machine, problem, device(part))
    points = list(space.space.sample(60, np.random.default_rng(seed)))
    across = [p for p in points if int(exchange_bytes(space.program(p)))] if many == 1 else points
    assert across
    for point in across[:many]:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        report = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
        assert report.passed, f"{machine.__name__} {point}: {report}"


@pytest.mark.parametrize(("seed", "machine"), [*enumerate(CASES)])
def test_rows_of_many_warps_are_right(machine: type[Machine], seed: int) -> None:
    some_are_right(machine, seed, DEVICES[2 if machine is machines.ClusterSoftmax else seed % 3], 1)


@pytest.mark.slow
@pytest.mark.parametrize("part", DEVICES)
@pytest.mark.parametrize("machine", CASES)
def test_rows_of_many_warps_are_right_on_every_generation(machine: type[Machine], part: str) -> None:
    for seed in range(3):
        some_are_right(machine, seed, part, 8)


@pytest.mark.slow
@pytest.mark.parametrize("machine", CASES)
def test_nothing_is_wrong_with_these_machines(machine: type[Machine]) -> None:
    report = tg.check(machine)
    assert report.ok, str(report)


def test_few_long_rows_are_served_by_many_warps_a_row() -> None:
    space = build_space(machines.RmsNorm, machines.RmsNorm.problem(m=128, n=16384), device("a100"))
    points = list(space.space.sample(200, np.random.default_rng(0)))
    assert {p["warps"] for p in points} == {16, 32}


def test_what_warps_leave_for_each_other_counts_as_shared_memory_of_the_kernel() -> None:
    problem = machines.ColumnCount.problem(m=100, n=100)
    space = build_space(machines.ColumnCount, problem, device("a100"))
    for point in space.space.sample(30, np.random.default_rng(1)):
        program = space.program(point)
        kernel = build(program, problem, point, SolverCache()).kernel
        columns = int(point["across"]) * int(point["vector"])
        left = 4 * columns * int(point["warps"]) if int(point["warps"]) > 1 else 0
        assert kernel.smem_bytes == int(exchange_bytes(program)) == -(-2 * (-(-left // 16) * 16) // 128) * 128


@pytest.mark.parametrize("machine", CASES)
def test_programs_that_combine_are_saved_and_loaded(machine: type[Machine]) -> None:
    problem = machine.problem(**CASES[machine])
    space = build_space(machine, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(5))
    for program in (trace(machine, problem, next(machine.structures())).program, space.program(point)):
        assert str(load_program(save_program(program))) == str(program)
    again = load_program(save_program(space.program(point)))
    assert build(again, problem, point, SolverCache()).kernel.ptx == (
        build(space.program(point), problem, point, SolverCache()).kernel.ptx
    )


@pytest.mark.parametrize("parts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_sums_of_warps_are_parts_of_tiles_that_ctas_share(parts: int) -> None:
    problem = machines.SharedSum.problem(m=5, n=1500)
    space = build_space(machines.SharedSum, problem, device("a100"))
    points = [p for p in space.space.sample(60, np.random.default_rng(2)) if p["parts"] == 3 and p["warps"] > 1]
    for point in points[:parts]:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        report = verify(kernel, machines.SharedSum, problem, orders=("random",), random_inputs=False)
        assert report.passed, str(report)
