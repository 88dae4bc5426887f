"""How often a branch is taken: by the middle of each part of the rounds, beside all rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import compile_arrays
from tinygpu.language import (
    DeclarationError,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    blocked,
    exp2,
    integers,
    one_of,
)  # fmt: skip
from tinygpu.program import nodes as n
from tinygpu.program.program import BRANCH_PARTS
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.spaces.build import build_space


class Branches(Machine):
    """y = the sum of each row of x, of whose tiles those up to a place, or from it on, go through exponentials"""

    m, n, k = Dim(), Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    warps = Param(1, 2)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, plus = isa.arithmetic("f32", approximate=True), isa.Add("f32")
    exact = False
    first, asked_of = True, "loop"

    def program(self, p: Any) -> None:
        shape = (self.warps, 32)
        who = blocked(shape, threads=32 * self.warps, vector=1, across=32)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                place = {"loop": j, "tile": i, "both": i + j}[self.asked_of]
                with p.when(place < self.k if self.first else place >= self.k):
                    p.apply(self.plus, exp2(x), 0.0, into=x)
                total += x
            p.store(self.st, self.y.column(i, shape[0]), p.reduce(self.plus, total, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any, k: int) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("seed", range(24))
def test_the_share_of_rounds_is_near_that_of_all_rounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked_of, first = ("loop", "tile", "both")[seed % 3], bool(seed % 2)
    machine = type(f"Branches{seed}", (Branches,), {"first": first, "asked_of": asked_of, "__doc__": Branches.__doc__})
    m, size, warps = int(rng.integers(1, 400)), int(rng.integers(1, 4000)), int(rng.integers(1, 3))
    k = int(rng.integers(0, {"loop": size, "tile": m, "both": m + size}[asked_of] + 40))
    values = {"m": m, "n": size, "k": k, "warps": warps}
    space = build_space(machine, machine.problem(m=m, n=size, k=k), device("a100"))
    program = space.counts(0).program
    branch = next(s for s in walk(program.body) if isinstance(s, n.When))
    (taken,) = compile_arrays(program.taken_of(branch))(values)
    tiles, rounds = -(-m // warps), -(-size // 32)
    i = np.arange(tiles) * warps if asked_of == "tile" else np.array([(tiles - 1) // 2 * warps])
    place = {"loop": 0 * i, "tile": i, "both": i}[asked_of][:, None]
    place = place + (0 if asked_of == "tile" else 32 * np.arange(rounds))
    exact = np.mean(place < k if first else place >= k)
    assert abs(int(taken) / BRANCH_PARTS - exact) <= 1 / BRANCH_PARTS + 1 / max(place.size, 1)


def test_a_branch_that_is_never_taken_costs_nothing_and_one_that_always_is_all() -> None:
    def exponentials(k: int) -> int:
        space = build_space(Branches, Branches.problem(m=64, n=4096, k=k), device("a100"))
        return int(space.counts(0).value("iteration.sfu_ops", {**space.environment, "warps": 1}))

    assert (exponentials(1), exponentials(2048), exponentials(4096)) == (0, 16, 32)


class Voted(Machine):
    """y = exp2(x) of rows in which a number is large, and else x: how often that is, the program says"""

    m = Dim()
    x, y = Input("f32", m, 32), Output("f32", m, 32)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, places, most = isa.arithmetic("f32"), isa.arithmetic("s32"), isa.Max("s32")
    exact = False
    values: Any = one_of(0, 1, weights=(7, 1))
    least = 0

    def program(self, p: Any) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(1, 32)), who)
            flags = p.where(x > 3.0, p.full(who, "s32", 1), 0)
            found = p.number(p.reduce(self.most, flags, axis=1, by=self.shuffle), self.values)
            with p.when(found > self.least), p.unroll(2):
                p.apply(self.plus, exp2(x), 0.0, into=x)
            p.store(self.st, self.y.tile(i, 0, shape=(1, 32)), x)

    plus = isa.Add("f32")

    @staticmethod
    def reference(x: Any) -> Any:
        once = np.exp2(x.astype("f8"))
        return np.where((x > 3).any(axis=1, keepdims=True), np.exp2(once), x)


@pytest.mark.parametrize(
    ("values", "least", "taken"),
    [
        (one_of(0, 1, weights=(7, 1)), 0, 1), (one_of(0, 1), 0, 4), (one_of(0, 2, 5, weights=(1, 2, 3)), 1, 7),
        (one_of(0, 1, weights=(999, 1)), 0, 1), (integers(0, 2), 0, 8),
    ],
)  # fmt: skip
def test_a_branch_upon_a_number_is_taken_as_often_as_is_said(values: Any, least: int, taken: int) -> None:
    """In eighths, rounded up; of numbers of which no more is said than their ends, always."""
    made = type("Said", (Voted,), {"values": values, "least": least, "__module__": __name__})
    space = build_space(made, made.problem(m=4), device("a100"))
    program = space.program(space.space.sample(1, np.random.default_rng(0))[0])
    (branch,) = (s for s in walk(program.body) if isinstance(s, n.When))
    assert int(program.taken_of(branch)) == taken
    x = np.array([[2.0] * 32, [1.0] * 31 + [4.0]], np.float32)
    found = program.run({"x": np.concatenate([x, x])})["y"][:2]
    if not least:
        assert np.allclose(found, Voted.reference(x))


def test_a_number_that_is_none_of_those_listed_is_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        type("Wrong", (Voted,), {"values": one_of(-1, 1), "__module__": __name__})
    said = "Wrong.program: p.number makes whole numbers from 0 on, and v5 may be one_of(-1, 1)"
    assert str(refused.value).splitlines()[0] == said
