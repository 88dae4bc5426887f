"""Single candidates: why a point is out, its kernel, and its verification."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.api.machines import Family
from tinygpu.api.problems import Asked, problems
from tinygpu.api.tune import Finalist, finalists
from tinygpu.devices import Device
from tinygpu.ptx.verification import Verification, verify
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.refine import refined
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space


class NotAdmitted(ValueError):
    """A point that the space does not hold, with every constraint that it breaks."""


def spaces(family: Family, asked: Asked, device: Device) -> tuple[MachineSpace, ...]:
    """The space of every machine of the family that takes the problem."""
    return tuple(build_space(machine, problem, device) for machine, problem in problems(family, asked)[0])


def explain(space: MachineSpace, point: Mapping[str, int | str]) -> tuple[str, ...]:
    """Why a point is out, with the numbers; empty when it is in.

    Values that are left open are chosen such that the point breaks as little as possible.
    """
    broken = space.space.explain(point)
    domains = [part.domains() for part in space.space.parts]
    offered = any(all(n in d and v in d[n] for n, v in point.items()) for d in domains)
    if not broken or not offered or all(point.keys() == d.keys() for d in domains):
        return tuple(v.sentence for v in broken)
    nearest = space.space.restrict(point).nearest()
    chosen = ", ".join(f"{n}={v}" for n, v in nearest.point.items() if n not in point)
    return (*[v.sentence for v in nearest.violations], f"the nearest completion has {chosen}")


def complete(space: MachineSpace, point: Mapping[str, int | str]) -> dict[str, int | str]:
    """The best predicted candidate that has these values; raises NotAdmitted with the reasons where there is none."""
    unknown = [name for name in point if name not in space.space.names]
    if unknown:
        names = ", ".join(space.space.names)
        raise NotAdmitted(f"{space.machine.__name__} has no parameter {unknown[0]!r}; it has {names}")
    violations = space.space.explain(point)
    if violations:
        raise NotAdmitted("; ".join(v.sentence for v in violations))
    narrowed = space.space.restrict(point)
    found = minimize(narrowed, PredictedTime(space), evaluations=200_000)
    if found.ended == "interrupted":
        raise KeyboardInterrupt
    best = found.best
    if best is None:
        raise NotAdmitted("no candidate with these values can be launched")
    return dict(best)


def emit(space: MachineSpace, point: Mapping[str, int | str]) -> Finalist:
    """The kernel of one point; parameters that are left out are chosen by the predictor."""
    objective = PredictedTime(space)
    whole = complete(space, point)
    return finalists(space, objective, [refined(objective, whole, SolverCache())], space.device, 1)[0]


def verify_point(space: MachineSpace, point: Mapping[str, int | str], seed: int = 0) -> tuple[Finalist, Verification]:
    """One point's kernel, emulated."""
    made = emit(space, point)
    return made, verify(made.built.kernel, space.machine, space.problem, seed=seed, thorough=True)
