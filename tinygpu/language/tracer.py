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
    Elementwise,
    Instruction,
    MatrixLoad,
    MatrixMultiply,
    Shuffle,
    Tiled,
    Transfer,
    tiled,
)
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory
from tinygpu.language.parameters import DeclarationError, UnknownLayout
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.roles import role as make_role
from tinygpu.language.route import Route
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n

if TYPE_CHECKING:
    from tinygpu.language.machine import Machine


@dataclass(frozen=True, slots=True, eq=False)
class BufferSpec:
    """What `Tracer.smem` and `Tracer.buffer` describe; it gets its name from the pipeline that hands it over."""

    memory: Memory
    dtype: DType
    shape: tuple[Expr, ...]
    contiguous: int
    pad: Expr
    layout: str


@dataclass(slots=True)
class Slot:
    """The buffers of one slot, by name."""

    tiles: dict[str, Tile]

    def __getattr__(self, name: str) -> Tile:
        try:
            return self.tiles[name]
        except KeyError:
            raise AttributeError(f"the pipeline hands over {', '.join(self.tiles)}; there is no {name!r}") from None


@dataclass(slots=True, eq=False)
class Ring:
    """A pipeline inside a trace: `with ring.fill() as slot` and `with ring.drain() as slot`."""

    tracer: Tracer
    name: str
    buffers: tuple[Buffer, ...]

    @contextmanager
    def fill(self) -> Iterator[Slot]:
        with self.tracer.nested() as body:
            yield self._slot()
        self.tracer.emit(n.Fill(self.name, tuple(body)))

    @contextmanager
    def drain(self) -> Iterator[Slot]:
        with self.tracer.nested() as body:
            yield self._slot()
        self.tracer.emit(n.Drain(self.name, tuple(body)))

    def _slot(self) -> Slot:
        zero = expr(0)
        return Slot(
            {
                b.name.split(".")[-1]: Tile(
                    b.name, b.memory, b.dtype, b.shape, tuple(zero for _ in b.shape), (), None, b, None
                )
                for b in self.buffers
            }
        )


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
        cluster: Operand = 1,
        persistent: bool = False,
    ) -> Iterator[tuple[Expr, ...]]:
        """Tiles over the problem, one per CTA: yields the first element of the CTA's tile along each axis.

        axes        (dim, extent of a tile) per axis, the slowest first
        group       tile rows visited together (locality in L2)
        """
        if self.grid_node is not None:
            raise self.fail("a program has one grid")
        made = tuple(n.Axis(f"tile{i}", expr(size), expr(extent)) for i, (size, extent) in enumerate(axes))
        self.grid_node = n.Grid(made, expr(group), expr(cluster), persistent)
        yield tuple(symbol(a.index) * a.extent for a in made)

    @contextmanager
    def role(self, name: str, *, warps: Operand, first: Operand = 0, registers: int = 0) -> Iterator[Role]:
        """What some warps of the CTA do; `warps` of them, from warp `first` on."""
        if self.grid_node is None:
            raise self.fail(f"role {name!r} stands outside the grid; open `with p.grid(...)` first")
        if self.current_role is not None:
            raise self.fail(f"role {name!r} stands inside role {self.current_role.name!r}; roles stand side by side")
        made = make_role(name, warps, first, registers)
        known = next((r for r in self.roles if r.name == name), None)
        if known is None:
            self.roles.append(made)
        elif not (known.warps.same(made.warps) and known.first.same(made.first)):
            raise self.fail(f"role {name!r} is declared twice with different warps")
        self.current_role = made
        with self.nested() as body:
            yield made
        self.current_role = None
        self.emit(n.InRole(name, tuple(body)))

    @contextmanager
    def loop(self, extent: Operand, *, step: Operand = 1) -> Iterator[Expr]:
        """A loop at run time over `extent` elements, `step` at a time; yields the first element of the round."""
        index = self._name("i")
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
        with self.nested() as body:
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
        return BufferSpec(
            where, dtype(dtype_of), extents, contiguous % len(extents), expr(pad), layout.name if layout else ""
        )

    @contextmanager
    def pipeline(self, name: str, stages: Operand, **buffers: BufferSpec) -> Iterator[Ring]:
        """Buffers, `stages` times, that live as long as the block; hand them over with fill() and drain()."""
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
        filled, drained = _uses(tuple(body), name)
        if made and not (filled and drained):
            missing = "filled" if not filled else "drained"
            raise self.fail(f"pipeline {name!r} is never {missing}: its buffers are handed to nobody")
        self.pipelines[position] = Pipeline(name, expr(stages), made, _completion(tuple(body), name))
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
        if target.dtype.bits != value.dtype.bits or target.dtype.kind != value.dtype.kind:
            raise self.fail(f"{name} stores {value.dtype} values into {target.name}, which is {target.dtype}; convert first")
        if target.tensor is not None and target.tensor.access == "in":
            raise self.fail(f"{name} writes {target.name}, which is declared Input; declare it Output or InOut")
        self._bring(instruction, target, value.partition)
        self.emit(n.Store(name, instruction, value, target))

    def copy(
        self, instruction: Instruction | Route, source: Tile, target: Tile, partition: Partition | None = None
    ) -> Token | None:
        """Memory to memory, in one instruction or along a Route through registers."""
        name = self._instruction(instruction, (Transfer, Route, Instruction), "copy")
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
        completion = next((h.completion for h in hops if h.completion), "")
        token = Token(self._number(), target.name, completion) if completion else None
        self.emit(n.Copy(name, instruction, source, target, partition, token))
        return token

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
            raise self.fail(f"{name} takes {len(takes)} operands, not {len(operands)}")
        widest: Tile | None = None
        for operand, want in zip(operands, takes, strict=True):
            if isinstance(operand, Tile):
                self._use(operand)
                if operand.partition is None:
                    raise self.fail(f"{name} computes on registers, and {operand.name} lies in {operand.memory}")
                if operand.dtype.name != want:
                    raise self.fail(f"{name} takes {want} here, and {operand.name} is {operand.dtype}; convert it first")
                widest = operand if widest is None else _wider(widest, operand)
            elif isinstance(operand, n.ScalarArgument) and operand.dtype.name != want:
                raise self.fail(f"{name} takes {want} here, and the scalar {operand.name} is {operand.dtype}")
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
            result = into
        self.emit(n.Apply(name, instruction, operands, result))
        return result

    def multiply(self, instruction: MatrixMultiply, accumulator: Tile, a: Tile, b: Tile) -> None:
        """accumulator += a @ b."""
        name = self._instruction(instruction, (MatrixMultiply,), "multiply")
        for operand in (a, b):
            self._use(operand)
        want = instruction.accumulator(a.dtype, b.dtype)
        if accumulator.dtype != want:
            raise self.fail(f"{name} on {a.dtype} x {b.dtype} accumulates in {want}, not in {accumulator.dtype}")
        self.unused.pop(accumulator.name, None)
        self.emit(n.Multiply(name, instruction, a, b, accumulator))

    def reduce(self, combine: Elementwise, shuffle: Shuffle, value: Tile, axis: int) -> Tile:
        """Combines a tile along `axis`; the result has extent 1 there and every thread of a row holds it."""
        name = self._instruction(combine, (Elementwise,), "reduce")
        self._instruction(shuffle, (Shuffle,), "reduce")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} reduces registers, and {value.name} lies in {value.memory}")
        takes, gives = combine.types()
        if takes != (gives, gives) or value.dtype.name != gives:
            raise self.fail(f"{name} cannot reduce {value.dtype}: it takes {', '.join(takes)} and gives {gives}")
        if value.dtype.bits != 32:
            raise self.fail(f"{name} reduces {value.dtype}, and shuffles exchange 32 bits; convert to f32 or s32 first")
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
        self.constraints.append(instruction.target_rule())
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
        zero = tuple(expr(0) for _ in partition.shape)
        return Tile(name, RMEM, kind, partition.shape, zero, (), None, None, partition)

    def _use(self, tile: Tile) -> None:
        self.unused.pop(tile.name, None)

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


def _uses(body: tuple[n.Statement, ...], pipeline: str) -> tuple[bool, bool]:
    filled = drained = False
    for s in body:
        filled |= isinstance(s, n.Fill) and s.pipeline == pipeline
        drained |= isinstance(s, n.Drain) and s.pipeline == pipeline
        if isinstance(s, (n.Loop, n.Fill, n.Drain, n.Scope, n.InRole)):
            inner = _uses(s.body, pipeline)
            filled, drained = filled or inner[0], drained or inner[1]
    return filled, drained


def _completion(body: tuple[n.Statement, ...], pipeline: str) -> str:
    """How a slot is completed: by its asynchronous copies, or by a barrier for plain stores."""
    found = ""
    for s in body:
        if isinstance(s, n.Fill) and s.pipeline == pipeline:
            for copy in s.body:
                if isinstance(copy, n.Copy) and copy.token is not None:
                    found = copy.token.completion
        elif isinstance(s, (n.Loop, n.Fill, n.Drain, n.Scope, n.InRole)):
            inner = _completion(s.body, pipeline)
            found = inner if inner not in ("", "barrier") else found
    return found or "barrier"
