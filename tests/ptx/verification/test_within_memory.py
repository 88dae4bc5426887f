"""Dims that no memory holds: derived problems have less of them, and say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, Tracer, ascending, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.verification.within_memory import MOST_ELEMENTS


class Halved(Machine):
    """y[i] = how many keys there are, halved i times, and the key that lies there"""

    m, n = Dim(), Dim()
    rounds = Dim(follows=lambda n: int(n).bit_length())
    odd = Require(n % 2 == 1, "keys are odd in number")
    keys = Input("s32", n, values=ascending(-1000, 1000))
    y = Output("s32", m)
    warps = Param(1, 2)
    single, st, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32")
    wrong = False

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps,)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            at = p.full(who, "s32", self.n // 2 if self.wrong else self.n - 1)
            with p.loop(self.rounds):
                p.cast(at - (at >> 3), "s32", into=at)
            key = p.load(self.single, self.keys.rows(at).tile(0, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), key)

    @staticmethod
    def reference(keys: Any, m: int) -> Any:
        at = len(keys) - 1
        for _ in range(len(keys).bit_length()):
            at -= at >> 3
        return np.full(m, keys[at])


class Wrong(Halved):
    """half of the keys"""

    wrong = True


@pytest.mark.parametrize("n", [(1 << 31) - 1, MOST_ELEMENTS + 31])
def test_what_no_memory_holds_is_cut_and_told(n: int) -> None:
    found = tg.verify(tg.emit(tg.space(Halved, m=100, n=n, device="a100")))
    assert found.passed
    (cut,) = {c for c in found.left_out if c.startswith("n=")}
    left = found.problem.dim["n"]
    assert cut == f"n={n:,}, more than is emulated: {left:,} in its place"
    assert left % 32 == n % 32
    assert left < MOST_ELEMENTS
    assert found.problem.dim["rounds"] == left.bit_length()


def test_what_memory_holds_is_as_it_is() -> None:
    found = tg.verify(tg.emit(tg.space(Halved, m=100, n=4097, device="a100")))
    assert found.passed
    assert found.problem.dim["n"] == 4097
    assert not any(c.startswith("n=") for c in found.left_out)


def test_what_is_wrong_is_wrong_with_less_of_it() -> None:
    assert not tg.verify(tg.emit(tg.space(Wrong, m=100, n=(1 << 31) - 1, device="a100"))).passed
