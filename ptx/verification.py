"""Verification: runs a kernel's PTX in the emulator and compares it with the machine's reference.

What ships is what was verified: dims, leading dimensions and the grid are launch arguments, so the same text runs on a
small *derived problem* that keeps every fact for which the kernel was specialised, has full and partial tiles along each
axis as the real one has, and enough rounds of each loop that every pipeline slot is reused. Inputs are first small
integers, for which every sum is exact and the result must agree bit for bit; then random numbers within a stated bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.emulator import Counters, DeviceBuffer, EmulationFault, LineCounters, emulate
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.operands import HostTensor, host_tensor

Order = Literal["late", "early", "random"]
Inputs = Literal["integers", "random"]


@dataclass(frozen=True, slots=True)
class Check:
    """One run.

    inputs      "integers" (bit for bit) or "random" (within the bound)
    order       when asynchronous work lands
    max_error   largest |result - reference|
    bound       largest error that rounding explains, where max_error was found
    wrong       elements beyond the bound (for integers: that differ in any bit)
    fault       the emulator's sentence, or ""
    """

    inputs: Inputs
    order: Order
    max_error: float
    bound: float
    wrong: int
    elements: int
    fault: str = ""

    @property
    def passed(self) -> bool:
        return not self.fault and not self.wrong

    def __str__(self) -> str:
        if self.fault:
            return f"{self.inputs}, {self.order}: FAULT {self.fault}"
        judged = "bit for bit" if self.inputs == "integers" and self.bound == 0 else f"bound {self.bound:.3g}"
        verdict = "ok" if self.passed else f"WRONG in {self.wrong:,} of {self.elements:,} elements"
        return f"{self.inputs}, {self.order}: {verdict}, max error {self.max_error:.3g} ({judged})"


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """What the emulator found.

    problem   the derived problem that was run
    checks    every run
    counters  of the first run: exact counts of sectors, wavefronts and instructions
    lines     the same per PTX line
    """

    kernel: str
    problem: Problem
    checks: tuple[Check, ...]
    counters: Counters | None = None
    lines: dict[int, LineCounters] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(c.passed for c in self.checks)

    def __str__(self) -> str:
        head = f"{self.kernel} on {self.problem}: {'emulated, right' if self.passed else 'WRONG'}"
        return "\n".join([head, *(f"  {c}" for c in self.checks)])


def derive(kernel: Kernel, problem: Problem, rounds: int | None = None) -> Problem:
    """The small problem on which a kernel is verified: same facts, same remainders, fewer tiles.

    Along each grid axis: two full tiles, or one full and one partial tile where the real problem has a remainder. Along
    each loop: 2 x stages + 1 rounds and the remainder (`rounds` overrides it), but no more than the problem has.
    """
    extents = dict(kernel.tiles)
    dims = problem.dim
    out = {}
    for name, size in dims.items():
        if name in extents:
            extent = extents[name]
            small = extent + size % extent if size % extent else 2 * extent
        else:
            small = size
        for dim, step, stages in kernel.steps:
            if dim == name:
                wanted = (rounds or 2 * stages + 1) * step + size % step
                small = max(small, wanted) if name in extents else wanted
        out[name] = min(size, small)
    return resized(kernel, problem, out)


def resized(kernel: Kernel, problem: Problem, dims: dict[str, int]) -> Problem:
    """The problem with other dims; leading dimensions keep their gap and the facts about them."""
    operands = []
    for o in problem.operands:
        names = _dim_names(problem, o, kernel)
        shape = tuple(dims[d] for d in names)
        gap = o.ld - o.shape[o.contiguous_axis]
        ld = shape[o.contiguous_axis] + gap
        for fact in kernel.facts:
            if fact.name == f"{o.name}.ld" and ld % fact.divisor:
                ld += fact.divisor - ld % fact.divisor
        operands.append(replace(o, shape=shape, ld=ld))
    made = Problem(tuple((d, dims[d]) for d, _ in problem.dims), tuple(operands), problem.options)
    kernel.check(made)
    return made


def _dim_names(problem: Problem, operand: Operand, kernel: Kernel) -> tuple[str, ...]:
    return dict(kernel.shapes)[operand.name]


def verify(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    *,
    orders: Sequence[Order] = ("late", "early", "random"),
    random_inputs: bool = True,
    seed: int = 0,
    derived: Problem | None = None,
) -> Verification:
    """Emulates `kernel` on the problem derived from `problem`, under several orders of asynchronous work."""
    small = derived or derive(kernel, problem)
    checks: list[Check] = []
    counters: Counters | None = None
    lines: dict[int, LineCounters] = {}
    runs: list[tuple[Inputs, Order]] = [("integers", order) for order in orders]
    if random_inputs:
        runs.append(("random", orders[0]))
    for inputs, order in runs:
        operands, scalars = make_inputs(machine, small, inputs, seed)
        try:
            report = emulate(
                kernel.ptx,
                grid=kernel.grid(small),
                block=(kernel.threads, 1, 1),
                args=arguments(kernel, small, operands, scalars),
                dynamic_smem=kernel.smem_bytes,
                seed=seed,
                order=order,
            )
        except EmulationFault as fault:
            checks.append(Check(inputs, order, float("nan"), 0.0, 0, 0, str(fault)))
            continue
        if counters is None:
            counters, lines = report.counters, report.lines
        checks.append(compare(machine, small, operands, scalars, inputs, order, seed))
    return Verification(kernel.name, small, tuple(checks), counters, lines)


def arguments(
    kernel: Kernel, problem: Problem, operands: dict[str, HostTensor], scalars: dict[str, Any]
) -> list[Any]:
    """Launch arguments in the order of the kernel's parameters."""
    out: list[Any] = []
    for p in kernel.parameters:
        if p.kind == "pointer":
            tensor = operands[p.name]
            written = tensor.operand.access == "out"
            out.append(DeviceBuffer(tensor.storage, offset=tensor.offset_bytes, initialised=not written, name=p.name))
        elif p.kind == "ld":
            out.append(np.uint32(problem.operand(p.name).ld))
        elif p.kind == "dim":
            out.append(np.uint32(problem.dim[p.name]))
        else:
            out.append(scalars[p.name])
    return out


