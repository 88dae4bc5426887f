"""Checks of what tensor memory hands over: products and stores into it, who issues them, and where sums begin.

One thread issues products; where CTAs have one tile, all threads of its role may find numbers before that. Sums begin
with p.clear; in a single slot they may go on from what a consumer has left there, which no other role touches then.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction import CellCopy
from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.memories import TMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import Pipeline
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import issued, one_issues, statements
from tinygpu.program.pairs import pair_of, pair_of_ring, pair_of_role
from tinygpu.program.products import going_on_in, into_tensor_memory, shifts
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
            yield from _of_one_role(program, pipeline)
            yield from _of_shifts(program, pipeline)
            for use in uses(program.body, pipeline.name):
                if use.does == "produce":
                    yield from _of_sums(program, pipeline, use.body.statements)
        yield from _of_consumers(program, pipeline)
    yield from _of_windows(program)
    yield from _of_every_second(program)
    yield from _of_pairs(program)
    for role in program.roles:
        mine = tuple(statements(program.body, role.name))
        multiplied = [s for s in walk(mine) if into_tensor_memory(s)]
        if multiplied and not one_issues(program, mine):
            others = [s.headline(frozenset()) for s in walk(mine) if not s.children and not issued(s)]
            said = f": {others[0]}" if others else ""
            yield (
                f"role {role.name} multiplies into tensor memory, which one of its threads does alone, and all of them "
                f"do more{said}; do that in another role"
            )


def _of_buffers(pipeline: Pipeline) -> Iterator[str]:
    inside = [b.name for b in pipeline.buffers if b.memory is TMEM]
    outside = [b.name for b in pipeline.buffers if b.memory is not TMEM]
    if inside and outside:
        yield (
            f"pipeline {pipeline.name!r} hands over {inside[0]} in tensor memory and {outside[0]} in shared memory, "
            "which are completed otherwise; give each a pipeline of its own"
        )


def _of_one_role(program: Program, pipeline: Pipeline) -> Iterator[str]:
    """Who issues copies and products waits for none of them: a commit tells another role."""
    found = list(uses(program.body, pipeline.name))
    filling, draining = ({u.place.role for u in found if u.does == does} for does in ("produce", "consume"))
    for role in sorted(filling & draining):
        yield (
            f"role {role} fills {pipeline.name!r} in tensor memory and consumes it itself, and a commit tells another "
            "role that it is full; give one of the two to another role"
        )


def _of_shifts(program: Program, pipeline: Pipeline) -> Iterator[str]:
    """Rows that are moved on are those of the slot before, which is the same one, and something has filled it."""
    own = {b.name for b in pipeline.buffers}
    copies = [s for s in walk(program.body) if isinstance(s, n.Copy) and s.target.name in own]
    moves = list(shifts(copies))
    brought = {s.target.name for s in copies if s not in moves}
    for s in moves:
        rows = s.target.name
        if not pipeline.stages.same(1):
            yield (
                f"{s.name} moves on the rows of {rows}, which were there before, and {pipeline.name!r} has "
                f"{pipeline.stages} slots; give it one"
            )
        elif rows not in brought:
            yield f"{s.name} moves on the rows of {rows}, and nothing brings the first ones; copy them there before"
    for use in uses(program.body, pipeline.name):
        if use.does == "produce":
            yield from _of_one_step(use.body.statements)


def _of_one_step(produced: tuple[n.Statement, ...]) -> Iterator[str]:
    """Of what one thread issues into the same columns, no manual orders a shift behind a copy or another shift."""
    inside = list(walk(produced))
    loops = [loop for loop in inside if isinstance(loop, n.Repeated)]
    again = [s for loop in loops for body in loop.children for s in walk(body.statements)]
    for s in shifts(inside):
        others = [other for other in inside if other is not s and not other.children]
        if s in again or any(t.name == s.target.name for other in others for t in other.writes):
            yield (
                f"{s.name} moves on the rows of {s.target.name}, and its produce() writes there besides, which no "
                "manual orders; give every step a produce() of its own"
            )


def _of_sums(program: Program, pipeline: Pipeline, body: tuple[n.Statement, ...]) -> Iterator[str]:
    """What is added to begins in the same slot, or goes on where it was left in the only one."""
    begun: set[str] = set()
    anywhere = {s.result.name for s in walk(program.body) if isinstance(s, n.Constant) and s.result.memory is TMEM}
    going_on = going_on_in(body)
    for s in walk(body):
        if isinstance(s, n.Constant):
            begun.add(s.result.name)
        if not (isinstance(s, n.Multiply) and into_tensor_memory(s)):
            continue
        sums = s.accumulator.name
        if sums not in begun and sums not in anywhere:
            yield f"{s.name} adds to {sums}, where the sums of an earlier tile are; begin with p.clear(...) of it"
            return
        if sums in going_on and not pipeline.stages.same(1):
            yield (
                f"{s.name} goes on adding to {sums} where {pipeline.name!r} has {pipeline.stages} slots; give it one, "
                "or begin every slot with p.clear(...), in front of all loops, branches and other slots in it"
            )
            return


def _of_consumers(program: Program, pipeline: Pipeline) -> Iterator[str]:
    """What a role stores into where it consumes it, no other role touches there, nor what lies in the same columns."""
    own = {b.name: b.over or b.name for b in pipeline.buffers}
    touched: dict[str, set[str]] = {}  # role -> the columns that it touches, by the buffer whose own they are
    stores: list[tuple[str, str]] = []
    for use in uses(program.body, pipeline.name):
        if use.does == "consume":
            for s in walk(use.body.statements):
                found = {own[tile.name] for tile in (*s.reads, *s.writes) if tile.name in own}
                touched.setdefault(use.place.role, set()).update(found)
                if isinstance(s, n.Store) and s.target.name in own:
                    stores.append((use.place.role, s.target.name))
    for role, name in stores:
        for other in (other for other, found in touched.items() if other != role and own[name] in found):
            yield f"role {role} stores into {name}, which role {other} consumes too; let one role consume it"
            return


def _of_pairs(program: Program) -> Iterator[str]:
    """All products and copies are of as many CTAs, and what a pair shares is the pair's alone."""
    if pair_of(program) == 1:
        return
    for s in walk(program.body):
        alone = ""
        if isinstance(s, n.Multiply) and into_tensor_memory(s) and s.instruction.ctas == 1:
            alone = f"{s.name} multiplies"
        if isinstance(s, n.Copy) and isinstance(s.instruction, CellCopy) and s.instruction.ctas == 1:
            alone = f"{s.name} copies"
        if alone:
            yield (
                f"{alone} in one CTA and others in pairs; tcgen05 instructions of a kernel are all of one CTA, or all "
                "of two"
            )
    last = len(program.grid.axes) - 1
    for pipeline in program.pipelines:
        if pair_of_ring(program, pipeline.name) == 1 or pipeline.completion == COMMIT:
            continue
        for s in walk(program.body):
            if isinstance(s, n.Produce) and s.pipeline == pipeline.name:
                for copy in walk(s.body):
                    if isinstance(copy, n.Copy) and copy.multicast == last and copy.every == 1:
                        yield (
                            f"{copy.name} brings {copy.target.name} to all CTAs along axis {last}, which multiply in "
                            "pairs: each of a pair needs its own part; say every=2, or leave out multicast there"
                        )
        for role in program.roles:
            mine = tuple(statements(program.body, role.name))
            consumes = any(isinstance(s, n.Consume) and s.pipeline == pipeline.name for s in walk(mine))
            if consumes and pair_of_role(program, role.name) == 1:
                yield (
                    f"role {role.name} consumes {pipeline.name!r}, whose slots a pair of CTAs multiplies; which is "
                    "full is known in the first of them only: give it a pipeline of its own"
                )


def _of_every_second(program: Program) -> Iterator[str]:
    """What every second CTA gets alike is what those of the same place in their pairs need."""
    last = len(program.grid.axes) - 1
    for s in walk(program.body):
        for copy in s.body if isinstance(s, n.Produce) else ():
            if not (isinstance(s, n.Produce) and isinstance(copy, n.Copy)) or copy.every == 1:
                continue
            if copy.multicast != last or pair_of_ring(program, s.pipeline) == 1:
                yield (
                    f"{copy.name} brings {copy.target.name} to every second CTA along axis {copy.multicast}; that is "
                    f"for slots that CTAs multiply in pairs, along the last axis, {last}: leave out every= here"
                )


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
