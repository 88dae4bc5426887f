"""What lowering writes, and the sentence for what it does not: programs that can be declared, traced and saved only."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.roles import HANDED_OVER
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import LoweringError


def check_reach(program: Program) -> None:
    """Raises LoweringError with everything in a filled-in program that has no lowering."""
    reasons = list(dict.fromkeys(_reasons(program)))
    if reasons:
        raise LoweringError(
            f"{program.machine} is not lowered: {_and(reasons)}; kernels are written for instructions that are "
            "not traced only"
        )


def _reasons(program: Program) -> Iterator[str]:
    for s in walk(program.body):
        if any(instruction.traced_only or instruction.unwritten() for instruction in s.instructions):
            yield f"{getattr(s, 'name', s)} is {' and '.join(map(str, s.instructions))}"


def side_by_side(program: Program) -> bool:
    """Whether a program is written role by role, each with its walk over the tiles, and with barriers between them."""
    handed = any(p.completion in HANDED_OVER for p in program.pipelines)
    return len(program.roles) > 1 or handed or program.grid.scheduler.persistent or int(program.grid.cluster) > 1


def _and(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
