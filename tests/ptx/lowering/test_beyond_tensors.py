"""Elements that are known to lie behind a tensor before the launch: none is loaded or stored, and fills stand there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Option, Output, Param, Tracer, blocked
from tinygpu.ptx import isa

WIDE = 64


class Shifted(Machine):
    """y[i, j] = x[i, j] + b[j + by], and 7 behind the last; z = y, from the column `by` on"""

    m, n = Dim(), Dim(32, WIDE)
    x, b = Input("f32", m, n), Input("f32", n)
    y, z = Output("f32", m, n), Output("f32", m, n)
    by = Option(0, 1, 31, 64)
    vector = Param(1, 2)
    ld, st, one, arithmetic = isa.LdGlobal(vector), isa.StGlobal(vector), isa.LdGlobal(1), isa.arithmetic("f32")
    single = isa.StGlobal(1)

    def program(self, p: Tracer) -> None:
        shape = (32, self.n)
        who = blocked(shape, threads=32, vector=self.vector, across=1)
        with p.grid((self.m, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
            y = x + p.load(self.one, self.b.row(self.by, self.n), who.along(1), fill=7.0)
            p.store(self.st, self.y.tile(i, 0, shape=shape), y)
            p.store(self.single, self.z.tile(i, 0, shape=shape), x)
            p.store(self.single, self.z.tile(i, self.by, shape=shape), y)

    @staticmethod
    def reference(x: Any, b: Any, by: int) -> Any:
        n = len(b)
        y = x + np.concatenate([b[by:], np.full(min(by, n), 7.0)])
        z = x if by >= n else np.concatenate([x[:, :by], y[:, : n - by]], axis=1)
        return {"y": y, "z": z}


@pytest.mark.parametrize(("n", "by", "vector"), [(32, 1, 1), (32, 31, 2), (32, 64, 1), (WIDE, 1, 2), (WIDE, 64, 2)])
def test_what_lies_behind_the_last_element_is_filled_and_left_out(n: int, by: int, vector: int) -> None:
    space = tg.space(Shifted, m=33, n=n, options={"by": by}, device="a100")
    found = tg.verify(tg.emit(space, vector=vector))
    assert found.passed, str(found)
