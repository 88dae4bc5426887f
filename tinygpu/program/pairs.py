"""CTAs that multiply in pairs: whose products these are, and the slots that both CTAs of a pair share.

The first CTA of a pair issues for both, so the role that multiplies exists there alone. A slot of its operands is full
when both CTAs have brought their part, which the first one's barrier says; a slot of its sums lies in both.
"""

from __future__ import annotations

from tinygpu.language.instruction import CellCopy
from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import statements
from tinygpu.program.products import into_cells, into_tensor_memory
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def pair_of(program: Program) -> int:
    """CTAs that use tensor memory together: 1, or 2 in all of the program."""
    return 2 if any(map(_together, walk(program.body))) else 1


def pair_of_role(program: Program, role: str) -> int:
    """2 where a role multiplies, or copies what is multiplied, for the pair: it exists in the first CTA only."""
    return 2 if any(map(_together, walk(tuple(statements(program.body, role))))) else 1


def pair_of_ring(program: Program, pipeline: str) -> int:
    """2 where a slot is one of both CTAs: operands that a pair multiplies, or sums that both take.

    What the first CTA's roles alone fill and drain, as scales that one copies and another multiplies by, is theirs.
    """
    buffers = {b.name for b in program.pipeline(pipeline).buffers}
    used = [s for s in walk(program.body) if _together(s)]
    if program.pipeline(pipeline).completion == COMMIT:
        both = any(_consumes(program, r.name, pipeline) and pair_of_role(program, r.name) == 1 for r in program.roles)
        return 2 if both and any({t.name for t in s.writes} & buffers for s in used) else 1
    return 2 if any({t.name for t in s.reads} & buffers for s in used) else 1


def _consumes(program: Program, role: str, pipeline: str) -> bool:
    mine = walk(tuple(statements(program.body, role)))
    return any(isinstance(s, n.Consume) and s.pipeline == pipeline for s in mine)


def _together(s: n.Statement) -> bool:
    if isinstance(s, n.Copy) and into_cells(s):
        return isinstance(s.instruction, CellCopy) and s.instruction.ctas > 1
    return isinstance(s, n.Multiply) and into_tensor_memory(s) and s.instruction.ctas > 1
