"""The space of a machine against its whole product, point by point, and what it keeps of its parts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.counting import count
from tinygpu.devices import device
from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.trace import preferences, trace
from tinygpu.program.fill import filler
from tinygpu.ptx import isa
from tinygpu.spaces.build import MachineSpace, build_space


class Copy(Machine):
    """y = x: straight, or through shared memory with a depth of its own"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps, vector, depth = Param(1, 2, 3), Param(1, 2, 4), Param(1, 2)
    how = Choice("straight", "through")
    ld, st, put, get = isa.LdGlobal(vector), isa.StGlobal(vector), isa.StShared(vector), isa.LdShared(vector)

    def program(self, p: Any) -> None:
        shape, threads = (4, 96), self.warps * 32
        who = blocked(shape, threads=threads, vector=self.vector, across=8 * self.warps)
        tile = p.smem("f32", shape)
        with p.grid((self.m, 4), (self.n, 96)) as (i, j):
            if self.how == "straight":
                with p.role("all", warps=self.warps):
                    x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                    p.store(self.st, self.y.tile(i, j, shape=shape), x)
            else:
                with p.pipeline("ring", self.depth, t=tile) as ring, p.role("all", warps=self.warps):
                    with ring.produce() as s:
                        p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
                    with ring.consume() as s:
                        p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.get, s.t, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


PROBLEM = Copy.problem(m=64, n=200, lds={"x": 202}, aligns={"y": 8})


@pytest.fixture
def made() -> MachineSpace:
    return build_space(Copy, PROBLEM, device("a100"))


def test_a_space_says_what_it_was_built_from(made: MachineSpace) -> None:
    assert (made.machine, made.problem, made.device) == (Copy, PROBLEM, device("a100"))
    assert str(made.space.name) == f"Copy {PROBLEM} on A100-SXM4-80GB"


def test_a_space_holds_the_points_of_the_product_that_every_constraint_admits(made: MachineSpace) -> None:
    """A parameter that a structure does not use shows its first value."""
    limits = {f"device.{name}": number for name, number in device("a100").constants().items()}
    environment = PROBLEM.environment() | limits
    assert made.environment == environment
    expected = set()
    for how, warps, vector, depth in itertools.product(("straight", "through"), (1, 2, 3), (1, 2, 4), (1, 2)):
        if how == "straight" and depth != 1:
            continue
        traced = trace(Copy, PROBLEM, (("how", how),))
        values = environment | {"warps": warps, "vector": vector, "depth": depth}
        rules = (*preferences(Copy, PROBLEM, (("how", how),)), *traced.constraints)
        if all(bool(rule.condition.substitute(values).sympy) for rule in rules):
            expected.add((how, warps, vector, depth))
    found = [(p["how"], p["warps"], p["vector"], p["depth"]) for p in made.space]
    assert set(found) == expected
    assert len(found) == len(expected) == made.space.size > 0
    assert made.space.name == f"Copy {PROBLEM} on A100-SXM4-80GB"
    assert made.space.raw_size == 9 + 18


def test_a_point_is_filled_by_the_part_that_it_belongs_to(made: MachineSpace) -> None:
    assert made.space.origin is made
    assert [dict(s)["how"] for s in made.structures] == ["straight", "through"]
    for index, how in enumerate(("straight", "through")):
        (point,) = made.space.restrict({"how": how}).sample(1, np.random.default_rng(index))
        assert made.structure_index(point) == index
        program = made.program(point)
        assert int(program.threads) == 32 * int(point["warps"])
        assert bool(program.pipelines) == (how == "through")
        assert made.counts(index) is made.counts(index)
        assert made.counts(index).program is made.traces[index].program


def test_another_rate_keeps_the_space_and_another_limit_is_refused(made: MachineSpace) -> None:
    counts = made.counts(1)
    faster = replace(device("a100"), name="A100-fast")
    other = made.on(faster)
    assert (other.device, other.space.origin, other.counts(1)) == (faster, other, counts)
    assert [*other.space] == [*made.space]
    larger = device("h100")
    pairs = zip(larger.constants().items(), device("a100").constants().values(), strict=True)
    first = next(name for (name, number), before in pairs if number != before)
    with pytest.raises(ValueError) as refused:
        made.on(larger)
    assert str(refused.value) == (
        f"[{made.space.name}] {larger.name} has another {first} than A100-SXM4-80GB; build its space"
    )


def test_what_is_counted_of_one_problem_is_right_for_one_of_other_sizes(made: MachineSpace) -> None:
    """Sizes are values of what was counted: it is made once, and says what it would say if it were made for them."""
    other = build_space(Copy, Copy.problem(m=7, n=1000, lds={"x": 1002}, aligns={"y": 8}), device("a100"))
    for point in other.space.sample(8, np.random.default_rng(0)):
        index = other.structure_index(point)
        assert other.counts(index) is made.counts(index)
        traced = trace(Copy, other.problem, other.structures[index])
        chosen = {a: int(point[a]) for a in traced.axes}
        values = {**other.environment, **chosen}
        anew = count(traced.program, Copy.heuristics)
        assert other.counts(index).counted(values).by_name == anew.counted(values).by_name
        assert str(other.program(point)) == str(filler(traced.program, frozenset(traced.axes)).fill(chosen))
