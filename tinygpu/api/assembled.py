"""Searching among assembled candidates: each one that is tried is lowered and assembled, in processes, once ever.

The predictor alone estimates registers, and knows nothing of conflicts that no layout avoids; here both are known, and
what spills or does not assemble is a failure. A candidate costs some 50 ms instead of some 50 us, so several processes
share the work, what a candidate does to its process costs that candidate, and a cache keeps what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

from tinygpu.api.caching import circumstances
from tinygpu.api.machines import family, machines_of
from tinygpu.devices import Device
from tinygpu.language.problem import Problem
from tinygpu.ptx.assembling.assembler import AssemblerError, assemble
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.search.cache import Cache, CachedObjective
from tinygpu.search.evaluation import Evaluation, Failure, Objective
from tinygpu.search.parallel import ParallelObjective
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.refine import refined
from tinygpu.search.searchable import Point
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

# Batches are so many times as large as there are processes: then few wait for the slowest of a batch.
BATCH_PER_PROCESS = 4
VALUE = "predicted seconds of assembled kernels"


class AssembledTime:
    """Predicted seconds with the assembler's registers and the conflicts that layouts leave.

    Failures are of kind "lowering", "assembler", "spills" or "launch".
    """

    def __init__(self, space: MachineSpace) -> None:
        self.space = space
        self._predicted = PredictedTime(space)
        self._layouts = SolverCache()

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        return [self._evaluate(point) for point in points]

    def _evaluate(self, point: Point) -> Evaluation:
        found = refined(self._predicted, point, self._layouts)
        try:
            kernel = lower(found.program, self.space.problem, found.point, found.layouts.swizzles)
            assembly = assemble(kernel.ptx, kernel.assembled_for(self.space.device.portable_target))
        except LoweringError as error:
            return Evaluation(failure=Failure("lowering", str(error)))
        except AssemblerError as error:
            return Evaluation(failure=Failure("assembler", str(error)))
        spilled = assembly.spill_store_bytes + assembly.spill_load_bytes
        if spilled:
            return Evaluation(failure=Failure("spills", f"{spilled} B of registers spill"))
        prediction = self._predicted.prediction(point, extra_wavefronts=found.extra, registers=assembly.registers)
        seconds = float(prediction.seconds)
        if seconds == float("inf"):
            return Evaluation(failure=Failure("launch", "no CTA of this candidate fits on an SM"))
        return Evaluation(value=seconds)


def assembled_time(machines: str, machine: str, problem: Problem, device: Device) -> AssembledTime:
    """The objective of one machine of a family, by their names: what a process of its own can make."""
    declared = family(machines).machines
    found = next(m for d in declared for m in machines_of(d) if m.__name__ == machine)
    return AssembledTime(build_space(found, problem, device))


@contextmanager
def assembled_objective(
    machines: str,
    space: MachineSpace,
    *,
    processes: int,
    seconds: float = 120.0,
    cache: Path | None = None,
) -> Iterator[Objective]:
    """The objective of a space in several processes, behind a cache if there is one.

    machines  the name of the family that the machine of the space was found by
    seconds   for one candidate
    """
    make = partial(assembled_time, machines, space.machine.__name__, space.problem, space.device)
    with ExitStack() as stack:
        objective: Objective = stack.enter_context(ParallelObjective(make, processes=processes, seconds=seconds))
        if cache is not None:
            here = circumstances(space, VALUE, assembler=metadata.version("nvidia-nvjitlink"))
            objective = CachedObjective(objective, stack.enter_context(Cache(cache)), here)
        yield objective
