"""What tracing knows of a program so far, and what it checks of every statement before it writes it down.

A check that can be made at once raises `DeclarationError`; what depends on parameters becomes a constraint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, Operand, all_of, any_of, expr, symbol
from tinygpu.language.declared import Declared
from tinygpu.language.instruction import BulkTransfer, Instruction, MatrixMultiply, Transfer
from tinygpu.language.matrix_fragments import holds_every_element_once
from tinygpu.language.memories import GMEM, RMEM, TMEM_LANES, Memory
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.roles import Pipeline, Role
from tinygpu.language.route import Route
from tinygpu.language.tile import Buffer, Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

# What is done with a slot inside `produce()`, `consume()` and `turn()` of a pipeline.
DONE = {"produce": "produced", "consume": "consumed", "turn": "taken in turns"}


@dataclass(slots=True, eq=False)
class Checks:
    """The state of one trace; `self.machine` is the instance whose structural choices are made."""

    machine: Declared
    constraints: list[Constraint] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    pipelines: list[Pipeline] = field(default_factory=list)
    grid_node: n.Grid | None = None
    bodies: list[list[n.Statement]] = field(default_factory=lambda: [[]])
    counter: int = 0
    unused: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # value or pipeline -> the user's line that made it
    owners: dict[str, str] = field(default_factory=dict)  # register value -> role
    slots: dict[str, str] = field(default_factory=dict)  # pipeline -> what is being done with its slot
    current_role: Role | None = None
    counted: dict[str, tuple[Expr, Expr, Expr]] = field(default_factory=dict)  # index of a loop -> (extent, step, 1)
    depth: int = 0  # loops around the current place
    divided: Expr | None = None  # rounds of the loops that the CTAs that share a tile divide
    fixing_up: bool = False  # whether only the last of them gets here
    fixed_up: set[str] = field(default_factory=set)  # register values of which CTAs had a part each

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

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def fail(self, sentence: str) -> DeclarationError:
        return DeclarationError(f"{type(self.machine).__name__}.program: {sentence}")

    def _number(self) -> int:
        self.counter += 1
        return self.counter

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self._number()}"

    def require(self, conditions: tuple[Condition, ...]) -> None:
        for c in conditions:
            self.constraints.append(Constraint(c.name, c.condition, c.sentence, "legality", "partition", "emulator"))

    # -- parts of tiles --------------------------------------------------------------------------------------------
    def _dealt(
        self, persistent: bool, slices: Operand, stream_k: Operand, given: TileScheduler | None
    ) -> TileScheduler:
        """How tiles are dealt, by the words of `p.grid`; checked."""
        made: TileScheduler = StaticPersistent(expr(slices)) if persistent else OneTile(expr(slices))
        if not expr(stream_k).same(0):
            made = StreamK(expr(stream_k), made)
        if given is not None:
            if persistent or made.shares:
                raise self.fail(
                    f"p.grid takes a scheduler, here {type(given).__name__}, or persistent, slices and stream_k; leave "
                    "out the one or the others"
                )
            made = given
        if made.refusal():
            raise self.fail(made.refusal())
        self.constraints.extend(made.conditions())
        return made

    def _divides(self, extent: Expr, rounds: Expr) -> Expr:
        """The number of CTAs that divide a loop of so many rounds over an extent."""
        if self.grid_node is None:
            raise self.fail(
                "a loop is divided among the CTAs that share a tile; open `with p.grid(..., slices=)` first"
            )
        if self.fixing_up:
            raise self.fail("a loop is divided where only the last CTA of a tile is left; divide it before p.fix_up")
        known = self.divided if self.divided is not None else rounds
        slices, deals_rounds = self.grid_node.scheduler.slices, self.grid_node.scheduler.deals_rounds
        if deals_rounds and not known.same(rounds):
            raise self.fail(
                f"one loop of {known} rounds is divided and one of {rounds}; stream-K deals out rounds that all divided"
                " loops of a tile have in common"
            )
        self.divided = known
        self._check_divided(extent, rounds, slices)
        return slices

    def _check_divided(self, extent: Expr, rounds: Expr, parts: Expr) -> None:
        """Rounds beyond the end of a tensor touch nothing; those beyond another extent would touch what is there."""
        names = {*self.machine.dim_names(), *(p.name for p in self.machine.params())}
        own = sorted(extent.symbols - names)
        if own:
            raise self.fail(
                f"a loop over {extent} has other rounds in other tiles, and those that CTAs divide are the same in all;"
                " divide a loop over a dim"
            )
        if not any(extent.same(symbol(dim)) for dim in self.machine.dim_names()) and not parts.same(1):
            sentence = f"the CTAs that share a tile divide the {rounds} rounds over {extent} without rest"
            self.require((Condition(f"parts of {extent}", rounds % parts == 0, sentence),))

    def _writes_alone(self, name: str, target: Tile) -> None:
        """Of the CTAs that share a tile one writes the results."""
        if target.tensor is not None and self.grid_node and self.grid_node.scheduler.shares and not self.fixing_up:
            which = self.grid_node.scheduler.writers
            raise self.fail(
                f"{name} writes {target.name} in {which} CTAs that share a tile; combine what they have, and write "
                "that inside `with p.fix_up(...)`"
            )

    def _combines(self, name: str, instruction: Transfer, target: Tile) -> None:
        """What a store combines with is there before the launch; whoever comes when, and how often, is no matter."""
        if target.tensor is not None and target.tensor.access != "inout":
            raise self.fail(
                f"{name} ({instruction}) combines with what {target.name} holds, which is declared Output; declare it "
                "InOut"
            )

    def _check_combined(self, body: Sequence[n.Statement]) -> None:
        """What one store combines into, nothing else reads or writes: they come in any order, of all CTAs."""
        touching: dict[str, list[n.Statement]] = {}
        for s in walk(tuple(body)):
            for tile in (*s.reads, *s.writes):
                if tile.tensor is not None:
                    touching.setdefault(tile.tensor.name, []).append(s)
        for tensor, statements in touching.items():
            combining = [s for s in statements if any(getattr(i, "combines", False) for i in s.instructions)]
            others = [s for s in statements if s not in combining or s.instructions != combining[0].instructions]
            if combining and others:
                first, other = (getattr(s, "name", str(s)) for s in (combining[0], others[0]))
                raise self.fail(
                    f"{first} combines into {tensor} what CTAs store in any order, and {other} touches {tensor} too; "
                    "give what else is read or written a tensor of its own"
                )

    def _check_fix_up(self, name: str, store: Any, load: Any, value: Tile) -> None:
        stored, loaded = self._instruction(store, (Transfer,), "fix_up"), self._instruction(load, (Transfer,), "fix_up")
        if self.fixing_up or self.depth or self.slots:
            where = "another p.fix_up" if self.fixing_up else "a loop" if self.depth else "a slot"
            raise self.fail(f"p.fix_up stands inside {where}; each tile is fixed up once, where the loops are done")
        self._path(store, RMEM, GMEM)
        self._path(load, GMEM, RMEM)
        if load.read_only:
            raise self.fail(f"{loaded} ({load}) reads through the read-only path what other CTAs write; use ld.global")
        if store.combines:
            raise self.fail(f"{stored} ({store}) combines with what is there, and a workspace is empty; use st.global")
        vector = expr(store.vector)
        if not vector.same(load.vector):
            raise self.fail(f"{stored} leaves {store.vector} values at once, and {loaded} takes {load.vector}")
        for acting in (store, load):
            self._acts(self.machine.attribute_of(acting), acting)
            width = acting.width_bytes(value.dtype)
            legal = any_of([width == w for w in acting.widths_bytes])
            sentence = f"{acting.label} moves whole vectors of the values that {name} combines"
            self.require((Condition(f"{acting.label} width in the workspace", legal, sentence),))
        if value.partition is not None:
            whole = value.partition.value_count % vector == 0
            sentence = f"what a thread holds of {value.name} is a whole number of vectors of {store.vector}"
            self.require((Condition("vectors of the workspace", whole, sentence),))

    # -- checks ----------------------------------------------------------------------------------------------------
    def _check_swizzle_atoms(self, b: Buffer) -> None:
        """TMA and wgmma take the pattern of a swizzle from the address, and it has 8 rows.

        PTX ISA, "Swizzling Modes": patterns repeat after 256, 512 or 1024 bytes.
        """
        if b.swizzle_bytes is None or (b.rows.is_number and int(b.rows) % 8 == 0):
            return
        alone = (b.stages == 1) & (b.pitch_bytes == b.swizzle_bytes)
        sentence = f"slots of {b.name} are whole atoms of the swizzle: they have a multiple of 8 rows"
        self.require((Condition("rows of a swizzle", (b.rows % 8 == 0) | alone, sentence),))

    # -- checks ----------------------------------------------------------------------------------------------------
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
        if every > 1 and not (self.grid_node and self.grid_node.scheduler.persistent):
            raise self.fail(f"role {made.name!r} takes a share of one tile per CTA; make the grid persistent")

    def _whole_warpgroups(self, role: Role, what: str) -> None:
        for count, words in ((role.warps, "warps"), (role.first, "as its first warp")):
            whole = count % 4 == 0
            if whole.same(False):
                raise self.fail(f"role {role.name!r} has {count} {words}, and {what} takes whole warpgroups of 4 warps")
            sentence = f"role {role.name} is made of whole warpgroups, which {what} takes"
            self.require((Condition(f"warpgroups of {role.name}", whole, sentence),))

    def _check_step(self, step: Operand) -> None:
        if expr(step).is_number and int(expr(step)) < 1:
            raise self.fail(f"a loop goes on by 1 element or more each round, not by {step}")

    def _check_tmem(self, shape: tuple[Expr, ...]) -> None:
        if len(shape) != 2:
            raise self.fail(f"a buffer in TMEM has two axes, lanes and columns, not {len(shape)}")
        fits = shape[0] <= TMEM_LANES
        if fits.same(False):
            raise self.fail(f"a buffer in TMEM has at most {TMEM_LANES} lanes, not {shape[0]}")
        sentence = f"a buffer in TMEM has at most {TMEM_LANES} rows, its lanes"
        self.require((Condition("tmem lanes", fits, sentence),))

    def _instruction(self, instruction: Any, family: tuple[type, ...], verb: str) -> str:
        if not isinstance(instruction, family):
            wanted = " or ".join(f.__name__ for f in family)
            raise self.fail(f"p.{verb} takes a {wanted}, not {instruction!r}")
        name = self.machine.attribute_of(instruction)
        hops: tuple[Any, ...] = instruction.hops if isinstance(instruction, Route) else (instruction,)
        for hop in hops:
            unwritten = "" if hop.traced_only else hop.unwritten()
            if unwritten:
                raise self.fail(f"{name} ({hop}) {unwritten}")
        return name

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
        kinds = getattr(instruction, "kinds", ())
        if kinds and memory_side.dtype.name not in kinds:
            name, listed = self.machine.attribute_of(instruction), " or ".join(kinds)
            raise self.fail(f"{name} ({instruction}) moves {listed}, and {memory_side.name} is {memory_side.dtype}")
        self._fits_role(memory_side.name, partition)
        self._acts(self.machine.attribute_of(instruction), instruction)
        self.constraints.extend(instruction.legality(memory_side, partition))
        if isinstance(instruction, Transfer):
            self._begins_at_vectors(instruction, memory_side)

    def _bring_whole(
        self, name: str, instruction: BulkTransfer, source: Tile, target: Tile, partition: Partition | None
    ) -> None:
        if partition is not None:
            raise self.fail(f"{name} ({instruction}) moves the whole tile by itself; leave the partition out")
        if len(source.shape) != len(target.shape) or not all(
            a.same(b) for a, b in zip(source.shape, target.shape, strict=True)
        ):
            have, want = extents_of(source), extents_of(target)
            raise self.fail(f"{name} copies {have} of {source.name} to {want} of {target.name}")
        self._acts(name, instruction)
        self.constraints.extend(instruction.legality(source, target))
        if instruction.by_rows:
            self._whole_windows(name, instruction, source if source.tensor is not None else target)

    def _whole_windows(self, name: str, instruction: BulkTransfer, window: Tile) -> None:
        """All windows lie within the tensor: they follow one another in steps of their own, which divide the dims."""
        grid, tensor = self.grid_node, window.tensor
        if grid is None or tensor is None:
            return
        if grid.scheduler.shares:
            raise self.fail(f"{name} ({instruction}) moves rows that exist, and CTAs that share tiles go beyond them")
        counted = {a.index: (a.size, a.extent, a.cluster) for a in grid.axes} | self.counted
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        for axis, (extent, home) in enumerate(zip(window.shape, window.axes, strict=True)):
            dim = symbol(tensor.dims[home]) if home is not None else expr(1)
            offset = window.offset[axis].sympy.expand()
            counters = [s for s in offset.free_symbols if s.name not in known]
            size, step, ctas = counted.get(counters[0].name, (expr(0),) * 3) if len(counters) == 1 else (expr(0),) * 3
            if not counters:
                inside = window.offset[axis] + extent <= dim
            elif size.same(dim) and step.same(extent) and window.offset[axis].same(symbol(counters[0].name) * extent):
                inside = dim % (extent * ctas) == 0
            else:
                raise self.fail(
                    f"{name} ({instruction}) moves rows that exist, and the windows of {tensor.name} along axis "
                    f"{axis}, which begin at {window.offset[axis]}, do not follow one another over {dim}"
                )
            sentence = f"whole windows lie within {tensor.name}, of which {instruction.label} moves rows"
            self.constraints.append(instruction.rule(f"windows along axis {axis} of {tensor.name}", inside, sentence))

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

    def _check_multicast(self, name: str, instruction: Instruction | Route, source: Tile, axis: int) -> None:
        axes = self.grid_node.axes if self.grid_node else ()
        if not isinstance(instruction, BulkTransfer):
            raise self.fail(f"{name} ({instruction}) serves one CTA; only a BulkTransfer is multicast")
        if instruction.by_rows:
            raise self.fail(f"{name} ({instruction}) moves rows to one CTA; leave multicast= out")
        if not 0 <= axis < len(axes) or axes[axis].cluster.same(1):
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, along which there is no cluster")
        if any(axes[axis].index in o.symbols for o in source.offset):
            moving = f"its window of {source.name} moves along that axis"
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, but {moving}")

    def _in_slot(self, name: str, tile: Tile, *, writing: bool) -> None:
        """A buffer is touched inside the block that yielded it: written by a producer, read by a consumer."""
        if tile.buffer is None:
            return
        pipeline = tile.buffer.name.split(".")[0]
        verb = self.slots.get(pipeline)
        if verb is None:
            raise self.fail(
                f"{name} touches {tile.name} after its slot was handed on; do it inside produce() or consume()"
            )
        if verb != ("produce" if writing else "consume"):
            does, right = ("writes", "produced") if writing else ("reads", "consumed")
            raise self.fail(f"{name} {does} {tile.name} where {pipeline!r} is {DONE[verb]}; do it where it is {right}")

    def _acts(self, name: str, instruction: Instruction) -> None:
        """The device has the instruction, and the role has the warps that carry it out together."""
        self.constraints.append(instruction.target_rule())
        if self.current_role is None:
            raise self.fail(f"{name} stands outside a role; say which warps do it with `with p.role(...)`")
        if instruction.scope == "warpgroup":
            self._whole_warpgroups(self.current_role, str(instruction))

    def _fragments_fit(self, name: str, instruction: MatrixMultiply, operands: tuple[Tile, Tile, Tile]) -> None:
        """Operands in registers are held as the instruction holds them: whole registers, each element by one lane."""
        a, b, _ = operands
        if instruction.traced_only:
            return
        lanes = 128 if instruction.scope == "warpgroup" else 32
        for tile, fragment, what in zip(operands, instruction.fragments(a.dtype, b.dtype), "abc", strict=True):
            if tile.memory is not RMEM or tile.partition is None:
                continue
            here = f"{name} ({instruction}) has {what} in registers, and"
            if fragment is None:
                raise self.fail(f"{here} fragments() does not say who holds it")
            threads, values = fragment.modes
            if threads.size != lanes:
                raise self.fail(f"{here} its fragment {fragment} is held by {threads.size} lanes, not by {lanes}")
            if values.size * tile.dtype.bits % 32:
                held = f"{values.size} value{'s' * (values.size > 1)} of {tile.dtype}"
                raise self.fail(f"{here} a lane holds {held} of its fragment {fragment}, no whole 32-bit registers")
            if not holds_every_element_once(fragment):
                raise self.fail(f"{here} its fragment {fragment} does not hold every element once")
            for of, held_by in ((threads, tile.partition.threads), (values, tile.partition.values)):
                first = held_by.steps[: len(of.steps)]
                if Layout.of(first)[0] != Layout.of(of.steps)[0]:
                    raise self.fail(f"{here} %{tile.name} is held otherwise; take its partition from p.tiled")

    def _whole_instructions(self, instruction: MatrixMultiply, a: Tile, b: Tile, accumulator: Tile) -> None:
        extents = (*accumulator.shape, a.shape[1])
        shape = instruction.shape(a.dtype, b.dtype)
        for have, one, what in zip(extents, shape, ("rows", "columns", "depth"), strict=True):
            fits = have % one == 0
            sentence = f"the {what} of the tile, {have}, are a whole number of instructions of {one}"
            self.require((Condition(f"{instruction.label} {what}", fits, sentence),))

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
        if len(mine.threads.steps) != len(wanted.threads.steps):
            raise self.fail(f"{name} combines tiles that are held by other threads: {mine} and {wanted}")
        for (have, step), (want, other) in zip(mine.threads.steps, wanted.threads.steps, strict=True):
            if not (expr(have).same(want) and step == other):
                held = _same_digit(expr(have), step, expr(want), other)
                self.require((Condition(f"threads of {operand.name}", held, sentence),))

    def _use(self, tile: Tile) -> None:
        self._owned(tile)
        if tile.name in self.fixed_up:
            raise self.fail(f"%{tile.name} is what one CTA had of its tile, and was fixed up; use what p.fix_up yields")
        self.unused.pop(tile.name, None)

    def _owned(self, tile: Tile) -> None:
        """A register value belongs to the role that made it."""
        owner = self.owners.get(tile.name)
        if owner is not None and self.current_role is not None and owner != self.current_role.name:
            raise self.fail(
                f"%{tile.name} lies in the registers of role {owner!r}, and role {self.current_role.name!r} uses it; "
                "hand it over through a pipeline"
            )


def _same_digit(have: Expr, step: Leaf | Step, want: Expr, other: Leaf | Step) -> Expr:
    """When two digits of the thread id are one: as many values that move alike, or one value."""
    mine, theirs = (dict(s.terms) if isinstance(s, Step) else {} for s in (step, other))
    if mine.keys() != theirs.keys():
        return (have == 1) & (want == 1)
    alike = all_of([expr(count) == theirs[axis] for axis, count in mine.items()])
    return (have == want) & (alike | (have == 1))


def axes_of(count: int) -> str:
    return "axis 0 only" if count == 1 else f"the axes 0 to {count - 1}"


def extents_of(tile: Tile) -> str:
    return "x".join(map(str, tile.shape))
