"""Volatile loads of shared memory that fetch data, not a flag.

A volatile access is a strong one, so a thread may poll what another writes. But a volatile load whose value never
decides which way a thread goes waits for nothing: whatever it fetches, nothing tells that it has been written. Code
from before independent thread scheduling keeps its data in volatile shared memory and relies on barriers all the same.
Those loads are judged as plain ones: without a barrier between, another warp's store is a race.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinygpu.ptx.emulator.source.frames import registers_of
from tinygpu.ptx.emulator.source.syntax import Instruction, Statement

# Instructions that put values elsewhere than into registers, or whose result is not a function of their operands.
_MEMORY = frozenset(("ld", "st", "red", "cp", "prefetch"))


def data_loads(statements: Iterable[Statement]) -> frozenset[tuple[int, int]]:
    """(line, column) of the loads `ld.volatile.shared` whose value reaches no predicate of an instruction."""
    instructions = [statement for statement in statements if isinstance(statement, Instruction)]
    loads = [i for i in instructions if i.opcode == "ld" and i.has("volatile") and i.has("shared")]
    if not loads:
        return frozenset()
    deciding = _deciding(instructions)
    return frozenset((i.line, i.column) for i in loads if deciding.isdisjoint(registers_of(i.operands[:1])))


def _deciding(instructions: list[Instruction]) -> set[str]:
    """Registers from which a predicate or the target of a branch is computed, in whatever order the code runs."""
    found = {i.guard.register.key for i in instructions if i.guard is not None}
    flows: list[tuple[set[str], set[str]]] = []
    for i in instructions:
        if i.opcode in ("brx", "call"):
            found |= set(registers_of(i.operands))
        elif i.opcode not in _MEMORY:
            flows.append((set(registers_of(i.operands[:1])), set(registers_of(i.operands[1:]))))
    count = 0
    while count != len(found):
        count = len(found)
        for targets, sources in flows:
            if not found.isdisjoint(targets):
                found |= sources
    return found
