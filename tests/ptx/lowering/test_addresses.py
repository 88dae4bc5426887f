"""Addresses: every access of a kernel touches what its partition says, in GMEM with edges and in swizzled SMEM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_partitions import partitions
from straight_line import Access, Machine

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, expr, symbol
from tinygpu.language import RMEM, SMEM, Partition, Problem, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.problem import Operand
from tinygpu.language.roles import Pipeline, Role
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.lower import lower

ZERO = expr(0)
X, Y, SHARED = 1 << 33, 1 << 35, 4096


def register_tile(name: str, kind: str, partition: Partition) -> Tile:
    return Tile(name, RMEM, dtype(kind), partition.shape, (ZERO, ZERO), partition=partition)


def program(
    tensors: tuple[Tensor, ...],
    axes: list[tuple[str, int]],
    partition: Partition,
    body: tuple[n.Statement, ...],
    pipelines: tuple[Pipeline, ...] = (),
) -> Program:
    """A program of one role with the threads of a partition; its buffers live from the first statement to the last."""
    role = Role("all", expr(int(partition.thread_count) // 32), ZERO, 0, (0, 1))
    grid = n.Grid(tuple(n.Axis(f"tile{i}", symbol(d), expr(e)) for i, (d, e) in enumerate(axes)), expr(1), expr(1))
    inside: tuple[n.Statement, ...] = (n.InRole("all", body),)
    whole = (n.Scope(tuple(p.name for p in pipelines), inside),) if pipelines else inside
    return Program("Copy", (), tensors, (), grid, (role,), pipelines, whole)


def run(kernel: Any, threads: int, **arguments: int) -> list[Access]:
    text = kernel.ptx.split("{", 1)[1].split("\n")
    return Machine(threads, {"x_ptr": X, "y_ptr": Y, "smem": SHARED, **arguments}).run(text)


def holders(partition: Partition) -> NDArray[np.bool_]:
    """(threads,) the first thread of those that hold the same."""
    starts = partition.thread_coordinates()
    _, first = np.unique(starts, axis=0, return_index=True)
    keep = np.zeros(len(starts), dtype=np.bool_)
    keep[first] = True
    return keep


def expected_places(partition: Partition, vector: int, starts: tuple[int, int]) -> NDArray[np.int64]:
    """(vectors, threads, 2) coordinates of the first element of each access."""
    where = partition.coordinates()[:, ::vector, :] + np.array(starts)
    return where.transpose(1, 0, 2)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["row", "col"]), st.sampled_from(["f32", "f64"]))
def test_global_accesses_touch_what_the_partition_says(data: st.DataObject, major: Any, kind: str) -> None:
    axis = 0 if major == "col" else 1
    partition, vector = data.draw(partitions(axis, (1, 2) if kind == "f64" else (1, 2, 4)))
    extents = [int(s) for s in partition.shape]
    dims = [data.draw(st.integers(1, 3 * e)) for e in extents]
    dims[axis] = max(vector, dims[axis] // vector * vector)  # vectors that straddle the edge branch; tested elsewhere
    ld = dims[axis] + vector * data.draw(st.integers(0, 3))
    tensors = tuple(
        Tensor(name, dtype(kind), ("m", "n"), access, major) for name, access in (("x", "in"), ("y", "out"))
    )
    operands = tuple(Operand(t.name, t.dtype, (dims[0], dims[1]), major, ld, 16, t.access) for t in tensors)
    value = register_tile("v1", kind, partition)
    window = (symbol("tile0") * extents[0], symbol("tile1") * extents[1])
    body = (
        n.Load("ld", isa.LdGlobal(vector), gmem_tile(tensors[0], window, partition.shape), value),
        n.Store("st", isa.StGlobal(vector), value, gmem_tile(tensors[1], window, partition.shape)),
    )
    made = program(tensors, [("m", extents[0]), ("n", extents[1])], partition, body)
    problem = Problem((("m", dims[0]), ("n", dims[1])), operands)
    kernel = lower(made, problem, {})
    tiles = [-(-d // e) for d, e in zip(dims, extents, strict=True)]
    cta = data.draw(st.integers(0, tiles[0] * tiles[1] - 1))
    threads = int(partition.thread_count)
    accesses = run(kernel, threads, m=dims[0], n=dims[1], x_ld=ld, y_ld=ld, **{"%ctaid.x": cta})
    starts = (cta // tiles[1] * extents[0], cta % tiles[1] * extents[1])
    places = expected_places(partition, vector, starts)
    strides = np.array(operands[0].strides()) * dtype(kind).bytes
    inside = (places[..., 0] < dims[0]) & (places[..., 1] < dims[1])
    mine = holders(partition)
    count = len(places)
    assert [a.opcode.split(".")[0] for a in accesses] == ["ld"] * count + ["st"] * count
    for which, base, keep in ((0, X, np.ones_like(mine)), (count, Y, mine)):
        for access, where, exists in zip(accesses[which : which + count], places, inside, strict=True):
            active = exists & keep
            assert np.array_equal(access.active, active)
            assert np.array_equal(access.address[active], (base + where @ strides).astype(np.uint64)[active])


@st.composite
def swizzles(draw: st.DrawFn, chunk_bytes: int, chunks: int, rows: int) -> tuple[tuple[int, int], ...]:
    """(row bit, mask) entries: any masks over whole chunks, or a run of bits that move by the same distance.

    chunks  per row; masks stay within the greatest power of two that divides them, so that no byte leaves its row
    """
    bits, row_bits = (chunks & -chunks).bit_length() - 1, (rows - 1).bit_length()
    if not bits or not row_bits:
        return ()
    if draw(st.booleans()):
        low, to = draw(st.integers(0, row_bits - 1)), draw(st.integers(0, bits - 1))
        count = draw(st.integers(1, min(bits - to, row_bits - low)))
        return tuple((low + i, chunk_bytes << to + i) for i in range(count))
    masks = st.tuples(st.integers(0, row_bits - 1), st.integers(1, (1 << bits) - 1).map(lambda m: m * chunk_bytes))
    return tuple(sorted(draw(st.lists(masks, max_size=4, unique_by=lambda entry: entry[0]))))


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["f32", "f16", "f64"]), st.integers(0, 1))
def test_shared_accesses_touch_what_partition_and_layout_say(data: st.DataObject, kind: str, contiguous: int) -> None:
    """An element of row r and byte column c lies at r * pitch + (c ^ X(r)), X the XOR of the masks of r's bits."""
    bytes_each = dtype(kind).bytes
    partition, vector = data.draw(partitions(contiguous, {2: (2, 4, 8), 4: (1, 2, 4), 8: (1, 2)}[bytes_each]))
    pad = data.draw(st.integers(0, 2)) * vector
    chunk = vector * bytes_each
    xor = data.draw(swizzles(chunk, int(partition.shape[contiguous]) // vector, int(partition.shape[1 - contiguous])))
    buffer = Buffer("ring.t", SMEM, dtype(kind), partition.shape, contiguous, expr(pad), "layout", expr(1))
    target = Tile("ring.t", SMEM, dtype(kind), partition.shape, (ZERO, ZERO), (), None, buffer, None)
    value = register_tile("v1", kind, partition)
    store = n.Store("put", isa.StShared(vector), value, target)
    body = (n.Constant(value, 1.0), n.Produce("ring", (store,)))
    tensors = (Tensor("y", dtype("f32"), ("n",), "out"),)
    made = program(tensors, [("n", 1)], partition, body, (Pipeline("ring", expr(1), (buffer,), "barrier"),))
    problem = Problem((("n", 1),), (Operand("y", dtype("f32"), (1,), "row", 1, 16, "out"),))
    kernel = lower(made, problem, {}, {"ring.t": xor})
    accesses = run(kernel, int(partition.thread_count), n=1, **{"%ctaid.x": 0})
    places = expected_places(partition, vector, (0, 0))
    mine = holders(partition)
    pitch = (int(partition.shape[contiguous]) + pad) * bytes_each
    assert len(accesses) == len(places)
    for access, where in zip(accesses, places, strict=True):
        row, column = where[:, 1 - contiguous], where[:, contiguous] * bytes_each
        for bit, mask in xor:
            column = np.where(row >> bit & 1, column ^ mask, column)
        assert np.array_equal(access.active, mine)
        assert np.array_equal(access.address[mine], (SHARED + row * pitch + column).astype(np.uint64)[mine])


@settings(max_examples=20)
@given(st.sampled_from([4, 8, 32]), st.sampled_from([1, 2, 4]))
def test_threads_beyond_a_partition_take_no_part(few: int, warps: int) -> None:
    """A role of more threads than the tile is divided among: the others neither load nor store."""
    partition = blocked((few, 4), threads=few, vector=4, across=1)
    tensors = (Tensor("x", dtype("f32"), ("m", "n"), "in"), Tensor("y", dtype("f32"), ("m", "n"), "out"))
    operands = tuple(Operand(t.name, t.dtype, (64, 64), "row", 64, 16, t.access) for t in tensors)
    value = register_tile("v1", "f32", partition)
    body = (
        n.Load("ld", isa.LdGlobal(4), gmem_tile(tensors[0], (0, 0), partition.shape), value),
        n.Store("st", isa.StGlobal(4), value, gmem_tile(tensors[1], (0, 0), partition.shape)),
    )
    made = program(tensors, [("m", few), ("n", 4)], partition, body)
    made = replace(made, roles=(Role("all", expr(warps), ZERO, 0, (0, 1)),))
    kernel = lower(made, Problem((("m", 64), ("n", 64)), operands), {})
    accesses = run(kernel, 32 * warps, m=64, n=64, x_ld=64, y_ld=64, **{"%ctaid.x": 0})
    assert len(accesses) == 2
    for access in accesses:
        assert access.active.tolist() == [True] * few + [False] * (32 * warps - few)


def test_an_offset_of_a_window_is_part_of_every_address() -> None:
    """The same program with its window moved by (3, 8): every address moves by that, and by nothing else."""
    partition = blocked((8, 32), threads=32, vector=4, across=8)
    tensors = (Tensor("x", dtype("f32"), ("m", "n"), "in"), Tensor("y", dtype("f32"), ("m", "n"), "out"))
    operands = tuple(Operand(t.name, t.dtype, (64, 64), "row", 64, 16, t.access) for t in tensors)
    value = register_tile("v1", "f32", partition)

    def addresses(down: int | Expr, right: int | Expr) -> list[NDArray[np.uint64]]:
        body = (
            n.Load("ld", isa.LdGlobal(4), gmem_tile(tensors[0], (down, right), partition.shape), value),
            n.Store("st", isa.StGlobal(4), value, gmem_tile(tensors[1], (0, 0), partition.shape)),
        )
        made = program(tensors, [("m", 8), ("n", 32)], partition, body)
        kernel = lower(made, Problem((("m", 64), ("n", 64)), operands), {})
        accesses = run(kernel, 32, m=64, n=64, x_ld=64, y_ld=64, **{"%ctaid.x": 0})
        return [a.address for a in accesses if a.opcode.startswith("ld")]

    for here, there in zip(addresses(0, 0), addresses(3, 8), strict=True):
        assert np.array_equal(there - here, np.full(32, (3 * 64 + 8) * 4, dtype=np.uint64))
