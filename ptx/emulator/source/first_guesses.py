"""Plain loads that give a compare-and-swap its first guess.

A loop around a compare-and-swap begins with a plain load of the same place (as the CUDA C++ Programming Guide writes
it). That load races with the atomics of others by the letter of the memory model, but whatever it yields is only a
guess, which the compare-and-swap confirms. It counts as a relaxed load.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Instruction,
    Operand,
    RegisterOperand,
    Statement,
    SymbolOperand,
    VectorOperand,
)

Place = tuple[str, int]
"""(register or variable, offset)."""


def first_guesses(statements: Iterable[Statement]) -> frozenset[tuple[int, int]]:
    """(line, column) of the plain loads from the place of a compare-and-swap whose value it is that is compared."""
    instructions = [statement for statement in statements if isinstance(statement, Instruction)]
    swaps = [i for i in instructions if i.opcode == "atom" and "cas" in i.modifiers]
    if not swaps:
        return frozenset()
    sources = _copies(instructions)
    places = {place for i in swaps for place in _places(i, sources)}
    compared = _origins({key for i in swaps for key in _registers(i.operands[2:3])}, instructions)
    return frozenset(
        (i.line, i.column)
        for i in instructions
        if i.opcode == "ld"
        and not places.isdisjoint(_places(i, sources))
        and not compared.isdisjoint(_registers(i.operands[:1]))
    )


def _origins(wanted: set[str], instructions: list[Instruction]) -> set[str]:
    """These registers, and all that are moved into them."""
    moves = [(_registers(i.operands[:1]), _registers(i.operands[1:])) for i in instructions if i.opcode == "mov"]
    count = 0
    while count != len(wanted):
        count = len(wanted)
        for targets, origins in moves:
            if not wanted.isdisjoint(targets):
                wanted |= origins
    return wanted


def _registers(operands: Iterable[Operand]) -> set[str]:
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, RegisterOperand):
            found.add(operand.key)
        elif isinstance(operand, VectorOperand):
            found |= _registers(operand.elements)
    return found


def _copies(instructions: list[Instruction]) -> dict[str, Place]:
    """Registers that are written once, as copies of another one, as its address in another form, or as a variable's."""
    made: dict[str, Instruction | None] = {}
    for i in instructions:
        if i.operands and isinstance(i.operands[0], RegisterOperand):
            key = i.operands[0].key
            made[key] = None if key in made else i
    result: dict[str, Place] = {}
    for key, instruction in made.items():
        if instruction is not None and instruction.opcode in ("mov", "cvta") and len(instruction.operands) == 2:
            source = instruction.operands[1]
            if isinstance(source, RegisterOperand):
                result[key] = (source.key, 0)
            elif isinstance(source, SymbolOperand):
                result[key] = (source.name, source.offset)
    return result


def _places(i: Instruction, sources: dict[str, Place]) -> list[Place]:
    found: list[Place] = []
    for operand in i.operands:
        if isinstance(operand, AddressOperand):
            if isinstance(operand.base, RegisterOperand):
                key, offset, seen = operand.base.key, operand.offset, set[str]()
                while key in sources and key not in seen:
                    seen.add(key)
                    key, more = sources[key]
                    offset += more
                found.append((key, offset))
            elif isinstance(operand.base, SymbolOperand):
                found.append((operand.base.name, operand.base.offset + operand.offset))
    return found
