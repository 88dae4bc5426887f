"""Numbers in the text of a kernel, as tiles of their own and in instructions: in every type they are what NumPy has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import Dim, Input, Machine, Output, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

VALUES = {
    "f64": (0.1, -1 / 3, 1e300, -5e-324, 2.0**53 + 2),
    "f32": (0.1, -1 / 3, 3e38, -1e-45, 2.0**24 + 2),
    "f16": (0.1, -1 / 3, 65504.0, -6e-8, 2050.0),
    "bf16": (0.1, -1 / 3, 3e38, -1e-40, 258.0),
    "s32": (0, -1, 2**31 - 1, -(2**31), 65537),
    "u32": (0, 1, 2**32 - 1, 2**31, 65537),
}


def machine(kind: str, value: float, fills: bool) -> type[Machine]:
    """fills: the number is a tile of its own; else it stands in the instruction."""

    class Constants(Machine):
        """y = the greater of x and a number"""

        m = Dim()
        x = Input(kind, m)
        y = Output(kind, m)
        ld, st, greater = isa.LdGlobal(2), isa.StGlobal(2), isa.Max(kind)

        def program(self, p: Any) -> None:
            who = blocked((64,), threads=32, vector=2)
            with p.grid((self.m, 64)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(64,)), who)
                number = p.full(who, kind, value) if fills else value
                p.store(self.st, self.y.tile(i, shape=(64,)), p.apply(self.greater, x, number))

        @staticmethod
        def reference(x: Any) -> Any:
            return np.maximum(x, np.asarray(value).astype(dtype(kind).numpy).astype(x.dtype))

    return Constants


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fills", [True, False], ids=["tile", "operand"])
@pytest.mark.parametrize("kind", VALUES)
def test_a_number_is_what_numpy_has_in_its_type(kind: str, fills: bool) -> None:
    for value in VALUES[kind]:
        made = machine(kind, value, fills)
        problem = made.problem(m=64)
        space = build_space(made, problem, device("a100"))
        (point,) = list(space.space)
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, made, problem, orders=("late",))
        assert found.passed, f"{value}\n{found}"
