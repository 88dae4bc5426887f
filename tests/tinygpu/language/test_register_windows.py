"""Windows of values in registers: who holds what of them, beside the whole value listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import expr, symbol
from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, Partition, blocked
from tinygpu.language.register_windows import is_multiple, window_values, windowed
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def drawn(rng: np.random.Generator) -> Partition:
    """A partition of a tile with two axes, which it covers once: digits in any order, of threads and of values."""
    shape, digits = [1, 1], []
    for _ in range(int(rng.integers(1, 7))):
        axis, size = int(rng.integers(2)), int(rng.choice([2, 2, 2, 3, 4]))
        digits.append((axis, size, shape[axis]))
        shape[axis] *= size
    modes: tuple[list[Any], list[Any]] = ([(2, 0)] if rng.integers(4) == 0 else [], [])
    for place in rng.permutation(len(digits)):
        axis, size, step = digits[place]
        modes[int(rng.integers(3)) > 0].append((size, step * E(axis)))
    return Partition((expr(shape[0]), expr(shape[1])), Layout.of(*(mode or [(1, 0)] for mode in modes)))


@pytest.mark.parametrize("seed", range(60))
def test_a_window_is_held_as_the_whole_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    met = 0
    for _ in range(40):
        held = drawn(rng)
        shape = [int(extent) for extent in held.shape]
        window = [int(rng.choice([w for w in range(1, extent + 1) if extent % w == 0])) for extent in shape]
        bits = int(rng.choice([16, 32]))
        found = windowed(held, tuple(map(expr, window)), "v", bits)
        corners = [(i, j) for i in range(0, shape[0], window[0]) for j in range(0, shape[1], window[1])]
        # in which window each value of each thread lies: the same of all threads, and as many in each window
        places = held.coordinates() // np.array(window) @ np.array([shape[1] // window[1], 1])
        counts = np.bincount(places[0], minlength=len(corners))
        alike = bool((places == places[0]).all() and (counts == counts[0]).all())
        if window == shape or not bool(found.conditions[-1].condition.same(True)):
            # what is refused is no window, or cuts registers of two elements, or is held otherwise than by digits
            assert not alike or window == shape or bits < 32 or not _by_digits(held, window), (held, window)
            continue
        met += 1
        assert alike, (held, window)
        for number, corner in enumerate(corners):
            values = window_values(held, found, corner)
            assert sorted(values) == np.flatnonzero(places[0] == number).tolist(), (held, window, corner)
            mine = found.coordinates() + np.array(corner)
            assert (held.coordinates()[:, values] == mine).all()
            if bits == 16:
                assert held.values.size % 2 or all(
                    a % 2 == 0 and b == a + 1 for a, b in zip(values[::2], values[1::2], strict=True)
                )
    assert met


def _by_digits(held: Partition, window: list[int]) -> bool:
    """Whether a window ends where a digit of its axis does, or divides one of the values."""
    for axis, extent in enumerate(window):
        ends = {1}
        for mode, digits in enumerate(held.layout):
            for size, step in digits.steps:
                along = step.along(axis) if step else 0
                if along:
                    ends |= {int(along) * n for n in range(1, int(size) + 1) if mode == 1 and int(size) % n == 0}
                    ends.add(int(along) * int(size))
        if extent not in ends:
            return False
    return True


def test_multiples_are_seen_by_their_form() -> None:
    u, w, v = symbol("u"), symbol("w"), symbol("v")
    assert is_multiple(expr(0), w)
    assert is_multiple(u * w, w)
    assert is_multiple(u * 16 + 32, expr(16))
    assert is_multiple(u * 2 * w + v * w, w)
    assert not is_multiple(u * 16 + 8, expr(16))
    assert not is_multiple(u * v, w)


class Parts(Machine):
    """y = x, and z its first half along n: registers are stored part by part"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16", "s8"), m, n)
    y = Output({"f32": ("f32",), "f16": ("f16",), "s8": ("s8",)}, m, n, follows=x)
    rows, vector, part, warps = Param(1, 2, 3), Param(1, 2, 4), Param(1, 2, 4, 8, 16, 32, 64), Param(1, 2)
    axis = Choice("rows", "columns")
    ld, st = isa.LdGlobal(vector), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape = (4 * self.rows * self.warps, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=8)
        with p.grid((self.m, shape[0]), (self.n, 64)) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            if self.axis == "columns":
                with p.unroll(64, step=self.part) as c:
                    window = x.window((0, c), (shape[0], self.part))
                    p.store(self.st, self.y.tile(i, j + c, shape=(shape[0], self.part)), window)
            else:
                with p.unroll(shape[0], step=4 * self.warps) as r:
                    window = x.window((r, 0), (4 * self.warps, 64))
                    p.store(self.st, self.y.tile(i + r, j, shape=(4 * self.warps, 64)), window)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.parametrize("kind", ["f32", "f16", "s8"])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_parts_of_registers_are_stored_where_they_belong(axis: str, kind: str) -> None:
    problem = Parts.problem(m=13, n=96, dtypes={"x": kind})
    space = build_space(Parts, problem, device("a100"))
    points = space.space.restrict({"axis": axis}).sample(2, np.random.default_rng(7))
    for point in points:
        program = space.program(point)
        assert str(load_program(save_program(program))) == str(program)
        kernel = build(program, problem, point, SolverCache()).kernel
        found = verify(kernel, Parts, problem, orders=("random",), random_inputs=False)
        assert found.passed, found
        x = np.arange(13 * 96).reshape(13, 96) % 100
        assert (program.run({"x": x.astype(np.float32)})["y"] == x).all() if kind == "f32" else True


