"""What L1 spares L2: against sets of bytes, against every lane of a CTA listed, and against the emulator's caches."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.demand import Demand
from tinygpu.cost.l1 import MOST_ROWS, distinct, held
from tinygpu.devices import device
from tinygpu.expressions import evaluate, expr, symbol
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.machines.attention_paged import KeysOfPages
from tinygpu.machines.convolution import DepthwiseConvolution
from tinygpu.program.access import accesses
from tinygpu.program.tree import executions
from tinygpu.program.windows import counts_to
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import Caches, emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.coverage import value

A100 = device("a100")
TAPS = 3


class Taps(Machine):
    """y = the sum of some neighbours of x below and beside each element"""

    m, n, a, b = Dim(), Dim(), Dim(), Dim()
    x, w, y = Input("f32", a, b), Input("f32", n), Output("f32", m, n)
    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, arithmetic, compute = isa.LdGlobal(vector), isa.StGlobal(vector), isa.arithmetic("f32"), "f32"
    how = "rounds"

    def program(self, p: Any) -> None:
        shape = (self.rows * self.warps, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            if self.how == "statements":
                for r, s in itertools.product(range(TAPS), range(2)):
                    total += p.load(self.ld, self.x.tile(i + r, j + s * self.vector, shape=shape), who)
            elif self.how == "written out":
                with p.unroll(TAPS) as r:
                    total += p.load(self.ld, self.x.tile(i + r, j, shape=shape), who)
            elif self.how == "copies":
                total += p.load(self.ld, self.w.row(j, shape[1]), who.along(1))
            elif self.how == "apart":
                with p.loop(TAPS) as r:
                    total += p.load(self.ld, self.x.tile(i + r * shape[0], j, shape=shape), who)
            elif self.how == "again":
                with p.loop(TAPS):
                    total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            else:
                with p.loop(TAPS) as r:
                    total += p.load(self.ld, self.x.tile(i + r, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return x


@cache
def taps(how: str) -> type[Taps]:
    name = f"Taps{how.title().replace(' ', '')}"
    return type(name, (Taps,), {"how": how, "__module__": __name__, "__doc__": Taps.__doc__})


WAYS = ("rounds", "written out", "statements", "copies", "apart", "again")


def demand_of(space: MachineSpace, point: Any) -> Demand:
    index = space.structure_index(point)
    chosen = {a: int(point[a]) for a in space.traces[index].axes}
    return space.counts(index).demand({**space.environment, **chosen}, space.device)


def listed(space: MachineSpace, point: Any) -> tuple[int, int]:
    """(sectors that the loads of the first CTA ask for, distinct ones among them), lane by lane."""
    program, asked = space.program(point), 0
    known = {**space.problem.environment(), **{axis.index: 0 for axis in program.grid.axes}}
    found: set[tuple[str, int]] = set()
    for s, at in executions(program.body, known, value, frozenset()):
        for access in accesses(s):
            if access.writes or access.tile.tensor is None:
                continue
            operand = space.problem.operand(access.tile.tensor.name)
            begin = [value(b, at) for b in access.tile.begins]
            for request in access.lanes:
                touched = set()
                for lane in request[request[:, 0] >= 0]:
                    place = list(begin)
                    for home in range(len(begin)):
                        for axis, step in access.tile.along(home):
                            place[home] += int(lane[axis]) * int(step)
                    byte = int(np.dot(place, operand.strides())) * operand.dtype.bits // 8
                    touched |= {(byte + b) // 32 for b in range(0, access.width_bytes, 2)}
                asked += len(touched)
                found |= {(operand.name, sector) for sector in touched}
    return asked, len(found)


def whole_rounds(how: str, sectors: int) -> int:
    """Rounds share what they find evenly."""
    return -(-sectors // TAPS) * TAPS if how in ("rounds", "written out", "again") else sectors


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([32, 64, 128]), st.integers(1, 20), st.lists(st.integers(0, 99), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60)), max_size=3), st.lists(st.integers(0, 40), max_size=2),
)  # fmt: skip
def test_distinct_pieces_are_those_of_a_set_of_bytes(
    piece: int, width: int, starts: list[int], digits: list[tuple[int, int]], moves: list[int]
) -> None:
    """Widths, starts and steps in pairs of bytes."""
    periods = [piece // math.gcd(2 * move, piece) for move in moves]
    totals = []
    for windows in itertools.product(*map(range, periods)):
        moved = sum(count * move for count, move in zip(windows, moves, strict=True))
        rows = [
            start + moved + sum(i * step for i, (_, step) in zip(at, digits, strict=True))
            for start in starts
            for at in itertools.product(*(range(size) for size, _ in digits))
        ]
        totals.append(len({(2 * row + byte) // piece for row in rows for byte in range(2 * width)}))
    bits = [(size, 16 * step) for size, step in digits]
    found = distinct(8 * piece, 16 * width, [16 * s for s in starts], [16 * m for m in moves], bits)
    assert found == sum(totals) / len(totals)


def test_rows_beyond_what_any_l1_holds_are_not_listed() -> None:
    assert distinct(256, 256, [0], [], [(MOST_ROWS, 256), (MOST_ROWS, 256)]) == MOST_ROWS**2
    assert distinct(256, 256, [0], [], [(MOST_ROWS, 256), (2, 8)]) == 2 * MOST_ROWS
    assert distinct(256, 256, [0], [], [(MOST_ROWS // 2, 256), (2, 0)]) == MOST_ROWS // 2


@pytest.mark.parametrize("how", WAYS)
def test_sectors_are_the_distinct_ones_of_a_cta(how: str) -> None:
    space = build_space(taps(how), taps(how).problem(m=64, n=256, a=128, b=512), A100)
    spared = 0
    for point in space.space.sample(6, np.random.default_rng(1)):
        asked, found = listed(space, point)
        assert demand_of(space, point).total.sectors_read == whole_rounds(how, found), point
        spared += asked > found
    assert (spared == 0) == (how == "apart")


@pytest.mark.parametrize("how", WAYS)
def test_sectors_are_those_that_the_emulators_l1_lets_through(how: str) -> None:
    problem = taps(how).problem(m=32, n=256, a=64, b=512, aligns={"x": 256, "w": 256})
    space = build_space(taps(how), problem, A100)
    for point in space.space.sample(3, np.random.default_rng(2)):
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        operands, scalars = make_inputs(taps(how), problem, "random", 0)
        grid = kernel.grid(problem)
        report = emulate(
            kernel.ptx, grid=grid, block=(kernel.threads, 1, 1), args=arguments(kernel, problem, operands, scalars),
            dynamic_smem=kernel.smem_bytes, check=False, caches=Caches(1 << 17, 1 << 22, math.prod(grid)),
        )  # fmt: skip
        assert report.traffic is not None
        through = report.traffic.l2_load_sectors // math.prod(grid)
        assert demand_of(space, point).total.sectors_read == whole_rounds(how, through)


@pytest.mark.parametrize(
    ("stride", "dilation", "down", "along"), [(1, 1, 1, 1), (2, 1, 1, 3), (1, 2, 3, 1), (3, 2, 3, 3)]
)
def test_pixels_that_taps_of_a_filter_share_are_asked_for_once(
    stride: int, dilation: int, down: int, along: int
) -> None:
    options = {"stride": stride, "dilation": dilation}
    problem = DepthwiseConvolution.problem(n=1, h=64, w=64, c=64, r=3, s=3, options=options)
    space = build_space(DepthwiseConvolution, problem, A100)
    point = {"bh": 2, "bw": 8, "bc": 16, "warps": 1, "vector": 4, "across": 4, "down": down, "along": along}
    rows, columns = (len({stride * i + dilation * t for i in range(size) for t in range(3)}) for size in (2, 8))
    assert demand_of(space, point).total.sectors_read == 9 * (-(-(rows * columns * 2) // 9) + 2)
    assert listed(space, point)[1] == (rows * columns + 9) * 2


def test_what_does_not_fit_asks_l2_for_every_load() -> None:
    """Of an A100's 192 KiB shared memory takes 1 KiB for every CTA, in steps: 32 CTAs leave 160 KiB."""
    assert held(5120, 99, 32, 1024, 192 << 10, 164 << 10) == 1
    assert held(5121, 99, 32, 1024, 192 << 10, 164 << 10) == 0
    assert held(5121, 31, 32, 1024, 192 << 10, 164 << 10) == 1  # CTAs that are there
    assert held(7168, 4, 4, 33 << 10, 192 << 10, 164 << 10) == 1  # 132 KiB of shared memory leave 60
    assert held(60 << 8, 4, 4, 33 << 10, 192 << 10, 164 << 10) == 1
    assert held((60 << 8) + 1, 4, 4, 33 << 10, 192 << 10, 164 << 10) == 0
    problem = DepthwiseConvolution.problem(n=128, h=112, w=112, c=128, r=9, s=9)
    space = build_space(DepthwiseConvolution, problem, A100)
    point = {"bh": 8, "bw": 32, "bc": 128, "warps": 8, "vector": 1, "across": 32, "down": 1, "along": 1}
    assert demand_of(space, point).total.sectors_read == 81 * (8 * 32 * 16 + 8 * 16)
    larger = build_space(DepthwiseConvolution, problem, device("h100"))
    pixels, weights = 16 * 40 * 16, 81 * 16
    assert pixels * 32 > 256 << 10
    assert demand_of(larger, point).total.sectors_read == 81 * (8 * 32 * 16 + 8 * 16)
    point |= {"bc": 64, "across": 16}
    assert demand_of(larger, point).total.sectors_read == 81 * (-(-(pixels // 2) // 81) + weights // 2 // 81)


def test_a_machine_may_leave_l1_out() -> None:
    class Without(Taps):
        """Taps"""

        heuristics = ("coalescing", "bank conflicts", "occupancy", "locality")

    space = build_space(Without, Without.problem(m=64, n=256, a=128, b=512), A100)
    (point,) = space.space.sample(1, np.random.default_rng(1))
    assert demand_of(space, point).total.sectors_read == listed(space, point)[0]


FORMS = ("//", "%", "// %", "//, two")


@given(*[st.integers(1, 12)] * 4, st.integers(0, 12), st.integers(1, 4), st.sampled_from(FORMS))
@settings(max_examples=300)
def test_what_rounds_name_in_steps_is_counted(
    rounds: int, more: int, step: int, by: int, begin: int, width: int, form: str
) -> None:
    """A quotient or remainder of rounds in steps has as many values as listing them finds, or is told to have more,
    which quotients that begin at 0 are not.
    """
    i, j = symbol("i"), symbol("j")
    moving = i * step + begin + j * (step * rounds * (form == "//, two"))
    quotient = moving // by
    counter = {"//": quotient, "%": moving % by, "// %": quotient % width, "//, two": quotient}[form]
    told = evaluate(counts_to(counter, {"i": expr(rounds), "j": expr(more)}), {})
    listed = {evaluate(counter, {"i": a, "j": b}) for a in range(rounds) for b in range(more)}
    assert len(listed) <= told <= rounds * more
    if form == "//" and begin == 0:
        assert told == len(listed)


@pytest.mark.end_to_end
def test_pages_that_rounds_name_in_steps_are_counted() -> None:
    """The page of a tile is a quotient of parts and rounds in steps: (chunk * c + bn * i) // page."""
    i, c, bn, page = (symbol(name) for name in ("i", "c", "bn", "page"))
    for counter in ((c * 512 + i * bn) // page, (c * 512 + i * bn) // page % 64):
        told = counts_to(counter, {"i": expr(7)})
        assert evaluate(told, {"bn": 256, "page": 256}) == 7
        assert evaluate(told, {"bn": 64, "page": 256}) == 3  # parts may begin between pages
    problem = KeysOfPages.problem(b=2, h=2, r=8, d=128, pages=64, most=8, page=256, c=1)
    space = build_space(KeysOfPages, problem, device("a100"))
    assert space.counts(0).names
