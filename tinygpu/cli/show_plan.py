"""`tinygpu show` of a plan: what is shared, what lies between its steps, and who reads and writes it."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from tinygpu.cli.printing import console, table
from tinygpu.language.plan import Plan
from tinygpu.language.step import BoundStep


def show_plan(plan: type[Plan]) -> None:
    """Parameters, workspaces and steps of a plan, for its default options."""
    console.print(f"[bold]{plan.__name__}[/bold]: {escape(plan.summary())}")
    params = table("parameter", "values")
    for p in plan.params():
        params.add_row(p.name, " ".join(map(str, p.values)))
    steps = _steps(plan)
    for step in steps:
        for name, p in step.private.items():
            params.add_row(name, " ".join(map(str, p.values)))
        for choice in step.machine.choices():
            if choice.name not in step.choices:
                params.add_row(f"{step.name}.{choice.name} (structural)", " | ".join(map(str, choice.labels)))
    for o in plan.option_declarations():
        params.add_row(f"{o.name} (option)", " | ".join(map(str, o.values)))
    console.print(params)
    between = table("\nworkspace", "type", "dims", "written by", "read by")
    for w in plan.workspace_declarations():
        dims = ", ".join(map(str, w.dims))
        writers, readers = _users(w.name, steps, "out"), _users(w.name, steps, "in")
        between.add_row(w.name, str(w.dtype), dims, " ".join(writers), " ".join(readers))
    console.print(between)
    for number, step in enumerate(steps, 1):
        console.print(f"\n{number}. {step.name}: {step.machine.__name__}, {escape(step.machine.summary())}")
        bound = table("name", "stands for")
        for own, what in _bindings(step).items():
            bound.add_row(own, what)
        console.print(bound)
    constraints = table("\nconstraint of the plan", "kind", "what must hold")
    for r in plan.requirements():
        constraints.add_row(r.name.replace("_", " "), r.kind, r.sentence)
    if plan.requirements():
        console.print(constraints)
    console.print("\nthe machines of the steps have pages of their own: `tinygpu show FILE.py:MACHINE`")


def plan_json(plan: type[Plan]) -> dict[str, Any]:
    """The same as data."""
    steps = _steps(plan)
    return {
        "plan": plan.__name__,
        "summary": plan.summary(),
        "dims": list(plan.dim_names()),
        "tensors": {
            t.name: {"dtypes": [d.name for d in t.dtypes], "dims": list(t.names()), "access": t.access}
            for t in plan.tensor_declarations()
        },
        "workspaces": {
            w.name: {"dtype": w.dtype.name, "dims": list(map(str, w.dims)), "major": w.major}
            for w in plan.workspace_declarations()
        },
        "parameters": {p.name: list(p.values) for p in plan.params()}
        | {name: list(p.values) for step in steps for name, p in step.private.items()},
        "options": {o.name: list(o.values) for o in plan.option_declarations()},
        "steps": [
            {"step": step.name, "machine": step.machine.__name__, "names": _bindings(step)} for step in steps
        ],
        "constraints": [
            {"name": r.name, "kind": r.kind, "sentence": r.sentence, "condition": str(r.condition)}
            for r in plan.requirements()
        ],
    }


def _steps(plan: type[Plan]) -> tuple[BoundStep, ...]:
    return plan.bound_steps({o.name: o.default for o in plan.option_declarations()})


def _bindings(step: BoundStep) -> dict[str, str]:
    """Every name of a step's machine, and what it is in the plan."""
    out = {own: tensor.name for own, tensor in step.tensors.items()}
    out |= dict(step.scalars)
    out |= {name: str(value) for name, value in (*step.dims.items(), *step.params.items())}
    out |= {name: str(label) for name, label in step.choices.items()}
    return out | {name: str(value) for name, value in step.options.items()}


def _users(name: str, steps: tuple[BoundStep, ...], *access: str) -> list[str]:
    out = []
    for step in steps:
        known = {t.name: t.access for t in step.machine.tensor_declarations()}
        if any(tensor.name == name and known[own] in (*access, "inout") for own, tensor in step.tensors.items()):
            out.append(step.name)
    return out


__all__ = ["plan_json", "show_plan"]
