"""The kernels of a candidate: one of a machine, one for each step of a plan; in their order, with what lies between.

Whoever verifies, launches or writes down a candidate asks this value. A kernel knows its tensors by its machine's
names; a stage says which tensors of the whole, or which workspaces, they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.expressions import evaluate
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.step import WORKSPACE_ALIGN_BYTES
from tinygpu.language.workspace import Workspace
from tinygpu.ptx.launching.kernel import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One kernel of several.

    name     of the step; "" for the kernel of a machine
    problem  of its machine
    tensors  its tensors -> those of the whole, or workspaces
    scalars  its numbers -> those of the whole
    """

    name: str
    machine: type[Machine]
    kernel: Kernel
    problem: Problem
    tensors: Mapping[str, str]
    scalars: Mapping[str, str]

    def own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the whole calls by its names, by this kernel's."""
        return {mine: values[whole] for mine, whole in self.tensors.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """What a launch of a candidate runs, one after another.

    machine     the machine or the plan
    point       of the candidate
    workspaces  tensors between the stages: nobody gives or sees them, and each begins with anything in it
    """

    machine: type[Declared]
    problem: Problem
    point: Mapping[str, int | str]
    stages: tuple[Stage, ...]
    workspaces: tuple[Operand, ...] = ()

    @staticmethod
    def of_machine(machine: type[Machine], kernel: Kernel, problem: Problem) -> Kernels:
        """The one kernel of a machine."""
        tensors = {o.name: o.name for o in problem.operands}
        scalars = {s.name: s.name for s in machine.scalars(dict(problem.options))}
        return Kernels(machine, problem, dict(kernel.point), (Stage("", machine, kernel, problem, tensors, scalars),))

    @staticmethod
    def of_plan(
        plan: type[Plan], problem: Problem, point: Mapping[str, int | str], kernels: tuple[Kernel, ...]
    ) -> Kernels:
        """The kernels of the steps of a plan, for any problem that they all take.

        Raises ProblemError where a machine does not take what the problem makes of its step.
        """
        values: dict[str, Any] = {**problem.environment(), **point}
        steps = plan.bound_steps(dict(problem.options))
        stages = []
        for step, kernel in zip(steps, kernels, strict=True):
            tensors = {own: tensor.name for own, tensor in step.tensors.items()}
            posed = step.problem(problem, values)
            stages.append(Stage(step.name, step.machine, kernel, posed, tensors, dict(step.scalars)))
        used = {name for stage in stages for name in stage.tensors.values()}
        between = tuple(_operand(w, values) for w in plan.workspace_declarations() if w.name in used)
        return Kernels(plan, problem, dict(point), tuple(stages), between)

    def posed(self, problem: Problem) -> Kernels:
        """The same kernels for another problem; raises ProblemError where a machine does not take its part."""
        if issubclass(self.machine, Plan):
            return Kernels.of_plan(self.machine, problem, self.point, tuple(s.kernel for s in self.stages))
        return replace(self, problem=problem, stages=(replace(self.stages[0], problem=problem),))

    @property
    def name(self) -> str:
        """What the whole is called among kernels."""
        return self.machine.__name__.lower()

    def check(self) -> None:
        """Raises LaunchError where the problem breaks what a kernel was made for."""
        for stage in self.stages:
            stage.kernel.check(stage.problem)

    def texts(self) -> dict[str, str]:
        """PTX by file: kernel.ptx, or one for each step with its number and name."""
        if len(self.stages) == 1 and not self.stages[0].name:
            return {"kernel.ptx": self.stages[0].kernel.ptx}
        return {f"{number}-{s.name}.ptx": s.kernel.ptx for number, s in enumerate(self.stages, 1)}

    def launch_json(self) -> dict[str, Any]:
        """Everything that a launcher needs, beside the PTX."""
        if not self.workspaces and len(self.stages) == 1 and not self.stages[0].name:
            return self.stages[0].kernel.launch_json(self.problem)
        return {
            "schema": 1,
            "plan": self.machine.__name__,
            "workspaces": [
                {
                    "name": o.name,
                    "dtype": o.dtype.name,
                    "shape": list(o.shape),
                    "bytes": o.extent_elems * o.dtype.bits // 8,
                    "zeroed": False,
                }
                for o in self.workspaces
            ],
            "kernels": [
                {"step": s.name, "ptx": file, "tensors": dict(s.tensors), "scalars": dict(s.scalars)}
                | s.kernel.launch_json(s.problem)
                for s, file in zip(self.stages, self.texts(), strict=True)
            ],
            "point": dict(self.point),
            "problem": self.problem.to_json(),
        }


def _operand(workspace: Workspace, values: Mapping[str, Any]) -> Operand:
    shape = tuple(int(evaluate(size, values)) for size in workspace.dims)
    contiguous = shape[0 if workspace.major == "col" else -1]
    name, kind, major = workspace.name, workspace.dtype, workspace.major
    return Operand(name, kind, shape, major, contiguous, WORKSPACE_ALIGN_BYTES, "inout")
