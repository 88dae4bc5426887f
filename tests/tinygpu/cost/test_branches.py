"""How often a branch is taken: by the middle of each part of the rounds, beside all rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import compile_arrays
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, exp2
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
