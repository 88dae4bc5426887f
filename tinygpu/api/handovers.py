"""What is known of the hand-overs of a candidate: of one that is named, or of one that stands for its structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import Certificate, certify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

# Where a candidate is looked for: nothing that is proved depends on sizes, and little on the device.
DEVICES = ("h100", "a100", "rtx5090", "b200")
SIZES = ((256, 256), (16, 256), (64, 64), (1, 1))  # of the first dim, and of the others


@dataclass(frozen=True, slots=True)
class Handovers:
    """A candidate, in words, and the certificate of its kernel."""

    candidate: str
    certificate: Certificate


def handovers(machine: type[Machine]) -> Handovers | None:
    """Of some candidate of the first structure that has one; None where none is found."""
    for name in DEVICES:
        for problem in _problems(machine):
            space = build_space(machine, problem, device(name))
            for part, solution in zip(space.space.parts, space.space.solutions, strict=True):
                if solution.size:
                    (point,) = space.space.restrict(part.fixed).sample(1, np.random.default_rng(0))
                    return of_point(space, point)
    return None


def of_point(space: MachineSpace, point: dict[str, int | str]) -> Handovers | None:
    """Of one candidate; None where lowering refuses it."""
    program = space.program(point)
    try:
        made = lowered(program, space.problem, point, solve_buffers(program, SolverCache()).swizzles)
    except LoweringError:
        return None
    values = " ".join(f"{name}={value}" for name, value in sorted(point.items()))
    words = f"{space.machine.__name__} for {space.problem} on {space.device.name}, {values}"
    return Handovers(words, certify(made.protocol))


def _problems(machine: type[Machine]) -> Iterator[Problem]:
    listed, follow = machine.dim_values(), {d.name for d in machine.following_dims()}
    names = [name for name in machine.dim_names() if name not in follow]
    for first, others in SIZES:
        sizes = {name: others if place else first for place, name in enumerate(names)}
        try:
            yield machine.problem(**sizes | {name: values[0] for name, values in listed.items() if values})
        except ProblemError:
            continue
