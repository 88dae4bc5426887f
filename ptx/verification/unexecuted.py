"""Statements that no run of a verification executed: nothing is known of them, whatever the verdict says of all else.

A statement counts as executed where a warp comes to one of its instructions: of the ways that it is printed in, for
whole tiles and for others, a problem may have some alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygpu.program import nodes as n
from tinygpu.ptx.verification.comparison import Check
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.naming import some_of


def unexecuted(checks: Iterable[Check], instructions: Iterable[int], info: LineInfo | None) -> tuple[n.Statement, ...]:
    """The statements, in the order of the text.

    instructions  lines of the PTX, from 1, that hold one
    info          of the kernel; without, nobody knows of statements, and there are none
    """
    executed = frozenset[int]().union(*(c.executed for c in checks))
    never = sorted(frozenset(instructions) - executed)
    if info is None or not never:
        return ()
    came_to = {id(found.statement) for line in executed if (found := info.lines.get(line)) is not None}
    statements = [found.statement for line in never if (found := info.lines.get(line)) is not None]
    return tuple({id(s): s for s in statements if id(s) not in came_to}.values())


def told_unexecuted(statements: Sequence[n.Statement]) -> str:
    """A sentence about statements that no run executed."""
    named = [f"`{s.headline(frozenset())}`{f' of {s.place}' if s.place else ''}" for s in statements]
    of = "it" if len(named) == 1 else "them"
    return (
        f"no run executed {some_of(named)}, so that nothing is known of {of}; "
        "declare values= of the inputs, or take a shape, by which a branch or a loop comes there"
    )
