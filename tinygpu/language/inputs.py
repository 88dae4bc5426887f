"""The inputs of a problem: what each is drawn from, and what must hold of dims for that to have numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tinygpu.constraints.constraint import Constraint
from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, any_of, expr
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import Scalar, Tensor, TensorDeclaration
from tinygpu.language.values import Values, every_whole


class DeclaresInputs(Protocol):
    """What a machine says of its inputs; see `Declared`."""

    @classmethod
    def tensor_declarations(cls) -> tuple[TensorDeclaration, ...]: ...

    @classmethod
    def scalar_declarations(cls) -> tuple[Scalar, ...]: ...

    @classmethod
    def dim_names(cls) -> tuple[str, ...]: ...

    @classmethod
    def scalars(cls, options: Mapping[str, object]) -> tuple[Scalar, ...]: ...


def input_distributions(machine: type[DeclaresInputs], problem: Problem) -> dict[str, Distribution]:
    """Tensor or scalar -> what it is drawn from, of those for which the machine says it.

    Raises ValueError where there is no number between its ends; no candidate is admitted for such sizes.
    """
    present = {o.name for o in problem.operands}
    declared = [(t.name, t.values) for t in machine.tensor_declarations() if t.name in present]
    declared += [(s.name, s.values) for s in machine.scalars(dict(problem.options))]
    return {name: values.at(problem.dim) for name, values in declared if values is not None}


def input_constraints(
    machine: type[DeclaresInputs], title: str, tensors: tuple[Tensor, ...], options: Mapping[str, object]
) -> Iterator[Constraint]:
    """What dims must be, so that values which are declared by them exist, and their types hold them."""
    kinds = {t.name: t.dtype for t in tensors}
    for t in tensors:
        values = next(d for d in machine.tensor_declarations() if d.name == t.name).values
        yield from _reached(values, t, title)
        yield from _different(values, t, title)
    declared = [(t.name, kinds[t.name], t.values) for t in machine.tensor_declarations() if t.name in kinds]
    declared += [(s.name, s.dtype, s.values) for s in machine.scalars(options)]
    for name, kind, values in declared:
        if values is None or not values.symbols:
            continue
        low, high = _bound(values.low), _bound(values.high)
        if low is not None and high is not None and values.law != "listed":
            sentence = f"{values} has at least one number"
            yield Constraint(f"values of {name}", low <= high, sentence, source=title, judge="emulator")
        if values.whole and kind.kind != "scale" and high is not None:
            sentence = f"{kind} holds the largest of {values}"
            yield Constraint(f"type of {name}", high <= every_whole(kind), sentence, source=title, judge="emulator")


def _reached(values: Values | None, tensor: Tensor, title: str) -> Iterator[Constraint]:
    """There are numbers enough to get from one end to the other, where neighbours are near each other."""
    if values is None or not values.ends or (not isinstance(values.apart, Expr) and not values.apart):
        return
    low, high, apart = (_bound(end) for end in (values.low, values.high, values.apart))
    if low is None or high is None or apart is None:
        return
    steps = tensor.size(tensor.rank - 1) - 1
    sentence = f"{steps} steps of {values} reach from {values.low} to {values.high}"
    yield Constraint(f"steps of {tensor.name}", high <= low + steps * apart, sentence, source=title, judge="emulator")


def _different(values: Values | None, tensor: Tensor, title: str) -> Iterator[Constraint]:
    """There are numbers enough for no two elements to be the same; of those below zero there always are."""
    if values is None or not values.distinct:
        return
    low, high, elements = _bound(values.low), _bound(values.high), expr(1)
    for axis in range(tensor.rank):
        elements = elements * tensor.size(axis)
    if low is not None and high is not None:
        sentence = f"{values} has a number for each element of {tensor.name}"
        fits = any_of([low < 0, elements <= high - low + 1])
        yield Constraint(f"numbers of {tensor.name}", fits, sentence, source=title, judge="emulator")


def mistake_in_inputs(machine: type[DeclaresInputs]) -> str:
    """What is wrong with declared values, behind the name of the tensor or scalar; "" where nothing is."""
    dims = frozenset(machine.dim_names())
    for t in machine.tensor_declarations():
        if wrong := _mistake_in(t.values, t.dtypes, dims) or _mistake_in_shape(t):
            return f"{t.name}: {wrong}"
    for s in machine.scalar_declarations():
        if s.values is not None and s.values.law == "definite":
            return f"{s.name}: {s.values} is a matrix, and a scalar is one number"
        if wrong := _mistake_in(s.values, (s.dtype,), dims):
            return f"{s.name}: {wrong}"
    return ""


def _mistake_in_shape(tensor: TensorDeclaration) -> str:
    """Matrices of the last two axes are square, whatever the sizes of a problem."""
    if tensor.values is None or tensor.values.law != "definite":
        return ""
    if len(tensor.dims) < 2:
        return f"{tensor.values} is a matrix of the last two dims, and there is one, {tensor.names()[0]}"
    if tensor.dims[-1] is not tensor.dims[-2] and tensor.names()[-1] != tensor.names()[-2]:
        rows, columns = tensor.names()[-2:]
        return f"{tensor.values} is a matrix of n x n elements, and the last two dims are {rows} and {columns}"
    return ""


def _mistake_in(values: Values | None, kinds: tuple[DType, ...], dims: frozenset[str]) -> str:
    """What is wrong with declared values of elements of some types; "" where nothing is."""
    if values is None:
        return ""
    unknown = sorted(values.symbols - dims)
    if unknown:
        return f"{values} names {unknown[0]!r}, which is no Dim of this machine"
    for kind in kinds:
        if why := values.misfit(kind):
            return f"{kind} {why}"
    return ""


def _bound(end: Expr | float) -> Expr | None:
    if isinstance(end, Expr):
        return end
    return expr(int(end)) if end == int(end) else None
