"""What a role does, and whether one of its threads issues what engines carry out: once, not once a thread."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.memories import TMEM
from tinygpu.language.roles import HANDED_OVER
from tinygpu.program import nodes as n
from tinygpu.program.products import into_cells, into_tensor_memory, read_by_commit
from tinygpu.program.program import Program
from tinygpu.program.tree import leaves, walk


def statements(body: tuple[n.Statement, ...], role: str) -> Iterator[n.Statement]:
    """What a role does, from all its blocks in order."""
    for s in body:
        if isinstance(s, n.InRole):
            yield from s.body if s.role == role else ()
        else:
            for inner in s.children:
                yield from statements(inner.statements, role)


def one_issues(program: Program, mine: tuple[n.Statement, ...]) -> bool:
    """Whether one thread issues all that a role does of a tile, behind statements that all of its threads carry out."""
    return found_by_all(program, mine) is not None


def found_by_all(program: Program, mine: tuple[n.Statement, ...]) -> int | None:
    """How many statements of a role all of its threads carry out, before one issues the others; None: they do all.

    What all do first finds numbers, by which the one thread goes on: it hands nothing over.
    """
    for first in range(len(mine)):
        if by_one_thread(program, mine[first:]):
            return first
        if any(inner.produces or inner.consumes for s in walk(mine[first : first + 1]) for inner in s.children):
            return None
    return None


def by_one_thread(program: Program, mine: tuple[n.Statement, ...]) -> bool:
    """Whether a role does nothing but what one thread issues, with the numbers that data say for that: bulk copies, and
    products into tensor memory. Slots that others read are given back by all warps of a role.
    """
    consumed = [s for s in walk(mine) if isinstance(s, n.Consume)]
    for s in consumed:
        pipeline = program.pipeline(s.pipeline)
        if pipeline.completion in HANDED_OVER and not read_by_commit(s.body, pipeline):
            return False
    numbers = {s.value.name for s in walk(mine) if isinstance(s, n.Uniform)}
    done = [s for s in leaves(mine) if not s.defines and not {t.name for t in s.writes} <= numbers]
    return bool(done) and all(map(issued, done))


def issued(s: n.Statement) -> bool:
    """Whether one thread issues a statement: a bulk copy, a product or copy into TMEM, or where its sums begin."""
    if isinstance(s, n.Copy):
        return isinstance(s.instruction, BulkTransfer) or into_cells(s)
    begins = isinstance(s, n.Constant) and s.result.memory is TMEM
    return begins or into_tensor_memory(s)
