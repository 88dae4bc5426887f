"""A trial: inputs of a verification, and what the machine's reference makes of them, worked out once for all runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.declared import Declared
from tinygpu.language.instruction import MatrixMultiply
from tinygpu.language.problem import Problem
from tinygpu.language.reference import constants_of, precision_of, reference_of
from tinygpu.ptx.bounds.answers import Answer, answers
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.inputs import WHOLE, Inputs, drawn
from tinygpu.ptx.verification.memory import host_tensors
from tinygpu.ptx.verification.operands import HostTensor
from tinygpu.ptx.verification.undeclared import has_free_integers
from tinygpu.ptx.verification.values import SMALL, whole_ends
from tinygpu.ptx.verification.whole_results import in_floats

Made = TypeVar("Made")
# Largest whole numbers of inputs, of which those are taken with which no sum becomes inexact.
_AMPLITUDES = (64, 32, 16, 8, SMALL)
# The same of integer types among random inputs: every result has a place in its type. Single precision holds no more
# than 24 bits of them.
_WIDE_AMPLITUDES = (2**32 - 1, 2**31 - 1, 2**30, 2**27 + 1, 2**25 + 1, 2**20, 2**15, 2**10, SMALL)
# Few elements may fit by luck, where a difference on the way does not: so many are drawn to see, in so many draws more.
_FEW, _MOST_DRAWN = 64, 31


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Inputs and answers of one problem.

    arrays     what a kernel reads, by name
    answers    what it may write, by name
    amplitude  largest whole number among the inputs of types in which sums of these are exact
    """

    problem: Problem
    inputs: Inputs
    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, Any]
    answers: Mapping[str, Answer]
    amplitude: int = SMALL

    def operands(self) -> dict[str, HostTensor]:
        """Fresh tensors in host memory: inputs as they are, outputs poisoned."""
        return host_tensors(self.problem, self.arrays)

    def part(self, places: Mapping[str, tuple[slice, ...]], shapes: Mapping[str, tuple[int, ...]]) -> Trial:
        """The trial of a part of every output.

        places  where the part of an output lies, in an array of its shape
        shapes  of the outputs
        """
        found = {}
        for name, place in places.items():
            whole = self.answers[name]
            value, low, high = (np.broadcast_to(v, shapes[name])[place] for v in (whole.value, whole.low, whole.high))
            found[name] = replace(whole, value=value, low=low, high=high)
        return replace(self, answers=found)


def rounding_of(machine: type[Declared], problem: Problem) -> Rounding:
    """How far results of a machine may be off for one problem."""
    exact, approximation = precision_of(machine, dict(problem.options))
    wide = all(o.dtype.name == "f64" for o in problem.operands if o.access != "in" and o.dtype.is_float)
    listed = [*machine.declarations(MatrixMultiply), *(o for c in machine.choices() for o in c.options)]
    kept = next((i.rounds_to for i in listed if isinstance(i, MatrixMultiply) and i.rounds_to), "")
    wide = wide and any(o.dtype.name == "f64" for o in problem.operands)
    return Rounding(exact, approximation, wide, kept=kept)


def adds_short(kernel: Kernel, problem: Problem) -> bool:
    """Whether a kernel multiplies 8-bit floats by Hopper's wgmma, which keeps few bits of their sums."""
    narrow = any(o.dtype.is_float and o.dtype.bits == 8 for o in problem.operands)
    return narrow and kernel.architecture == "sm_90a" and "wgmma.mma_async" in kernel.ptx


