"""Finalists of a plan: for the best values of what its steps share, the best kernel of every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.api.finalist import ASSEMBLED, KEPT, REFINED, Failed, Finalist, finalists, refuse
from tinygpu.notebook import html as notebook
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.search.plan_time import PlanPrediction, PlanTime
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import FAR, scored, strain_at
from tinygpu.search.refine import refine
from tinygpu.search.result import Result
from tinygpu.search.searchable import Point
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.plan_space import PlanSpace

# Trials that are looked at for the points of steps, the best first.
MOST_TRIALS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PlanFinalist:
    """A candidate of a plan whose kernels were lowered and assembled.

    parts       the kernels of its steps, in their order
    prediction  with the assembler's registers and the conflicts of layouts
    """

    space: PlanSpace
    point: dict[str, int | str]
    parts: tuple[Finalist, ...]
    prediction: PlanPrediction

    @property
    def kernels(self) -> Kernels:
        return Kernels.of_plan(
            self.space.machine, self.space.problem, self.point, tuple(p.built.kernel for p in self.parts)
        )

    @property
    def spills(self) -> bool:
        return any(part.spills for part in self.parts)

    @property
    def ptx(self) -> str:
        """The texts of all kernels, each behind a comment with the name of its step."""
        texts = zip(self.kernels.texts().items(), self.kernels.stages, strict=True)
        return "\n".join(f"// {file}: step {stage.name}\n{text}" for (file, text), stage in texts)

    @property
    def score(self) -> float:
        """Predicted seconds, and the strain that decides where these cannot."""
        return self.prediction.seconds + sum(
            strain_at(part.space, part.refined.point, part.prediction) for part in self.parts
        )

    def __str__(self) -> str:
        """A short account: the candidate, its workspaces, the prediction, and each kernel's own account."""
        kernels, p = self.kernels, self.prediction
        lines = [
            f"{self.space.machine.__name__} for {self.space.problem} on {self.space.device.name}",
            "",
            "candidate   " + " ".join(f"{n}={v}" for n, v in self.point.items()),
            "workspaces  " + (", ".join(_said(kernels)) or "none"),
            f"predicted   {p.seconds * 1e6:,.1f} us, {100 * p.share_of_roofline:.0f} % of the roofline: {p.sentence()}",
        ]
        for stage, part in zip(kernels.stages, self.parts, strict=True):
            head, _, *account = str(part).splitlines()
            lines += ["", f"step {stage.name}: {head}", *account[1:]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same with the time of each step, and the account of each kernel with its pictures."""
        title = f"{self.space.machine.__name__} for {self.space.problem} on {self.space.device.name}"
        whole = self.prediction.seconds
        times = {name: float(p.seconds) for name, p in self.prediction.steps.items()}
        drawn = notebook.bars(
            "predicted, not measured: the steps",
            {name: s / whole for name, s in times.items()},
            {name: f"{s * 1e6:,.2f} us" for name, s in times.items()},
        )
        names = [stage.name for stage in self.kernels.stages]
        parts = [
            notebook.folded(f"step {name}", part._repr_html_()) for name, part in zip(names, self.parts, strict=True)
        ]
        return notebook.paragraph(title) + drawn + "".join(parts)


def plan_finalists(
    objective: PlanTime,
    result: Result,
    layouts: SolverCache,
    keep: int = KEPT,
    failed: Callable[[Failed], None] = refuse,
) -> tuple[PlanFinalist, ...]:
    """For the `keep` best values of what steps share, the kernels of every step that do not spill; best first.

    Those that spill come last. `failed` is told of kernels that the assembler refused; their candidates are left out.
    """
    found = []
    for points in _groups(objective, result, keep):
        made = _finalist(objective, points, layouts, failed)
        if made is not None:
            found.append(made)
    return tuple(sorted(found, key=lambda f: (f.spills, f.score)))


def _groups(objective: PlanTime, result: Result, keep: int) -> Iterator[list[Point]]:
    """The best points of a search with the same values of what steps share; the best groups, best first."""
    shared, history = objective.space.shared(), result.history
    order = np.argsort(history.values, kind="stable")
    order = order[: int(np.count_nonzero(np.isfinite(history.values)))]
    groups: dict[tuple[object, ...], list[Point]] = {}
    for row in order[:MOST_TRIALS].tolist():
        if history.values[row] > FAR * history.values[order[0]] and len(groups) >= keep:
            break
        point = history[row].point
        key = tuple(point[name] for name in shared)
        if key in groups or len(groups) < keep:
            groups.setdefault(key, []).append(point)
    yield from groups.values()


def _finalist(
    objective: PlanTime, points: list[Point], layouts: SolverCache, failed: Callable[[Failed], None]
) -> PlanFinalist | None:
    """The best kernel of every step, among those of points that share the rest; None where a step has none."""
    space = objective.space
    parts: list[Finalist] = []
    for index in range(len(space.steps)):
        found = _step(objective, index, points, layouts, failed)
        if not found:
            return None
        parts.append(found[0])
    point = _joined(space, points[0], parts)
    if point not in space.space:  # a constraint of the plan's own ties the steps together: the best point as it is
        parts = []
        for index in range(len(space.steps)):
            found = _step(objective, index, points[:1], layouts, failed)
            if not found:
                return None
            parts.append(found[0])
        point = dict(points[0])
    prediction = objective.prediction(
        point, extra_wavefronts=[p.refined.extra for p in parts], registers=[p.assembly.registers for p in parts]
    )
    return PlanFinalist(space, point, tuple(parts), prediction)


def _step(
    objective: PlanTime, index: int, points: list[Point], layouts: SolverCache, failed: Callable[[Failed], None]
) -> tuple[Finalist, ...]:
    """Of the different points of a step the best ones, as kernels."""
    space, names = objective.space, objective.terms[index].names
    different: dict[tuple[object, ...], Point] = {}
    for point in points:
        different.setdefault(tuple(point.get(name) for name in names), point)
    mine: dict[tuple[object, ...], Point] = {}
    for point in different.values():
        candidate = space.candidate(index, point)
        mine.setdefault(tuple(candidate.point.items()), candidate.point)
        if len(mine) == REFINED:
            break
    time = PredictedTime(candidate.space)
    refined = refine(time, scored(time, list(mine.values())), layouts, keep=ASSEMBLED)
    return finalists(time.space, time, [refined], 1, failed)


def _joined(space: PlanSpace, shared: Point, parts: list[Finalist]) -> dict[str, int | str]:
    """The plan's point whose steps are these kernels."""
    point: dict[str, int | str] = dict(shared)
    for step, part in zip(space.steps, parts, strict=True):
        own: Mapping[str, int | str] = part.point
        for name, p in step.private.items():
            if name not in space.shared():
                point[name] = own[p.name]
        for choice in step.machine.choices():
            if choice.name not in step.choices:
                point[f"{step.name}.{choice.name}"] = own[choice.name]
    return point


def _said(kernels: Kernels) -> list[str]:
    return [
        f"{o.name}: {o.dtype}[{', '.join(map(str, o.shape))}], {o.extent_elems * o.dtype.bits // 8:,} B"
        for o in kernels.workspaces
    ]


__all__ = ["PlanFinalist", "plan_finalists"]
