"""Inputs that show who looks beyond its part: lines beside those that integers name, or cut off, are no numbers.

What a program reads there and weighs with nothing changes no result as long as it is finite. So offsets and lengths
(`ascending(0, m)`, `integers(0, m + 1)`) cut the lines of every tensor along m into pieces, of which every other one is
NaN; where integers number lines (`integers(0, v)`) the first and the last line along v are, on which wrong fills and
clamps fall. The reference says which results have a part in that, and all others must be numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import Expr, evaluate
from tinygpu.language.declared import Declared
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import TensorDeclaration

# With fewer pieces, or lines that are numbered, two runs have one half each.
FEW_PIECES, FEW_LINES = 4, 8


def with_neighbours(
    machine: type[Declared], problem: Problem, arrays: Mapping[str, NDArray[Any]], free: frozenset[str], others: bool
) -> dict[str, NDArray[Any]]:
    """The arrays with NaN in lines beside those that integers among them name.

    free    tensors that may have such lines
    others  the pieces that the first run leaves; of few lines the last one
    """
    out = dict(arrays)
    ends: dict[str, list[NDArray[np.int64]]] = {}
    for t, dim in _bounds(machine, problem):
        ends.setdefault(dim, []).append(np.ravel(arrays[t.name]).astype(np.int64))
    numbers = _numbers(machine, problem)
    for t, dim in numbers:
        out[t.name] = _inside(t, arrays[t.name], problem.dim[dim])
    for name, axis, dim in _axes(machine, problem, free):
        size = problem.dim[dim]
        missing = np.zeros(size, dtype=np.bool_)
        if dim in ends:
            inner = np.unique(np.concatenate(ends[dim]))
            missing |= np.searchsorted(inner[inner > 0], np.arange(size), side="right") % 2 == (not others)
        if size > 1 and any(dim == numbered for _, numbered in numbers):
            missing[[0, -1] if size >= FEW_LINES else -1 if others else 0] = True
        turned = np.moveaxis(out[name].copy(), axis, 0)
        turned[missing] = np.nan
        out[name] = np.moveaxis(turned, 0, axis)
    return out


def _inside(tensor: TensorDeclaration, array: NDArray[Any], size: int) -> NDArray[Any]:
    """Numbers of lines of which the first half names neither the first nor the last, where any line may be named."""
    if tensor.values is None or tensor.values.law != "integers" or tensor.values.distinct or size < 3:
        return array
    out = np.ravel(array).copy()
    half = slice(-(-len(out) // 2))
    out[half] = np.clip(out[half], np.maximum(np.min(out), 1), size - 2)
    return out.reshape(array.shape)


def has_neighbours(machine: type[Declared], problem: Problem, free: frozenset[str]) -> bool:
    """Whether integers name lines of tensors that may have NaN, or cut them."""
    named = {dim for _, dim in (*_bounds(machine, problem), *_numbers(machine, problem))}
    return any(dim in named for _, _, dim in _axes(machine, problem, free))


def has_few_neighbours(machine: type[Declared], problem: Problem) -> bool:
    """Whether one half of the pieces, or of both ends, says too little by itself."""
    pieces = [math.prod(problem.operand(t.name).shape) for t, _ in _bounds(machine, problem)]
    lines = [problem.dim[dim] for _, dim in _numbers(machine, problem)]
    return min(pieces, default=FEW_PIECES) < FEW_PIECES or min(lines, default=FEW_LINES) < FEW_LINES


def _bounds(machine: type[Declared], problem: Problem) -> list[tuple[TensorDeclaration, str]]:
    """(tensor, dim): elements lie between lines along the dim, before the first and behind the last one included."""
    return [*_declared(machine, problem, 0)]


def _numbers(machine: type[Declared], problem: Problem) -> list[tuple[TensorDeclaration, str]]:
    """(tensor, dim): elements are numbers of lines along the dim."""
    return [*_declared(machine, problem, 1)]


def _declared(machine: type[Declared], problem: Problem, less: int) -> Iterator[tuple[TensorDeclaration, str]]:
    """Tensors of whole numbers up to a dim, less so many."""
    for t in _present(machine, problem):
        most = t.values.high if t.values is not None and t.values.whole else None
        if isinstance(most, Expr) and len(most.symbols) == 1:
            (dim,) = most.symbols
            if all(evaluate(most, {dim: size}) == size - less for size in (2, 11)):
                yield t, dim


def _axes(machine: type[Declared], problem: Problem, free: frozenset[str]) -> Iterator[tuple[str, int, str]]:
    """(tensor, axis, dim) of those that may have NaN, of dims that integers name."""
    named = {dim for _, dim in (*_bounds(machine, problem), *_numbers(machine, problem))}
    for t in _present(machine, problem):
        if t.name in free:
            yield from ((t.name, axis, dim) for axis, dim in enumerate(t.names()) if dim in named)


def _present(machine: type[Declared], problem: Problem) -> list[TensorDeclaration]:
    there = {o.name for o in problem.operands}
    return [t for t in machine.tensor_declarations() if t.name in there]
