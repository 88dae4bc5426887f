"""The buffers of whole programs: every access of every round, listed lane by lane under the layout that was solved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language import Choice, Dim, Input, Layout, Machine, Output, Param, UnknownLayout, blocked
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.program.access import accesses
from tinygpu.program.placement import place
from tinygpu.program.program import Program
from tinygpu.program.windows import offsets, unrolled_statements
from tinygpu.ptx import isa
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.refine import refined
from tinygpu.solver.buffers import SolvedLayouts, buffer_accesses, rows_and_bytes, solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.enumeration import count_wavefronts


class Turned(Machine):
    """y = x.T, read in windows; beside it a buffer whose layout nobody left open"""

    m, n = Dim(), Dim()
    x = Input(("f32", "s8"), m, n)
    y = Output({"f32": ("f32",), "s8": ("s8",)}, n, m, follows=x)
    pad, contiguous = Param(0, 1, 2, 4), Choice("rows", "columns")
    layout = UnknownLayout()
    ld, put, get, st = isa.LdGlobal(1), isa.StShared(1), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        axis = 1 if self.contiguous == "rows" else 0
        rows = blocked((32, 32), threads=64, across=32)
        columns = blocked((8, 32), threads=64, axis=0, across=8)
        down = blocked((32, 32), threads=64, axis=0, across=32)
        square = p.smem(self.x.dtype, (32, 32), layout=self.layout, contiguous=axis, pad=self.pad)
        plain = p.smem(self.x.dtype, (32, 32))
        with (
            p.grid((self.m, 32), (self.n, 32)) as (i, j),
            p.pipeline("turn", 1, t=square, plain=plain) as ring,
            p.role("all", warps=2),
        ):
            with ring.produce() as s:
                x = p.load(self.ld, self.x.tile(i, j, shape=(32, 32)), rows)
                p.store(self.put, s.t, x)
                p.store(self.put, s.plain, x)
            with ring.consume() as s:
                p.store(self.st, self.y.tile(j, i, shape=(32, 32)).T, p.load(self.get, s.plain, down))
                with p.unroll(4) as r:
                    got = p.load(self.get, s.t.window((r * 8, 0), (8, 32)), columns)
                    p.store(self.st, self.y.tile(j, i + r * 8, shape=(32, 8)).T, got)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T


def listed(program: Program, layouts: SolvedLayouts) -> tuple[Counter[str], Counter[str], dict[str, set[str]]]:
    """Per buffer: wavefronts of all accesses, the same without conflicts, and who touches it."""
    places = place(program, layouts.swizzles).places
    found: Counter[str] = Counter()
    ideal: Counter[str] = Counter()
    who: dict[str, set[str]] = {}
    for placed in unrolled_statements(program.body):
        for access in accesses(placed.statement):
            buffer = access.tile.buffer
            if buffer is None:
                continue
            moved = access.lanes + np.array(offsets(access.tile, placed.indices))
            address = places[buffer.name].addresses(np.where(access.lanes[..., :1] < 0, 0, moved))
            counted = count_wavefronts(address, access.lanes[..., 0] < 0, access.width_bytes)
            found[buffer.name] += counted[0]
            ideal[buffer.name] += counted[1]
            who.setdefault(buffer.name, set()).add(f"{'write' if access.writes else 'read'} by {access.name}")
    return found, ideal, who


def check(program: Program) -> None:
    layouts = solve_buffers(program, SolverCache())
    found, ideal, who = listed(program, layouts)
    left_open = {b.name for p in program.pipelines for b in p.buffers if b.layout and b.name in found}
    assert set(layouts.solutions) == left_open
    for name, solution in layouts.solutions.items():
        assert (solution.wavefronts, solution.ideal) == (found[name], ideal[name])
        assert layouts.conflicts[name] == found[name] - ideal[name]
        assert layouts.swizzles[name] == solution.layout.xor
        (buffer,) = [b for p in program.pipelines for b in p.buffers if b.name == name]
        assert (solution.layout.rows, solution.layout.pitch_bytes) == (int(buffer.rows), int(buffer.pitch_bytes))
    assert set(layouts.given) == set(found) - left_open
    assert layouts.conflicts == {name: found[name] - ideal[name] for name in found}
    accesses = buffer_accesses(program)
    assert {name: {a.name for a in of} for name, of in accesses.items()} == who


@pytest.mark.parametrize("kind", ["f32", "s8"])
@pytest.mark.parametrize("contiguous", ["rows", "columns"])
def test_what_is_solved_is_what_listing_every_lane_counts(kind: str, contiguous: str) -> None:
    problem = Turned.problem(m=64, n=64, dtypes={"x": kind})
    space = build_space(Turned, problem, device("a100"))
    for pad in (1, 4):
        point = {"pad": pad, "contiguous": contiguous}
        if point in space.space:
            check(space.program(point))


def test_rows_that_are_read_down_a_column_conflict_where_the_machine_laid_them_so() -> None:
    space = build_space(Turned, Turned.problem(m=64, n=64), device("a100"))
    point: dict[str, int | str] = {"pad": 1, "contiguous": "rows"}
    found = solve_buffers(space.program(point), SolverCache())
    assert found.conflicts["turn.plain"] == 32 * 31
    assert refined(PredictedTime(space), point, SolverCache()).extra == sum(found.conflicts.values())


def test_the_buffers_of_a_matmul_are_counted_with_all_their_accesses() -> None:
    space = build_space(MatmulAmpere, MatmulAmpere.problem(m=256, n=256, k=64), device("a100"))
    for point in space.space.restrict({"bm": 64, "bn": 64, "stages": 2}).sample(3, np.random.default_rng(2)):
        check(space.program(point))


@pytest.mark.parametrize("contiguous", ["rows", "columns"])
def test_lanes_that_stay_out_stay_out_wherever_the_window_lies(contiguous: str) -> None:
    space = build_space(Turned, Turned.problem(m=64, n=64), device("a100"))
    program = space.program({"pad": 1, "contiguous": contiguous})
    every = [access for placed in unrolled_statements(program.body) for access in accesses(placed.statement)]
    (access, *_) = [access for access in every if access.tile.buffer and access.tile.buffer.layout]
    assert access.tile.buffer is not None
    buffer = replace(access.tile.buffer, shape=(expr(48), expr(48)))
    whole = rows_and_bytes(access, buffer, (3, 5))
    moved = access.lanes + np.array([3, 5])
    assert np.array_equal(whole, (moved if contiguous == "rows" else moved[..., ::-1]) * [1, 4])
    # Every thread beside another that holds the same, and only the first of them takes part.
    starts = access.starts
    twice = Layout.of([(2, 0), *starts.threads.steps], starts.values.steps)
    some = rows_and_bytes(replace(access, starts=replace(starts, layout=twice), once=True), buffer, (3, 5))
    assert (some[:, 1::2] == -1).all()
    count = int(starts.value_count)

    def by_thread(lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        return lanes.reshape(-1, count, 32, 2).transpose(0, 2, 1, 3).reshape(-1, count, 2)

    assert np.array_equal(by_thread(some)[::2], by_thread(whole))


def test_rows_that_are_not_whole_words_are_left_as_they_are() -> None:
    """A pitch of 33 B: the solver would lengthen rows to whole words, and the pitch is given."""
    space = build_space(Turned, Turned.problem(m=64, n=64, dtypes={"x": "s8"}), device("a100"))
    program = space.program({"pad": 1, "contiguous": "rows"})
    (solution,) = solve_buffers(program, SolverCache()).solutions.values()
    assert (solution.layout.rows, solution.layout.row_bytes, solution.layout.pitch_bytes) == (32, 33, 33)
    assert (solution.verdict, solution.proof, solution.family, solution.asked) == ("unknown", "none", "rows of 33 B", 0)
    assert solution.sentence == (
        "rows of 33 B are not whole words, so that no XOR keeps them apart; counted lane by lane"
    )
