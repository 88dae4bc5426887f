"""A kernel of ours on the user's own arrays: emulated, or its program run; from a Finalist and arrays to results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.api.choosing import Chosen
from tinygpu.dtypes import DType
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand
from tinygpu.ptx.emulator import EmulationFault, Order, PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.verification.in_order import DeviceMemory, run_stage, said_of
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.run_programs import run_programs
from tinygpu.ptx.verification.verify import RefusedText


def emulate_on(
    made: Chosen, arrays: Sequence[Any], scalars: Mapping[str, Any], order: Order, seed: int
) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """The arrays that a kernel writes, as new ones; a single one by itself.

    arrays  one per tensor that it reads, in the machine's order

    Raises WrongArray for what does not fit, EmulationFault, and RefusedText for PTX that the emulator cannot run.
    """
    given, numbers = bound(made, arrays, scalars)
    memory, lines = DeviceMemory.of(made.kernels, given), lines_of(made)
    for stage, of in zip(made.kernels.stages, lines, strict=True):
        try:
            run_stage(stage, stage.kernel.ptx, memory, numbers, order, seed)
        except EmulationFault as fault:
            fault.args = (said_of(stage, of.fault(fault)),)
            raise
        except (PtxSyntaxError, UnsupportedInstruction) as error:
            raise RefusedText(said_of(stage, of.refusal(error))) from error
    return _single({o.name: memory.array(o.name) for o in made.space.problem.operands if o.access != "in"})


def lines_of(made: Chosen) -> tuple[LineInfo, ...]:
    """Which statement printed each line, for every kernel of a candidate."""
    return tuple(LineInfo.of(part.built, part.space.problem) for part in made.parts)


def run_on(
    made: Chosen, arrays: Sequence[Any], scalars: Mapping[str, Any]
) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """What the program of a kernel makes of arrays, by the meanings of its instructions; a single result by itself.

    Raises WrongArray for what does not fit, and ProgramFault.
    """
    return _single(run_program(made, *bound(made, arrays, scalars)))


def run_program(made: Chosen, arrays: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that the programs of a candidate write, by name; as many CTAs as the emulator has.

    Raises ProgramFault, with the step whose program it is.
    """
    return run_programs(made.kernels, [part.built.program for part in made.parts], arrays, scalars)


def _single(written: Mapping[str, NDArray[Any]]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    values = tuple(written.values())
    return values[0] if len(values) == 1 else values


def bound(
    made: Chosen, arrays: Sequence[Any], scalars: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """(arrays, numbers) by name, in the types of the kernel's problem; raises WrongArray for what does not fit."""
    problem, machine = made.space.problem, made.space.machine
    inputs = [o for o in problem.operands if o.access != "out"]
    if len(arrays) != len(inputs):
        names = ", ".join(o.name for o in inputs)
        many = f"{len(inputs)} array{'' if len(inputs) == 1 else 's'}"
        were = "was" if len(arrays) == 1 else "were"
        named = ", ".join(o.name for o in inputs if o.name in scalars)
        order = f": they come one after another, in this order, and {named} came by name" if named else ""
        raise WrongArray(f"{machine.__name__} takes {many} ({names}); {len(arrays)} {were} given{order}")
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
