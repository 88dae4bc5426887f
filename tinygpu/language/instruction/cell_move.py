"""CellMove: cells of tensor memory and the registers of a warpgroup, whose warps each reach a quarter of the lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Operand, expr
from tinygpu.language.data_paths import LANES_OF_A_WARP, columns_taken, halves, held, path_of, rows_in_lanes
from tinygpu.language.instruction.base import Instruction, Scope, Unit
from tinygpu.language.memories import CELL_BITS, TMEM_LANES
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts import E, Layout, coalesce
from tinygpu.layouts.leaf import Leaf


@dataclass(frozen=True, eq=False)
class CellMove(Instruction):
    """Moves cells of TMEM to or from registers: each warp of a warpgroup has 32 lanes, of each column 32 bits.

    counts   repetitions that one instruction can have, in powers of two
    windows  windows of columns that it moves: of 2, the second belongs to the upper half of a warp's threads
    """

    scope: ClassVar[Scope] = "warpgroup"
    unit: ClassVar[Unit] = "lsu"
    counts: ClassVar[tuple[int, ...]] = (1,)
    windows: ClassVar[int] = 1

    @property
    def per_register(self) -> int:
        """Elements that a register has, each of a cell of its own: 1, or 2 of 16 bits."""
        return 1

    def access(self, count: Leaf, apart: Leaf = 0) -> Layout:
        """(lane of a warp, register, or its elements) -> lane and column, of an instruction of so many repetitions.

        apart  columns from one window to the next
        """
        return Layout.of([(LANES_OF_A_WARP, E("lane"))], [(count, E("column"))])

    def complete(self) -> str:
        """PTX behind which the registers of all loads before it have their values, or all stores are in memory."""
        raise NotImplementedError

    @property
    def columns(self) -> int:
        """Columns of one repetition, of one window."""
        return self.access(1).along("column").cosize

    def held(
        self, shape: tuple[Operand, Operand], path: Layout | None = None, *, vector: Operand = 1, name: str = "tile"
    ) -> Partition:
        """Who holds what of a tile of cells that the warpgroup moves: what partition it has in registers.

        shape   rows and columns of the tile
        path    where they lie (`MatrixMultiply.path`); by default row r is in lane r
        vector  neighbours of a row that a thread stores at once, where it has as many side by side
        """
        rows, columns = map(expr, shape)
        path = rows_in_lanes(rows, columns) if path is None else path
        taken = columns_taken(path)
        each = self.columns * self.windows
        repeated = taken // each
        found = held(self._accesses(repeated, taken // self.windows, path), path)
        if found is None:
            raise ValueError(f"{self.label} reaches lanes in which {path} has nothing")
        values = list(found[1].steps)
        conditions = [Condition(f"{name} cells", taken % each == 0, f"an instruction moves {each} columns or more")]
        run, step = values[0]
        if step == E(1) and not expr(vector).same(1):
            values[:1] = [(expr(vector), E(1)), (expr(run) // vector, expr(vector) * E(1))]
            sentence = "a thread has whole vectors of a row of the tile"
            conditions.append(Condition(f"{name} vectors", expr(run) % vector == 0, sentence))
        return Partition((rows, columns), Layout.of(found[0].steps, values), tuple(conditions), expr(TMEM_LANES))

    def halves(self, path: Layout) -> int:
        """How many instructions reach all lanes of a warp that have something: 2 where each reaches 16 of 32."""
        return 1 if self.access(1, 1).along("lane").cosize == LANES_OF_A_WARP else halves(path)

    def _accesses(self, repeated: Leaf, apart: Leaf, path: Layout) -> Layout:
        """Of as many instructions as a tile takes: where 16 lanes are a half of what there is, twice as many."""
        one = self.access(repeated, apart)
        if self.halves(path) == 1:
            return one
        return Layout.of(one[0].steps, [*one[1].steps, (2, LANES_OF_A_WARP // 2 * E("lane"))])

    def threads_of(self, tile: Tile) -> Layout | None:
        """What the threads of a partition decide that moves a window of TMEM; None where there is none."""
        path = path_of(tile)
        taken = columns_taken(path)
        found = held(self._accesses(taken // (self.columns * self.windows), taken // self.windows, path), path)
        return None if found is None else coalesce(found[0])

    def cells_rule(self, tile: Tile) -> Constraint:
        """That elements have a cell each, which a register holds, or the lower halves of two."""
        held = tile.dtype.bits if tile.buffer is None else tile.buffer.element_bits
        alone = f"elements of {tile.name} fill a cell of {CELL_BITS} bits each"
        two = f"elements of {tile.name} have {CELL_BITS // 2} bits and a cell each, two of which make a register"
        fits = held == CELL_BITS and tile.dtype.bits * self.per_register == CELL_BITS
        return self.rule(f"cells of {tile.name}", fits, alone if self.per_register == 1 else two)

    def lanes_rule(self, tile: Tile, partition: Partition) -> Constraint:
        """That the threads hold what their warps reach."""
        wanted = self.threads_of(tile)
        said = "nothing" if wanted is None else str(wanted)
        plain = wanted == Layout(TMEM_LANES, E(0))
        return self.rule(
            f"lanes of {tile.name}",
            wanted is not None and coalesce(partition.threads) == wanted,
            f"thread t of the warpgroup holds row t of {tile.name}, its lane of TMEM"
            if plain
            else f"threads of the warpgroup hold of {tile.name} what their warps reach in TMEM, {said}: take "
            f"{self.label}'s held(...)",
        )
