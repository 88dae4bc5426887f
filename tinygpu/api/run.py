"""Run the program of a candidate in NumPy, on arrays of the user's or on inputs as verification draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tinygpu.api.arguments import load_array
from tinygpu.api.choosing import Chosen
from tinygpu.api.on_arrays import bound, run_program
from tinygpu.language.problem import Operand
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.verification.comparison import Difference, difference
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.trial import Trial, draw, reference_answers, rounding_of
from tinygpu.seeds import check_seed


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What a program made, beside what the machine's reference makes of the same inputs.

    trial        what it read
    results      by name
    differences  by name
    """

    made: Chosen
    trial: Trial
    results: Mapping[str, NDArray[Any]]
    differences: Mapping[str, Difference]

    @property
    def passed(self) -> bool:
        return not any(d.wrong for d in self.differences.values())

    def array(self, name: str) -> NDArray[Any]:
        """A tensor as the program left it: what it only read as it was."""
        return self.results[name] if name in self.results else self.trial.arrays[name]


def run_drawn(made: Chosen, inputs: Inputs, seed: int = 0) -> Ran:
    """The program of a kernel on inputs that are drawn from a seed."""
    check_seed(seed)
    return _ran(made, draw(made.space.machine, made.space.problem, inputs, seed, point=made.point))


def run_given(made: Chosen, arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> Ran:
    """The program of a kernel on arrays of the user's, one for every tensor that it reads.

    Raises WrongArray where one is missing, is none of the machine's, or does not fit.
    """
    machine, problem = made.space.machine, made.space.problem
    wanted = [o.name for o in problem.operands if o.access != "out"]
    for name in [n for n in (*arrays, *wanted) if (n in arrays) != (n in wanted)][:1]:
        what = f"reads no {name!r}" if name in arrays else f"reads {name}, and no array was given for it"
        raise WrongArray(f"{machine.__name__} {what}; it takes arrays for {', '.join(wanted)}")
    given, numbers = bound(made, [_viewed(problem.operand(name), arrays[name]) for name in wanted], scalars)
    shapes = {o.name: o.shape for o in problem.operands}
    rounding = rounding_of(machine, problem)
    answers = reference_answers(machine, problem, given, numbers, rounding, shapes, made.point)
    return _ran(made, Trial(problem, "random", given, numbers, answers))


def load_inputs(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    """The arrays of .npy files, by name."""
    return {name: load_array(path) for name, path in files.items()}


def _viewed(operand: Operand, array: NDArray[Any]) -> NDArray[Any]:
    """NumPy files do not know the types of ml_dtypes; they keep their bytes."""
    kind = operand.dtype.numpy
    return array.view(kind) if array.dtype.kind == "V" and array.dtype.itemsize == kind.itemsize else array


def _ran(made: Chosen, trial: Trial) -> Ran:
    results = run_program(made, trial.arrays, trial.scalars)
    found = {name: difference(trial.problem.operand(name), a, trial.answers[name]) for name, a in results.items()}
    return Ran(made, trial, results, found)
