"""Repairs are tried of constants, whatever says them: a number, a dim, an index."""

from __future__ import annotations

from typing import Any

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked
from tinygpu.ptx import isa
from tinygpu.spaces.build import build_space
from tinygpu.testing.repairs import repairs


class Ends(Machine):
    """y = x + n + the tile's number + 1"""

    n = Dim()
    x, y = Input("s32", n), Output("s32", n)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
            for value in (self.n, i, 1):
                x = x + p.full(who, "s32", value)
            p.store(self.st, self.y.tile(i, shape=(32,)), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x + len(x) + 32 * (1 + 0 * x) + 1


def test_a_constant_that_a_dim_or_an_index_says_may_be_a_number_instead() -> None:
    program = build_space(Ends, Ends.problem(n=100), device("a100")).program({})
    of_constants = [r.says for r in repairs(program) if r.says.startswith("value=")]
    neutral = [f"value={v}" for v in (0.0, 1.0, float("-inf"), float("inf"))]
    assert of_constants == [*neutral, *neutral, *(n for n in neutral if n != "value=1.0")]
