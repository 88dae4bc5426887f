"""A check of sums that tensor cores still work on: nobody else touches them in the block that multiplies.

An asynchronous product of a warpgroup is waited for behind the block that consumes its operands, before the first
statement there that touches its accumulators (`tinygpu.program.groups`).
"""

from __future__ import annotations

from tinygpu.language.parameters import DeclarationError
from tinygpu.program.products import sums, touched
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk


def check_sums_under_way(program: Program) -> None:
    """Raises DeclarationError where a statement touches the accumulators of a product that is not complete."""
    for pipeline in program.pipelines:
        for use in uses(program.body, pipeline.name):
            under_way = sums(use.body) if use.does == "consume" else frozenset()
            for s in walk(use.body.statements):
                for name in sorted(under_way & touched(s)):
                    raise DeclarationError(
                        f"{program.machine}.program: %{name.removeprefix('%')} is used in the block that consumes "
                        f"{pipeline.name!r}, while tensor cores still work on it; use its sums behind the block"
                    )
