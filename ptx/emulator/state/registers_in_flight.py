"""Registers that asynchronous instructions read or fill: who touches them before the wait is told so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import Slot

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.emulation import Emulation


class RegistersInFlight:
    """The registers of a batch of CTAs that wgmma works with, and those that tcgen05.ld fills.

    busy     slot -> the warps in which wgmma works with it
    awaited  line of a tcgen05.ld -> the slots that it fills, and the warps in which it was issued
    settle   what waits for all wgmma that a cohort's registers belong to
    """

    def __init__(self, emulation: Emulation, warps: int) -> None:
        self._emulation = emulation
        self._warps = warps
        self.busy: dict[Slot, NDArray[np.bool_]] = {}
        self._because: dict[Slot, str] = {}
        self.awaited: dict[int, tuple[frozenset[Slot], NDArray[np.bool_]]] = {}
        self.settle: Callable[[Cohort], None] | None = None

    def take(self, slots: list[Slot], rows: NDArray[np.int64], because: str) -> None:
        """These registers belong to a wgmma until it is waited for."""
        for slot in slots:
            mask = self.busy.setdefault(slot, np.zeros(self._warps, np.bool_))
            mask[rows] = True
            self._because[slot] = because

    def give_back(self, slots: list[Slot], rows: NDArray[np.int64]) -> None:
        """The registers belong to the threads again."""
        for slot in slots:
            mask = self.busy.get(slot)
            if mask is not None:
                mask[rows] = False
                if not mask.any():
                    del self.busy[slot]

    def load(self, slots: frozenset[Slot], rows: NDArray[np.int64], line: int) -> None:
        """A tcgen05.ld of these warps that fills these registers was issued."""
        mask = self.awaited.setdefault(line, (slots, np.zeros(self._warps, np.bool_)))[1]
        mask[rows] = True

    def loaded(self, rows: NDArray[np.int64]) -> None:
        """These warps have waited for their loads."""
        for line, (_, mask) in list(self.awaited.items()):
            mask[rows] = False
            if not mask.any():
                del self.awaited[line]

    def check(self, c: Cohort, reads: frozenset[Slot], used: frozenset[Slot], instruction: Instruction) -> None:
        """What is wrong with an instruction that uses these registers now; some of them it reads."""
        if self.busy and instruction.opcode == "mov":
            self._settle_before_move(c, reads, instruction)
        self._check_busy(c, used, instruction)
        self._check_awaited(c, used, instruction)

    def _check_awaited(self, c: Cohort, slots: frozenset[Slot], instruction: Instruction) -> None:
        """An advisory where a register is used before the load that fills it was waited for."""
        for line, (filled, mask) in self.awaited.items():
            used = filled & slots
            rows = mask[c.set.rows]
            if not used or not (rows if c.mask is None else rows & c.mask.any(axis=1)).any():
                continue
            self._emulation.advise(
                "tcgen05.ld without its wait", instruction,
                f"uses {self._name(min(used))}, which `tcgen05.ld` on line {line} fills, before tcgen05.wait::ld: "
                "until then it is not defined what it holds",
            )  # fmt: skip

    def _settle_before_move(self, c: Cohort, slots: frozenset[Slot], instruction: Instruction) -> None:
        """A register is moved that a wgmma still works with: the assembler waits for it there."""
        if self.settle is None:
            return
        for slot in self.busy.keys() & slots:
            if self.busy[slot][c.set.rows].any():
                self._emulation.advise(
                    "accumulator moved before the wait", instruction,
                    f"moves {self._name(slot)}, {self._because[slot]}; the assembler puts a wait here, and the "
                    "products are carried out one after another",
                )  # fmt: skip
                self.settle(c)
                return

    def _check_busy(self, c: Cohort, slots: frozenset[Slot], instruction: Instruction) -> None:
        """A fault where a register is used that a wgmma still works with."""
        for slot in self.busy.keys() & slots:
            rows = self.busy[slot][c.set.rows]
            if c.mask is not None:
                rows = rows & c.mask.any(axis=1)
            if rows.any():
                row = int(c.set.index[int(np.argmax(rows))])
                self._emulation.fault(
                    "asynchronous registers", instruction, c.residents, row, None,
                    f"uses {self._name(slot)}, {self._because[slot]}",
                )  # fmt: skip
                self.busy[slot][c.set.index[rows]] = False

    def _name(self, slot: Slot) -> str:
        return self._emulation.program.register_names.get(slot, "a register")
