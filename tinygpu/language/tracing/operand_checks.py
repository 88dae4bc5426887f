"""Whether an instruction fits its operands: memories, windows, partitions, fragments, roles.

A check that can be made at once raises `DeclarationError`; what depends on parameters becomes a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, cannot_hold
from tinygpu.expressions import Expr, Operand, all_of, expr, joined, maximum, symbol
from tinygpu.language.holders import holds_values
from tinygpu.language.instruction import (
    BulkTransfer,
    CellCopy,
    Instruction,
    MatrixMultiply,
    Scales,
    Transfer,
    held_digits,
)
from tinygpu.language.instruction.base import or_of
from tinygpu.language.matrix_fragments import holds_every_element_once
from tinygpu.language.memories import RMEM, TMEM, Memory
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.register_windows import is_multiple
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.block_checks import BlockChecks
from tinygpu.language.tracing.record import DONE
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.users_code import answer

WARPGROUP_THREADS = 128


@dataclass(slots=True, eq=False)
class OperandChecks(BlockChecks):
    """Checks of one instruction and what it is given."""

    def _instruction(self, instruction: Any, family: tuple[type, ...], verb: str) -> str:
        if not isinstance(instruction, family):
            wanted = or_of([f.__name__ for f in family])
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
        self._launched(instruction, memory_side)
        memory_side, partition = memory_side.finest_under(partition)
        self._fits_role(memory_side.name, partition)
        self._picked(instruction, memory_side, partition)
        self._acts(self.machine.attribute_of(instruction), instruction)
        self.constraints.extend(_rules(instruction.legality, memory_side, partition))
        if isinstance(instruction, Transfer):
            self._begins_at_vectors(instruction, memory_side)

    def _picked(self, instruction: Any, window: Tile, partition: Partition) -> None:
        """Each thread holds the values that say where its elements of the window lie."""
        pick = window.pick
        if pick is None or pick.by.partition is None:
            return
        if not isinstance(instruction, Transfer) or (window.buffer is not None and instruction.asynchronous):
            said = f"%{pick.by.name} says row by row where {window.name} lies"
            raise self.fail(
                f"{instruction} moves what lies together, and {said}; move it element by element, as by isa.LdShared "
                "and isa.StShared"
            )
        self._use(pick.by)
        by = pick.by.partition.spread(pick.along, len(window.shape))
        sentence = (
            f"each thread holds what names the rows of {window.name} that it moves; load %{pick.by.name} under the "
            "part of its partition along these rows, or bring it there by p.relayout"
        )
        self._same_threads(f"the window of {window.name}", pick.by, by, partition, sentence)

    def _launched(self, instruction: Instruction, tile: Tile) -> None:
        """Scales of blocks are traced: no launch has arrays of them."""
        if tile.dtype.kind == "scale" and not instruction.traced_only:
            raise self.fail(f"{instruction.label} moves {tile.dtype} of {tile.name}, and launches have none; use u8")

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
        self._launched(instruction, source)
        if source.dtype.bits < 8:
            raise self.fail(
                f"{name} ({instruction}) moves elements of whole bytes, and those of {source.name} have "
                f"{source.dtype.bits} bits; copy them thread by thread, as by isa.CpAsync"
            )
        for window in (source, target):
            if window.pick is not None:
                said = f"%{window.pick.by.name} says row by row where {window.name} lies"
                raise self.fail(f"{name} ({instruction}) moves boxes, and {said}; copy it thread by thread")
            if window.ends:
                raise self.fail(
                    f"{name} ({instruction}) moves boxes, and a segment of {window.name} ends where a value says; copy "
                    "it thread by thread"
                )
        self._acts(name, instruction)
        if not instruction.traced_only:
            self.constraints.extend(BulkTransfer.legality(instruction, source, target))
        if type(instruction).legality is not BulkTransfer.legality:
            self.constraints.extend(_rules(instruction.legality, source, target))
        if instruction.by_rows:
            self._whole_windows(name, instruction, source if source.tensor is not None else target)

    def _bring_chunks(
        self, name: str, instruction: CellCopy, source: Tile, target: Tile, partition: Partition | None
    ) -> None:
        if partition is not None:
            raise self.fail(f"{name} ({instruction}) moves whole chunks by itself; leave the partition out")
        self._acts(name, instruction)
        try:
            self.constraints.extend(instruction.legality(source, target))
        except ValueError as error:
            raise self.fail(f"{name}: {error}") from None

    def _whole_windows(self, name: str, instruction: BulkTransfer, window: Tile) -> None:
        """All windows lie within the tensor: they follow one another in steps of their own, which divide the dims."""
        grid, tensor = self.grid_node, window.tensor
        if grid is None or tensor is None:
            return
        if grid.scheduler.shares:
            raise self.fail(f"{name} ({instruction}) moves rows that exist, and CTAs that share tiles go beyond them")
        counted = {a.index: (a.size, a.extent, a.cluster) for a in grid.axes} | self.counted
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        if not window.plain:
            raise self.fail(f"{name} ({instruction}) moves rows that exist, element by element, and {window} is no box")
        along = [(i, *of) for i, of in enumerate(zip(window.shape, window.axes, window.offset, strict=True))]
        along += [(home, expr(1), home, begin) for home, begin in window.fixed]
        for axis, extent, home, begin in along:
            dim = tensor.size(home) if home is not None else expr(1)
            offset = begin.sympy.expand()
            counters = [s for s in offset.free_symbols if s.name not in known]
            size, step, ctas = counted.get(counters[0].name, (expr(0),) * 3) if len(counters) == 1 else (expr(0),) * 3
            if home is None:
                continue
            if size.same(dim) and step.same(extent) and begin.same(symbol(counters[0].name) * extent):
                inside = dim % (extent * ctas) == 0
            else:
                raise self.fail(
                    f"{name} ({instruction}) moves rows that exist, and the windows of {tensor.name} along axis "
                    f"{axis}, which begin at {begin}, do not follow one another over {dim}"
                )
            sentence = f"whole windows lie within {tensor.name}, of which {instruction.label} moves rows"
            self.constraints.append(instruction.rule(f"windows along axis {axis} of {tensor.name}", inside, sentence))

    def _begins_at_vectors(self, instruction: Transfer, tile: Tile) -> None:
        """The window begins at a whole number of vectors along the contiguous axis, in every round of every loop."""
        axis, vector = tile.contiguous, expr(instruction.vector)
        if axis is None or vector.same(1):
            return
        home = tile.axes[axis] if tile.tensor is not None else None
        offset = (tile.offset[axis] if home is None else tile.begins[home]).sympy.expand()
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        moves, constant = dict[str, Expr](), expr(0)
        for term in sympy.Add.make_args(offset):
            moving = [f for f in sympy.Mul.make_args(term) if not {s.name for s in f.free_symbols} <= known]
            if moving:  # indices, and quotients and remainders of them
                counter = sympy.Mul(*moving)
                moves[str(counter)] = moves.get(str(counter), expr(0)) + Expr(term / counter)
            else:
                constant = constant + Expr(term)
        beside = [step for k, step in tile.along(home) if k != axis] if home is not None else []
        steps = [*(moves[name] for name in sorted(moves)), constant]
        # Tiles that follow each other begin at vectors, because a tile is a whole number of them.
        own = [s for s in (*steps, *beside) if not s.same(tile.shape[axis]) and not s.same(0)]
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
        if any(axes[axis].index in o.symbols for o in source.finest.offset):
            moving = f"its window of {source.name} moves along that axis"
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, but {moving}")

    def _number_in(self, what: str, value: Any, kind: DType) -> None:
        """A number of the program is one of the type, rounded."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(f"{what} is a number, not {value!r}")
        if why := cannot_hold(kind, value):
            raise self.fail(f"{what} is {value}, and {kind} {why}")

    def _in_slot(self, name: str, tile: Tile, *, writing: bool) -> None:
        """A buffer is touched inside the block that yielded it: written by a producer, read by a consumer.

        A single slot of tensor memory goes back and forth: a consumer may leave something there, which is added to, or
        multiplied, where it is produced again.
        """
        if tile.buffer is None:
            return
        pipeline = tile.buffer.name.split(".")[0]
        verb = self.slots.get(pipeline)
        if verb is None:
            raise self.fail(
                f"{name} touches {tile.name} after its slot was handed on; do it inside produce() or consume()"
            )
        if tile.memory is TMEM and tile.buffer.stages.same(1) and (verb == "consume" or not writing):
            return
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
        m, n_, k = instruction.shape(a.dtype, b.dtype)
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
            one, along = {"a": ((m, k), (0,)), "b": ((k, n_), (1,)), "c": ((m, n_), (0, 1))}[what]
            lanes_of, values_of = held_digits(fragment, one)
            by_lanes, by_values = tile.partition.threads.steps, tile.partition.values.steps
            alike = all(
                Layout.of(have[: len(want)])[0] == Layout.of(want)[0]
                for have, want in ((by_lanes, lanes_of), (by_values, values_of))
            )
            if not (alike and _repeat(by_values[len(values_of) :], one, along)):
                raise self.fail(f"{here} %{tile.name} is held otherwise; take its partition from p.tiled")

    def _scales_fit(
        self, name: str, instruction: MatrixMultiply, factors: tuple[Tile, Tile], scales: tuple[Tile, Tile] | None,
        at: Expr,
    ) -> None:
        """Scales of blocks are given where the instruction takes them, in its type, for whole blocks along k."""
        taken = instruction.scales(*(f.dtype for f in factors))
        here = f"{name} ({instruction})"
        if (taken is None) is not (scales is None):
            if taken is None:
                raise self.fail(f"{here} takes no scales; leave scales= out")
            raise self.fail(
                f"{here} takes scales, one for {taken.block} neighbours along k; give scales=(of a, of b)"
            )
        if taken is None or scales is None:
            return
        k = factors[0].shape[1]
        if taken.fragments is None:
            self._scales_in_cells(name, instruction, taken, factors, scales, at)
        held = () if taken.fragments is None else taken.fragments
        for side, (tile, factor, fragment) in enumerate(zip(scales, factors, held, strict=False)):
            if tile.memory is not RMEM or tile.dtype != taken.dtype:
                has = f"{tile.name} has {tile.dtype} in {tile.memory}"
                raise self.fail(f"{here} takes scales of {taken.dtype} in registers, and {has}")
            if not tile.shape[side].same(factor.shape[side]):
                raise self.fail(f"{here} has {extents_of(factor)} of {factor.name}, and scales {extents_of(tile)}")
            who = tile.partition
            have = (who.threads.steps, who.values.steps) if who is not None else ((), ())
            pairs = zip(have, (mode.steps for mode in fragment.modes), strict=True)
            if any(Layout.of(held[: len(want)])[0] != Layout.of(want)[0] for held, want in pairs):
                raise self.fail(f"{here} has scales in %{tile.name} that are held otherwise; take .scales of p.tiled")
            last = at.substitute({index: trips - 1 for index, trips in self.unrolled.items()})
            within = last + k <= tile.shape[1 - side] * taken.block
            sentence = f"%{tile.name} has the scales of all that is multiplied"
            self.require((Condition(f"{name} scales of {'ab'[side]}", within, sentence),))
        if launched := sorted(at.symbols - self.unrolled.keys() - {p.name for p in self.machine.params()}):
            raise self.fail(
                f"{here} takes scales from {at} on, and which registers hold them has to be known before the launch; "
                f"{launched[0]} is not: let p.unroll give it"
            )
        if not is_multiple(at, k):
            raise self.fail(f"{here} takes scales from {at} on; that is a multiple of the extent along k, {k}")

    def _scales_in_cells(
        self, name: str, instruction: MatrixMultiply, taken: Scales, factors: tuple[Tile, Tile],
        scales: tuple[Tile, Tile], at: Expr,
    ) -> None:  # fmt: skip
        """Scales of blocks lie in tensor memory, of all rows of a and columns of b, for all that is multiplied."""
        here, k = f"{name} ({instruction})", factors[0].shape[1]
        last = at.substitute({index: trips - 1 for index, trips in self.unrolled.items()})
        for side, (tile, factor) in enumerate(zip(scales, factors, strict=True)):
            if tile.memory is not TMEM or tile.dtype != taken.dtype:
                has = f"{tile.name} has {tile.dtype} in {tile.memory}"
                raise self.fail(f"{here} takes scales of {taken.dtype} in TMEM, and {has}")
            if not all(o.same(0) for o in tile.offset):
                raise self.fail(f"{here} takes the scales of a tile, not of a window of {tile.name}; leave it whole")
            self._in_slot(name, tile, writing=self.slots.get(tile.name.split(".")[0]) == "produce")
            rows, held = factor.shape[side], tile.shape[0] * tile.shape[1]
            whole = (held % rows == 0) & (last + k <= held // rows * taken.block)
            sentence = f"{tile.name} has the scales of all that is multiplied"
            self.require((Condition(f"{name} scales of {'ab'[side]}", whole, sentence),))
        self.constraints.extend(instruction.scale_rules(factors[0].shape[0], factors[1].shape[1]))

    def _by_warpgroups(self, name: str, instruction: MatrixMultiply, a: Tile, b: Tile, accumulator: Tile) -> None:
        """Operands in SMEM lie as descriptors say; warpgroups divide the rows, and each begins at a whole width."""
        if instruction.traced_only or self.current_role is None or accumulator.partition is None:
            return
        for tile in (a, b):
            if tile.buffer is not None and tile.buffer.swizzle_bytes is None:
                raise self.fail(
                    f"{name} ({instruction}) reads {tile.name} by descriptors, and it has no swizzle; give its width, "
                    "swizzle=32, 64 or 128"
                )
        fragment = instruction.fragments(a.dtype, b.dtype)[2]
        lanes = len(fragment[0].steps) if fragment is not None else 0
        across = expr(1)
        for size, step in accumulator.partition.threads.steps[lanes:]:
            across = across * (size if isinstance(step, Step) and 1 in dict(step.terms) else 1)
        # Roles of other than whole warpgroups are refused as such.
        groups = maximum(self.current_role.threads // WARPGROUP_THREADS, 1)
        divided = (across == 1) & (accumulator.partition.thread_count // WARPGROUP_THREADS == groups)
        sentence = f"the warpgroups of the role divide the rows of %{accumulator.name}, and each has all columns"
        self.require((Condition(f"warpgroups of {instruction.label}", divided, sentence),))
        if a.buffer is not None and a.buffer.swizzle_bytes is not None and a.buffer.contiguous == 0:
            own_bytes = accumulator.shape[0] // groups * a.dtype.bits // 8
            whole = (groups == 1) | (own_bytes % a.buffer.swizzle_bytes == 0)
            sentence = f"the rows of {a.name} that a warpgroup multiplies are whole widths of its swizzle"
            self.require((Condition(f"warpgroups' parts of {a.name}", whole, sentence),))

    def _by_neighbours(self, name: str, instruction: MatrixMultiply, a: Tile, b: Tile, accumulator: Tile) -> None:
        """CTAs that multiply together lie beside each other, and one instruction has all columns of both."""
        if self.grid_node is None:
            raise self.fail(f"{name} ({instruction}) multiplies in several CTAs, and there is no grid of them")
        along = self.grid_node.axes[-1].cluster
        sentence = (
            f"{instruction.label} multiplies in {instruction.ctas} CTAs together, neighbours along the last axis of "
            "the grid: its cluster has a multiple of them there"
        )
        self.require((Condition(f"{instruction.label} neighbours", along % instruction.ctas == 0, sentence),))
        columns = instruction.shape(a.dtype, b.dtype)[1]
        sentence = f"one instruction has all columns of %{accumulator.name}, of which each CTA brings a part"
        self.require((Condition(f"{instruction.label} parts", accumulator.shape[1] == columns, sentence),))

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
            have, want = joined(tile.shape, "x"), joined(partition.shape, "x")
            raise self.fail(f"{name} moves {tile.name} as {have}, but its partition is for {want}")

    def _broadcasts(self, name: str, operands: tuple[Any, ...], widest: Tile) -> None:
        for operand in operands:
            if not isinstance(operand, Tile):
                continue
            if len(operand.shape) != len(widest.shape):
                raise self.fail(f"{name} mixes tiles with {len(operand.shape)} and {len(widest.shape)} axes")
            for axis, (a, b) in enumerate(zip(operand.shape, widest.shape, strict=True)):
                if not a.same(b) and not a.same(1):
                    crossed = a.same(1) or b.same(1)
                    how = "; no operand has the whole shape: give into= a tile that has it, by p.full" * crossed
                    raise self.fail(f"{name} mixes extents {a} and {b} along axis {axis}{how}")
            if operand.partition is not None and widest.partition is not None:
                self._same_threads(name, operand, operand.partition, widest.partition)

    def _same_threads(
        self, name: str, operand: Tile, mine: Partition, wanted: Partition, sentence: str = ""
    ) -> None:
        """Each thread holds the operand's values that it combines: thread modes agree, but for broadcast axes."""
        for axis, (a, b) in enumerate(zip(mine.shape, wanted.shape, strict=True)):
            if a.same(1) and not b.same(1):
                wanted = wanted.reduced(axis)
        apart = sentence or f"{name} combines tiles that are held by other threads: {mine} and {wanted}"
        sentence = sentence or f"each thread holds the values of {operand.name} that {name} combines with its own"
        if len(mine.threads.steps) != len(wanted.threads.steps):
            raise self.fail(apart)
        for (have, step), (want, other) in zip(mine.threads.steps, wanted.threads.steps, strict=True):
            if not (expr(have).same(want) and step == other):
                held = _same_digit(expr(have), step, expr(want), other)
                self.require((Condition(f"threads of {operand.name}", held, sentence),))
        try:
            self.require(holds_values(operand.name, mine, wanted, self.machine.params(), sentence))
        except LayoutError as error:
            raise self.fail(f"{name} combines {error}") from None


def _repeat(digits: Sequence[tuple[Leaf, Leaf | Step]], one: tuple[Operand, Operand], along: tuple[int, ...]) -> bool:
    """Whether the digits of the values behind a fragment repeat it: first along the first of these axes, and so on."""
    begun: list[int] = []
    for size, step in digits:
        if expr(size).same(1):
            continue
        if not isinstance(step, Step) or len(step.terms) != 1 or step.terms[0][0] not in along:
            return False
        ((axis, count),) = step.terms
        if not isinstance(axis, int) or (begun and along.index(axis) < along.index(begun[-1])):
            return False
        if axis not in begun and not expr(count).same(one[axis]):
            return False
        begun.append(axis)
    return True


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
    return joined(tile.shape, "x")


def _rules(method: Callable[..., tuple[Constraint, ...]], *operands: Any) -> tuple[Constraint, ...]:
    """What an instruction says of its legality."""

    def fits(found: Any) -> bool:
        return isinstance(found, (tuple, list)) and all(isinstance(rule, Constraint) for rule in found)

    return answer(method, *operands, wanted="a tuple of constraints, as self.rule(...) makes them", fits=fits)