def test_parts_that_threads_share_are_out() -> None:
    space = build_space(Parts, Parts.problem(m=13, n=96), device("a100"))
    said = space.space.explain({"axis": "columns", "rows": 1, "vector": 4, "part": 16, "warps": 1})
    assert str(said[0]) == (
        "windows of %v1 (partition): every thread has the same part of each window of %v1; "
        "min(max(16 // 4, 1), 8) = 4 != 8"
    )


class Renamed:
    """An array with what a tile has to rename its axes, so that one chain of names does for both."""

    def __init__(self, values: Any) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def window(self, begin: tuple[int, ...], shape: tuple[int, ...]) -> Renamed:
        return Renamed(self.values[tuple(slice(b, b + e) for b, e in zip(begin, shape, strict=True))])

    def squeeze(self, axis: int) -> Renamed:
        return Renamed(self.values.squeeze(axis))

    def unsqueeze(self, axis: int) -> Renamed:
        return Renamed(np.expand_dims(self.values, axis))

    def permute(self, *order: int) -> Renamed:
        return Renamed(self.values.transpose(order))

    def merge(self, *axes: int) -> Renamed:
        shape = self.shape
        return Renamed(self.values.reshape(*shape[: axes[0]], -1, *shape[axes[-1] + 1 :]))

    def split(self, axis: int, shape: tuple[int, ...]) -> Renamed:
        return Renamed(self.values.reshape(*self.shape[:axis], *shape, *self.shape[axis + 1 :]))


def part_of(seed: int, x: Any) -> Any:
    """A window of (4, 8, 4) elements along one axis, and then other names for its axes, four at most."""
    rng = np.random.default_rng(seed)
    shape, axis = [4, 8, 4], int(rng.choice([0, 2]))
    shape[axis] = int(rng.choice([1, 1, 2]))
    number = int(rng.integers(4 // shape[axis]))
    x = x.window(tuple(number * shape[axis] if a == axis else 0 for a in range(3)), tuple(shape))
    for _ in range(4):
        extents = [int(e) for e in x.shape]
        ways = ["permute"]
        ways += ["squeeze"] * (1 in extents and len(extents) > 1) * 2
        ways += ["merge", "merge"] * (len(extents) > 1) + ["split", "unsqueeze"] * (len(extents) < 4)
        way = rng.choice(ways)
        if way == "permute":
            x = x.permute(*rng.permutation(len(extents)).tolist())
        elif way == "squeeze":
            x = x.squeeze(extents.index(1))
        elif way == "unsqueeze":
            x = x.unsqueeze(int(rng.integers(len(extents) + 1)))
        elif way == "merge":
            first = int(rng.integers(len(extents) - 1))
            x = x.merge(first, first + 1)
        elif any(e > 1 for e in extents):
            at = int(rng.choice([a for a, e in enumerate(extents) if e > 1]))
            x = x.split(at, (2, extents[at] // 2))
    return x


def renaming(seed: int) -> type[Machine]:
    wanted = part_of(seed, Renamed(np.zeros((4, 8, 4)))).shape

    class Renaming(Machine):
        """y = a part of x under other names of its axes"""

        m = Dim()
        x, y = Input("f32", m, 4, 8, 4), Output("f32", m, *wanted)
        axis, vector = Choice(0, 2), Choice(1, 4)
        ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

        def program(self, p: Any) -> None:
            who = blocked((4, 8, 4), threads=32, axis=self.axis, vector=self.vector)
            with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
                x = part_of(seed, p.load(self.ld, self.x.at(i).tile(0, 0, 0, shape=(4, 8, 4)), who))
                p.store(self.st, self.y.at(i).tile(*(0,) * len(wanted), shape=wanted), p.apply(self.add, x, x))

        @staticmethod
        def reference(x: Any) -> Any:
            return np.stack([2 * part_of(seed, Renamed(one)).values for one in x])

    return Renaming


@pytest.mark.parametrize("seed", range(40))
def test_a_part_keeps_its_elements_whatever_its_axes_are(seed: int) -> None:
    machine = renaming(seed)
    problem = machine.problem(m=2)
    space = build_space(machine, problem, device("a100"))
    assert space.size, "some way of holding the tile has the part in every thread"
    for point in space.sample(2, seed):
        program = space.program(point)
        assert str(load_program(save_program(program))) == str(program)
        kernel = build(program, problem, point, SolverCache()).kernel
        found = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
        assert found.passed, found
        x = np.arange(2 * 128, dtype=np.float32).reshape(2, 4, 8, 4)
        assert np.array_equal(program.run({"x": x})["y"], machine.reference(x))
