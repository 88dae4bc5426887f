"""Frames of functions that are really called: where parameters, locals and saved registers lie in a thread's stack.

A frame starts at the per-thread register FRAME and holds: the number of the place to return to, the parameters, the
results (all laid out by the function's signature alone, so that a caller through a register finds them), then local
variables and registers that are saved around recursive calls. The frame of a callee follows that of its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    GroupOperand,
    Instruction,
    IntegerOperand,
    Label,
    Operand,
    PairOperand,
    PartOperand,
    RegisterOperand,
    Statement,
    SymbolOperand,
    Variable,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES

# What one thread may use for the frames of functions; the CUDA runtime's default is 1 KB, and a program can raise it.
STACK_BYTES = 1 << 15
FRAME = RegisterOperand("the frame's address", "%frame", "b64")
_SITE_BYTES = 8
_ALIGN_BYTES = 16


def frame_place(offset: int) -> AddressOperand:
    """An address within the current frame."""
    return AddressOperand(FRAME, offset)


@dataclass(slots=True)
class Frame:
    """The layout of one function's frame.

    offsets  of variables, by unique key
    saved    registers with a place to be saved in: (offset, register)
    """

    size_bytes: int = _SITE_BYTES
    offsets: dict[str, int] = field(default_factory=dict)
    saved: dict[str, tuple[int, RegisterOperand]] = field(default_factory=dict)

    def place(self, key: str, size_bytes: int, align_bytes: int) -> int:
        """The offset of a new variable."""
        align = max(1, min(align_bytes, _ALIGN_BYTES))
        start = (self.size_bytes + align - 1) // align * align
        self.offsets[key] = start
        self.size_bytes = start + max(size_bytes, 1)
        return start

    def save(self, register: RegisterOperand) -> int:
        """The offset at which a register is saved."""
        found = self.saved.get(register.key)
        if found is None:
            size = max(1, TYPES[register.type_name].bits // 8)
            found = (self.place(f"%saved:{register.key}", size, size), register)
            self.saved[register.key] = found
        return found[0]

    @property
    def extent_bytes(self) -> int:
        """Bytes to the next frame."""
        return (self.size_bytes + _ALIGN_BYTES - 1) // _ALIGN_BYTES * _ALIGN_BYTES


def signature_offsets(parameters: Sequence[Variable], returns: Sequence[Variable]) -> tuple[list[int], list[int]]:
    """Offsets of parameters and results in the frame of any function with this signature."""
    frame = Frame()
    places = [
        frame.place(f"{k}", variable.size_bytes, variable.align_bytes)
        for k, variable in enumerate((*parameters, *returns))
    ]
    return places[: len(parameters)], places[len(parameters) :]


# ---- which registers must survive a call ------------------------------------------------------------------------

# Instructions whose first operand is written and nothing else of it is needed; for others it counts as read.
_WRITES_FIRST = frozenset((
    "mov", "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "abs", "neg", "not", "and", "or", "xor",
    "shl", "shr", "shf", "lop3", "prmt", "bfe", "bfi", "popc", "clz", "brev", "bfind", "cvt", "cvta", "setp", "set",
    "selp", "slct", "ld", "ldu", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "sad", "mul24", "mad24",
    "dp4a", "dp2a", "copysign", "testp", "isspacep", "activemask",
))  # fmt: skip


@dataclass(slots=True)
class Flow:
    """One item of a function for liveness: what it reads and writes, and where control goes.

    targets  labels; falls  whether control may reach the next item
    """

    reads: frozenset[str]
    writes: frozenset[str]
    targets: tuple[str, ...] = ()
    falls: bool = True
    label: str = ""


def registers_of(operands: Iterable[Operand | None]) -> dict[str, RegisterOperand]:
    """All registers that operands mention, by key."""
    found: dict[str, RegisterOperand] = {}
    pending = list(operands)
    while pending:
        operand = pending.pop()
        if isinstance(operand, RegisterOperand):
            found[operand.key] = operand
        elif isinstance(operand, (VectorOperand, GroupOperand)):
            pending.extend(operand.elements)
        elif isinstance(operand, PairOperand):
            pending.extend((operand.first, operand.second))
        elif isinstance(operand, PartOperand):
            pending.append(operand.register)
        elif isinstance(operand, AddressOperand):
            pending.extend((operand.base, *operand.coordinates))
    return found


def flow_of(statement: Statement, branch_targets: dict[str, tuple[str, ...]]) -> Flow:
    """What a statement means for liveness."""
    if isinstance(statement, Label):
        return Flow(frozenset(), frozenset(), label=statement.key)
    operands = list(statement.operands)
    writes: frozenset[str] = frozenset()
    if statement.opcode in _WRITES_FIRST and operands and not isinstance(operands[0], AddressOperand):
        written = registers_of(operands[:1])
        if statement.guard is None and not statement.has("cc"):
            operands = operands[1:]
            writes = frozenset(written)
    reads = set(registers_of(operands))
    if statement.guard is not None:
        reads.add(statement.guard.register.key)
    targets: tuple[str, ...] = ()
    falls = True
    if statement.opcode == "bra" and isinstance(operands[0], SymbolOperand):
        targets, falls = (operands[0].name,), statement.guard is not None
    elif statement.opcode == "brx" and len(operands) > 1 and isinstance(operands[1], SymbolOperand):
        targets, falls = branch_targets.get(operands[1].name, ()), False
    elif statement.opcode in ("ret", "exit", "trap"):
        falls = statement.guard is not None
    return Flow(frozenset(reads), writes, targets, falls)


def live_after(flows: Sequence[Flow]) -> list[frozenset[str]]:
    """Per item the registers that may be read after it before they are written."""
    place = {flow.label: k for k, flow in enumerate(flows) if flow.label}
    # Straight stretches are handled together: only at labels and jumps may anything change between rounds.
    live_in: list[frozenset[str]] = [frozenset()] * (len(flows) + 1)
    after: list[frozenset[str]] = [frozenset()] * len(flows)
    changed = True
    while changed:
        changed = False
        for k in range(len(flows) - 1, -1, -1):
            flow = flows[k]
            out: frozenset[str] = live_in[k + 1] if flow.falls else frozenset()
            for target in flow.targets:
                out |= live_in[place[target]] if target in place else frozenset()
            after[k] = out
            fresh = (out - flow.writes) | flow.reads if flow.writes or flow.reads else out
            if fresh != live_in[k]:
                live_in[k] = fresh
                changed = True
    return after


def save_and_restore(
    register: RegisterOperand, offset: int, like: Instruction
) -> tuple[list[Statement], list[Statement]]:
    """(statements that put a register into the frame, statements that bring it back)."""
    place = frame_place(offset)
    bits = TYPES[register.type_name].bits

    def make(opcode: str, types: tuple[str, ...], operands: tuple[Operand, ...], space: str = "") -> Instruction:
        modifiers = ((space,) if space else ()) + types
        return Instruction(opcode, modifiers, types, operands, None, like.line, like.column)

    if register.type_name == "pred":
        word = RegisterOperand("a saved predicate", "%saved.word", "b16")
        compare = Instruction(
            "setp", ("ne", "u16"), ("u16",), (register, word, IntegerOperand(0)), None, like.line, like.column
        )
        return (
            [make("selp", ("u16",), (word, IntegerOperand(1), IntegerOperand(0), register)),
             make("st", ("u8",), (place, word), "local")],
            [make("ld", ("u8",), (word, place), "local"), compare],
        )  # fmt: skip
    name = f"b{max(bits, 8)}"
    return [make("st", (name,), (place, register), "local")], [make("ld", (name,), (register, place), "local")]
