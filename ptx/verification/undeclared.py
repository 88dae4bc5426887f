"""Which inputs of a machine have numbers of which nothing is said."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.distributions import Distribution
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand, Problem


def free_floats(machine: type[Declared], problem: Problem) -> frozenset[str]:
    """Tensors that are read, of a float type of a byte or more, of whose numbers nothing is said."""
    declared = input_distributions(machine, problem)
    return frozenset(o.name for o in problem.operands if o.access != "out" and is_free(o, declared))


def has_free_integers(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor that is read, or a scalar, is of an integer type of a byte or more of whose numbers nothing is
    said.
    """
    declared = input_distributions(machine, problem)
    read = [(o.name, o.dtype) for o in problem.operands if o.access != "out"]
    read += [(s.name, s.dtype) for s in machine.scalars(dict(problem.options))]
    return any(name not in declared and not kind.is_float and kind.bits >= 8 for name, kind in read)


def is_free(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    """Whether an operand is of a float type of a byte or more, and its machine declares no values of it."""
    return o.dtype.is_float and o.dtype.bits >= 8 and o.name not in declared
