"""Instructions of one name that follow one another and do not wait for each other, carried out as one.

A NumPy call costs as much for some thousand numbers as for a hundred, and unrolled loops are made of such runs: the
multiply-adds of a tile, the exponentials of a row, the conversions of what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Run
from tinygpu.ptx.emulator.run.operations import Operation
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import LANES, Slot

# Elements that are computed at a time: what they take in binary64 stays in a core's own caches.
_MOST_ELEMENTS = 1 << 14
# Fewer gain nothing.
_LEAST = 3


class Batch:
    """Some instructions, the same but for their registers, none of which reads or writes what one before it writes."""

    __slots__ = ("_lanewise", "careful", "instruction", "operations", "reads", "run", "touched", "writes")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)
        self.instruction: Instruction = self.operations[0].instruction
        self.reads: frozenset[Slot] = frozenset().union(*[o.reads for o in self.operations])
        self.writes: frozenset[Slot] = frozenset().union(*[o.writes for o in self.operations])
        self.touched = self.reads | self.writes
        self._lanewise = tuple(o.lanewise for o in self.operations if o.lanewise is not None)
        self.run: Run = self._run
        self.careful: Run = self._carefully

    def _run(self, c: Cohort) -> None:
        at_a_time = max(1, _MOST_ELEMENTS // (c.n * LANES))
        for start in range(0, len(self._lanewise), at_a_time):
            some = self._lanewise[start : start + at_a_time]
            if len(some) == 1:
                some[0].run(c)
                continue
            sources = zip(*[one.sources for one in some], strict=True)
            result = np.asarray(some[0].compute(*[_stacked([get(c) for get in getters]) for getters in sources]))
            own = result.ndim == 3
            for number, one in enumerate(some):
                one.write(c, result[number] if own else result)

    def _carefully(self, c: Cohort) -> None:
        """One after another: uninitialised bits, and registers that are in flight, are followed by instruction."""
        residents = c.residents
        in_flight = residents.in_flight
        known = residents.tainted.keys().isdisjoint(self.touched)
        if known and not in_flight.awaited and in_flight.busy.keys().isdisjoint(self.touched):
            self._run(c)
            return
        for operation in self.operations:
            residents.emulation.line = operation.instruction.line
            operation.careful(c)


Step = Operation | Batch


def batched(operations: Sequence[Operation]) -> list[Step]:
    """The same instructions in their order, batches of them as one."""
    steps: list[Step] = []
    run: list[Operation] = []
    written: set[Slot] = set()

    def end() -> None:
        steps.extend([Batch(run)] if len(run) >= _LEAST else run)
        run.clear()
        written.clear()

    for operation in operations:
        if run and not (_alike(run[0], operation) and written.isdisjoint(operation.touched)):
            end()
        if operation.lanewise is None:
            steps.append(operation)
        else:
            run.append(operation)
            written |= operation.writes
    end()
    return steps


def _alike(first: Operation, other: Operation) -> bool:
    """Whether two instructions do the same; max and min may have two sources or three."""
    if first.lanewise is None or other.lanewise is None or first.instruction.name != other.instruction.name:
        return False
    return len(first.lanewise.sources) == len(other.lanewise.sources)


def _stacked(values: list[Any]) -> Array:
    """Sources of several instructions along a new first axis; one that they share stays as it is."""
    first = values[0]
    if all(value is first for value in values):
        return np.asarray(first)
    shapes = {np.shape(value) for value in values}
    if len(shapes) == 1 and () not in shapes:
        return np.array(values)
    stacked = np.empty((len(values), *np.broadcast_shapes((1, 1), *shapes)), np.result_type(*values))
    for row, value in zip(stacked, values, strict=True):
        row[...] = value
    return stacked
