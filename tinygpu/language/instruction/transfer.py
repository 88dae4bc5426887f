"""Transfer: vectors between two memories, thread by thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, all_of, any_of, expr, symbol
from tinygpu.language.instruction.base import Instruction, Unit, or_of
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.step import E


@dataclass(frozen=True, eq=False)
class Transfer(Instruction):
    """Moves `vector` neighbouring elements per thread between two memories.

    vector  elements per thread and instruction: a number or a parameter

    From or to registers by `statement`; between two memories by `copy`, asynchronously in commit groups.
    """

    vector: Operand = 1

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    opcode: ClassVar[str] = ""
    # Legal widths of one thread's access, in bytes (PTX ISA: ld, st, cp.async).
    widths_bytes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16)
    # The width at which data from GMEM does not pass through L1; 0: none.
    past_l1_bytes: ClassVar[int] = 0
    # Types of the elements that it moves; (): all.
    kinds: ClassVar[tuple[str, ...]] = ()
    # Whether it reads through the read-only path: what nothing writes while the kernel runs.
    read_only: ClassVar[bool] = False
    unit: ClassVar[Unit] = "lsu"

    @property
    def label(self) -> str:
        return self.opcode

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def combine(self, there: Any, values: Any) -> Any:
        """For a store that does not replace what is there: what becomes of it, in NumPy.

        Such a store is atomic: whoever stores to an element, however often and in whatever order, nothing gets lost.
        """
        raise NotImplementedError

    @property
    def combines(self) -> bool:
        """Whether it combines what it stores with what is there."""
        return type(self).combine is not Transfer.combine

    def statement(self, kind: DType, piece: str, registers: Sequence[str], address: str) -> str:
        """PTX that moves neighbouring elements between registers and memory.

        kind       type of the elements
        piece      PTX type of one register: b16 or b64 for one element, b32 for as many as fit, s8 or u8 for one byte
        registers  that hold `vector` elements in all, or at a tensor's edge fewer
        address    of the first element, in brackets
        """
        count = len(registers)
        moved = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
        operands = f"{address}, {moved}" if self.reads is RMEM else f"{moved}, {address}"
        return f"{self.opcode}{f'.v{count}' if count > 1 else ''}.{piece} {operands};"

    def copy(self, width_bytes: int, target: str, source: str, existing: str = "") -> str:
        """PTX that copies `width_bytes` from address to address, both in brackets; at a tensor's edge only as many as
        `existing` says (a register), and zeros behind them."""
        raise NotImplementedError

    def unwritten(self) -> str:
        if unsaid := self._unsaid("reads", "writes"):
            return unsaid
        if self.combines and (self.reads is not RMEM or self.writes not in (GMEM, SMEM)):
            way = f"from {self.reads} to {self.writes}"
            return f"combines on the way {way}; what combines is a store from RMEM to GMEM or SMEM"
        if expr(self.vector).is_number and int(expr(self.vector)) < 1:
            return f"moves vectors of {self.vector}; they have 1 element or more"
        if self.reads.unwritten() and self.reads.own:
            return f"reads {self.reads}, which {self.reads.unwritten()}"
        if self.writes.own:
            return f"writes {self.writes}, a memory of one's own, which the host alone writes"
        if RMEM in (self.reads, self.writes):
            if self.asynchronous:
                return f"is completed by a {self.completion}, and what goes through registers at once"
            return self._unsaid("opcode") if type(self).statement is Transfer.statement else ""
        if (self.reads, self.writes) != (GMEM, SMEM) or self.completion != "commit group":
            done = f"completed by a {self.completion}" if self.completion else "completed at once"
            return (
                f"copies {self.reads} to {self.writes}, {done}; without registers, threads copy GMEM to SMEM, in "
                "commit groups"
            )
        return self._owes(Transfer, "copy")

    def widths(self, kind: DType) -> tuple[int, ...]:
        """Legal widths of one thread's access to elements of a type, in bytes."""
        return self.widths_bytes

    def width_bytes(self, dtype: DType) -> Expr:
        return expr(self.vector) * dtype.bits // 8

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (a GMEM or SMEM tile) under `partition`."""
        width, kind = self.width_bytes(memory_side.dtype), memory_side.dtype
        if memory_side.buffer is not None and memory_side.buffer.padded:
            raise TypeError(memory_side.buffer.by_tensor_cores(self.label))
        if kind.bits < 8:
            self._check_narrow(memory_side)
        whole = [expr(self.vector) * kind.bits == 8 * w for w in self.widths(kind)]
        rules = [
            self.rule(
                f"width of {memory_side.name}",
                any_of(whole if kind.bits < 8 else [width == w for w in self.widths(kind)]),
                f"{self.label} moves {or_of(self.widths(memory_side.dtype))} bytes per thread",
                "assembler",
            )
        ]
        if memory_side.tensor is not None:
            rules += self._gmem_rules(memory_side, width)
        if memory_side.buffer is not None:
            rules.append(
                self.rule(
                    f"alignment of {memory_side.name}",
                    memory_side.buffer.pitch_bytes % width == 0,
                    f"the rows of {memory_side.name} are aligned to the vectors that {self.label} moves",
                )
            )
        run = _run(partition, memory_side.contiguous)
        rules.append(
            self.rule(
                f"vector along {memory_side.name}",
                run % expr(self.vector) == 0,
                f"the elements that a thread moves at once are neighbours in {memory_side.name}",
            )
        )
        return tuple(rules)

    def _gmem_rules(self, tile: Tile, width: Expr) -> list[Constraint]:
        tensor = tile.tensor
        if tensor is None:
            return []
        # In a memory of one's own every tensor begins at a multiple of more than any width.
        aligned = [] if tensor.memory.own else [tensor.align % width == 0]
        if tensor.dtype.bits < 8:
            aligned += [symbol(name) * tensor.dtype.bits % (8 * width) == 0 for _, name in tensor.pitches]
        elif tensor.rank > 1:
            aligned += [(symbol(name) * tensor.dtype.bits // 8) % width == 0 for _, name in tensor.pitches]
        rules = [
            self.rule(
                f"alignment of {tensor.name}",
                all_of(aligned),
                f"the pointer and the rows of {tensor.name} are aligned to the vectors that {self.label} moves",
            )
        ]
        if tensor.dtype.bits < 8:
            size, row = tensor.size(tensor.contiguous_axis), f"the rows of {tensor.name}"
            sentence = f"{row}, whose elements have {tensor.dtype.bits} bits, are whole vectors"
            rules.append(self.rule(f"rows of {tensor.name}", size % expr(self.vector) == 0, sentence))
        return rules

    def _check_narrow(self, tile: Tile) -> None:
        """Elements that share a byte are moved by whole bytes; a part of a tensor is one of its rows."""
        kind = f"{tile.name}, whose elements have {tile.dtype.bits} bits"
        if tile.dtype.bits != 4:
            raise TypeError(f"{self.label} moves elements of 4 bits and of whole bytes, and not {kind}")
        if self.combines:
            raise TypeError(f"{self.label} combines elements of whole bytes, and not {kind}")
        if tile.tensor is not None and tile.tensor.contiguous_axis in {axis for axis, _ in tile.ends}:
            raise TypeError(f"{self.label} moves whole bytes, and a segment along {kind}, may end within one")


def _run(partition: Partition, contiguous: int | None) -> Expr:
    """Neighbouring elements, in memory, that open the list of one thread's values."""
    size, step = partition.values.steps[0]
    return expr(size) if contiguous is not None and step == E(contiguous) else expr(1)