def draw(
    machine: type[Declared],
    problem: Problem,
    inputs: Inputs,
    seed: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    point: Mapping[str, Any] | None = None,
    at_most: int | None = None,
    numbers: Sequence[float] = (),
) -> Trial:
    """Inputs drawn from a seed, with their answers.

    Whole numbers are as large as they can be while every sum of them stays exact: the larger they are, the more bits of
    the accumulators and of the last rounding they try. Among random inputs those of integer types are as large as they
    can be while results fit into theirs.

    shapes  of windows of the operands; theirs, where they are not given
    point   of the candidate, for a reference that asks for parameters
    at_most amplitude to begin with: what was too large for another problem of the machine is not tried
    numbers with which data are compared, of a run that has them
    """
    rounding = rounding_of(machine, problem)
    shapes = shapes or {o.name: o.shape for o in problem.operands}
    amplitudes: tuple[int, ...] = (SMALL,)
    if inputs in WHOLE and rounding.exact:
        amplitudes = _AMPLITUDES
    elif inputs not in WHOLE and has_free_integers(machine, problem):
        amplitudes = _WIDE_AMPLITUDES
    fits = _holds if inputs in WHOLE else _has_place
    elements = min(math.prod(shape) for shape in shapes.values())
    others = min(-(-_FEW // max(elements, 1)) - 1, _MOST_DRAWN) if amplitudes is _WIDE_AMPLITUDES else 0

    def made(amplitude: int, seed: int) -> tuple[Trial, bool]:
        arrays, scalars = drawn(machine, problem, inputs, seed, shapes, amplitude, numbers)
        found = reference_answers(machine, problem, arrays, scalars, rounding, shapes, point)
        trial = Trial(problem, inputs, arrays, scalars, found, amplitude)
        return trial, all(fits(problem, name, a, rounding) for name, a in found.items())

    def tried(amplitude: int) -> tuple[Trial, bool]:
        trial, holds = made(amplitude, seed)
        return trial, holds and all(made(amplitude, seed + more)[1] for more in range(1, others + 1))

    return largest([a for a in amplitudes if at_most is None or a <= at_most or a == SMALL], tried)


def largest(amplitudes: Sequence[int], tried: Callable[[int], tuple[Made, bool]]) -> Made:
    """What is made with the first amplitude that fits, or with the last one where none does.

    Few are tried: most often the first fits, and where the last does not, none before it does; else between the two by
    halves.

    amplitudes  from large to small
    tried       what is made with one, and whether it fits
    """
    found, fits = tried(amplitudes[0])
    if fits or len(amplitudes) == 1:
        return found
    found, fits = tried(amplitudes[-1])
    beyond, within = 0, len(amplitudes) - 1
    while fits and within - beyond > 1:
        middle = (beyond + within) // 2
        made, holds = tried(amplitudes[middle])
        if holds:
            found, within = made, middle
        else:
            beyond = middle
    return found


def reference_answers(
    machine: type[Declared],
    problem: Problem,
    arrays: Mapping[str, NDArray[Any]],
    scalars: Mapping[str, Any],
    rounding: Rounding,
    shapes: Mapping[str, tuple[int, ...]],
    point: Mapping[str, Any] | None = None,
) -> dict[str, Answer]:
    """What every output may be, by the machine's reference in 64 bits."""
    wide: dict[str, Any] = {
        name: array.astype(np.float64 if problem.operand(name).dtype.is_float else np.int64)
        for name, array in arrays.items()
    }
    wide |= {name: value.item() for name, value in scalars.items()}
    outputs = {o.name: shapes.get(o.name, o.shape) for o in problem.operands if o.access != "in"}
    constants = constants_of(machine, problem, point or {})
    kinds = {name: problem.operand(name).dtype.numpy for name in arrays}
    reference = reference_of(machine, outputs)

    def answered(arguments: Mapping[str, Any]) -> dict[str, Answer]:
        return answers(reference, arguments, constants, list(outputs), rounding, kinds)

    return in_floats(answered(wide), {name: problem.operand(name).dtype for name in outputs}, wide, answered)


def _has_place(problem: Problem, output: str, answer: Answer, rounding: Rounding) -> bool:
    """Whether no number of an output is beyond its type, nor one on the way beyond 64 bits."""
    least, most = whole_ends(problem.operand(output).dtype)
    with np.errstate(invalid="ignore"):
        return "wrapped" not in answer.marks and not np.any((answer.value < least) | (answer.value > most))


def _holds(problem: Problem, output: str, answer: Answer, rounding: Rounding) -> bool:
    """Whether no whole number had to be rounded on the way to an output, and none saturates in its type.

    Arithmetic that is itself approximate, in 16 bits, holds small numbers only.
    """
    narrow = rounding.approximation and "approximated" not in answer.marks
    if narrow or answer.followed or not answer.marks.isdisjoint(("outgrown", "wrapped")):
        return False
    least, most = whole_ends(problem.operand(output).dtype)
    return bool(np.min(answer.value, initial=0) >= least and np.max(answer.value, initial=0) <= most)
