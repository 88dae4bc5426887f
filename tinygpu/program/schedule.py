"""Schedules a traced program: brings together what the same warps do, so that producing runs ahead of consuming.

A machine names the producers of a pipeline and its consumers. Where these are different roles, each keeps its own loop.
Where they are the same warps, the loops become one `Pipelined` loop, in which the next slots are filled while the
current ones are consumed: those of all pipelines that the loop fills and consumes, where they have as many slots.
"""

from __future__ import annotations

from dataclasses import replace

from tinygpu.expressions import Expr, symbol
from tinygpu.language.parameters import DeclarationError
from tinygpu.program import nodes as n
from tinygpu.program.prefetched import not_prefetched
from tinygpu.program.program import Program
from tinygpu.program.statement import ZERO
from tinygpu.program.tree import expressions, replace_expressions, uses, walk


def schedule(program: Program) -> Program:
    """The program with the blocks of each role merged and same-role pipelines interleaved."""
    made = replace(program, body=_merge_roles(program, program.body))
    for s in walk(made.body):
        if isinstance(s, n.InRole):
            own = _slots_of(program, s.role, n.Produce) & consumed_by(program, s.role)
            if left := _check_pairs(program, s.body, own, frozenset(), ""):
                raise _unpaired(program, min(left), "")
        for inner in s.children:
            if not inner.prefetch.same(0) and (why := not_prefetched(s)):
                what = f"{inner.consumes!r} is consumed with prefetch"
                raise DeclarationError(f"{program.machine}.program: {what}: {why}")
    return made


def _check_pairs(
    program: Program, body: tuple[n.Statement, ...], own: frozenset[str], full: frozenset[str], where: str
) -> frozenset[str]:
    """The pipelines of which a slot is full behind a block; raises DeclarationError where one is not used in turn.

    What is left of such pipelines after scheduling has one slot in use, which is consumed before it is produced again.
    Loops and branches leave full what they have found full: a loop may consume what was produced a round before.

    own    pipelines that the role produces and consumes
    full   those of which a slot is full in front of it
    where  the slot around the block, in words
    """
    for s in body:
        slot = s.pipeline if isinstance(s, n.InSlot) and s.pipeline in own else ""
        before = full
        for inner in s.children:
            name = inner.produces or inner.consumes
            here = f" inside {'produce' if inner.produces else 'consume'}() of {name!r}" if name else where
            left = _check_pairs(program, inner.statements, own, full, here)
            if left != full and not isinstance(s, n.InSlot):
                raise _unpaired(program, min(left ^ full), here)
            full = left
        for now in (before, full):
            if slot and isinstance(s, n.Produce) == (slot in now):
                raise _unpaired(program, slot, where)
            if isinstance(s, n.Pipelined) and (both := now & set(s.pipelines)):
                raise _unpaired(program, min(both), where)
        full ^= {slot} - {""}
    return full


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
    return _slots_of(program, role, n.Consume)


def _slots_of(program: Program, role: str, kind: type[n.InSlot]) -> frozenset[str]:
    """The pipelines of which a role has slots of a kind."""
    mine = [s for s in walk(program.body) if isinstance(s, n.InRole) and s.role == role]
    return frozenset(d.pipeline for s in mine for d in walk(s.body) if isinstance(d, kind))


def _interleave(program: Program, body: tuple[n.Statement, ...], consumed: frozenset[str]) -> tuple[n.Statement, ...]:
    """Fuses `for: produce p` with the later loop of the same list that consumes p, and lets fills of loops run ahead.

    consumed  the pipelines that the same role consumes; what others consume keeps its own loop
    """
    out: list[n.Statement] = []
    waiting: dict[str, tuple[n.Loop, n.Produce]] = {}
    for s in body:
        if isinstance(s, n.Loop) and not s.unrolled:
            fills = [f for f in s.body if isinstance(f, n.Produce) and f.pipeline in consumed]
            consumes = [d for d in s.body if isinstance(d, n.Consume)]
            if fills and not consumes and len(fills) == len(s.body):
                waiting |= {fill.pipeline: (s, fill) for fill in fills}
                continue
            late = [_late(program, *waiting.pop(d.pipeline), s, d) for d in consumes if d.pipeline in waiting]
            s = _ahead(program, replace(s, body=(*late, *s.body)) if late else s, consumed)
        out.append(s.with_children(*(_interleave(program, inner.statements, consumed) for inner in s.children)))
    for pipeline in waiting:
        raise DeclarationError(
            f"{program.machine}.program: the warps that produce {pipeline!r} also consume it; let the loop that "
            "produces be followed, in the same block, by one that consumes"
        )
    return tuple(out)


