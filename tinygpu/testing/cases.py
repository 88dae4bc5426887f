"""The checks of one case, by name: each says in a sentence what is wrong, or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.expressions import FloorDiv
from tinygpu.language.memories import GMEM
from tinygpu.language.problem import Problem
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.build import build
from tinygpu.ptx.verification import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace
from tinygpu.testing.case import Case, resize
from tinygpu.testing.coverage import (
    layout_fault,
    partition_fault,
    partitions,
    small_problem_dims,
    store_fault,
    value,
)
from tinygpu.testing.enumeration import enumerate_cta, statements
from tinygpu.testing.judges import judge

# Pointers at the start of a row of banks and rows in whole sectors: the layouts for which closed forms are exact.
ROOMY_ALIGN_BYTES = 256
SECTOR_BITS = 256


def examine(check: str, case: Case, cache: SolverCache | None = None) -> str:
    """What is wrong with a case, by one of the checks; "" when nothing is.

    check  "traces", "partitions", "layouts", "counts", "meter", "kernel" or "refused"
    """
    if check not in CHECKS:
        raise ValueError(f"there is no check {check!r}; there are {', '.join(CHECKS)}")
    return CHECKS[check](case, cache or SolverCache())


def traces(case: Case, cache: SolverCache) -> str:
    """The space can be built: every structure can be traced for these types, orders and options."""
    try:
        case.space()
    except Exception as error:  # whatever a user's program raises is a finding, not the end of the check
        return f"no space can be built: {type(error).__name__}: {error}"
    return ""


def covers(case: Case, cache: SolverCache) -> str:
    """Every partition holds every element of its tile once, and every output element is stored once."""
    program = _filled(case)
    for name, partition in partitions(program):
        fault = partition_fault(partition)
        if fault:
            return f"the partition of {name}: {fault}"
    small = resize(case.machine, case.problem, small_problem_dims(program, case.problem))
    return store_fault(program, small)


def lays_out(case: Case, cache: SolverCache) -> str:
    """Buffers lie apart, their layouts keep every element, and no access leaves its buffer."""
    program = _filled(case)
    return layout_fault(program, solve_buffers(program, cache))


def counts(case: Case, cache: SolverCache) -> str:
    """Closed forms of one CTA inside the tensors equal what listing every lane's address gives.

    Rows begin at sector boundaries here; elsewhere the closed form of sectors is a bound.
    """
    program = _filled(case)
    inside = whole_problem(program, case, tiles=1)
    if inside is None:
        return ""
    space = case.space()
    layouts = solve_buffers(program, cache)
    listed = enumerate_cta(program, inside, layouts, {})
    said = closed_forms(space, case, inside)
    for name, amount in said.items():
        if amount != getattr(listed, name):
            return f"{name} of one CTA on {inside}: the closed form says {amount:,}, listing {getattr(listed, name):,}"
    if _only_solved(program):
        promised = sum(layouts.conflicts.values())
        found = listed.wavefronts_read + listed.wavefronts_written - listed.ideal_read - listed.ideal_written
        if bool(promised) != bool(found):
            return f"the solver leaves {promised:,} conflicts in all buffers together, and listing finds {found:,}"
    return ""


def meter(case: Case, cache: SolverCache) -> str:
    """The emulator's exact counts on whole tiles equal those of listing one CTA, times the CTAs."""
    found = whole_problem(_filled(case), case)
    if found is None:
        return ""
    program = case.space().fill(case.point or {})
    built = build(program, found, case.point or {}, cache)
    ctas = math.prod(built.kernel.grid(found))
    one = enumerate_cta(program, found, built.layouts, {})
    verification = verify(
        built.kernel, case.machine, found, orders=("late",), random_inputs=False, derived=found
    )
    c = verification.counters
    if c is None:
        return f"on {found}: {verification.checks[0]}"
    pairs = {
        "sectors read": (one.sectors_read, c.global_load_sectors),
        "sectors written": (one.sectors_written, c.global_store_sectors),
        "shared wavefronts read": (one.wavefronts_read, c.shared_load_wavefronts),
        "shared wavefronts written": (one.wavefronts_written, c.shared_store_wavefronts),
    }
    for name, (each, measured) in pairs.items():
        if each * ctas != measured:
            return f"{name} on {found}: {ctas} CTAs x {each:,} by listing, {measured:,} by the emulator"
    return ""


def kernel(case: Case, cache: SolverCache) -> str:
    """The candidate lowers, assembles, runs without a fault, and gives what the reference gives."""
    judged = judge(case, cache)
    return "" if judged.stage == "right" else f"{judged.stage}: {judged.sentence}"


def refused(case: Case, cache: SolverCache) -> str:
    """The candidate, which the space rejects as illegal, does not work."""
    judged = judge(case, cache)
    if judged.stage != "right":
        return ""
    reasons = "; ".join(str(v) for v in case.space().space.explain(case.point or {}))
    return f"it lowers, assembles and is right, and yet the space rejects it: {reasons}"


CHECKS: Mapping[str, Callable[[Case, SolverCache], str]] = {
    "traces": traces,
    "partitions": covers,
    "layouts": lays_out,
    "counts": counts,
    "meter": meter,
    "kernel": kernel,
    "refused": refused,
}


