"""Clusters that take each other over: one warp asks for a cluster that has not begun, and every role hears the answer.

The answers go through a ring of their own. The first warp of one role, in the first CTA of a cluster, asks where that
role begins a tile, so that the answer comes while the tile is worked on; it comes to the same slot in all CTAs of the
cluster. Behind each tile every warp of every role waits for its own CTA's slot, reads there which tile is next, and
gives the slot back to who asks. The role that asks hears each answer before it asks again: after a no nobody asks, and
all roles end, none of them with an answer under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.language.buffer_space import ANSWER_BYTES
from tinygpu.language.roles import Role
from tinygpu.program.one_thread import found_by_all, statements
from tinygpu.program.pairs import pair_of_role
from tinygpu.program.program import Program
from tinygpu.ptx.lowering import handover, release
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Reg
from tinygpu.ptx.lowering.pipe import Pipe, empty_barrier, full_barrier
from tinygpu.ptx.lowering.sync import (
    ANSWERED,
    ANSWERS,
    ASKING,
    Arrive,
    Ask,
    Expect,
    Hear,
    Init,
    Ring,
    Start,
    Wait,
    When,
)
from tinygpu.ptx.lowering.sync_text import issue


@dataclass(frozen=True, slots=True)
class Places:
    """A role's places in the ring of answers.

    hears  of the answers that it goes on by
    asks   of those that it asks for; None: it does not
    """

    hears: Pipe
    asks: Pipe | None


def walkers(program: Program, role: Role) -> int:
    """Warps of a role that go through the tiles: all of them, or the one that issues where it finds nothing before."""
    alone = found_by_all(program, tuple(statements(program.body, role.name))) == 0
    return 1 if alone else int(role.warps)


def readers(program: Program) -> int:
    """Warps that read an answer, in all CTAs of a cluster; roles that multiply for a pair exist in half of them."""
    cluster = int(program.grid.cluster)
    return sum(walkers(program, r) * cluster // pair_of_role(program, r.name) for r in program.roles)


def asker(program: Program) -> str:
    """The role that asks: the first, which brings what the others work on where one does."""
    return program.roles[0].name


def ring(context: Context) -> Ring:
    """What is proved of the answers is proved of a ring."""
    at, count = context.placement.answers
    return Ring(ANSWERS, count, ("answers",), ANSWERED, ((at, at + count * ANSWER_BYTES),))


def _barriers_at(context: Context) -> int:
    at, count = context.placement.answers
    return at + count * ANSWER_BYTES


def initialise(context: Context) -> None:
    """One thread makes the barriers of the answers."""
    count, offset = context.placement.answers[1], _barriers_at(context)
    for slot in range(count):
        issue(context, Init(full_barrier(ANSWERS, offset, slot), 1))
    for slot in range(count):
        issue(context, Init(empty_barrier(ANSWERS, offset, count, slot), readers(context.program)))


def start(context: Context, role: Role) -> Places:
    """The role begins at the first slot, to hear the answers and, if it does, to ask for them."""
    hears = _begun(context, 0)
    if role.name != asker(context.program):
        return Places(hears, None)
    asks: list[Pipe] = []
    with context.protocol.block(lambda body: When(ASKING, body)):
        asks.append(_begun(context, 1))
    return Places(hears, asks[0])


def _begun(context: Context, parity: int) -> Pipe:
    emit = context.emit
    slot, wanted, held = emit.new("r"), emit.new("r"), emit.new("r")
    pipe = Pipe(ANSWERS, context.placement.answers[1], _barriers_at(context), slot, wanted, held)
    issue(context, Start(pipe, parity))
    return pipe


def ask(context: Context, pipe: Pipe, warps: int) -> None:
    """The first warp of the role, in the first CTA of the cluster, asks for the next answer, if its slot is free.

    warps  of the role that come here
    """
    emit, cluster = context.emit, context.cluster_size
    asked = emit.label("asked")
    if warps > 1:
        others = emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.uniform_warp())
        emit.line(f"@{others} bra {asked};")
    if cluster > 1:
        later = emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.cluster_rank_of({}))
        emit.line(f"@{later} bra {asked};")
    alone, context.one_issues = context.one_issues, True
    with (
        context.protocol.block(lambda body: When(ASKING, body)),
        handover.in_slot(context, pipe) as (slot, parity),
    ):
        issue(context, Wait(pipe.empty(slot), parity, release.acquire(cluster > 1)))
        with context.electing():
            issue(context, Expect(pipe.full(slot), ANSWER_BYTES, ctas=cluster))
            issue(context, Ask(pipe.full(slot), context.placement.answers[0], cluster))
    context.one_issues = alone
    emit.place_label(asked)


def hear(context: Context, pipe: Pipe) -> tuple[Reg, Reg]:
    """Waits for the next answer: (whether a cluster was taken over, the number of its first CTA)."""
    emit = context.emit
    taken, first = emit.new("p", len(emit.blocks)), emit.new("r", len(emit.blocks))
    with handover.in_slot(context, pipe) as (slot, parity):
        issue(context, Wait(pipe.full(slot), parity))
        issue(context, Hear(slot, context.placement.answers[0], taken, first))
        issue(context, *release.after_threads())
        issue(context, Arrive(pipe.empty(slot), threads=True, home=context.cluster_size))
    return taken, first
