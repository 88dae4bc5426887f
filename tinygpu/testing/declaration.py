"""Tier 1: a declaration is neither empty talk nor impossible, and data get from every input to an output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, walk
from tinygpu.spaces import Axis, Part, Space
from tinygpu.spaces.part import SpaceError
from tinygpu.testing.bench import Bench
from tinygpu.testing.meanings import check_meanings
from tinygpu.testing.report import Failure, Row

Name = tuple[str, str, str]


@dataclass(slots=True)
class Seen:
    """What one constraint did over all spaces: whether it ever rejected, and ever admitted, a raw point."""

    constraint: Constraint
    rejected: bool = False
    admitted: bool = False


def check_declaration(bench: Bench) -> list[Row]:
    """The rows of tier 1."""
    traced = len(bench.posings) + len(bench.empty) + len(bench.broken)
    rows = [Row(1, "every structure can be traced", traced, "problems", tuple(bench.broken)), _existence(bench)]
    bench.progress("constraints: do they ever hold, do they ever reject")
    rows.append(_constraints(bench))
    rows.append(_paths(bench))
    rows.append(check_meanings(bench))
    return rows


def key(c: Constraint) -> Name:
    return c.name, c.kind, c.source


def _existence(bench: Bench) -> Row:
    """Where the machine has candidates: devices, problems, structures and values of parameters."""
    notes = [f"not on {name}: {reason}" for name, reason in bench.elsewhere.items()]
    failures: tuple[Failure, ...] = ()
    if not bench.devices:
        failures = (Failure(f"the machine exists on none of the devices: {next(iter(bench.elsewhere.values()))}"),)
    elif not bench.posings and bench.empty:
        failures = (Failure(f"no problem of {len(bench.empty)} has a candidate, for example: {bench.empty[0]}"),)
    elif bench.empty:
        notes.append(f"{len(bench.empty)} problems more have no candidate, for example: {bench.empty[0]}")
    if not failures:
        notes += _unused(bench)
    return Row(1, "problems have candidates", len(bench.posings), "problems", failures, tuple(notes))


def _unused(bench: Bench) -> list[str]:
    """Structures and values of parameters that no candidate has here."""
    structures: dict[str, bool] = {}
    values: dict[str, bool] = {}
    for _, space in bench.spaces():
        for part, solution in zip(space.space.parts, space.space.solutions, strict=True):
            structures[part.label] = structures.get(part.label, False) or solution.size > 0
            for axis in part.axes:
                open_values = set(solution.legal(axis.name, {}).nonzero()[0].tolist()) if solution.size else set()
                for place, v in enumerate(axis.values):
                    name = f"{axis.name}={v}"
                    values[name] = values.get(name, False) or place in open_values
    dead = [label for label, alive in structures.items() if not alive]
    unused = [name for name, alive in values.items() if not alive]
    notes = [f"never a candidate here with: {'; '.join(dead)}"] if dead else []
    return notes + ([f"values that no candidate has here: {', '.join(unused)}"] if unused else [])


def _constraints(bench: Bench) -> Row:
    """Constraints of the author that no point can satisfy, whatever the problem and the device."""
    seen: dict[Name, Seen] = {}
    known: dict[object, tuple[int, int]] = {}
    own = {r.constraint(bench.machine.__name__).name for r in bench.machine.requirements()}
    facts: set[str] = set()
    for _, space in bench.spaces():
        facts.update(space.environment)
        for part in space.space.parts:
            for c in part.constraints:
                entry = seen.setdefault(key(c), Seen(c))
                if entry.rejected and entry.admitted:
                    continue
                size, raw = _alone(part, c, known)
                entry.rejected |= size < raw
                entry.admitted |= size > 0
    failures = [
        Failure(f"the constraint {s.constraint.name!r} ({s.constraint.sentence}) holds for no values of its parameters")
        for s in seen.values()
        if not s.admitted and s.constraint.name in own and not s.constraint.condition.symbols & facts
    ]
    idle = [s.constraint.name for s in seen.values() if s.constraint.name in own and s.admitted and not s.rejected]
    notes = [f"never rejects here: {', '.join(idle)}"] if idle else []
    return Row(1, "constraints can hold", len(seen), "constraints", tuple(failures), tuple(notes))


def _alone(part: Part, c: Constraint, known: dict[object, tuple[int, int]]) -> tuple[int, int]:
    """(points that the constraint alone admits, all points) over the axes that it reads."""
    axes = tuple(a for a in part.axes if a.name in c.condition.symbols)
    constants = {k: v for k, v in part.constants().items() if k in c.condition.symbols}
    question = (c.condition.sympy, tuple((a.name, a.values) for a in axes), tuple(constants.items()))
    if question not in known:
        alone = Part({}, tuple(Axis(a.name, a.values) for a in axes), (c,), constants)
        try:
            known[question] = Space(c.name, (alone,)).size, alone.raw_size
        except SpaceError:  # it divides by what another constraint keeps from being zero
            known[question] = 1, 2
    return known[question]


def _paths(bench: Bench) -> Row:
    """Of every structure that has candidates: data get from every input to an output."""
    faults: dict[str, None] = {}
    tried = 0
    for _, space in bench.spaces():
        for traced, solution in zip(space.traces, space.space.solutions, strict=True):
            if solution.size:
                tried += 1
                faults.update(dict.fromkeys(path_faults(traced.program)))
    failures = tuple(Failure(f"{bench.machine.__name__}: {fault}") for fault in faults)
    return Row(1, "every memory has a path in and out", tried, "programs", failures)


def path_faults(program: Program) -> list[str]:
    """Tensors and buffers that nothing reads or writes, and hops that lead nowhere."""
    edges: list[tuple[str, str]] = []
    said = program.said_by_data
    for s in walk(program.body):
        edges += _moves(s)
        if said:
            edges += [(name, t.name) for name in _decided_by(s) & said for inner in walk((s,)) for t in inner.writes]
    sources = {t.name for t in program.tensors if t.access != "out"} | {"constants"}
    outputs = {t.name for t in program.tensors if t.access != "in"}
    fed, useful = _reach(edges, sources), _reach([(b, a) for a, b in edges], outputs)
    out = []
    for t in program.tensors:
        if t.access != "out" and t.name not in useful:
            out.append(f"no instruction brings {t.name} from {t.memory} to anything that reaches an output")
        if t.access != "in" and t.name not in fed:
            out.append(f"no instruction brings anything that was read to {t.name}")
    for p in program.pipelines:
        for b in p.buffers:
            if b.name not in fed:
                out.append(f"no instruction writes {b.name} in {b.memory}")
            if b.name not in useful:
                out.append(f"no instruction brings {b.name} from {b.memory} to anything that reaches an output")
    return out


def _moves(s: n.Statement) -> Iterable[tuple[str, str]]:
    sources = [t.name for t in s.reads] or ["constants"]
    yield from ((source, target) for source in sources for target in (*(t.name for t in s.writes), *s.defines))


def _decided_by(s: n.Statement) -> set[str]:
    """The numbers that decide where a statement's windows lie, or how often a block is carried out."""
    if not s.children:
        return {name for e in expressions(s) for name in e.symbols}
    rounds = s.trips.symbols if isinstance(s, n.Repeated) else frozenset[str]()
    return {*rounds, *(s.taken_where.symbols if s.taken_where is not None else ())}


def _reach(edges: list[tuple[str, str]], start: set[str]) -> set[str]:
    reached, grew = set(start), True
    while grew:
        new = {b for a, b in edges if a in reached} - reached
        grew = bool(new)
        reached |= new
    return reached
