"""Schedules a traced program: brings together what the same warps do, so that producing runs ahead of consuming.

A machine names the producers of a pipeline and its consumers. Where these are different roles, each keeps its own loop.
Where they are the same warps, the two loops become one `Pipelined` loop, in which the next slots are filled while the
current one is consumed.
"""

from __future__ import annotations

from dataclasses import replace

from tinygpu.expressions import Expr, symbol
from tinygpu.language.parameters import DeclarationError
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import replace_expressions, walk


def schedule(program: Program) -> Program:
    """The program with the blocks of each role merged and same-role pipelines interleaved."""
    made = replace(program, body=_merge_roles(program, program.body))
    for s in walk(made.body):
        if isinstance(s, n.InRole):
            produced = {f.pipeline for f in walk(s.body) if isinstance(f, n.Produce)}
            _check_pairs(program, s.body, frozenset(produced & consumed_by(made, s.role)), "")
    return made


def _check_pairs(program: Program, body: tuple[n.Statement, ...], own: frozenset[str], where: str) -> None:
    """Raises DeclarationError where a slot is not consumed in the block in which it was produced.

    What is left of such pipelines after scheduling has one slot in use, which is consumed before it is produced again.

    own    pipelines that the role produces and consumes
    where  the slot around the block, in words
    """
    full: set[str] = set()
    for s in body:
        if isinstance(s, n.InSlot) and s.pipeline in own:
            if isinstance(s, n.Produce) == (s.pipeline in full):
                raise _unpaired(program, s.pipeline, where)
            full ^= {s.pipeline}
        for inner in s.children:
            slot = inner.produces or inner.consumes
            here = f" inside {'produce' if inner.produces else 'consume'}() of {slot!r}" if slot else where
            _check_pairs(program, inner.statements, own, here)
    if full:
        raise _unpaired(program, min(full), where)


def _unpaired(program: Program, pipeline: str, where: str) -> DeclarationError:
    return DeclarationError(
        f"{program.machine}.program: {pipeline!r} is produced in one block and consumed in another{where}, by the same "
        "warps; there, consume each slot right behind what produces it, or let another role produce it"
    )


def _merge_roles(program: Program, body: tuple[n.Statement, ...]) -> tuple[n.Statement, ...]:
    out: list[n.Statement] = []
    for s in body:
        last = out[-1] if out else None
        if isinstance(s, n.InRole) and isinstance(last, n.InRole) and last.role == s.role:
            out[-1] = replace(last, body=last.body + s.body)
        elif isinstance(s, n.Scope):
            out.append(replace(s, body=_merge_roles(program, s.body)))
        else:
            out.append(s)
    return tuple(
        replace(s, body=_interleave(program, s.body, consumed_by(program, s.role))) if isinstance(s, n.InRole) else s
        for s in out
    )


def consumed_by(program: Program, role: str) -> frozenset[str]:
    """The pipelines that a role consumes."""
    mine = [s for s in walk(program.body) if isinstance(s, n.InRole) and s.role == role]
    return frozenset(d.pipeline for s in mine for d in walk(s.body) if isinstance(d, n.Consume))


def _interleave(program: Program, body: tuple[n.Statement, ...], consumed: frozenset[str]) -> tuple[n.Statement, ...]:
    """Fuses `for: produce p` with the later `for: consume p` of the same list, and loops that do both.

    consumed  the pipelines that the same role consumes; what others consume keeps its own loop
    """

    def inside(s: n.Statement) -> n.Statement:
        return s.with_children(*(_interleave(program, inner.statements, consumed) for inner in s.children))

    out: list[n.Statement] = []
    waiting: dict[str, tuple[n.Loop, n.Produce]] = {}
    for s in body:
        if not isinstance(s, n.Loop) or s.unrolled:
            out.append(inside(s))
            continue
        produces = [f for f in s.body if isinstance(f, n.Produce) and f.pipeline in consumed]
        consumes = [d for d in s.body if isinstance(d, n.Consume)]
        match produces, consumes:
            case [produce], [] if len(s.body) == 1:
                waiting[produce.pipeline] = s, produce
            case _, [consume] if consume.pipeline in waiting:
                out.append(inside(_fuse(program, *waiting.pop(consume.pipeline), s, consume)))
            case [produce], [consume] if produce.pipeline == consume.pipeline:
                if len(s.body) != 2:
                    raise DeclarationError(
                        f"{program.machine}.program: a loop that produces and consumes {produce.pipeline!r} does "
                        "nothing beside; move the other statements into one of the two"
                    )
                bodies = produce.body, consume.body
                rounds = s.index, s.trips, *bodies, s.first, s.divided
                out.append(inside(n.Pipelined(produce.pipeline, *rounds, place=s.place)))
            case _:
                out.append(inside(s))
    for pipeline in waiting:
        raise DeclarationError(
            f"{program.machine}.program: the warps that produce {pipeline!r} also consume it, so the loop that "
            "consumes follows the one that produces, with nothing but consume() in it"
        )
    return tuple(out)


def _fuse(
    program: Program, producing: n.Loop, produce: n.Produce, consuming: n.Loop, consume: n.Consume
) -> n.Pipelined:
    name = consume.pipeline
    if not (producing.trips.same(consuming.trips) and producing.first.same(consuming.first)):
        raise DeclarationError(
            f"{program.machine}.program: {name!r} is produced {producing.trips} times and consumed "
            f"{consuming.trips} times"
        )
    if len(consuming.body) != 1:
        raise DeclarationError(
            f"{program.machine}.program: the loop that consumes {name!r} does nothing beside; "
            "move the other statements into consume()"
        )
    renamed = tuple(rename(s, producing.index, consuming.index) for s in produce.body)
    rounds = consuming.index, consuming.trips, renamed, consume.body, consuming.first, consuming.divided
    return n.Pipelined(name, *rounds, place=consuming.place)


def rename(value: n.Statement, old: str, new: str) -> n.Statement:
    """A statement with one loop index called by another name."""

    def called(e: Expr) -> Expr:
        return e.substitute({old: symbol(new)}) if old in e.symbols else e

    renamed: n.Statement = replace_expressions(value, called)
    return renamed
