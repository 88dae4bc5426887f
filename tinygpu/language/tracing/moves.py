"""The verbs that move tiles: between memories, and from thread to thread."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.dtypes import PREDICATE
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.holders import same_threads, same_warps
from tinygpu.language.instruction import (
    BulkTransfer,
    CellCopy,
    CellLoad,
    CellStore,
    Instruction,
    LaneRead,
    MatrixLoad,
    MatrixStore,
    Transfer,
)
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.parameters import UnknownLayout
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Token
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.blocks import Blocks
from tinygpu.language.verb import verb
from tinygpu.layouts.errors import LayoutError
from tinygpu.program import nodes as n


@dataclass(slots=True, eq=False)
class Moves(Blocks):
    """What is brought where, and by whom."""

    @verb("p.load")
    def load(
        self, instruction: Instruction, source: Tile, partition: Partition, *, fill: float = 0.0
    ) -> Tile:
        """Memory to registers."""
        name = self._instruction(instruction, (Transfer, MatrixLoad, CellLoad), "load")
        self._path(instruction, source.memory, RMEM)
        if source.tensor is not None and source.tensor.access != "in" and getattr(instruction, "read_only", False):
            raise self.fail(
                f"{name} ({instruction}) reads {source.name} through the read-only path, and the program writes it; "
                "load it with ld.global"
            )
        self._same_shape(name, source, partition)
        self._in_slot(name, source, writing=False)
        self._number_in(f"what {name} fills with", fill, source.dtype)
        result = self._value(source.dtype, partition, f"the {name} of {source.name}")
        self._bring(instruction, source, partition)
        self.emit(n.Load(name, instruction, source, result, fill))
        return result

    @verb("p.store")
    def store(self, instruction: Transfer | MatrixStore | CellStore, target: Tile, value: Tile) -> None:
        """Registers to memory."""
        name = self._instruction(instruction, (Transfer, MatrixStore, CellStore), "store")
        value = self._stored(value, target.dtype)
        self._use(value)
        self._path(instruction, RMEM, target.memory)
        if value.partition is None:
            raise self.fail(f"{name} stores registers, and {value.name} lies in {value.memory}")
        self._same_shape(name, target, value.partition)
        self._in_slot(name, target, writing=True)
        # tf32 is what matrix units read of f32
        alike = {target.dtype.name, value.dtype.name} <= {"f32", "tf32"}
        if target.dtype != value.dtype and not alike:
            raise self.fail(
                f"{name} stores {value.dtype} values into {target.name}, which is {target.dtype}; convert first"
            )
        if target.tensor is not None and target.tensor.access == "in":
            raise self.fail(f"{name} writes {target.name}, which is declared Input; declare it Output or InOut")
        if isinstance(instruction, Transfer) and instruction.combines:
            self._combines(name, instruction, target)
        else:
            self._writes_alone(name, target)
        self._bring(instruction, target, value.partition)
        self.emit(n.Store(name, instruction, value, target))

    @verb("p.copy")
    def copy(
        self,
        instruction: Instruction | Route,
        source: Tile,
        target: Tile,
        partition: Partition | None = None,
        *,
        multicast: int | None = None,
        every: int = 1,
    ) -> Token | None:
        """Memory to memory: thread by thread, as a whole (BulkTransfer, CellCopy), or along a Route through registers.

        partition  who moves what, thread by thread
        multicast  axis of the grid along which all CTAs of a cluster need this tile: each brings a part to all of them
        every      2: every second one needs it, where CTAs multiply in pairs: those of the same place in their pairs
        """
        name = self._instruction(instruction, (Transfer, Route, BulkTransfer, CellCopy), "copy")
        if source.dtype != target.dtype:
            raise self.fail(f"{name} copies {source.dtype} to {target.dtype}; a copy keeps the type")
        hops = instruction.hops if isinstance(instruction, Route) else (instruction,)
        by_threads = [hop for hop in hops if isinstance(hop, Transfer)]
        where = source.memory
        for hop in hops:
            self._path(hop, where, None)
            where = getattr(hop, "writes", where)
        if where is not target.memory:
            raise self.fail(f"{name} ends in {where}, but {target.name} lies in {target.memory}")
        if partition is not None:
            self._same_shape(name, source, partition)
            self._same_shape(name, target, partition)
            for hop in by_threads:
                if hop.reads is source.memory:
                    self._bring(hop, source, partition)
                if hop.writes is target.memory:
                    self._bring(hop, target, partition)
        elif by_threads:
            raise self.fail(f"{name} moves thread by thread: say who moves what, with a partition")
        if target.tensor is not None and target.tensor.access == "in":
            raise self.fail(f"{name} writes {target.name}, which is declared Input; declare it Output or InOut")
        self._writes_alone(name, target)
        self._in_slot(name, source, writing=False)
        self._in_slot(name, target, writing=True)
        if isinstance(instruction, BulkTransfer):
            self._bring_whole(name, instruction, source, target, partition)
        if isinstance(instruction, CellCopy):
            self._bring_cells(name, instruction, source, target, partition)
        if multicast is not None:
            self._check_multicast(name, instruction, source, multicast, every)
        elif every != 1:
            raise self.fail(f"{name} brings a tile to one CTA, and every={every!r} says which of a cluster need it")
        token = self._token(target, next((h.completion for h in hops if h.completion), ""))
        copy = n.Copy(name, instruction, source, target, partition, token, multicast, every)
        if multicast is not None and isinstance(instruction, BulkTransfer) and not instruction.traced_only:
            ctas = copy.shared_by(() if self.grid_node is None else self.grid_node.axes)
            self.constraints.extend(instruction.multicast_rules(source, target, ctas))
        self.emit(copy)
        return token

    @verb("p.clear")
    def clear(self, tile: Tile) -> None:
        """The accumulator in TMEM begins as zeros: the first product overwrites it. Without one it has no value.

        One in registers begins with `full`.
        """
        if tile.memory is not TMEM:
            where = f"{tile.name} lies in {tile.memory}"
            raise self.fail(f"p.clear is for accumulators in TMEM, and {where}; begin with p.full")
        self._in_slot("p.clear", tile, writing=True)
        self.emit(n.Constant(tile, 0.0))

    @verb("p.relayout")
    def relayout(
        self,
        value: Tile,
        partition: Partition,
        by: LaneRead | Route | None = None,
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
    ) -> Tile:
        """The same tile, held by others: under `partition`, which is one of its extents.

        by  what brings values to other threads. A LaneRead: to other lanes of their warps, in the fewest rounds.
            Route(load=, store=): through a buffer in shared memory, where they are stored under the partition of the
            value and loaded under the new one; `contiguous`, `pad` and `layout` are those of the buffer. None: every
            thread keeps its values
        """
        if value.partition is None:
            raise self.fail(f"p.relayout moves values in registers, and {value.name} lies in {value.memory}")
        self._same_shape("p.relayout", value, partition)
        if value.dtype.bits not in (8, 16, 32, 64):
            sizes = "elements of 8, 16, 32 or 64 bits"
            other = "choose numbers by it first" if value.dtype == PREDICATE else "convert it first"
            raise self.fail(f"p.relayout moves {sizes}, and %{value.name} is {value.dtype}; {other}")
        if isinstance(by, Route):
            return self._through_memory(by, value, partition, contiguous, expr(pad), layout)
        if contiguous != -1 or not expr(pad).same(0) or layout is not None:
            raise self.fail("p.relayout has no buffer without a Route; leave out contiguous, pad and layout")
        name = "p.relayout" if by is None else self._instruction(by, (LaneRead, Route), "relayout")
        self._use(value)
        self._fits_role(f"%{value.name}", partition)
        holders = same_threads if by is None else same_warps
        try:
            self.require(holders(f"%{value.name}", value.partition, partition, self.machine.params()))
        except LayoutError as error:
            raise self.fail(f"p.relayout: {error}") from None
        if by is not None:
            self._acts(name, by)
        result = self._value(value.dtype, partition, f"the relayout of %{value.name}")
        self.emit(n.Relayout(name, by, value, result))
        return result

    def _through_memory(
        self,
        route: Route,
        value: Tile,
        partition: Partition,
        contiguous: int,
        pad: Expr,
        layout: UnknownLayout | None,
    ) -> Tile:
        """A relayout by a slot of a buffer of the tile's extents, which the role fills and then reads."""
        self._instruction(route, (Route,), "relayout")
        if len(value.shape) > 2:
            axes = f"%{value.name} has {len(value.shape)}"
            raise self.fail(f"p.relayout through shared memory takes tiles with one or two axes, and {axes}")
        buffer = self.smem(value.dtype, value.shape, contiguous=contiguous, pad=pad, layout=layout)
        with self.pipeline(self._name("relayout"), 1, tile=buffer) as ring:
            with ring.produce() as slot:
                self.store(route.store, slot.tile, value)
            with ring.consume() as slot:
                return self.load(route.load, slot.tile, partition)
