"""What lowering writes, and the sentence for what it does not: programs that can be declared, traced and saved only."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction import BulkTransfer, MatrixLoad, MatrixMultiply, MatrixStore
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.isa.stmatrix import StMatrix
from tinygpu.ptx.isa.tma import TmaLoad, TmaStore
from tinygpu.ptx.isa.wgmma import Wgmma
from tinygpu.ptx.lowering.context import LoweringError


def check_reach(program: Program) -> None:
    """Raises LoweringError with everything in a filled-in program that has no lowering."""
    reasons = list(dict.fromkeys(_reasons(program)))
    if reasons:
        raise LoweringError(
            f"{program.machine} is not lowered: {_and(reasons)}; kernels are written for the instructions of "
            "tinygpu.ptx.isa, and for persistent grids and clusters where roles hand buffers over by mbarriers"
        )


def _reasons(program: Program) -> Iterator[str]:
    if any(p.completion == "tcgen05 commit" for p in program.pipelines):
        yield "a pipeline is completed by tcgen05 commit"
    if not side_by_side(program):
        if program.grid.persistent:
            yield "the grid is persistent"
        if not program.grid.cluster.same(1):
            yield f"{program.grid.cluster} CTAs form a cluster"
    for s in walk(program.body):
        if isinstance(s, (n.Load, n.Store, n.Copy, n.Apply, n.Multiply)) and _unwritten(s.instruction):
            yield f"{s.name} is {s.instruction}"


def _unwritten(instruction: object) -> bool:
    if isinstance(instruction, MatrixMultiply):
        return instruction.places != (RMEM, RMEM, RMEM) and not isinstance(instruction, Wgmma)
    if isinstance(instruction, MatrixLoad):
        return instruction.reads is not SMEM
    if isinstance(instruction, MatrixStore):
        return not isinstance(instruction, StMatrix)
    return isinstance(instruction, BulkTransfer) and not isinstance(instruction, (TmaLoad, TmaStore))


def side_by_side(program: Program) -> bool:
    """Whether a program is written role by role: it has several, or buffers that mbarriers hand over."""
    return len(program.roles) > 1 or any(p.completion == "mbarrier" for p in program.pipelines)


def _and(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
