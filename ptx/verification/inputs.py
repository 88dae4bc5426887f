"""Inputs of a verification: integers whose sums are exact, random numbers, special values; and launch arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType, tf32_read
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.emulator import DeviceBuffer
from tinygpu.ptx.launching.emulated import emulated_arguments
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.verification.ascending import Together, with_everything_in_one
from tinygpu.ptx.verification.compared import elements_near, with_compared
from tinygpu.ptx.verification.encoded import encoded
from tinygpu.ptx.verification.last_elements import with_last_elements
from tinygpu.ptx.verification.neighbours import with_neighbours
from tinygpu.ptx.verification.operands import POISON, HostTensor, host_tensor
from tinygpu.ptx.verification.reference_numbers import reduces_over_axes
from tinygpu.ptx.verification.rising import with_rising
from tinygpu.ptx.verification.signs import signed_operands, with_signs

Inputs = Literal[
    "integers", "signs", "other signs", "random", "specials", "other specials", "lines", "other lines", "neighbours",
    "other neighbours", "last", "other last", "rising", "compared",
    "blocks", "other blocks",
]  # fmt: skip
# Whole numbers, sums of which are exact.
WHOLE: frozenset[Inputs] = frozenset(("integers", "signs", "other signs", "last", "other last"))
# Where ascending numbers leave one piece or segment everything.
_TOGETHER: Mapping[Inputs, Together] = {"lines": "last", "other signs": "first", "specials": "halves"}

# Kinds of lines.
KINDS = 4
# Special values of a tensor at least, or it has others in another run.
FEW_SPECIALS = 4

# Whole numbers up to here are inputs of every machine.
SMALL = 3
# Scalars of whole-number runs, one after another: neighbours differ, so that one in another's place shows.
_SCALARS = (3, 2, 5, 4)
# The largest element of a float type, and its smallest above zero (8-bit floats: Open Compute Project).
_EXTREMES: dict[str, tuple[float, float]] = {
    "f64": (1.7976931348623157e308, 5e-324),
    "f32": (3.4028234663852886e38, 2.0**-149),
    "tf32": (3.4011621342146535e38, 2.0**-136),
    "bf16": (3.3895313892515355e38, 2.0**-133),
    "f16": (65504.0, 2.0**-24),
    "e4m3": (448.0, 2.0**-9),
    "e5m2": (57344.0, 2.0**-16),
    "e2m3": (7.5, 0.125),
    "e3m2": (28.0, 0.0625),
    "e2m1": (6.0, 0.5),
}
# Large enough for exp to overflow in single precision.
_LARGE = 1000.0
# What lines of one sign lie around: the exponential of it is zero in single precision, and its square an f16.
_BELOW = -240.0
# What next to zero is, beside 1: its square is less than usual epsilons.
_NEAR = 2.0**-10


def make_inputs(
    machine: type[Declared], problem: Problem, inputs: Inputs, seed: int
) -> tuple[dict[str, HostTensor], dict[str, Any]]:
    """Operands and scalars of a run whose results are not judged; `verification.trial.draw` knows the answers, too."""
    arrays, scalars = drawn(machine, problem, inputs, seed, {o.name: o.shape for o in problem.operands})
    return host_tensors(problem, arrays), scalars


def host_tensors(problem: Problem, arrays: Mapping[str, NDArray[Any]]) -> dict[str, HostTensor]:
    """Fresh tensors in host memory: inputs as they are, all else poisoned."""
    tensors = {o.name: host_tensor(o) for o in problem.operands}
    for name, array in arrays.items():
        tensors[name].write(array)
    return tensors


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
    numbers    with which data are compared, for inputs that have them
    """
    rng = np.random.default_rng([seed, inputs not in WHOLE])
    declared = input_distributions(machine, problem)

    def values(name: str, dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
        if name in declared:
            return declared_values(rng, declared[name], dtype, shape, inputs, amplitude)
        return input_values(rng, dtype, shape, inputs, amplitude)

    arrays = {o.name: values(o.name, o.dtype, shapes[o.name]) for o in problem.operands if o.access != "out"}
    scalars: dict[str, Any] = {}
    for number, s in enumerate(machine.scalars(dict(problem.options))):
        if s.name in declared:
            end = _at_end(declared[s.name], s.dtype, inputs, amplitude, number)
            scalars[s.name] = end or values(s.name, s.dtype, ())[()]  # of zeros nothing is seen
        elif inputs in WHOLE:
            scalars[s.name] = s.dtype.numpy.type(_SCALARS[number % len(_SCALARS)])
        else:  # of integers as large as those of a tensor
            scalars[s.name] = input_values(rng, s.dtype, (), inputs, amplitude)[()]
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
    if (together := _TOGETHER.get(inputs)) is not None:
        arrays = with_everything_in_one(arrays, declared, together)
    return arrays, scalars


def free_floats(machine: type[Declared], problem: Problem) -> frozenset[str]:
    """Tensors that are read, of a float type of a byte or more, of whose numbers nothing is said."""
    declared = input_distributions(machine, problem)
    return frozenset(o.name for o in problem.operands if o.access != "out" and _is_free(o, declared))


def has_other_signs(machine: type[Declared], problem: Problem) -> bool:
    """Whether another tensor than the first may have lines of either sign, or scalars have two ends."""
    declared = input_distributions(machine, problem)
    ends = any(s.name in declared for s in machine.scalars(dict(problem.options)))
    return ends or len(signed_operands(problem, declared)) > 1


def has_single_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of numbers of either sign is one line along an axis: of it one end is the last, and no other."""
    shapes = [o.shape for o in signed_operands(problem, input_distributions(machine, problem))]
    return any(math.prod(shape) == size for shape in shapes for size in shape)


def has_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether lines of a tensor that is read may be told from each other."""
    declared = input_distributions(machine, problem)
    return any(_lined(o, declared) for o in problem.operands if o.access != "out")


def has_blocks(machine: type[Declared], problem: Problem) -> bool:
    """Whether the reference reduces over several axes of a tensor of three or more."""
    declared = input_distributions(machine, problem)
    deep = any(_lined(o, declared) and len(o.shape) > 2 for o in problem.operands if o.access != "out")
    return deep and reduces_over_axes(machine)


def has_few_blocks(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of three or more axes has fewer places along the first than there are kinds of lines."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and _lined(o, declared)]
    return any(len(shape) > 2 and shape[0] < KINDS for shape in shapes)


def has_few_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor has fewer lines than there are kinds of them; vectors count where there is nothing else."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and _lined(o, declared)]
    counts = [math.prod(shape[:-1]) for shape in shapes if len(shape) > 1] or [len(shapes)]
    return 0 < min(counts) < KINDS


def has_few_specials(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of more dims than one has room for the first of the special values alone."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and _is_free(o, declared)]
    return any(len(shape) > 1 and _room(shape, few=False) < FEW_SPECIALS <= max(shape) for shape in shapes)


def _room(shape: tuple[int, ...], few: bool) -> int:
    """Special values of a tensor, each in a line of its own along its two longest axes: half as many as it has lines,
    so that there are others; as many where there are few.
    """
    lines = min(sorted(shape)[-2:])
    return max(lines if few else lines // 2, 1)


def _is_free(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    return o.dtype.is_float and o.dtype.bits >= 8 and o.name not in declared


def _lined(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    """Whether an operand has numbers of a byte or more of which those of a line may all be the same."""
    law = declared.get(o.name)
    alike = law is None or not (law.distinct or law.law in ("ascending", "definite"))
    return o.dtype.kind in ("float", "signed", "unsigned") and o.dtype.bits >= 8 and alike


def has_free_integers(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor that is read, or a scalar, is of an integer type of a byte or more of whose numbers nothing is
    said.
    """
    declared = input_distributions(machine, problem)
    read = [(o.name, o.dtype) for o in problem.operands if o.access != "out"]
    read += [(s.name, s.dtype) for s in machine.scalars(dict(problem.options))]
    return any(name not in declared and not kind.is_float and kind.bits >= 8 for name, kind in read)


def declared_values(
    rng: np.random.Generator,
    declared: Distribution,
    dtype: DType,
    shape: tuple[int, ...],
    inputs: Inputs,
    amplitude: int = SMALL,
) -> NDArray[Any]:
    """An array of one dtype as its machine declares it: whole numbers up to an amplitude where it has such, or any."""
    if inputs in WHOLE:
        found = declared.draw_whole(rng, shape, min(amplitude, _whole(dtype)))
    else:
        found = declared.draw(rng, shape)
    return encoded(found, declared, dtype)


def _at_end(declared: Distribution, dtype: DType, inputs: Inputs, amplitude: int, number: int) -> Any:
    """The least or the greatest number of a scalar where lines are of one sign; None in other runs.

    Neighbours are at opposite ends, in both runs: a rate that is next to nothing hides what it weighs.
    """
    if inputs not in ("signs", "other signs"):
        return None
    ends = declared.whole_ends(min(amplitude, _whole(dtype)))
    end = ends[(number + (inputs == "other signs")) % 2]
    return encoded(np.asarray(end, dtype=np.float64), declared, dtype)[()]


def input_values(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], inputs: Inputs, amplitude: int = SMALL
) -> NDArray[Any]:
    """An array of one dtype: whole numbers up to an amplitude, or random numbers in [-1, 1)."""
    if dtype.bits < 8:
        return _narrow_values(rng, dtype, shape, inputs)
    most = min(amplitude, _whole(dtype))
    if not dtype.is_float:
        # of narrow types all numbers, the least among them, of which there is no other sign
        low = 0 if dtype.kind == "unsigned" else -most - (dtype.bits < 32 and most == _whole(dtype))
        return rng.integers(low, most + 1, shape).astype(dtype.numpy)
    if inputs in WHOLE:
        return rng.integers(-most, most + 1, shape).astype(dtype.numpy)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    if dtype.name == "tf32":
        return tf32_read(values)
    return values.astype(dtype.numpy)


def _narrow_values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], inputs: Inputs) -> NDArray[Any]:
    """Elements narrower than a byte, all that there are; whole numbers alone, where those are asked for."""
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    if dtype.is_float and inputs in WHOLE:
        values = codes.view(dtype.numpy).astype(np.float64)
        codes = codes[values == np.rint(values)]
    return rng.choice(codes, shape).view(dtype.numpy)


def _whole(dtype: DType) -> int:
    """Every whole number up to here is an element."""
    if not dtype.is_float:
        return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
    return 1 << ({"tf32": 10}.get(dtype.name, dtype.mantissa) + 1)


def whole_ends(problem: Problem, output: str) -> tuple[float, float]:
    """The least and the largest number that an output holds without saturating; of unsigned ones, without wrapping more
    than once.
    """
    kind = problem.operand(output).dtype
    if kind.is_float:
        return -_EXTREMES[kind.name][0], _EXTREMES[kind.name][0]
    return -float(_whole(kind)) - (kind.kind == "signed"), float(_whole(kind))


def with_specials(
    rng: np.random.Generator,
    problem: Problem,
    arrays: dict[str, NDArray[Any]],
    declared: Mapping[str, Distribution],
    others: bool = False,
) -> dict[str, NDArray[Any]]:
    """The arrays with special values among those of every float input, each in a row and a column of its own.

    So at most one of them is among the terms of a sum along one axis; the bounds know what becomes of more. Where there
    is room for one, it is the number whose exponential overflows, which leaves a result to judge. What a machine
    declares values of has none but those: both ends are among them. The first lies at the end of every axis: whoever
    forgets the last element of a line forgets most of what the line has together. Another one like it begins a line:
    whoever takes the largest of the last tile for that of the line overflows.

    others  of tensors with few rows: minus infinity, NaN and infinity come first, and every row may have one
    """
    out = dict(arrays)
    free = [o for o in problem.operands if o.name in arrays and _is_free(o, declared)]
    for number, o in enumerate(free):
        array = arrays[o.name].copy()
        first, *behind = specials(o.dtype)
        wanted = [*sorted(behind, key=_importance), first] if others else [first, first, *rng.permutation(behind)]
        lines = min(sorted(array.shape)[-2:])
        values = np.array(wanted[: min(_room(array.shape, others) + (not others), lines)])
        # Two differ along the two longest axes, so that no line has both; along all others they lie at one end.
        longest = sorted(range(array.ndim), key=lambda axis: array.shape[axis])[-2:]
        places = [
            _places(rng, extent, axis == max(longest) and not others)[: len(values)]
            if axis in longest
            else np.append(extent - 1, np.full(len(values) - 1, (extent - 1) * (number % 2)))
            for axis, extent in enumerate(array.shape)
        ]
        array[tuple(places)] = values.astype(o.dtype.numpy)
        out[o.name] = array
    return out


def _places(rng: np.random.Generator, extent: int, begins: bool) -> NDArray[np.int64]:
    """All places along an axis, the last one first; then the first one, where that is asked, and else in any order."""
    if extent < 2 or not begins:
        return np.append(extent - 1, rng.permutation(extent - 1))
    return np.append([extent - 1, 0], 1 + rng.permutation(extent - 2))


def _importance(value: float) -> int:
    """Minus infinity, NaN and infinity come first."""
    return 0 if value == -np.inf else 1 if np.isnan(value) else 2 if value == np.inf else 3


def with_lines(
    problem: Problem, arrays: dict[str, NDArray[Any]], declared: Mapping[str, Distribution], first: int = 0,
    blocks: bool = False,
) -> dict[str, NDArray[Any]]:
    """The arrays with lines, along the last axis of every input, that differ from each other.

    In turn they are far below zero, next to zero, as they were drawn, and zero; of vectors each is one line. So a
    largest element is below what a wrong fill is, and epsilons and guards of divisions decide. Random numbers have
    neither: among many, some are always above zero, and their squares add up to more than any epsilon. Of integers,
    and where numbers are declared, all are the least, all the greatest, as they were drawn, and zero where that is one
    of them.
    The first lines of two tensors are of the same kinds, the next ones of neighbouring kinds, and so on: where there
    are enough lines, each kind meets each.

    first   the kind of the first line: 0 far below zero, 1 next to it, 2 as drawn, 3 zero
    blocks  all that has one place along the first axis of three or more is of one kind: what is reduced over several
            axes is constant there, or far from zero
    """
    out, vectors = dict(arrays), 0
    for number, o in enumerate(o for o in problem.operands if o.name in arrays and _lined(o, declared)):
        array = arrays[o.name]
        drawn = array.astype(np.float64)
        rows = drawn.reshape(-1, array.shape[-1])
        turn, line = np.divmod(np.arange(len(rows)), KINDS)
        kind = (line + number * turn + first + (vectors if len(rows) == 1 else 0)) % KINDS
        if blocks and array.ndim > 2:
            kind = np.repeat(np.arange(array.shape[0]) + first, len(rows) // array.shape[0]) % KINDS
        vectors += len(rows) == 1
        law = declared.get(o.name)
        if law is None and o.dtype.is_float:
            below = max(_BELOW, -_EXTREMES[o.dtype.name][0] / 2)
            near = max(_NEAR, 64 * _EXTREMES[o.dtype.name][1])
            ways = [rows + below, rows * near, rows, 0 * rows]
        else:
            # of undeclared integers differences shall have a place in their type, too
            ends = (max(drawn.min(), -_LARGE), min(drawn.max(), _LARGE)) if law is None else law.ends_drawn
            zero = law is None or (not law.listed and law.low <= 0 <= law.high)
            ways = [*(np.full_like(rows, end) for end in ends), rows, 0 * rows if zero else rows]
        changed = np.select([kind[:, None] == k for k in range(KINDS)], ways).reshape(array.shape)
        out[o.name] = encoded(changed, law, o.dtype)
    return out


def specials(dtype: DType) -> NDArray[np.float64]:
    """A number whose exponential overflows; NaN, infinities, the largest and smallest elements, negative zero."""
    largest, smallest = _EXTREMES[dtype.name]
    infinities = [] if dtype.name == "e4m3" else [np.inf, -np.inf]
    large = min(_LARGE, largest)
    return np.array([large, np.nan, *infinities, largest, -largest, smallest, -smallest, -0.0, -large])


def workspaces(kernel: Kernel, problem: Problem, ctas: int) -> dict[str, DeviceBuffer]:
    """The workspaces of a launch of so many CTAs: zeros where the kernel relies on them, else never written."""
    sizes = kernel.workspace_bytes(problem, ctas)
    return {
        w.name: DeviceBuffer(
            np.full(sizes[w.name], 0 if w.zeroed else POISON, dtype=np.uint8), initialised=w.zeroed, name=w.name
        )
        for w in kernel.workspaces
    }


def arguments(
    kernel: Kernel,
    problem: Problem,
    operands: dict[str, HostTensor],
    scalars: dict[str, Any],
    spaces: dict[str, DeviceBuffer] | None = None,
) -> list[Any]:
    """Launch arguments in the order of the kernel's parameters.

    spaces  the workspaces; fresh ones for as many CTAs as `kernel.grid(problem)` has, where none are given
    """
    buffers = buffers_of(operands)
    spaces = workspaces(kernel, problem, kernel.grid(problem)[0]) if spaces is None else spaces
    return emulated_arguments(launch_of(kernel, problem), {**buffers, **spaces}, scalars)


def buffers_of(operands: dict[str, HostTensor]) -> dict[str, DeviceBuffer]:
    """Host tensors as the emulator's memory; what a kernel only writes was never written."""
    return {
        name: DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=t.operand.access != "out", name=name)
        for name, t in operands.items()
    }
