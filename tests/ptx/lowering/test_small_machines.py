"""Operations that are not shipped, written as a user would: random admitted candidates agree with NumPy."""

from typing import Any

import numpy as np
import pytest
import row_machines as rows
import tile_machines as tiles
from attention_machine import Attention

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

CACHE = SolverCache()
LATE: tuple[Order, ...] = ("late",)
ANY: tuple[Order, ...] = ("late", "early", "random")


def check(machine: type[Machine], asked: dict[str, Any], orders: tuple[Order, ...], count: int = 3) -> None:
    """Candidates of two devices lower, assemble for them, and are right."""
    problem = machine.problem(**asked)
    for name, target, tried in (("a100", "sm_80", count), ("rtx4090", "sm_89", 1)):
        space = build_space(machine, problem, device(name))
        for point in space.space.sample(tried, np.random.default_rng(2)):
            kernel = build(space.program(point), problem, point, CACHE).kernel
            assemble(kernel.ptx, target)
            verification = verify(kernel, machine, problem, orders=orders)
            assert verification.passed, f"{name} {point}\n{verification}"


def named(cases: list[tuple[type[Machine], dict[str, Any]]]) -> list[Any]:
    return [pytest.param(m, a, id=f"{m.__name__}-{'-'.join(map(str, a.values()))}") for m, a in cases]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("machine", "asked"),
    named(
        [
            (rows.RmsOfRows, {"m": 9, "n": 300}),
            (rows.NormOfRows, {"m": 9, "n": 300}),
            (rows.OnlineSoftmax, {"m": 9, "n": 300}),
            (rows.OnlineSoftmax, {"m": 8, "n": 128}),
            (rows.Gemv, {"m": 33, "k": 300}),
            (rows.Gemv, {"m": 16, "k": 257, "dtypes": {"a": "bf16"}}),
            (rows.IntMax, {"m": 9, "n": 77}),
            (rows.ScaleRows, {"m": 33, "n": 70}),
            (rows.ScaleRows, {"m": 33, "n": 64, "majors": {"y": "col"}, "lds": {"y": 36}}),
            (rows.BatchSum, {"b": 5, "n": 1001}),
            (rows.Choose, {"n": 1001, "options": {"how": "add"}}),
            (tiles.FewThreads, {"m": 17, "n": 13}),
            (tiles.FewThreads, {"m": 20, "n": 20}),
            (tiles.BatchedAdd, {"b": 3, "m": 10, "n": 100}),
        ]
    ),
)
def test_without_shared_memory(machine: type[Machine], asked: dict[str, Any]) -> None:
    check(machine, asked, LATE)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("machine", "asked"),
    named(
        [
            (rows.VectorSum, {"m": 5, "n": 300}),
            (tiles.Transpose, {"m": 100, "n": 70}),
            (tiles.Transpose, {"m": 65, "n": 33, "dtypes": {"x": "s8"}, "lds": {"x": 40}}),
            (tiles.Transpose, {"m": 64, "n": 64, "dtypes": {"x": "f64"}}),
            (tiles.TransposeColumns, {"m": 100, "n": 70}),
            (tiles.ManyTiles, {"m": 50, "n": 70}),
            (tiles.BatchedMatmul, {"b": 3, "m": 40, "n": 72, "k": 40}),
            (tiles.PanelMatmul, {"m": 40, "n": 72, "k": 40}),
            (Attention, {"h": 2, "m": 24, "n": 64, "d": 64}),
        ]
    ),
)
def test_through_shared_memory(machine: type[Machine], asked: dict[str, Any]) -> None:
    """Under every order of asynchronous work."""
    check(machine, asked, ANY)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [tiles.PanelMatmul, tiles.BatchedMatmul, tiles.ManyTiles])
def test_every_stage_count_of_every_structure(machine: type[Machine]) -> None:
    dims = dict.fromkeys(machine.dim_names(), 40)
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    seen = set()
    for point in space.space.sample(400, np.random.default_rng(3)):
        key = (point["stages"], *(v for v in point.values() if isinstance(v, str)))
        if key not in seen:
            seen.add(key)
            kernel = build(space.program(point), problem, point, CACHE).kernel
            verification = verify(kernel, machine, problem)
            assert verification.passed, f"{point}\n{verification}"
    assert len(seen) >= 3
