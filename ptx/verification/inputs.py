"""Inputs of a verification, of every kind: what is drawn, and what is put among it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Problem
from tinygpu.ptx.verification.ascending import Together, with_everything_in_one
from tinygpu.ptx.verification.compared import elements_near, with_compared
from tinygpu.ptx.verification.encoded import encoded
from tinygpu.ptx.verification.last_elements import with_last_elements
from tinygpu.ptx.verification.lines import KINDS, with_lines
from tinygpu.ptx.verification.memory import host_tensors
from tinygpu.ptx.verification.neighbours import with_neighbours
from tinygpu.ptx.verification.operands import HostTensor
from tinygpu.ptx.verification.rising import with_rising
from tinygpu.ptx.verification.signs import with_signs
from tinygpu.ptx.verification.specials import with_specials
from tinygpu.ptx.verification.starts import with_lines_beyond
from tinygpu.ptx.verification.undeclared import free_floats
from tinygpu.ptx.verification.values import SMALL, declared_values, input_values, most_whole

Inputs = Literal[
    "integers", "signs", "other signs", "random", "specials", "other specials", "lines", "other lines", "neighbours",
    "other neighbours", "last", "other last", "rising", "compared", "blocks", "other blocks",
    "beyond", "other beyond",
]  # fmt: skip
# Whole numbers, sums of which are exact.
WHOLE: frozenset[Inputs] = frozenset(("integers", "signs", "other signs", "last", "other last"))
# Where ascending numbers leave one piece or segment everything.
_TOGETHER: Mapping[Inputs, Together] = {"lines": "last", "other signs": "first", "specials": "halves"}

# Scalars of whole-number runs, one after another: neighbours differ, so that one in another's place shows.
_SCALARS = (3, 2, 5, 4)


def make_inputs(
    machine: type[Declared], problem: Problem, inputs: Inputs, seed: int
) -> tuple[dict[str, HostTensor], dict[str, Any]]:
    """Operands and scalars of a run whose results are not judged; `verification.trial.draw` knows the answers, too."""
    arrays, scalars = drawn(machine, problem, inputs, seed, {o.name: o.shape for o in problem.operands})
    return host_tensors(problem, arrays), scalars


def drawn(
    machine: type[Declared],
    problem: Problem,
    inputs: Inputs,
    seed: int,
    shapes: Mapping[str, tuple[int, ...]],
    amplitude: int = SMALL,
    numbers: Sequence[float] = (),
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays of everything that a kernel reads, and scalars, from a seed.

    shapes     of the operands, or of windows of them
    amplitude  the largest whole number
    numbers    with which data are compared, or the one beyond which lines lie, for inputs that have them
    """
    rng = np.random.default_rng([seed, inputs not in WHOLE])
    declared = input_distributions(machine, problem)

    def values(name: str, dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
        if name in declared:
            return declared_values(rng, declared[name], dtype, shape, inputs in WHOLE, amplitude)
        return input_values(rng, dtype, shape, inputs in WHOLE, amplitude)

    arrays = {o.name: values(o.name, o.dtype, shapes[o.name]) for o in problem.operands if o.access != "out"}
    scalars: dict[str, Any] = {}
    for number, s in enumerate(machine.scalars(dict(problem.options))):
        if s.name in declared:
            end = _at_end(declared[s.name], s.dtype, inputs, amplitude, number)
            scalars[s.name] = end or values(s.name, s.dtype, ())[()]  # of zeros nothing is seen
        elif inputs in WHOLE:
            scalars[s.name] = s.dtype.numpy.type(_SCALARS[number % len(_SCALARS)])
        else:  # of integers as large as those of a tensor
            scalars[s.name] = input_values(rng, s.dtype, (), False, amplitude)[()]
        near = elements_near(s.dtype, declared.get(s.name), numbers, amplitude)
        if near and inputs == "compared":
            scalars[s.name] = encoded(np.asarray(near[0]), declared.get(s.name), s.dtype)[()]
    if inputs in ("signs", "other signs"):
        arrays = with_signs(problem, arrays, declared, inputs != "signs")
    elif inputs in ("specials", "other specials"):
        arrays = with_specials(rng, problem, arrays, declared, inputs == "other specials")
    elif inputs in ("lines", "other lines"):
        arrays = with_lines(problem, arrays, declared, 0 if inputs == "lines" else KINDS // 2)
    elif inputs in ("blocks", "other blocks"):
        arrays = with_lines(problem, arrays, declared, KINDS - 1 if inputs == "blocks" else 1, blocks=True)
    elif inputs in ("neighbours", "other neighbours"):
        arrays = with_neighbours(machine, problem, arrays, free_floats(machine, problem), inputs != "neighbours")
    elif inputs in ("last", "other last"):
        arrays = with_last_elements(problem, arrays, declared, inputs != "last")
    elif inputs == "rising":
        arrays = with_rising(problem, arrays, declared)
    elif inputs == "compared":
        arrays = with_compared(rng, problem, arrays, declared, numbers, amplitude)
    elif inputs in ("beyond", "other beyond"):
        arrays = with_lines_beyond(problem, arrays, declared, numbers[0], inputs != "beyond")
    if (together := _TOGETHER.get(inputs)) is not None:
        arrays = with_everything_in_one(arrays, declared, together)
    return arrays, scalars


def _at_end(declared: Distribution, dtype: DType, inputs: Inputs, amplitude: int, number: int) -> Any:
    """The least or the greatest number of a scalar where lines are of one sign; None in other runs.

    Neighbours are at opposite ends, in both runs: a rate that is next to nothing hides what it weighs.
    """
    if inputs not in ("signs", "other signs"):
        return None
    ends = declared.whole_ends(min(amplitude, most_whole(dtype)))
    end = ends[(number + (inputs == "other signs")) % 2]
    return encoded(np.asarray(end, dtype=np.float64), declared, dtype)[()]
