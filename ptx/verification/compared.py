"""Inputs among which are the numbers with which data are compared, and their neighbours.

Data that are drawn never come to `label != -100` or `x >= 6.5`: a program that compares with another number, or takes
`>` for `>=`, is right on them. Numbers are those that the reference writes, and those of the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.encoded import encoded
from tinygpu.ptx.verification.reference_numbers import compared_numbers
from tinygpu.ptx.verification.traced import traced

_COMPARES = ("<", "<=", ">", ">=", "==", "!=", "maximum", "minimum")
# Laws of which any number between the ends may be an element.
_ANY = ("uniform", "normal", "magnitudes", "integers")
# Float numbers beyond this are fills and starts, with which no sum is a number; those below are next to zero.
_MOST, _LEAST = 2.0**20, 2.0**-20
# One in so many elements is such a number.
_SHARE = 4
# Runs at most, of tensors of few elements.
MOST_TURNS = 4


def numbers_compared(kernel: Kernel, machine: type[Machine], problem: Problem) -> tuple[float, ...]:
    """The numbers with which the reference or the program compares something, the least first."""
    found = set(compared_numbers(machine))
    constants: dict[str, float] = {}
    for s in walk(traced(kernel, machine, problem).program.body):
        if isinstance(s, n.Constant) and isinstance(s.value, (int, float)):
            constants[s.result.name] = float(s.value)
        elif isinstance(s, n.Apply) and s.instruction.sign in _COMPARES:
            named = (constants.get(o.name) if isinstance(o, Tile) else o for o in s.operands)
            found |= {float(o) for o in named if isinstance(o, (int, float)) and math.isfinite(o)}
    return tuple(sorted(found))


def turns_of(
    machine: type[Declared], problem: Problem, numbers: Sequence[float], drawn: int
) -> list[tuple[float, ...]]:
    """The numbers of each run, those first that come first: one run where all tensors have room for all of them, some
    more where one has not, and none where no input comes to a number to which other runs do not come.

    drawn  up to which other runs have all whole numbers; they have those of declared integers, too, of which there are
           few
    """
    far = [number for number in numbers if abs(number) > drawn or number % 1]
    declared = input_distributions(machine, problem)
    read = [(o.name, o.dtype, max(math.prod(o.shape), 1)) for o in problem.operands if o.access != "out"]
    read += [(s.name, s.dtype, 1) for s in machine.scalars(dict(problem.options))]
    room = [
        room
        for name, kind, room in read
        if not _has_few(declared.get(name)) and elements_near(kind, declared.get(name), far)
    ]
    if not room:
        return []
    turns = min(-(-len(far) // min(room)), MOST_TURNS)
    begins = [number * len(far) // turns for number in range(turns)]
    return [(*far[begin:], *far[:begin]) for begin in begins]


def with_compared(
    rng: np.random.Generator,
    problem: Problem,
    arrays: Mapping[str, NDArray[Any]],
    declared: Mapping[str, Distribution],
    numbers: Sequence[float],
    amplitude: int,
) -> dict[str, NDArray[Any]]:
    """The arrays, a quarter of whose elements are such numbers, the next ones below, or the next ones above; more of
    small ones.

    amplitude  the largest undeclared integer
    """
    out = dict(arrays)
    for o in problem.operands:
        near = elements_near(o.dtype, declared.get(o.name), numbers, amplitude) if o.name in arrays else []
        if near and (size := arrays[o.name].size):
            count = max(size // _SHARE, min(len(near), size))
            changed = arrays[o.name].reshape(-1).copy()
            changed[rng.permutation(size)[:count]] = encoded(np.resize(near, count), declared.get(o.name), o.dtype)
            out[o.name] = changed.reshape(arrays[o.name].shape)
    return out


def elements_near(
    kind: DType, law: Distribution | None, numbers: Sequence[float], amplitude: int = 2**31 - 1
) -> list[float]:
    """The elements of a type, or of declared values, at some numbers, and behind these the next ones on both sides.

    Of a number that is no element those on both sides of the nearest: whether what is compared with it is rounded to
    the type is not said. Zero has none on its sides; other runs have those.
    """
    if kind.kind not in ("float", "signed", "unsigned") or kind.bits < 8:
        return []
    if law is not None and (law.law not in _ANY or law.distinct):
        return []
    low, high = (-float(amplitude), float(amplitude)) if law is None else (law.low, law.high)
    if kind.is_float:
        low, high = (-_MOST, _MOST) if law is None else (max(law.low, -_MOST), min(law.high, _MOST))
    whole = not kind.is_float or (law is not None and law.law == "integers")
    pairs = [_around(kind, number, whole) for number in numbers]
    found = dict.fromkeys([x for same, _ in pairs for x in same] + [x for _, beside in pairs for x in beside])
    return [x for x in found if low <= x <= high and _holds(kind, x)]


def _around(kind: DType, number: float, whole: bool) -> tuple[list[float], list[float]]:
    """The element that a number is, if it is one, and those beside it."""
    if whole:
        return [float(math.floor(number))], [math.floor(number) - 1.0, math.floor(number) + 1.0]
    if number == 0:
        return [number], []
    if not _LEAST <= abs(number) <= _MOST:
        return [], []
    step = 2.0 ** (math.frexp(number)[1] - 1 - kind.mantissa)
    nearest = round(number / step) * step
    return [number] if nearest == number else [], [nearest - step, nearest + step]


def _holds(kind: DType, number: float) -> bool:
    if not kind.is_float:
        least = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
        return least <= number < least + (1 << kind.bits)
    with np.errstate(over="ignore"):
        return float(encoded(np.asarray(number), None, kind).astype(np.float64)) == number


def _has_few(law: Distribution | None) -> bool:
    return law is not None and law.law == "integers" and law.high - law.low < 16
