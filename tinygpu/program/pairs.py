"""CTAs that multiply in pairs: whose products these are, and the slots that both CTAs of a pair share.

The first CTA of a pair issues for both, so the role that multiplies exists there alone. A slot of its operands is full
when both CTAs have brought their part, which the first one's barrier says; a slot of its sums lies in both.
"""

from __future__ import annotations

from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import statements
from tinygpu.program.products import into_tensor_memory
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def pair_of(program: Program) -> int:
    """CTAs that multiply into tensor memory together: 1, or 2 in all of the program."""
    return 2 if any(map(_together, walk(program.body))) else 1


def pair_of_role(program: Program, role: str) -> int:
    """2 where a role multiplies for the pair: it exists in the first CTA only."""
    return 2 if any(map(_together, walk(tuple(statements(program.body, role))))) else 1


def pair_of_ring(program: Program, pipeline: str) -> int:
    """2 where a slot is one of both CTAs: operands that a pair multiplies, or sums that it adds up."""
    buffers = {b.name for b in program.pipeline(pipeline).buffers}
    products = [s for s in walk(program.body) if isinstance(s, n.Multiply) and _together(s)]
    if program.pipeline(pipeline).completion == COMMIT:
        return 2 if any(s.accumulator.name in buffers for s in products) else 1
    return 2 if any({s.a.name, s.b.name} & buffers for s in products) else 1


def _together(s: n.Statement) -> bool:
    return isinstance(s, n.Multiply) and into_tensor_memory(s) and s.instruction.ctas > 1
