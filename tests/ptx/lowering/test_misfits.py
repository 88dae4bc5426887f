"""A statement with an instruction, a tile or a place that it cannot have is refused in a sentence.

The language lets none of these through: they are made here by exchanging one field of one statement of a program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
import test_drawn_kernels as drawn

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language import Problem
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import bulk
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@cache
def programs(name: str) -> list[tuple[Program, Problem, dict[str, int | str], dict[str, Any]]]:
    """A filled-in program of each structure of a machine, with what lowering needs beside it."""
    machine = drawn.MACHINES[name]
    problem = drawn.posed(machine, 0)
    space = build_space(machine, problem, device(drawn.OLDER.get(machine, "h100"))).space
    found: dict[object, tuple[Program, Problem, dict[str, int | str], dict[str, Any]]] = {}
    for point in space.sample(30, np.random.default_rng(3)):
        structure = tuple((c.name, point[c.name]) for c in machine.choices())
        if structure not in found:
            fill, axes = drawn.traced(machine, problem, structure)
            program = fill.fill({axis: int(point[axis]) for axis in axes})
            found[structure] = program, problem, dict(point), solve_buffers(program, SolverCache()).swizzles
    return list(found.values())


def exchanged(value: Any, old: n.Statement, new: n.Statement) -> Any:
    """Statements, or one that holds others, with one of them exchanged."""
    if value is old:
        return new
    if isinstance(value, tuple):
        return tuple(exchanged(v, old, new) for v in value)
    if isinstance(value, n.Pipelined):
        return replace(value, produce=exchanged(value.produce, old, new), consume=exchanged(value.consume, old, new))
    if isinstance(value, (n.Loop, n.Produce, n.Consume, n.FixUp, n.Scope, n.InRole)):
        return replace(value, body=exchanged(value.body, old, new))
    return value


def refusal(name: str, which: str, edit: Callable[[n.Statement, list[n.Statement]], n.Statement]) -> str:
    """What lowering says of the first program of a machine that has a statement of this name, after an edit of it."""
    for program, problem, point, swizzles in programs(name):
        every = list(walk(program.body))
        for s in every:
            if getattr(s, "name", "") == which:
                edited = replace(program, body=exchanged(program.body, s, edit(s, every)))
                with pytest.raises(LoweringError) as refused:
                    lower(edited, problem, point, swizzles)
                return str(refused.value)
    raise AssertionError(f"{name} has no statement {which}")


def tensor(every: list[n.Statement]) -> Tile:
    """A window of a tensor, which no thread holds."""
    return next(s.source for s in every if isinstance(s, (n.Load, n.Copy)) and s.source.tensor is not None)


def shared(every: list[n.Statement]) -> Tile:
    tiles = (getattr(s, field, None) for s in every for field in ("source", "target"))
    return next(tile for tile in tiles if isinstance(tile, Tile) and tile.buffer is not None)


CONVERT, LDMATRIX, STMATRIX = isa.Cvt("f16", "f32"), isa.LdMatrix(), isa.StMatrix()
BULK, UNWRITTEN = "cp.async.bulk.tensor", "cannot be written for this target yet"
NO_LOAD, NO_STORE = "does not load thread by thread", "does not store registers thread by thread"
NO_OPERAND = "is no operand of wgmma: it lies in no swizzled buffer"
OUTSIDE = "mma (mma.sync) on operands outside registers cannot be written for a warp"


@pytest.mark.parametrize(
    ("name", "which", "edit", "sentence"),
    [
        ("Fragments", "get", lambda s, _: replace(s, instruction=STMATRIX), f"get {NO_LOAD}"),
        ("Fragments", "get", lambda s, e: replace(s, result=tensor(e)), f"get {NO_LOAD}"),
        ("Fragments", "put", lambda s, _: replace(s, instruction=LDMATRIX), f"put {NO_STORE}"),
        ("Fragments", "put", lambda s, e: replace(s, value=tensor(e)), "put does not store matrices"),
        ("Fragments", "put", lambda s, e: replace(s, target=tensor(e)), "x does not lie in SMEM"),
        ("Fragments", "ld", lambda s, _: replace(s, instruction=CONVERT), f"ld {NO_LOAD}"),
        ("Fragments", "ld", lambda s, e: replace(s, result=tensor(e)), f"ld {NO_LOAD}"),
        ("Fragments", "st", lambda s, _: replace(s, instruction=CONVERT), f"st {NO_STORE}"),
        ("Fragments", "st", lambda s, e: replace(s, value=tensor(e)), f"st {NO_STORE}"),
        ("MatmulAmpere", "mma", lambda s, e: replace(s, a=tensor(e)), OUTSIDE),
        ("MatmulAmpere", "mma", lambda s, e: replace(s, b=tensor(e)), OUTSIDE),
        ("MatmulAmpere", "mma", lambda s, e: replace(s, accumulator=tensor(e)), OUTSIDE),
        ("MatmulHopper", "tma", lambda s, _: replace(s, instruction=CONVERT), f"tma ({CONVERT}) {UNWRITTEN}"),
        ("MatmulHopper", "tma", lambda s, e: replace(s, source=shared(e)), f"tma ({BULK}) {UNWRITTEN}"),
        ("MatmulHopper", "tma", lambda s, e: replace(s, target=tensor(e)), f"tma ({BULK}) {UNWRITTEN}"),
        ("MatmulHopper", "put", lambda s, _: replace(s, instruction=CONVERT), f"put ({CONVERT}) {UNWRITTEN}"),
        ("MatmulHopper", "put", lambda s, e: replace(s, target=shared(e)), f"put ({BULK}) {UNWRITTEN}"),
        ("MatmulHopper", "put", lambda s, e: replace(s, source=tensor(e)), f"put ({BULK}) {UNWRITTEN}"),
        ("MatmulHopper", "wgmma", lambda s, e: replace(s, a=tensor(e)), f"a {NO_OPERAND}"),
        ("MatmulHopper", "wgmma", lambda s, e: replace(s, b=tensor(e)), f"a {NO_OPERAND}"),
    ],
)  # fmt: skip
def test_a_statement_that_does_not_fit_is_refused(name: str, which: str, edit: Any, sentence: str) -> None:
    assert refusal(name, which, edit) == sentence


def test_threads_that_nothing_lets_meet_are_not_reduced() -> None:
    for program, problem, point, swizzles in programs("RmsOfRows"):
        (s, *_) = [s for s in walk(program.body) if isinstance(s, n.Reduce)]
        edited = replace(program, body=exchanged(program.body, s, replace(s, by=None)))
        with pytest.raises(LoweringError) as refused:
            lower(edited, problem, point, swizzles)
        held = f"%{s.sources[0].name} is held by several threads along axis {s.axis}"
        assert str(refused.value) == f"{held}, and nothing is said that lets them meet"


def test_a_fill_by_tma_does_nothing_but_copy() -> None:
    program, problem, point, swizzles = programs("MatmulHopper")[0]
    every = list(walk(program.body))
    (fill, *_) = [s for s in every if isinstance(s, n.Produce)]
    (other, *_) = [s for s in every if isinstance(s, n.Apply)]
    edited = replace(program, body=exchanged(program.body, fill, replace(fill, body=(*fill.body, other))))
    with pytest.raises(LoweringError) as refused:
        lower(edited, problem, point, swizzles)
    assert str(refused.value) == f"{fill.pipeline} is produced by TMA, and its produce() does more than copy"


def test_boxes_are_of_a_window_with_a_contiguous_axis_and_a_swizzled_buffer() -> None:
    copies = [s for p, *_ in programs("MatmulHopper") for s in walk(p.body) if isinstance(s, n.Copy)]
    (copy, *_) = [s for s in copies if s.target.buffer is not None]
    window, buffer = copy.source, copy.target.buffer
    assert buffer is not None
    assert window.tensor is not None
    assert buffer.swizzle_bytes is not None
    assert bulk.boxes(window, buffer).inner == int(expr(buffer.swizzle_bytes)) * 8 // buffer.dtype.bits
    aside = tuple(None if axis == window.tensor.contiguous_axis else axis for axis in window.axes)
    for tile, place in (
        (replace(window, tensor=None), buffer),
        (window, replace(buffer, swizzle_bytes=None)),
        (replace(window, axes=aside), buffer),
    ):
        with pytest.raises(LoweringError) as refused:
            bulk.boxes(tile, place)
        assert str(refused.value) == f"{window.name} is not moved to or from {buffer.name} by TMA"
