"""Predict: how long one candidate takes, where the time goes, and how far that is from the roofline; without a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.api.choosing import AnySpace, PlanFinalist, best_refined, choose, finalists, of_each
from tinygpu.api.machines import Family
from tinygpu.api.predicted_plan import PlanPredicted, predicted_plan
from tinygpu.api.problems import Asked
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Launch
from tinygpu.devices import Device
from tinygpu.notebook import html as notebook
from tinygpu.ptx.assembling.assembler import AssemblerUnavailable, Assembly
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.refine import Refined
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.simulator import Simulator
from tinygpu.simulator.timeline import timeline_svg
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """One candidate with all that is predicted of it.

    refined     the candidate with its layouts, and the bank conflicts that they leave
    assembly    what the assembler says of its kernel; None where there is no assembler
    simulation  one SM, event by event; its `prediction` is the closed form
    """

    space: MachineSpace
    refined: Refined
    assembly: Assembly | None
    simulation: Simulation

    @property
    def title(self) -> str:
        return f"{self.space.machine.__name__} {self.space.problem} on {self.space.device.name}"

    @property
    def registers(self) -> int:
        """Per thread: the assembler's, or the estimate."""
        return self.refined.registers if self.assembly is None else self.assembly.registers

    @property
    def spill_bytes(self) -> int:
        return 0 if self.assembly is None else self.assembly.spill_store_bytes + self.assembly.spill_load_bytes

    @property
    def seconds(self) -> float:
        """Of one launch, in closed form."""
        return float(self.simulation.prediction.seconds)

    @property
    def point(self) -> dict[str, int | str]:
        return dict(self.refined.point)

    def __str__(self) -> str:
        s, p = self.simulation, self.simulation.prediction
        lines = [self.title, "candidate   " + " ".join(f"{n}={v}" for n, v in self.point.items())]
        if not math.isfinite(self.seconds):
            return "\n".join([*lines, s.sentence()])
        return "\n".join(
            [
                *lines,
                f"predicted   {self.seconds * 1e6:,.2f} us in closed form, {s.seconds * 1e6:,.2f} us simulated; the "
                f"roofline is at {float(p.roofline_s) * 1e6:,.2f} us",
                f"bottleneck  {s.sentence()}",
            ]
        )

    def _repr_html_(self) -> str:
        """The same with the time of the closed form by cause, and the simulated timeline where spans were kept."""
        first, *rest = str(self).splitlines()
        if not math.isfinite(self.seconds):
            return notebook.verdict(False, "\n".join([first, *rest]))
        parts = {name: s for name, s in self.simulation.prediction.breakdown().items() if s > 0}
        time = notebook.bars(
            "closed form, predicted: busy and lost time",
            {name: s / self.seconds for name, s in parts.items()},
            {name: f"{s * 1e6:,.2f} us" for name, s in parts.items()},
        )
        drawn = timeline_svg(self.simulation, self.title) if self.simulation.spans else ""
        account = notebook.table(("", ""), [line.split(maxsplit=1) for line in rest])
        return notebook.paragraph(first) + account + time + drawn

    @property
    def bottleneck(self) -> str:
        """What takes most of the time in closed form, in words."""
        return self.simulation.prediction.sentence()

    @property
    def simulated_bottleneck(self) -> str:
        """The same of the simulation."""
        return self.simulation.sentence()

    def demand(self) -> Demand:
        """What the candidate asks for, with the conflicts of its layouts."""
        return self.refined.demand(self.space)

    def to_json(self) -> dict[str, object]:
        s, p = self.simulation, self.simulation.prediction
        return {
            "machine": self.space.machine.__name__,
            "problem": str(self.space.problem),
            "device": s.device,
            "kind": "predicted",
            "point": dict(self.refined.point),
            "registers": self.registers,
            "registers_from": "estimate" if self.assembly is None else "assembler",
            "spill_bytes": self.spill_bytes,
            "ctas_per_sm": int(p.occupancy.ctas_per_sm),
            "closed_form_s": float(p.seconds),
            "simulated_s": s.seconds,
            "roofline_s": float(p.roofline_s),
            "share_of_roofline": s.share_of_roofline,
            "bottleneck": s.sentence(),
            "unit_busy_s": dict(s.busy_s),
            "role_s": {role: dict(parts) for role, parts in s.roles_s.items()},
            "closed_form_parts_s": p.breakdown(),
            "waves": s.waves,
        }


AnyPredicted: TypeAlias = "Predicted | PlanPredicted"


def predict_point(
    family: Family,
    asked: Asked,
    device: Device,
    point: Mapping[str, int | str],
    *,
    launch: Launch = "graph",
    keep: int = 0,
) -> AnyPredicted:
    """The candidate with these values that is predicted to be the fastest of all machines of the family.

    launch  "graph": launches follow each other in a CUDA graph; "stream": queued one by one
    keep    spans of the timeline to keep

    Raises ProblemError where no machine takes the problem, and NotAdmitted where none has such a candidate.
    """
    best = min(of_each(family, asked, device, lambda space: _best(space, point)), key=lambda b: (b.spills, b.score))
    return _predicted(best, launch, keep)


def predict_in(
    space: AnySpace, point: Mapping[str, int | str], *, launch: Launch = "graph", keep: int = 0
) -> AnyPredicted:
    """The candidate of one space with these values that is predicted to be the fastest; raises NotAdmitted."""
    return _predicted(_best(space, point), launch, keep)


def _predicted(best: _Best | PlanFinalist, launch: Launch, keep: int) -> AnyPredicted:
    if isinstance(best, PlanFinalist):
        return predicted_plan(best, launch, keep)
    space, refined, assembly = best.space, best.refined, best.assembly
    simulation = Simulator(space).simulate(
        refined.point,
        extra_wavefronts=refined.extra,
        registers=None if assembly is None else assembly.registers,
        launch=launch,
        keep=keep,
    )
    return Predicted(space, refined, assembly, simulation)


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    """The best candidate of one space, assembled where there is an assembler."""

    space: MachineSpace
    refined: Refined
    assembly: Assembly | None
    spills: bool
    score: float


def _best(space: AnySpace, point: Mapping[str, int | str]) -> _Best | PlanFinalist:
    if isinstance(space, PlanSpace):
        return choose(space, point)
    best = best_refined(space, point)
    try:
        f = finalists(space, PredictedTime(space), best)[0]
    except AssemblerUnavailable:
        return _Best(space, best[0][0], None, False, best[0][0].score)
    return _Best(space, f.refined, f.assembly, f.spills, f.score)


__all__ = ["AnyPredicted", "Predicted", "predict_in", "predict_point"]
