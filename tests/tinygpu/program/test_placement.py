"""Places of buffers against who is alive when: what lives together lies apart, and no byte is taken beyond that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import SMEM, TMEM
from tinygpu.language.partition import expr
from tinygpu.language.roles import Pipeline, role
from tinygpu.program import nodes as n
from tinygpu.program.placement import place
from tinygpu.program.program import Program

GRID = n.Grid((), expr(1), expr(1))  # asks for nothing


@dataclass
class Drawn:
    """Scopes within scopes, and what each needs."""

    body: list[n.Statement]
    pipelines: list[Pipeline]
    number: Iterator[int]


def buffer(name: str, rows: int, columns: int, pad: int, stages: int, width: int | None, memory: Any) -> Buffer:
    shape, swizzle = (expr(rows), expr(columns)), expr(width) if width is not None else None
    return Buffer(name, memory, dtype("f16"), shape, 1, expr(pad), "", expr(stages), swizzle)


@st.composite
def bodies(draw: st.DrawFn, swizzled: bool, number: Iterator[int], depth: int = 0) -> tuple[Any, list[Pipeline]]:
    """Statements, and the pipelines of the scopes among them."""
    out: list[n.Statement] = []
    pipelines: list[Pipeline] = []
    for _ in range(draw(st.integers(1, 2 if depth else 3))):
        inner: Any = ()
        if depth < 2:
            inner, more = draw(bodies(swizzled, number, depth + 1))
            pipelines += more
        kind = draw(st.sampled_from(["scope", "scope", "loop", "produce", "consume", "fix_up"]))
        if kind == "scope":
            own = []
            for _ in range(draw(st.integers(1, 2))):
                name, stages = f"p{next(number)}", draw(st.integers(1, 3))
                buffers = []
                for b in range(draw(st.integers(1, 2))):
                    width = draw(st.sampled_from([32, 64, 128])) if swizzled else None
                    memory = draw(st.sampled_from([SMEM, SMEM, SMEM, TMEM]))
                    rows, columns = draw(st.integers(1, 9)), 64 * draw(st.integers(1, 3))
                    pad = 0 if swizzled else draw(st.integers(0, 8))
                    buffers.append(buffer(f"{name}.{b}", rows, columns, pad, stages, width, memory))
                completion = draw(st.sampled_from(["barrier", "commit group", "mbarrier", "tcgen05 commit", "turn"]))
                own.append(Pipeline(name, expr(stages), tuple(buffers), completion))
            pipelines += own
            out.append(n.Scope(tuple(p.name for p in own), inner))
        elif kind == "loop":
            out.append(n.Loop("i", expr(3), draw(st.booleans()), inner))
        elif kind == "fix_up":
            out.append(n.FixUp("g", *[Any] * 5, inner))  # type: ignore[arg-type]
        else:
            out.append(n.Produce("ring", inner) if kind == "produce" else n.Consume("ring", inner))
    return tuple(out), pipelines


def needs(p: Pipeline, align: int) -> dict[str, int]:
    """Bytes of every buffer, in whole multiples of the alignment."""
    out = {}
    for b in p.buffers:
        if b.memory is SMEM:
            out[b.name] = int(b.stages) * int(b.rows) * (int(b.shape[1]) + int(b.pad)) * 2
    return {name: -(-size // align) * align for name, size in out.items()}


def of_barriers(p: Pipeline, roles: int) -> int:
    """Bytes of all barriers of a pipeline."""
    slots = 16 * int(p.stages) + 8 * any(b.memory is TMEM for b in p.buffers)
    return {"mbarrier": slots, "tcgen05 commit": slots, "turn": 8 * roles}.get(p.completion, 0)


def chains(body: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The pipelines that live together, from the outermost scope inwards."""
    for s in body:
        here = (*above, *s.pipelines) if isinstance(s, n.Scope) else above
        yield here
        yield from chains(s.body, here)


