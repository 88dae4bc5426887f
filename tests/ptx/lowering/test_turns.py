"""Roles that take turns: what one does in its turn is over before the next one's begins, tile after tile."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def machine(warps: tuple[int, ...]) -> type[Machine]:
    """Roles of so many warps that share one buffer: each may use it in its turn only."""

    class InTurn(Machine):
        """y = x.T in tiles, through a buffer that all roles share"""

        m, n = Dim(), Dim()
        x = Input("f32", m, n)
        y = Output("f32", n, m)
        ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

        def program(self, p: Any) -> None:
            stage = p.smem("f32", (16, 16), pad=1)
            with p.grid((self.m, 16), (self.n, 16), persistent=True) as (i, j), p.pipeline("order", 1) as order:
                for number, count in enumerate(warps):
                    rows = blocked((16, 16), threads=32 * count, across=16, name=f"x{number}")
                    columns = blocked((16, 16), threads=32 * count, axis=0, across=16, name=f"y{number}")
                    role = {"first": sum(warps[:number]), "share": (number, len(warps))}
                    with (
                        p.pipeline(f"out_{number}", 1, t=stage) as out,
                        p.role(f"role{number}", warps=count, **role),
                    ):
                        x = p.load(self.ld, self.x.tile(i, j, shape=(16, 16)), rows)
                        with order.turn():
                            with out.produce() as s:
                                p.store(self.put, s.t, x)
                            with out.consume() as s:
                                p.store(self.st, self.y.tile(j, i, shape=(16, 16)).T, p.load(self.get, s.t, columns))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.T

    return InTurn


def kernel_of(warps: tuple[int, ...], m: int) -> tuple[type[Machine], Any, Any]:
    made = machine(warps)
    problem = made.problem(m=m, n=40)
    space = build_space(made, problem, device("h100"))
    (point,) = list(space.space)
    return made, problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.parametrize("warps", [(1, 1), (1, 2), (2, 1, 4)], ids=lambda warps: "-".join(map(str, warps)))
def test_a_buffer_that_roles_use_in_turn_is_used_by_one_at_a_time(warps: tuple[int, ...]) -> None:
    made, problem, kernel = kernel_of(warps, 50)
    found = verify(kernel, made, problem, orders=("late", "random"), random_inputs=False)
    assert found.passed, str(found)


def test_a_turn_is_handed_on_by_as_many_warps_as_the_role_before_has() -> None:
    """Barriers stand in the order of the roles; the first role's opens before anybody was there to hand it on."""
    warps = (2, 1, 4)
    text = kernel_of(warps, 50)[2].ptx
    arrivals = re.findall(r"mbarrier\.init\.shared\.b64 \[[^\]]+\], (\d+);", text)
    assert [int(count) for count in arrivals] == [warps[number - 1] for number in range(len(warps))]
    assert text.count("mbarrier.try_wait") == len(warps)


def test_turns_are_refused_where_nothing_waits_for_them() -> None:
    made = machine((1, 1))
    space = build_space(made, made.problem(m=50, n=40), device("a100"))
    assert not list(space.space)
    sentence = "roles that take turns wait with mbarrier.try_wait, which exists from sm_90 on"
    assert sentence in str(space.space.conflict())
