"""What is predicted of a candidate of a plan: each of its kernels, and all of them one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygpu.api.planned import PlanFinalist
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Launch
from tinygpu.notebook import html as notebook
from tinygpu.search.plan_time import PlanPrediction, PlanTime
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.plan_space import PlanSpace


@dataclass(frozen=True, slots=True, eq=False)
class PlanPredicted:
    """One candidate of a plan with all that is predicted of it.

    prediction   in closed form: every launch, and what a step finds in L2 of what was left for it
    simulations  of each kernel by itself, one SM, event by event
    """

    made: PlanFinalist
    prediction: PlanPrediction
    simulations: tuple[Simulation, ...]

    @property
    def space(self) -> PlanSpace:
        return self.made.space

    @property
    def title(self) -> str:
        return f"{self.space.machine.__name__} {self.space.problem} on {self.space.device.name}"

    @property
    def point(self) -> dict[str, int | str]:
        return dict(self.made.point)

    @property
    def seconds(self) -> float:
        """Of all launches, in closed form."""
        return self.prediction.seconds

    @property
    def registers(self) -> int:
        """Per thread, of the kernel that has most."""
        return max(part.assembly.registers for part in self.made.parts)

    @property
    def bottleneck(self) -> str:
        """What takes most of the time in closed form, in words."""
        return self.prediction.sentence()

    @property
    def simulated_bottleneck(self) -> str:
        """The same of the simulation of each step."""
        steps = zip(self.prediction.steps, self.simulations, strict=True)
        return "; ".join(f"step {name}: {simulation.sentence()}" for name, simulation in steps)

    def demands(self) -> tuple[Demand, ...]:
        """What each step asks for, with the conflicts of its layouts."""
        return tuple(part.refined.demand(part.space) for part in self.made.parts)

    def __str__(self) -> str:
        p = self.prediction
        lines = [self.title, "candidate   " + " ".join(f"{n}={v}" for n, v in self.point.items())]
        if not math.isfinite(p.seconds):
            return "\n".join([*lines, p.sentence()])
        lines.append(
            f"predicted   {p.seconds * 1e6:,.2f} us in closed form, {p.launch_s * 1e6:,.2f} us of it for launches; the "
            f"roofline is at {p.roofline_s * 1e6:,.2f} us"
        )
        for name, step in p.steps.items():
            lines.append(f"step {name}: {float(step.seconds) * 1e6:,.2f} us, {step.sentence()}")
        return "\n".join([*lines, f"bottleneck  {p.sentence()}"])

    def _repr_html_(self) -> str:
        """The same with the time of each step."""
        first, *rest = str(self).splitlines()
        whole = self.seconds
        if not math.isfinite(whole):
            return notebook.verdict(False, "\n".join([first, *rest]))
        times = {name: float(p.seconds) for name, p in self.prediction.steps.items()}
        drawn = notebook.bars(
            "closed form, predicted: the steps",
            {name: s / whole for name, s in times.items()},
            {name: f"{s * 1e6:,.2f} us" for name, s in times.items()},
        )
        return notebook.paragraph(first) + notebook.sentences(rest) + drawn

    def to_json(self) -> dict[str, object]:
        p = self.prediction
        parts = zip(p.steps.items(), self.made.parts, self.simulations, strict=True)
        return {
            "machine": self.space.machine.__name__,
            "problem": str(self.space.problem),
            "device": self.space.device.name,
            "kind": "predicted",
            "point": self.point,
            "closed_form_s": p.seconds,
            "launch_s": p.launch_s,
            "roofline_s": p.roofline_s,
            "share_of_roofline": p.share_of_roofline,
            "bottleneck": p.sentence(),
            "steps": [
                {
                    "step": name,
                    "registers": part.assembly.registers,
                    "closed_form_s": float(step.seconds),
                    "simulated_s": simulation.seconds,
                    "closed_form_parts_s": step.breakdown(),
                    "bottleneck": step.sentence(),
                }
                for (name, step), part, simulation in parts
            ],
        }


def predicted_plan(made: PlanFinalist, launch: Launch = "graph", keep: int = 0) -> PlanPredicted:
    """All that is predicted of a candidate of a plan.

    keep  spans of each step's timeline to keep
    """
    extra = [part.refined.extra for part in made.parts]
    registers = [part.assembly.registers for part in made.parts]
    prediction = PlanTime(made.space).prediction(
        made.point, extra_wavefronts=extra, registers=registers, launch=launch
    )
    simulations = tuple(
        Simulator(part.space).simulate(
            part.refined.point,
            extra_wavefronts=part.refined.extra,
            registers=part.assembly.registers,
            launch=launch,
            keep=keep,
        )
        for part in made.parts
    )
    return PlanPredicted(made, prediction, simulations)


__all__ = ["PlanPredicted", "predicted_plan"]
