"""Grids, roles, loops and branches that are declared wrongly: told when the class is made, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from negation import UNKNOWN, Program, around, refused, thing

from tinygpu.language import GMEM, TMEM, blocked
from tinygpu.language.verb import NUMBER
from tinygpu.ptx import isa


def branch(self: Any, p: Any) -> None:
    if self.warps == 2:
        p.grid((self.n, 32))


def branch_more(self: Any, p: Any) -> None:
    if self.warps > 2 and self.n > 3:
        p.grid((self.n, 32))


def count_param(self: Any, p: Any) -> None:
    for _ in range(self.warps):
        p.grid((self.n, 32))


def count_dim(self: Any, p: Any) -> None:
    for _ in range(self.n):
        p.grid((self.n, 32))


def two_grids(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        pass
    with p.grid((self.n, 32)):
        pass


def outside(self: Any, p: Any) -> None:
    with p.role("all", warps=1):
        pass


def inside(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("a", warps=1), p.role("b", warps=1):
        pass


def no_role(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        pass


def bare(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)) as (i,):
        p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))


def unroll_dim(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.unroll(self.n):
        pass


def loop_by_nothing(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.loop(self.n, step=0):
        pass


def loop_by_half(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.loop(self.n, step=0.5):
        pass


def role_twice(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        with p.role("a", warps=1):
            pass
        with p.role("a", warps=2):
            pass


def grid_of_nothing(self: Any, p: Any) -> None:
    with p.grid():
        pass


def cluster_of_three_axes(self: Any, p: Any) -> None:
    with p.grid((self.n, 32), cluster=(1, 1, 1)):
        pass


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            branch,
            "the condition warps == 2 has no value while a machine is declared: "
            "branch on a structural parameter, or write where(condition, a, b)",
        ),
        (
            branch_more,
            "the condition warps > 2 has no value while a machine is declared: "
            "branch on a structural parameter, or write where(condition, a, b)",
        ),
        (count_param, "warps has no value while a machine is declared; loops over it are written with loop(...)"),
        (count_dim, "n has no value while a machine is declared; loops over it are written with loop(...)"),
        (lambda self, p: None, "the program opens no grid; begin with `with p.grid(...)`"),
        (two_grids, "a program has one grid, and this opens a second; bring all roles into the first"),
        (grid_of_nothing, "a grid has at least one axis: (dim, extent of a tile)"),
        (cluster_of_three_axes, "the cluster has 3 extents, and the grid has 1 axes"),
        (outside, "role 'all' stands outside the grid; open `with p.grid(...)` first"),
        (inside, "role 'b' stands inside role 'a'; roles stand side by side"),
        (role_twice, "role 'a' is declared twice with different warps"),
        (no_role, "no warps do anything; open `with p.role(...)` inside the grid"),
        (bare, "x is touched outside a role; say which warps do it with `with p.role(...)`"),
        (unroll_dim, "unroll over n, which is known at launch only; write p.loop"),
        (loop_by_nothing, "a loop goes on by 1 element or more each round, not by 0"),
        (loop_by_half, f"p.loop: step must be {NUMBER}, not 0.5"),
        (lambda self, p: p.smem("f33", (1,)), UNKNOWN),
        (lambda self, p: p.buffer(GMEM, "f32", (32,)), "a buffer lies in SMEM or TMEM, not in GMEM"),
        (lambda self, p: p.buffer(TMEM, "f32", (256, 32)), "a buffer in TMEM has at most 128 lanes, not 256"),
        (
            lambda self, p: p.buffer(TMEM, "f32", (64, 32), path="F"),
            "the path of a buffer in TMEM is a layout (row, column) -> (lane, column), as path(columns) of an "
            "instruction gives it, not 'F'",
        ),
        (lambda self, p: p.buffer(TMEM, "f32", (32,)), "a buffer in TMEM has two axes, lanes and columns, not 1"),
    ],
)
def test_wrong_control_is_explained(program: Program, sentence: str) -> None:
    refused(lambda: thing(program), f"Thing.program: {sentence}")



def test_what_can_never_work_is_refused() -> None:
    def odd_steps(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            who = blocked((32,), threads=32)
            with p.unroll(8, step=3):
                p.store(self.st, self.y.tile(i, shape=(32,)), p.load(self.ld, self.x.tile(i, shape=(32,)), who))

    sentence = "it can never work, whatever the parameters: 8 is a whole number of steps of 3"
    refused(lambda: thing(odd_steps), f"Thing.program: {sentence}")


def test_what_a_loop_makes_is_not_there_behind_it() -> None:
    def bound_anew(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        total = p.full(who, "f32")
        with p.loop(3):
            total = p.apply(self.add, total, p.load(self.ld, x, who))
        p.store(self.st, y, total)

    def written_into(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        total = p.full(who, "f32")
        with p.loop(3), p.loop(2):
            p.apply(self.add, total, p.load(self.ld, x, who), into=total)
        p.store(self.st, y, total)

    begin = "begin it with p.full before the loop, and write into it there, as `x += y` does"
    why = f"is made in every round of a loop, and used behind the loop; {begin}, or into= of p.apply, p.cast"
    why += " and p.where"
    refused(lambda: thing(around(bound_anew), add=isa.Add("f32")), f"Thing.program: %v4 {why}")
    thing(around(written_into), add=isa.Add("f32"))


def test_a_move_is_declared_like_other_instructions() -> None:
    def kept(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        last = p.full(who, "f32")
        with p.loop(3):
            p.cast(p.apply(self.neg, p.load(self.ld, x, who)), "f32", into=last)
        p.store(self.st, y, last)

    declare = 'declare one, as isa.Mov("f32"), or all usual ones, as isa.arithmetic("f32")'
    sentence = f"%v4 is f32 already, and the machine declares no move of it into another tile; {declare}"
    refused(lambda: thing(around(kept)), f"Thing.program: {sentence}")
    for declared in (isa.Mov("f32"), isa.arithmetic("f32")):
        thing(around(kept), move=declared)
