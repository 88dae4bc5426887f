"""Bodies of functions while they are being made: statements, and calls whose place in the stack is not known yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tinygpu.ptx.emulator.source.frames import FRAME, Flow, Frame, flow_of, live_after, registers_of
from tinygpu.ptx.emulator.source.syntax import Function, Instruction, RegisterOperand, Statement


@dataclass(slots=True, eq=False)
class Call:
    """A call of a function that stays one: its statements are made when the caller's frame is known.

    make  (bytes of the caller's frame, registers to save) -> statements
    """

    flow: Flow
    make: Callable[[int, list[RegisterOperand]], list[Statement]]


@dataclass(slots=True, eq=False)
class Body:
    """One function with a body of its own, or the entry, while it is being made.

    frame  None for the entry, whose variables are the thread's own
    """

    function: Function
    frame: Frame | None
    recursive: bool
    items: list[Statement | Call] = field(default_factory=list)
    registers: dict[str, RegisterOperand] = field(default_factory=dict)


def finish(body: Body, branch_targets: dict[str, tuple[str, ...]]) -> list[Statement]:
    """The statements of a body, its calls made."""
    if not any(isinstance(item, Call) for item in body.items):
        return [item for item in body.items if not isinstance(item, Call)]
    frame = body.frame
    saves: list[list[RegisterOperand]] = [[] for _ in body.items]
    if frame is not None and body.recursive:
        flows = [
            item.flow if isinstance(item, Call) else flow_of(item, branch_targets)
            for item in body.items
        ]
        for item in body.items:
            if isinstance(item, Instruction):
                body.registers.update(registers_of((*item.operands, item.guard.register if item.guard else None)))
        own = body.registers
        for k, live in enumerate(live_after(flows)):
            item = body.items[k]
            if isinstance(item, Call):
                saves[k] = [own[key] for key in sorted(live - item.flow.writes) if key in own]
                saves[k] = [register for register in saves[k] if register.key != FRAME.key]
                for register in saves[k]:
                    frame.save(register)
    extent = 0 if frame is None else frame.extent_bytes
    result: list[Statement] = []
    for k, item in enumerate(body.items):
        if isinstance(item, Call):
            result.extend(item.make(extent, saves[k]))
        else:
            result.append(item)
    return result
