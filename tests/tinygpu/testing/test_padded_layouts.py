"""Elements of 4 and 6 bits that lie padded, as tensor cores read them beside 8-bit ones, share addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinygpu.devices import device
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx
from tinygpu.program.placement import place
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case, examine
from tinygpu.testing.coverage import buffer_fault


@pytest.mark.parametrize(("a", "b"), [("e3m2", "e2m3"), ("e2m1", "e4m3"), ("e5m2", "e3m2")])
@pytest.mark.parametrize("ctas", ["one", "pairs"])
def test_padded_elements_are_apart_by_sixteens(a: str, b: str, ctas: str) -> None:
    problem = MatmulBlackwellMx.problem(m=100, n=70, k=256, dtypes={"a": a, "b": b}, majors={"b": "col"})
    space = build_space(MatmulBlackwellMx, problem, device("b200"))
    point = next(iter(space.restrict({"ctas": ctas, "swizzle": 128, "stages": 2})))
    assert not examine("layouts", Case(MatmulBlackwellMx, problem, device("b200"), point)).fault
    program = space.program(point)
    padded = [buffer for ring in program.pipelines for buffer in ring.buffers if buffer.padded]
    assert {buffer.dtype.name for buffer in padded} == {kind for kind in (a, b) if kind not in ("e4m3", "e5m2")}
    places = place(program, solve_buffers(program, SolverCache()).swizzles).places
    for buffer in padded:
        where = places[buffer.name]
        assert buffer_fault(buffer, where) == ""
        said = buffer_fault(replace(buffer, padded=False), where)
        assert said == "its layout puts two elements at one address"
