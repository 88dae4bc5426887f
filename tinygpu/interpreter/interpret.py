"""Runs a filled-in program by the meanings of its instructions: whole tiles in NumPy, one CTA after another (those of
a cluster side by side, where they carry out instructions together).

The roles of a CTA are coroutines that meet in their pipelines, so that slots are produced and consumed in an order
that the pipelines allow, and roles that wait for each other for ever are found. No partition, layout or PTX decides a
value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.expressions import evaluate, maximum
from tinygpu.interpreter.dealing import Dealing, Work, deal
from tinygpu.interpreter.elements import Array, as_elements, number
from tinygpu.interpreter.exchange import Exchange
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.interpreter.ring import Ring, Turns, takes
from tinygpu.interpreter.steps import Block, Preparing
from tinygpu.interpreter.store import slots, stored_tensor
from tinygpu.interpreter.worker import Launch, Watch, Worker
from tinygpu.language.instruction import MatrixMultiply
from tinygpu.language.roles import Pipeline, Role
from tinygpu.language.tensors import Tensor, extent_of
from tinygpu.program import nodes as n
from tinygpu.program.products import going_on_in, shifts
from tinygpu.program.tree import expressions, uses, walk
from tinygpu.users_code import at


class Traced(Protocol):
    """What is run of a program; see `tinygpu.program.program`."""

    @property
    def machine(self) -> str: ...
    @property
    def tensors(self) -> tuple[Tensor, ...]: ...
    @property
    def scalars(self) -> tuple[n.ScalarArgument, ...]: ...
    @property
    def grid(self) -> n.Grid: ...
    @property
    def roles(self) -> tuple[Role, ...]: ...
    @property
    def pipelines(self) -> tuple[Pipeline, ...]: ...
    @property
    def body(self) -> tuple[n.Statement, ...]: ...


def interpret(
    program: Traced,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    sizes: Mapping[str, int],
    ctas: int | None = None,
    watch: Watch | None = None,
) -> dict[str, Array]:
    """The tensors that the program writes, as new arrays.

    arrays   one per tensor that it reads, in the tensor's type
    scalars  its numbers
    sizes    dims that no given array has
    ctas     that are launched of a persistent grid, at most; None: four clusters of them
    watch    told of every tile in registers

    Raises ProgramFault where a role waits for ever, where something is read that nobody wrote, where an element of a
    result is left out, and for arrays that do not fit.
    """
    _check_filled(program)
    dims = _dims(program, arrays, sizes)
    known = _given(program, arrays)
    launch = Launch(
        {
            t.name: stored_tensor(
                t,
                known[t.name].copy() if t.name in known else _zeros(t, dims),
                t.name in known,
            )
            for t in program.tensors
        },
        _scalars(program, scalars),
        watch,
    )
    dealing = dealt(program, dims, ctas)
    blocks = _prepared(program)
    with np.errstate(all="ignore"):
        meeting = (int(s.meets_ctas) for s in walk(program.body))
        together = max([*(m.ctas for m in _multiplied(program)), *meeting])
        size = math.prod(dealing.cluster) if together > 1 else 1
        ctas_works = list(dealing.ctas())
        for first in range(0, len(ctas_works), size):
            _ctas(program, launch, blocks, dims, first, ctas_works[first : first + size])
    results = {t.name: launch.tensors[t.name] for t in program.tensors if t.access != "in"}
    for stored in results.values():
        missing = stored.missing()
        if missing:
            stores = (s.place for s in walk(program.body) for tile in s.writes if tile.name == stored.name)
            raise at(ProgramFault(f"{program.machine}: {missing} is never written"), next(stores, ""))
    return {name: stored.array for name, stored in results.items()}


def dealt(program: Traced, dims: Mapping[str, int], ctas: int | None) -> Dealing:
    """What each CTA of a run works on; `ctas`: that are launched of a persistent grid, at most."""
    return deal(program.grid, dims, ctas, lambda: _rounds_of_tile(program, dims))


# ---- what is given -------------------------------------------------------------------------------------------------


def _check_filled(program: Traced) -> None:
    """What decides how much memory a CTA takes are numbers in a program that has a candidate's."""
    extents = [a.extent for a in program.grid.axes] + [r.warps for r in program.roles]
    extents += [e for p in program.pipelines for b in p.buffers for e in (b.stages, *b.shape)]
    open_ = sorted({name for e in extents for name in e.symbols})
    if open_:
        raise ProgramFault(
            f"the program of {program.machine} is run for a candidate: fill in a number for {', '.join(open_)}"
        )


