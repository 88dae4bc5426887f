"""What a step of a plan leaves, held to its own machine's reference of the bytes that it read.

Runs that differ in the order of asynchronous work alone give a step the same bytes, as a rule: what its reference makes
of them is worked out once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.bounds.answers import Answer
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernels import Stage
from tinygpu.ptx.verification.comparison import Check, compare_arrays
from tinygpu.ptx.verification.in_order import DeviceMemory
from tinygpu.ptx.verification.trial import Trial, reference_answers, rounding_of

Arrays = Mapping[str, NDArray[Any]]


class StepJudge:
    """Judges one step, run after run; keeps what its reference made of what it read last."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._last: tuple[Arrays, Mapping[str, Any], dict[str, Answer]] | None = None

    def given(self, memory: DeviceMemory) -> dict[str, NDArray[Any]]:
        """What the step is about to read, by its machine's names."""
        read = {o.name for o in self.stage.problem.operands if o.access != "out"}
        return {own: memory.array(name) for own, name in self.stage.tensors.items() if own in read}

    def check(self, memory: DeviceMemory, given: Arrays, trial: Trial, order: Order) -> Check:
        """What the step left in memory.

        given  what it read, as `given` took it before the step ran
        trial  of the whole
        """
        stage, problem = self.stage, self.stage.problem
        scalars = {own: trial.scalars[name] for own, name in stage.scalars.items()}
        mine = Trial(problem, trial.inputs, given, scalars, self.answers(given, scalars))
        got = {own: memory.array(name) for own, name in stage.tensors.items() if problem.operand(own).access != "in"}
        return compare_arrays(mine, got, order, f"all steps, in step {stage.name}")

    def answers(self, given: Arrays, scalars: Mapping[str, Any]) -> dict[str, Answer]:
        """What the step may write, of what it read."""
        if self._last is None or not (_same(self._last[0], given) and _same(self._last[1], scalars)):
            machine, problem = self.stage.machine, self.stage.problem
            shapes = {o.name: o.shape for o in problem.operands}
            found = reference_answers(
                machine, problem, given, scalars, rounding_of(machine, problem), shapes, dict(self.stage.kernel.point)
            )
            self._last = given, scalars, found
        return self._last[2]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether they have the same bytes: NaNs with other bits are others."""
    return one.keys() == other.keys() and all(_bits(one[name]) == _bits(other[name]) for name in one)


def _bits(value: Any) -> bytes:
    return np.ascontiguousarray(value).tobytes()
