"""Predict: how long one candidate takes, where the time goes, and how far that is from the roofline; without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.api.emit import NotAdmitted
from tinygpu.api.machines import Family
from tinygpu.api.problems import Asked, problems
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Launch
from tinygpu.devices import Device
from tinygpu.ptx.assembler import AssemblerUnavailable, Assembly, assemble
from tinygpu.ptx.lowering.lower import lower
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime, score
from tinygpu.search.refine import Refined, refine
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

# Candidates that are tried at most where a point leaves parameters open.
TRIED = 200_000
# The best candidates that are assembled until one does not spill.
ASSEMBLED = 30


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

    def demand(self) -> Demand:
        """What the candidate asks for, with the conflicts of its layouts."""
        index = self.space.structure_index(self.refined.point)
        values = self.space.environment | {a: int(self.refined.point[a]) for a in self.space.traces[index].axes}
        return self.space.counts(index).demand(values, self.space.device, self.refined.extra)

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


def predict_point(
    family: Family,
    asked: Asked,
    device: Device,
    point: Mapping[str, int | str],
    *,
    launch: Launch = "graph",
    keep: int = 0,
) -> Predicted:
    """The candidate with these values that is predicted to be the fastest of all machines of the family.

    launch  "graph": launches follow each other in a CUDA graph; "stream": queued one by one
    keep    spans of the timeline to keep

    Raises ProblemError where no machine takes the problem, and NotAdmitted where none has such a candidate.
    """
    reasons: list[str] = []
    found: list[tuple[float, MachineSpace, Refined, Assembly | None]] = []
    for machine, problem in problems(family, asked)[0]:
        space = build_space(machine, problem, device)
        try:
            found.append(_best(space, point))
        except NotAdmitted as error:
            reasons.append(f"{machine.__name__} does not admit this point: {error}")
    if not found:
        raise NotAdmitted("; ".join(reasons))
    _, space, refined, assembly = min(found, key=lambda f: f[0])
    simulation = Simulator(space).simulate(
        refined.point,
        extra_wavefronts=refined.extra,
        registers=None if assembly is None else assembly.registers,
        launch=launch,
        keep=keep,
    )
    return Predicted(space, refined, assembly, simulation)


def _best(space: MachineSpace, point: Mapping[str, int | str]) -> tuple[float, MachineSpace, Refined, Assembly | None]:
    """(score, space, ...) of the best candidate of one space that has these values and does not spill."""
    unknown = [name for name in point if name not in space.space.names]
    if unknown:
        names = ", ".join(space.space.names)
        raise NotAdmitted(f"{space.machine.__name__} has no parameter {unknown[0]!r}; it has {names}")
    violations = space.space.explain(point)
    if violations:
        raise NotAdmitted("; ".join(v.sentence for v in violations))
    narrowed = space.space.restrict(point)
    objective = PredictedTime(space)
    result = minimize(narrowed, objective, evaluations=TRIED)
    if result.best is None:
        raise NotAdmitted("no candidate with these values can be launched")
    ranked: list[tuple[bool, float, Refined, Assembly | None]] = []
    for r in refine(objective, result.top(400), SolverCache(), keep=ASSEMBLED):
        assembly = _assembled(space, r)
        spills = assembly is not None and bool(assembly.spill_store_bytes or assembly.spill_load_bytes)
        registers = None if assembly is None else assembly.registers
        prediction = objective.prediction(r.point, extra_wavefronts=r.extra, registers=registers)
        ranked.append((spills, float(score(prediction)), r, assembly))
        if not spills:
            break
    _, seconds, refined, kept = min(ranked, key=lambda entry: entry[:2])
    return seconds, space, refined, kept


def _assembled(space: MachineSpace, r: Refined) -> Assembly | None:
    kernel = lower(r.program, space.problem, r.point, r.layouts.swizzles)
    try:
        return assemble(kernel.ptx, kernel.assembled_for(space.device.portable_target))
    except AssemblerUnavailable:
        return None


__all__ = ["Predicted", "predict_point"]
