"""Whether a product fits its operands: fragments, scales, warpgroups, pairs of CTAs, windows that descriptors reach.

A check that can be made at once raises `DeclarationError`; what depends on parameters becomes a constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygpu.expressions import Expr, Operand, all_of, expr, maximum, multiples
from tinygpu.language.data_paths import LANES_OF_A_WARP, alike, path_of, rows_in_lanes
from tinygpu.language.instruction import MatrixMultiply, Scales, held_digits
from tinygpu.language.matrix_fragments import holds_every_element_once
from tinygpu.language.memories import CELL_BITS, RMEM, TMEM, TMEM_LANES
from tinygpu.language.partition import Condition
from tinygpu.language.register_windows import is_multiple
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.operand_checks import SWIZZLE_ROWS, OperandChecks, extents_of
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step

WARPGROUP_THREADS = 128


@dataclass(slots=True, eq=False)
class MatrixChecks(OperandChecks):
    """Checks of one product and what it is given."""

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

    def _path_fits(self, name: str, instruction: MatrixMultiply, accumulator: Tile) -> None:
        """The accumulator lies in TMEM as the instruction writes it."""
        if accumulator.memory is not TMEM or instruction.traced_only or accumulator.buffer is None:
            return
        wanted, have = instruction.path(accumulator.shape[1]), path_of(accumulator)
        plain = wanted[0].steps == rows_in_lanes(TMEM_LANES, 1)[0].steps
        if not (plain and accumulator.buffer.path is None) and not alike(wanted, have):
            raise self.fail(
                f"{name} ({instruction}) adds up where {wanted} says, and {accumulator.name} lies as {have}; give its "
                f"buffer path={self.machine.attribute_of(instruction)}.path(columns)"
            )

    def _left_fits(self, name: str, instruction: MatrixMultiply, a: Tile) -> None:
        """A left operand in TMEM has row r in lane r, and what fits of its neighbours along k in a cell."""
        if a.memory is not TMEM or instruction.traced_only or a.buffer is None or a.buffer.path is None:
            return
        if a.buffer.element_bits != a.dtype.bits or not alike(rows_in_lanes(*a.shape), path_of(a)):
            raise self.fail(
                f"{name} ({instruction}) reads {a.name} with row r in lane r, {CELL_BITS} bits along k in a cell, and "
                f"each of its elements has a cell at {path_of(a)}; leave the path of its buffer out"
            )

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
            # Of a pair, each CTA has the scales of all columns, whose factors the two share.
            rows = instruction.scale_rows(factor.shape[side] * (instruction.ctas if side else 1))
            held = tile.shape[0] * tile.shape[1]
            whole = (held % rows == 0) & (last + k <= held // rows * taken.block)
            sentence = f"{tile.name} has the scales of all that is multiplied"
            self.require((Condition(f"{name} scales of {'ab'[side]}", whole, sentence),))
        columns = factors[1].shape[1] * instruction.ctas
        self.constraints.extend(instruction.scale_rules(factors[0].shape[0], columns))

    def _column_fits(self, name: str, instruction: MatrixMultiply, column: Expr, scaled: bool) -> None:
        """Columns of b begin where a column of cells with their scales does, whichever tile it is."""
        if column.same(0):
            return
        here = f"{name} ({instruction})"
        if not scaled or instruction.places[2] is not TMEM:
            raise self.fail(f"{here} takes no scales in TMEM that begin at column {column}; leave column= out")
        for number in range(1, 4):
            begins = column.substitute({axis.index: number for axis in self.grid_node.axes} if self.grid_node else {})
            sentence = f"the scales of b begin at multiples of {LANES_OF_A_WARP} columns"
            self.require((Condition(f"{name} column of tile {number}", begins % LANES_OF_A_WARP == 0, sentence),))

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

    def _begins_at_instructions(self, instruction: MatrixMultiply, tile: Tile, k_axis: int) -> None:
        """Windows that descriptors say begin at whole steps along k, where the swizzle's pattern begins as well."""
        buffer = tile.buffer
        if instruction.traced_only or buffer is None or buffer.swizzle_bytes is None:
            return
        along_k, across = tile.offset[k_axis], tile.offset[1 - k_axis]
        depth, extent = tile.shape[k_axis], tile.shape[1 - k_axis]
        if whole := multiples(self._steps_of(along_k), depth):
            sentence = f"the windows of {tile.name} begin at multiples of an instruction's depth, {depth}, along k"
            self.require((Condition(f"{instruction.label} steps in {tile.name}", all_of(whole), sentence),))
        steps = self._steps_of(across)
        if buffer.contiguous == k_axis:
            if whole := multiples(steps, SWIZZLE_ROWS):
                sentence = f"the windows of {tile.name} begin at multiples of {SWIZZLE_ROWS} rows, as its swizzle does"
                self.require((Condition(f"{instruction.label} rows in {tile.name}", all_of(whole), sentence),))
            return
        width = buffer.swizzle_bytes * 8 // buffer.element_bits
        one, many = multiples(steps, extent), multiples(steps, width)
        if one and many:
            sentence = f"the windows of {tile.name} begin at widths of its swizzle, or at multiples of their own"
            either = all_of(one) | all_of(many)
            self.require((Condition(f"{instruction.label} widths in {tile.name}", either, sentence),))


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
