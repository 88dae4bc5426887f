"""A check of sums that tensor cores still work on: nobody else touches them in the loop that consumes their operands.

An asynchronous product of a warpgroup is waited for one round later, so that the next round's is asked for meanwhile;
its accumulators are complete behind the loop.
"""

from __future__ import annotations

from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk


def check_sums_under_way(program: Program) -> None:
    """Raises DeclarationError where a statement touches the accumulators of a product that is not complete."""
    for pipeline in program.pipelines:
        for use in uses(program.body, pipeline.name):
            sums = {
                s.accumulator.name
                for s in walk(use.body.statements)
                if isinstance(s, n.Multiply) and s.token is not None and s.accumulator.memory is RMEM
            }
            if not sums or use.does != "consume":
                continue
            # what stands in the innermost loop at run time, or, where there is none, in the block that consumes
            around = [use.place.statement, *(loop for loop in use.loops if not loop.written_out)][-1]
            for s in walk((around,)):
                for name in sorted(sums & _touched(s)):
                    raise DeclarationError(
                        f"{program.machine}.program: %{name.removeprefix('%')} is used in the loop that consumes "
                        f"{pipeline.name!r}, while tensor cores still work on it; use its sums behind the loop"
                    )


def _touched(s: n.Statement) -> frozenset[str]:
    """Tiles that a statement itself reads or writes, but for the accumulators of a product."""
    touched = (s.a, s.b) if isinstance(s, n.Multiply) else (*s.reads, *s.writes)
    return frozenset(t.name for t in touched)
