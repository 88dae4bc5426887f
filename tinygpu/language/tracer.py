"""Tracing: runs a machine's `program` once per structure and writes down what it does.

The object that `program` receives has one verb per statement of `tinygpu.program.nodes`. Verbs check at once that an
instruction fits its operands (memory, dtype, partition), and collect the constraints that instructions and memories
bring. Mistakes raise `DeclarationError` with the machine, the attribute and the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, any_of, ceil_div, expr, symbol
from tinygpu.language.checks import Checks, axes_of, extents_of
from tinygpu.language.instruction import (
    BulkTransfer,
    Elementwise,
    Instruction,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Shuffle,
    Tiled,
    Transfer,
    tiled,
)
from tinygpu.language.memories import GMEM, RMEM, SMEM, TMEM, Memory
from tinygpu.language.parameters import UnknownLayout
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.ring import BufferSpec, Ring, completion, uses
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.roles import role as make_role
from tinygpu.language.route import Route
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n

# PTX ISA, "Swizzling Modes": the widths that TMA, wgmma and tcgen05 share.
SWIZZLES = (32, 64, 128)


@dataclass(slots=True, eq=False)
class Tracer(Checks):
    """Records one structure of a machine: the verbs of `program`."""

    # -- work ------------------------------------------------------------------------------------------------------
    @contextmanager
    def grid(
        self,
        *axes: tuple[Expr, Operand],
        group: Operand = 1,
        cluster: Operand | tuple[Operand, ...] = 1,
        persistent: bool = False,
        parts: Operand = 1,
    ) -> Iterator[tuple[Expr, ...]]:
        """Tiles over the problem, one per CTA: yields the first element of the CTA's tile along each axis.

        axes        (dim, extent of a tile) per axis, the slowest first
        group       tile rows visited together (locality in L2)
        cluster     neighbouring tiles along each axis whose CTAs form a cluster; one number: along the first axis
        persistent  as many CTAs as are resident, and each takes tile after tile
        parts       CTAs (or clusters) that share each tile: they divide loops, and gather what they have
        """
        if self.grid_node is not None:
            raise self.fail("a program has one grid, and this opens a second; bring all roles into the first")
        if not axes:
            raise self.fail("a grid has at least one axis: (dim, extent of a tile)")
        beside = cluster if isinstance(cluster, tuple) else (cluster, *[1] * (len(axes) - 1))
        if len(beside) != len(axes):
            raise self.fail(f"the cluster has {len(beside)} extents, and the grid has {len(axes)} axes")
        made = tuple(
            n.Axis(f"tile{i}", expr(size), expr(extent), expr(c))
            for i, ((size, extent), c) in enumerate(zip(axes, beside, strict=True))
        )
        ctas = expr(1)
        for axis in made:
            ctas = ctas * axis.cluster
        self.grid_node = n.Grid(made, expr(group), ctas, persistent, expr(parts))
        yield tuple(symbol(a.index) * a.extent for a in made)

    def rank(self, axis: int) -> Expr:
        """Place of the CTA in its cluster along an axis of the grid: 0 up to the cluster's extent there."""
        if self.grid_node is None or not 0 <= axis < len(self.grid_node.axes):
            raise self.fail(f"there is no axis {axis} of the grid along which a CTA has a rank")
        of = self.grid_node.axes[axis]
        return symbol(of.index) % of.cluster

    @contextmanager
    def role(
        self, name: str, *, warps: Operand, first: Operand = 0, registers: int = 0, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Role]:
        """What some warps of the CTA do; `warps` of them, from warp `first` on.

        registers  budget per thread: what this role gives to or takes from the others (0: all roles the same)
        share      (r, n): of the tiles that a persistent CTA takes, those whose number leaves r when divided by n
        """
        if self.grid_node is None:
            raise self.fail(f"role {name!r} stands outside the grid; open `with p.grid(...)` first")
        if self.current_role is not None:
            raise self.fail(f"role {name!r} stands inside role {self.current_role.name!r}; roles stand side by side")
        made = make_role(name, warps, first, registers, share)
        known = next((r for r in self.roles if r.name == name), None)
        if known is None:
            self._check_role(made)
            self.roles.append(made)
        elif not (known.warps.same(made.warps) and known.first.same(made.first)):
            raise self.fail(f"role {name!r} is declared twice with different warps")
        elif (registers, share) not in ((known.registers, known.share), (0, (0, 1))):
            raise self.fail(f"role {name!r} is declared twice with different registers or shares")
        self.current_role = known or made
        with self.nested() as body:
            yield made
        self.current_role = None
        self.emit(n.InRole(name, tuple(body)))

    @contextmanager
    def loop(self, extent: Operand, *, step: Operand = 1, divided: bool = False) -> Iterator[Expr]:
        """A loop at run time over `extent` elements, `step` at a time; yields the first element of the round.

        divided  the CTAs that share a tile divide the rounds: each does the same number, one part after the other.
                 Rounds beyond the extent, where parts do not divide them, touch nothing
        """
        index = self._name("i")
        self._check_step(step)
        rounds, first = ceil_div(extent, step), expr(0)
        if divided:
            parts = self._divides()
            rounds = ceil_div(rounds, parts)
            if not parts.same(1):
                first = symbol(n.PART) * rounds
        with self.nested() as body, self.deeper():
            yield symbol(index) * expr(step)
        self.emit(n.Loop(index, rounds, False, tuple(body), first))

    @contextmanager
    def unroll(self, extent: Operand, *, step: Operand = 1) -> Iterator[Expr]:
        """A loop that lowering writes out; `step` must divide `extent`, which knows only parameters."""
        index = self._name("u")
        runtime = expr(extent).symbols & set(self.machine.dim_names())
        if runtime:
            raise self.fail(f"unroll over {extent}, which is known at launch only; write p.loop")
        self._check_step(step)
        with self.nested() as body, self.deeper():
            yield symbol(index) * expr(step)
        divides = expr(extent) % expr(step) == 0
        self.require((Condition(f"steps of {extent}", divides, f"{extent} is a whole number of steps of {step}"),))
        self.emit(n.Loop(index, expr(extent) // expr(step), True, tuple(body)))

    # -- buffers ---------------------------------------------------------------------------------------------------
    def smem(
        self,
        dtype_of: str | DType,
        shape: tuple[Operand, ...],
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
        swizzle: Operand | None = None,
    ) -> BufferSpec:
        """A shared-memory buffer for `pipeline`; `pad` elements are added to every row.

        swizzle  bytes of the spans in which TMA and wgmma lay rows out (32, 64 or 128), instead of pad and layout
        """
        made = self.buffer(SMEM, dtype_of, shape, contiguous=contiguous, pad=pad, layout=layout)
        if swizzle is None:
            return made
        if layout is not None or not expr(pad).same(0):
            raise self.fail("a buffer has a swizzle, or a layout and padding of its own, not both")
        span = expr(swizzle)
        row_bytes = made.shape[made.contiguous] * made.dtype.bits // 8
        widths = any_of([span == w for w in SWIZZLES])
        self.require(
            (
                Condition("swizzle", widths, "a swizzle spans 32, 64 or 128 bytes"),
                Condition("spans", row_bytes % span == 0, f"rows of {row_bytes} bytes are whole spans of {span}"),
            )
        )
        return replace(made, span=span)

    def buffer(
        self,
        where: Memory,
        dtype_of: str | DType,
        shape: tuple[Operand, ...],
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
    ) -> BufferSpec:
        """A buffer in any memory that is neither GMEM nor registers."""
        if where in (GMEM, RMEM):
            raise self.fail(f"a buffer lies in SMEM or TMEM, not in {where}")
        extents = tuple(expr(s) for s in shape)
        if where is TMEM:
            self._check_tmem(extents)
        return BufferSpec(
            where, dtype(dtype_of), extents, contiguous % len(extents), expr(pad), layout.name if layout else ""
        )

    @contextmanager
    def pipeline(self, name: str, stages: Operand, **buffers: BufferSpec) -> Iterator[Ring]:
        """Buffers, `stages` times, that live as long as the block; hand them over with fill() and drain().

        Without buffers it is a turn that roles take one after the other: `with order.turn()`.
        """
        if any(p.name == name for p in self.pipelines):
            raise self.fail(f"two pipelines are called {name!r}")
        made = tuple(
            Buffer(f"{name}.{key}", s.memory, s.dtype, s.shape, s.contiguous, s.pad, s.layout, expr(stages), s.span)
            for key, s in buffers.items()
        )
        position = len(self.pipelines)
        self.pipelines.append(Pipeline(name, expr(stages), made))
        with self.nested() as body:
            yield Ring(self, name, made)
        filled, drained = uses(tuple(body), name)
        if made and not (filled and drained):
            missing = "filled" if not filled else "drained"
            raise self.fail(f"pipeline {name!r} is never {missing}: its buffers are handed to nobody")
        if not made and not drained:
            raise self.fail(f"pipeline {name!r} has no buffers and nobody takes a turn in it")
        self.pipelines[position] = Pipeline(name, expr(stages), made, completion(tuple(body), name))
        self.emit(n.Scope((name,), tuple(body)))

    # -- moving ----------------------------------------------------------------------------------------------------
    def load(
        self, instruction: Instruction, source: Tile, partition: Partition, *, fill: float = 0.0
    ) -> Tile:
        """Memory to registers."""
        name = self._instruction(instruction, (Transfer, MatrixLoad), "load")
        self._path(instruction, source.memory, RMEM)
        if source.tensor is not None and source.tensor.access != "in" and instruction.label.endswith(".nc"):
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
        self._writes_alone(name, target)
        self._bring(instruction, target, value.partition)
        self.emit(n.Store(name, instruction, value, target))

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
        where = source.memory
        for hop in hops:
            self._path(hop, where, None)
            where = getattr(hop, "writes", where)
        if where is not target.memory:
            raise self.fail(f"{name} ends in {where}, but {target.name} lies in {target.memory}")
        if partition is not None:
            self._same_shape(name, source, partition)
            self._same_shape(name, target, partition)
            for hop in hops:
                if isinstance(hop, Transfer) and hop.reads is source.memory:
                    self._bring(hop, source, partition)
                if isinstance(hop, Transfer) and hop.writes is target.memory:
                    self._bring(hop, target, partition)
        elif any(isinstance(hop, Transfer) and hop.scope == "thread" for hop in hops):
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
    def full(self, partition: Partition, dtype_of: str | DType, value: float = 0.0) -> Tile:
        """A register tile that holds one number everywhere; it can be accumulated into."""
        self._fits_role("the constant", partition)
        result = self._value(dtype(dtype_of), partition, "a constant")
        self.emit(n.Constant(result, value))
        return result

    def apply(
        self, instruction: Elementwise, *operands: Tile | n.ScalarArgument | Expr | float, into: Tile | None = None
    ) -> Tile:
        """One element-wise instruction, value by value; `into` an existing tile (an accumulator) or a new one.

        operands  tiles; scalars of the machine; numbers; dims, or expressions over dims, in the operand's type
        """
        name = self._instruction(instruction, (Elementwise,), "apply")
        takes, gives = instruction.types()
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
        self._acts(name, instruction)
        self.emit(n.Apply(name, instruction, operands, result))
        return result

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
        if instruction.places != (RMEM, RMEM, RMEM):
            self._whole_instructions(instruction, a, b, accumulator)
        token = self._token(accumulator, instruction.completion)
        self.emit(n.Multiply(name, instruction, a, b, accumulator, token))
        return token

    def reduce(self, combine: Elementwise, shuffle: Shuffle, value: Tile, axis: int) -> Tile:
        """Combines a tile along `axis`; the result has extent 1 there and every thread of a row holds it."""
        name = self._instruction(combine, (Elementwise,), "reduce")
        self._instruction(shuffle, (Shuffle,), "reduce")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} reduces registers, and {value.name} lies in {value.memory}")
        if not 0 <= axis < len(value.shape):
            raise self.fail(f"{name} reduces along axis {axis}, and {value} has {axes_of(len(value.shape))}")
        takes, gives = combine.types()
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

    @contextmanager
    def gather(self, combine: Elementwise, store: Transfer, load: Transfer, value: Tile) -> Iterator[Tile]:
        """The CTAs that share a tile combine their values of it, in the order of the parts; yields the result.

        Only the CTA that comes last carries out the block. Each leaves its values in a workspace in GMEM by `store`,
        and the last takes them by `load`: vectors of as many values as both move. Where tiles have one part each, the
        result is the value, and nothing is moved.
        """
        name = self._instruction(combine, (Elementwise,), "gather")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} combines registers, and {value.name} lies in {value.memory}")
        takes, gives = combine.types()
        if takes != (gives, gives) or value.dtype.name != gives:
            raise self.fail(f"{name} cannot combine {value.dtype}: it takes {', '.join(takes)} and gives {gives}")
        if value.dtype.bits != 32:
            raise self.fail(f"{name} combines {value.dtype}, and workspaces hold 32-bit values; convert to f32 or s32")
        self._check_gather(name, store, load, value)
        result = self._value(value.dtype, value.partition, f"the combination by {name}")
        self.gathering = True
        with self.nested() as body:
            yield result
        self.gathering = False
        self.emit(n.Gather(name, combine, store, load, value, result, tuple(body)))

    def tiled(
        self,
        instruction: MatrixMultiply,
        a: DType,
        b: DType,
        shape: tuple[Operand, Operand],
        warps: tuple[Operand, Operand],
    ) -> Tiled:
        """Partitions of a, b and c when the warps repeat a matrix instruction over an m x n tile."""
        made = tiled(instruction, a, b, shape, warps)
        self.require(made.c.conditions)
        return made

    # -- the whole -------------------------------------------------------------------------------------------------
    def finish(self) -> tuple[n.Statement, ...]:
        if self.grid_node is None:
            raise self.fail("the program opens no grid; begin with `with p.grid(...)`")
        if not self.roles:
            raise self.fail("no warps do anything; open `with p.role(...)` inside the grid")
        if not self.grid_node.parts.same(1) and not self.divided:
            raise self.fail(
                f"{self.grid_node.parts} CTAs share each tile, and they divide no loop; write p.loop(..., divided=True)"
            )
        for value, what in self.unused.items():
            raise self.fail(f"{what} (%{value}) is never used; store it, or leave it out")
        return tuple(self.bodies[0])

    def _value(self, kind: DType, partition: Partition, what: str) -> Tile:
        name = self._name("v")
        self.unused[name] = what
        if self.current_role is not None:
            self.owners[name] = self.current_role.name
        zero = tuple(expr(0) for _ in partition.shape)
        return Tile(name, RMEM, kind, partition.shape, zero, (), None, None, partition)

    def _number(self) -> int:
        self.counter += 1
        return self.counter

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self._number()}"


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
    for mode in value.partition.threads:
        if mode.axis == axis:
            fits = ((below * mode.extent <= 32) | (mode.extent == 1)) & (
                Expr((expr(32) % mode.extent == 0).sympy) | (mode.extent == 1)
            )
            conditions.append(
                Condition(
                    f"reduction of {value.name}", fits, "the threads along the reduced axis are lanes of one warp"
                )
            )
        below = below * mode.extent
    return tuple(conditions)

