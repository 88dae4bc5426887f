"""Operands that say what an instruction does to memory or to other threads, beside addresses.

No result tells of them: where such an operand is uninitialised, its use is the fault.
"""

from __future__ import annotations

from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, Operand, RegisterOperand, VectorOperand


def deciding(i: Instruction) -> tuple[tuple[RegisterOperand, ...], str]:
    """(registers that decide, what they do); none for most instructions."""
    operands = i.operands[:-1] if i.has("L2::cache_hint") else i.operands
    if i.opcode in ("atom", "red"):
        return _registers(_behind_address(operands)), "is what an atomic brings to memory"
    if i.opcode == "mbarrier":
        if i.has("expect_tx") or i.has("complete_tx"):
            return _registers(_behind_address(operands)), "is a number of bytes for an mbarrier"
        if i.has("init") or i.has("arrive") or i.has("arrive_drop"):
            return _registers(_behind_address(operands)), "is a number of arrivals"
    if i.opcode == "cp" and (i.has("ca") or i.has("cg")):
        return _registers(operands[3:]), "says how much cp.async reads"
    if i.opcode == "shfl":
        return _registers(operands[2:]), "says which lanes exchange values"
    if i.opcode == "bar" and i.has("warp"):
        return _registers(operands), "says which lanes meet"
    if i.opcode == "wmma" and (i.has("load") or i.has("store")):
        return _registers(operands[2:]), "says how far apart rows of a matrix are"
    if i.opcode == "st" and i.has("bulk"):
        return _registers(operands[1:]), "says how much st.bulk clears"
    return (), ""


def _behind_address(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    places = [n for n, operand in enumerate(operands) if isinstance(operand, AddressOperand)]
    return operands[places[0] + 1 :] if places else ()


def _registers(operands: tuple[Operand, ...]) -> tuple[RegisterOperand, ...]:
    found: list[RegisterOperand] = []
    for operand in operands:
        if isinstance(operand, RegisterOperand):
            found.append(operand)
        elif isinstance(operand, VectorOperand):
            found.extend(_registers(operand.elements))
    return tuple(found)
