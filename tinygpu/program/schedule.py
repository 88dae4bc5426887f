"""Schedules a traced program: brings together what the same warps do, so that filling runs ahead of draining.

A machine says who fills a pipeline and who drains it. Where these are different roles, each keeps its own loop. Where
they are the same warps, the fill loop and the drain loop become one `Pipelined` loop, in which the next slots are
filled while the current one is drained.
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
            filled = {f.pipeline for f in walk(s.body) if isinstance(f, n.Fill)}
            _check_pairs(program, s.body, frozenset(filled & drained_by(made, s.role)), "")
    return made


def _check_pairs(program: Program, body: tuple[n.Statement, ...], own: frozenset[str], where: str) -> None:
    """Raises DeclarationError where a slot is not drained in the block in which it was filled.

    What is left of such pipelines after scheduling has one slot in use, which is drained before it is filled again.

    own    pipelines that the role fills and drains
    where  the slot around the block, in words
    """
    full: set[str] = set()
    for s in body:
        if isinstance(s, (n.Fill, n.Drain)) and s.pipeline in own:
            if isinstance(s, n.Fill) == (s.pipeline in full):
                raise _unpaired(program, s.pipeline, where)
            full ^= {s.pipeline}
        if isinstance(s, (n.Fill, n.Drain)):
            verb = "fill" if isinstance(s, n.Fill) else "drain"
            _check_pairs(program, s.body, own, f" inside the {verb} of {s.pipeline!r}")
        elif isinstance(s, n.Pipelined):
            _check_pairs(program, s.fill, own, f" inside the fill of {s.pipeline!r}")
            _check_pairs(program, s.drain, own, f" inside the drain of {s.pipeline!r}")
        elif isinstance(s, (n.Loop, n.FixUp, n.Scope)):
            _check_pairs(program, s.body, own, where)
    if full:
        raise _unpaired(program, min(full), where)


def _unpaired(program: Program, pipeline: str, where: str) -> DeclarationError:
    return DeclarationError(
        f"{program.machine}.program: {pipeline!r} is filled in one block and drained in another{where}, by the same "
        "warps; there, drain each slot right behind its fill, or let another role fill it"
    )


def _merge_roles(program: Program, body: tuple[n.Statement, ...]) -> tuple[n.Statement, ...]:
    out: list[n.Statement] = []
    for s in body:
        last = out[-1] if out else None
        if isinstance(s, n.InRole) and isinstance(last, n.InRole) and last.role == s.role:
            out[-1] = n.InRole(s.role, last.body + s.body)
        elif isinstance(s, n.Scope):
            out.append(replace(s, body=_merge_roles(program, s.body)))
        else:
            out.append(s)
    return tuple(
        replace(s, body=_interleave(program, s.body, drained_by(program, s.role))) if isinstance(s, n.InRole) else s
        for s in out
    )


def drained_by(program: Program, role: str) -> frozenset[str]:
    """The pipelines that a role drains."""
    mine = [s for s in walk(program.body) if isinstance(s, n.InRole) and s.role == role]
    return frozenset(d.pipeline for s in mine for d in walk(s.body) if isinstance(d, n.Drain))


def _interleave(program: Program, body: tuple[n.Statement, ...], drained: frozenset[str]) -> tuple[n.Statement, ...]:
    """Fuses `for: fill p` with the later `for: drain p` of the same list, and loops that do both.

    drained  the pipelines that the same role drains; what others drain keeps its own loop
    """
    out: list[n.Statement] = []
    waiting: dict[str, tuple[n.Loop, n.Fill]] = {}
    for s in body:
        if isinstance(s, (n.FixUp, n.Scope)):
            s = replace(s, body=_interleave(program, s.body, drained))
        if not isinstance(s, n.Loop) or s.unrolled:
            out.append(s)
            continue
        fills = [f for f in s.body if isinstance(f, n.Fill) and f.pipeline in drained]
        drains = [d for d in s.body if isinstance(d, n.Drain)]
        match fills, drains:
            case [fill], [] if len(s.body) == 1:
                waiting[fill.pipeline] = s, fill
            case _, [drain] if drain.pipeline in waiting:
                out.append(_fuse(program, *waiting.pop(drain.pipeline), s, drain))
            case [fill], [drain] if fill.pipeline == drain.pipeline:
                if len(s.body) != 2:
                    raise DeclarationError(
                        f"{program.machine}.program: a loop that fills and drains {fill.pipeline!r} does nothing "
                        "beside; move the other statements into one of the two"
                    )
                out.append(n.Pipelined(fill.pipeline, s.index, s.trips, fill.body, drain.body, s.first, s.divided))
            case _:
                out.append(replace(s, body=_interleave(program, s.body, drained)))
    for pipeline in waiting:
        raise DeclarationError(
            f"{program.machine}.program: the warps that fill {pipeline!r} also drain it, so the drain loop follows the "
            "fill loop with nothing but the drain in it"
        )
    return tuple(out)


def _fuse(program: Program, filling: n.Loop, fill: n.Fill, draining: n.Loop, drain: n.Drain) -> n.Pipelined:
    name = drain.pipeline
    if not (filling.trips.same(draining.trips) and filling.first.same(draining.first)):
        raise DeclarationError(
            f"{program.machine}.program: {name!r} is filled {filling.trips} times and drained {draining.trips} times"
        )
    if len(draining.body) != 1:
        raise DeclarationError(
            f"{program.machine}.program: the loop that drains {name!r} does nothing beside; "
            "move the other statements into the drain"
        )
    renamed = tuple(rename(s, filling.index, draining.index) for s in fill.body)
    return n.Pipelined(name, draining.index, draining.trips, renamed, drain.body, draining.first, draining.divided)


def rename(value: n.Statement, old: str, new: str) -> n.Statement:
    """A statement with one loop index called by another name."""

    def called(e: Expr) -> Expr:
        return e.substitute({old: symbol(new)}) if old in e.symbols else e

    renamed: n.Statement = replace_expressions(value, called)
    return renamed
