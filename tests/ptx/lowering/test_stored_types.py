"""What is stored has the type of its tensor, and numbers in programs are those that their type holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import (
    DeclarationError,
    Dim,
    Input,
    Machine,
    Output,
    blocked,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def stored(kind: str, into: str, then: Callable[..., Any] | None = None, fill: float = 0.0) -> type[Machine]:
    class Stored(Machine):
        """y = x"""

        n = Dim()
        x, y = Input(kind, n), Output(into, n)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            with p.grid((self.n, 64)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(64,)), blocked((64,), threads=32), fill=fill)
                p.store(self.st, self.y.tile(i, shape=(64,)), then(self, p, x) if then else x)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Stored


KINDS = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f32")


@pytest.mark.parametrize(("kind", "into"), [*itertools.permutations(KINDS, 2)])
def test_a_store_keeps_the_type(kind: str, into: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        stored(kind, into)
    assert str(refused.value) == f"Stored.program: st stores {kind} values into y, which is {into}; convert first"


WHOLE = "holds whole numbers from"


@pytest.mark.parametrize(
    ("kind", "number", "why"),
    [
        ("s32", float("-inf"), f"s32 {WHOLE} -2,147,483,648 to 2,147,483,647"),
        ("s32", 0.5, f"s32 {WHOLE} -2,147,483,648 to 2,147,483,647"),
        ("s8", float("nan"), f"s8 {WHOLE} -128 to 127"),
        ("u32", -1, f"u32 {WHOLE} 0 to 4,294,967,295"),
        ("u32", 2**32, f"u32 {WHOLE} 0 to 4,294,967,295"),
        ("f16", 70000, "f16 holds numbers up to 65,504"),
        ("e4m3", float("inf"), "e4m3 has no infinities"),
        ("e5m2", -6e4, "e5m2 holds numbers up to 57,344"),
    ],
)
def test_numbers_that_a_type_does_not_hold_are_refused(kind: str, number: float, why: str) -> None:
    def told(then: Callable[..., Any]) -> str:
        with pytest.raises(DeclarationError) as refused:
            stored(kind, kind, then)
        return str(refused.value).removeprefix("Stored.program: ")

    who = blocked((64,), threads=32)
    assert told(lambda s, p, x: p.full(who, kind, number)) == f"the constant is {number}, and {why}"
    if kind in ("s32", "u32", "f16"):
        top = isa.Max(kind)
        assert told(lambda s, p, x: p.apply(top, x, number)) == f"an operand of {top.label} is {number}, and {why}"
    with pytest.raises(DeclarationError) as refused:
        stored(kind, kind, fill=number)
    assert str(refused.value) == f"Stored.program: what ld fills with is {number}, and {why}"


@pytest.mark.parametrize("kind", ["f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "s32", "u32", "s8", "u8"])
def test_every_type_that_a_launch_has_is_moved_as_it_is(kind: str) -> None:
    """Infinities and extremes among them: what converts saturates, and what moves does not."""
    machine = stored(kind, kind)
    problem = machine.problem(n=70)
    kernel = build(build_space(machine, problem, device("a100")).program({}), problem, {}, SolverCache()).kernel
    assert verify(kernel, machine, problem, orders=("late",)).passed


def test_scales_of_blocks_are_no_arrays_of_a_launch() -> None:
    with pytest.raises(DeclarationError) as refused:
        stored("ue8m0", "ue8m0")
    assert str(refused.value) == "Stored.program: ld.global moves ue8m0 of x, and launches have none; use u8"


def test_tf32_is_stored_as_the_f32_that_it_is() -> None:
    stored("tf32", "f32")
    stored("f32", "tf32")
