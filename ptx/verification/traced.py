"""A kernel's candidate as its machine declares it: program, constraints, and the numbers that expressions name."""

from __future__ import annotations

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.trace import Trace, trace
from tinygpu.ptx.launching.kernel import Kernel


def traced(kernel: Kernel, machine: type[Machine], problem: Problem) -> Trace:
    """The trace of the structure that a kernel was lowered from, for problems like this one."""
    point = dict(kernel.point)
    return trace(machine, problem, tuple((c.name, point[c.name]) for c in machine.choices()))


def numbers_of(kernel: Kernel, problem: Problem) -> dict[str, int]:
    """The sizes and facts of a problem, and the parameters of a kernel's candidate that are whole numbers."""
    return problem.environment() | {name: value for name, value in kernel.point if isinstance(value, int)}
