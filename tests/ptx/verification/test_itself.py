"""A small problem is run whole: numbers of a program that lie beyond the few rounds of derived problems show there."""

from __future__ import annotations

from typing import Any

import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked, minimum
from tinygpu.ptx import isa
from tinygpu.ptx.verification import beyond, itself
from tinygpu.ptx.verification.verify import Verification


class Sums(Machine):
    """y[i] = sum of x[i], one element after another"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((32, 1), threads=32)
        with p.grid((self.m, 32)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32", 0.0)
            with p.loop(self.rounds()) as j:
                total += p.load(self.ld, self.x.tile(i, self.place(j), shape=(32, 1)), who)
            p.store(self.st, self.y.column(i, 32), total)

    def rounds(self) -> Any:
        return self.n

    def place(self, j: Any) -> Any:
        return j

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class Of64(Sums):
    def rounds(self) -> Any:
        return minimum(self.n, 64)


class Again(Sums):
    def place(self, j: Any) -> Any:
        return j % 64


def verified(machine: type[Machine], **dims: int) -> Verification:
    return tg.verify(tg.emit(tg.space(machine, **dims, device="a100")))


@pytest.mark.parametrize("machine", [Sums, Of64, Again])
def test_a_number_beyond_derived_rounds_shows(machine: type[Machine]) -> None:
    found = verified(machine, m=37, n=127)
    assert found.passed == (machine is Sums)
    wrong = [c.where for c in found.checks if not c.passed]
    by_itself = [where for where in wrong if not where.startswith(beyond.WHERE)]
    assert by_itself == [f"{itself.WHERE} (m=37,n=127)"] * (0 if machine is Sums else 3)


def test_the_whole_takes_the_place_of_some_ctas() -> None:
    found = verified(Sums, m=37, n=127)
    assert [c.inputs for c in found.checks if c.where.startswith(itself.WHERE)] == ["integers", "random", "last"]
    assert not any("CTA" in c.where for c in found.checks)
    assert not found.left_out


def test_of_a_large_problem_some_ctas_are_run() -> None:
    found = verified(Sums, m=3001, n=1009)
    assert not any(c.where.startswith(itself.WHERE) for c in found.checks)
    assert any("CTA" in c.where for c in found.checks)


def test_a_derived_problem_as_large_as_the_real_one_is_all() -> None:
    found = verified(Sums, m=1, n=1)
    assert not any(c.where.startswith(itself.WHERE) for c in found.checks)
