"""Whole numbers given at launch, with Python's operators between them: worked out where a tile meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Scalar, Tracer, blocked, where
from tinygpu.ptx import isa

EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "key": lambda x, a, b: x ^ (a ^ 0x9E3779B9),
    "turned round": lambda x, a, b: x ^ (0x9E3779B9 ^ a) ^ (b | 1) ^ (6 & b),
    "shifted": lambda x, a, b: x + ((a << 3) ^ (b >> 2)) + (1 << (a & 7)) + (0xFFFF0000 >> (b & 15)),
    "complement": lambda x, a, b: x & ~(a & b),
    "both": lambda x, a, b: where((x > 7) ^ ((a > 100) & (b > 100)), x, b),
}


def machine(expression: Callable[..., Any]) -> type[Machine]:
    class Words(Machine):
        """y = an expression of x and two numbers"""

        n = Dim()
        a, b = Scalar("u32"), Scalar("u32")
        x, y = Input("u32", n), Output("u32", n)
        ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("u32")

        def program(self, p: Tracer) -> None:
            who = blocked((32,), threads=32)
            with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
                p.store(self.st, self.y.tile(i, shape=(32,)), expression(x, self.a, self.b))

        @staticmethod
        def reference(a: Any, b: Any, x: Any) -> Any:
            return x

    return Words


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_number_is_what_numpy_makes_of_it(name: str) -> None:
    kernel = tg.emit(tg.space(machine(EXPRESSIONS[name]), n=40, device="a100"))

    @given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 99))
    def same(a: int, b: int, seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 2**32, 40, dtype=np.uint32)
        with np.errstate(over="ignore"):
            wanted = EXPRESSIONS[name](x, np.uint32(a), np.uint32(b))
        for found in (tg.run(kernel, x, a=a, b=b), tg.emulate(kernel, x, a=a, b=b)):
            assert np.array_equal(found, wanted)

    same()
