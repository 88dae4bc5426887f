"""The traced form of a machine, as an immutable value that prints.

A Program is traced once per structure, with parameters, dims and tensor facts as symbols. Lowering fills in a
candidate's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tinygpu.expressions import Expr, expr, joined, maximum, where
from tinygpu.interpreter.elements import Array
from tinygpu.interpreter.interpret import interpret
from tinygpu.interpreter.worker import Watch
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Pipeline, Role
from tinygpu.language.tensors import Tensor
from tinygpu.notebook import html as notebook
from tinygpu.program.listing import listing
from tinygpu.program.nodes import PART, Axis, Grid, Preceding, Repeated, ScalarArgument, Statement, Uniform
from tinygpu.program.tree import places, walk

# Of the rounds of a loop that are looked at to see how often a branch in it is taken.
BRANCH_PARTS = 8


@dataclass(frozen=True, eq=False)
class Program:
    """A machine's program for one structure."""

    machine: str
    structure: tuple[tuple[str, str | int], ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarArgument, ...]
    grid: Grid
    roles: tuple[Role, ...]
    pipelines: tuple[Pipeline, ...]
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        turns = frozenset(p.name for p in self.pipelines if not p.buffers)
        return "\n".join([*_head(self), *listing(self.body, "    ", turns)])

    def _repr_html_(self) -> str:
        """The listing, and who holds what of its tiles, as pictures where the program is filled in."""
        pictures = [
            notebook.folded(str(partition), partition._repr_html_())
            for partition in _partitions(self)
            if all(extent.is_number for extent in partition.shape)
        ]
        return notebook.code(str(self)) + "".join(pictures)

    def pipeline(self, name: str) -> Pipeline:
        return next(p for p in self.pipelines if p.name == name)

    @property
    def of_one_slot(self) -> frozenset[str]:
        """The pipelines that are known to have one slot."""
        return frozenset(p.name for p in self.pipelines if p.stages.same(1))

    def run(
        self,
        arrays: Mapping[str, Any],
        scalars: Mapping[str, Any] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        ctas: int | None = None,
        watch: Watch | None = None,
    ) -> dict[str, Array]:
        """The tensors that a filled-in program writes, by the meanings of its instructions in NumPy: no PTX, no GPU.

        arrays   one per tensor that it reads: (dims) in the tensor's type
        scalars  its numbers, by name
        sizes    dims that no given array has
        ctas     that are launched of a persistent grid, at most; None: four clusters of them
        watch    told of every tile that a statement leaves in registers; what it returns stands there from then on

        The arrays stay as they are. Raises ProgramFault where roles wait for each other for ever, where something is
        read that nobody wrote, where an element of a result is never written, and for arrays that do not fit.
        """
        return interpret(self, arrays, scalars or {}, sizes or {}, ctas, watch)

    @cached_property
    def indices(self) -> frozenset[str]:
        """What counts tiles, parts of tiles and rounds of loops."""
        loops = (s.index for s in walk(self.body) if isinstance(s, Repeated))
        return frozenset((PART, *(axis.index for axis in self.grid.axes), *loops, *self.said_by_data))

    @cached_property
    def sizes_named(self) -> frozenset[str]:
        """The dims of its tensors: 1 at least."""
        sizes = (tensor.size(home) for tensor in self.tensors for home in range(tensor.rank))
        return frozenset(name for size in sizes for name in size.symbols)

    @cached_property
    def said_by_data(self) -> frozenset[str]:
        """The numbers that data say, as expressions name them."""
        return frozenset(name for s in walk(self.body) for name in s.defines)

    @property
    def placed_by_data(self) -> frozenset[str]:
        """The tensors of which data, or conditions, decide what is touched."""
        said, found = self.said_by_data, set[str]()
        for place in places(self.body):
            loops = {name for loop in place.loops for name in loop.trips.symbols}
            branch = any(block.taken_where is not None for block, _ in place.around)
            for tile in (*place.statement.reads, *place.statement.writes):
                if tile.tensor is not None:
                    offsets = {name for o in (*tile.offset, *(at for _, at in tile.fixed)) for name in o.symbols}
                    if tile.pick is not None or tile.ends or branch or said & (loops | offsets):
                        found.add(tile.tensor.name)
        return frozenset(found)

    def rounds_of(self, s: Repeated) -> Expr:
        """The rounds of a loop, over parameters and dims: what indices and data decide is taken for what is typical.

        Where data decide, tiles have some rounds, or none: their mean, by the tiles in the middle of equal parts of the
        grid.
        """
        if not s.trips.symbols & self.indices:
            return s.trips
        if not self._differ(s):
            return maximum(self._with(s.trips, self._typical()), 1)
        found = expr(0)
        for rounds in self._rounds_of_parts(s):
            found = found + rounds
        return maximum((2 * found + BRANCH_PARTS) // (2 * BRANCH_PARTS), 1)

    def most_rounds_of(self, s: Repeated) -> Expr:
        """As `rounds_of`, but of the tiles that have most, where data decide that some have none."""
        return maximum(*self._rounds_of_parts(s), 1) if self._differ(s) else self.rounds_of(s)

    def _differ(self, s: Repeated) -> bool:
        """Whether data decide how many rounds each tile has."""
        return bool(s.trips.symbols & {a.index for a in self.grid.axes} and s.trips.symbols & self.said_by_data)

    def _rounds_of_parts(self, s: Repeated) -> list[Expr]:
        """The rounds of the tiles in the middle of equal parts of the grid."""
        typical = self._typical()
        return [self._with(s.trips, {**typical, **self._tiles(part)}) for part in range(BRANCH_PARTS)]

    def taken_of(self, s: Statement) -> Expr:
        """In how many of `BRANCH_PARTS` equal parts of its rounds a branch is taken, by the middle of each part.

        What data say of the condition, or which CTA of those that share a tile asks, is not known: it is taken then,
        but where it is said how often the number is which. Taken is a branch with loops inside, too, or with what is
        left under way.
        """
        given, whole = s.taken_where, expr(BRANCH_PARTS)
        inside = [i for i in walk((s,)) if i is not s]
        if given is None or any((isinstance(i, Repeated) and not i.written_out) or i.tokens for i in inside):
            return whole
        if given.symbols & (self.said_by_data | {PART}):
            return self._as_likely(given)
        if not given.symbols & self.indices:
            return whole
        typical, loops = self._typical(), [i for i in walk(self.body) if isinstance(i, Repeated)]
        sampled = [i for i in loops if i.index in given.symbols]
        taken = expr(0)
        for part in range(BRANCH_PARTS):
            places: dict[str, Expr] = {
                i.index: i.first + self._with(i.trips, typical) * (2 * part + 1) // (2 * BRANCH_PARTS) for i in sampled
            }
            if not sampled:
                places = self._tiles(part)
            taken = taken + where(self._with(given, {**typical, **places}), 1, 0)
        return taken

    def _as_likely(self, given: Expr) -> Expr:
        """The same of a condition over one number, of which it is said how often it is which."""
        known = {s.symbol: s.likely for s in walk(self.body) if isinstance(s, Uniform)}
        likely = known.get(next(iter(given.symbols)), ()) if len(given.symbols) == 1 else ()
        (name,) = given.symbols if likely else ("",)
        held = [(where(given, 1, 0).substitute({name: expr(number)}), share) for number, share in likely]
        if not likely or not all(taken.is_number for taken, _ in held):
            return expr(BRANCH_PARTS)
        share = sum(share for taken, share in held if int(taken))
        return expr(min(BRANCH_PARTS, max(1, math.ceil(BRANCH_PARTS * share - 1e-9))))

    def _tiles(self, part: int) -> dict[str, Expr]:
        """The tile in the middle of one of `BRANCH_PARTS` parts of the grid, along every axis."""
        return {a.index: a.tiles * (2 * part + 1) // (2 * BRANCH_PARTS) for a in self.grid.axes}

    def _typical(self) -> dict[str, Expr]:
        """The middle of what every index goes over, and what expressions define."""
        typical: dict[str, Expr] = {n: e for inner in walk(self.body) for n, e in inner.defines.items()}
        typical |= {a.index: (a.tiles - 1) // 2 for a in self.grid.axes}
        return typical | {i.index: i.first + (i.trips - 1) // 2 for i in walk(self.body) if isinstance(i, Repeated)}

    @staticmethod
    def _with(found: Expr, values: Mapping[str, Expr]) -> Expr:
        while known := {name: values[name] for name in found.symbols & values.keys()}:
            found = found.substitute(known)
        return found

    def knows_places(self, cut: Collection[int]) -> bool:
        """Whether what is made of a tile hangs on where it lies in the grid, or on the tiles before it, and not on what
        lies there alone.

        cut  axes of the grid with more than one tile, or cluster of tiles
        """
        axes = [self.grid.axes[number] for number in sorted(cut)]
        indices = {axis.index for axis in axes}
        places = indices | {name for axis in axes for name in axis.tiles.symbols}
        deciding = [e.symbols & places for s in walk(self.body) for e in s.decides_by]
        deciding += [s.trips.symbols & indices for s in walk(self.body) if isinstance(s, Repeated)]
        return any(deciding) or any(isinstance(s, Preceding) for s in walk(self.body))

    @property
    def threads(self) -> Expr:
        """Threads per CTA: the end of the last role."""
        return maximum(*[(r.first + r.warps) * 32 for r in self.roles])


def _partitions(p: Program) -> tuple[Partition, ...]:
    """Who holds what of the values in registers, each way once."""
    found: dict[str, Partition] = {}
    for s in walk(p.body):
        for tile in s.writes:
            if tile.partition is not None:
                found.setdefault(str(tile.partition), tile.partition)
    return tuple(found.values())


def _groups(axis: Axis) -> str:
    return "" if axis.groups.same(1) else f" of {axis.groups} groups"


def _head(p: Program) -> Iterator[str]:
    """What a program declares, one line each."""
    structure = ", ".join(f"{k}={v}" for k, v in p.structure)
    yield f"program {p.machine}({structure})"
    for t in p.tensors:
        where = f" in {t.memory}" if t.memory.own else ""
        yield f"  {t.access:5} {t.name}: {t.dtype}[{', '.join(t.dims)}] {t.major}-major{where}"
    for s in p.scalars:
        yield f"  scalar {s.name}: {s.dtype}"
    for r in p.roles:
        budget = f", {r.registers} registers" if r.registers else ""
        share = f", tiles {r.share[0]} of every {r.share[1]}" if r.share[1] > 1 else ""
        yield f"  role {r.name}: {r.which}{budget}{share}"
    for pipe in p.pipelines:
        stages = f"{pipe.stages} stages, " if pipe.buffers else ""
        yield f"  pipeline {pipe.name}: {stages}{pipe.completion}"
        for b in pipe.buffers:
            layout = f" as {b.layout}" if b.layout else ""
            shape = ", ".join(map(str, b.shape))
            yield f"    {b.memory} {b.name}: {b.dtype}[{shape}], axis {b.contiguous} contiguous, pad {b.pad}{layout}"
    axes = ", ".join(f"{a.index} in {joined((a.size, a.extent), '/')}{_groups(a)}" for a in p.grid.axes)
    cluster = joined((a.cluster for a in p.grid.axes), " x ")
    yield f"  grid {axes}; raster {p.grid.raster}; clusters of {cluster}{p.grid.scheduler.title}"
