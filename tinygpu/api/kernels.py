"""The front door's calls that run kernels: tuning, verifying, emulating, launching; and checking a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.api import compile as compiling
from tinygpu.api import tune as tuning
from tinygpu.api.choosing import AnySpace, Chosen, Finalist, PlanFinalist
from tinygpu.api.front import Strides, asked_of, family_of
from tinygpu.api.machines import MachineNotFound
from tinygpu.api.on_arrays import emulate_on, lines_of, run_on
from tinygpu.api.report import report, run_of
from tinygpu.devices import Device
from tinygpu.devices import device as find_device
from tinygpu.files.error import excerpt
from tinygpu.language.declared import Declared
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.verification.verify import Verification
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.recipe import RecipeBook
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace
from tinygpu.testing.check import run_check
from tinygpu.testing.report import CheckReport


@dataclass(frozen=True, slots=True, eq=False)
class Tuning(tuning.Tuned):
    """What tuning found: the winner as a kernel, its verification, the best of every machine; and a page of it all."""

    @property
    def ptx(self) -> str:
        return self.winner.ptx

    @property
    def point(self) -> dict[str, int | str]:
        return self.winner.point

    def page(self) -> str:
        """HTML of the run: what was pruned and why, how the search went, roofline, timeline, layouts as pictures."""
        return report(run_of(self))

    def __str__(self) -> str:
        return f"{self.winner}\nemulated    {self.verification}"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page())}" style="width:100%;height:40em;border:0"></iframe>'


def tune(
    machine: str | type[Declared] | AnySpace,
    problem: Mapping[str, int] | Problem | None = None,
    *,
    device: str | Device | None = None,
    dtypes: str | Mapping[str, str] | None = None,
    majors: Mapping[str, str] | None = None,
    lds: Mapping[str, int] | None = None,
    strides: Mapping[str, Strides] | None = None,
    aligns: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    strategy: str = "auto",
    evaluations: int | None = None,
    seconds: float | None = None,
    within: float | None = None,
    journal: str | Path | None = None,
    seed: int = 0,
    **dims: int,
) -> Tuning:
    """The best kernel of a space, of a machine, or of a family ("matmul"), verified in the emulator.

    strategy              how to search; "auto" looks at everything where that is quick, as predictions are
    evaluations, seconds  at which each machine's search ends
    within                it ends once the best takes at most (1 + within) times the roofline's time
    journal               a folder: a run that was killed and is called again goes on from there

    Nothing is measured. Raises ProblemError where no machine takes the problem, and NothingFound where no candidate is
    left, or where the winner is wrong in the emulator.
    """
    kept = None if journal is None else Path(journal)
    effort = tuning.Effort(strategy, evaluations, seconds, within, kept, seed=seed)
    if isinstance(machine, MachineSpace | PlanSpace):
        given = (problem, device, dtypes, majors, lds, strides, aligns, options)
        if dims or any(word is not None for word in given):
            raise ProblemError("a space has its problem and its device; tune(space) takes no others")
        found = tuning.tune_spaces(machine.machine.__name__, machine.device, (machine,), effort)
    else:
        if device is None:
            raise ProblemError('tuning is for a device: give device="a100", or another name from `tinygpu devices`')
        chosen = family_of(machine)
        asked = asked_of(chosen, problem, dtypes, majors, lds, strides, aligns, options, dims)
        found = tuning.tune(chosen, asked, find_device(device), effort)
    if not found.verification.passed:
        raise tuning.NothingFound(f"the best candidate is wrong in the emulator: {found.verification}")
    return Tuning(
        found.family, found.device, found.searched, found.refused, found.winner, found.verification, found.failed
    )


def verify(kernel: Chosen | Tuning, *, seed: int = 0) -> Verification:
    """Runs a kernel in the emulator, against the machine's reference: `.passed`, and what was tried.

    seed  of the inputs
    """
    made = _kernel("verify", kernel)
    return verify_kernels(made.kernels, seed=seed, thorough=True, lines=lines_of(made))


def emulate(
    kernel: Chosen | Tuning, *arrays: Any, order: Order = "late", seed: int = 0, **scalars: Any
) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """What a kernel makes of NumPy arrays, computed by the emulator: `y = tg.emulate(kernel, x, y, a=2.0)`.

    arrays   one per input, in the machine's order, of the sizes and types of the kernel's problem
    order    when asynchronous work lands: "late", "early", "random" by `seed`, or "spurious"
    scalars  the machine's numbers, by name

    The results are new arrays, one for each tensor that the kernel writes; the inputs stay as they are. Raises
    WrongArray for arrays that do not fit, and EmulationFault for a race, a deadlock or an access out of bounds.
    """
    made = _kernel("emulate", kernel)
    return emulate_on(made, arrays, scalars, order, seed)


def run(kernel: Chosen | Tuning, *arrays: Any, **scalars: Any) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """What the program of a kernel makes of NumPy arrays, as it is written: `y = tg.run(kernel, x, y, a=2.0)`.

    arrays   one per input, in the machine's order, of the sizes and types of the kernel's problem
    scalars  the machine's numbers, by name

    The meanings of its instructions are carried out on whole tiles in NumPy: no PTX, partition or layout decides a
    value. The results are new arrays, one for each tensor that the program writes. Raises WrongArray for arrays that do
    not fit, and ProgramFault where roles wait for each other for ever or something is read that nobody wrote.
    """
    return run_on(_kernel("run", kernel), arrays, scalars)


def launch(
    machine: str | type[Declared],
    *arrays: Any,
    options: Mapping[str, Any] | None = None,
    recipes: RecipeBook | None = None,
    **scalars: Any,
) -> Any:
    """What a machine makes of arrays on the GPU that is here: `c = tg.launch("matmul", a, b)`.

    arrays   of PyTorch, CuPy, JAX or NumPy, one per input in the machine's order; their sizes, types and strides are
             the problem
    recipes  what was measured before: the best that is known is taken

    Tuned, verified and compiled at every call; `tg.compile` gives a function to call again and again. Raises
    GpuUnavailable where there is no GPU.
    """
    here = compiling.device_here()
    made = compiling.compile(machine, *arrays, device=here, options=options, recipes=recipes)
    return made(*arrays, **scalars)


def check(
    machine: str | type[Declared],
    *,
    problems: int | Sequence[Problem] = 8,
    candidates: int = 16,
    seed: int = 0,
    tiers: Iterable[int] = (1, 2, 3, 4, 5, 6),
    thorough: bool = False,
) -> CheckReport:
    """Tries to prove a machine wrong on random problems, devices and candidates: `.ok`, and what was tried.

    tiers     1 declaration, 2 partitions and layouts, 3 heuristics against counting, 4 legality against its judges,
              5 kernels, 6 what constraints are worth
    thorough  four times as much, without a limit of CPU time

    Raises CheckError for what cannot be asked.
    """
    chosen = family_of(machine)
    if len(chosen.machines) > 1:
        raise MachineNotFound(f"{chosen.name} is a family of machines; one is checked at a time")
    (one,) = chosen.machines
    if not thorough:
        return run_check(one, problems=problems, candidates=candidates, seed=seed, tiers=tiers)
    more = problems * 4 if isinstance(problems, int) else problems
    return run_check(
        one, problems=more, candidates=4 * candidates, seed=seed, tiers=tiers, seconds=float(np.inf)
    )


def _kernel(call: str, given: Chosen | Tuning) -> Chosen:
    if not isinstance(given, Finalist | PlanFinalist | Tuning):
        raise TypeError(f"{call} takes a kernel, as tg.emit(space) and tg.tune(space) give one, not {excerpt(given)}")
    return given.winner if isinstance(given, Tuning) else given


__all__ = ["Tuning", "check", "emulate", "launch", "run", "tune", "verify"]
