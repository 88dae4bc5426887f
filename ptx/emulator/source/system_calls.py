"""What the CUDA system supplies to device code: assertions, printf, the device heap, and memory of the stack."""

from __future__ import annotations

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.source.calls import SYSTEM_FUNCTIONS
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Function,
    Instruction,
    IntegerOperand,
    Operand,
    RegisterOperand,
    SinkOperand,
    Statement,
    SymbolOperand,
    TextOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES

# Where the next memory of alloca starts, per thread.
ALLOCATED = RegisterOperand("the memory of alloca", "%allocated", "b64")
# Instructions of the emulator's own: no PTX text can spell them.
MALLOC, FREE = "%malloc", "%free"


def system_call(
    call: Instruction, function: Function, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> list[Statement]:
    """The statements in the place of a call of a function that no module defines."""
    counts = SYSTEM_FUNCTIONS.get(function.name)
    if counts is None:
        raise UnsupportedInstruction(
            call.line, call.name, f"{function.name} has no body: pass the module that defines it too"
        )
    if (len(arguments), len(results)) != counts:
        raise PtxSyntaxError(
            call.line, call.column,
            f"{function.name} takes {counts[0]} arguments and gives {counts[1]} results, not {len(arguments)} and "
            f"{len(results)}",
        )  # fmt: skip

    def make(opcode: str, modifiers: tuple[str, ...], *operands: Operand) -> Instruction:
        types = tuple(m for m in modifiers if m in TYPES)
        return Instruction(opcode, modifiers, types, operands, None, call.line, call.column)

    def fetch(name: str, operand: Operand) -> tuple[Operand, list[Statement]]:
        if not isinstance(operand, SymbolOperand):
            return operand, []
        register = RegisterOperand("an argument", f"%argument.{name}", name)
        place = AddressOperand(SymbolOperand(operand.name), operand.offset)
        return register, [make("ld", ("param", name), register, place)]

    def give(name: str, operand: Operand, value: Operand) -> list[Statement]:
        if isinstance(operand, SinkOperand):
            return []
        if isinstance(operand, SymbolOperand):
            return [make("st", ("param", name), AddressOperand(SymbolOperand(operand.name), operand.offset), value)]
        return [make("mov", (name,), operand, value)]

    if function.name in ("__assertfail", "__assert_fail"):
        return [make("trap", (), TextOperand("an assertion of the kernel failed"))]
    if function.name == "__trap":
        return [make("trap", ())]
    if function.name == "vprintf":
        # What would be printed is not collected; the result counts the arguments, which only the format tells.
        return give("b32", results[0], IntegerOperand(0))
    size, before = fetch("b64", arguments[0])
    if function.name == "free":
        return [*before, make(FREE, (), size)]
    address = RegisterOperand("the new memory", "%allocation", "b64")
    return [*before, make(MALLOC, (), address, size), *give("b64", results[0], address)]


def stack_instruction(i: Instruction) -> list[Instruction]:
    """alloca, stacksave, stackrestore as arithmetic on where the next such memory starts."""

    def make(opcode: str, modifiers: tuple[str, ...], *operands: Operand) -> Instruction:
        types = tuple(m for m in modifiers if m in TYPES)
        return Instruction(opcode, modifiers, types, operands, i.guard, i.line, i.column)

    name = i.types[-1] if i.types else ""
    wanted = {"alloca": (2, 3), "stacksave": (1, 1), "stackrestore": (1, 1)}[i.opcode]
    if name not in ("u32", "u64") or not wanted[0] <= len(i.operands) <= wanted[1]:
        raise PtxSyntaxError(i.line, i.column, f"`{i.name}` does not take these types or operands")
    wide = RegisterOperand("a size", "%alloca.size", "b64")
    if i.opcode == "stacksave":
        return [make("mov", ("u64",), i.operands[0], ALLOCATED) if name == "u64" else
                make("cvt", ("u32", "u64"), i.operands[0], ALLOCATED)]  # fmt: skip
    if i.opcode == "stackrestore":
        return [make("mov", ("u64",), ALLOCATED, i.operands[0]) if name == "u64" else
                make("cvt", ("u64", "u32"), ALLOCATED, i.operands[0])]  # fmt: skip
    align = i.operands[2].value if len(i.operands) > 2 and isinstance(i.operands[2], IntegerOperand) else 8
    if align <= 0 or align & (align - 1) or align > 1 << 20:
        raise PtxSyntaxError(i.line, i.column, f"the alignment of `{i.name}` is a power of two, not {align}")
    size = make("mov", ("u64",), wide, i.operands[1]) if name == "u64" else (
        make("cvt", ("u64", "u32"), wide, i.operands[1])
    )
    give = make("mov", ("u64",), i.operands[0], ALLOCATED) if name == "u64" else (
        make("cvt", ("u32", "u64"), i.operands[0], ALLOCATED)
    )
    return [
        size,
        make("add", ("u64",), ALLOCATED, ALLOCATED, IntegerOperand(align - 1)),
        make("and", ("b64",), ALLOCATED, ALLOCATED, IntegerOperand(-align)),
        give,
        make("add", ("u64",), ALLOCATED, ALLOCATED, wide),
    ]
