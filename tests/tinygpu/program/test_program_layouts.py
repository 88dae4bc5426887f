"""Layouts of programs: those of a candidate are the symbolic ones filled in, and say where everything is."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language.memories import SMEM, TMEM
from tinygpu.language.trace import trace
from tinygpu.layouts import ComposedLayout, Layout
from tinygpu.layouts.leaf import filled
from tinygpu.layouts.shapes import flatten, unflatten
from tinygpu.layouts.step import Step
from tinygpu.program.layouts import BufferLayout, buffer_layouts, distributions
from tinygpu.program.placement import place
from tinygpu.program.tree import walk
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

QUICK = ["bias_relu", "matmul_ampere", "matmul_hopper"]
FEW = {"matmul_skinny": {"m": 32}}  # it is for up to 64 rows
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SHIPPED]


@cache
def space_of(name: str) -> MachineSpace:
    machine = family(name).machines[0]
    problem = machine.problem(**dict.fromkeys(machine.dim_names(), 512) | FEW.get(name, {}))
    return build_space(machine, problem, device("h100"))


def numbers(layout: Layout, values: dict[str, int]) -> Layout:
    """A symbolic layout with numbers in place of its names."""
    sizes = tuple(filled(size, values) for size in flatten(layout.shape))
    strides = tuple(d.fill(values) if isinstance(d, Step) else filled(d, values) for d in flatten(layout.stride))
    return Layout(unflatten(sizes, layout.shape), unflatten(strides, layout.shape))


def coordinates(layout: Layout, axes: int) -> NDArray[np.int64]:
    return layout.coordinates(tuple(range(axes)))


@pytest.mark.parametrize("name", NAMES)
def test_distributions_of_a_candidate_are_the_symbolic_ones_filled_in(name: str) -> None:
    space = space_of(name)
    for point in space.space.sample(2, np.random.default_rng(len(name))):
        structure = tuple((c.name, point[c.name]) for c in space.machine.choices())
        traced = trace(space.machine, space.problem, structure).program
        program = space.program(point)
        values = {k: v for k, v in point.items() if isinstance(v, int)}
        symbolic, found = list(distributions(traced)), list(distributions(program))
        assert [(s.tile, s.dtype) for s in symbolic] == [(f.tile, f.dtype) for f in found]
        for s, f in zip(symbolic, found, strict=True):
            axes = len(f.partition.shape)
            read = Layout.parse(str(f.layout))  # what is printed is the layout
            assert read == f.layout
            wanted = f.partition.coordinates().transpose(1, 0, 2).reshape(-1, axes)
            assert np.array_equal(coordinates(read, axes), wanted)
            assert np.array_equal(coordinates(numbers(s.layout, values), axes), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_every_tile_in_registers_and_every_buffer_is_there(name: str) -> None:
    space = space_of(name)
    for point in space.space.sample(2, np.random.default_rng(5)):
        program = space.program(point)
        held = {(d.statement, d.tile) for d in distributions(program)}
        turns = frozenset(p.name for p in program.pipelines if not p.buffers)
        for s in walk(program.body):
            for tile in (*s.reads, *s.writes):
                if tile.partition is not None:
                    assert (s.headline(turns).rstrip(":"), tile.name) in held
        declared = [b.name for pipeline in program.pipelines for b in pipeline.buffers]
        assert [b.buffer.name for b in buffer_layouts(program)] == declared


def addresses(b: BufferLayout) -> NDArray[np.int64]:
    """Bytes of every element of every stage, first axes fastest."""
    assert b.layout is not None
    return b.layout.offsets()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bias_relu"])
def test_buffers_of_a_candidate_lie_where_lowering_places_them(name: str) -> None:
    space = space_of(name)
    for point in space.space.sample(2, np.random.default_rng(7)):
        program = space.program(point)
        swizzles = solve_buffers(program, SolverCache()).swizzles
        structure = tuple((c.name, point[c.name]) for c in space.machine.choices())
        traced = trace(space.machine, space.problem, structure).program
        values = {k: v for k, v in point.items() if isinstance(v, int)}
        plain = {b.buffer.name: b for b in buffer_layouts(program, place(program, {}))}
        placed = place(program, swizzles)
        for symbolic, found in zip(buffer_layouts(traced), buffer_layouts(program, placed), strict=True):
            b = found.buffer
            if b.memory is not SMEM:
                continue
            assert isinstance(symbolic.layout, Layout)
            before = plain[b.name].layout
            assert isinstance(before, ComposedLayout)
            unswizzled = before.layout.offsets() if b.swizzle_bytes is not None else before.offsets()
            assert numbers(symbolic.layout, values).offsets().tolist() == unswizzled.tolist()
            place_of = placed.places[b.name]
            assert (found.swizzle == "none") == (not place_of.xor)
            extents = tuple(map(int, b.shape))
            grid = np.stack(np.meshgrid(*map(np.arange, extents), indexing="ij"), axis=-1).reshape(-1, len(extents))
            first = addresses(found).reshape(int(b.stages), *extents[::-1])[0]
            assert [first[tuple(at[::-1])] for at in grid] == place_of.addresses(grid).tolist()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bias_relu"])
def test_a_picture_of_banks_names_the_element_that_lies_there(name: str) -> None:
    space = space_of(name)
    (point,) = space.space.sample(1, np.random.default_rng(11))
    program = space.program(point)
    placed = place(program, solve_buffers(program, SolverCache()).swizzles)
    for found in buffer_layouts(program, placed):
        picture = found.picture(4)
        if picture is None:
            continue
        lines = int(found.buffer.stage_bytes) // 128
        assert picture.title.endswith(f"; the first 4 of {lines} lines of 128 B") == (lines > 4)
        for line, cells in enumerate(picture.cells):
            held = 128 // len(cells)  # bytes of a cell: one bank, or several where these hold a run
            for place_in_line, cell in enumerate(cells):
                if cell:
                    at = np.array([[int(x) for x in cell.split("..")[0].split(",")]])
                    (address,) = placed.places[found.buffer.name].addresses(at).tolist()
                    assert address // held == len(cells) * line + place_in_line


def test_a_window_is_the_corner_of_the_whole_picture() -> None:
    space = space_of("matmul_ampere")
    (point,) = space.space.sample(1, np.random.default_rng(3))
    found = list(distributions(space.program(point)))
    assert found
    for d in found:
        if max(int(e) for e in d.partition.shape) > 128:
            continue
        whole, corner = d.partition.coalesced.picture(), d.picture((5, 6))
        assert corner.cells == tuple(line[:6] for line in whole.cells[:5])
        rows, columns = len(whole.rows), len(whole.columns)
        kept = [f"{k} of {n} {w}" for k, n, w in ((5, rows, "rows"), (6, columns, "columns")) if k < n]
        assert corner.title == whole.title + (f"; the first {' and '.join(kept)}" if kept else "")


@pytest.mark.parametrize(("bits", "shown"), [("f32", "(128,64,2):(1@lane,1@column,64@column)"), ("f16", "None")])
def test_buffers_of_tensor_memory_are_lanes_and_columns(bits: str, shown: str) -> None:
    space = space_of("matmul_hopper")
    (point,) = space.space.sample(1, np.random.default_rng(1))
    program = space.program(point)
    pipeline = program.pipelines[0]
    b = replace(
        pipeline.buffers[0], memory=TMEM, dtype=dtype(bits), shape=(expr(128), expr(64)), stages=expr(2),
        swizzle_bytes=None,
    )
    program = replace(program, pipelines=(replace(pipeline, buffers=(b,)),))
    (found,) = buffer_layouts(program)
    assert str(found.layout) == shown
    assert found.picture(4) is None
