"""What goes wrong: malformed text, an instruction without semantics, and faults of a kernel that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "out of bounds",
    "outside backed windows",
    "misaligned",
    "uninitialised",
    "race",
    "barrier",
    "deadlock",
    "collective",
    "read-only",
    "address space",
    "trap",
    "asynchronous copy",
    "asynchronous registers",
    "mbarrier",
    "cluster",
    "tensor map",
    "descriptor",
    "tensor memory",
    "launch",
]


def _of_module(module: int) -> str:
    return f" of module {module}" if module else ""


class PtxSyntaxError(ValueError):
    """PTX text that is not well formed. `line` and `column` count from 1, `module` too where there are several."""

    def __init__(self, line: int, column: int, sentence: str, module: int = 0) -> None:
        super().__init__(f"PTX line {line}, column {column}{_of_module(module)}: {sentence}")
        self.module = module
        self.line = line
        self.column = column
        self.sentence = sentence


class UnsupportedInstruction(NotImplementedError):
    """A well-formed instruction for which the emulator has no semantics."""

    def __init__(self, line: int, instruction: str, reason: str = "", module: int = 0) -> None:
        tail = f": {reason}" if reason else ""
        super().__init__(
            f"PTX line {line}{_of_module(module)}: the emulator has no semantics for `{instruction}`{tail}"
        )
        self.reason = reason
        self.module = module
        self.line = line
        self.instruction = instruction


class LaunchError(ValueError):
    """A launch that does not fit the kernel: wrong arguments, block or shared memory."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that the hardware would punish, or that makes the result undefined.

    kind       which check found it
    kernel     name of the entry
    line       line of the PTX text, from 1
    line_text  that line, stripped
    cta        (x, y, z) of the CTA
    thread     (x, y, z) of the thread in its CTA; None when it is the whole CTA's
    space      "global", "shared", "local", "const", "param", or "" when no address is involved
    address    address of the first byte, None when no address is involved
    sentence   what is wrong, with the numbers, and what would be right
    count      how many threads met the same fault on this line (collected runs)
    module     which of several PTX modules the line belongs to, from 1; 0 where there is one
    """

    kind: FaultKind
    kernel: str
    line: int
    line_text: str
    cta: tuple[int, int, int]
    thread: tuple[int, int, int] | None
    space: str
    address: int | None
    sentence: str
    count: int = 1
    module: int = 0

    def __str__(self) -> str:
        who = f"CTA {self.cta}" + ("" if self.thread is None else f", thread {self.thread}")
        where = f"PTX line {self.line}{_of_module(self.module)}"
        return f"{self.kernel}, {where} `{self.line_text}`, {who}: {self.sentence}"


class EmulationFault(RuntimeError):
    """The first fault of a run with check=True; its attributes are those of the Fault.

    registers  what the thread held in its registers of 32 bits and more, by their names, as whole numbers; nothing of a
               fault of asynchronous work, which is found when its thread is somewhere else
    """

    def __init__(self, fault: Fault, registers: Mapping[str, int] | None = None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.registers: Mapping[str, int] = registers or {}
        self.kind = fault.kind
        self.kernel = fault.kernel
        self.line = fault.line
        self.line_text = fault.line_text
        self.module = fault.module
        self.cta = fault.cta
        self.thread = fault.thread
        self.space = fault.space
        self.address = fault.address
        self.sentence = fault.sentence


@dataclass(frozen=True, slots=True)
class Advisory:
    """What the manual forbids or discourages although hardware is known to run it; it never raises."""

    rule: str
    kernel: str
    line: int
    line_text: str
    sentence: str
    module: int = 0

    def __str__(self) -> str:
        where = f"PTX line {self.line}{_of_module(self.module)}"
        return f"{self.kernel}, {where} `{self.line_text}`: {self.sentence} [{self.rule}]"
