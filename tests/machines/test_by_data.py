"""Machines whose data decide rounds, places and branches: right for odd sizes, no rounds, all of them, and too many."""

from __future__ import annotations

import numpy as np
import pytest

import tinygpu as tg
from tests.thirdparty.by_data import LowerTriangle, PagedSums, PrefixRows, RaggedSums, RaggedTma, SegmentSums
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.check import check_machine

SIZES: dict[type[Machine], tuple[dict[str, int], ...]] = {
    RaggedSums: ({"m": 1, "n": 1}, {"m": 13, "n": 129}),
    SegmentSums: ({"g": 1, "m": 1, "n": 1}, {"g": 5, "m": 13, "n": 65}),
    PagedSums: ({"z": 1, "most": 1, "pages": 1, "n": 4}, {"z": 3, "most": 7, "pages": 5, "n": 132}),
    RaggedTma: ({"b": 1, "m": 1, "n": 4}, {"b": 5, "m": 33, "n": 36}),
    LowerTriangle: ({"m": 1, "n": 1}, {"m": 17, "n": 65}, {"m": 67, "n": 13}),
    PrefixRows: ({"m": 1, "n": 4}, {"m": 7, "n": 132}),
}
CASES = [(machine, dims) for machine, sizes in SIZES.items() for dims in sizes]


@pytest.mark.parametrize(("machine", "dims"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_a_drawn_candidate_is_right(machine: type[Machine], dims: dict[str, int]) -> None:
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(sum(dims.values())))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",), derived=problem)
    assert found.passed, str(found)


def test_no_rounds_all_rounds_and_segments_that_end_before_they_begin() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (6, 70)).astype(np.float32)
    lengths = np.array([0, 70, 1, 64, 65, 33], np.int32)
    kernel = tg.emit(tg.space(RaggedSums, m=6, n=70, device="a100"), vector=2)
    np.testing.assert_array_equal(tg.emulate(kernel, lengths, x), RaggedSums.reference(lengths, x))
    begin, end = np.array([0, 6, 4, 2, 0], np.int32), np.array([6, 6, 2, 3, 0], np.int32)
    kernel = tg.emit(tg.space(SegmentSums, g=5, m=6, n=70, device="a100"), warps=1, vector=1, rows=4)
    np.testing.assert_array_equal(tg.emulate(kernel, begin, end, x), SegmentSums.reference(begin, end, x))


def test_rounds_that_data_decide_are_predicted_by_what_is_declared_of_them() -> None:
    demand = {}
    for n in (1 << 12, 1 << 14):
        problem = RaggedSums.problem(m=1000, n=n)
        space = build_space(RaggedSums, problem, device("a100"))
        counts = space.counts(0)
        demand[n] = counts.demand({**space.environment, **problem.environment(), "vector": 1}, space.device)
    # the mean of integers(0, n + 1), in rounds of 32 elements
    assert {n: int(d.iterations) for n, d in demand.items()} == {1 << 12: 64, 1 << 14: 256}


@pytest.mark.slow
@pytest.mark.parametrize("machine", SIZES, ids=lambda m: m.__name__)
def test_check_finds_nothing(machine: type[Machine]) -> None:
    report = check_machine(machine, tell=lambda line: None)
    assert report.ok, str(report)
