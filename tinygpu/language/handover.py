"""Checks of what roles hand over: every slot that is produced is consumed, tile by tile, by every role that should.

Producers and consumers with loops of their own meet nowhere but in the pipeline. If one of them comes around more often
than the other, it waits for ever; so their counts are compared when the machine is declared.
"""

from __future__ import annotations

import math

from tinygpu.expressions import Expr, expr, symbol
from tinygpu.expressions.quotients import same_quotients
from tinygpu.language.committed import check_committed
from tinygpu.language.memories import TMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import ARRIVALS, Pipeline, Role
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import one_issues, statements
from tinygpu.program.program import Program
from tinygpu.program.tree import Does, places, uses, walk

# Rounds that a CTA does of one tile, where rounds are dealt.
OWN_ROUNDS = symbol("rounds_of_its_own")
# What tells that a slot is full, where threads of the role itself do, and by what they fill it.
BY_THREADS = {"barrier": "stores", "commit group": "cp.async"}
Counts = dict[str, Expr]  # role -> how often, for each tile that it takes


def check_handover(program: Program) -> None:
    """Raises DeclarationError where a pipeline is produced and consumed unequally often, or turns are not alternate."""
    _check_fix_ups(program)
    _check_branches(program)
    for pipeline in program.pipelines:
        produces, consumes = _counts(program, pipeline.name, "produce"), _counts(program, pipeline.name, "consume")
        if not pipeline.buffers:
            _check_turns(program, pipeline, consumes)
        else:
            _check_slots(program, pipeline, produces, consumes)
            _check_order(program, pipeline)
    _check_products(program)
    check_committed(program)
    for pipeline in program.pipelines:
        _check_one_completion(program, pipeline)
        if pipeline.completion == "mbarrier":
            _check_agents(program, pipeline)
        elif pipeline.completion == ARRIVALS:
            _check_arrivals(program, pipeline)
        elif pipeline.completion in BY_THREADS:
            _check_threads(program, pipeline)


def _check_order(program: Program, pipeline: Pipeline) -> None:
    """Roles of different tiles that use one ring do so one after another: else one may be a whole ring ahead.

    It waits for a phase by its parity, and takes one that is over for its own.
    """
    turns = frozenset(p.name for p in program.pipelines if not p.buffers)
    shares = {r.name: r.share for r in program.roles}
    for does in ("produce", "consume"):
        found = [u.place for u in uses(program.body, pipeline.name) if u.does == does]
        names = list(dict.fromkeys(place.role for place in found))
        if len({shares[name] for name in names}) > 1 and not all(place.consumes & turns for place in found):
            raise _error(
                program,
                f"roles {_and(names)} take different tiles and {does} {pipeline.name!r} at the same time; let them "
                f"take turns, `with order.turn():` around what they {does}",
            )


def _check_slots(program: Program, pipeline: Pipeline, produces: Counts, consumes: Counts) -> None:
    roles = {r.name: r for r in program.roles}
    period = math.lcm(*(roles[name].share[1] for name in {*produces, *consumes}))
    for tile in range(period):
        produced = [name for name in produces if _takes(roles[name], tile)]
        consumed = [name for name in consumes if _takes(roles[name], tile)]
        which = f" for tile {tile} of every {period}" if period > 1 else ""
        for done, names in (("produced", produced), ("consumed", consumed)):
            if not names and (produced or consumed):
                raise _error(program, f"pipeline {pipeline.name!r} is {done} by no role{which}")
        if len(produced) > 1:
            raise _error(
                program,
                f"pipeline {pipeline.name!r} is produced by {_and(produced)} for the same tile{which}, and each of "
                "them would begin with the first slot; let one role produce all slots of a tile",
            )
        slots = expr(0)
        for name in produced:
            slots = slots + produces[name]
        for name in consumed:
            dealt = [OWN_ROUNDS.symbols <= count.symbols for count in (slots, consumes[name])]
            if dealt[0] != dealt[1]:
                ways = ["in a loop that is divided" if d else "in one that is not" for d in dealt]
                raise _error(
                    program,
                    f"pipeline {pipeline.name!r} is produced by {_and(produced)} {ways[0]}, "
                    f"and consumed by {name} {ways[1]}",
                )
            if not same_quotients(consumes[name], slots, program.sizes_named):
                raise _error(
                    program,
                    f"pipeline {pipeline.name!r} is produced {_times(slots)} a tile by {_and(produced)}, "
                    f"and consumed {_times(consumes[name])} by {name}{which}",
                )