# -- what the checks share -------------------------------------------------------------------------------------------


def _filled(case: Case) -> Program:
    if case.point is None:
        raise ValueError(f"{case} names no candidate")
    return case.space().fill(case.point)


def closed_forms(space: MachineSpace, case: Case, problem: Problem) -> dict[str, int]:
    """The closed forms' amounts of one CTA, over all of its rounds."""
    point = case.point or {}
    index = space.structure_index(point)
    axes = {a: int(point[a]) for a in space.traces[index].axes}
    demand = space.counts(index).demand({**space.environment, **problem.environment(), **axes}, space.device)

    def total(name: str) -> int:
        phases = (demand.prologue.work, demand.iteration.work, demand.epilogue.work)
        before, each, after = (getattr(work, name) for work in phases)
        return int(before + demand.iterations * each + after)

    return {
        "sectors_read": total("sectors_read"),
        "sectors_written": total("sectors_written"),
        "ideal_read": total("smem_load_wavefronts"),
        "ideal_written": total("smem_store_wavefronts"),
        "tensor_flops": total("tensor_flops"),
    }


def roomy_problem(problem: Problem) -> Problem:
    """The problem with pointers and rows at sector boundaries."""
    operands = []
    for o in problem.operands:
        per = max(1, SECTOR_BITS // o.dtype.bits)
        ld = -(-o.ld // per) * per if len(o.shape) > 1 else o.ld
        operands.append(replace(o, ld=ld, align_bytes=max(o.align_bytes, ROOMY_ALIGN_BYTES)))
    return replace(problem, operands=tuple(operands))


def _only_solved(program: Program) -> bool:
    """Whether every buffer has a layout that the solver chose."""
    return all(b.layout for p in program.pipelines for b in p.buffers)


@dataclass(frozen=True, slots=True)
class _Extent:
    """A dim is walked in pieces of `extent`; `grid`: by the grid's axes."""

    dim: str
    extent: int
    grid: bool


def whole_problem(program: Program, case: Case, tiles: int = 2) -> Problem | None:
    """The problem with whole tiles only, `tiles` of them along each grid axis, rows and pointers at sector boundaries.

    None where windows reach beyond the tensors all the same, or where the machine refuses such sizes.
    """
    wanted: dict[str, int] = {}
    least: dict[str, int] = {}
    for piece in _extents(program):
        wanted[piece.dim] = math.lcm(wanted.get(piece.dim, 1), piece.extent)
        if piece.grid:
            least[piece.dim] = tiles
    dims = {}
    for name, size in case.problem.dims:
        step = wanted.get(name, 1)
        dims[name] = least.get(name, -(-size // step)) * step
    roomy = roomy_problem(resize(case.machine, case.problem, dims))
    if math.prod(dims.values()) > 1 << 27 or _illegal(case, roomy):
        return None
    if not _inside(program, roomy):
        return None
    return roomy


def pieces(program: Program) -> list[tuple[str, int]]:
    """(dim, extent) of every axis of the grid, loop and window: in what pieces a program walks its dims."""
    return [(e.dim, e.extent) for e in _extents(program)]


def _extents(program: Program) -> list[_Extent]:
    out = [_Extent(a.size.sympy.name, int(a.extent), True) for a in program.grid.axes]
    for s in walk(program.body):
        if isinstance(s, (n.Loop, n.Pipelined)) and not s.trips.is_number:
            node = s.trips.sympy
            divided = isinstance(node, FloorDiv) and node.args[1].is_Integer
            out += [_Extent(d, int(node.args[1]) if divided else 1, False) for d in s.trips.symbols]
        for tile in _windows(s):
            if tile.tensor is not None:
                for axis, home in enumerate(tile.axes):
                    if home is not None:
                        out.append(_Extent(tile.tensor.dims[home], int(tile.shape[axis]), False))
    return out


def _windows(s: n.Statement) -> list[Any]:
    tiles = [getattr(s, name, None) for name in ("source", "target")]
    return [t for t in tiles if t is not None and t.memory is GMEM]


def _illegal(case: Case, problem: Problem) -> bool:
    space = replace(case, problem=problem).space().space
    return any(v.constraint is None or v.constraint.kind == "legality" for v in space.explain(case.point or {}))


def _inside(program: Program, problem: Problem) -> bool:
    """Whether every window of the first and of the last CTA lies inside its tensor."""
    last = {a.index: -(-problem.dim[a.size.sympy.name] // int(a.extent)) - 1 for a in program.grid.axes}
    for rounds in ({a.index: 0 for a in program.grid.axes}, last):
        known = {**problem.environment(), **rounds}
        for s, at in statements(program.body, known):
            for tile in _windows(s):
                shape = problem.operand(tile.name).shape
                for axis, home in enumerate(tile.axes):
                    if home is None:
                        continue
                    start = value(tile.offset[axis], at)
                    if start < 0 or start + int(tile.shape[axis]) > shape[home]:
                        return False
    return True


__all__ = ["CHECKS", "closed_forms", "examine", "pieces", "roomy_problem", "whole_problem"]
