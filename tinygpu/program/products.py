"""Asynchronous products: those of a slot's block, the sums that they add up, and who else uses these.

What a role waits for, and where, follows from it: `tinygpu.program.groups`. Products into tensor memory are waited for
by nobody: when they are complete, they arrive at a barrier themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tinygpu.language.instruction import RowShift
from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.memories import RMEM
from tinygpu.language.roles import Pipeline
from tinygpu.program import nodes as n
from tinygpu.program.statement import Body, Statement
from tinygpu.program.tree import Use, walk


def products(body: tuple[Statement, ...]) -> Iterator[n.Multiply]:
    """Asynchronous products of a block that consumes a slot; not those of another slot's block inside of it."""
    for s in body:
        if isinstance(s, n.Multiply) and s.token is not None and not into_tensor_memory(s):
            yield s
        if not isinstance(s, n.Consume):
            for inner in s.children:
                yield from products(inner.statements)


def into_tensor_memory(s: Statement) -> bool:
    """Whether a statement multiplies into TMEM: one thread issues it, and a commit tells when it is complete."""
    return isinstance(s, n.Multiply) and s.token is not None and s.token.completion == COMMIT


def into_cells(s: Statement) -> bool:
    """Whether a statement copies from SMEM into TMEM: as a product there, by one thread, told of by a commit."""
    return isinstance(s, n.Copy) and s.token is not None and s.token.completion == COMMIT


def going_on_in(body: tuple[Statement, ...]) -> frozenset[str]:
    """Sums in tensor memory to which a block adds without beginning them, or beginning them in a branch only."""
    begun = {s.result.name for s in body if isinstance(s, n.Constant)}
    added = {s.accumulator.name for s in walk(body) if isinstance(s, n.Multiply) and into_tensor_memory(s)}
    return frozenset(added - begun)


def shifts(statements: Iterable[Statement]) -> Iterator[n.Copy]:
    """Those of some statements that move on rows in tensor memory, which were there before."""
    return (s for s in statements if isinstance(s, n.Copy) and isinstance(s.instruction, RowShift))


def read_by_commit(body: tuple[Statement, ...], pipeline: Pipeline) -> bool:
    """Whether products or copies into tensor memory read what a block has of a slot of this pipeline."""
    buffers = {buffer.name for buffer in pipeline.buffers}
    found = (s for s in walk(body) if into_tensor_memory(s) or into_cells(s))
    return any(bool({t.name for t in s.reads if t not in s.writes} & buffers) for s in found)


def outlives(body: tuple[Statement, ...], pipeline: Pipeline) -> bool:
    """Whether a commit gives slots back behind the last one that hands something over: nobody waits for it then.

    Slots that are read where sums are added up, or cells are filled for products, inside of the block that does so, are
    given back before these are handed over.
    """
    for s in body:
        if isinstance(s, n.Consume) and s.pipeline == pipeline.name and read_by_commit(s.body, pipeline):
            return True
        for inner in s.children:
            issued = (c for c in walk(inner.statements) if into_tensor_memory(c) or into_cells(c))
            hands_over = isinstance(s, n.Produce) and any(issued)
            if not hands_over and outlives(inner.statements, pipeline):
                return True
    return False


def sums(body: Body) -> frozenset[str]:
    """Registers in which tensor cores add up what they multiply of a slot."""
    return frozenset(s.accumulator.name for s in products(body.statements) if s.accumulator.memory is RMEM)


def touched(s: Statement) -> frozenset[str]:
    """Tiles that a statement itself reads or writes, but for the accumulators of an asynchronous product."""
    under_way = isinstance(s, n.Multiply) and s.token is not None
    tiles = (s.a, s.b) if isinstance(s, n.Multiply) and under_way else (*s.reads, *s.writes)
    return frozenset(t.name for t in tiles)


def used_in_rounds(use: Use) -> frozenset[str]:
    """Sums of a slot that other statements use in the innermost loop at run time around its block, beside the block."""
    rounds = [loop for loop in use.loops if not loop.written_out]
    found = sums(use.body)
    if not rounds or not found:
        return frozenset()
    inside = {id(s) for s in walk(use.body.statements)}
    beside = (touched(s) for body in rounds[-1].children for s in walk(body.statements) if id(s) not in inside)
    return found & frozenset().union(*beside)
