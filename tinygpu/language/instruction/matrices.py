"""MatrixLoad and MatrixStore: matrices between memory and the registers of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.instruction.base import Instruction, Scope, Unit, or_of
from tinygpu.language.matrix_fragments import (
    HELD,
    MATRIX_ROW_BYTES,
    TRANSPOSED,
    Matrices,
    matrices,
    mistake_in_form,
    registers_of,
    runs_across,
)
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout


@dataclass(frozen=True, eq=False)
class MatrixMove(Instruction):
    """What MatrixLoad and MatrixStore share: matrices in SMEM, whose rows are 16 bytes each, by the lanes of a warp.

    Lanes point at the rows: those of matrix i are given by the i-th lanes of as many as it has rows. Which lane holds
    which element is said as the manual's picture says it, plain and transposed: (lane, element) -> row 0, element 1 of
    the row, number m of the matrix; None where there is no such form. By default these are 8x8 matrices of 16-bit
    elements (`HELD`): lane l holds the row l / 4 and the 32 bits l % 4 of each in one register, whatever elements these
    are; transposed, rows and columns of 16-bit elements change places.
    """

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"
    # Matrices that one instruction can move.
    counts: ClassVar[tuple[int, ...]] = (1, 2, 4)
    plain: ClassVar[Layout | None] = HELD
    transposed: ClassVar[Layout | None] = HELD.project(TRANSPOSED)
    # Of an element that changes places.
    element_bits: ClassVar[int] = 16
    # What the lanes have to do with a matrix, as what follows the label.
    holds: ClassVar[str] = "moves the row l / 4 and the 32 bits l % 4 of an 8x8 matrix to or from lane l"

    def transposes(self, tile: Tile, partition: Partition) -> bool:
        """Whether the fragment's register pairs run across the contiguous axis of the buffer."""
        return runs_across(partition, tile.contiguous)

    def matrices(self, tile: Tile, partition: Partition) -> Matrices | None:
        """How the operand's lanes hold matrices of the tile; None where there is no form for it."""
        across, bits = self.transposes(tile, partition), tile.dtype.bits
        held, axis = self.transposed if across else self.plain, tile.contiguous
        if held is None or axis is None:
            return None
        return matrices(held, self.element_bits, bits, axis)

    def meaning(self, values: Any) -> Any:
        """The tile that the fragments hold together: its values as they are in memory."""
        return values

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        """PTX that moves as many matrices as `registers` hold; `address`, in brackets, is the lane's row."""
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (an SMEM tile) under `partition`."""
        buffer, bits = memory_side.buffer, memory_side.dtype.bits
        if buffer is None:
            raise ValueError(f"{self.label} moves matrices of a buffer in SMEM, and {memory_side.name} is none")
        if len(memory_side.shape) != 2:
            count = len(memory_side.shape)
            axes = f"{memory_side.name} has {'1 axis' if count == 1 else f'{count} axes'}"
            raise ValueError(f"{self.label} moves matrices, which have two axes, and {axes}")
        if buffer.padded:
            raise TypeError(buffer.by_tensor_cores(self.label))
        across = self.transposes(memory_side, partition)
        moved = bits == self.element_bits or not across
        if moved:
            found = self.matrices(memory_side, partition)
        else:  # of which the rule on transposes speaks
            axis = 1 - buffer.contiguous
            found = None if self.plain is None else matrices(self.plain, self.element_bits, bits, axis)
        return (
            self.rule(
                f"fragment of {memory_side.name}",
                found is not None and found.held_by(partition),
                f"{self.label} {self.holds}",
            ),
            self.rule(
                f"transpose of {memory_side.name}",
                moved and (self.transposed if across else self.plain) is not None,
                self._of_transposes(memory_side, across),
            ),
            self.rule(
                f"row alignment of {memory_side.name}",
                buffer.pitch_bytes % MATRIX_ROW_BYTES == 0,
                f"rows of {memory_side.name} are whole {MATRIX_ROW_BYTES}-byte pieces",
            ),
        )

    def _of_transposes(self, tile: Tile, across: bool) -> str:
        if self.plain is None or self.transposed is None:
            lie, only = ("along", "as they lie") if self.transposed is None else ("across", "transposed")
            return f"elements of {tile.name} lie {lie} its rows, because {self.label} moves matrices {only}"
        size = self.element_bits
        return (
            f"elements of {tile.name} that are not {size} bits wide lie along its rows, because {self.label}.trans "
            f"exchanges {size}-bit ones (here they are {tile.dtype})"
        )

    def unwritten(self) -> str:
        if SMEM not in (self.reads, self.writes):
            return f"moves {self.reads} to {self.writes}, and matrices are moved between SMEM and registers"
        if self.counts[0] != 1:
            return f"moves {or_of(self.counts)} matrices, and not a single one"
        forms = [(across, held) for across, held in ((False, self.plain), (True, self.transposed)) if held is not None]
        if not forms:
            return "says neither how lanes hold plain nor how they hold transposed matrices"
        if self.element_bits not in (8, 16, 32):
            return f"exchanges elements of {self.element_bits} bits; they have 8, 16 or 32"
        mistakes = (mistake_in_form(held, self.element_bits, self.counts[-1]) for _, held in forms)
        tried = [
            (["%r0"] * (count * registers_of(held, self.element_bits)), "[%r1]", across)
            for count in self.counts
            for across, held in forms
        ]
        silent = (self._silent("statement", *arguments) for arguments in tried)
        return self._owes(MatrixMove, "statement") or next(filter(None, mistakes), "") or next(filter(None, silent), "")


@dataclass(frozen=True, eq=False)
class MatrixLoad(MatrixMove):
    """Moves matrices into the fragments of a warp."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM


@dataclass(frozen=True, eq=False)
class MatrixStore(MatrixMove):
    """Moves the fragments of a warp into memory as matrices."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = SMEM
