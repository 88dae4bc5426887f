"""Tune: from a problem to the best verified kernel.

Every step is a function of its own room; this file is their order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tinygpu.api.assembled import BATCH_PER_PROCESS, assembled_objective
from tinygpu.api.caching import source_digest
from tinygpu.api.choosing import KEPT, AnySpace, AnyTime, Chosen, Failed, finalists_of, objective_of
from tinygpu.api.machines import Family
from tinygpu.api.on_arrays import lines_of
from tinygpu.api.problems import Asked, Refusal, problems
from tinygpu.devices import Device
from tinygpu.files.writing import ready_folder
from tinygpu.processes.apart import EndedApart, run_apart
from tinygpu.ptx.verification.verify import Verification
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import Objective
from tinygpu.search.minimize import minimize
from tinygpu.search.progress import Progress
from tinygpu.search.result import Result
from tinygpu.search.searchable import Point
from tinygpu.search.strategies import check_name
from tinygpu.seeds import check_seed
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace, space_of
from tinygpu.users_code import at


class NothingFound(ValueError):
    """No candidate is legal, or none of the best survives; the sentence says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """One machine's part of a tuning run.

    finalists
           its best as kernels; none where it is far behind another machine (`FAR_BEHIND`)
    floor  least seconds in which the device could do the problem's work: the roofline
    """

    space: AnySpace
    result: Result | None
    finalists: tuple[Chosen, ...]
    sentence: str = ""
    floor: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What tuning found."""

    family: str
    device: Device
    searched: tuple[Searched, ...]
    refused: tuple[Refusal, ...]
    winner: Chosen
    verification: Verification
    failed: tuple[Failed, ...] = ()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a tuning run; what was searched until then is kept.

    searched  the machines so far; the last one's search may have been cut short
    """

    def __init__(
        self, family: str, device: Device, searched: tuple[Searched, ...], refused: tuple[Refusal, ...]
    ) -> None:
        super().__init__("the tuning run was interrupted")
        self.family = family
        self.device = device
        self.searched = searched
        self.refused = refused

    @property
    def best(self) -> tuple[Searched, float] | None:
        """The machine with the least predicted time, and that time; None where nothing has a value."""
        found = [(s, s.result.value) for s in self.searched if s.result is not None and s.result.value is not None]
        return min(found, key=lambda pair: pair[1], default=None)


