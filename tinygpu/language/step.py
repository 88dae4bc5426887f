"""A step of a plan: a machine, and what each of its names stands for in the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tinygpu.expressions import Expr, evaluate, expr, symbol
from tinygpu.language.declared import Structure
from tinygpu.language.machine import Machine
from tinygpu.language.parameters import Named, Param
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.strides import order_of
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.language.workspace import Workspace

Between: TypeAlias = "TensorDeclaration | Workspace"

# What is known of the alignment of a workspace; memory of the driver is aligned to more.
WORKSPACE_ALIGN_BYTES = 16


class Step(Named):
    """One kernel of a plan: `first = Step(PartialSums, x=x, y=partial, chunk=chunk)`.

    Every tensor and scalar of the machine is given one of the plan's, by its name in the machine. A parameter of the
    machine is shared (a parameter of the plan, or an expression of such), decided (a number; a label of a Choice), or,
    where nothing is said of it, private: it is searched as `first.NAME`. Dims follow from the tensors; those that no
    tensor has are given too.
    """

    def __init__(self, machine: type[Machine], /, **given: Any) -> None:
        self.machine = machine
        self.given = given
        if not (isinstance(machine, type) and issubclass(machine, Machine)):
            what = machine.__name__ if isinstance(machine, type) else repr(machine)
            self.mistake = f"a step is a Machine with what its names stand for, not {what}"
        elif machine.program is Machine.program:
            self.mistake = f"{machine.__name__} has no program; a step is a machine that can run"


@dataclass(frozen=True, slots=True, eq=False)
class BoundStep:
    """A step with every name of its machine as an expression of the plan's names.

    tensors  those that its machine uses, and what they are in the plan
    dims     sizes of the machine
    params   parameters of the machine; of private ones the symbol is the plan's name for it
    choices  choices of the machine that are decided
    scalars  the machine's name -> the plan's
    options  of the machine
    """

    name: str
    machine: type[Machine]
    tensors: Mapping[str, Between]
    dims: Mapping[str, Expr]
    params: Mapping[str, Expr]
    choices: Mapping[str, str | int]
    scalars: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def private(self) -> dict[str, Param]:
        """The plan's name of each parameter that the step has to itself."""
        known = {p.name: p for p in self.machine.params()}
        return {
            f"{self.name}.{name}": known[name]
            for name, value in self.params.items()
            if value.same(symbol(f"{self.name}.{name}"))
        }

    def structures(self) -> Iterator[Structure]:
        """The structures of the machine that the plan leaves open."""
        for structure in self.machine.structures():
            if all(self.choices.get(name, label) == label for name, label in structure):
                yield structure

    def named(self, structure: Structure) -> dict[str, str | int]:
        """The plan's names of the structural choices that it leaves open."""
        return {f"{self.name}.{name}": label for name, label in structure if name not in self.choices}

    def structure(self, point: Mapping[str, Any]) -> Structure:
        """The structure of the machine at a point of the plan."""
        return tuple(
            (c.name, self.choices[c.name] if c.name in self.choices else point[f"{self.name}.{c.name}"])
            for c in self.machine.choices()
        )

    def environment(self) -> dict[str, Expr]:
        """Every number that expressions of the machine may name, as an expression of the plan's names.

        Strides are named by axis: a tensor of the machine and the one that it is have their axes in the same order.
        """
        out = {**self.dims, **self.params}
        for own, tensor in self.tensors.items():
            if isinstance(tensor, Workspace):
                out |= {f"{own}.{name}": pitch for name, pitch in tensor.pitches().items()}
                out[f"{own}.align"] = expr(WORKSPACE_ALIGN_BYTES)
            else:
                facts = ("ld", "align", *(f"stride{axis}" for axis in range(len(tensor.dims))))
                out |= {f"{own}.{fact}": symbol(f"{tensor.name}.{fact}") for fact in facts}
        return out

    def point(self, values: Mapping[str, Any]) -> dict[str, int | str]:
        """The point of the machine at a point of the plan; `values` has the plan's dims and tensor facts too."""
        numbers = {name: int(evaluate(value, values)) for name, value in self.params.items()}
        return dict(self.structure(values)) | numbers

    def sizes(self, values: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of the machine's dims at a point of the plan."""
        return {name: int(evaluate(size, values)) for name, size in self.dims.items()}

    def problem(self, whole: Problem, values: Mapping[str, Any]) -> Problem:
        """The machine's problem, for a problem of the plan and a point of it.

        Raises ProblemError where the machine does not take it.
        """
        operands = {o.name: o for o in whole.operands}
        dtypes, majors = self._kinds(whole)
        strides: dict[str, dict[int, int]] = {}
        aligns = {}
        for own, tensor in self.tensors.items():
            if isinstance(tensor, Workspace):
                aligns[own] = WORKSPACE_ALIGN_BYTES
            else:
                operand = operands[tensor.name]
                apart = operand.strides()
                strides[own] = {axis: apart[axis] for axis in operand.memory_order[1:]}
                aligns[own] = operand.align_bytes
        dims, options = self.sizes(values), dict(self.options)
        return problem(
            self.machine, dims, dtypes=dtypes, majors=majors, strides=strides, aligns=aligns, options=options
        )

    def signature_problem(self, whole: Problem) -> Problem:
        """A problem with the machine's types, orders and options for a problem of the plan, and no sizes but those of
        dims that the machine lists."""
        dtypes, majors = self._kinds(whole)
        listed = {name: values for name, values in self.machine.dim_values().items() if values}
        known = whole.environment()
        dims = self.machine.smallest_dims() | {name: int(evaluate(self.dims[name], known)) for name in listed}
        return problem(
            self.machine, dims, dtypes=dtypes, majors=majors, options=dict(self.options), following=False
        )

    def _kinds(self, whole: Problem) -> tuple[dict[str, str], dict[str, str]]:
        """Types and orders of the machine's tensors."""
        operands = {o.name: o for o in whole.operands}
        declared = {t.name: t for t in self.machine.tensor_declarations()}
        dtypes, majors = {}, {}
        for own, tensor in self.tensors.items():
            mine = declared[own]
            if isinstance(tensor, Workspace):
                dtypes[own], order = tensor.dtype.name, order_of(tensor.rank, tensor.major)
            else:
                operand = operands[tensor.name]
                dtypes[own], order = operand.dtype.name, operand.memory_order
            fitting = (major for major in mine.majors if mine.order(major) == order)
            majors[own] = next(fitting, mine.majors[0])
        return dtypes, majors


__all__ = ["WORKSPACE_ALIGN_BYTES", "Between", "BoundStep", "Step"]
