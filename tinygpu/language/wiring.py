"""The wiring of a plan: what its steps write and read of the plan's tensors, followed in their order.

Steps run one after another, each when the one before it has ended, so that what a step reads is what was written last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinygpu.language.declared import Declared
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.step import BoundStep
from tinygpu.language.workspace import Workspace


def check_wiring(plan: type[Declared], steps: Sequence[BoundStep], options: Mapping[str, Any]) -> None:
    """Raises DeclarationError where a step reads what nobody wrote, writes what it may not, or races with itself."""
    title = plan.__name__
    # who wrote a tensor last, and whether somebody has read that since
    written: dict[str, tuple[str, bool]] = {}
    given = {t.name for t in plan.tensor_declarations() if t.access != "out"}
    inputs = {t.name for t in plan.tensor_declarations() if t.access == "in"}
    read: set[str] = set()
    for step in steps:
        access = {t.name: t.access for t in step.machine.tensor_declarations()}
        whose = {own: tensor.name for own, tensor in step.tensors.items()}
        _check_race(title, step, access, whose)
        for own, name in whose.items():
            if access[own] == "out":
                continue
            if name not in given and name not in written:
                later = next((s.name for s in steps if _writes(s, name)), "")
                who = f"step {later}, which comes later, writes it" if later else "no step writes it"
                raise DeclarationError(
                    f"{title}.{step.name}: it reads {name} as {own} before anything was written there; {who}"
                )
            read.add(name)
            if name in written:
                written[name] = written[name][0], True
        for own, name in whose.items():
            if access[own] == "in":
                continue
            if name in inputs:
                raise DeclarationError(
                    f"{title}.{step.name}: it writes {name} as {own}, and {name} is an Input of the plan; declare it "
                    "InOut, or write a workspace"
                )
            if name in written and not written[name][1] and access[own] == "out":
                raise DeclarationError(
                    f"{title}.{step.name}: it writes {name} as {own}, and what step {written[name][0]} wrote there "
                    "was never read"
                )
            written[name] = step.name, False
    _check_left(plan, written, read, options)


def _check_race(title: str, step: BoundStep, access: Mapping[str, str], whose: Mapping[str, str]) -> None:
    for own, name in whose.items():
        others = [o for o, n in whose.items() if n == name and o != own]
        if others and access[own] != "in":
            raise DeclarationError(
                f"{title}.{step.name}: {own} and {others[0]} of {step.machine.__name__} are both {name}, and it writes "
                f"{own}: its CTAs would race; write another workspace"
            )


def _check_left(
    plan: type[Declared], written: dict[str, tuple[str, bool]], read: set[str], options: Mapping[str, Any]
) -> None:
    """Every output is written, every input and workspace is read, and what is left in a workspace is read."""
    title = plan.__name__
    for workspace in plan.declarations(Workspace):
        name = workspace.name
        if name not in written:
            raise DeclarationError(f"{title}.{name}: no step writes this workspace")
        if not written[name][1]:
            raise DeclarationError(
                f"{title}.{name}: no step reads what step {written[name][0]} writes into this workspace"
            )
    for tensor in plan.tensor_declarations():
        if tensor.access != "in" and tensor.name not in written and plan.uses_tensor(tensor.name, dict(options)):
            raise DeclarationError(f"{title}.{tensor.name}: no step writes this {_kind(tensor.access)}")
        if tensor.access == "in" and tensor.name not in read and plan.uses_tensor(tensor.name, dict(options)):
            raise DeclarationError(f"{title}.{tensor.name}: no step reads this Input")


def _kind(access: str) -> str:
    return {"out": "Output", "inout": "InOut"}[access]


def _writes(step: BoundStep, name: str) -> bool:
    access = {t.name: t.access for t in step.machine.tensor_declarations()}
    return any(tensor.name == name and access[own] != "in" for own, tensor in step.tensors.items())


__all__ = ["check_wiring"]
