"""Tracing: runs a machine's `program` once per structure and writes down what it does.

The object that `program` receives has one verb per statement of `tinygpu.program.nodes`. Verbs check at once that an
instruction fits its operands (memory, dtype, partition), and collect the constraints that instructions and memories
bring. Mistakes raise `DeclarationError` with the machine, the attribute and the sentence. Here are the verbs that move
and compute; those that open blocks are in `tinygpu.language.blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.blocks import Blocks
from tinygpu.language.checks import axes_of, extents_of
from tinygpu.language.holders import same_threads, same_warps
from tinygpu.language.instruction import (
    BulkTransfer,
    Elementwise,
    Instruction,
    LaneRead,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Shuffle,
    Tiled,
    Transfer,
    tiled,
)
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.parameters import UnknownLayout
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.roles import Token
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.language.verb import verb
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.users_code import at, line_under_way


@dataclass(slots=True, eq=False)
class Tracer(Blocks):
    """Records one structure of a machine: the verbs of `program`."""

    # -- moving ----------------------------------------------------------------------------------------------------
    @verb("p.load")
    def load(
        self, instruction: Instruction, source: Tile, partition: Partition, *, fill: float = 0.0
    ) -> Tile:
        """Memory to registers."""
        name = self._instruction(instruction, (Transfer, MatrixLoad), "load")
        self._path(instruction, source.memory, RMEM)
        if source.tensor is not None and source.tensor.access != "in" and getattr(instruction, "read_only", False):
            raise self.fail(
                f"{name} ({instruction}) reads {source.name} through the read-only path, and the program writes it; "
                "load it with ld.global"
            )
        self._same_shape(name, source, partition)
        self._in_slot(name, source, writing=False)
        result = self._value(source.dtype, partition, f"the {name} of {source.name}")
        self._bring(instruction, source, partition)
        self.emit(n.Load(name, instruction, source, result, fill))
        return result

    @verb("p.store")
    def store(self, instruction: Transfer | MatrixStore, target: Tile, value: Tile) -> None:
        """Registers to memory."""
        name = self._instruction(instruction, (Transfer, MatrixStore), "store")
        self._use(value)
        self._path(instruction, RMEM, target.memory)
        if value.partition is None:
            raise self.fail(f"{name} stores registers, and {value.name} lies in {value.memory}")
        self._same_shape(name, target, value.partition)
        self._in_slot(name, target, writing=True)
        if target.dtype.bits != value.dtype.bits or target.dtype.kind != value.dtype.kind:
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
    ) -> Token | None:
        """Memory to memory: thread by thread, as a whole (BulkTransfer), or along a Route through registers.

        partition  who moves what, thread by thread
        multicast  axis of the grid along which all CTAs of a cluster need this tile: each brings a part to all of them
        """
        name = self._instruction(instruction, (Transfer, Route, BulkTransfer), "copy")
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
        if multicast is not None:
            self._check_multicast(name, instruction, source, multicast)
            if isinstance(instruction, BulkTransfer) and self.grid_node is not None:
                ctas = self.grid_node.axes[multicast].cluster
                self.constraints.extend(instruction.multicast_rules(source, target, ctas))
        token = self._token(target, next((h.completion for h in hops if h.completion), ""))
        self.emit(n.Copy(name, instruction, source, target, partition, token, multicast))
        return token

    @verb("p.clear")
    def clear(self, tile: Tile) -> None:
        """The accumulator in TMEM begins as zeros; one in registers begins with `full`."""
        if tile.memory is not TMEM:
            where = f"{tile.name} lies in {tile.memory}"
            raise self.fail(f"p.clear is for accumulators in TMEM, and {where}; begin with p.full")
        self._in_slot("p.clear", tile, writing=True)
        self.emit(n.Constant(tile, 0.0))

    def _token(self, target: Tile, completion: str) -> Token | None:
        return Token(self._number(), target.name, completion) if completion else None

    # -- computing -------------------------------------------------------------------------------------------------
    @verb("p.full")
    def full(self, partition: Partition, dtype_of: str | DType, value: float = 0.0) -> Tile:
        """A register tile that holds one number everywhere; it can be accumulated into."""
        self._fits_role("the constant", partition)
        result = self._value(dtype(dtype_of), partition, "a constant")
        self.emit(n.Constant(result, value))
        return result

    @verb("p.apply")
    def apply(
        self, instruction: Elementwise, *operands: Tile | n.ScalarArgument | Expr | float, into: Tile | None = None
    ) -> Tile:
        """One element-wise instruction, value by value; `into` an existing tile (an accumulator) or a new one.

        operands  tiles; scalars of the machine; numbers; dims, or expressions over dims, in the operand's type
        """
        name = self._instruction(instruction, (Elementwise,), "apply")
        takes, gives = instruction.elements()
        if len(operands) != len(takes):
            raise self.fail(f"{name} takes {len(takes)} operand{'s' * (len(takes) > 1)}, not {len(operands)}")
        widest: Tile | None = None
        for operand, want in zip(operands, takes, strict=True):
            if isinstance(operand, Tile):
                if into is None or operand.name != into.name:
                    self._use(operand)
                if operand.partition is None:
                    raise self.fail(f"{name} computes on registers, and {operand.name} lies in {operand.memory}")
                if operand.dtype.name != want:
                    raise self.fail(
                        f"{name} takes {want} here, and {operand.name} is {operand.dtype}; convert it first"
                    )
                widest = operand if widest is None else _wider(widest, operand)
            elif isinstance(operand, n.ScalarArgument) and operand.dtype.name != want:
                raise self.fail(f"{name} takes {want} here, and the scalar {operand.name} is {operand.dtype}")
            elif isinstance(operand, bool) or not isinstance(operand, (n.ScalarArgument, Expr, int, float)):
                raise self.fail(f"{name} takes tiles, scalars, dims and numbers, not {operand!r}")
            elif isinstance(operand, Expr) and want not in ("f32", "s32", "u32"):
                raise self.fail(f"{name} takes {want} here; the number {operand} can be f32, s32 or u32")
        if widest is None or widest.partition is None:
            raise self.fail(f"{name} has no tile among its operands")
        partition = widest.partition
        if into is not None and into.partition is not None:
            widest = into
        self._broadcasts(name, operands, widest)
        if into is None:
            result = self._value(dtype(gives), partition, f"the result of {name}")
        else:
            if into.partition is None or into.dtype.name != gives:
                raise self.fail(f"{name} gives {gives}, and {into.name} is {into.dtype} in {into.memory}")
            self._owned(into)
            result = into
        if instruction.at_once > 1 and result.partition is not None:
            whole = result.partition.value_count % instruction.at_once == 0
            sentence = f"a thread holds whole registers of the {instruction.at_once} values that {name} makes at once"
            self.require((Condition(f"registers of {instruction.label}", whole, sentence),))
        self._acts(name, instruction)
        self.emit(n.Apply(name, instruction, operands, result))
        return result

    @verb("p.multiply")
    def multiply(self, instruction: MatrixMultiply, accumulator: Tile, a: Tile, b: Tile) -> Token | None:
        """accumulator += a @ b, on fragments in registers or on tiles where the instruction takes them."""
        name = self._instruction(instruction, (MatrixMultiply,), "multiply")
        for operand in (a, b):
            self._use(operand)
        self._owned(accumulator)
        try:
            want = instruction.accumulator(a.dtype, b.dtype)
        except TypeError as error:
            raise self.fail(f"{name}: {error}") from None
        if accumulator.dtype != want:
            raise self.fail(f"{name} on {a.dtype} x {b.dtype} accumulates in {want}, not in {accumulator.dtype}")
        parts = zip((a, b, accumulator), instruction.places, ("a", "b", "its accumulator"), strict=True)
        for tile, place, what in parts:
            if tile.memory is not place:
                raise self.fail(
                    f"{name} ({instruction}) has {what} in {place}, but {tile.name} lies in {tile.memory}: "
                    f"an instruction from {tile.memory} to {place} is missing"
                )
        columns = accumulator.shape[1] // instruction.ctas
        if not (a.shape[1].same(b.shape[0]) and a.shape[0].same(accumulator.shape[0]) and columns.same(b.shape[1])):
            shared = f" shared by {instruction.ctas} CTAs" if instruction.ctas > 1 else ""
            made = extents_of(accumulator)
            raise self.fail(f"{name} multiplies {extents_of(a)} by {extents_of(b)}{shared} into {made}")
        self._in_slot(name, a, writing=False)
        self._in_slot(name, b, writing=False)
        self._in_slot(name, accumulator, writing=True)
        self._acts(name, instruction)
        self.constraints.append(instruction.target_rule_for(a.dtype, b.dtype))
        self.constraints.extend(instruction.operand_rules(a, b))
        self._fragments_fit(name, instruction, (a, b, accumulator))
        if instruction.places != (RMEM, RMEM, RMEM):
            self._whole_instructions(instruction, a, b, accumulator)
        token = self._token(accumulator, instruction.completion)
        self.emit(n.Multiply(name, instruction, a, b, accumulator, token))
        return token

    @verb("p.reduce")
    def reduce(self, combine: Elementwise, shuffle: Shuffle, value: Tile, axis: int) -> Tile:
        """Combines a tile along `axis`; the result has extent 1 there and every thread of a row holds it."""
        name = self._instruction(combine, (Elementwise,), "reduce")
        self._instruction(shuffle, (Shuffle,), "reduce")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} reduces registers, and {value.name} lies in {value.memory}")
        if not 0 <= axis < len(value.shape):
            raise self.fail(f"{name} reduces along axis {axis}, and {value} has {axes_of(len(value.shape))}")
        takes, gives = combine.elements()
        if takes != (gives, gives) or value.dtype.name != gives:
            raise self.fail(f"{name} cannot reduce {value.dtype}: it takes {', '.join(takes)} and gives {gives}")
        if value.dtype.bits != 32:
            raise self.fail(f"{name} reduces {value.dtype}, and shuffles exchange 32 bits; convert to f32 or s32 first")
        self._acts(name, combine)
        self._acts(name, shuffle)
        self.require(_within_warp(value, axis))
        result = self._value(value.dtype, value.partition.reduced(axis), f"the reduction by {name}")
        self.emit(n.Reduce(name, combine, shuffle, value, result, axis))
        return result

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
            raise self.fail(f"p.relayout moves {sizes}, and %{value.name} is {value.dtype}; convert it first")
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

    @verb("p.fix_up")
    @contextmanager
    def fix_up(self, combine: Elementwise, store: Transfer, load: Transfer, value: Tile) -> Iterator[Tile]:
        """The CTAs that share a tile combine their values of it, in the order of the parts; yields the result.

        Only the CTA that comes last carries out the block. Each leaves its values in a workspace in GMEM by `store`,
        and the last takes them by `load`: vectors of as many values as both move. Where tiles have one part each, the
        result is the value, and nothing is moved.
        """
        name = self._instruction(combine, (Elementwise,), "fix_up")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} combines registers, and {value.name} lies in {value.memory}")
        takes, gives = combine.elements()
        if takes != (gives, gives) or value.dtype.name != gives:
            raise self.fail(f"{name} cannot combine {value.dtype}: it takes {', '.join(takes)} and gives {gives}")
        if value.dtype.bits != 32:
            raise self.fail(f"{name} combines {value.dtype}, and workspaces hold 32-bit values; convert to f32 or s32")
        self._check_fix_up(name, store, load, value)
        result = self._value(value.dtype, value.partition, f"the combination by {name}")
        self.fixed_up.add(value.name)
        self.fixing_up = True
        with self.nested() as body:
            yield result
        self.fixing_up = False
        self.emit(n.FixUp(name, combine, store, load, value, result, tuple(body)))

    @verb("p.tiled")
    def tiled(
        self,
        instruction: MatrixMultiply,
        a: str | DType,
        b: str | DType,
        shape: tuple[Operand, Operand],
        warps: tuple[Operand, Operand],
    ) -> Tiled:
        """Partitions of a, b and c when the warps repeat a matrix instruction over an m x n tile."""
        self._instruction(instruction, (MatrixMultiply,), "tiled")
        made = tiled(instruction, dtype(a), dtype(b), shape, warps)
        self.require(made.c.conditions)
        return made

    # -- the whole -------------------------------------------------------------------------------------------------
    def finish(self) -> tuple[n.Grid, tuple[n.Statement, ...]]:
        if self.grid_node is None:
            raise self.fail("the program opens no grid; begin with `with p.grid(...)`")
        if not self.roles:
            raise self.fail("no warps do anything; open `with p.role(...)` inside the grid")
        if self.grid_node.scheduler.shares and self.divided is None:
            who = self.grid_node.scheduler.sharers
            raise self.fail(f"{who}, and they divide no loop; write p.loop(..., divided=True)")
        for value, what in self.unused.items():
            raise at(self.fail(f"{what} (%{value}) is never used; store it, or leave it out"), self.places[value])
        self._check_combined(self.bodies[0])
        return self.grid_node, tuple(self.bodies[0])

    def _value(self, kind: DType, partition: Partition, what: str) -> Tile:
        name = self._name("v")
        self.unused[name] = what
        self.places[name] = line_under_way()
        if self.current_role is not None:
            self.owners[name] = self.current_role.name
        zero = tuple(expr(0) for _ in partition.shape)
        return Tile(name, RMEM, kind, partition.shape, zero, (), None, None, partition)


def _wider(a: Tile, b: Tile) -> Tile:
    ones_a = sum(s.same(1) for s in a.shape)
    ones_b = sum(s.same(1) for s in b.shape)
    return b if ones_b < ones_a else a


def _within_warp(value: Tile, axis: int) -> tuple[Condition, ...]:
    """The threads that differ along the axis are lanes of one warp, and a power of two of them."""
    conditions = []
    if value.partition is None:
        return ()
    below = expr(1)
    for leaf, stride in value.partition.threads.steps:
        size = expr(leaf)
        if isinstance(stride, Step) and any(moved == axis for moved, _ in stride.terms):
            fits = ((below * size <= 32) | (size == 1)) & ((expr(32) % size == 0) | (size == 1))
            conditions.append(
                Condition(
                    f"reduction of {value.name}", fits, "the threads along the reduced axis are lanes of one warp"
                )
            )
        below = below * size
    return tuple(conditions)
