"""Builds the space of a plan: the product of the spaces of its steps, where shared parameters have one value.

Nothing is listed. The constraints of every step are said of the plan's names: its dims are expressions of the plan's
dims and parameters, its private parameters are called `step.name`. One part for each combination of structures; inside
it, steps that share nothing are groups of axes that nothing connects.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.devices import Device
from tinygpu.expressions import Expr, all_of, any_of, compile_arrays, evaluate, expr, symbol
from tinygpu.language.declared import Declared, Structure
from tinygpu.language.machine import Machine
from tinygpu.language.parameters import Param
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.language.step import BoundStep
from tinygpu.language.trace import Trace, preferences, trace
from tinygpu.language.workspace import Workspace
from tinygpu.spaces import Axis, Part, Space
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.spaces.built import BuiltSpace

# Sizes of a step that are posed to its machine, where it refuses some: more combinations are left to the launch.
MOST_POSED = 4096
# The figure that bounds workspaces, beside those that machines may read.
MEMORY = "device.memory_bytes"


@dataclass(frozen=True, slots=True, eq=False)
class StepCandidate:
    """One step of a candidate of a plan: a candidate of its machine.

    step   what it stands for in the plan
    space  of the machine, for the sizes that the step has here
    """

    step: BoundStep
    space: MachineSpace
    point: Mapping[str, int | str]


@dataclass(frozen=True, eq=False)
class PlanSpace(BuiltSpace):
    """The candidates of a plan: a point has the plan's parameters, and `step.name` for those of each step."""

    machine: type[Plan]
    steps: tuple[BoundStep, ...]

    def candidates(self, point: Mapping[str, int | str]) -> tuple[StepCandidate, ...]:
        """The candidates of the steps, in their order.

        Raises ProblemError where a machine does not take what the point makes of its step.
        """
        return tuple(self.candidate(index, point) for index in range(len(self.steps)))

    def candidate(self, index: int, point: Mapping[str, int | str]) -> StepCandidate:
        """The candidate of one step."""
        step, values = self.steps[index], {**self.environment, **point}
        # of a point only sizes decide the problem
        key = (index, tuple(step.sizes(values).items()))
        if key not in self._spaces:
            self._spaces[key] = build_space(step.machine, step.problem(self.problem, values), self.device)
        space = self._spaces[key]
        mine = step.point(values)
        axes = space.traces[space.structure_index(mine)].axes
        # what a structure does not use has its first value
        idle = {p.name: p.values[0] for p in step.machine.params() if p.name not in axes}
        return StepCandidate(step, space, mine | idle)

    def shared(self) -> tuple[str, ...]:
        """Parameters that more than one step depends on, by their own use or by the sizes of what is between them."""
        users: dict[str, set[str]] = {}
        for step in self.steps:
            for e in step.environment().values():
                for name in e.symbols:
                    users.setdefault(name, set()).add(step.name)
        ours = {p.name for p in self.machine.params()}
        private = {name: step.name for step in self.steps for name in step.private}
        return tuple(n for n in users if n in ours or (n in private and users[n] != {private[n]}))

    def values(self, index: int, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Every number that expressions of a step's machine may name, for points of the plan as arrays."""
        names, compute = self._compiled[index]
        found = dict(zip(names, compute({**self.environment, **columns}), strict=True))
        return {k: v for k, v in self.environment.items() if k.startswith("device.")} | found

    @cached_property
    def signatures(self) -> tuple[MachineSpace, ...]:
        """Per step, its machine for these types, without sizes: what is counted of it, in symbols."""
        return tuple(build_space(s.machine, s.signature_problem(self.problem), self.device) for s in self.steps)

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """Those that some step uses under the problem's options."""
        used = {t.name for s in self.steps for t in s.tensors.values()}
        return tuple(w for w in self.machine.workspace_declarations() if w.name in used)

    @cached_property
    def _compiled(self) -> tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[Any, ...]]], ...]:
        out = []
        for step, signature in zip(self.steps, self.signatures, strict=True):
            there = {*signature.problem.environment(), *step.params}
            known = {name: e for name, e in step.environment().items() if name in there}
            out.append((tuple(known), compile_arrays(*known.values())))
        return tuple(out)

    @cached_property
    def _spaces(self) -> dict[tuple[int, tuple[tuple[str, int], ...]], MachineSpace]:
        """By the step's number and the sizes of its machine's dims."""
        return {}

    def _share(self, other: BuiltSpace) -> None:
        if isinstance(other, PlanSpace) and other.device is self.device:
            other._spaces.update(self._spaces)


def space_of(machine: type[Declared], problem: Problem, device: Device) -> MachineSpace | PlanSpace:
    """The space of a machine or of a plan."""
    if issubclass(machine, Plan):
        return build_plan_space(machine, problem, device)
    if issubclass(machine, Machine):
        return build_space(machine, problem, device)
    raise TypeError(f"a space is built of a Machine or of a Plan, not of {machine!r}")


def build_plan_space(plan: type[Plan], problem: Problem, device: Device) -> PlanSpace:
    """All candidates of `plan` for one problem on one device, one part for each combination of structures."""
    constants = {f"device.{k}": v for k, v in device.constants().items()}
    environment = problem.environment() | constants
    capacity_gb = device.figure("memory_capacity_gb").value
    if isinstance(capacity_gb, (int, float)):
        environment[MEMORY] = int(capacity_gb * 10**9)
    steps = plan.bound_steps(dict(problem.options))
    posed = [step.signature_problem(problem) for step in steps]
    own = _own(plan, problem, steps, environment)
    parts = []
    for structures in itertools.product(*[tuple(s.structures()) for s in steps]):
        traces = [trace(s.machine, p, chosen) for s, p, chosen in zip(steps, posed, structures, strict=True)]
        parts.append(_part(plan, steps, posed, structures, traces, own, environment))
    space = Space(f"{plan.__name__} {problem} on {device.name}", tuple(parts), place=plan._own_place())
    return PlanSpace(plan, problem, device, space, environment, steps)


