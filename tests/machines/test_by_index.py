"""Machines whose values are indices: right for odd sizes and for ids at the edges, repeated, and outside."""

from __future__ import annotations

import numpy as np
import pytest

import tinygpu as tg
from tests.thirdparty.by_index import (
    Causal,
    Embedding,
    EmbeddingInSlots,
    Histogram,
    HistogramInSlots,
    Lookup,
    ScatterAdd,
)
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.check import check_machine

SIZES: dict[type[Machine], tuple[dict[str, int], ...]] = {
    Embedding: ({"m": 1, "n": 1, "v": 1}, {"m": 33, "n": 65, "v": 7}, {"m": 13, "n": 129, "v": 3}),
    EmbeddingInSlots: ({"m": 1, "n": 8, "v": 1}, {"m": 33, "n": 136, "v": 7}),
    ScatterAdd: ({"m": 1, "n": 1, "v": 1}, {"m": 33, "n": 65, "v": 7}, {"m": 17, "n": 3, "v": 2}),
    HistogramInSlots: ({"m": 1, "v": 1}, {"m": 300, "v": 127}),
    Lookup: ({"m": 1, "v": 1}, {"m": 129, "v": 127}),
    Histogram: ({"m": 1, "v": 1}, {"m": 129, "v": 5}, {"m": 31, "v": 2}),
    Causal: ({"m": 1, "n": 1}, {"m": 17, "n": 65}, {"m": 31, "n": 13}),
}
CASES = [(machine, dims) for machine, sizes in SIZES.items() for dims in sizes]


@pytest.mark.parametrize(("machine", "dims"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_a_drawn_candidate_is_right(machine: type[Machine], dims: dict[str, int]) -> None:
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(sum(dims.values())))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",), derived=problem)
    assert found.passed, str(found)


@pytest.mark.end_to_end
def test_ids_at_the_edges_repeated_and_outside_name_what_there_is() -> None:
    rng = np.random.default_rng(0)
    ids = np.array([0, 6, 6, 0, 3, -1, 7, 2**31 - 1, -(2**31), 5, 6], np.int32)
    table, y = rng.integers(-9, 9, (7, 5)).astype(np.float32), rng.integers(-9, 9, (7, 5)).astype(np.float32)
    x = rng.integers(-9, 9, (len(ids), 5)).astype(np.float32)
    dims = {"m": len(ids), "n": 5, "v": 7}
    point = {"warps": 1, "vector": 1, "rows": 8}
    kernel = tg.emit(tg.space(Embedding, **dims, device="a100"), **point)
    np.testing.assert_array_equal(tg.emulate(kernel, ids, table), Embedding.reference(ids, table))
    inside = ids[(ids >= 0) & (ids < 7)]
    kernel = tg.emit(tg.space(ScatterAdd, **(dims | {"m": len(inside)}), device="a100"), **point)
    added = tg.emulate(kernel, inside, x[: len(inside)], y)
    np.testing.assert_array_equal(added, ScatterAdd.reference(inside, x[: len(inside)], y.copy()))


@pytest.mark.slow
@pytest.mark.parametrize("machine", SIZES, ids=lambda m: m.__name__)
def test_check_finds_nothing(machine: type[Machine]) -> None:
    report = check_machine(machine, tell=lambda line: None)
    assert report.ok, str(report)
