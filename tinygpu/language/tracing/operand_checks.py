"""Whether an instruction fits its operands: memories, windows, partitions, fragments, roles.

A check that can be made at once raises `DeclarationError`; what depends on parameters becomes a constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, cannot_hold
from tinygpu.expressions import Expr, all_of, expr, joined, multiples, symbol
from tinygpu.language.holders import holds_values
from tinygpu.language.instruction import (
    BulkTransfer,
    CellCopy,
    CellStore,
    Instruction,
    RowCopy,
    Transfer,
)
from tinygpu.language.instruction.base import or_of, with_article
from tinygpu.language.memories import CELL_BITS, TMEM, Memory
from tinygpu.language.merging import Digit
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.block_checks import BlockChecks
from tinygpu.language.tracing.record import DONE
from tinygpu.layouts.algebra import coalesce
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.users_code import answer

WARPGROUP_THREADS = 128
# Rows between which the bits of an address that a swizzle reads are the same (PTX ISA, shared memory swizzles).
SWIZZLE_ROWS = 8

# Characters of a partition that a sentence shows.
MOST_SHOWN = 240


@dataclass(slots=True, eq=False)
class OperandChecks(BlockChecks):
    """Checks of one instruction and what it is given."""

    def _instruction(self, instruction: Any, family: tuple[type, ...], verb: str) -> str:
        if not isinstance(instruction, family):
            wanted = or_of([f.__name__ for f in family])
            declared = "; the machine's body declares it (ld = isa.LdGlobal(4)), and the program names it self.ld"
            why = declared * isinstance(instruction, str)
            raise self.fail(f"p.{verb} takes {with_article(wanted)}, not {instruction!r}{why}")
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
        if isinstance(instruction, CellStore):
            self._begins_at_cells(instruction, memory_side)

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
            window, held = (source, target) if source.tensor is not None else (target, source)
            self._boxes_of_bytes(name, instruction, window, padded=held.buffer is not None and held.buffer.padded)
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

    def _boxes_of_bytes(self, name: str, instruction: BulkTransfer, window: Tile, padded: bool) -> None:
        """Elements that share a byte are moved as bytes, or padded: rows and windows are whole ones."""
        axis, tensor = window.contiguous, window.tensor
        home = None if axis is None else window.axes[axis]
        if instruction.by_rows or tensor is None or home is None:
            raise self.fail(
                f"{name} ({instruction}) moves rows of elements of whole bytes, and those of {window.name} have "
                f"{window.dtype.bits} bits; copy them thread by thread, as by isa.CpAsync"
            )
        begins = self._steps_of(window.begins[home])
        self.constraints.extend(instruction.narrow_rules(tensor, tensor.size(home), begins, padded))

    def _bring_cells(
        self, name: str, instruction: CellCopy, source: Tile, target: Tile, partition: Partition | None
    ) -> None:
        if partition is not None:
            raise self.fail(f"{name} ({instruction}) moves whole tiles by itself; leave the partition out")
        self._acts(name, instruction)
        try:
            self.constraints.extend(instruction.legality(source, target))
        except ValueError as error:
            raise self.fail(f"{name}: {error}") from None
        if isinstance(instruction, RowCopy):
            self._begins_at_pieces(name, instruction, source, target)

    def _begins_at_pieces(self, name: str, instruction: RowCopy, source: Tile, target: Tile) -> None:
        """Windows of rows begin where a piece of them does, and where the pattern of their swizzle does."""
        piece = instruction.row_bytes * 8 // source.dtype.bits
        for tile in (source, target):
            if whole := multiples(self._steps_of(tile.offset[1]), expr(piece)):
                said = f"the {instruction.row_bytes} bytes of a row that {instruction.label} copies"
                sentence = f"the windows of {tile.name} begin at multiples of {said}"
                self.require((Condition(f"{name} pieces of {tile.name}", all_of(whole), sentence),))
        if whole := multiples(self._steps_of(source.offset[0]), expr(SWIZZLE_ROWS)):
            sentence = f"the windows of {source.name} begin at multiples of {SWIZZLE_ROWS} rows, as its swizzle does"
            self.require((Condition(f"{name} rows of {source.name}", all_of(whole), sentence),))

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

    def _begins_at_cells(self, instruction: CellStore, tile: Tile) -> None:
        """The window begins at whole cells of tensor memory, in every round of every loop."""
        together = CELL_BITS // min(tile.dtype.bits, CELL_BITS)
        whole = multiples(self._steps_of(tile.offset[1]), together) if together > 1 else []
        if whole:
            self.constraints.append(
                instruction.rule(
                    f"start in {tile.name}",
                    all_of(whole),
                    f"the windows of {tile.name} begin at whole cells of {CELL_BITS} bits",
                )
            )

    def _begins_at_vectors(self, instruction: Transfer, tile: Tile) -> None:
        """The window begins at a whole number of vectors along the contiguous axis, in every round of every loop."""
        axis, vector = tile.contiguous, expr(instruction.vector)
        if axis is None or vector.same(1):
            return
        home = tile.axes[axis] if tile.tensor is not None else None
        offset = tile.offset[axis] if home is None else tile.begins[home]
        beside = [step for k, step in tile.along(home) if k != axis] if home is not None else []
        # Tiles that follow each other begin at vectors, because a tile is a whole number of them.
        own = [s for s in (*self._steps_of(offset), *beside) if not s.same(tile.shape[axis]) and not s.same(0)]
        whole = multiples(own, vector)
        if whole:
            self.constraints.append(
                instruction.rule(
                    f"start in {tile.name}",
                    all_of(whole),
                    f"the windows of {tile.name} begin at multiples of the vectors that {instruction.label} moves",
                )
            )

    def _steps_of(self, offset: Expr) -> list[Expr]:
        """What one more of each index, or of a quotient or remainder of some, adds to an offset; and what is left."""
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        moves, constant = dict[str, Expr](), expr(0)
        for term in sympy.Add.make_args(offset.sympy.expand()):
            moving = [f for f in sympy.Mul.make_args(term) if not {s.name for s in f.free_symbols} <= known]
            if moving:
                counter = sympy.Mul(*moving)
                moves[str(counter)] = moves.get(str(counter), expr(0)) + Expr(term / counter)
            else:
                constant = constant + Expr(term)
        return [*(moves[name] for name in sorted(moves)), constant]

    def _check_multicast(
        self, name: str, instruction: Instruction | Route, source: Tile, axis: int, every: Any
    ) -> None:
        axes = self.grid_node.axes if self.grid_node else ()
        if not isinstance(instruction, BulkTransfer):
            raise self.fail(f"{name} ({instruction}) serves one CTA; only a BulkTransfer is multicast")
        if instruction.by_rows:
            raise self.fail(f"{name} ({instruction}) moves rows to one CTA; leave multicast= out")
        if not 0 <= axis < len(axes) or axes[axis].cluster.same(1):
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, along which there is no cluster")
        if isinstance(every, bool) or every not in (1, 2):
            raise self.fail(f"{name} is multicast to every CTA along axis {axis} or to every second one, not {every!r}")
        place = symbol(axes[axis].index) % axes[axis].cluster % every  # may differ from those that get another tile
        alike = [Expr(o.sympy.subs(place.sympy, 0)) if every > 1 else o for o in source.finest.offset]
        if any(axes[axis].index in o.symbols for o in alike):
            moving = f"its window of {source.name} moves along that axis"
            among = "" if every == 1 else " from one of every two CTAs to the next"
            raise self.fail(f"{name} is multicast along axis {axis} of the grid, but {moving}{among}")

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
        apart = sentence or f"{name} combines tiles that are held by other threads: {_shown(mine)} and {_shown(wanted)}"
        sentence = sentence or f"each thread holds the values of {operand.name} that {name} combines with its own"
        digits = mine.threads.steps, wanted.threads.steps
        if len(digits[0]) != len(digits[1]):  # axes that were split and merged leave digits that are one together
            digits = coalesce(mine.threads).steps, coalesce(wanted.threads).steps
            if len(digits[0]) != len(digits[1]) or not all(map(_one_digit, *digits)):
                raise self.fail(apart)
        for (have, step), (want, other) in zip(*digits, strict=True):
            if not _one_digit((have, step), (want, other)):
                held = same_digit(expr(have), step, expr(want), other)
                self.require((Condition(f"threads of {operand.name}", held, sentence),))
        try:
            self.require(holds_values(operand.name, mine, wanted, self.machine.params(), sentence))
        except LayoutError as error:
            raise self.fail(f"{name} combines {error}") from None


def _shown(partition: Partition) -> str:
    """A partition as a sentence has room for it: where parameters decide every digit, its beginning."""
    text = str(partition)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def _one_digit(mine: Digit, other: Digit) -> bool:
    """Whether two digits of the thread id are one whatever parameters are."""
    return expr(mine[0]).same(other[0]) and bool(mine[1] == other[1])


def same_digit(have: Expr, step: Leaf | Step, want: Expr, other: Leaf | Step) -> Expr:
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
