"""Predictions for people: where a candidate's time goes, by unit and role, and from the roofline to the whole."""

from __future__ import annotations

import math

from rich.markup import escape

from tinygpu.api.predict import AnyPredicted, Predicted
from tinygpu.api.predicted_plan import PlanPredicted
from tinygpu.api.timeline import short_point
from tinygpu.cli.printing import console, table
from tinygpu.cost.predictor import CAUSES, UNITS
from tinygpu.simulator.plan import SERVERS

# Rows of what each role does.
SHOWN = 6


def predicted_report(found: AnyPredicted) -> None:
    """What `tinygpu predict` prints."""
    if isinstance(found, PlanPredicted):
        _plan_report(found)
    else:
        _kernel_report(found)


def _plan_report(found: PlanPredicted) -> None:
    """The whole, and each of its kernels in a line."""
    p = found.prediction
    console.print(f"\n[bold]{escape(found.title)}[/bold]")
    console.print("candidate " + escape(" ".join(f"{k}={v}" for k, v in found.point.items())))
    if not math.isfinite(p.seconds):
        console.print(p.sentence())
        return
    console.print(
        f"predicted, not measured: [bold]{_us(p.seconds)} us[/bold] in closed form "
        f"({100 * p.share_of_roofline:.0f} % of the roofline)"
    )
    console.print(f"bottleneck: {p.sentence()}\n")
    rows = table("step", "us>", "of it launch us>", "simulated us>", "registers>", "CTAs>", "bottleneck")
    for (name, step), part, simulation in zip(p.steps.items(), found.made.parts, found.simulations, strict=True):
        rows.add_row(
            name,
            _us(float(step.seconds)),
            _us(float(step.launch_s)),
            _us(simulation.seconds),
            str(part.assembly.registers),
            f"{part.built.kernel.grid(part.space.problem)[0]:,}",
            step.sentence(),
        )
    console.print(rows)
    console.print(f"roofline: the least time of the problem, {_us(p.roofline_s)} us")


def _kernel_report(found: Predicted) -> None:
    s, p = found.simulation, found.simulation.prediction
    console.print(f"\n[bold]{escape(found.title)}[/bold]")
    console.print(f"candidate {escape(short_point(found))}")
    if found.assembly is None:
        console.print(f"not assembled, for there is no assembler: {found.registers} registers estimated")
    else:
        spilled = f", SPILLS {found.spill_bytes} B" if found.spill_bytes else ""
        console.print(f"assembled: {found.registers} registers (estimate {found.refined.registers}){spilled}")
    if not math.isfinite(s.seconds):
        console.print(s.sentence())
        return
    console.print(
        f"{int(p.occupancy.ctas_per_sm)} CTAs per SM, {float(p.waves):.2f} waves; "
        f"{s.simulated} of {s.waves} were simulated"
    )
    console.print(
        f"predicted, not measured: [bold]{_us(float(p.seconds))} us[/bold] in closed form "
        f"({100 * float(p.share_of_roofline):.0f} % of the roofline), {_us(s.seconds)} us simulated "
        f"({100 * s.share_of_roofline:.0f} %)"
    )
    console.print(f"bottleneck: {s.sentence()}\n")
    _units(found)
    _roles(found)
    _distance(found)


def _units(found: Predicted) -> None:
    s = found.simulation
    rows = table("unit of the SM", "busy us>", "share>", title="simulated, the busiest SM")
    for unit in sorted(SERVERS, key=lambda u: -s.busy_s[u]):
        if s.busy_s[unit] > 0:
            rows.add_row(UNITS[unit], _us(s.busy_s[unit]), f"{100 * s.busy_s[unit] / s.sm_s:.0f} %")
    console.print(rows)


def _roles(found: Predicted) -> None:
    rows = table("role", "what it does", "share of its time>", title="\nsimulated, roles of the CTAs")
    for role, parts in found.simulation.roles_s.items():
        total = sum(parts.values())
        longest = sorted(parts.items(), key=lambda part: -part[1])
        for number, (what, seconds) in enumerate(longest[:SHOWN]):
            rows.add_row(role if number == 0 else "", what, f"{100 * seconds / total:.0f} %")
    console.print(rows)


def _distance(found: Predicted) -> None:
    """What the predicted time is made of, in closed form, and the least time of the problem."""
    p = found.simulation.prediction
    parts = p.breakdown()
    most = max(UNITS, key=lambda unit: parts[unit])
    rows = table("", "us>", title="\nclosed form, what the time is made of")
    rows.add_row(f"{UNITS[most]}, busy", _us(parts[most]))
    for cause in ("latency", "tail", "power", "launch"):
        rows.add_row(CAUSES[cause], _us(parts[cause]))
    rows.add_row("predicted", _us(float(p.seconds)))
    rows.add_row("roofline: the least time of the problem", _us(float(p.roofline_s)))
    console.print(rows)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f}"


__all__ = ["predicted_report"]
