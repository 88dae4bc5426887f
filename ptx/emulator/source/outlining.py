"""The statements around a real call: what goes into the callee's frame, the jump, and what comes back."""

from __future__ import annotations

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.calls import CODE_BASE, CODE_STEP
from tinygpu.ptx.emulator.source.frames import frame_place
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Function,
    Instruction,
    IntegerOperand,
    Label,
    Operand,
    RegisterOperand,
    SinkOperand,
    Statement,
    SymbolOperand,
    TextOperand,
    Variable,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES

BAD_TARGET = "%no place to return to"
Pieces = tuple[tuple[int, int], ...]
"""(offset, bytes) of the accesses that a caller makes to a parameter or result."""


def move(target: Operand, source: Operand, type_name: str, like: Instruction) -> Instruction:
    """mov target, source."""
    return Instruction("mov", (type_name,), (type_name,), (target, source), None, like.line, like.column)


def transfer(
    opcode: str, register: Operand, place: AddressOperand, like: Instruction, type_name: str = ""
) -> Instruction:
    """Load a register from a place in local memory, or store it there."""
    name = type_name or (register.type_name if isinstance(register, RegisterOperand) else "b32")
    bits = TYPES[name].bits
    if name == "pred":
        raise PtxSyntaxError(like.line, like.column, "predicates are passed as numbers, not as predicates")
    if bits > 64:
        raise PtxSyntaxError(like.line, like.column, "128-bit values are passed in memory, not in registers")
    name = f"b{bits}"
    operands: tuple[Operand, ...] = (register, place) if opcode == "ld" else (place, register)
    space = "local" if isinstance(place.base, RegisterOperand) else "param"
    return Instruction(opcode, (space, name), (name,), operands, None, like.line, like.column)


def access_pieces(caller: Function, opcode: str) -> dict[str, set[tuple[int, int]] | None]:
    """How a function itself stores to (st) or loads from (ld) its variables; None where that is not plain to see."""
    found: dict[str, set[tuple[int, int]] | None] = {}
    for statement in caller.body:
        if not isinstance(statement, Instruction):
            continue
        for place in statement.operands:
            if isinstance(place, SymbolOperand):
                found[place.name] = None
            if not isinstance(place, AddressOperand) or not isinstance(place.base, SymbolOperand):
                continue
            if statement.opcode != opcode:
                continue
            pieces = found.setdefault(place.base.name, set())
            vector = next((o for o in statement.operands if isinstance(o, VectorOperand)), None)
            size = TYPES[statement.types[-1]].bits // 8 if statement.types else 0
            if size == 0:
                found[place.base.name] = None
            elif pieces is not None:
                count = len(vector.elements) if vector is not None and size < 16 else 1
                size, count = (8, 2) if size == 16 else (size, count)
                pieces.update((place.offset + k * size, size) for k in range(count))
    return found


def copy_memory(
    opcode: str, actual: Operand, formal: Variable, offset: int, pieces: Pieces | None, like: Instruction
) -> list[Statement]:
    """Put an argument into the callee's frame at `offset` (st), or bring a result from there (ld)."""
    size = max(formal.size_bytes, 1)
    if isinstance(actual, SinkOperand):
        return []
    if not isinstance(actual, SymbolOperand):
        return [transfer(opcode, actual, frame_place(offset), like, formal.type_name)]
    if pieces is None:
        element = max(1, TYPES[formal.type_name].bits // 8)
        element = 8 if element == 16 else element
        pieces = tuple((start, element) for start in range(0, size, element))
    made: list[Statement] = []
    for start, width in pieces:
        if start < 0 or start + width > size:
            continue
        scratch = RegisterOperand("a passed value", f"%passed{8 * max(width, 2)}", f"b{8 * max(width, 2)}")
        theirs = frame_place(offset + start)
        mine = AddressOperand(SymbolOperand(actual.name), actual.offset + start)
        name = f"b{8 * width}"
        if opcode == "st":
            made.append(_access("ld", "param", name, scratch, mine, like))
            made.append(_access("st", "local", name, scratch, theirs, like))
        else:
            made.append(_access("ld", "local", name, scratch, theirs, like))
            made.append(_access("st", "param", name, scratch, mine, like))
    return made


def _access(
    opcode: str, space: str, name: str, register: Operand, place: AddressOperand, like: Instruction
) -> Instruction:
    operands: tuple[Operand, ...] = (register, place) if opcode == "ld" else (place, register)
    return Instruction(opcode, (space, name), (name,), operands, None, like.line, like.column)


def index_of_target(target: RegisterOperand, functions: int, site: int, like: Instruction) -> list[Statement]:
    """A jump through the table of site `site` to the function whose address `target` holds."""
    distance = RegisterOperand("the function's distance", "%distance", "b64")
    number = RegisterOperand("the function's number", "%number", "b32")
    rest = RegisterOperand("what an address may not have", "%rest", "b64")
    wrong = RegisterOperand("no address of a function", "%wrong", "pred")

    def make(opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...]) -> Instruction:
        types = tuple(m for m in modifiers if m in TYPES)
        return Instruction(opcode, modifiers, types, operands, None, like.line, like.column)

    wide: list[Statement] = []
    if TYPES[target.type_name].bits != 64:
        raise PtxSyntaxError(like.line, like.column, f"`{like.name}` calls through a 64-bit register")
    first = IntegerOperand(CODE_BASE + CODE_STEP)
    bad = f"%bad{site}"
    text = TextOperand(
        f"`{like.name}` through {target.name}, which does not hold the address of a function with this prototype"
    )
    wide += [
        make("sub", ("u64",), (distance, target, first)),
        make("and", ("b64",), (rest, distance, IntegerOperand(CODE_STEP - 1))),
        make("shr", ("u64",), (distance, distance, IntegerOperand(CODE_STEP.bit_length() - 1))),
        make("setp", ("ne", "u64"), (wrong, rest, IntegerOperand(0))),
        make("selp", ("b64",), (distance, IntegerOperand(functions), distance, wrong)),
        make("min", ("u64",), (distance, distance, IntegerOperand(functions))),
        make("cvt", ("u32", "u64"), (number, distance)),
        make("brx", ("idx",), (number, SymbolOperand(f"%targets{site}"))),
        Label(bad, like.line),
        make("trap", (), (text,)),
    ]
    return wide
