"""Verification: runs a kernel's PTX in the emulator and compares it with the machine's reference.

What ships is what was verified: dims, leading dimensions and the grid are launch arguments, so the same text runs on a
small *derived problem* that keeps every fact for which the kernel was specialised, has full and partial tiles along
each axis as the real one has, and enough rounds of each loop that every pipeline slot is reused. Inputs are first whole
numbers, for which every sum is exact and the result must agree bit for bit; then random numbers with a few special
values among them, within a bound that is worked out for every element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.comparison import Check, compare
from tinygpu.ptx.derived import derive
from tinygpu.ptx.emulator import Counters, EmulationFault, LineCounters, Order, Report, emulate
from tinygpu.ptx.inputs import Inputs, arguments, workspaces
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.sampled import sampled_checks
from tinygpu.ptx.trial import Trial, draw

# Tiles that each CTA of a persistent kernel takes at least, where the derived problem has so many.
TILES_PER_CTA = 3


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


def verify(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    *,
    orders: Sequence[Order] = ("late", "early", "random"),
    random_inputs: bool = True,
    seed: int = 0,
    derived: Problem | None = None,
    thorough: bool = False,
) -> Verification:
    """Emulates `kernel` on the problem derived from `problem`, under several orders of asynchronous work.

    thorough  also run loops with fewer rounds than their pipeline has stages, and the first, the last and the edge CTAs
              of the problem itself, over sparsely backed tensors
    """
    small = derived or derive(kernel, problem)
    runs: list[tuple[Problem, Inputs, Order, str]] = [(small, "integers", order, "") for order in orders]
    if random_inputs:
        # Late like the first order, and every wait fails first: one that is not tried again shows.
        runs.append((small, "specials", "spurious", ""))
    if thorough:
        for rounds in range(1, max([1, *(stages for _, _, stages in kernel.steps)])):
            runs.append((derive(kernel, problem, rounds), "integers", orders[0], f"loops of {rounds} rounds"))
    checks: list[Check] = []
    first: Report | None = None
    trials: dict[tuple[Problem, Inputs], Trial] = {}
    for number, (run_on, inputs, order, where) in enumerate(runs):
        if (run_on, inputs) not in trials:
            trials[run_on, inputs] = draw(machine, run_on, inputs, seed)
        check, report = _run(kernel, trials[run_on, inputs], order, seed, where, several_ctas(kernel, run_on, number))
        checks.append(check)
        first = first or report
        if inputs == "specials" and check.passed and 2 * check.special > check.elements:
            runs.append((run_on, "random", order, where))
    if thorough and small != problem:
        checks += sampled_checks(kernel, machine, problem, seed)
    counted = (first.counters, first.lines) if first is not None else (None, {})
    return Verification(kernel.name, small, tuple(checks), *counted)


def several_ctas(kernel: Kernel, problem: Problem, number: int = 0) -> int:
    """CTAs for run `number` of a persistent kernel: as many as let it take three tiles in each.

    Where CTAs share rounds in a row, every other run has half as many again as there are tiles.
    """
    tiles = kernel.grid(problem)[0]
    return tiles + tiles // 2 + 1 if kernel.stream_k and number % 2 else max(tiles // TILES_PER_CTA, 1)


def _run(
    kernel: Kernel, trial: Trial, order: Order, seed: int, where: str, ctas: int
) -> tuple[Check, Report | None]:
    """One emulation of the whole grid of a small problem."""
    problem, inputs, operands = trial.problem, trial.inputs, trial.operands()
    grid = kernel.grid(problem, ctas)
    spaces = workspaces(kernel, problem, grid[0])
    try:
        report = emulate(
            kernel.ptx,
            grid=grid,
            block=(kernel.threads, 1, 1),
            cluster=kernel.cluster,
            args=arguments(kernel, problem, operands, dict(trial.scalars), spaces),
            dynamic_smem=kernel.smem_bytes,
            seed=seed,
            order=order,
        )
    except EmulationFault as fault:
        return Check(inputs, order, float("nan"), 0.0, 0, 0, str(fault), where), None
    check = compare(trial, operands, order)
    # What hardware runs although the manual forbids it is no fault of other compilers' kernels; of ours it is.
    advised = f"advisory: {report.advisories[0]}" if report.advisories else ""
    for w in kernel.workspaces:
        if w.zeroed and spaces[w.name].array.any():
            advised = f"{w.name} is left with other bytes than zeros, which the next launch relies on"
    return replace(check, where=where, fault=advised), report
