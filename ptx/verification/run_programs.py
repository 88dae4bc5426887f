"""The programs of a candidate, run as they are written: of a plan one step after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from tinygpu.interpreter.fault import ProgramFault
from tinygpu.program.program import Program
from tinygpu.ptx.launching.kernels import Kernels


def run_programs(
    kernels: Kernels, programs: Sequence[Program], arrays: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """The arrays that the programs of a candidate write, by name; as many CTAs as the emulator has.

    programs  of each kernel, filled in
    arrays    what is read of the whole's tensors, by name

    Raises ProgramFault, with the step whose program it is.
    """
    known: dict[str, NDArray[Any]] = dict(arrays)
    for stage, program in zip(kernels.stages, programs, strict=True):
        read = {o.name for o in stage.problem.operands if o.access != "out"}
        ctas = stage.kernel.grid(stage.problem)[0]
        given = {own: known[name] for own, name in stage.tensors.items() if own in read}
        numbers = {own: scalars[name] for own, name in stage.scalars.items()}
        try:
            written = program.run(given, numbers, sizes=stage.problem.dim, ctas=ctas)
        except ProgramFault as fault:
            if stage.name:
                fault.args = (f"step {stage.name}: {fault}",)
            raise
        known |= {stage.tensors[own]: array for own, array in written.items()}
    return {o.name: known[o.name] for o in kernels.problem.operands if o.access != "in"}
