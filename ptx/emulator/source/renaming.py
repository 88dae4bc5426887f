"""How one copy of a function's body is renamed, and how names become places in a frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.frames import FRAME
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    GroupOperand,
    Instruction,
    IntegerOperand,
    Operand,
    PairOperand,
    PartOperand,
    RegisterOperand,
    SymbolOperand,
    VectorOperand,
)


@dataclass(frozen=True, slots=True)
class Renaming:
    """How one copy of a function's body is renamed.

    prefix   before registers, and before the names in `own`
    aliases  other names of memory parameters
    own      variables, labels and lists of the function
    shared   variables that exist once however often the function is copied
    """

    prefix: str
    aliases: dict[str, str]
    own: frozenset[str]
    shared: dict[str, str]

    def register(self, register: RegisterOperand) -> RegisterOperand:
        return replace(register, key=self.prefix + register.key)

    def symbol(self, name: str) -> str:
        if name in self.aliases:
            return self.aliases[name]
        if name in self.shared:
            return self.shared[name]
        return self.prefix + name if name in self.own else name

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, RegisterOperand):
            return self.register(operand)
        if isinstance(operand, SymbolOperand):
            return replace(operand, name=self.symbol(operand.name))
        if isinstance(operand, AddressOperand):
            base = operand.base
            if isinstance(base, RegisterOperand):
                base = self.register(base)
            elif isinstance(base, SymbolOperand):
                base = replace(base, name=self.symbol(base.name))
            return replace(operand, base=base, coordinates=tuple(self.operand(o) for o in operand.coordinates))
        if isinstance(operand, VectorOperand):
            return VectorOperand(tuple(self.operand(o) for o in operand.elements))
        if isinstance(operand, GroupOperand):
            return GroupOperand(tuple(self.operand(o) for o in operand.elements))
        if isinstance(operand, PairOperand):
            return PairOperand(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, PartOperand):
            return replace(operand, register=self.register(operand.register))
        return operand


def in_frame(instruction: Instruction, offsets: dict[str, int]) -> list[Instruction]:
    """The instruction with variables of the current frame as addresses relative to FRAME."""
    before: list[Instruction] = []
    operands: list[Operand] = []
    modifiers = instruction.modifiers
    for operand in instruction.operands:
        if isinstance(operand, AddressOperand) and isinstance(operand.base, SymbolOperand):
            offset = offsets.get(operand.base.name)
            if offset is not None:
                operand = replace(operand, base=FRAME, offset=operand.offset + offset)
                modifiers = _local(modifiers)
        elif isinstance(operand, SymbolOperand) and operand.name in offsets:
            value = IntegerOperand(offsets[operand.name] + operand.offset)
            wide = RegisterOperand("an address in the frame", "%frame.address", "b64")
            before.append(
                Instruction("add", ("u64",), ("u64",), (wide, FRAME, value), instruction.guard,
                            instruction.line, instruction.column)
            )  # fmt: skip
            operand = wide
            if instruction.opcode == "mov" and instruction.types and instruction.types[-1] in ("u32", "b32", "s32"):
                types = ("u32", "u64")
                narrow = replace(instruction, opcode="cvt", modifiers=types, types=types, operands=(operands[0], wide))
                return [*before, narrow]
            if instruction.opcode not in ("mov", "cvta", "add", "sub"):
                raise PtxSyntaxError(
                    instruction.line, instruction.column, f"`{instruction.name}` cannot take the address of a variable"
                )
        operands.append(operand)
    if not before and modifiers == instruction.modifiers and tuple(operands) == instruction.operands:
        return [instruction]
    return [*before, replace(instruction, modifiers=modifiers, operands=tuple(operands))]


def _local(modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """An access of parameters or local variables as one of local memory."""
    if any(m.partition("::")[0] in ("param", "local") for m in modifiers):
        return tuple("local" if m.partition("::")[0] in ("param", "local") else m for m in modifiers)
    return ("local", *modifiers)