def _check_branches(program: Program) -> None:
    """What roles hand to each other stands in no branch of one of them, nor in rounds that data decide, where roles
    pass over the slots of tiles that others take.
    """
    said = program.said_by_data
    for pipeline in program.pipelines:
        if pipeline.completion in BY_THREADS:
            continue
        for u in uses(program.body, pipeline.name):
            if any(block.taken_where is not None for block, _ in u.place.around):
                raise _error(
                    program,
                    f"{pipeline.name!r} is {u.does}d inside p.when, and other roles do not know whether; hand it over "
                    "outside, and branch around what is done with a slot",
                )
            late = sorted({name for loop in u.loops for name in loop.trips.symbols} & said)
            if late and any(r.share[1] > 1 for r in program.roles):
                raise _error(
                    program,
                    f"{pipeline.name!r} is {u.does}d in rounds that data decide, {late[0]}, and roles that take turns "
                    "at tiles pass over the slots of tiles whose data they do not know",
                )


def _check_threads(program: Program, pipeline: Pipeline) -> None:
    """What threads fill stays with them: nothing but their own barriers tells that a slot is full."""
    found = list(uses(program.body, pipeline.name))
    produced, consumed = (
        list(dict.fromkeys(u.place.role for u in found if u.does == does)) for does in ("produce", "consume")
    )
    if sorted(produced) != sorted(consumed):
        raise _error(
            program,
            f"pipeline {pipeline.name!r} is produced by {BY_THREADS[pipeline.completion]} in {_and(produced)} and "
            f"consumed in {_and(consumed)}; from role to role what TMA brings, or what threads store for others alone, "
            "is handed over",
        )


def _check_agents(program: Program, pipeline: Pipeline) -> None:
    """TMA fills for other roles, by copies and nothing else; those who release its slots are as many in every tile."""
    roles = {r.name: r for r in program.roles}
    found = list(uses(program.body, pipeline.name))
    consuming = list(dict.fromkeys(u.place.role for u in found if u.does == "consume"))
    for u in found:
        if u.does != "produce":
            continue
        if u.place.role in consuming:
            raise _error(
                program,
                f"role {u.place.role} produces {pipeline.name!r} by TMA and consumes it itself; give it to another "
                "role",
            )
        for s in u.body.statements:
            if not any(t.completion == "mbarrier" for t in s.tokens):
                raise _error(
                    program,
                    f"{pipeline.name!r} is produced by TMA, and its produce() does more than copy by TMA: "
                    f"{s.headline(frozenset())}",
                )
        if not one_issues(program, tuple(statements(program.body, u.place.role))):
            raise _error(
                program,
                f"role {u.place.role} produces {pipeline.name!r} by TMA, which one of its threads does alone, and all "
                "of them do more behind that; do that in another role, or before",
            )
    first, *others = (roles[name] for name in consuming)
    for other in others:
        if other.share[1] != first.share[1]:
            raise _error(program, f"the roles that consume {pipeline.name!r} share the tiles in different ways")
        if other.share != first.share and not other.warps.same(first.warps):
            raise _error(
                program,
                f"the roles that take turns at consuming {pipeline.name!r} have different numbers of warps: "
                f"{first.name} has {first.warps}, {other.name} has {other.warps}",
            )


def _check_arrivals(program: Program, pipeline: Pipeline) -> None:
    """Warps fill slots for other roles, and as many of them arrive in every tile."""
    roles = {r.name: r for r in program.roles}
    found = list(uses(program.body, pipeline.name))
    consuming = {u.place.role for u in found if u.does == "consume"}
    producing = list(dict.fromkeys(u.place.role for u in found if u.does == "produce"))
    for name in producing:
        if name in consuming:
            raise _error(
                program,
                f"role {name} produces {pipeline.name!r} in tensor memory and consumes it itself; keep it in registers",
            )
        if not roles[name].warps.same(roles[producing[0]].warps):
            raise _error(
                program,
                f"the roles that take turns at producing {pipeline.name!r} have different numbers of warps: "
                f"{producing[0]} has {roles[producing[0]].warps}, {name} has {roles[name].warps}",
            )
    buffers = {b.name for b in pipeline.buffers}
    for u in found:
        stores = (s for s in walk(u.body.statements) if isinstance(s, n.Store))
        if u.does == "produce" and not any(s.target.name in buffers for s in stores):
            first = pipeline.buffers[0]
            if first.memory is not TMEM:
                said = f"a produce() of {pipeline.name!r} stores nothing into {first.name}"
                raise _error(program, f"{said}; store there, or leave it out")
            raise _error(
                program,
                f"{first.name} lies in tensor memory, and nothing is added up or stored in it; multiply or store into "
                "it, or use p.smem",
            )


