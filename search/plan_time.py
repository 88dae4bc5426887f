"""The objective of a search for plans without a GPU: predicted seconds of all kernels, one after another.

Every kernel has its own time, launch overhead included; what a step reads of a workspace that is still in L2 does not
come from DRAM. A sum whose terms know nothing of each other's private parameters: `terms` tells a strategy so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Launch, Prediction, predict
from tinygpu.cost.reuse import left_in_l2
from tinygpu.expressions import Expr, compile_arrays, expr
from tinygpu.language.step import BoundStep
from tinygpu.language.workspace import Workspace
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.predicted import columns_of
from tinygpu.search.searchable import Columns, Point
from tinygpu.search.terms import Term
from tinygpu.spaces.plan_space import PlanSpace


@dataclass(frozen=True, slots=True, eq=False)
class PlanPrediction:
    """Predicted times of the kernels of a candidate, and of all of them.

    steps       by name, in their order
    roofline_s  least time of the whole: the plan's own tensors moved once, or the arithmetic of its steps
    """

    steps: Mapping[str, Prediction]
    roofline_s: float

    @property
    def seconds(self) -> float:
        return sum(float(p.seconds) for p in self.steps.values())

    @property
    def launch_s(self) -> float:
        return sum(float(p.launch_s) for p in self.steps.values())

    @property
    def share_of_roofline(self) -> float:
        return self.roofline_s / self.seconds

    def sentence(self) -> str:
        """What takes most of the time: the longest step, and what bounds it."""
        name, longest = max(self.steps.items(), key=lambda step: float(step[1].seconds))
        if not math.isfinite(self.seconds):
            return f"{name}: {longest.sentence()}"
        return f"{name}, {100 * float(longest.seconds) / self.seconds:.0f} % of the time: {longest.sentence()}"


class PlanTime:
    """Predicted seconds of a plan's candidates, without bank conflicts."""

    def __init__(self, space: PlanSpace) -> None:
        self.space = space

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """One for each step: the parameters that decide its time, and its seconds for many points."""
        shared = self.space.shared()

        def score(index: int) -> Any:
            return lambda columns: self.step_seconds(index, columns)

        return tuple(
            Term(
                step.name,
                (*(n for n in shared if n not in step.private), *step.private, *self._choices(step)),
                score(index),
            )
            for index, step in enumerate(self.space.steps)
        )

    @staticmethod
    def _choices(step: BoundStep) -> tuple[str, ...]:
        return tuple(f"{step.name}.{c.name}" for c in step.machine.choices() if c.name not in step.choices)

    def score_columns(self, columns: Columns, /) -> NDArray[np.float64]:
        """(rows,) seconds; infinity where a launch would be refused."""
        times = [self.step_seconds(index, columns) for index in range(len(self.space.steps))]
        return np.asarray(np.sum(times, axis=0), dtype=np.float64)

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        out = []
        for point in points:
            seconds = float(self.score_columns({n: np.array([v]) for n, v in point.items()})[0])
            if math.isfinite(seconds):
                out.append(Evaluation(value=seconds))
            else:
                out.append(Evaluation(failure=Failure("launch", "no CTA of one of its kernels fits on an SM")))
        return out

    def step_seconds(self, index: int, columns: Columns) -> NDArray[np.float64]:
        """(rows,) seconds of one step; the columns have what its term depends on."""
        rows = len(next(iter(columns.values()))) if columns else 1
        out = np.full(rows, math.inf)
        for number, mask, mine in self._by_structure(index, columns, rows):
            out[mask] = predict(self.space.device, self.demand(index, number, mine)).seconds
        return out

    def rooflines(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """(points,) least seconds of the whole, as each of these candidates counts its work (see `PlanPrediction`)."""
        columns, arithmetic_s = columns_of(points), np.zeros(len(points))
        for index in range(len(self.space.steps)):
            for number, mask, mine in self._by_structure(index, columns, len(points)):
                arithmetic_s[mask] += self._arithmetic_s(self.demand(index, number, mine))
        return np.maximum(arithmetic_s, self._least_s)

    def _by_structure(
        self, index: int, columns: Columns, rows: int
    ) -> Iterator[tuple[int, NDArray[np.bool_], dict[str, NDArray[np.int64]]]]:
        """For each structure of a step that some rows have: its number, which rows, and their numbers."""
        step, signature = self.space.steps[index], self.space.signatures[index]
        for number, structure in enumerate(signature.structures):
            mask = np.ones(rows, dtype=np.bool_)
            for name, label in structure:
                if name in step.choices:
                    mask &= step.choices[name] == label
                else:
                    mask &= np.asarray(columns[f"{step.name}.{name}"]) == label
            if mask.any():
                yield (
                    number,
                    mask,
                    {
                        name: np.asarray(column)[mask].astype(np.int64)
                        for name, column in columns.items()
                        if np.asarray(column).dtype.kind in "iu" or all(isinstance(v, int) for v in column)
                    },
                )

    def demand(self, index: int, structure: int, numbers: Mapping[str, Any], extra_wavefronts: float = 0.0) -> Demand:
        """What one step asks for, less what it finds in L2.

        structure  the number of its machine's structure
        numbers    parameters of the plan, as numbers or arrays
        """
        counts = self.space.signatures[index].counts(structure)
        demand = counts.demand(self.space.values(index, numbers), self.space.device, extra_wavefronts)
        kept = self._kept(index, numbers)
        if kept is None:
            return demand
        return replace(demand, dram_bytes_read=np.maximum(np.asarray(demand.dram_bytes_read) - kept, 0))

    def demands(
        self, point: Point, *, extra_wavefronts: Sequence[float] = (), registers: Sequence[int | None] = ()
    ) -> dict[str, Demand]:
        """What each step of one candidate asks for, by its name."""
        found: dict[str, Demand] = {}
        numbers = {name: value for name, value in point.items() if isinstance(value, int)}
        for index, step in enumerate(self.space.steps):
            structure = self.space.signatures[index].structures.index(step.structure(point))
            demand = self.demand(index, structure, numbers, extra_wavefronts[index] if extra_wavefronts else 0.0)
            if registers and (known := registers[index]) is not None:
                demand = replace(demand, registers_per_thread=known)
            found[step.name] = demand
        return found

    def prediction(
        self,
        point: Point,
        *,
        extra_wavefronts: Sequence[float] = (),
        registers: Sequence[int | None] = (),
        launch: Launch = "graph",
    ) -> PlanPrediction:
        """The prediction of one candidate, with what is known of its kernels beyond the counts, step by step."""
        demands = self.demands(point, extra_wavefronts=extra_wavefronts, registers=registers)
        found = {name: predict(self.space.device, demand, launch=launch) for name, demand in demands.items()}
        arithmetic_s = sum(float(self._arithmetic_s(d)) for d in demands.values())
        return PlanPrediction(found, max(arithmetic_s, self._least_s))

    def _arithmetic_s(self, demand: Demand) -> Any:
        """Least seconds of a step's arithmetic: what it moves may lie in L2."""
        return predict(self.space.device, replace(demand, compulsory_dram_bytes=0)).roofline_s

    @property
    def _least_s(self) -> float:
        """Least seconds in which the plan's own tensors are moved once."""
        return self._compulsory_bytes() / self.space.device.dram_bytes_per_s

    # -- what lies in L2 -------------------------------------------------------------------------------------------

    def _kept(self, index: int, numbers: Mapping[str, Any]) -> NDArray[np.float64] | None:
        """Bytes that a step finds in L2 of the workspaces that it reads; None where it reads none."""
        if not self._found[index]:
            return None
        l2_bytes = self.space.environment["device.l2_bytes"]
        amounts = self._compiled_sizes[index]({**self.space.environment, **numbers})
        pairs = zip(amounts[::2], amounts[1::2], strict=True)
        return np.asarray(sum(left_in_l2(size, traffic, l2_bytes) for size, traffic in pairs), dtype=np.float64)

    @cached_property
    def _compiled_sizes(self) -> tuple[Any, ...]:
        return tuple(compile_arrays(*[e for pair in found for e in pair]) for found in self._found)

    @cached_property
    def _found(self) -> tuple[tuple[tuple[Expr, Expr], ...], ...]:
        """Per step, of each workspace that it reads: its bytes, and the traffic since its writer began."""
        moved = [self._moved(step) for step in self.space.steps]
        out = []
        for index, step in enumerate(self.space.steps):
            access = {t.name: t.access for t in step.machine.tensor_declarations()}
            mine = []
            for own, tensor in step.tensors.items():
                if isinstance(tensor, Workspace) and access[own] != "out":
                    writer = max(k for k in range(index) if _writes(self.space.steps[k], tensor.name))
                    traffic = expr(0)
                    for between in moved[writer:index]:
                        traffic = traffic + between
                    mine.append((tensor.bytes, traffic))
            out.append(tuple(mine))
        return tuple(out)

    def _moved(self, step: BoundStep) -> Expr:
        """Bytes of all tensors of a step, each once."""
        operands = {o.name: o for o in self.space.problem.operands}
        total = expr(0)
        for tensor in step.tensors.values():
            if isinstance(tensor, Workspace):
                total = total + tensor.bytes
            else:
                o = operands[tensor.name]
                total = total + math.prod(o.shape) * o.dtype.bits // 8
        return total

    def _compulsory_bytes(self) -> int:
        """The plan's own tensors, each once; what is read and written, twice."""
        return sum(
            math.prod(o.shape) * o.dtype.bits // 8 * (2 if o.access == "inout" else 1)
            for o in self.space.problem.operands
        )


def _writes(step: BoundStep, name: str) -> bool:
    access = {t.name: t.access for t in step.machine.tensor_declarations()}
    return any(tensor.name == name and access[own] != "in" for own, tensor in step.tensors.items())


__all__ = ["PlanPrediction", "PlanTime"]
