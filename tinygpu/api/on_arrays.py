"""A kernel of ours on the user's own arrays: emulated, or its program run; from a Finalist and arrays to results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.api.choosing import Finalist
from tinygpu.dtypes import DType
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand
from tinygpu.ptx.emulator import EmulationFault, Order, PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.verification.inputs import arguments, banks, host_tensors
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.verify import RefusedText


def emulate_on(
    made: Finalist, arrays: Sequence[Any], scalars: Mapping[str, Any], order: Order, seed: int
) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """The arrays that a kernel writes, as new ones; a single one by itself.

    arrays  one per tensor that it reads, in the machine's order

    Raises WrongArray for what does not fit, EmulationFault, and RefusedText for PTX that the emulator cannot run.
    """
    kernel, problem = made.built.kernel, made.space.problem
    given, numbers = bound(made, arrays, scalars)
    operands = host_tensors(problem, given)
    try:
        emulate(
            kernel.ptx,
            grid=kernel.grid(problem),
            block=(kernel.threads, 1, 1),
            cluster=kernel.cluster,
            args=arguments(kernel, problem, operands, numbers),
            variables=banks(kernel, problem, operands),
            dynamic_smem=kernel.smem_bytes,
            order=order,
            seed=seed,
        )
    except EmulationFault as fault:
        fault.args = (LineInfo.of(made.built, problem).fault(fault),)
        raise
    except (PtxSyntaxError, UnsupportedInstruction) as error:
        raise RefusedText(LineInfo.of(made.built, problem).refusal(error)) from error
    return _single({o.name: operands[o.name].array.copy() for o in problem.operands if o.access != "in"})


def run_on(
    made: Finalist, arrays: Sequence[Any], scalars: Mapping[str, Any]
) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """What the program of a kernel makes of arrays, by the meanings of its instructions; a single result by itself.

    Raises WrongArray for what does not fit, and ProgramFault.
    """
    return _single(run_program(made, *bound(made, arrays, scalars)))


def run_program(made: Finalist, arrays: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that the program of a kernel writes, by name; as many CTAs as the emulator has."""
    kernel, problem = made.built.kernel, made.space.problem
    ctas = kernel.grid(problem)[0]
    return made.built.program.run(arrays, scalars, sizes=problem.dim, ctas=ctas)


def _single(written: Mapping[str, NDArray[Any]]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    values = tuple(written.values())
    return values[0] if len(values) == 1 else values


def bound(
    made: Finalist, arrays: Sequence[Any], scalars: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """(arrays, numbers) by name, in the types of the kernel's problem; raises WrongArray for what does not fit."""
    problem, machine = made.space.problem, made.space.machine
    inputs = [o for o in problem.operands if o.access != "out"]
    if len(arrays) != len(inputs):
        names = ", ".join(o.name for o in inputs)
        many = f"{len(inputs)} array{'' if len(inputs) == 1 else 's'}"
        were = "was" if len(arrays) == 1 else "were"
        raise WrongArray(f"{machine.__name__} takes {many} ({names}); {len(arrays)} {were} given")
    given = {o.name: _fitting(o, np.asarray(a)) for o, a in zip(inputs, arrays, strict=True)}
    kinds = {s.name: s.dtype for s in machine.scalars(dict(problem.options))}
    if kinds.keys() != scalars.keys():
        named = f"the numbers {', '.join(kinds)}" if kinds else "no numbers"
        were = "were" if len(scalars) > 1 else "was"
        raise WrongArray(f"{machine.__name__} takes {named} by name; {', '.join(scalars) or 'none'} {were} given")
    numbers = {name: _number(kinds[name], value) for name, value in scalars.items()}
    for name, values in input_distributions(machine, problem).items():
        if why := values.fault(np.asarray({**given, **numbers}[name])):
            raise WrongArray(f"{machine.__name__}: {name}{why}")
    return given, numbers


def _fitting(operand: Operand, array: NDArray[Any]) -> NDArray[Any]:
    """The array in the operand's type; numbers are rounded to it, other types are refused."""
    if array.shape != operand.shape:
        raise WrongArray(f"{operand.name} has the shape {operand.shape} in this kernel's problem, not {array.shape}")
    kind = operand.dtype
    if array.dtype == kind.numpy or (kind.is_float and array.dtype == np.float64):
        return array.astype(kind.numpy)
    raise WrongArray(f"{operand.name} is of {kind} in this kernel's problem, and {array.dtype} was given")


def _number(kind: DType, value: Any) -> Any:
    return kind.numpy.type(value)