# Machines whose best candidate is predicted to take so many times as long as one that was assembled and does not spill
# are not refined, lowered and assembled: what these steps find makes them slower still.
FAR_BEHIND = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A machine that was searched, and whose best candidates are not assembled yet; its place in what was searched."""

    place: int
    objective: AnyTime
    result: Result

    @property
    def name(self) -> str:
        return self.objective.space.machine.__name__

    @property
    def seconds(self) -> float:
        """Of its best candidate; infinite where none has a value."""
        return math.inf if self.result.value is None else self.result.value


# Wall time that one kernel's verification may take: many times its own budget of CPU time.
VERIFYING_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Watcher:
    """Told what goes on: `stage` once per step, `progress` after each batch of evaluations."""

    stage: Callable[[str], None] = lambda text: None
    progress: Callable[[Progress], None] = lambda p: None
    space: Callable[[AnySpace], None] = lambda s: None


@dataclass(frozen=True, slots=True)
class Effort:
    """How a tuning run searches, and how long.

    evaluations, seconds
             at which a machine's search ends; None for no such limit
    within   a machine's search ends once its best takes at most (1 + within) times the roofline's time
    journal  a folder with a file for every machine: a run that was killed and is called again goes on from there
    processes
             0: candidates are predicted. Else each one that is tried is lowered and assembled, in so many processes
    cache    a file that keeps assembled candidates between runs
    keep     ways to divide the work of which the best candidate is assembled

    Raises ValueError for what cannot be asked, before anything is built.
    """

    strategy: str = "auto"
    evaluations: int | None = None
    seconds: float | None = None
    within: float | None = None
    journal: Path | None = None
    processes: int = 0
    cache: Path | None = None
    seed: int = 0
    keep: int = KEPT

    def __post_init__(self) -> None:
        if self.processes < 0:
            raise ValueError(f"a search works in 1 process or more, or predicts with 0, not {self.processes}")
        if self.cache is not None and not self.processes:
            raise ValueError(
                "a cache keeps assembled candidates, and 0 processes assemble none; predictions need no cache"
            )
        if self.keep < 1:
            raise ValueError(f"tuning keeps 1 of the best candidates or more to choose from, not {self.keep}")
        check_seed(self.seed)
        check_name(self.strategy)
        # Every machine has a floor of its own.
        Budget(self.evaluations, self.seconds, self.within, floor=None if self.within is None else 1.0)


def tune(
    family: Family, asked: Asked, device: Device, effort: Effort = Effort(), watcher: Watcher | None = None
) -> Tuned:
    """Searches every machine of the family that is legal for problem and device; verifies the winner.

    Raises ProblemError where no machine takes the problem, NothingFound where no candidate is left, FileError where the
    journal cannot be a folder, and Interrupted, which has what was found until then, on Ctrl-C.
    """
    watch = watcher or Watcher()
    accepted, refused = problems(family, asked)

    def built() -> Iterator[AnySpace]:
        for machine, problem in accepted:
            watch.stage(f"{machine.__name__}: building the space")
            yield space_of(machine, problem, device)

    return tune_spaces(family.name, device, built(), effort, watch, tuple(refused))


def tune_spaces(
    family: str,
    device: Device,
    spaces: Iterable[AnySpace],
    effort: Effort = Effort(),
    watcher: Watcher | None = None,
    refused: tuple[Refusal, ...] = (),
) -> Tuned:
    """The same over spaces, which may be parts of those that machines have; family: how other processes find them."""
    watch = watcher or Watcher()
    if effort.journal is not None:
        ready_folder(effort.journal)
    searched: list[Searched] = []
    waiting: list[_Waiting] = []
    failed: list[Failed] = []
    try:
        layouts = SolverCache()
        for space in spaces:
            watch.space(space)
            if space.space.size == 0:
                from tinygpu.spaces.conflict import told  # loads Z3

                why = told(space.space.conflict()) or f"{space.space.name} is empty"
                searched.append(Searched(space, None, (), why))
                continue
            name = space.machine.__name__
            watch.stage(f"{name}: searching {space.space.size:,} candidates")
            objective = objective_of(space)
            floor = roofline_seconds(objective)
            result = _search(family, space, objective, floor, effort, watch)
            searched.append(Searched(space, result, (), floor=floor))
            if result.ended == "interrupted":
                raise KeyboardInterrupt
            waiting.append(_Waiting(len(searched) - 1, objective, result))
        waiting.sort(key=lambda one: one.seconds)
        ranked: list[Chosen] = []
        while waiting or ranked:
            while waiting and (not ranked or waiting[0].seconds <= FAR_BEHIND * ranked[0].score):
                one = waiting.pop(0)
                watch.stage(f"{one.name}: solving the layouts of the best, lowering and assembling them")
                found = finalists_of(one.objective, one.result, layouts, effort.keep, failed.append)
                searched[one.place] = replace(searched[one.place], finalists=found)
                ranked = sorted([*ranked, *(f for f in found if not f.spills)], key=lambda f: f.score)
            if not ranked:
                break
            winner = ranked.pop(0)
            watch.stage(f"{winner.space.machine.__name__}: verifying the winner in the emulator")
            try:
                verification = verified_apart(winner, effort.seed)
            except EndedApart as error:
                failed.append(Failed(winner.space, winner.point, "verification", error))
                continue
            return Tuned(family, device, tuple(searched), refused, winner, verification, tuple(failed))
        own = next(filter(None, (s.space.machine._own_place() for s in searched)), "")
        raise at(NothingFound(_why_nothing(searched, failed)), own)
    except KeyboardInterrupt:
        raise Interrupted(family, device, tuple(searched), refused) from None


def _search(
    family: str, space: AnySpace, objective: AnyTime, floor: float, effort: Effort, watch: Watcher
) -> Result:
    """The search of one machine's space."""
    name, journal = space.machine.__name__, effort.journal
    subject = space.space.name + (", assembled" if effort.processes else "")
    with ExitStack() as stack:
        judge: Objective = objective
        if effort.processes and isinstance(space, PlanSpace):
            raise ValueError(
                f"{name} is a plan, whose candidates are predicted, and its best assembled; leave processes out"
            )
        if effort.processes and isinstance(space, MachineSpace):
            judge = stack.enter_context(
                assembled_objective(family, space, processes=effort.processes, cache=effort.cache)
            )
        return minimize(
            space.space,
            judge,
            strategy=effort.strategy,
            evaluations=effort.evaluations,
            seconds=effort.seconds,
            within=effort.within,
            floor=floor,
            seed=effort.seed,
            journal=None if journal is None else journal / f"{name}.jsonl",
            callbacks=(watch.progress,),
            batch=BATCH_PER_PROCESS * effort.processes or 1,
            subject=subject + ("" if journal is None else f", machine {source_digest(space.machine)[:12]}"),
        )


def verified_apart(finalist: Chosen, seed: int) -> Verification:
    """The verification of a finalist in a process of its own; raises EndedApart where that crashes or hangs."""
    kernels, lines = finalist.kernels, lines_of(finalist)
    return run_apart(
        lambda: verify_kernels(kernels, seed=seed, thorough=True, lines=lines), seconds=VERIFYING_SECONDS
    )


# Candidates of which the least roofline time is taken: it differs among them by padded work alone, where it differs.
_ROOFLINE_CANDIDATES = 64


def roofline_seconds(objective: AnyTime) -> float:
    """Least seconds of the problem on the device: useful work at the peak, or compulsory DRAM traffic.

    Where useful work is not counted apart from padding (machines without tensor cores), the least of a sample.
    """
    space = objective.space
    apart = isinstance(space, MachineSpace) and space.counts(0).operand
    points = space.space.sample(1 if apart else _ROOFLINE_CANDIDATES, np.random.default_rng(0))
    alike: dict[tuple[str, ...], list[Point]] = defaultdict(list)  # by the parameters that they have
    for point in points:
        alike[tuple(point)].append(point)
    return min(float(objective.rooflines(some).min()) for some in alike.values())


def _why_nothing(searched: Sequence[Searched], failed: Sequence[Failed]) -> str:
    reasons = []
    for s in searched:
        name = s.space.machine.__name__
        if s.sentence:
            reasons.append(f"{name} has no candidate: {s.sentence}")
        elif s.finalists:
            left = [f for f in s.finalists if not f.spills]
            if not left:
                reasons.append(f"{name}: all of its {len(s.finalists)} best candidates spill registers")
    return "; ".join([*reasons, *map(str, failed)]) or "no machine has a candidate"


__all__ = ["Asked", "Effort", "NothingFound", "Searched", "Tuned", "Watcher", "tune", "tune_spaces"]