def _late(
    program: Program, producing: n.Loop, fill: n.Produce, consuming: n.Loop, consume: n.Consume
) -> n.Produce:
    """What a loop of its own produces, in the rounds of the loop that consumes it."""
    name = consume.pipeline
    if not (producing.trips.same(consuming.trips) and producing.first.same(consuming.first)):
        raise DeclarationError(
            f"{program.machine}.program: {name!r} is produced {producing.trips} times and consumed "
            f"{consuming.trips} times"
        )
    made = replace(fill, body=tuple(rename(s, producing.index, consuming.index) for s in fill.body))
    if changed := sorted(_between(made, consuming.body) - {t.name for t in program.tensors}):
        what = changed[0] if "." in changed[0] else f"%{changed[0]}"  # a buffer, or registers
        raise DeclarationError(
            f"{program.machine}.program: {name!r} is produced in a loop of its own, from or into {what}, which the "
            "loop that consumes it uses in other rounds; produce and consume it in one loop"
        )
    return made


def _ahead(program: Program, s: n.Loop, consumed: frozenset[str]) -> n.Loop | n.Pipelined:
    """The loop with those fills ahead that can be: of pipelines with as many slots, which it consumes behind that.

    A fill stays in its round where other statements of the loop change what it reads, or use what it makes. All else
    is done where a slot is consumed, in its order.
    """
    fills = [f for f in s.body if isinstance(f, n.Produce) and f.pipeline in consumed]
    free = [f for f in fills if _can_run_ahead(s, f)]
    if not free:
        return s
    first, *others = free
    free = [first, *(f for f in others if _as_deep(program, f.pipeline, first.pipeline))]
    names = tuple(f.pipeline for f in free)
    rest: list[n.Statement] = []
    prefetch = ZERO
    for other in s.body:
        if isinstance(other, n.Consume) and other.pipeline in names:
            rest += other.body
            prefetch = prefetch if other.prefetch.same(0) else other.prefetch
        elif other not in free:
            rest.append(other)
    produce = tuple(inner for f in free for inner in f.body)
    rounds = s.index, s.trips, produce, tuple(rest), s.first, s.divided
    return n.Pipelined(names[0], *rounds, names[1:], prefetch, place=s.place)


def _as_deep(program: Program, one: str, other: str) -> bool:
    """Whether two pipelines have as many slots, and are filled alike: by stores, or by copies in groups."""
    a, b = program.pipeline(one), program.pipeline(other)
    return a.stages.same(b.stages) and a.completion == b.completion


def _can_run_ahead(s: n.Loop, fill: n.Produce) -> bool:
    """Whether a loop consumes what it fills once, behind that, and nothing else of a round has to do with the fill."""
    found = list(uses(s.body, fill.pipeline))
    if [u.does for u in found] != ["produce", "consume"] or not any(u.place.statement is fill for u in found):
        return False
    consume = found[1].place.statement
    under_way = (m for m in walk((consume,)) if isinstance(m, n.Multiply) and m.token is not None)
    if any(fill.pipeline == t.name.split(".")[0] for m in under_way for t in (m.a, m.b)):
        return False  # products that go on read a slot until they are waited for, which a round does in its order
    return any(consume is other for other in s.body) and not _between(fill, s.body)


def _between(fill: n.Produce, body: tuple[n.Statement, ...]) -> set[str]:
    """Tensors, buffers and registers that a fill writes and other statements use, or the other way round."""
    mine = list(walk(fill.body))
    own = {t.name for inner in mine for t in inner.writes}, {t.name for inner in mine for t in inner.reads}
    others = [other for outer in body if outer is not fill for other in walk((outer,))]
    theirs = {t.name for other in others for t in other.writes}, {t.name for other in others for t in other.reads}
    slots = {name for name in own[0] | theirs[0] if name.startswith(f"{fill.pipeline}.")}
    named = {name for inner in mine for e in expressions(inner) for name in e.symbols}
    said = {name for other in others for name in other.defines} & named - {name for s in mine for name in s.defines}
    return (((own[0] & (theirs[0] | theirs[1])) | (own[1] & theirs[0])) - slots) | said


def rename(value: n.Statement, old: str, new: str) -> n.Statement:
    """A statement with one loop index called by another name."""

    def called(e: Expr) -> Expr:
        return e.substitute({old: symbol(new)}) if old in e.symbols else e

    renamed: n.Statement = replace_expressions(value, called)
    return renamed
