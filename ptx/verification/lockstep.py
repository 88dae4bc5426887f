"""A program and its probed kernel, statement by statement on the same inputs: where their tiles first differ.

The program goes on with what the kernel has made, so that each statement is judged by what it makes of the operands
that the kernel gave it, and one that is wrong is not blamed on those behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.interpreter.worker import Moment
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.probe import Spot
from tinygpu.ptx.verification.line_info import in_words
from tinygpu.ptx.verification.probe_log import Key, Recorded

# Units of the last place, of a result or of its largest operand, in which the orders of a few operations may differ.
UNITS = 8
# Bits that a tensor core keeps of sums of narrow floats.
SUM_BITS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Parting:
    """A statement whose tile is not what its instruction means.

    statement  that made the tile
    place      in words: of the grid, and in the loops around
    element    the first that differs
    meant, made  it in the program, and emulated; `made` is None where the kernel never gets there
    wrong, size  elements that differ, of how many
    """

    statement: n.Statement
    place: str
    element: tuple[int, ...]
    meant: float
    made: float | None
    wrong: int
    size: int

    def __str__(self) -> str:
        line = f" ({self.statement.place})" if self.statement.place else ""
        where = f"after `{self.statement.headline(frozenset())}`{line}{self.place}"
        if self.made is None:
            return f"{where}: the kernel never gets there"
        index = ", ".join(map(str, self.element))
        more = f"; {self.wrong:,} of {self.size:,} elements differ" if self.wrong > 1 else ""
        return f"{where}, element ({index}): {self.meant:.9g} in the program, {self.made:.9g} emulated{more}"


@dataclass(slots=True, eq=False)
class Lockstep:
    """The watch of a run beside what a probed kernel recorded.

    exact          sums of the inputs are exact: nothing that adds may differ
    approximation  relative error of the machine's approximate instructions
    fault          what ended the kernel before its end, or ""
    judged         statements whose tiles were compared
    """

    program: Program
    spots: Mapping[tuple[int, str], Spot]
    found: Mapping[Key, Recorded]
    exact: bool
    approximation: float
    fault: str = ""
    partings: list[Parting] = field(default_factory=list)
    judged: dict[int, n.Statement] = field(default_factory=dict)

    def __call__(self, moment: Moment) -> NDArray[Any]:
        """Compares a tile; the kernel's stands from then on."""
        spot = self.spots.get((id(moment.statement), moment.tile.name))
        if spot is None:
            return moment.values
        made = self.found.get((spot.number, tuple(moment.known[name] for name in spot.indices)))
        if made is None:
            if not moment.statement.children and not self.fault:
                self.partings.append(self._parting(moment, spot, None, np.ones(moment.values.shape, np.bool_)))
            return moment.values
        written = np.ones(moment.values.shape, np.bool_) if moment.written is None else moment.written
        wrong = written & (differs(made.values, moment.values, self._tolerance(moment)) | made.split)
        for s in self._makers(moment):
            self.judged[id(s)] = s
        if wrong.any():
            self.partings.append(self._parting(moment, spot, made, wrong))
        return made.values.copy()

    def outputs(self, meant: Mapping[str, NDArray[Any]], made: Mapping[str, NDArray[Any]]) -> None:
        """Compares the tensors that were written; each is what stores made of values that agree."""
        for name, want in meant.items():
            makers = [s for s in walk(self.program.body) if any(t.tensor and t.name == name for t in s.writes)]
            for s in makers:
                self.judged[id(s)] = s
            combines = any(getattr(i, "combines", False) for s in makers for i in s.instructions)
            off = 0.0 if self.exact or not combines else 2.0**-SUM_BITS * np.nanmax(np.abs(want.astype(np.float64)))
            wrong = differs(made[name], want, np.asarray(off))
            if wrong.any() and makers:
                self.partings.append(_first(makers[-1], "", want, made[name], wrong))

    def _makers(self, moment: Moment) -> list[n.Statement]:
        """The statements that made a tile: of a slot, those that fill it."""
        s, name = moment.statement, moment.tile.name
        if not s.children or isinstance(s, n.FixUp):
            return [s]
        inner = walk(self.program.body) if moment.tile.buffer is not None else walk(s.children[0].statements)
        return [i for i in inner if not i.children and any(t.name == name for t in i.writes)] or [s]

    def _parting(
        self, moment: Moment, spot: Spot, made: Recorded | None, wrong: NDArray[np.bool_]
    ) -> Parting:
        where = f", where {moment.tile.buffer.name.split('.')[0]} is consumed" if moment.tile.buffer else ""
        place = where + in_words(self.program, {name: moment.known[name] for name in spot.indices})
        statement = self._makers(moment)[-1]
        return _first(statement, place, moment.values, None if made is None else made.values, wrong)

    def _tolerance(self, moment: Moment) -> NDArray[np.float64]:
        """How far rounding may take each element, where the operands are the same."""
        s, kind = moment.statement, moment.tile.dtype
        if not kind.is_float:
            return np.zeros(())
        unit, want = UNITS * 2.0**-kind.mantissa, np.abs(moment.values.astype(np.float64))
        operands = [np.abs(np.asarray(o, dtype=np.float64)) for o in moment.operands]
        with np.errstate(all="ignore"):
            if isinstance(s, n.Apply):
                size = np.maximum.reduce(np.broadcast_arrays(want, *operands))
                error = getattr(s.instruction, "error", None)
                known = error() if error is not None else None
                relative = max(self.approximation, 2 * known.relative if known is not None else 0.0)
                absolute = 2 * known.absolute if known is not None else 0.0
                return np.asarray(unit * size + relative * want + absolute, dtype=np.float64)
            if self.exact and not isinstance(s, (n.Combining, n.FixUp)):
                return np.zeros(())
            if isinstance(s, n.Multiply):
                return np.asarray(2.0**-SUM_BITS * (operands[0] + operands[1] @ operands[2]), dtype=np.float64)
            if isinstance(s, (n.Preceding, n.PrecedingInCluster)):
                return np.asarray(unit * np.nanmax(want, initial=0.0), dtype=np.float64)
            if isinstance(s, n.Combining):
                of = operands if s.merge.plain is None else operands[:1]
                size = sum(o.sum(axis=s.axis, keepdims=True) for o in of)
                # A merge may multiply, so that what it makes is larger than all that it is made of.
                return np.asarray(unit * (size + (want if s.merge.plain is None else 0.0)), dtype=np.float64)
            if isinstance(s, n.FixUp):
                return np.asarray(unit * np.nanmax(want, initial=0.0), dtype=np.float64)
            if moment.tile.buffer is None and s.children:
                return np.asarray(2.0**-SUM_BITS * 4 * np.nanmax(want, initial=0.0), dtype=np.float64)
        return np.zeros(())


def differs(made: NDArray[Any], meant: NDArray[Any], tolerance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Per element whether it differs by more than a tolerance; one NaN is as good as another."""
    with np.errstate(all="ignore"):
        got, want = made.astype(np.float64), meant.astype(np.float64)
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= tolerance)
    return np.asarray(~same)


def _first(
    s: n.Statement, place: str, meant: NDArray[Any], made: NDArray[Any] | None, wrong: NDArray[np.bool_]
) -> Parting:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    value = None if made is None else float(made[at])
    return Parting(s, place, at, float(meant[at]), value, int(wrong.sum()), wrong.size)

