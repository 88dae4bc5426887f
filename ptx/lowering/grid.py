"""What a CTA works on: the tile scheduler, carried out in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.quotients import quotient, remainder
from tinygpu.ptx.lowering.sync import Trips
from tinygpu.schedulers.raster import place_of
from tinygpu.schedulers.scheduler import Walk, Work


@dataclass(frozen=True, slots=True)
class Registers:
    """What a scheduler computes with, as PTX (`tinygpu.schedulers.run_time.RunTime`)."""

    context: Context

    def own(self) -> Number:
        return self.context.cluster_number()

    def launched(self) -> Number:
        emit = self.context.emit
        return emit.div(emit.computed("r", "mov.u32 {d}, %nctaid.x;"), self.context.cluster_size)

    def tiles(self) -> Number:
        total: Number = 1
        for count in tile_counts(self.context):
            total = self.context.emit.mul(total, count)
        return total

    def along(self, axis: int) -> Number:
        return tile_counts(self.context)[axis]

    def rounds(self) -> Number:
        return self.context.number(rounds_of_tile(self.context.program))

    def add(self, a: Number, b: Number) -> Number:
        return self.context.emit.add(a, b)

    def sub(self, a: Number, b: Number) -> Number:
        return self.context.emit.sub(a, b)

    def mul(self, a: Number, b: Number) -> Number:
        return self.context.emit.mul(a, b)

    def div(self, a: Number, b: Number) -> Number:
        return quotient(self.context.emit, a, b)

    def rem(self, a: Number, b: Number) -> Number:
        return remainder(self.context.emit, a, b)

    def minimum(self, a: Number, b: Number) -> Number:
        return self.context.emit.minimum(a, b)

    def maximum(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.context.emit.computed("r", "max.u32 {d}, {0}, {1};", a, b)

    def less(self, a: Number, b: Number) -> Number:
        return self.context.emit.less(a, b)

    def equal(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return int(a == b)
        ordered = (a, b) if isinstance(a, Reg) else (b, a)
        return self.context.emit.computed("p", "setp.eq.u32 {d}, {0}, {1};", *ordered)

    def both(self, a: Number, b: Number) -> Number:
        return self.context.emit.both(a, b)

    def select(self, yes: Number, no: Number, condition: Number) -> Number:
        return self.context.emit.select(yes, no, condition)


def tile_counts(context: Context) -> list[Number]:
    """Tiles along each axis of the grid; where CTAs form clusters, clusters of tiles."""
    emit = context.emit
    out: list[Number] = []
    for axis in context.program.grid.axes:
        extent = int(axis.extent) * int(axis.cluster)
        tiles = emit.div(emit.add(context.number(axis.size), extent - 1), extent)
        out.append(tiles if axis.groups.same(1) else emit.add(tiles, emit.sub(context.number(axis.groups), 1)))
    return out


def rounds_of_tile(program: Program) -> Expr:
    """Rounds that the divided loops of a program have for a whole tile."""
    return next(s.trips for s in walk(program.body) if isinstance(s, n.Repeated) and s.divided)


def enter(context: Context, walk: Walk, item: Number) -> None:
    """The CTA's cluster works on one of its items: what it does of the tile, and tile numbers along the axes."""
    run, counts = Registers(context), tile_counts(context)
    context.walk, context.work = walk, walk.work(run, item)
    context.indices[n.PART] = context.work.slice
    axes = context.program.grid.axes
    found = place_of(run, context.work.tile, counts, int(context.program.grid.raster))
    for place, (axis, number) in enumerate(zip(axes, found, strict=True)):
        first_of_cluster = context.emit.mul(number, int(axis.cluster))
        context.indices[axis.index] = context.emit.add(first_of_cluster, context.cluster_rank(place))


def own(context: Context) -> tuple[Walk, Work]:
    """What the CTA's cluster takes, and what it works on."""
    if context.walk is None or context.work is None:
        raise LoweringError("no tile is open")
    return context.walk, context.work


def trips_of(context: Context, s: n.Repeated, number: Number, ahead: int = 0) -> Trips:
    """How many rounds a loop has, by what decides it; `ahead`: of the tile that the CTA takes so many tiles later."""
    dealt = s.divided and context.scheduler.deals_rounds
    if dealt:
        return Trips("the CTA's own rounds", number, ahead, dealt)
    base, more = s.trips.split
    return Trips(str(s.trips), number, ahead, base=str(base), more=more)
