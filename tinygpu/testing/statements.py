"""Instructions of every family: what they mean of whole tiles is what they do in kernels, statement by statement.

A candidate's program runs beside its probed kernel on a small problem. Each statement is given the operands that the
kernel made, so that what differs is the instruction's own: its meaning, or its text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tinygpu.language.instruction import Instruction
from tinygpu.language.problem import Problem
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import places, walk
from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.probe import spots
from tinygpu.ptx.verification.derived import derive, exactly
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.located import TooLong, follow, with_probes
from tinygpu.ptx.verification.lockstep import Lockstep
from tinygpu.ptx.verification.trial import draw
from tinygpu.testing.case import Case
from tinygpu.testing.finding import RIGHT, Finding
from tinygpu.testing.workbench import Workbench

Identity = tuple[str, type[Instruction]]
INPUTS: tuple[Inputs, ...] = ("integers", "random")


def used(program: Program) -> Iterator[tuple[Identity, Instruction]]:
    """The instructions of a program, by the names of the machine's attributes."""
    for s in walk(program.body):
        for instruction in s.instructions:
            yield (_name(s), type(instruction)), instruction


def recorded_words(program: Program) -> int:
    """How much a probed kernel of a filled-in program writes down: the size of its text goes with that."""
    total = 0
    words = {key: spot.words for key, spot in spots(program).items()}
    for place in places(program.body):
        times = math.prod(int(loop.trips) for loop in place.loops if loop.written_out)
        total += times * sum(size for (s, _), size in words.items() if s == id(place.statement))
    return total


def _name(s: n.Statement) -> str:
    return str(getattr(s, "name", ""))


def mean_what_they_do(case: Case, bench: Workbench) -> Finding:
    """Every statement of a candidate's kernel makes what its instruction means."""
    found = wrong_statements(case, bench)
    return Finding(next(iter(found[0].values()))) if found[0] else RIGHT


def wrong_statements(case: Case, bench: Workbench) -> tuple[dict[Identity, str], set[Identity]]:
    """(what is wrong, by instruction; all instructions that were tried).

    A kernel that cannot be made or run is no matter of what instructions mean: nothing was tried.
    """
    program = case.space(bench).program(case.point or {})
    wrong: dict[Identity, str] = {}
    tried: set[Identity] = set()
    try:
        built = build(program, case.problem, case.point or {}, bench.solver)
        small = _small(case, built.kernel)
        trials = [draw(case.machine, small, inputs, 0, point=case.point) for inputs in INPUTS]
        probed = with_probes(program, built.layouts.swizzles, built.kernel, trials[0], others=trials[1:])
        for trial in trials:
            steps = follow(probed, case.machine, trial)
            tried |= {identity for s in steps.judged.values() for identity in _identities(s)}
            for identity, sentence in _wrong(steps):
                wrong.setdefault(identity, sentence)
    except (LoweringError, EmulationFault, PtxSyntaxError, UnsupportedInstruction, TooLong):
        return wrong, tried
    return wrong, tried | wrong.keys()


def _small(case: Case, kernel: Kernel) -> Problem:
    """The smallest problem with the facts of the case, on which every loop has a round."""
    return derive(kernel, case.machine, case.problem, exactly(1), "row")


def _identities(s: n.Statement) -> list[Identity]:
    return [(_name(s), type(i)) for i in s.instructions]


def _wrong(steps: Lockstep) -> Iterator[tuple[Identity, str]]:
    for parting in steps.partings:
        s = parting.statement
        if s.instructions:
            label = " and ".join(dict.fromkeys(i.label for i in s.instructions))
            for identity in _identities(s):
                yield identity, f"{_name(s)} ({label}): {parting}"
