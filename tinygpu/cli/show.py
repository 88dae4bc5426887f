"""`tinygpu show`: a machine for people, or as JSON."""

from __future__ import annotations

from typing import Any

from tinygpu.api.choosing import Chosen
from tinygpu.api.handovers import Handovers, handovers, of_point
from tinygpu.cli.printing import console, table
from tinygpu.cli.show_plan import plan_json, show_plan
from tinygpu.language.declared import Declared
from tinygpu.language.instruction import Group, Instruction
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.route import Route
from tinygpu.language.trace import trace
from tinygpu.program.tree import walk


def show(declared: type[Declared]) -> None:
    """A machine, or a plan and its steps, for default types."""
    if issubclass(declared, Plan):
        show_plan(declared)
    elif issubclass(declared, Machine):
        _show_machine(declared)


def _show_machine(machine: type[Machine]) -> None:
    """Parameters, instructions, constraints and programs of a machine, for its default types."""
    console.print(f"[bold]{machine.__name__}[/bold]: {machine.summary()}")
    params = table("parameter", "values")
    for p in machine.params():
        params.add_row(p.name, " ".join(map(str, p.values)))
    for c in machine.choices():
        params.add_row(f"{c.name} (structural)", " | ".join(map(str, c.labels)))
    for o in machine.option_declarations():
        params.add_row(f"{o.name} (option)", " | ".join(map(str, o.values)))
    console.print(params)
    instructions = table("\ninstruction", "is")
    for i in (*machine.declarations(Instruction), *machine.declarations(Route)):
        instructions.add_row(_name(machine, i), str(i))
    default = problem(machine, machine.smallest_dims(), following=False)
    structures = list(machine.structures())
    for group in machine.declarations(Group):
        instructions.add_row(_name(machine, group), f"{group}, of which it has {_used(machine, group, default)}")
    console.print(instructions)
    first = trace(machine, default, structures[0])
    constraints = table("\nconstraint", "kind", "brought by", "what must hold")
    for constraint in first.constraints:
        constraints.add_row(constraint.name, constraint.kind, constraint.source, constraint.sentence)
    console.print(constraints)
    console.print(f"\nthe first of {len(structures)} structures:")
    print(first.program)
    _show_handovers(handovers(machine))


def show_candidate(made: Chosen) -> None:
    """The program of each kernel of one candidate, and what is known of its hand-overs."""
    for number, (stage, part) in enumerate(zip(made.kernels.stages, made.parts, strict=True)):
        if stage.name:
            print(f"{chr(10) * (number > 0)}step {stage.name}:")
        print(part.space.program(part.point))
        _show_handovers(of_point(part.space, part.point))


def _show_handovers(found: Handovers | None) -> None:
    if found is None:
        console.print("\nhand-overs: no candidate was found to look at; name one with --shape and --device")
        return
    print(f"\nhand-overs of {found.candidate}:")
    print(found.certificate)


def show_json(declared: type[Declared]) -> dict[str, Any]:
    """The same as data."""
    if issubclass(declared, Plan):
        return plan_json(declared)
    if not issubclass(declared, Machine):
        raise TypeError(f"{declared.__name__} is no machine and no plan")
    machine = declared
    default = problem(machine, machine.smallest_dims(), following=False)
    structure = next(iter(machine.structures()))
    traced = trace(machine, default, structure)
    found = handovers(machine)
    return {
        "machine": machine.__name__,
        "summary": machine.summary(),
        "dims": list(machine.dim_names()),
        "tensors": {
            t.name: {"dtypes": [d.name for d in t.dtypes], "dims": list(t.names()), "access": t.access}
            | ({"values": str(t.values)} if t.values is not None else {})
            for t in machine.tensor_declarations()
        },
        "parameters": {p.name: list(p.values) for p in machine.params()},
        "choices": {c.name: list(c.labels) for c in machine.choices()},
        "options": {o.name: list(o.values) for o in machine.option_declarations()},
        "structures": sum(1 for _ in machine.structures()),
        "constraints": [
            {"name": c.name, "kind": c.kind, "source": c.source, "sentence": c.sentence, "condition": str(c.condition)}
            for c in traced.constraints
        ],
        "program": str(traced.program),
        "handovers": None
        if found is None
        else {"candidate": found.candidate, "pipelines": [ring.to_json() for ring in found.certificate.rings]},
    }


def _used(machine: type[Machine], group: Group, default: Problem) -> str:
    """The instructions of a group that some structure of a machine uses."""
    programs = [trace(machine, default, structure).program for structure in machine.structures()]
    found = {i for program in programs for s in walk(program.body) for i in s.instructions}
    return ", ".join(str(i) for i in group if i in found) or "none"


def _name(machine: type[Machine], instruction: Any) -> str:
    return next((k for b in machine.__mro__ for k, v in vars(b).items() if v is instruction), str(instruction))
