"""Rows and places that data name: random candidates, sizes that nothing divides, ids repeated and at both ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.scatter_add import Histogram, ScatterAdd
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ROWS = ({"m": 1, "n": 1, "v": 1}, {"m": 33, "n": 65, "v": 7}, {"m": 13, "n": 129, "v": 3}, {"m": 5, "n": 64, "v": 1000})
BINS = ({"m": 1, "v": 1}, {"m": 1000, "v": 7}, {"m": 129, "v": 1025}, {"m": 31, "v": 2})
CASES: dict[type[Any], tuple[tuple[dict[str, int], ...], tuple[dict[str, str], ...]]] = {
    Embedding: (ROWS, (*({"table": kind} for kind in ("f32", "f16", "bf16", "e4m3", "s8")), {"ids": "u32"})),
    ScatterAdd: (ROWS, ({}, {"x": "f16"}, {"x": "bf16"})),
    Histogram: (BINS, ({}, {"counts": "u32"})),
}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("machine", CASES, ids=lambda m: m.__name__)
@pytest.mark.sampled(15)
def test_random_candidates_are_right(machine: Any, seed: int, draw_candidate: Any) -> None:
    sizes, types = CASES[machine]
    problem = machine.problem(**sizes[seed % len(sizes)], dtypes=types[seed % len(types)])
    space = build_space(machine, problem, device(("a100", "h100", "rtx5090")[seed // 5 % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("counted", ["in shared memory", "in global memory"])
def test_both_ways_count_what_is_there_already_and_one_value_alone(counted: str) -> None:
    x = np.array([6] * 700 + [0, 3, 6], np.int32)
    space = tg.space(Histogram, m=len(x), v=7, device="a100")
    point = space.sample(1, 3)[0] | {"counted": counted}
    before = np.arange(7, dtype=np.int32)
    after = tg.emulate(tg.emit(space, **point), x, before)
    np.testing.assert_array_equal(after, np.arange(7) + np.bincount(x, minlength=7))


def test_more_values_than_bins_are_counted_in_global_memory() -> None:
    space = tg.space(Histogram, m=10_000, v=100_000, device="h100")
    assert {point["counted"] for point in space.sample(20, 0)} == {"in global memory"}
    said = tg.explain(space, counted="in shared memory")
    assert any("every value has a bin of the CTA's own" in sentence for sentence in said.sentences)


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_rows_at_both_ends_of_a_table_are_found(kind: str) -> None:
    table = np.arange(35, dtype=np.float32).reshape(7, 5)
    ids = np.array([6, 0, 6, 3], {"s32": np.int32, "u32": np.uint32}[kind])
    space = tg.space(Embedding, m=4, n=5, v=7, device="a100", dtypes={"ids": kind})
    kernel = tg.emit(space, **space.sample(1, 0)[0])
    np.testing.assert_array_equal(tg.emulate(kernel, table, ids), table[ids])
    with pytest.raises(ValueError) as refused:
        tg.emulate(kernel, table, np.full_like(ids, 7))
    assert str(refused.value) == "Embedding: ids[0] is 7, and must be a whole number from 0 to 6"