def _check_one_completion(program: Program, pipeline: Pipeline) -> None:
    """What tells that a slot is full is one thing."""
    found: dict[str, str] = {}
    for u in uses(program.body, pipeline.name):
        for s in walk(u.body.statements) if u.does == "produce" else ():
            for token in s.tokens:
                if token.buffer.startswith(f"{pipeline.name}."):
                    found.setdefault(token.completion, s.headline(frozenset()))
    if len(found) > 1:
        ways = _and([f"by {completion} ({statement})" for completion, statement in found.items()])
        raise _error(
            program,
            f"slots of {pipeline.name!r} are completed {ways}; give what completes otherwise a pipeline of its own",
        )


def _check_products(program: Program) -> None:
    """What tensor cores read of shared memory by themselves, another role brings by TMA. Left operands the role itself
    may store, whose threads meet in front of the product; it is asked for in a slot of the right one, and holds that.
    """
    for place in places(program.body):
        s = place.statement
        if not isinstance(s, n.Multiply) or s.token is None:
            continue
        for operand in (s.a, s.b):
            if operand.buffer is None or operand.memory is TMEM:
                continue
            pipeline = program.pipeline(operand.name.split(".")[0])
            stored = pipeline.completion == "barrier" and s.token.completion == "wgmma group" and operand is s.a
            if not (pipeline.completion == "mbarrier" or stored):
                raise _error(
                    program,
                    f"{s.name} ({s.instruction}) reads {operand.name} from shared memory, which threads fill; another "
                    "role brings it there by TMA",
                )
            inmost = next(body.consumes for _, body in reversed(place.around) if body.consumes)
            if stored and inmost == pipeline.name:
                raise _error(
                    program,
                    f"{s.name} ({s.instruction}) reads {operand.name}, which its own role stores, and stands in the "
                    f"block of its slot; open the slot of {s.b.name.split('.')[0]!r} inside of that",
                )


def _check_turns(program: Program, pipeline: Pipeline, turns: Counts) -> None:
    if len(turns) < 2:
        alone = next(iter(turns))
        raise _error(program, f"only role {alone} takes turns in {pipeline.name!r}; turns are for two roles or more")
    (first, often), *others = turns.items()
    for name, count in others:
        if not same_quotients(count, often, program.sizes_named):
            where = f"in {pipeline.name!r}"
            raise _error(
                program, f"role {first} takes its turn {_times(often)} a tile {where}, and role {name} {_times(count)}"
            )


def _check_fix_ups(program: Program) -> None:
    """What only the last CTA of a tile does cannot be handed to those that do it for every tile, nor come from them.

    Roles that take turns at tiles leave their values in the same places.
    """
    left: dict[tuple[int, int], tuple[str, Expr]] = {}
    for role in program.roles:
        mine = [s for s in walk(program.body) if isinstance(s, n.InRole) and s.role == role.name]
        for number, s in enumerate(f for b in mine for f in walk(b.body) if isinstance(f, n.FixUp)):
            if role.share[1] == 1 or s.value.partition is None:
                continue
            size = s.value.partition.value_count * role.threads * s.pieces
            first, other = left.setdefault((role.share[1], number), (role.name, size))
            if not size.same(other):
                raise _error(
                    program,
                    f"the roles {first} and {role.name} take turns at tiles, and {s.name} fixes up {other} values in "
                    f"one and {size} in the other; they share a workspace",
                )
    for fix_up in (s for s in walk(program.body) if isinstance(s, n.FixUp)):
        inside = {id(s) for s in walk(fix_up.body)}
        for pipeline in program.pipelines:
            found = {id(u.place.statement) in inside for u in uses(program.body, pipeline.name)}
            if len(found) > 1:
                raise _error(
                    program,
                    f"pipeline {pipeline.name!r} is used both inside and outside of p.fix_up, and only the last CTA of "
                    "a tile carries out what is inside",
                )


def _counts(program: Program, pipeline: str, does: Does) -> Counts:
    """How often each role produces (or consumes) the pipeline; of divided rounds that may be known at launch only."""
    found: Counts = {}
    dealt = program.grid.scheduler.deals_rounds
    for u in uses(program.body, pipeline):
        if u.does == does:
            times = expr(1)
            for loop in u.loops:
                times = times * (OWN_ROUNDS if dealt and loop.divided else loop.trips)
            found[u.place.role] = found.get(u.place.role, expr(0)) + times
    return found


def _takes(role: Role, tile: int) -> bool:
    rest, every = role.share
    return tile % every == rest


def _error(program: Program, sentence: str) -> DeclarationError:
    return DeclarationError(f"{program.machine}.program: {sentence}")


def _times(count: Expr) -> str:
    return "once" if count.same(1) else f"{count} times"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
