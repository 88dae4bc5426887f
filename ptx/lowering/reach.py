"""What lowering writes, and the sentence for what it does not: programs that can be declared, traced and saved only."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction import BulkTransfer, MatrixLoad, MatrixMultiply
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import LoweringError


def check_reach(program: n.Program) -> None:
    """Raises LoweringError with everything in a filled-in program that has no lowering."""
    reasons = list(dict.fromkeys(_reasons(program)))
    if reasons:
        raise LoweringError(
            f"{program.machine} is not lowered: {_and(reasons)}; "
            "kernels are written for one role, one tile per CTA, no clusters, and instructions of sm_80 to sm_89"
        )


def _reasons(program: n.Program) -> Iterator[str]:
    if len(program.roles) > 1:
        yield f"the roles {_and([r.name for r in program.roles])} stand side by side"
    if program.grid.persistent:
        yield "the grid is persistent"
    if not program.grid.cluster.same(1):
        yield f"{program.grid.cluster} CTAs form a cluster"
    for s in walk(program.body):
        if isinstance(s, (n.Load, n.Store, n.Copy, n.Apply, n.Multiply)) and _unwritten(s.instruction):
            yield f"{s.name} is {s.instruction}"


def _unwritten(instruction: object) -> bool:
    if isinstance(instruction, MatrixMultiply):
        return instruction.places != (RMEM, RMEM, RMEM)
    if isinstance(instruction, MatrixLoad):
        return instruction.reads is not SMEM
    return isinstance(instruction, BulkTransfer)


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
