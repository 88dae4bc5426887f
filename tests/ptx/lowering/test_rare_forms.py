"""Forms that few operations need are right, and what lowering is not told is refused in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
import rare_machines as rare
import ring_machines as rings
from test_misfits import programs, shared, tensor

from tinygpu.devices import device
from tinygpu.expressions import Expr, ceil_div, expr, maximum, minimum, symbol, where
from tinygpu.language import Machine
from tinygpu.layouts.rows import cut_rows, whole_rows
from tinygpu.program import nodes as n
from tinygpu.program.placement import BufferPlace
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import bulk, compute, control, flow, gmem, grid, moves, rounds, smem, warpgroup
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import Context, Facts, LoweringError
from tinygpu.ptx.lowering.emitter import Emitter, Reg
from tinygpu.ptx.verification.verify import verify
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.mark.sampled(12)
@pytest.mark.parametrize("machine", [*rare.MACHINES, *rings.MACHINES])
@pytest.mark.end_to_end
def test_machines_are_right(machine: type[Machine]) -> None:
    """One candidate, in one order: all of them, in every order, where they are few, in the long run."""
    problem = machine.problem(**{**rare.MACHINES, **rings.MACHINES}[machine])
    space = build_space(machine, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(7))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",))
    assert found.passed, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*rare.MACHINES, *rings.MACHINES])
def test_machines_are_right_in_every_order(machine: type[Machine]) -> None:
    problem = machine.problem(**{**rare.MACHINES, **rings.MACHINES}[machine])
    space = build_space(machine, problem, device("h100"))
    for point in space.space if space.space.size <= 4 else space.space.sample(1, np.random.default_rng(7)):
        found = verify(build(space.program(point), problem, point, SolverCache()).kernel, machine, problem)
        assert found.passed, str(found)


# ---- what is worked out of a program --------------------------------------------------------------------------------

M, N, AT = symbol("m"), symbol("n"), symbol("i")


@pytest.mark.parametrize(
    ("trips", "once"),
    [
        (expr(0), False), (expr(1), True), (expr(2), True), (M, True), (ceil_div(M, 64), True), (M // 64, False),
        (M - 1, False), (M + 1, True), (3 - AT, False), (3 - M, False), (AT, False), (AT + 1, True), (M * N, True),
        (maximum(M, AT), True), (minimum(M, AT), False), (minimum(M, 2), True), (M % 4 + 1, False),
        (8 // (M + 1), False), (maximum(AT, 0) + 1, True), (ceil_div(M * 2 + N, 3), True), (2 - minimum(AT, 1), False),
    ],
)  # fmt: skip
def test_a_loop_has_a_round_whatever_the_dims_are(trips: Expr, once: bool) -> None:
    """What is said to have a round has one at small sizes; where the form shows it, it is seen."""
    program = programs("Rows")[0][0]
    assert {d for t in program.tensors for d in t.dims} == {"m", "n"}
    assert rounds.at_least_once(program, trips) == once
    sizes = [{"m": m, "n": n, "i": i} for m in (1, 2, 5, 64) for n in (1, 3) for i in (0, 1, 2, 5)]
    least = min(int(trips.substitute(size)) for size in sizes)
    assert least >= 1 or not once


@pytest.mark.parametrize("seed", range(40))
def test_what_splits_is_swizzled_part_by_part(seed: int) -> None:
    """`splits` says so where the parts share no bit that matters; then what it says holds of every sum."""
    rng = np.random.default_rng(seed)
    bits = rng.permutation(4)[: rng.integers(0, 4)]
    xor = tuple((bit, 1 << int(rng.integers(4, 7))) for bit in sorted(map(int, bits)))
    place = BufferPlace(0, whole_rows(((16, 1, 0), (256, 0, 1)), 16, 256, xor))
    rows, columns = rng.integers(0, 16, (2, 3)), rng.integers(0, 16, (2, 3)) * 16
    masks = rng.integers(0, 2, 2) * 15
    rows, columns = rows & masks[:1, None] & [[3], [12]], columns & [[48], [192 + 15 * masks[1]]]
    steps = int(rng.integers(0, 2)) * 1 << int(rng.integers(0, 6)), int(rng.integers(0, 2)) << int(rng.integers(3, 9))
    said = smem.splits(place, rows[0], columns[0], rows[1], columns[1], *steps)
    reads = (1 << max((bit for bit, _ in place.xor), default=-1) + 1) - 1
    touched = smem.mask_reach(place) if place.xor else 0
    one, other = (int(np.bitwise_or.reduce(part)) for part in rows)
    near, far = (int(np.bitwise_or.reduce(part)) for part in columns)
    apart = not (one & other & reads or near & far & touched)
    assert said == (not place.xor or (apart and not (steps[0] & reads or steps[1] & touched)))
    for thread, value in np.ndindex(3, 3) if said else ():
        at = [(int(r), int(c)) for r, c in ((rows[0][thread], columns[0][thread]), (rows[1][value], columns[1][value]))]
        for times in range(3):
            row, column = (at[0][i] + at[1][i] + times * steps[i] for i in (0, 1))
            alone = (at[0][1] + times * steps[1]) ^ smem.known_pattern(place, at[0][0] + times * steps[0])
            near, far = at[1][1] & touched, at[1][1] & ~touched
            across = (alone ^ near ^ smem.known_pattern(place, at[1][0])) + far
            assert column ^ smem.known_pattern(place, row) == across


def test_numbers_of_64_bits_are_computed_when_lowering() -> None:
    emit = Emitter()
    assert (emit.add64(3, 4), emit.mul64(3, 4), emit.wide(3, 4)) == (7, 12, 12)
    assert (emit.add64(5, 0), emit.mul64(5, 0), emit.wide(0, 5)) == (5, 0, 0)
    register = emit.new("d", 0)
    assert emit.add64(0, register) is emit.add64(register, 0) is emit.mul64(1, register) is register
    assert emit.mul64(register, 0) == 0
    assert not [line for line in emit.block.lines() if "add" in line or "mul" in line]


# ---- refusals -------------------------------------------------------------------------------------------------------


def edited(name: str, **fields: Any) -> Program:
    return replace(programs(name)[0][0], **fields)


def context(program: Program) -> Context:
    return Context(program, Facts({}), cast(Any, None))


def window(name: str) -> Any:
    return tensor(list(walk(programs(name)[0][0].body)))


def buffered(name: str) -> Any:
    return shared(list(walk(programs(name)[0][0].body)))


WHO = rare.WHO.coalesced


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda c: c.role_thread(), "no role is open"),
        (lambda c: c.thread_part(WHO.threads, 0), "no role is open"),
        (lambda c: moves.one_holder(c, WHO), "no role is open"),
        (lambda c: grid.own(c), "no tile is open"),
        (lambda c: c.number(symbol("nobody")), "nobody has no value here"),
        (lambda c: c.number(where(symbol("n") < 3, 1, 2)), "1 if n < 3 else 2 cannot be computed in a kernel"),
        (
            lambda c: c.affine(symbol("i") * symbol("j")),
            "the offset i*j is not a sum of multiples of indices, quotients and remainders",
        ),
        (lambda c: flow.only_if(c, 0, "one thread").__enter__(), "a branch that is never taken is not written"),
        (lambda c: moves.guarded(0), "an access that never exists is not written"),
        (lambda c: moves.vector_of(isa.LdGlobal(8), WHO), "ld.global moves 8 elements, and a thread holds 4"),
        (lambda c: compute.partition_of(window("Rows")), "x does not lie in registers"),
        (lambda c: gmem.gmem_access(c, buffered("OneTileRoles"), WHO), "ring.x is no window of a tensor"),
        (
            lambda c: bulk.coordinates(c, buffered("OneTileRoles"), cast(Any, None), cast(Any, None), 0, 0),
            "ring.x is no window of a tensor",
        ),
        (
            lambda c: bulk.boxes(window("OneTileRoles"), buffered("OneTileRoles").buffer, 3),
            "8 rows of x are not divided among 3 CTAs",
        ),
    ],
)  # fmt: skip
def test_what_a_context_does_not_hold_is_told(call: Callable[[Context], object], sentence: str) -> None:
    with pytest.raises(LoweringError) as refused:
        call(context(programs("Rows")[0][0]))
    assert str(refused.value) == sentence


def test_values_that_a_kernel_computes_from_numbers() -> None:
    of = context(programs("Rows")[0][0])
    of.indices |= {"i": 7, "j": 3}
    assert of.number(symbol("i") % symbol("j")) == 1
    assert of.number(minimum(symbol("i"), symbol("j"), 5)) == 3
    assert of.number(minimum(symbol("i"), 5)) == 5
    assert of.affine(symbol("i") * 4 + symbol("k") * 2 + 1) == (29, (("k", 2),))
    made = of.emit.new("r", 0)
    of.indices["k"] = made
    assert isinstance(of.number(symbol("k") % 4), Reg)


@pytest.mark.parametrize(("divided", "stream_k", "known"), [(0, 0, False), (0, 1, False), (1, 0, False), (1, 1, True)])
def test_rounds_are_known_to_be_there_where_they_are_dealt_out(divided: int, stream_k: int, known: bool) -> None:
    """Of a loop whose rounds depend on the tile: a CTA that is dealt rounds of a tile has some."""
    program = programs("Rows")[0][0]
    dealt = StreamK(expr(stream_k), StaticPersistent())
    of = context(replace(program, grid=replace(program.grid, scheduler=dealt)))
    loop = replace(next(s for s in walk(program.body) if isinstance(s, n.Loop)), divided=bool(divided))
    assert (control.some_rounds(of, loop, grid.trips_of(of, loop, of.emit.new("r"))) is True) == known


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(25))
def test_the_most_rounds_are_those_of_the_tile_the_part_and_the_round_that_have_most(seed: int) -> None:
    """Of a trip count that goes by tile, part and rounds of loops around it: the largest of all, as listed."""
    program = programs("SharedRows")[0][0]
    axis = program.grid.axes[0]
    loop = next(s for s in walk(program.body) if isinstance(s, (n.Loop, n.Pipelined)))
    program = replace(program, grid=replace(program.grid, scheduler=OneTile(expr(3))))
    rng = np.random.default_rng(seed)
    steps = [int(s) for s in rng.integers(-3, 4, 3)]
    index, part, row = symbol(loop.index), symbol(n.PART), symbol(axis.index)
    trips = expr(int(rng.integers(0, 12))) + index * steps[0] + part * steps[1] + row * steps[2]
    sizes: dict[str, int] = dict.fromkeys((name for t in program.tensors for name in t.dims), 70)
    listed = [0]
    for at in range(int(ceil_div(axis.size, axis.extent).substitute(sizes))):
        for p in range(3):
            known = {**sizes, axis.index: at, n.PART: p}
            first, count = (int(e.substitute(known)) for e in (loop.first, loop.trips))
            for i in (0, first + count - 1):
                listed.append(int(trips.substitute({**known, loop.index: i})))
    assert int(rounds._largest(program, trips).substitute(sizes)) >= max(listed)
    last = max(
        int((loop.first + loop.trips - 1).substitute({**sizes, axis.index: at, n.PART: p}))
        for at in range(-(-70 // int(axis.extent)))
        for p in range(3)
    )
    slope = abs(steps[0]) + 1
    assert int(rounds._largest(program, expr(2) + index * slope).substitute(sizes)) == 2 + last * slope
    alone = expr(5) - row * steps[2] + part * steps[1]
    most = max(5 - at * steps[2] + p * steps[1] for at in range(-(-70 // int(axis.extent))) for p in range(3))
    assert int(rounds._largest(program, alone).substitute(sizes)) == max(0, most)


def test_warpgroups_begin_at_swizzle_widths_where_rows_run_along_k() -> None:
    tile = next(s.b for s in walk(programs("OneSlot")[0][0].body) if isinstance(s, n.Multiply))
    of = context(programs("OneSlot")[0][0])
    assert tile.buffer is not None
    at = BufferPlace(0, cut_rows(((64, 1, 0), (64, 0, 2)), 64, 64, 1, 8192))
    of.placement = cast(Any, SimpleNamespace(places={tile.buffer.name: at}))
    of.arguments["smem"], of.slots["ring"] = of.emit.new("r", 0), 0
    tile = replace(tile, offset=(expr(0), expr(0)))
    behind = of.emit.new("r", 0)
    for step, whole in ((32, True), (64, True), (16, False), (48, False)):
        of.first_step = step
        if whole:
            assert warpgroup.operand(of, isa.Wgmma(64), tile, 0, behind).transposed
            continue
        with pytest.raises(LoweringError) as refused:
            warpgroup.operand(of, isa.Wgmma(64), tile, 0, behind)
        assert str(refused.value) == f"the warpgroups' parts of {tile.name} do not begin at widths of its swizzle"
