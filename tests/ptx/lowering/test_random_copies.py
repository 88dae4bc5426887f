"""A tensor goes through shared memory under two random partitions and any layout, with edges, and arrives unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language import RMEM, SMEM, E, Layout, Partition, Problem, Route
from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction import Transfer
from tinygpu.language.problem import Operand
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import DeviceBuffer, emulate
from tinygpu.ptx.lowering.lower import lower
from tinygpu.ptx.verification.operands import host_tensor

Digit = tuple[Leaf, Leaf | Step]
ZERO = expr(0)
POISON = 0xFF


@st.composite
def spread_over(
    draw: st.DrawFn, factors: tuple[list[int], list[int]], threads: int, vector: int, axis: int
) -> Partition:
    """A random partition of the tile whose extents are the products of `factors`, over `threads` threads."""
    left: list[tuple[int, int]] = [(f, a) for a in (0, 1) for f in factors[a]]
    pieces = vector
    while pieces > 1:  # the vector takes factors of two of the contiguous axis
        left.remove((2, axis))
        pieces //= 2
    order = draw(st.permutations(left))
    below = [1, 1]
    below[axis] = vector
    threads_of: list[Digit] = []
    values: list[Digit] = [(vector, E(axis))]
    free = threads
    for extent, a in order:
        digit = (extent, below[a] * E(a))
        below[a] *= extent
        if extent == 2 and free > 1 and (draw(st.booleans()) or sum(e == 2 for e, _ in left) < 8):
            threads_of.append(digit)
            free //= 2
        else:
            values.append(digit)
    if free > 1:
        threads_of.append((free, 0))
    return Partition((expr(below[0]), expr(below[1])), Layout.of(draw(st.permutations(threads_of)), values))


class Made(NamedTuple):
    """A program that copies x to y, and what it is run with."""

    program: Program
    problem: Problem
    xor: tuple[tuple[int, int], ...]
    extents: list[int]
    dims: list[int]
    threads: int

    def __repr__(self) -> str:
        return f"{self.program}\nfor {self.problem}, XOR {self.xor}, {self.threads} threads"


@st.composite
def copies(draw: st.DrawFn, how: str) -> Made:
    kind = dtype(draw(st.sampled_from(["f32", "f16", "s8", "f64"] if how != "cp.async" else ["f32", "f16", "f64"])))
    twos = [draw(st.integers(2, 4)), draw(st.integers(2, 4))]
    factors = tuple([2] * t + draw(st.lists(st.sampled_from([3, 5]), max_size=1)) for t in twos)
    extents = [int(np.prod(f)) for f in factors]
    threads = draw(st.sampled_from([32, 64]))
    x_axis, y_axis, s_axis = (draw(st.integers(0, 1)) for _ in range(3))
    if how == "cp.async":
        s_axis = x_axis
    most = max(1, 16 // kind.bytes)

    def vector(axis: int, least: int = 1) -> int:
        return draw(st.sampled_from([v for v in (1, 2, 4, 8, 16) if least <= v <= most and v <= 2 ** twos[axis]]))

    v_in = vector(x_axis, 4 // kind.bytes if how == "cp.async" else 1)
    v_out = vector(y_axis)
    v_put = v_in if s_axis == x_axis else 1
    v_get = v_out if s_axis == y_axis else 1
    first = draw(spread_over(factors, threads, v_in, x_axis))
    second = draw(spread_over(factors, threads, v_out, y_axis))
    chunk = max(v_put, v_get)
    pad = draw(st.integers(0, 2)) * chunk
    row = 1 << twos[s_axis]  # elements in a row up to a power of two: masks stay inside
    masks = st.integers(1, max(1, row // chunk - 1)).map(lambda m: m * chunk * kind.bytes)
    swizzled = extents[s_axis] == row > chunk
    xor = tuple((bit, draw(masks)) for bit in range(draw(st.integers(0, 3)))) if swizzled else ()
    dims = [draw(st.integers(1, 2 * e)) for e in extents]
    majors: list[Any] = ["col" if a == 0 else "row" for a in (x_axis, y_axis)]
    tensors = tuple(
        Tensor(name, kind, ("m", "n"), access, major)
        for name, access, major in zip("xy", ("in", "out"), majors, strict=True)
    )
    aligned = (v_in, v_out)
    operands = tuple(
        Operand(
            t.name,
            kind,
            (dims[0], dims[1]),
            t.major,
            -(-dims[a] // v) * v + draw(st.sampled_from([0, v])),
            16,
            t.access,
        )
        for t, a, v in zip(tensors, (x_axis, y_axis), aligned, strict=True)
    )
    window = (symbol("tile0") * extents[0], symbol("tile1") * extents[1])
    buffer = Buffer("ring.t", SMEM, kind, first.shape, s_axis, expr(pad), "layout", expr(1))
    stage = Tile("ring.t", SMEM, kind, first.shape, (ZERO, ZERO), (), None, buffer, None)
    source, target = (gmem_tile(t, window, first.shape) for t in tensors)
    token = Token(1, "ring.t", "commit group") if how == "cp.async" else None
    instruction: Transfer | Route = isa.CpAsync(v_in)
    if how == "route":
        instruction = Route(isa.LdGlobal(v_in), isa.StShared(v_put))
    value = Tile("v1", RMEM, kind, second.shape, (ZERO, ZERO), partition=second)
    body = (
        n.Produce("ring", (n.Copy("copy", instruction, source, stage, first, token),)),
        n.Consume(
            "ring",
            (n.Load("get", isa.LdShared(v_get), stage, value), n.Store("st", isa.StGlobal(v_out), value, target)),
        ),
    )
    grid = n.Grid(
        tuple(n.Axis(f"tile{i}", symbol(d), expr(e)) for i, (d, e) in enumerate(zip("mn", extents, strict=True))),
        expr(1),
        expr(1),
    )
    pipeline = Pipeline("ring", expr(1), (buffer,), "commit group" if token else "barrier")
    role = Role("all", expr(threads // 32), ZERO, 0, (0, 1))
    made = Program(
        "Copy", (), tensors, (), grid, (role,), (pipeline,), (n.Scope(("ring",), (n.InRole("all", body),)),)
    )
    problem = Problem((("m", dims[0]), ("n", dims[1])), operands)
    return Made(made, problem, xor, extents, dims, threads)


def arrives(made: Made) -> None:
    kernel = lower(made.program, made.problem, {}, {"ring.t": made.xor})
    tensors = {o.name: host_tensor(o) for o in made.problem.operands}
    rng = np.random.default_rng(0)
    x = tensors["x"].array
    x[...] = rng.integers(-100, 100, x.shape).astype(x.dtype)
    values = {"m": made.dims[0], "n": made.dims[1]}
    values |= {f"{o.name}.ld": o.ld for o in made.problem.operands}
    arguments: list[Any] = []
    for p in kernel.parameters:
        if p.kind == "pointer":
            t = tensors[p.name]
            arguments.append(DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=p.name == "x"))
        else:
            arguments.append(np.uint32(values[f"{p.name}.ld" if p.kind == "ld" else p.name]))
    emulate(
        kernel.ptx,
        grid=kernel.grid(made.problem),
        block=(made.threads, 1, 1),
        args=arguments,
        dynamic_smem=kernel.smem_bytes,
    )
    assert np.array_equal(tensors["y"].array, x)
    assert tensors["y"].gaps_intact()


@settings(max_examples=25)
@given(copies("route"))
def test_a_copy_through_registers_arrives(made: Made) -> None:
    arrives(made)


@settings(max_examples=25)
@given(copies("cp.async"))
def test_an_asynchronous_copy_arrives(made: Made) -> None:
    arrives(made)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["route", "cp.async"])
def test_many_copies_arrive(how: str) -> None:
    @settings(max_examples=500)
    @given(copies(how))
    def check(made: Made) -> None:
        arrives(made)

    check()