def make_inputs(
    machine: type[Machine], problem: Problem, inputs: Inputs, seed: int
) -> tuple[dict[str, HostTensor], dict[str, Any]]:
    """Operands and scalars: integers from -3 to 3, or random numbers in [-1, 1) (integers again for integer types)."""
    rng = np.random.default_rng([seed, inputs == "random"])
    tensors = {}
    for o in problem.operands:
        t = host_tensor(o)
        if o.access != "out":
            t.array[...] = _values(rng, o.dtype, o.shape, inputs)
        tensors[o.name] = t
    scalars: dict[str, Any] = {}
    for s in machine.scalar_declarations():
        if s.dtype.name == "f32":
            scalars[s.name] = np.float32(3 if inputs == "integers" else rng.uniform(-1, 1))
        else:
            scalars[s.name] = s.dtype.numpy.type(3)
    return tensors, scalars


def _values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], inputs: Inputs) -> NDArray[Any]:
    if not dtype.is_float:
        low = 0 if dtype.kind == "unsigned" else -3
        return rng.integers(low, 4, shape).astype(dtype.numpy)
    if inputs == "integers":
        return rng.integers(-3, 4, shape).astype(dtype.numpy)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    if dtype.name == "tf32":
        return round_tf32(values)
    return values.astype(dtype.numpy)


