"""Checks of products into tensor memory: one thread issues them and does nothing else, and sums have a beginning."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.memories import TMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import Pipeline
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import by_one_thread, issued, statements
from tinygpu.program.products import into_tensor_memory
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk


def check_committed(program: Program) -> None:
    """Raises DeclarationError where products into tensor memory cannot be handed over."""
    for sentence in _mistakes(program):
        raise DeclarationError(f"{program.machine}.program: {sentence}")


def _mistakes(program: Program) -> Iterator[str]:
    for pipeline in program.pipelines:
        yield from _of_buffers(pipeline)
        if pipeline.completion == COMMIT:
            for use in uses(program.body, pipeline.name):
                if use.does == "produce":
                    yield from _of_sums(use.body.statements)
    yield from _of_windows(program)
    for role in program.roles:
        mine = tuple(statements(program.body, role.name))
        multiplied = [s for s in walk(mine) if into_tensor_memory(s)]
        if multiplied and not by_one_thread(program, mine):
            others = [s.headline(frozenset()) for s in walk(mine) if not s.children and not issued(s)]
            said = f": {others[0]}" if others else ""
            yield (
                f"role {role.name} multiplies into tensor memory, which one of its threads does alone, and all of them "
                f"do more{said}; do that in another role"
            )


def _of_buffers(pipeline: Pipeline) -> Iterator[str]:
    inside = [b.name for b in pipeline.buffers if b.memory is TMEM]
    outside = [b.name for b in pipeline.buffers if b.memory is not TMEM]
    if inside and pipeline.completion != COMMIT:
        yield f"{inside[0]} lies in tensor memory, and no product is added up in it; multiply into it, or use p.smem"
    if inside and outside:
        yield (
            f"pipeline {pipeline.name!r} hands over {inside[0]} in tensor memory and {outside[0]} in shared memory, "
            "which are completed otherwise; give each a pipeline of its own"
        )


def _of_sums(body: tuple[n.Statement, ...]) -> Iterator[str]:
    """What is added to begins in the same slot."""
    begun: set[str] = set()
    for s in walk(body):
        if isinstance(s, n.Constant):
            begun.add(s.result.name)
        if isinstance(s, n.Multiply) and into_tensor_memory(s) and s.accumulator.name not in begun:
            yield (
                f"{s.name} adds to {s.accumulator.name}, where the sums of an earlier tile are; begin with "
                "p.clear(...) of it"
            )
            return


def _of_windows(program: Program) -> Iterator[str]:
    """Windows in tensor memory have all lanes, and columns that the text of a kernel names."""
    counted = {s.index for s in walk(program.body) if isinstance(s, n.Repeated) and not s.written_out}
    counted |= {axis.index for axis in program.grid.axes}
    for s in walk(program.body):
        for tile in (*s.reads, *s.writes):
            if tile.memory is not TMEM:
                continue
            if not tile.offset[0].same(0):
                yield f"{tile} begins at row {tile.offset[0]}; a window in tensor memory has all lanes"
            if moving := sorted(tile.offset[1].symbols & counted):
                yield (
                    f"{tile} begins at a column that {moving[0]} counts at run time; write that loop out, "
                    "`with p.unroll(...)`"
                )
