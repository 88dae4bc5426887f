"""Integers are drawn as large as results hold: a machine that computes them in single precision is found out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, integers, maximum, minimum
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@cache
def machine(kind: str, computed: str, what: str) -> type[Machine]:
    """y = what x and z make, computed in a type and stored in theirs."""

    class Made(Machine):
        n = Dim()
        x, z, y = Input(kind, n), Input(kind, n), Output(kind, n)
        warps = Param(1, 2)
        ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic(computed)

        def program(self, p: Any) -> None:
            shape = (32 * self.warps,)
            who = blocked(shape, threads=32 * self.warps)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                x, z = (p.cast(p.load(self.ld, t.tile(i, shape=shape), who), computed) for t in (self.x, self.z))
                p.store(self.st, self.y.tile(i, shape=shape), p.cast(eval(what, {"x": x, "z": z}), kind))

        @staticmethod
        def reference(x: Any, z: Any) -> Any:
            return eval(what, {"x": x, "z": z})

    return Made


def verified(made: type[Machine], n: int) -> Verification:
    problem = made.problem(n=n)
    space = build_space(made, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(n))
    return verify(build(space.program(point), problem, point, SolverCache()).kernel, made, problem, orders=("random",))


@pytest.mark.parametrize("what", ["x + z", "x + x + z", "x * z"])
@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_integers_that_pass_through_single_precision_are_wrong(kind: str, what: str) -> None:
    assert verified(machine(kind, kind, what), 77).passed
    found = verified(machine(kind, "f32", what), 77)
    wrong = {c.inputs for c in found.checks if not c.passed}
    assert {"specials"} <= wrong <= {"specials", "lines", "other lines"}


@pytest.mark.parametrize("what", ["x + z", "x * z", "x + x + x + z"])
def test_no_result_is_beyond_its_type(what: str) -> None:
    for seed in range(5):
        trial = draw(machine("s32", "s32", what), machine("s32", "s32", what).problem(n=999), "specials", seed)
        (answer,) = trial.answers.values()
        assert np.max(np.abs(answer.value)) <= 2**31 - 1
        assert np.max(np.abs(trial.arrays["x"])) >= (2**10 if what == "x * z" else 2**26)


def test_what_is_declared_is_drawn_as_it_is_declared() -> None:
    class Declared(machine("s32", "f32", "x + z")):  # type: ignore[misc]
        x, z = (Input("s32", machine("s32", "f32", "x + z").n, values=integers(-1000, 1000)) for _ in range(2))

    assert verified(Declared, 77).passed


@pytest.mark.parametrize("n", range(1, 8))
def test_of_few_elements_differences_fit_as_well_as_what_is_left_of_them(n: int) -> None:
    class Above(machine("s32", "s32", "x - z")):  # type: ignore[misc]
        @staticmethod
        def reference(x: Any, z: Any) -> Any:
            return np.maximum(x - z, -2)

    for seed in range(20):
        arrays = draw(Above, Above.problem(n=n), "specials", seed).arrays
        apart = arrays["x"].astype(np.int64) - arrays["z"]
        assert np.max(np.abs(apart)) <= 2**31 - 1


def saturated(least: int) -> type[Machine]:
    """y = x + z, at least so much and at most 127."""

    class Saturated(machine("s8", "s32", "x + z")):  # type: ignore[misc]
        def program(self, p: Any) -> None:
            shape = (32 * self.warps,)
            who = blocked(shape, threads=32 * self.warps)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                x, z = (p.cast(p.load(self.ld, t.tile(i, shape=shape), who), "s32") for t in (self.x, self.z))
                total = minimum(maximum(x + z, least), 127)
                p.store(self.st, self.y.tile(i, shape=shape), p.cast(total, "s8"))

        @staticmethod
        def reference(x: Any, z: Any) -> Any:
            return np.clip(x.astype(np.int64) + z, -128, 127)

    return Saturated


def test_the_least_number_of_a_narrow_type_is_drawn_and_results_come_to_it() -> None:
    assert verified(saturated(-128), 77).passed
    assert not verified(saturated(-127), 77).passed
