"""Choosing: the best candidate of a space, of the part of it that has given values, or of a family.

Every door (tune, emit, verify, predict, compile, bundle) chooses here, so that all of them mean the same kernels by
"the best": everything is predicted, as arrays; what is best is refined by its layouts, lowered and assembled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, overload

from tinygpu.api.finalist import (
    KEPT,
    CannotBeMade,
    Failed,
    Finalist,
    NotAdmitted,
    Values,
    finalists,
    having,
    refine_best,
    refuse,
)
from tinygpu.api.machines import Family
from tinygpu.api.planned import PlanFinalist, plan_finalists
from tinygpu.api.problems import Asked, problems
from tinygpu.cost.occupancy import registers_at_most
from tinygpu.devices import Device
from tinygpu.language.live_registers import registers_estimate
from tinygpu.search.minimize import minimize
from tinygpu.search.plan_time import PlanTime
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.refine import Refined
from tinygpu.search.result import Result
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace, space_of
from tinygpu.users_code import at

T = TypeVar("T")
# A space of a machine or of a plan, what predicts it, and one candidate of it with its kernels.
AnySpace: TypeAlias = MachineSpace | PlanSpace
AnyTime: TypeAlias = PredictedTime | PlanTime
Chosen: TypeAlias = Finalist | PlanFinalist


def objective_of(space: AnySpace) -> AnyTime:
    """Predicted seconds of a space's candidates."""
    return PlanTime(space) if isinstance(space, PlanSpace) else PredictedTime(space)


def finalists_of(
    objective: AnyTime,
    result: Result,
    layouts: SolverCache,
    keep: int = KEPT,
    failed: Callable[[Failed], None] = refuse,
) -> tuple[Chosen, ...]:
    """The best of what a search found, as kernels, best first; see `finalists`."""
    if isinstance(objective, PlanTime):
        return plan_finalists(objective, result, layouts, keep, failed)
    return finalists(objective.space, objective, refine_best(objective, result, layouts, keep), keep, failed)


def best_refined(space: MachineSpace, point: Values) -> list[list[Refined]]:
    """The best candidates that have these values, as `refine_best` gives them; raises NotAdmitted where none fits."""
    objective, candidates = PredictedTime(space), having(space, point)
    result = minimize(candidates, objective)
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    best = refine_best(objective, result, SolverCache())
    if not best:
        raise NotAdmitted(f"no candidate with these values can be launched{_why(space, next(iter(candidates)))}")
    return best


def _why(space: MachineSpace, point: Values) -> str:
    """What keeps an admitted candidate from being launched: constraints know all other limits of a CTA."""
    program, device = space.program(point), space.device
    threads, needs = int(program.threads), int(registers_estimate(program))
    most = registers_at_most(device, threads)
    if needs <= most:
        return ""
    listed = " ".join(f"{name}={value}" for name, value in point.items())
    return (
        f": with {listed} a thread needs about {needs} registers, and {threads} threads of a CTA have at most {most} "
        f"each on {device.name}; take smaller tiles, or fewer warps"
    )


@overload
def choose(space: MachineSpace, point: Values) -> Finalist: ...
@overload
def choose(space: PlanSpace, point: Values) -> PlanFinalist: ...
def choose(space: AnySpace, point: Values) -> Chosen:
    """The best candidate that has these values, as kernels; raises NotAdmitted where there is none."""
    if isinstance(space, MachineSpace):
        return finalists(space, PredictedTime(space), best_refined(space, point))[0]
    objective = PlanTime(space)
    result = minimize(having(space, point), objective)
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    found = plan_finalists(objective, result, SolverCache())
    if not found:
        raise NotAdmitted("no candidate with these values can be launched")
    return found[0]


def choose_among(family: Family, asked: Asked, device: Device, point: Values) -> Chosen:
    """The best candidate of all machines of a family that has these values.

    Raises ProblemError where no machine takes the problem, and NotAdmitted where none has such a candidate.
    """
    found = of_each(family, asked, device, lambda space: choose(space, point))
    return min(found, key=lambda f: (f.spills, f.score))


def of_each(family: Family, asked: Asked, device: Device, choice: Callable[[AnySpace], T]) -> list[T]:
    """What `choice` finds in the space of each machine of a family; raises NotAdmitted where it finds nothing."""
    found: list[T] = []
    reasons: list[str] = []
    places: list[str] = []
    for space in spaces(family, asked, device):
        try:
            found.append(choice(space))
        except NotAdmitted as error:
            reasons.append(f"{space.machine.__name__} does not admit this point: {error}")
            places.append(getattr(error, "place", ""))
    if not found:
        raise at(NotAdmitted("; ".join(reasons)), next(filter(None, places), ""))
    return found


def spaces(family: Family, asked: Asked, device: Device) -> tuple[AnySpace, ...]:
    """The space of every machine of the family that takes the problem."""
    return tuple(space_of(machine, problem, device) for machine, problem in problems(family, asked)[0])


__all__ = [
    "KEPT",
    "AnySpace",
    "AnyTime",
    "CannotBeMade",
    "Chosen",
    "Failed",
    "Finalist",
    "NotAdmitted",
    "PlanFinalist",
    "Values",
    "best_refined",
    "choose",
    "choose_among",
    "finalists",
    "finalists_of",
    "having",
    "objective_of",
    "of_each",
    "refine_best",
    "spaces",
]
