"""Builds the kernel of one candidate: its layouts are solved, its program filled in and lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.language.problem import Problem
from tinygpu.program.program import Program
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.lower import lower
from tinygpu.solver.buffers import SolvedLayouts, solve_buffers
from tinygpu.solver.smem import SolverCache


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A candidate's program, its layouts, and its kernel."""

    program: Program
    layouts: SolvedLayouts
    kernel: Kernel


def build(program: Program, problem: Problem, point: Mapping[str, int | str], cache: SolverCache) -> Built:
    """The kernel of a filled-in program; layouts that `cache` knows are not solved again."""
    layouts = solve_buffers(program, cache)
    return Built(program, layouts, lower(program, problem, point, layouts.swizzles))