def _part(
    plan: type[Plan], steps: tuple[BoundStep, ...], posed: list[Problem], structures: tuple[Structure, ...],
    traces: list[Trace], own: tuple[Constraint, ...], environment: dict[str, int],
) -> Part:  # fmt: skip
    fixed: dict[str, int | str] = {}
    axes = [Axis(p.name, p.values) for p in plan.params()]
    constraints = list(own)
    for step, problem, structure, traced in zip(steps, posed, structures, traces, strict=True):
        fixed |= step.named(structure)
        for name, p in step.private.items():
            if p.name in traced.axes:
                axes.append(Axis(name, p.values))
            else:
                fixed[name] = p.values[0]
        constraints += _of_step(plan, step, problem, structure, traced, _seen_by_others(step, steps, plan))
    return Part(fixed, tuple(axes), tuple(constraints), environment)


def _of_step(
    plan: type[Plan], step: BoundStep, problem: Problem, structure: Structure, traced: Trace, seen: frozenset[str]
) -> Iterator[Constraint]:
    """The constraints of a step's machine, said of the plan's names.

    seen  names of the machine whose values others see too: another candidate of the step alone cannot differ there
    """
    names = step.environment()
    for p in step.machine.params():
        if p.name in traced.axes and p.name in seen and not _on_offer(names[p.name], p, plan):
            offered = any_of([names[p.name] == value for value in p.values])
            listed = ", ".join(map(str, p.values))
            yield Constraint(
                f"{step.name}: values of {p.name}",
                offered,
                f"{p.name} of {step.machine.__name__} is {listed}",
                source=step.machine.__name__,
                judge="launch",
            )
    for c in (*preferences(step.machine, problem, structure), *traced.constraints):
        if not c.instead & seen:
            condition = c.condition.substitute(names)
            if not condition.same(True):
                yield replace(c, name=f"{step.name}: {c.name}", condition=condition)


def _on_offer(value: Expr, own: Param, plan: type[Plan]) -> bool:
    """Whether a machine's parameter has a value on offer whatever the plan's point is."""
    shared = next((p.values for p in plan.params() if value.same(p)), ())
    return value.is_number or (bool(shared) and set(shared) <= set(own.values))


def _seen_by_others(step: BoundStep, steps: tuple[BoundStep, ...], plan: type[Plan]) -> frozenset[str]:
    """What the step's machine leaves open that the plan decides or shares, or that sizes between steps depend on."""
    between = {s for w in plan.workspace_declarations() for d in w.dims for s in d.symbols}
    between |= {s for other in steps if other is not step for e in other.environment().values() for s in e.symbols}
    between |= {s for r in plan.requirements() for s in r.condition.symbols}
    private = {p.name for name, p in step.private.items() if name not in between}
    return frozenset({p.name for p in step.machine.params()} - private) | frozenset(step.choices)


def _own(
    plan: type[Plan], problem: Problem, steps: tuple[BoundStep, ...], environment: Mapping[str, int]
) -> tuple[Constraint, ...]:
    """What the plan itself demands: sizes that exist, workspaces that fit, and what its author requires."""
    title = plan.__name__
    domains = {p.name: p.values for p in plan.params()} | {n: p.values for s in steps for n, p in s.private.items()}
    out: list[Constraint] = []
    for step in steps:
        for name, size in step.dims.items():
            if not size.is_number and not size.sympy.is_Symbol:
                condition = (size >= 1) & (size < 2**31)
                sentence = f"the dim {name} of {step.machine.__name__} is at least 1, and less than 2^31"
                out.append(Constraint(f"{step.name}: {name}", condition, sentence, source=title, judge="launch"))
        out += _refused(step, problem, environment, domains, title)
    used = {t.name for s in steps for t in s.tensors.values()}
    workspaces = [w for w in plan.workspace_declarations() if w.name in used]
    if workspaces and MEMORY in environment:
        total = expr(0)
        for w in workspaces:
            total = total + w.bytes
        sentence = f"{' and '.join(w.name for w in workspaces)} fit into the device's memory"
        out.append(Constraint("workspaces", total <= symbol(MEMORY), sentence, source=title, judge="launch"))
    required = [r.constraint(title, "" if plan._ships() else plan._place_of(r.name)) for r in plan.requirements()]
    return (*out, *required)


def _refused(
    step: BoundStep,
    problem: Problem,
    environment: Mapping[str, int],
    domains: Mapping[str, tuple[int, ...]],
    title: str,
) -> Iterator[Constraint]:
    """Sizes that the step's machine refuses, where these are parameters."""
    names = sorted({s for size in step.dims.values() for s in size.symbols} & domains.keys())
    combinations = itertools.product(*[domains[name] for name in names])
    for values in itertools.islice(combinations, MOST_POSED):
        chosen = dict(zip(names, values, strict=True))
        known = {**environment, **chosen}
        sizes = {name: evaluate(size, known) for name, size in step.dims.items()}
        if not all(1 <= size < 2**31 for size in sizes.values()):
            continue
        try:
            step.problem(problem, known)
        except ProblemError as error:
            if not names:
                raise ProblemError(f"{title}: its step {step.name} does not take this problem: {error}") from None
            there = all_of([symbol(name) == value for name, value in chosen.items()])
            yield Constraint(f"{step.name}: problem", ~there, str(error), source=title, judge="launch")


__all__ = ["PlanSpace", "StepCandidate", "build_plan_space", "space_of"]
