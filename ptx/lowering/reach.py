"""What lowering writes, and the sentence for what it does not: programs that can be declared, traced and saved only."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import LoweringError


def check_reach(program: Program) -> None:
    """Raises LoweringError with everything in a filled-in program that has no lowering."""
    reasons = list(dict.fromkeys(_reasons(program)))
    if reasons:
        raise LoweringError(
            f"{program.machine} is not lowered: {_and(reasons)}; kernels are written for instructions that are "
            "not traced only, and for persistent grids and clusters where roles hand buffers over by mbarriers"
        )


def _reasons(program: Program) -> Iterator[str]:
    if any(p.completion == "tcgen05 commit" for p in program.pipelines):
        yield "a pipeline is completed by tcgen05 commit"
    if not side_by_side(program):
        if program.grid.scheduler.persistent:
            yield "the grid is persistent"
        if not program.grid.cluster.same(1):
            yield f"{program.grid.cluster} CTAs form a cluster"
    for s in walk(program.body):
        if any(instruction.traced_only or instruction.unwritten() for instruction in s.instructions):
            yield f"{getattr(s, 'name', s)} is {' and '.join(map(str, s.instructions))}"


def side_by_side(program: Program) -> bool:
    """Whether a program is written role by role: it has several, or buffers that mbarriers hand over."""
    return len(program.roles) > 1 or any(p.completion == "mbarrier" for p in program.pipelines)


def _and(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