def _zeros(t: Tensor, dims: Mapping[str, int]) -> Array:
    return np.zeros([extent_of(d, dims) for d in t.dims], t.dtype.numpy)


def _given(program: Traced, arrays: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of what the program reads, in the tensors' types."""
    wanted = [t for t in program.tensors if t.access != "out"]
    names = ", ".join(t.name for t in wanted)
    unknown = [name for name in arrays if name not in {t.name for t in wanted}]
    if unknown:
        raise ProgramFault(f"{program.machine} reads no {unknown[0]!r}; give arrays for {names}")
    out = {}
    for t in wanted:
        if t.name not in arrays:
            raise ProgramFault(f"{program.machine} reads {t.name}, and no array was given for it; give {names}")
        out[t.name] = _fitting(t.name, t.dtype, np.asarray(arrays[t.name]))
    return out


def _fitting(name: str, kind: DType, array: Array) -> Array:
    """An array in a tensor's type; f64 stands for any float, and is rounded."""
    if array.dtype == kind.numpy or (kind.is_float and array.dtype == np.float64):
        return as_elements(array, kind)
    raise ProgramFault(f"{name} is of {kind} in this program, and {array.dtype} was given")


def _scalars(program: Traced, scalars: Mapping[str, Any]) -> dict[str, Array]:
    wanted = {s.name: s.dtype for s in program.scalars}
    if wanted.keys() != scalars.keys():
        named = f"the numbers {', '.join(wanted)}" if wanted else "no numbers"
        were = "were" if len(scalars) > 1 else "was"
        raise ProgramFault(f"{program.machine} takes {named} by name; {', '.join(scalars) or 'none'} {were} given")
    return {name: number(scalars[name], kind) for name, kind in wanted.items()}


def _dims(program: Traced, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """Every dim, as the arrays have it, or as it was said."""
    found: dict[str, tuple[int, str]] = {name: (size, "what was said") for name, size in sizes.items()}
    for t in program.tensors:
        if t.name not in arrays:
            continue
        shape = np.shape(arrays[t.name])
        if len(shape) != t.rank:
            raise ProgramFault(f"{t.name} has the dims {', '.join(t.dims)}, and the array has the shape {list(shape)}")
        for axis, (dim, size) in enumerate(zip(t.dims, shape, strict=True)):
            if (known := t.size(axis)).is_number and int(known) != size:
                elements = f"has {known} elements along axis {axis}, and the array {size}"
                raise ProgramFault(f"{program.machine}: in this program {t.name} {elements}")
            if dim.isdigit():
                continue
            had, where = found.setdefault(dim, (size, t.name))
            if had != size:
                raise ProgramFault(f"{program.machine}: the dim {dim} is {had} in {where} and {size} in {t.name}")
    needed = [d for t in program.tensors for d in t.dims if not d.isdigit()] + sorted(_symbols(program))
    missing = [d for d in dict.fromkeys(needed) if d not in found]
    if missing:
        raise ProgramFault(f"{program.machine}: no array that was given has the dim {missing[0]}; say how large it is")
    return {name: size for name, (size, _) in found.items()}


def _symbols(program: Traced) -> set[str]:
    """Dims that the program's expressions name."""
    bound = {a.index for a in program.grid.axes} | {n.PART}
    bound |= {s.index for s in walk(program.body) if isinstance(s, n.Repeated)}
    found = {name for part in (program.grid, program.body) for e in expressions(part) for name in e.symbols}
    return {name for name in found - bound if "." not in name}


def _rounds_of_tile(program: Traced, dims: Mapping[str, int]) -> int:
    """Rounds that divided loops have for a whole tile."""
    divided = [s.trips for s in walk(program.body) if isinstance(s, n.Repeated) and s.divided]
    return int(evaluate(maximum(1, *divided), dims))


# ---- preparing -----------------------------------------------------------------------------------------------------


def _prepared(program: Traced) -> dict[str, Block]:
    """What each role does for a tile."""
    preparing = Preparing(tuple(int(a.cluster) for a in program.grid.axes), _areas(program))
    return {r.name: preparing.block(tuple(_statements(program.body, r.name))) for r in program.roles}


def _statements(body: tuple[n.Statement, ...], role: str) -> Iterator[n.Statement]:
    """What a role does, from all its blocks in order."""
    for s in body:
        if isinstance(s, n.InRole):
            yield from s.body if s.role == role else ()
        else:
            for inner in s.children:
                yield from _statements(inner.statements, role)


def _areas(program: Traced) -> dict[int, int]:
    """The number of each fix-up; roles that take different tiles leave what they have in the same places."""
    out: dict[int, int] = {}
    behind = start = 0
    for role in program.roles:
        mine = [s for s in walk(tuple(_statements(program.body, role.name))) if isinstance(s, n.FixUp)]
        if not role.share[0]:
            start = behind
        out |= {id(s): start + place for place, s in enumerate(mine)}
        behind = max(behind, start + len(mine))
    return out


# ---- one CTA -------------------------------------------------------------------------------------------------------


def _multiplied(program: Traced) -> list[MatrixMultiply]:
    return [s.instruction for s in walk(program.body) if isinstance(s, n.Multiply)]


def _ctas(
    program: Traced, launch: Launch, blocks: Mapping[str, Block], dims: Mapping[str, int], first: int,
    works: list[list[Work]],
) -> None:  # fmt: skip
    """All roles of a CTA, or of those of a cluster that carry out instructions together, until all tiles are done."""
    exchange = Exchange()
    running: dict[tuple[int, str], Iterator[str]] = {}
    workers: dict[tuple[int, str], Worker] = {}
    counted: list[Ring | Turns | Exchange] = [exchange]
    for rank, mine in enumerate(works):
        rings, turns = _pipelines(program)
        counted += [*rings.values(), *turns.values()]
        for role in program.roles:
            worker = workers[first + rank, role.name] = Worker(launch, role, rings, turns, {}, _NOTHING, exchange, rank)
            running[first + rank, role.name] = _role(program, blocks[role.name], worker, dims, mine)
    while running:
        waiting: dict[tuple[int, str], str] = {}
        before, many = sum(c.moves for c in counted), len(running)
        for who in list(running):
            try:
                found = next(running[who], None)
            except ProgramFault as fault:
                raise at(fault, workers[who].at.place) from fault.__cause__
            if found is None:
                del running[who]
            else:
                waiting[who] = found
        if len(waiting) == many and sum(c.moves for c in counted) == before:
            stuck = next(iter(waiting))[0]
            said = "; ".join(f"role {name} waits {what}" for (cta, name), what in waiting.items() if cta == stuck)
            sentence = f"{program.machine} waits for ever in CTA {stuck}: {said}"
            raise at(ProgramFault(sentence), workers[next(iter(waiting))].at.place)


_NOTHING = Work((), 0, None, 1)


def _goes_on(program: Traced, pipeline: str) -> bool:
    """Whether some of what produces a pipeline adds to what is there."""
    filled = [u.body.statements for u in uses(program.body, pipeline) if u.does == "produce"]
    return any(going_on_in(body) or list(shifts(walk(body))) for body in filled)


def _pipelines(program: Traced) -> tuple[dict[str, Ring], dict[str, Turns]]:
    """The pipelines of a CTA, with nothing in them."""
    rings, turns = {}, {}
    for pipeline in program.pipelines:
        name = pipeline.name
        users = [r for r in program.roles if name in _consumed(tuple(_statements(program.body, r.name)))]
        if pipeline.buffers:
            buffers = {b.name: slots(b) for b in pipeline.buffers}
            for b in pipeline.buffers:
                for one, other in zip(buffers[b.name], buffers[b.over] if b.over else (), strict=False):
                    one.beside.append(other)
                    other.beside.append(one)
            rings[name] = Ring(name, int(pipeline.stages), buffers, tuple(users), _goes_on(program, name))
        else:
            first = {s.role: None for s in walk(program.body) if isinstance(s, n.InRole) and name in _consumed(s.body)}
            turns[name] = Turns(name, tuple(first))
    return rings, turns


def _consumed(body: tuple[n.Statement, ...]) -> set[str]:
    found = (inner for s in walk(body) for inner in s.children if inner.consumes)
    return {name for inner in found for name in (inner.consumes, *inner.along)}


def _role(
    program: Traced, block: Block, worker: Worker, dims: Mapping[str, int], works: list[Work]
) -> Iterator[str]:
    """One role's walk over the tiles of its CTA; yields what it waits for."""
    for tile, work in enumerate(works):
        if not takes(worker.role, tile):
            continue
        known = {**dims, n.PART: work.part}
        if work.rounds is not None:
            known[n.FIRST_ROUND] = work.rounds[0]
        known |= {axis.index: at for axis, at in zip(program.grid.axes, work.tile, strict=True)}
        yield from block.run(replace(worker, known=known, work=work, tile=tile, registers={}, slots={}))
