"""Tables by the number of a tile, as `table[i % 5]`: CTAs of the problem itself are judged by all of a dim, or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa


class ByNumber(Machine):
    """y[i, :] = x[i, :] * w[i % v]"""

    m, n, v = Dim(), Dim(), Dim()
    x, w, y = Input("f32", m, n), Input("f32", v), Output("f32", m, n)
    warps = Param(1)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")
    off = 0

    def program(self, p: Tracer) -> None:
        who = blocked((1, 32), threads=32, across=32)
        with p.grid((self.m, 1), (self.n, 32)) as (i, j), p.role("all", warps=1):
            w = p.load(self.ld, self.w.tile((i + self.off) % self.v, shape=(1,)), who.reduced(1).squeeze(1))
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who)
            p.store(self.st, self.y.tile(i, j, shape=(1, 32)), x * w.unsqueeze(1))

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return x * w[np.arange(len(x)) % len(w), None]


class OneOff(ByNumber):
    """the next one"""

    off = 1


@pytest.mark.parametrize("m", [3000, 100_003])
def test_a_right_machine_is_right_wherever_its_tiles_lie(m: int) -> None:
    space = tg.space(ByNumber, m=m, n=40, v=5, device="a100")
    found = tg.verify(tg.emit(space))
    assert found.passed, str(found)
    of_itself = [c for c in found.checks if "CTA" in c.where]
    assert bool(of_itself) == (m * 40 < 1 << 22)
    assert any("all along m" in left for left in found.left_out) == (m * 40 >= 1 << 22)


def test_the_next_number_is_wrong() -> None:
    assert not tg.verify(tg.emit(tg.space(OneOff, m=3000, n=40, v=5, device="a100"))).passed
