"""Where a kernel goes wrong: it is lowered again with probes, and compared with its program statement by statement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.interpreter.interpret import dealt
from tinygpu.interpreter.worker import Moment
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.program.placement import Swizzles
from tinygpu.program.program import Program
from tinygpu.ptx.emulator import EmulationFault, Order, PreparedKernel, prepare
from tinygpu.ptx.launching.emulated import emulate_launch
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.lower import probed
from tinygpu.ptx.lowering.probe import PROBES, VECTOR, WORD_BYTES, Spot, spots
from tinygpu.ptx.verification.inputs import WHOLE
from tinygpu.ptx.verification.lockstep import Lockstep
from tinygpu.ptx.verification.memory import buffers_of, workspaces
from tinygpu.ptx.verification.probe_log import recorded
from tinygpu.ptx.verification.trial import Trial, rounding_of

# Bytes of the logs of all threads, at most.
MOST_LOG_BYTES = 2**30


class TooLong(ValueError):
    """A run that leaves more to be looked at than fits into memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """The probed variant of a kernel, ready to run.

    kernel  the variant
    code    its text, prepared for the emulator
    words   of the log of each thread
    grid    CTAs
    """

    program: Program
    kernel: Kernel
    code: PreparedKernel
    spots: Mapping[tuple[int, str], Spot]
    words: int
    grid: tuple[int, int, int]


def with_probes(
    program: Program,
    swizzles: Swizzles,
    kernel: Kernel,
    trial: Trial,
    ctas: int | None = None,
    others: Sequence[Trial] = (),
) -> Probed:
    """The probed variant of a program's kernel, with logs that are long enough for the inputs of a trial.

    ctas    CTAs that are launched of a persistent grid, at most
    others  trials of the same sizes that it is run on, too: data may decide how much is recorded

    Raises TooLong, and ProgramFault where the program cannot be run to its end.
    """
    grid = kernel.grid(trial.problem, ctas)
    decided = bool(program.said_by_data)
    words = max(log_words(program, one, grid[0]) for one in (trial, *(others if decided else ())))
    total = words * WORD_BYTES * kernel.threads * grid[0]
    if total > MOST_LOG_BYTES:
        raise TooLong(f"the tiles of all statements are {total:,} bytes, and {MOST_LOG_BYTES:,} are looked at")
    variant = probed(program, trial.problem, dict(kernel.point), swizzles, words * WORD_BYTES)
    return Probed(program, variant, prepare(variant.ptx), spots(program), words, grid)


def follow(
    made: Probed, machine: type[Machine], trial: Trial, *, order: Order = "late", alone: bool = False, seed: int = 0
) -> Lockstep:
    """Runs a program beside its probed kernel, on the inputs of a trial.

    alone  clusters run one after another

    Raises ProgramFault where the program cannot be run to its end.
    """
    problem, operands, kernel = trial.problem, trial.operands(), made.kernel
    spaces = workspaces(kernel, problem, made.grid[0])
    fault = ""
    try:
        emulate_launch(
            kernel, made.code, problem, made.grid, {**buffers_of(operands), **spaces}, trial.scalars,
            order=order, seed=seed, check=False, together=math.prod(kernel.clusters) if alone else None,
        )  # fmt: skip
    except EmulationFault as found:
        fault = str(found)
    logs = spaces[PROBES].array.view(np.uint32).reshape(made.grid[0], kernel.threads, made.words)
    rounding = rounding_of(machine, problem)
    exact = trial.inputs in WHOLE and rounding.exact
    tiles = recorded(made.spots.values(), logs)
    steps = Lockstep(made.program, made.spots, tiles, exact, rounding.approximation, fault)
    meant = made.program.run(trial.arrays, trial.scalars, sizes=problem.dim, ctas=made.grid[0], watch=steps)
    if not steps.partings and not fault:
        steps.outputs(meant, {o.name: operands[o.name].array for o in problem.operands if o.access != "in"})
    return steps


def log_words(program: Program, trial: Trial, ctas: int) -> int:
    """Words of the log of one thread, at most: of the tiles that leave most, as many as a CTA works on."""
    problem: Problem = trial.problem
    known = spots(program)
    axes = [a.index for a in program.grid.axes]
    words: dict[tuple[int, int], dict[tuple[int, ...], int]] = {}

    def counted(moment: Moment) -> NDArray[Any]:
        spot = known.get((id(moment.statement), moment.tile.name))
        if spot is not None:
            of_role = words.setdefault(spot.threads, {})
            tile = tuple(moment.known[a] for a in axes)
            of_role[tile] = of_role.get(tile, 0) + spot.words
        return moment.values

    program.run(trial.arrays, trial.scalars, sizes=problem.dim, ctas=ctas, watch=counted)
    tiles = max((len(works) for works in dealt(program, problem.dim, ctas).ctas()), default=0)
    longest = max((sum(sorted(t.values())[-tiles:]) for t in words.values()), default=0)
    return -(-(longest + 1) // VECTOR) * VECTOR
