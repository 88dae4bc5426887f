"""The layout of a buffer says where the emitted kernel's accesses to shared memory go, swizzles included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from right_machines import Staged, Transpose

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.memories import SMEM
from tinygpu.program.access import accesses
from tinygpu.program.placement import place
from tinygpu.program.program import Program
from tinygpu.program.tree import executions
from tinygpu.ptx import isa
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import SolvedLayouts, solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case, Workbench
from tinygpu.testing.coverage import value
from tinygpu.testing.whole_problems import whole_problem


class Spans(Machine):
    """y = x: tiles come by TMA under a swizzle, and are read by threads with vectors of several widths"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16", "s8"), m, n, majors=("row", "col"))
    y = Output({"f32": ("f32",), "f16": ("f16",), "s8": ("s8",)}, m, n, follows=x)
    swizzle, stages = Param(32, 64, 128), Param(2, 3)
    rows, columns, vector = Param(16, 32, 64), Param(32, 64, 128), Param(1, 2, 4, 8)
    across = Param(2, 4, 8, 16)
    copy, get, st = isa.TmaLoad(), isa.LdShared(vector), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape, axis = (self.rows, self.columns), self.x.contiguous
        who = blocked(shape, threads=64, vector=self.vector, axis=axis, across=self.across)
        tile = p.smem(self.x.dtype, shape, contiguous=axis, swizzle=self.swizzle)
        with p.grid((self.m, self.rows)) as (i,), p.pipeline("ring", self.stages, t=tile) as ring:
            with p.role("bring", warps=1), p.loop(self.n, step=self.columns) as j, ring.produce() as slot:
                p.copy(self.copy, self.x.tile(i, j, shape=shape), slot.t)
            with p.role("keep", warps=2, first=1), p.loop(self.n, step=self.columns) as j, ring.consume() as slot:
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.get, slot.t, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def said(program: Program, layouts: SolvedLayouts, known: dict[str, int]) -> set[tuple[int, int]]:
    """(address from the start of shared memory, bytes) of every lane's access, by the layouts of the buffers."""
    places = place(program, layouts.swizzles).places
    out: set[tuple[int, int]] = set()
    for s, _ in executions(program.body, known, value):
        for access in accesses(s):
            b = access.tile.buffer
            if access.tile.memory is not SMEM or b is None:
                continue
            lanes = access.lanes.reshape(-1, access.lanes.shape[-1])
            lanes = lanes[lanes[:, 0] >= 0] + np.array([int(o) for o in access.tile.offset])
            at = places[b.name]
            for slot in range(at.stages):
                slots = np.full((len(lanes), 1), slot)
                addresses = at.offset_bytes + at.layout.at_coordinates(np.concatenate([lanes, slots], axis=1))
                out |= {(address, access.width_bytes) for address in addresses.tolist()}
    return out


CASES = [(Spans, dtype, major) for dtype in ("f32", "f16", "s8") for major in ("row", "col")]
CASES += [(Transpose, "f32", "row"), (Transpose, "f16", "row"), (Staged, "f32", "row")]


@pytest.mark.end_to_end
@pytest.mark.sampled(4)
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("machine", "dtype", "major"), CASES, ids=lambda v: getattr(v, "__name__", v))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_kernel_touches_the_bytes_that_the_layouts_of_its_buffers_say(
    machine: type[Machine], dtype: str, major: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = machine.problem(m=128, n=512, dtypes={"x": dtype}, majors={"x": major}, aligns={"x": 256, "y": 256})
    space = build_space(machine, problem, device("h100"))
    counted = Site.count_shared
    touched: set[tuple[int, int]] = set()

    def count_shared(self: Site, addresses: Any, mask: Any, size: int) -> tuple[int, int, int]:
        kept = addresses.reshape(-1) if mask is None else addresses[mask]
        touched.update((int(a), size) for a in kept)
        return counted(self, addresses, mask, size)

    monkeypatch.setattr(Site, "count_shared", count_shared)
    for point in space.space.sample(3, np.random.default_rng(seed)):
        case = Case(machine, problem, space.device, point)
        program = space.program(point)
        layouts = solve_buffers(program, SolverCache())
        found = whole_problem(program, case, Workbench(), tiles={a.index: 1 for a in program.grid.axes})
        assert found is not None
        kernel = build(program, found, point, SolverCache()).kernel
        touched.clear()
        verification = verify(kernel, machine, found, orders=("late",), random_inputs=False, derived=found)
        assert verification.passed, f"{case}\n{verification}"
        known = {**found.environment(), **{a.index: 0 for a in program.grid.axes}}
        wanted = said(program, layouts, known)
        start = min(a for a, _ in touched) - min(a for a, _ in wanted)
        assert start % 128 == 0, str(case)
        assert {(a - start, size) for a, size in touched} == wanted, str(case)