def round_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """f32 values with their low 13 mantissa bits cleared, as the tensor core reads them."""
    bits = values.view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def compare(
    machine: type[Machine],
    problem: Problem,
    operands: dict[str, HostTensor],
    scalars: dict[str, Any],
    inputs: Inputs,
    order: Order,
    seed: int,
) -> Check:
    """The outputs of a run against the reference in double precision."""
    fresh, _ = make_inputs(machine, problem, inputs, seed)
    expected = _reference(machine, problem, fresh, scalars, absolute=False)
    magnitude = _reference(machine, problem, fresh, scalars, absolute=True)
    worst, bound_there, wrong, elements = 0.0, 0.0, 0, 0
    for o in problem.operands:
        if o.access == "in":
            continue
        got = operands[o.name].array
        want = np.broadcast_to(np.asarray(expected[o.name]), o.shape)
        rounded = want.astype(o.dtype.numpy)
        exact = inputs == "integers" and machine.precision(dict(problem.options))[0]
        values, target = got.astype(np.float64), want.astype(np.float64)
        bound = np.zeros(o.shape)
        if exact:
            bad = got.view(_bits(o.dtype)) != rounded.view(_bits(o.dtype))
            target = rounded.astype(np.float64)
            bad &= ~((values == 0) & (target == 0))  # the sign of a zero is not compared
        else:
            bound = error_bound(problem, o, target, np.asarray(magnitude[o.name], dtype=np.float64), machine)
            bad = ~(np.abs(values - target) <= bound)
        with np.errstate(invalid="ignore"):
            error = np.abs(values - target)
        error = np.where(np.isnan(error) & (np.isnan(values) != np.isnan(target)), np.inf, np.nan_to_num(error))
        where = np.unravel_index(int(np.argmax(error)), error.shape)
        if float(error[where]) >= worst:
            worst, bound_there = float(error[where]), float(np.broadcast_to(bound, o.shape)[where])
        wrong += int(bad.sum())
        elements += bad.size
        if not operands[o.name].gaps_intact():
            return Check(inputs, order, worst, bound_there, wrong, elements, f"{o.name}: bytes between its rows were written")
    return Check(inputs, order, worst, bound_there, wrong, elements)


def _bits(dtype: DType) -> Any:
    return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[dtype.numpy.itemsize * 8]


def _reference(
    machine: type[Machine],
    problem: Problem,
    operands: dict[str, HostTensor],
    scalars: dict[str, Any],
    *,
    absolute: bool,
) -> dict[str, NDArray[Any]]:
    """The reference on double-precision copies of the inputs (or their absolute values)."""
    given: dict[str, Any] = {}
    for o in problem.operands:
        if o.access == "out":
            continue
        array = operands[o.name].array
        wide = array.astype(np.float64 if o.dtype.is_float else np.int64)
        given[o.name] = np.abs(wide) if absolute else wide
    for name, value in scalars.items():
        given[name] = abs(value.item()) if absolute else value.item()
    with np.errstate(all="ignore"):
        result = machine.reference(**given, **dict(problem.options))
    outputs = [o.name for o in problem.operands if o.access != "in"]
    if isinstance(result, dict):
        return result
    return {outputs[0]: result}


def error_bound(
    problem: Problem, output: Operand, expected: NDArray[np.float64], magnitude: NDArray[np.float64], machine: type[Machine]
) -> NDArray[np.float64]:
    """Largest error that rounding explains, per element.

    Sums of T terms in f32 are off by at most T x 2^-24 of the sum of absolute values (Higham, Accuracy and Stability, 4.2;
    taken twice, for products and sums); the result is rounded once to the output's type; approximate functions add
    the machine's `approximation`, relative to both.
    """
    elements = max(int(np.prod(o.shape)) for o in problem.operands)
    terms = max(1, elements // max(1, int(np.prod(output.shape)))) + max(problem.dim.values(), default=1)
    scale = np.maximum(np.abs(np.nan_to_num(magnitude)), np.abs(np.nan_to_num(expected)))
    unit = 2.0**-24 if output.dtype.name != "f64" else 2.0**-53
    last = 2.0 ** -(output.dtype.mantissa + 1) if output.dtype.is_float else 0.0
    smallest = 2.0**-24 if output.dtype.name == "f16" else 2.0**-126
    bound = 2 * (terms + 8) * unit * scale + last * np.abs(expected) + machine.precision(dict(problem.options))[1] * scale + smallest
    return np.asarray(np.broadcast_to(bound, output.shape), dtype=np.float64)
