"""Clusters that take each other over: what the words of a grid admit, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.schedulers.launch_control import ANSWERS, LaunchControl, TakenOver
from tinygpu.schedulers.run_time import Numbers
from tinygpu.schedulers.sliced import StaticPersistent
from tinygpu.schedulers.stream_k import StreamK
from tinygpu.spaces.build import build_space


def machine(share: tuple[int, int] = (0, 1), **grid: Any) -> type[Machine]:
    class Doubled(Machine):
        """y = 2 x"""

        m = Dim()
        x, y = Input("f32", m), Output("f32", m)
        control, stream = Param(0, 1), Param(0, 1)
        ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

        def program(self, p: Any) -> None:
            asked = {"persistent": True, "launch_control": self.control} | grid
            with p.grid((self.m, 32), **asked) as (i,), p.role("all", warps=1, share=share):
                x = p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))
                p.store(self.st, self.y.tile(i, shape=(32,)), p.apply(self.add, x, x))

        @staticmethod
        def reference(x: Any) -> Any:
            return np.asarray(x) * 2

    return Doubled


@pytest.mark.parametrize(
    ("share", "grid", "sentence"),
    [
        (
            (0, 1), {"persistent": False},
            "launch control is for CTAs that take tile after tile; open the grid with persistent=True",
        ),
        (
            (0, 2), {},
            "role 'all' takes tiles 0 of every 2, and of clusters that take each other over nobody knows how many "
            "tiles are left; give every role all tiles, or leave out launch_control",
        ),
        (
            (0, 1), {"persistent": False, "launch_control": 1, "scheduler": TakenOver()},
            "p.grid takes a scheduler, here TakenOver, or persistent, slices, stream_k and launch_control; leave out "
            "the one or the others",
        ),
    ],
)  # fmt: skip
def test_what_a_grid_cannot_be_is_refused(share: tuple[int, int], grid: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeclarationError, match=f"^Doubled.program: {re.escape(sentence)}$"):
        machine(share, **grid)


def test_both_ways_are_in_the_space_where_the_device_has_both() -> None:
    made = machine()
    for on, values in (("b200", {0, 1}), ("rtx5090", {0, 1}), ("h100", {0})):
        space = build_space(made, made.problem(m=100), device(on)).space
        assert {p["control"] for p in space} == values


def test_rounds_in_a_row_are_not_taken_over() -> None:
    both = LaunchControl(expr(1), StreamK(expr(1), StaticPersistent()), expr(1))
    with pytest.raises(ValueError, match="launch_control") as refused:
        both.settled()
    assert str(refused.value) == (
        "clusters take over whole tiles, or share them by rounds in a row, not both: launch_control is 1, and stream_k "
        "is 1"
    )
    with pytest.raises(NotImplementedError, match="launch_control is a number: settle"):
        both.walk(Numbers(0, 1, (1,)), (0, 1))
    assert [constraint.name for constraint in both.conditions()] == [
        "launch_control", "launch control target", "launch control or stream-K", "stream_k", "stream-K or split-K",
    ]


def test_settled_it_is_one_way_or_the_other() -> None:
    off, on = (LaunchControl(expr(v), StaticPersistent(expr(2)), expr(1)) for v in (0, 1))
    assert isinstance(off.settled(), StaticPersistent)
    assert (type(on.settled()), int(on.settled().answers), int(off.answers)) == (TakenOver, ANSWERS, 0)
    assert (off.launch_rule.clusters(10, 1, 4), on.launch_rule.clusters(10, 1, 4)) == (4, 20)
    assert on.settled().title == " launch control; 2 slices of each tile"
    assert TakenOver().title == " launch control"
