"""Compares a kernel's outputs with the machine's reference: bit for bit, or within the error that rounding explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.inputs import Inputs, make_inputs
from tinygpu.ptx.operands import HostTensor


@dataclass(frozen=True, slots=True)
class Check:
    """One run.

    inputs      "integers" (bit for bit) or "random" (within the bound)
    order       when asynchronous work lands
    max_error   largest |result - reference|
    bound       largest error that rounding explains, where max_error was found
    wrong       elements beyond the bound (for integers: that differ in any bit)
    fault       the emulator's sentence, or ""
    where       which CTAs of the real problem were run; "" for the whole derived problem
    """

    inputs: Inputs
    order: Order
    max_error: float
    bound: float
    wrong: int
    elements: int
    fault: str = ""
    where: str = ""

    @property
    def passed(self) -> bool:
        return not self.fault and not self.wrong

    def __str__(self) -> str:
        name = f"{self.inputs}, {self.order}{', ' + self.where if self.where else ''}"
        if self.fault:
            return f"{name}: FAULT {self.fault}"
        judged = "bit for bit" if self.inputs == "integers" and self.bound == 0 else f"bound {self.bound:.3g}"
        verdict = "ok" if self.passed else f"WRONG in {self.wrong:,} of {self.elements:,} elements"
        return f"{name}: {verdict}, max error {self.max_error:.3g} ({judged})"


@dataclass(frozen=True, slots=True)
class Difference:
    """One output against its reference.

    error   largest |result - reference|
    bound   the bound at that place (0: bit for bit)
    wrong   elements beyond the bound
    """

    error: float
    bound: float
    wrong: int
    elements: int


def compare(
    machine: type[Machine],
    problem: Problem,
    operands: dict[str, HostTensor],
    scalars: dict[str, Any],
    inputs: Inputs,
    order: Order,
    seed: int,
    terms: int,
) -> Check:
    """The outputs of a run against the reference in double precision, on the same inputs made afresh."""
    fresh, _ = make_inputs(machine, problem, inputs, seed)
    arrays = {o.name: fresh[o.name].array for o in problem.operands if o.access != "out"}
    got = {o.name: operands[o.name].array for o in problem.operands if o.access != "in"}
    check = compare_arrays(machine, problem, arrays, scalars, got, inputs, order, terms)
    for o in problem.operands:
        if o.access != "in" and not operands[o.name].gaps_intact():
            sentence = f"{o.name}: bytes between its rows were written"
            return Check(inputs, order, check.max_error, check.bound, check.wrong, check.elements, sentence)
    return check


def compare_arrays(
    machine: type[Machine],
    problem: Problem,
    given: Mapping[str, NDArray[Any]],
    scalars: Mapping[str, Any],
    got: Mapping[str, NDArray[Any]],
    inputs: Inputs,
    order: Order,
    terms: int,
    where: str = "",
) -> Check:
    """Outputs against the reference on the inputs `given`; the arrays may be a window of the problem's tensors."""
    expected = reference(machine, problem, given, scalars, absolute=False)
    magnitude = reference(machine, problem, given, scalars, absolute=True)
    exact = inputs == "integers" and machine.precision(dict(problem.options))[0]
    found = [
        difference(machine, problem, problem.operand(name), result, expected[name], magnitude[name], exact, terms)
        for name, result in got.items()
    ]
    worst = max(found, key=lambda d: d.error)
    wrong, elements = sum(d.wrong for d in found), sum(d.elements for d in found)
    return Check(inputs, order, worst.error, worst.bound, wrong, elements, where=where)


def difference(
    machine: type[Machine],
    problem: Problem,
    output: Operand,
    got: NDArray[Any],
    expected: Any,
    magnitude: Any,
    exact: bool,
    terms: int,
) -> Difference:
    """One output array against the reference."""
    want = np.broadcast_to(np.asarray(expected), got.shape)
    rounded = want.astype(output.dtype.numpy)
    values, target = got.astype(np.float64), want.astype(np.float64)
    bound = np.zeros(got.shape)
    if exact:
        bad = np.ascontiguousarray(got).view(_bits(output.dtype)) != rounded.view(_bits(output.dtype))
        target = rounded.astype(np.float64)
        bad &= ~((values == 0) & (target == 0))  # the sign of a zero is not compared
    else:
        bound = error_bound(problem, output, target, np.asarray(magnitude, dtype=np.float64), machine, terms)
        same = (values == target) | (np.isnan(values) & np.isnan(target))
        bad = ~((np.abs(values - target) <= bound) | same)
    with np.errstate(invalid="ignore"):
        error = np.where(values == target, 0.0, np.abs(values - target))
    one_sided = np.isnan(error) & (np.isnan(values) != np.isnan(target))
    error = np.where(one_sided, np.inf, np.nan_to_num(error, posinf=np.inf))
    place = np.unravel_index(int(np.argmax(error)), error.shape)
    return Difference(float(error[place]), float(bound[place]), int(bad.sum()), bad.size)


def _bits(dtype: DType) -> Any:
    return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[dtype.numpy.itemsize * 8]


def reference(
    machine: type[Machine],
    problem: Problem,
    given: Mapping[str, NDArray[Any]],
    scalars: Mapping[str, Any],
    *,
    absolute: bool,
) -> dict[str, NDArray[Any]]:
    """The machine's reference on double-precision copies of the inputs (or on their absolute values), by output."""
    wide: dict[str, Any] = {}
    for name, array in given.items():
        copy = array.astype(np.float64 if problem.operand(name).dtype.is_float else np.int64)
        wide[name] = np.abs(copy) if absolute else copy
    for name, value in scalars.items():
        wide[name] = abs(value.item()) if absolute else value.item()
    with np.errstate(all="ignore"):
        result = machine.reference(**wide, **dict(problem.options))
    outputs = [o.name for o in problem.operands if o.access != "in"]
    if isinstance(result, dict):
        return result
    return {outputs[0]: result}


def error_bound(
    problem: Problem,
    output: Operand,
    expected: NDArray[np.float64],
    magnitude: NDArray[np.float64],
    machine: type[Machine],
    terms: int,
) -> NDArray[np.float64]:
    """Largest error that rounding explains, per element.

    Sums of T terms in f32 are off by at most T x 2^-24 of the sum of absolute values (Higham, Accuracy and Stability,
    4.2; taken twice, for products and sums); the result is rounded once to the output's type; approximate functions
    add the machine's `approximation`, relative to both.
    """
    scale = np.maximum(np.abs(np.nan_to_num(magnitude)), np.abs(np.nan_to_num(expected)))
    unit = 2.0**-24 if output.dtype.name != "f64" else 2.0**-53
    last = 2.0 ** -(output.dtype.mantissa + 1) if output.dtype.is_float else 0.0
    smallest = half_smallest(output.dtype)
    approximate = machine.precision(dict(problem.options))[1] * scale
    bound = 2 * (terms + 8) * unit * scale + last * np.abs(expected) + approximate + smallest
    return np.asarray(np.broadcast_to(bound, expected.shape), dtype=np.float64)


def half_smallest(dtype: DType) -> float:
    """Half of the smallest subnormal of a float type: what rounding may add to a result near zero."""
    if not dtype.is_float:
        return 0.0
    bias = (1 << (dtype.exponent - 1)) - 1
    return 2.0 ** max(1 - bias - dtype.mantissa - 1, -1074)