@pytest.mark.parametrize(("roles", "swizzled"), [(1, False), (1, True), (2, False), (2, True)])
@settings(max_examples=20)
@given(data=st.data())
def test_what_lives_together_lies_apart_and_nothing_is_wasted(data: Any, roles: int, swizzled: bool) -> None:
    """Of one role scopes that follow each other share; several roles share nothing."""
    body, pipelines = data.draw(bodies(swizzled, itertools.count()))
    found = tuple(role(f"r{i}", 1, i) for i in range(roles))
    program = Program("M", (), (), (), GRID, found, tuple(pipelines), body)
    placed = place(program, {"p0.0": ((1, 16),)})
    align = 1024 if any(b.swizzle_bytes is not None for p in pipelines for b in p.buffers) else 128
    assert placed.align_bytes == align
    sizes = {p.name: needs(p, align) for p in pipelines}
    every = {name: size for of in sizes.values() for name, size in of.items()}
    begins = {name: place.offset_bytes for name, place in placed.places.items()}
    assert set(begins) == set(every)
    assert all(begin % align == 0 for begin in begins.values())
    together = list(chains(body, ())) if roles == 1 else [tuple(sizes)]
    for names in together:
        live = sorted((begins[x], begins[x] + sizes[p][x]) for p in names for x in sizes[p])
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(live))
    least = max((sum(sum(sizes[p].values()) for p in names) for names in together), default=0)
    at = least
    for p in pipelines:  # behind all buffers, side by side, whatever the scopes
        if p.completion in ("mbarrier", "tcgen05 commit", "turn"):
            assert placed.barriers[p.name] == at
        else:
            assert p.name not in placed.barriers
        at += of_barriers(p, roles)
    assert placed.total_bytes == at
    for p in pipelines:
        for b in (b for b in p.buffers if b.memory is SMEM):
            at, row = placed.places[b.name], (int(b.shape[1]) + int(b.pad)) * 2
            stage, own = int(b.rows) * row, ((1, 16),) if b.name == "p0.0" else ()
            of_rows = (row, own, 0, 0)
            if b.swizzle_bytes is not None:
                width = int(b.swizzle_bytes)
                of_rows = (width, swizzle_of(width), width, int(b.rows) * width)
            wanted = (stage, int(b.stages), *of_rows)
            assert (at.stage_bytes, at.stages, at.pitch_bytes, at.xor, at.swizzle_bytes, at.block_bytes) == wanted


@settings(max_examples=200)
@given(data=st.data())
def test_a_buffers_layout_puts_every_element_where_its_rows_say(data: Any) -> None:
    """Any number of axes, pitches and stages, swizzles of row bits; and rows as the hardware swizzles them."""
    width = data.draw(st.sampled_from([None, None, 32, 64, 128]))
    shape = data.draw(st.lists(st.sampled_from([3, 5, 12, 2, 8, 1]), min_size=1, max_size=2 if width else 3))
    contiguous = data.draw(st.integers(0, len(shape) - 1))
    kind, stages = data.draw(st.sampled_from(["f32", "f16", "s8"])), data.draw(st.integers(1, 3))
    pad = 0 if width else data.draw(st.sampled_from([0, 1, 4, 7]))
    if width:
        shape = [*shape, 8]
        shape[contiguous] *= width // dtype(kind).bytes
    b = Buffer("p.b", SMEM, dtype(kind), tuple(map(expr, shape)), contiguous, expr(pad), "", expr(stages))
    b = replace(b, swizzle_bytes=None if width is None else expr(width))
    rows, pitch = int(b.rows), int(b.pitch_bytes)
    bits = range((rows - 1).bit_length()) if pitch >= 64 and pitch & pitch - 1 == 0 else ()
    xor = tuple((bit, data.draw(st.sampled_from([16, 32, 48]))) for bit in bits if data.draw(st.booleans()))
    ring, body = Pipeline("p", expr(stages), (b,), "barrier"), (n.Scope(("p",), ()),)
    program = Program("M", (), (), (), GRID, (role("r", 1, 0),), (ring,), body)
    at = place(program, {"p.b": xor}).places["p.b"]
    coordinates = np.indices(shape).reshape(len(shape), -1).T
    row = np.zeros(len(coordinates), dtype=np.int64)
    for axis in (axis for axis in range(len(shape)) if axis != contiguous):
        row = row * shape[axis] + coordinates[:, axis]
    block, byte = np.divmod(coordinates[:, contiguous] * dtype(kind).bytes, width or 1 << 30)
    for bit, mask in swizzle_of(width) if width else xor:
        byte ^= (row >> bit & 1) * mask
    wanted = block * rows * width + row * width + byte if width else row * pitch + byte
    assert np.array_equal(at.addresses(coordinates), wanted)
    stage = np.broadcast_to(np.arange(stages)[:, None, None], (stages, len(coordinates), 1))
    everything = np.concatenate([np.broadcast_to(coordinates, (stages, *coordinates.shape)), stage], axis=-1)
    found = at.layout.at_coordinates(everything)
    assert np.array_equal(found, wanted + np.arange(stages)[:, None] * rows * pitch)
    assert len(np.unique(found)) == found.size


def swizzle_of(width: int) -> tuple[tuple[int, int], ...]:
    """PTX ISA, "Swizzling Modes": the 16-byte chunk c of line l of 128 bytes lies at c ^ (l mod (width / 16))."""
    moves = [(bit, (width << bit) // 128 % (width // 16) * 16) for bit in range(3)]
    return tuple((bit, mask) for bit, mask in moves if mask)
