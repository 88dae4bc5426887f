"""Tracing: runs a machine's `program` once per structure and writes down what it does.

The object that `program` receives has one verb per statement of `tinygpu.program.nodes`. Verbs check at once that an
instruction fits its operands (memory, dtype, partition), and collect the constraints that instructions and memories
bring. Mistakes raise `DeclarationError` with the machine, the attribute and the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, all_of, ceil_div, expr, symbol
from tinygpu.language.instruction import (
    BulkTransfer,
    Elementwise,
    Instruction,
    MatrixLoad,
    MatrixMultiply,
    Shuffle,
    Tiled,
    Transfer,
    tiled,
)
from tinygpu.language.memories import GMEM, RMEM, SMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.parameters import DeclarationError, UnknownLayout
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.ring import DONE, BufferSpec, Ring, completion, uses
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.roles import role as make_role
from tinygpu.language.route import Route
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n

if TYPE_CHECKING:
    from tinygpu.language.machine import Machine


@dataclass(slots=True, eq=False)
class Tracer:
    """Records one structure of a machine. `self.machine` is the instance whose structural choices are made."""

    machine: Machine
    constraints: list[Constraint] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    pipelines: list[Pipeline] = field(default_factory=list)
    grid_node: n.Grid | None = None
    bodies: list[list[n.Statement]] = field(default_factory=lambda: [[]])
    counter: int = 0
    unused: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # register value -> role
    slots: dict[str, str] = field(default_factory=dict)  # pipeline -> what is being done with its slot
    current_role: Role | None = None

    # -- statements ------------------------------------------------------------------------------------------------
    def emit(self, statement: n.Statement) -> None:
        self.bodies[-1].append(statement)

    @contextmanager
    def nested(self) -> Iterator[list[n.Statement]]:
        body: list[n.Statement] = []
        self.bodies.append(body)
        try:
            yield body
        finally:
            self.bodies.pop()

    def fail(self, sentence: str) -> DeclarationError:
        return DeclarationError(f"{type(self.machine).__name__}.program: {sentence}")

    def require(self, conditions: tuple[Condition, ...]) -> None:
        for c in conditions:
            self.constraints.append(Constraint(c.name, c.condition, c.sentence, "legality", "partition", "emulator"))

    # -- work ------------------------------------------------------------------------------------------------------
    @contextmanager
    def grid(
        self,
        *axes: tuple[Expr, Operand],
        group: Operand = 1,
        cluster: Operand | tuple[Operand, ...] = 1,
        persistent: bool = False,
    ) -> Iterator[tuple[Expr, ...]]:
        """Tiles over the problem, one per CTA: yields the first element of the CTA's tile along each axis.

        axes        (dim, extent of a tile) per axis, the slowest first
        group       tile rows visited together (locality in L2)
        cluster     neighbouring tiles along each axis whose CTAs form a cluster; one number: along the first axis
        persistent  as many CTAs as are resident, and each takes tile after tile
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
        self.grid_node = n.Grid(made, expr(group), ctas, persistent)
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

    def _check_role(self, made: Role) -> None:
        # PTX ISA, setmaxnreg: the register count is a multiple of 8 from 24 to 256, for a whole warpgroup.
        if made.registers and (made.registers % 8 or not 24 <= made.registers <= 256):
            raise self.fail(
                f"role {made.name!r} has a budget of {made.registers} registers; it is a multiple of 8 from 24 to 256"
            )
        if made.registers:
            self._whole_warpgroups(made, "a register budget")
        rest, every = made.share
        if not 0 <= rest < every:
            raise self.fail(f"role {made.name!r} takes the share {made.share}; (r, n) has 0 <= r < n")
        if every > 1 and not (self.grid_node and self.grid_node.persistent):
            raise self.fail(f"role {made.name!r} takes a share of one tile per CTA; make the grid persistent")

    def _whole_warpgroups(self, role: Role, what: str) -> None:
        for count, words in ((role.warps, "warps"), (role.first, "as its first warp")):
            whole = count % 4 == 0
            if whole.same(False):
                raise self.fail(f"role {role.name!r} has {count} {words}, and {what} takes whole warpgroups of 4 warps")
            sentence = f"role {role.name} is made of whole warpgroups, which {what} takes"
            self.require((Condition(f"warpgroups of {role.name}", whole, sentence),))

    @contextmanager
    def loop(self, extent: Operand, *, step: Operand = 1) -> Iterator[Expr]:
        """A loop at run time over `extent` elements, `step` at a time; yields the first element of the round."""
        index = self._name("i")
        self._check_step(step)
        with self.nested() as body:
            yield symbol(index) * expr(step)
        self.emit(n.Loop(index, ceil_div(extent, step), False, tuple(body)))

    @contextmanager
    def unroll(self, extent: Operand, *, step: Operand = 1) -> Iterator[Expr]:
        """A loop that lowering writes out; `step` must divide `extent`, which knows only parameters."""
        index = self._name("u")
        runtime = expr(extent).symbols & set(self.machine.dim_names())
        if runtime:
            raise self.fail(f"unroll over {extent}, which is known at launch only; write p.loop")
        self._check_step(step)
        with self.nested() as body:
            yield symbol(index) * expr(step)
        divides = expr(extent) % expr(step) == 0
        self.require((Condition(f"steps of {extent}", divides, f"{extent} is a whole number of steps of {step}"),))
        self.emit(n.Loop(index, expr(extent) // expr(step), True, tuple(body)))

    def _check_step(self, step: Operand) -> None:
        if expr(step).is_number and int(expr(step)) < 1:
            raise self.fail(f"a loop goes on by 1 element or more each round, not by {step}")

    # -- buffers ---------------------------------------------------------------------------------------------------
    def smem(
        self,
        dtype_of: str | DType,
        shape: tuple[Operand, ...],
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
    ) -> BufferSpec:
        """A shared-memory buffer for `pipeline`; `pad` elements are added to every row."""
        return self.buffer(SMEM, dtype_of, shape, contiguous=contiguous, pad=pad, layout=layout)

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

    def _check_tmem(self, shape: tuple[Expr, ...]) -> None:
        if len(shape) != 2:
            raise self.fail(f"a buffer in TMEM has two axes, lanes and columns, not {len(shape)}")
        fits = shape[0] <= TMEM_LANES
        if fits.same(False):
            raise self.fail(f"a buffer in TMEM has at most {TMEM_LANES} lanes, not {shape[0]}")
        sentence = f"a buffer in TMEM has at most {TMEM_LANES} rows, its lanes"
        self.require((Condition("tmem lanes", fits, sentence),))

    @contextmanager
    def pipeline(self, name: str, stages: Operand, **buffers: BufferSpec) -> Iterator[Ring]:
        """Buffers, `stages` times, that live as long as the block; hand them over with fill() and drain().

        Without buffers it is a turn that roles take one after the other: `with order.turn()`.
        """
        if any(p.name == name for p in self.pipelines):
            raise self.fail(f"two pipelines are called {name!r}")
        made = tuple(
            Buffer(f"{name}.{key}", s.memory, s.dtype, s.shape, s.contiguous, s.pad, s.layout, expr(stages))
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

    def store(self, instruction: Transfer, target: Tile, value: Tile) -> None:
        """Registers to memory."""
        name = self._instruction(instruction, (Transfer,), "store")
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
        self._in_slot(name, source, writing=False)
        self._in_slot(name, target, writing=True)
        if isinstance(instruction, BulkTransfer):
            self._bring_whole(name, instruction, source, target, partition)
        if multicast is not None:
            self._check_multicast(name, instruction, source, multicast)
        token = self._token(target, next((h.completion for h in hops if h.completion), ""))
        self.emit(n.Copy(name, instruction, source, target, partition, token, multicast))
        return token

    def _bring_whole(
        self, name: str, instruction: BulkTransfer, source: Tile, target: Tile, partition: Partition | None
    ) -> None:
        if partition is not None:
            raise self.fail(f"{name} ({instruction}) moves the whole tile by itself; leave the partition out")
        if len(source.shape) != len(target.shape) or not all(
            a.same(b) for a, b in zip(source.shape, target.shape, strict=True)
        ):
            raise self.fail(f"{name} copies {_extents(source)} of {source.name} to {_extents(target)} of {target.name}")
        self._acts(name, instruction)
        self.constraints.extend(instruction.legality(source, target))

    def _check_multicast(self, name: str, instruction: Instruction | Route, source: Tile, axis: int) -> None:
        axes = self.grid_node.axes if self.grid_node else ()
        if not isinstance(instruction, BulkTransfer):
            raise self.fail(f"{name} ({instruction}) serves one CTA; only a BulkTransfer is multicast")
        if not 0 <= axis < len(axes) or axes[axis].cluster.same(1):
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, along which there is no cluster")
        if any(axes[axis].index in o.symbols for o in source.offset):
            moving = f"its window of {source.name} moves along that axis"
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, but {moving}")

    def clear(self, tile: Tile) -> None:
        """The accumulator in TMEM begins as zeros; one in registers begins with `full`."""
        if tile.memory is not TMEM:
            where = f"{tile.name} lies in {tile.memory}"
            raise self.fail(f"p.clear is for accumulators in TMEM, and {where}; begin with p.full")
        self._in_slot("p.clear", tile, writing=True)
        self.emit(n.Constant(tile, 0.0))

    def _token(self, target: Tile, completion: str) -> Token | None:
        return Token(self._number(), target.name, completion) if completion else None

    def _in_slot(self, name: str, tile: Tile, *, writing: bool) -> None:
        """A buffer is touched inside the fill or drain that yielded it: written in a fill, read in a drain."""
        if tile.buffer is None:
            return
        pipeline = tile.buffer.name.split(".")[0]
        verb = self.slots.get(pipeline)
        if verb is None:
            raise self.fail(f"{name} touches {tile.name} after its slot was handed on; do it inside the fill or drain")
        if verb != ("fill" if writing else "drain"):
            does, right = ("writes", "filled") if writing else ("reads", "drained")
            raise self.fail(f"{name} {does} {tile.name} where {pipeline!r} is {DONE[verb]}; do it where it is {right}")

    def _acts(self, name: str, instruction: Instruction) -> None:
        """The device has the instruction, and the role has the warps that carry it out together."""
        self.constraints.append(instruction.target_rule())
        if self.current_role is None:
            raise self.fail(f"{name} stands outside a role; say which warps do it with `with p.role(...)`")
        if instruction.scope == "warpgroup":
            self._whole_warpgroups(self.current_role, str(instruction))

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
            raise self.fail(f"{name} multiplies {_extents(a)} by {_extents(b)}{shared} into {_extents(accumulator)}")
        self._in_slot(name, a, writing=False)
        self._in_slot(name, b, writing=False)
        self._in_slot(name, accumulator, writing=True)
        self._acts(name, instruction)
        self.constraints.append(instruction.target_rule_for(a.dtype, b.dtype))
        if instruction.places != (RMEM, RMEM, RMEM):
            self._whole_instructions(instruction, a, b, accumulator)
        token = self._token(accumulator, instruction.completion)
        self.emit(n.Multiply(name, instruction, a, b, accumulator, token))
        return token

    def _whole_instructions(self, instruction: MatrixMultiply, a: Tile, b: Tile, accumulator: Tile) -> None:
        extents = (*accumulator.shape, a.shape[1])
        shape = instruction.shape(a.dtype, b.dtype)
        for have, one, what in zip(extents, shape, ("rows", "columns", "depth"), strict=True):
            fits = have % one == 0
            sentence = f"the {what} of the tile, {have}, are a whole number of instructions of {one}"
            self.require((Condition(f"{instruction.label} {what}", fits, sentence),))

    def reduce(self, combine: Elementwise, shuffle: Shuffle, value: Tile, axis: int) -> Tile:
        """Combines a tile along `axis`; the result has extent 1 there and every thread of a row holds it."""
        name = self._instruction(combine, (Elementwise,), "reduce")
        self._instruction(shuffle, (Shuffle,), "reduce")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} reduces registers, and {value.name} lies in {value.memory}")
        if not 0 <= axis < len(value.shape):
            raise self.fail(f"{name} reduces along axis {axis}, and {value} has {_axes(len(value.shape))}")
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

    # -- checks ----------------------------------------------------------------------------------------------------
    def finish(self) -> tuple[n.Statement, ...]:
        if self.grid_node is None:
            raise self.fail("the program opens no grid; begin with `with p.grid(...)`")
        if not self.roles:
            raise self.fail("no warps do anything; open `with p.role(...)` inside the grid")
        for value, what in self.unused.items():
            raise self.fail(f"{what} (%{value}) is never used; store it, or leave it out")
        return tuple(self.bodies[0])

    def _instruction(self, instruction: Any, family: tuple[type, ...], verb: str) -> str:
        if not isinstance(instruction, family):
            wanted = " or ".join(f.__name__ for f in family)
            raise self.fail(f"p.{verb} takes a {wanted}, not {instruction!r}")
        return self.machine.attribute_of(instruction)

    def _path(self, instruction: Any, source: Memory, target: Memory | None) -> None:
        reads, writes = getattr(instruction, "reads", None), getattr(instruction, "writes", None)
        name = self.machine.attribute_of(instruction)
        if reads is not source:
            raise self.fail(
                f"{name} ({instruction}) reads {reads}, but the operand lies in {source}: "
                f"no instruction brings it from {source} to {reads}"
            )
        if target is not None and writes is not target:
            raise self.fail(
                f"{name} ({instruction}) writes {writes}, but the result belongs in {target}: "
                f"an instruction from {source} to {target} is missing"
            )

    def _bring(self, instruction: Any, memory_side: Tile, partition: Partition) -> None:
        self._fits_role(memory_side.name, partition)
        self._acts(self.machine.attribute_of(instruction), instruction)
        self.constraints.extend(instruction.legality(memory_side, partition))
        if isinstance(instruction, Transfer):
            self._begins_at_vectors(instruction, memory_side)

    def _begins_at_vectors(self, instruction: Transfer, tile: Tile) -> None:
        """The window begins at a whole number of vectors along the contiguous axis, in every round of every loop."""
        axis, vector = tile.contiguous, expr(instruction.vector)
        if axis is None or vector.same(1):
            return
        offset = tile.offset[axis].sympy.expand()
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        counters = sorted((s for s in offset.free_symbols if s.name not in known), key=str)
        steps = [Expr(offset.coeff(s)) for s in counters] + [Expr(offset.subs(dict.fromkeys(counters, 0)))]
        # Tiles that follow each other begin at vectors, because a tile is a whole number of them.
        own = [s for s in steps if not s.same(tile.shape[axis]) and not s.same(0)]
        magnitudes = [expr(0) - s if s.sympy.could_extract_minus_sign() else s for s in own]
        whole = [m % vector == 0 for m in magnitudes if not (m % vector).same(0)]
        if whole:
            self.constraints.append(
                instruction.rule(
                    f"start in {tile.name}",
                    all_of(whole),
                    f"the windows of {tile.name} begin at multiples of the vectors that {instruction.label} moves",
                )
            )

    def _fits_role(self, name: str, partition: Partition) -> None:
        """The partition's own conditions, and that the role has the threads that it names."""
        self.require(partition.conditions)
        if self.current_role is None:
            raise self.fail(f"{name} is touched outside a role; say which warps do it with `with p.role(...)`")
        named = partition.made_for if partition.made_for is not None else partition.thread_count
        if not named.same(self.current_role.threads):
            enough = named <= self.current_role.threads
            sentence = f"the role has the threads among which {name} is divided"
            self.require((Condition(f"threads for {name}", enough, sentence),))

    def _same_shape(self, name: str, tile: Tile, partition: Partition) -> None:
        if len(tile.shape) != len(partition.shape) or not all(
            a.same(b) for a, b in zip(tile.shape, partition.shape, strict=True)
        ):
            have, want = "x".join(map(str, tile.shape)), "x".join(map(str, partition.shape))
            raise self.fail(f"{name} moves {tile.name} as {have}, but its partition is for {want}")

    def _broadcasts(self, name: str, operands: tuple[Any, ...], widest: Tile) -> None:
        for operand in operands:
            if not isinstance(operand, Tile):
                continue
            if len(operand.shape) != len(widest.shape):
                raise self.fail(f"{name} mixes tiles with {len(operand.shape)} and {len(widest.shape)} axes")
            for axis, (a, b) in enumerate(zip(operand.shape, widest.shape, strict=True)):
                if not a.same(b) and not a.same(1):
                    raise self.fail(f"{name} mixes extents {a} and {b} along axis {axis}")
            if operand.partition is not None and widest.partition is not None:
                self._same_threads(name, operand, operand.partition, widest.partition)

    def _same_threads(self, name: str, operand: Tile, mine: Partition, wanted: Partition) -> None:
        """Each thread holds the operand's values that it combines: thread modes agree, but for broadcast axes."""
        for axis, (a, b) in enumerate(zip(mine.shape, wanted.shape, strict=True)):
            if a.same(1) and not b.same(1):
                wanted = wanted.reduced(axis)
        sentence = f"each thread holds the values of {operand.name} that {name} combines with its own"
        if len(mine.threads) != len(wanted.threads):
            raise self.fail(f"{name} combines tiles that are held by other threads: {mine} and {wanted}")
        for have, want in zip(mine.threads, wanted.threads, strict=True):
            held = (have.extent == want.extent) & ((have.stride == want.stride) | (have.extent == 1))
            if have.axis != want.axis:
                held = (have.extent == 1) & (want.extent == 1)
            if not (have.axis == want.axis and have.extent.same(want.extent) and have.stride.same(want.stride)):
                self.require((Condition(f"threads of {operand.name}", held, sentence),))

    def _value(self, kind: DType, partition: Partition, what: str) -> Tile:
        name = self._name("v")
        self.unused[name] = what
        if self.current_role is not None:
            self.owners[name] = self.current_role.name
        zero = tuple(expr(0) for _ in partition.shape)
        return Tile(name, RMEM, kind, partition.shape, zero, (), None, None, partition)

    def _use(self, tile: Tile) -> None:
        self._owned(tile)
        self.unused.pop(tile.name, None)

    def _owned(self, tile: Tile) -> None:
        """A register value belongs to the role that made it."""
        owner = self.owners.get(tile.name)
        if owner is not None and self.current_role is not None and owner != self.current_role.name:
            raise self.fail(
                f"%{tile.name} lies in the registers of role {owner!r}, and role {self.current_role.name!r} uses it; "
                "hand it over through a pipeline"
            )

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


def _axes(count: int) -> str:
    return "axis 0 only" if count == 1 else f"the axes 0 to {count - 1}"


def _extents(tile: Tile) -> str:
    return "x".join(map(str, tile.shape))
