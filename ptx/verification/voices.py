"""Three voices about one candidate: its reference, its program run in NumPy, and its kernel emulated. Who is alone?"""

from __future__ import annotations

import time

import numpy as np

from tinygpu.interpreter.fault import ProgramFault
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.program.carried import never_carried
from tinygpu.program.placement import Swizzles
from tinygpu.program.program import Program
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification import beyond
from tinygpu.ptx.verification.comparison import Check, compare_arrays
from tinygpu.ptx.verification.located import TooLong, follow, with_probes
from tinygpu.ptx.verification.never_added import never_added
from tinygpu.ptx.verification.plan import Run, plan
from tinygpu.ptx.verification.trial import draw
from tinygpu.users_code import with_place

ORDERS: tuple[Order, ...] = ("late", "early", "random")
# CPU time after which no more runs are begun.
CPU_SECONDS = 20.0


def no_number(check: Check) -> list[str]:
    """Where NaN comes from in which a reference has no part: among whole and random numbers there are none."""
    worst = check.worst
    special = check.inputs.endswith(("specials", "neighbours"))
    if worst is None or not special or not np.isnan(worst.got) or np.isnan(worst.wanted):
        return []
    return [
        "a number overflows on the way there, as an exponential does from which the largest of its line is not"
        " subtracted; or an infinity or a NaN among the inputs is multiplied by 0 (a weight, a mask, the fill of what"
        " lies beyond a tensor), and the reference leaves it out: choose by where or fill= instead of multiplying, let"
        " the reference multiply too, as with np.pad, or declare values= of inputs that are finite"
    ]


def not_meant(check: Check, right_without: bool) -> list[str]:
    """What to declare where a program is right of random numbers, unless NaN and infinities are among them."""
    worst = check.worst
    if worst is None or not right_without:
        return []
    if np.isnan(worst.wanted) and not np.isnan(worst.got):
        return [
            "of random numbers without NaN and infinities it is right: the reference has a NaN there, as where it"
            " multiplies an infinity or a NaN by 0 (a weight, a mask), and the program leaves that out; let the"
            " reference leave it out too, as by np.where, or declare values= of inputs that are finite. Or the program"
            " chooses by a comparison, which is false of a NaN: turn it round, as where(equal(sum, 0), 0, x / sum) for"
            " where(sum > 0, x / sum, 0)"
        ]
    return [
        "of random numbers without NaN, infinities and extremes it is right: where such are not meant, declare values="
        " of the inputs, as uniform(-1, 1)"
    ]


def who_is_wrong(
    program: Program, swizzles: Swizzles, kernel: Kernel, machine: type[Machine], problem: Problem, *, seed: int = 0,
    cpu_seconds: float = CPU_SECONDS,
) -> str:  # fmt: skip
    """Whether the program itself is wrong, or after which statement its kernel parts from it; "" where neither shows.

    On the inputs and sizes of verification, the smallest runs first.
    """

    def right_without(run: Run) -> bool:
        """Whether the program is right of the same random inputs without special ones among them."""
        if not run.inputs.endswith("specials"):
            return False
        trial = draw(machine, run.problem, "random", seed, point=dict(kernel.point))
        ctas = kernel.grid(run.problem, run.ctas)[0]
        made = program.run(trial.arrays, trial.scalars, sizes=run.problem.dim, ctas=ctas)
        return not compare_arrays(trial, made, run.order).wrong

    begun = time.process_time()
    runs = plan(kernel, machine, problem, ORDERS, True, True)
    larger = beyond.beyond(kernel, machine, problem, tuple(dict.fromkeys(run.problem for run in runs)))
    runs = (*runs, *beyond.runs_of(kernel, larger, ORDERS[0]))
    for run in sorted(runs, key=lambda r: r.rounds(kernel)):
        if time.process_time() - begun > cpu_seconds:
            break
        trial = draw(machine, run.problem, run.inputs, seed, point=dict(kernel.point), numbers=run.numbers)
        ctas = kernel.grid(run.problem, run.ctas)[0]
        try:
            made = program.run(trial.arrays, trial.scalars, sizes=run.problem.dim, ctas=ctas)
            check = compare_arrays(trial, made, run.order)
            if check.wrong:
                said = f"the program itself is wrong, run as it is written on {run.problem}: {check.worst}"
                why = [*never_carried(program), *never_added(program, trial, ctas)]
                why = why or no_number(check) or not_meant(check, right_without(run))
                return "\n".join([said, *why])
            probed = with_probes(program, swizzles, kernel, trial, run.ctas)
            steps = follow(probed, machine, trial, order=run.order, alone=run.alone, seed=seed)
        except ProgramFault as fault:
            return f"the program itself cannot be run, as it is written: {with_place(fault)}"
        except TooLong:
            continue
        if steps.partings:
            return f"the program is right, and its kernel parts from it {steps.partings[0]}, on {run.problem}"
    return ""
