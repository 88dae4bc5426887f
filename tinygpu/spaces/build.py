"""Builds the space of a machine: the arrow from Machine + problem + device to Space."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.devices import Device
from tinygpu.language.machine import Machine, Structure
from tinygpu.language.problem import Problem
from tinygpu.language.trace import Trace, preferences, trace
from tinygpu.spaces import Axis, Part, Space


@dataclass(frozen=True, slots=True, eq=False)
class MachineSpace:
    """A space, and what each of its parts was made from.

    structures  per part of the space: the structural choices
    traces      per part: the program and its constraints
    """

    machine: type[Machine]
    problem: Problem
    device: Device
    space: Space
    structures: tuple[Structure, ...]
    traces: tuple[Trace, ...]


def build_space(machine: type[Machine], problem: Problem, device: Device) -> MachineSpace:
    """All candidates of `machine` for one problem on one device, one part per structure.

    A parameter that a structure does not use is no axis of it: the point shows the parameter's first value there.
    """
    environment = problem.environment() | {f"device.{k}": v for k, v in device.constants().items()}
    structures = tuple(machine.structures())
    traces = tuple(trace(machine, problem, s) for s in structures)
    parts = []
    for structure, traced in zip(structures, traces, strict=True):
        axes = tuple(Axis(p.name, p.values) for p in machine.params() if p.name in traced.axes)
        idle = {p.name: p.values[0] for p in machine.params() if p.name not in traced.axes}
        constraints = (*preferences(machine, problem, structure), *traced.constraints)
        parts.append(Part(dict(structure) | idle, axes, constraints, environment))
    space = Space(f"{machine.__name__} {problem} on {device.name}", tuple(parts))
    return MachineSpace(machine, problem, device, space, structures, traces)
