"""What is traced means what the machine's reference computes: programs carried out in NumPy, without any partition."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import row_machines as rows
import tile_machines as tiles
from carried_out import CarriedOut

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.language.reference import reference_of
from tinygpu.machines.elementwise import Axpby, BiasRelu
from tinygpu.spaces.build import build_space

CASES: list[tuple[type[Machine], dict[str, Any], float]] = [
    (Axpby, {"n": 600}, 0),
    (BiasRelu, {"m": 9, "n": 70}, 0),
    (rows.RmsNorm, {"m": 5, "n": 300}, 1e-3),
    (rows.LayerNorm, {"m": 5, "n": 300}, 1e-3),
    (rows.OnlineSoftmax, {"m": 5, "n": 300}, 1e-3),
    (rows.Gemv, {"m": 33, "k": 100}, 0),
    (rows.VectorSum, {"m": 5, "n": 100}, 1e-3),
    (rows.IntMax, {"m": 9, "n": 77}, 0),
    (rows.ScaleRows, {"m": 33, "n": 70}, 0),
    (rows.BatchSum, {"b": 3, "n": 301}, 1e-3),
    (rows.Choose, {"n": 301, "options": {"how": "add"}}, 0),
    (tiles.Transpose, {"m": 40, "n": 30}, 0),
    (tiles.TransposeColumns, {"m": 40, "n": 30}, 0),
    (tiles.ManyTiles, {"m": 40, "n": 50}, 0),
    (tiles.FewThreads, {"m": 17, "n": 13}, 0),
    (tiles.BatchedAdd, {"b": 2, "m": 5, "n": 70}, 0),
    (tiles.BatchedMatmul, {"b": 2, "m": 40, "n": 40, "k": 40}, 0),
    (tiles.PanelMatmul, {"m": 40, "n": 40, "k": 40}, 0),
]


def arguments(machine: type[Machine], problem: Any, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whole numbers, so that sums are exact in any order."""
    arrays = {}
    for o in problem.operands:
        arrays[o.name] = rng.integers(-3, 4, o.shape).astype(o.dtype.numpy)
    return arrays, {s.name: 2 for s in machine.scalar_declarations()}


@pytest.mark.parametrize(("machine", "asked", "tolerance"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_a_program_carried_out_gives_what_the_reference_gives(
    machine: type[Machine], asked: dict[str, Any], tolerance: float
) -> None:
    problem, rng = machine.problem(**asked), np.random.default_rng(1)
    space = build_space(machine, problem, device("a100"))
    points = [space.space.restrict(dict(s)).sample(1, rng)[0] for s in space.structures[:4]]
    for point in points:
        arrays, scalars = arguments(machine, problem, rng)
        outputs = {o.name: o.shape for o in problem.operands if o.access != "in"}
        wide = {name: a.astype(np.float64 if a.dtype.kind not in "iu" else np.int64) for name, a in arrays.items()}
        takes = inspect.signature(machine.reference).parameters
        given = {k: v for k, v in {**wide, **scalars, **dict(problem.options)}.items() if k in takes}
        expected = reference_of(machine, outputs)(**given)
        CarriedOut(space.program(point), problem, arrays, scalars)
        for name, value in expected.items():
            found = arrays[name].astype(np.float64)
            assert np.allclose(found, np.asarray(value, np.float64), rtol=tolerance, atol=tolerance), (name, point)
