"""Passes over all that lies along an axis: written once, for what registers hold and for what is read again.

An operation on rows is a sequence of passes: a sum, a largest element, a result for each element. `p.passes` gives the
row as a value, and what is made of it by operators waits for the pass that needs it. Where threads hold the row, a
pass goes over their registers, part by part; where they do not, it is a loop that loads tile after tile, each of which
may come to shared memory ahead of its round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.combine import Combine, identity_of
from tinygpu.language.functions import where
from tinygpu.language.instruction import Elementwise, Transfer
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.by_data import ByData
from tinygpu.language.tracing.combining import By, Combining
from tinygpu.language.tracing.of_row import Ahead, Here, OfRow
from tinygpu.language.tracing.ring import Ring
from tinygpu.language.tracing.selecting import Selecting
from tinygpu.language.verb import verb

# What programs write behind `row.`
ROW_VERBS = ("load", "index", "hold", "reduce", "store", "tiles", "meet", "part")
# A tensor inside `program`, which editors know by its declaration.
OfMachine: TypeAlias = BoundTensor | TensorDeclaration


@dataclass(slots=True, eq=False)
class Passes:
    """The row, or the rows side by side, that a program passes over.

    extent   elements along the axis
    who      who holds a tile
    at       where the first tile begins, per axis
    axis     the axis along which passes go
    step     elements that all who share the row take in a round
    held     who computes with a part of what is held, or with all of it; None: nothing is, and a pass is a loop
    by       how threads exchange what they have of a reduction; the axis of the grid along which clusters do
    waiting  stores that the next pass takes along
    rings    how many passes had tiles come ahead
    state    why no pass can begin; "" one can
    """

    tracer: Passing
    extent: Expr
    who: Partition
    at: tuple[Expr, ...]
    axis: int
    step: Expr
    held: Partition | None
    by: tuple[By, int | None]
    waiting: list[tuple[Transfer, BoundTensor, OfRow]] = field(default_factory=list)
    rings: int = 0
    state: str = ""

    def fail(self, sentence: str) -> DeclarationError:
        return self.tracer.fail(sentence)

    @property
    def part(self) -> Partition:
        """Who computes at a time: with a tile of a loop, or a part of what is held."""
        return self.held or self.who

    # -- the row as a value ----------------------------------------------------------------------------------------
    @verb("row.load")
    def load(self, by: Transfer | Ahead, tensor: OfMachine, *, fill: float = 0.0, to: str = "") -> OfRow:
        """The elements of a tensor; of a tensor with a single dim those of a line that stands for all.

        by    a load, or an Ahead where what is loaded is not held
        fill  what lies beyond the tensor
        to    the type that they are converted to
        """
        bound = self._tensor(tensor)
        if isinstance(by, Ahead) and (self.held is not None or fill):
            why = "what registers hold is loaded once" if self.held is not None else "a copy fills with zeros"
            raise self.fail(f"{tensor.name} comes ahead of its rounds, and {why}; give a load")

        def make(here: Here) -> Tile:
            window, who = here.window(bound, self.axis)
            if isinstance(by, Ahead):
                loaded = self.tracer.load(by.load, getattr(here.slot, bound.name), who)
            else:
                loaded = self.tracer.load(by, window, who, fill=fill)
            return self.tracer.cast(loaded, to) if to else loaded

        return OfRow(bound.name, make, self, ((bound, by),) if isinstance(by, Ahead) else ())

    @property
    def index(self) -> OfRow:
        """The place of each element along the row, in s32."""

        def make(here: Here) -> Tile:
            found: Tile = self.tracer.index(here.who.along(self.axis), self.axis) + here.at[self.axis]
            return found

        return OfRow("index", make, self)

    @verb("row.hold")
    def hold(self, value: OfRow) -> OfRow:
        """The same, in registers from here on, where they hold the row; where they do not, it is made again."""
        self._begins(value)
        if self.held is None or value.held is not None:
            return value
        whole = self._made(value, Here(self.at, self.who))

        def part(here: Here) -> Tile:
            return whole.window(here.within, here.who.shape) if here.within else whole

        return OfRow(value.said, part, self, held=whole)

    # -- passes ----------------------------------------------------------------------------------------------------
    @overload
    def reduce(self, combine: Elementwise, value: OfRow, /, *, inside: bool = False) -> Tile: ...
    @overload
    def reduce(
        self, combine: Elementwise, value: OfRow, /, *more: OfRow, inside: bool = False
    ) -> tuple[Tile, ...]: ...
    @verb("row.reduce")
    def reduce(
        self, combine: Elementwise, value: OfRow, /, *more: OfRow, inside: bool = False
    ) -> Tile | tuple[Tile, ...]:
        """What all elements have together, one tile for each value: by one pass, or of held registers as they are.

        inside  what is made beyond the row, of what loads fill, would count, and is left out
        """
        if not isinstance(combine, Elementwise):
            what = f"the Combine {combine.name}" if isinstance(combine, Combine) else repr(combine)
            raise self.fail(f"a row is reduced by an instruction, not by {what}; write the pass, as row.tiles(...)")
        kind = dtype(combine.elements()[1])
        nothing = identity_of(combine.sign, kind)
        if nothing is None:
            name = self.tracer.machine.attribute_of(combine)
            raise self.fail(f"a pass begins with what changes nothing, and of {name} that is not known")
        values = (value, *more)
        self._begins(*values)
        if inside:
            there = self.index < self.extent
            values = tuple(where(there, v, float(nothing) if kind.is_float else nothing) for v in values)
        if self.held is self.who or all(v.held is not None for v in values):
            whole = Here(self.at, self.who)
            totals = [self._made(v, whole) for v in values]
        else:
            totals = [self.tracer.full(self.part, kind, nothing) for _ in values]
            with self._round(*values) as here:
                for total, one in zip(totals, values, strict=True):
                    self.tracer.apply(combine, total, self._made(one, here), into=total)
        made = tuple(self.meet(combine, total) for total in totals)
        return made if more else made[0]

    @overload
    def meet(self, combine: Elementwise, value: Tile) -> Tile: ...
    @overload
    def meet(self, combine: Combine, value: tuple[Tile, ...]) -> tuple[Tile, ...]: ...
    @verb("row.meet")
    def meet(self, combine: Any, value: Any) -> Any:
        """What all who share the row have together, of a tile, or of several, that each has a part of."""
        by, cluster = self.by
        return self.tracer.reduce(combine, value, self.axis, by, cluster)

    @verb("row.tiles")
    @contextmanager
    def tiles(self, *values: OfRow) -> Iterator[tuple[Any, ...]]:
        """A pass that its author writes: yields where a tile begins, per axis, and the tile of each value there."""
        with self._round(*values) as here:
            yield (here.at, *(self._made(value, here) for value in values))

    @verb("row.store")
    def store(self, instruction: Transfer, tensor: OfMachine, value: OfRow) -> None:
        """Into the place of each element: by the next pass, or by one at the end; what is held at once."""
        self._begins(value)
        bound = self._tensor(tensor)
        if value.held is not None:
            self._store(Here(self.at, self.who), instruction, bound, value)
        else:
            self.waiting.append((instruction, bound, value))

    def finish(self) -> None:
        """One more pass, where stores wait for it."""
        if self.waiting:
            with self._round():
                pass
        self.state = "its block has ended"

    # -- rounds ----------------------------------------------------------------------------------------------------
    @contextmanager
    def _round(self, *values: OfRow) -> Iterator[Here]:
        self._begins(*values)
        stores, self.waiting, self.state = self.waiting, [], "a pass over it is under way"
        with self._here(dict.fromkeys(a for v in (*values, *(s[2] for s in stores)) for a in v.ahead)) as here:
            yield here
            for store in stores:
                self._store(here, *store)
        self.state = ""

    def _begins(self, *values: OfRow) -> None:
        """A pass may begin here, and is over values of this row."""
        if self.state:
            raise self.fail(f"what p.passes gives begins no pass here, as {self.state}")
        for value in values:
            if not isinstance(value, OfRow) or value.row is not self:
                raise self.fail(f"a pass is over values of its row, as row.load(...) gives them, and not {value}")

    @contextmanager
    def _here(self, ahead: dict[tuple[BoundTensor, Ahead], None]) -> Iterator[Here]:
        """A round of a pass: a part of what is held, or a tile of a loop, for which some tensors come ahead."""
        p = self.tracer
        if self.held is self.who:
            yield Here(self.at, self.who)
        elif self.held is not None:
            with p.unroll(self.who.shape[self.axis], step=self.held.shape[self.axis]) as part:
                yield Here(self._moved(part), self.held, self._moved(part, (expr(0),) * len(self.at)))
        elif not ahead:
            with p.loop(self.extent, step=self.step) as place:
                yield Here(self._moved(place), self.who)
        else:
            with self._ring(ahead) as ring:
                with p.loop(self.extent, step=self.step) as place, ring.produce() as slot:
                    for tensor, by in ahead:
                        window, who = Here(self._moved(place), self.who).window(tensor, self.axis)
                        p.copy(by.copy, window, getattr(slot, tensor.name), who)
                with p.loop(self.extent, step=self.step) as place, ring.consume() as slot:
                    yield Here(self._moved(place), self.who, slot=slot)

    def _ring(self, ahead: dict[tuple[BoundTensor, Ahead], None]) -> AbstractContextManager[Ring]:
        """The slots of one pass: a tile of every tensor that comes ahead."""
        stages = expr(next(by.stages for _, by in ahead))
        if len({tensor.name for tensor, _ in ahead}) < len(ahead) or any(not stages.same(by.stages) for _, by in ahead):
            names = " and ".join(tensor.name for tensor, _ in ahead)
            raise self.fail(f"{names} come ahead of one pass, each once, and all by as many stages")
        tiles = {tensor: Here(self.at, self.who).window(tensor, self.axis)[0] for tensor, _ in ahead}
        buffers = {tensor.name: self.tracer.smem(tensor.dtype, tile.shape) for tensor, tile in tiles.items()}
        self.rings += 1
        return self.tracer.pipeline("ring" if self.rings == 1 else f"ring{self.rings}", stages, **buffers)

    def _tensor(self, tensor: OfMachine) -> BoundTensor:
        if not isinstance(tensor, BoundTensor):
            raise self.fail(f"passes load and store tensors of the machine, as self.x, and not {tensor!r}")
        return tensor

    def _moved(self, by: Expr, at: tuple[Expr, ...] = ()) -> tuple[Expr, ...]:
        return tuple(begin + by if axis == self.axis else begin for axis, begin in enumerate(at or self.at))

    def _made(self, value: OfRow, here: Here) -> Tile:
        made: Tile = here(value)
        return made

    def _store(self, here: Here, instruction: Transfer, tensor: BoundTensor, value: OfRow) -> None:
        self.tracer.store(instruction, here.window(tensor, self.axis)[0], self._made(value, here))


@dataclass(slots=True, eq=False)
class Passing(ByData, Selecting, Combining):
    """Programs that pass over rows."""

    @verb("p.passes")
    @contextmanager
    def passes(
        self,
        extent: Operand,
        who: Partition,
        *,
        at: tuple[Operand, ...],
        axis: int = 1,
        step: Operand | None = None,
        held: Partition | None = None,
        by: By = None,
        cluster: int | None = None,
    ) -> Iterator[Passes]:
        """All that lies along an axis, as a value that passes go over: see `Passes`.

        extent   elements along the axis
        who      who holds a tile of it
        at       where the first tile of these threads begins, per axis of the tensor
        axis     the axis
        step     elements from one round to the next; by default those of a tile. CTAs that share a row take theirs
                 side by side
        held     one round is all, and registers hold what `hold` is given: `who`, or the partition of parts that are
                 computed with one after another, which takes fewer registers beside it
        by       how threads exchange what they have of a reduction, as in `p.reduce`
        cluster  an axis of the grid: the CTAs of a cluster along it share a row
        """
        if not 0 <= axis < len(who.shape) or len(at) != len(who.shape):
            have = f"a tile of {len(who.shape)} axes"
            raise self.fail(f"p.passes goes along one axis of {have}, from a place with as many; not {axis} and {at}")
        width = who.shape[axis] if step is None else expr(step)
        if held is not None:
            said = f"all {extent} elements along axis {axis} are held by those who share them"
            self.require((Condition("held rows", expr(extent) <= width, said),))
        begin = tuple(map(expr, at))
        row = Passes(self, expr(extent), who, begin, axis, width, held, (by, cluster))
        yield row
        row.finish()
