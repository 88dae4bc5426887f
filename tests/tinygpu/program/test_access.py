"""Touches against brute force: every warp instruction of a statement, every lane's first element."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from digits import digit, fragments, held, loose_partitions, spelled, value_count
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate, symbol
from tinygpu.language import E, Layout, Partition, Route
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import GMEM, RMEM, SMEM
from tinygpu.language.partition import expr
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.access import Access, accesses, boxes
from tinygpu.program.windows import offsets, unrolled_statements
from tinygpu.ptx import isa

SHAPE = (expr(64), expr(64))
ORIGIN = (expr(0), expr(0))


def in_gmem(kind: str) -> Tile:
    return gmem_tile(Tensor("x", dtype(kind), ("m", "n"), "in"), ORIGIN, SHAPE)


def in_smem(kind: str, contiguous: int = 1) -> Tile:
    buffer = Buffer("ring.x", SMEM, dtype(kind), SHAPE, contiguous, expr(0), "", expr(1))
    return Tile("ring.x", SMEM, dtype(kind), SHAPE, ORIGIN, buffer=buffer)


def in_registers(kind: str, who: Partition) -> Tile:
    return Tile("x1", RMEM, dtype(kind), SHAPE, ORIGIN, partition=who)


def listed(who: Partition, vector: int, holders: bool) -> list[list[list[int]]]:
    """Per warp, then per vector of a thread: the first element of each lane; [-1, -1] where it takes no part.

    holders  of threads that hold the same elements only the first takes part
    """
    threads, out = int(who.thread_count), []
    for warp, first in itertools.product(range(-(-threads // 32)), range(0, value_count(who), vector)):
        lanes = []
        for thread in range(32 * warp, 32 * warp + 32):
            repeated = [(size, 0 if isinstance(stride, Step) else E(0)) for size, stride in who.threads.steps]
            copies = spelled(thread, Layout.of(repeated)[0], 1)
            idle = thread >= threads or (holders and copies != (0,))
            lanes.append([-1, -1] if idle else [*held(who, thread, first)])
        out.append(lanes)
    return out


@st.composite
def vectored(draw: st.DrawFn) -> tuple[Partition, int]:
    """(partition, vector): the values of a thread open with `vector` neighbours."""
    who, vector = draw(loose_partitions()), draw(st.sampled_from([1, 2, 4]))
    values = [digit(vector, 1), *who.values.steps]
    return Partition(who.shape, Layout.of(who.threads.steps, values)), vector


# Threads that hold the same stand between others, and after them.
REPEATED = Partition(
    SHAPE,
    Layout.of([digit(3, 0), digit(2, None), digit(2, 1, 4), digit(4, None)], [digit(2, 1), digit(2, 1, 2)]),
)


def seen(access: Access) -> tuple[Any, ...]:
    return access.name, access.tile.memory, access.kind, access.writes, access.width_bytes, access.lanes.tolist()


@settings(max_examples=40)
@given(vectored(), st.sampled_from([("f32", 4), ("f16", 2), ("s8", 1)]))
@example((REPEATED, 2), ("f16", 2))
def test_loads_stores_and_copies_touch_what_the_digits_spell(found: tuple[Partition, int], kind: Any) -> None:
    (who, vector), (name, element_bytes) = found, kind
    width = vector * element_bytes
    every, once = listed(who, vector, False), listed(who, vector, True)
    value, gmem, smem = in_registers(name, who), in_gmem(name), in_smem(name)

    def of(statement: n.Statement) -> list[tuple[Any, ...]]:
        return [seen(access) for access in accesses(statement)]

    ldg, sts, cp = isa.LdGlobal(vector), isa.StShared(vector), isa.CpAsync(vector)
    assert of(n.Load("l", ldg, gmem, value)) == [("l", GMEM, "ldst", False, width, every)]
    assert of(n.Load("l", isa.LdShared(vector), smem, value)) == [("l", SMEM, "ldst", False, width, every)]
    assert of(n.Store("s", sts, value, smem)) == [("s", SMEM, "ldst", True, width, once)]
    assert of(n.Store("s", isa.StGlobal(vector), value, gmem)) == [("s", GMEM, "ldst", True, width, once)]
    assert of(n.Copy("c", cp, gmem, smem, who, None)) == [
        ("c", GMEM, "cp.async", False, width, every),
        ("c", SMEM, "cp.async", True, width, every),
    ]
    assert of(n.Copy("r", Route(ldg, sts), gmem, smem, who, None)) == [
        ("r", GMEM, "ldst", False, width, every),
        ("r", SMEM, "ldst", True, width, once),
    ]
    assert of(n.Copy("t", isa.TmaLoad(), gmem, smem, None, None)) == []  # nobody's lanes: an engine moves it
    assert of(n.Constant(value, 0.0)) == []


@settings(max_examples=30)
@given(fragments().filter(lambda fragment: fragment[1] == 2))
def test_matrices_touch_eight_rows_each(fragment: tuple[Partition, int, bool]) -> None:
    """Every row of every 8x8 matrix of the fragment, once for each warp that holds it; a row is 16 bytes."""
    who, _, transposed = fragment
    _, stride = who.threads.steps[0]
    assert isinstance(stride, Step)
    ((inner, _),) = stride.terms
    assert isinstance(inner, int)
    contiguous = 1 - inner if transposed else inner
    smem = in_smem("f16", contiguous)
    (load,) = accesses(n.Load("l", isa.LdMatrix(), smem, in_registers("f16", who)))
    (store,) = accesses(n.Store("s", isa.StMatrix(), in_registers("f16", who), smem))
    assert seen(store) == ("s", *seen(load)[1:3], True, 16, load.lanes.tolist())
    assert seen(load)[:5] == ("l", SMEM, "ldmatrix", False, 16)
    expected = []
    for warp, value in itertools.product(range(int(who.thread_count) // 32), range(0, value_count(who), 2)):
        corner = held(who, 32 * warp, value)
        rows = [[c + (r if axis != contiguous else 0) for axis, c in enumerate(corner)] for r in range(8)]
        expected.append(rows)
    assert sorted(load.lanes.tolist()) == sorted(expected)
    count = value_count(who) // 2
    of_a_warp = load.lanes.reshape(-1, count, 8, 2).tolist()  # warp by warp
    for found, wanted in zip(of_a_warp, (expected[i : i + count] for i in range(0, len(expected), count)), strict=True):
        assert sorted(found) == sorted(wanted)
    assert load.lanes.shape == (len(expected), 8, 2)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.sampled_from(["loop", "both", "scope"])), max_size=4))
def test_statements_are_written_out_once_for_each_round_of_unrolled_loops(around: list[tuple[bool, int, str]]) -> None:
    value = in_registers("f32", Partition(SHAPE, Layout.of([], [])))
    inside, beside = n.Constant(value, 1.0), n.Constant(value, 2.0)
    body: tuple[n.Statement, ...] = (inside,)
    rounds: list[range] = []
    names: list[str] = []
    for depth, (unrolled, trips, kind) in enumerate(around):
        if kind == "loop":
            body = (n.Loop(f"i{depth}", expr(trips), unrolled, body),)
            if unrolled:
                rounds.insert(0, range(trips))
                names.insert(0, f"i{depth}")
        elif kind == "both":
            rings = (n.Produce("ring", ()),), (n.Consume("ring", body),)
            body = (n.Pipelined("ring", f"i{depth}", expr(trips), *rings),)
        else:
            body = (n.InRole("all", (n.Scope(("ring",), (n.FixUp("g", *[Any] * 5, body),)),)),)  # type: ignore[arg-type]
    found = [(p.statement, p.indices) for p in unrolled_statements((*body, beside))]
    expected = [(inside, tuple(zip(names, at, strict=True))) for at in itertools.product(*rounds)]
    assert found == [*expected, (beside, ())]


@settings(max_examples=40)
@given(st.lists(st.integers(-9, 9), min_size=3, max_size=3), st.integers(0, 7), st.integers(0, 7))
def test_an_offset_counts_indices_that_are_known(factors: list[int], i: int, j: int) -> None:
    a, b, c = factors
    tile = in_smem("f32").window((symbol("i") * a + symbol("k") * b + c, symbol("j") - symbol("i")), (1, 1))
    assert offsets(tile, (("i", i), ("j", j))) == (a * i + c, j - i)
    assert offsets(tile, ()) == (c, 0)


def test_what_has_no_rows_of_matrices_has_no_addresses() -> None:
    who, smem = Partition(SHAPE, Layout.of([], [])), in_smem("f16")
    value = replace(in_registers("f16", who), partition=None)
    with pytest.raises(ValueError) as refused:
        list(accesses(n.Load("l", isa.LdMatrix(), smem, value)))
    assert str(refused.value) == "l has no matrix addresses"


def test_what_no_threads_share_out_is_touched_by_nobody() -> None:
    who, gmem = Partition(SHAPE, Layout.of([], [])), in_gmem("f32")
    spread, whole = in_registers("f32", who), replace(in_registers("f32", who), partition=None)
    assert list(accesses(n.Load("l", isa.LdGlobal(1), gmem, whole))) == []
    assert list(accesses(n.Store("s", isa.StGlobal(1), whole, gmem))) == []
    assert list(accesses(n.Load("l", isa.TmaLoad(), gmem, spread))) == []
    assert list(accesses(n.Store("s", isa.TmaStore(), spread, gmem))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("major", ["row", "col"])
def test_pitches_of_a_tensor_are_the_strides_that_a_problem_gives(rank: int, major: str) -> None:
    """Any number of axes, both orders: symbols of dims and of the leading dimension filled in."""
    if major == "col" and rank != 2:
        return  # only a matrix can be column-major
    dims, shape = tuple("abcd"[:rank]), (3, 5, 7, 11)[:rank]
    tensor = Tensor("x", dtype("f16"), dims, "in", major)
    ld = 24 if rank > 1 else shape[0]
    packed = Operand("x", dtype("f16"), shape, major, ld, 256, "in")
    apart = replace(packed, outer=tuple(1000 * 20**place for place in range(rank - 2)))
    for operand in (packed, apart):
        known = Problem(tuple(zip(dims, shape, strict=True)), (operand,)).environment()
        assert tuple(evaluate(step, known) for step in tensor.strides) == operand.strides()


@pytest.mark.parametrize(("width", "contiguous"), [(None, 1), (32, 1), (64, 1), (128, 0)])
def test_boxes_cover_every_row_once_side_by_side(width: int | None, contiguous: int) -> None:
    shape = (8, 128) if contiguous == 1 else (128, 8)
    sizes = (expr(shape[0]), expr(shape[1]))
    swizzle = None if width is None else expr(width)
    buffer = Buffer("ring.x", SMEM, dtype("f16"), sizes, contiguous, expr(0), "", expr(1), swizzle)
    smem = Tile("ring.x", SMEM, dtype("f16"), sizes, ORIGIN, buffer=buffer)
    gmem = gmem_tile(Tensor("x", dtype("f16"), ("m", "n"), "in"), ORIGIN, shape)
    copy = n.Copy("t", isa.TmaLoad(), gmem, smem, None, None)
    box = boxes(copy, isa.TmaLoad())
    run = int(box.width_bits) // 16
    assert run == min(128, (width or 256) // 2)
    firsts = sorted(map(tuple, box.starts.coordinates().reshape(-1, 2).tolist()))
    grid = itertools.product(range(8), range(0, 128, run))
    assert firsts == sorted((row, at) if contiguous == 1 else (at, row) for row, at in grid)
