"""A program prints all that it is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tinygpu.program.merges import reduce_of
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.language.roles import Pipeline, Token, role
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.program import nodes as n
from tinygpu.program.fill import filler
from tinygpu.program.program import Program
from tinygpu.ptx import isa
from tinygpu.schedulers.launch_control import LaunchControl
from tinygpu.schedulers.launch_rule import MOST_CLUSTERS, MOST_ROUNDS
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

X = Tensor("x", dtype("f32"), ("m", "k"), "in", "col")
BUFFER = Buffer("ring.t", SMEM, dtype("f32"), (expr(4), expr(8)), 1, expr(2), "swizzle", expr(3))
TILE = Tile("ring.t", SMEM, dtype("f32"), (expr(4), expr(8)), (expr(0), expr(0)), buffer=BUFFER)
GOT = Tile("v1", RMEM, dtype("f32"), (expr(4), expr(8)), (expr(0), expr(0)))
LOOP = n.Loop(
    "j",
    symbol("k"),
    False,
    (n.Produce("ring", (n.Load("ld", isa.LdGlobal(1), gmem_tile(X, (symbol("i"), 0), (4, 8)), GOT),)),),
)
AXES = (n.Axis("i", symbol("m"), expr(64), expr(2)), n.Axis("j", symbol("k"), expr(32)))
PROGRAM = Program(
    "M",
    (("how", "straight"), ("depth", 2)),
    (X,),
    (n.ScalarArgument("alpha", dtype("f32")),),
    n.Grid(AXES, expr(4), expr(2)),
    (role("bring", 1), role("keep", 4, 1, 200, (1, 3))),
    (Pipeline("ring", expr(3), (BUFFER,), "barrier"), Pipeline("order", expr(1), (), "turn")),
    (
        n.InRole("bring", (LOOP,)),
        n.InRole(
            "keep",
            (
                replace(LOOP, unrolled=True, first=expr(2), body=(n.Consume("order", (n.Constant(GOT, 1.5),)),)),
                n.Pipelined(
                    "ring", "r", expr(5), (n.Constant(GOT, 0.0),), (n.Store("st", isa.StShared(1), GOT, TILE),)
                ),
                n.Copy(
                    "cp",
                    isa.CpAsync(1),
                    gmem_tile(X, (0, 0), (4, 8)),
                    TILE,
                    None,
                    Token(3, "ring.t", "commit group"),
                    1,
                ),
                n.FixUp("add", isa.Add("f32"), isa.StGlobal(1), isa.LdGlobal(1), GOT, GOT, (n.Constant(GOT, 2.0),)),
                n.Scope(("ring", "order"), (reduce_of("max", isa.Max("f32"), isa.ShflBfly(), GOT, GOT, 1),)),
                n.Apply("fma", isa.Fma("f32"), (GOT, n.ScalarArgument("alpha", dtype("f32")), 0.5), GOT),
            ),
        ),
    ),
)
TEXT = """\
program M(how=straight, depth=2)
  in    x: f32[m, k] col-major
  scalar alpha: f32
  role bring: warp 0
  role keep: warps 1 to 4, 200 registers, tiles 1 of every 3
  pipeline ring: 3 stages, barrier
    SMEM ring.t: f32[4, 8], axis 1 contiguous, pad 2 as swizzle
  pipeline order: turn
  grid i in m/64, j in k/32; raster 4; clusters of 2 x 1
    role bring:
      for j < k:
        produce ring:
          %v1 = ld x[i:+4, 0:+8]
    role keep:
      unrolled k rounds j from 2:
        turn order:
          %v1 = 1.5
      for r < 5, ring produced ahead:
        produce ring:
          %v1 = 0
        consume ring:
          ring.t[0:+4, 0:+8] = st %v1
      token3(ring.t: commit group): ring.t[0:+4, 0:+8] = cp x[0:+4, 0:+8] to the cluster along 1
      fix up %v1 = add %v1; in the last CTA of the tile:
        %v1 = 2
      with ring, order:
        %v1 = max %v1 along 1
      %v1 = fma %v1, alpha, 0.5"""


def test_a_program_prints_all_that_it_is_made_of() -> None:
    assert str(PROGRAM) == TEXT
    last = TEXT.splitlines()[8]
    grids = {
        replace(PROGRAM.grid, scheduler=StaticPersistent()): " persistent",
        replace(PROGRAM.grid, scheduler=OneTile(expr(3))): "; 3 slices of each tile",
        replace(PROGRAM.grid, scheduler=StreamK(symbol("s"), StaticPersistent())): " persistent; stream-K: s",
        replace(PROGRAM.grid, scheduler=LaunchControl(symbol("s"), StaticPersistent(), expr(1))): (
            " persistent; launch control: s"
        ),
    }
    for grid, more in grids.items():
        assert str(replace(PROGRAM, grid=grid)).splitlines()[8] == last + more


def test_a_program_has_the_threads_up_to_the_end_of_its_last_role() -> None:
    assert int(PROGRAM.threads) == 160
    assert int(replace(PROGRAM, roles=PROGRAM.roles[::-1]).threads) == 160


def test_parts_that_a_thread_takes_at_once_fill_eight_vectors() -> None:
    from tinygpu.language import blocked

    for values, vector, vectors, together in ((32, 4, 8, 1), (16, 4, 4, 2), (2, 4, 1, 8), (128, 2, 64, 1)):
        held = replace(GOT, partition=blocked((32, values), threads=32, across=1))
        s = n.FixUp("g", isa.Add("f32"), isa.StGlobal(vector), isa.LdGlobal(vector), held, GOT, ())
        assert (int(s.vectors), int(s.parts_at_once)) == (vectors, together)
    assert int(replace(s, value=GOT).vectors) == 1
    assert not n.Grid((), expr(1), expr(1)).scheduler.shares
    assert OneTile(expr(2)).shares
    assert StreamK(symbol("s"), StaticPersistent()).shares
    # rounds in a row are counted in 32 bits: those of two tiles for each cluster
    assert 2 * MOST_ROUNDS * MOST_CLUSTERS == 2**32
    assert MOST_ROUNDS == 131_072
    assert not n.Loop("i", expr(1), False, ()).divided
    assert not n.Pipelined("ring", "i", expr(1), (), ()).divided
    assert n.Loop("i", expr(1), False, ()).first.same(0)
    assert not n.Grid((), expr(1), expr(1)).scheduler.persistent


def test_a_program_is_filled_with_all_of_its_parameters_or_not_at_all() -> None:
    """Numbers that several expressions share are computed once; what has no parameter stays as it is."""
    grid = replace(PROGRAM.grid, raster=symbol("a") * symbol("b") + 1, scheduler=OneTile(symbol("a") + symbol("m")))
    program = replace(PROGRAM, grid=grid)
    prepared = filler(program, frozenset({"a", "b"}))
    assert (prepared.names, [str(e) for e in prepared.closed]) == ({"a", "b"}, ["a*b + 1"])
    filled = prepared.fill({"a": 3, "b": 5, "idle": 7})
    assert int(filled.grid.raster) == 16
    assert filled.grid.scheduler.slices.same(symbol("m") + 3)
    assert filled.body is program.body
    with pytest.raises(ValueError) as refused:
        prepared.fill({"idle": 7})
    assert str(refused.value) == "M needs a value for a, b"
