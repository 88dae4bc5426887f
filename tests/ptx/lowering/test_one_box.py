"""TMA moves rows that are wider than a swizzle in one box where their pieces follow one another in the tensor."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Wide(Machine):
    """y = x from column `begin` on: rows of `widths` times a swizzle, of a batch, by TMA in and out"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input(("f16", "f32"), b, m, n)
    y = Output({"f16": ("f16",), "f32": ("f32",)}, b, m, n, follows=x)
    swizzle, widths, begin = Param(32, 64, 128), Param(1, 2, 3, 4), Param(0, 8, 64)
    tma, put, get, set = isa.TmaLoad(), isa.TmaStore(), isa.LdShared(4), isa.StShared(4)

    def program(self, p: Any) -> None:
        shape = (8, self.swizzle * self.widths * 8 // self.x.dtype.bits)
        who = blocked(shape, threads=32, vector=4)
        came, goes = (p.smem(self.x.dtype, shape, swizzle=self.swizzle) for _ in range(2))
        with (
            p.grid((self.b, 1), (self.m, 8), (self.n, shape[1])) as (b, i, j), p.pipeline("ring", 2, t=came) as ring,
            p.pipeline("out", 1, t=goes) as out,
        ):  # fmt: skip
            with p.role("bring", warps=1), ring.produce() as slot:
                p.copy(self.tma, self.x.at(b).tile(i, j + self.begin, shape=shape), slot.t)
            with p.role("keep", warps=1, first=1), ring.consume() as slot:
                with out.produce() as other:
                    p.store(self.set, other.t, p.load(self.get, slot.t, who))
                with out.consume() as other:
                    p.copy(self.put, other.t, self.y.at(b).tile(i, j, shape=shape))

    @staticmethod
    def reference(x: Any, begin: int = 0) -> Any:
        return x


def made(n: int, kind: str = "f32", **point: int) -> tuple[Any, Kernel]:
    problem = Wide.problem(b=2, m=20, n=n, dtypes={"x": kind, "y": kind})
    point = {"begin": 0, **point}
    space = build_space(Wide, problem, device("h100"))
    assert point in space.space
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


def boxes(kernel: Kernel) -> list[str]:
    return re.findall(r"cp\.async\.bulk\.tensor\.(\d)d", kernel.ptx)


@pytest.mark.parametrize(
    ("n", "kind", "swizzle", "widths", "expected"),
    [
        (192, "f32", 128, 2, ["4", "4"]),  # rows are six pieces of 32
        (96, "f32", 128, 2, ["4", "4"]),  # the last tile has one of its two
        (224, "f16", 64, 4, ["4", "4"]),
        (128, "f32", 32, 4, ["4", "4"]),
        (128, "f32", 128, 1, ["3", "3"]),  # as wide as the swizzle
        (200, "f32", 128, 2, ["3"] * 4),  # the last piece of a row would go on into the next row
        (48, "f16", 64, 2, ["3"] * 4),
    ],
)
def test_pieces_that_follow_one_another_are_one_box(
    n: int, kind: str, swizzle: int, widths: int, expected: list[str]
) -> None:
    problem, kernel = made(n, kind, swizzle=swizzle, widths=widths)
    assert boxes(kernel) == expected
    piece = swizzle * 8 // int(kind[1:])
    assert ((f"n % {piece} == 0") in [str(fact) for fact in kernel.facts]) == (expected[0] == "4")
    assert verify(kernel, Wide, problem, orders=("late",)).passed


def test_a_window_that_begins_within_a_piece_is_several_boxes() -> None:
    _, kernel = made(256, swizzle=128, widths=2, begin=8)
    assert boxes(kernel) == ["3", "3", "4"]
    _, kernel = made(256, swizzle=128, widths=2, begin=64)
    assert boxes(kernel) == ["4", "4"]


def test_the_map_has_the_pieces_as_its_last_dimension() -> None:
    problem, kernel = made(224, "f16", swizzle=64, widths=4)
    for found in launch_of(kernel, problem).maps:
        assert found.dims == (32, 20, 2, 7)
        assert found.strides_bytes == (224 * 2, 20 * 224 * 2, 64)
        assert found.box == (32, 8, 1, 4)


def test_a_map_with_other_pieces_moves_wrong_elements() -> None:
    """The emulator finds it: what the maps say is what is moved."""
    problem, kernel = made(192, swizzle=128, widths=2)
    wrong = replace(kernel, maps=tuple(replace(m, piece=m.piece // 2) for m in kernel.maps))
    assert not verify(wrong, Wide, problem, orders=("late",)).passed
